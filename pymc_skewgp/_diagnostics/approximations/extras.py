"""What pymc-extras offers for the same model, where it is installed."""

from typing import Any

import numpy as np

from pymc_skewgp._diagnostics.approximations.drawn import from_draws
from pymc_skewgp._diagnostics.approximations.models import latent_model
from pymc_skewgp._diagnostics.approximations.problem import Approximation, Problem


def extras_laplace(problem: Problem) -> Approximation:
    """``pymc_extras.fit_laplace``, of whitened f."""
    idata = _extras().fit_laplace(
        model=latent_model(problem),
        draws=problem.draws * problem.chains,
        random_seed=problem.seed,
        progressbar=False,
        **problem.options,
    )
    return _from_idata(problem, idata)


def extras_pathfinder(problem: Problem) -> Approximation:
    """``pymc_extras.fit_pathfinder``, of whitened f."""
    idata = _extras().fit_pathfinder(
        model=latent_model(problem),
        num_draws=problem.draws * problem.chains,
        random_seed=problem.seed,
        progressbar=False,
        **problem.options,
    )
    return _from_idata(problem, idata)


def _from_idata(problem: Problem, idata: Any) -> Approximation:
    f = np.asarray(idata["posterior"]["f"].values, dtype=float)
    return from_draws(problem, f.reshape(problem.chains, problem.draws, -1))


def _extras() -> Any:
    try:
        import pymc_extras
    except ImportError as error:
        raise ModuleNotFoundError(
            f"pymc-extras could not be imported ({error}): pip install pymc-extras, which needs a "
            "release of PyMC that it supports.",
            name="pymc_extras",
        ) from error
    return pymc_extras
