"""One process under one likelihood: hyperparameters learnt, then its posterior given all data."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from xarray import DataTree

from pymc_skewgp._cost import refuse_too_many_rows
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._learn.averaging.average_process import averaged_process
from pymc_skewgp._learn.averaging.averaged_posterior import AveragedPosterior
from pymc_skewgp._learn.fit_report import HyperparameterFit
from pymc_skewgp._learn.learning_run import learn
from pymc_skewgp._learn.named_kernels import KernelFunction, named_kernel
from pymc_skewgp._learn.problem import TrainingData
from pymc_skewgp._learn.rows.loss_at import warn_of_learnt
from pymc_skewgp._learn.rows.rows_graphs import why_not_by_rows
from pymc_skewgp._learn.settings import SearchSettings
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._model.graph.data_sites import known_of
from pymc_skewgp._posterior.approximations.automatic import MANY_ROWS, never_stopping
from pymc_skewgp._posterior.posterior import SkewGPPosterior
from pymc_skewgp._validation import FloatArray


class FittedProcess(NamedTuple):
    """A posterior, and what was learnt of hyperparameters.

    A search, None where there was nothing to learn; or draws of them, under a mixture.
    """

    posterior: SkewGPPosterior | AveragedPosterior
    fit: HyperparameterFit | DataTree | None


class Definition(NamedTuple):
    """A process and a likelihood with what is to be learnt of them as variables.

    Attributes
    ----------
    mean_func : pymc.gp.mean.Mean
    likelihood : Likelihood
    start : dict
        Where these variables start.
    prior : callable, optional
        Called with the kernel; makes potentials of these variables and those of the kernel.
    """

    mean_func: Any
    likelihood: Any
    start: dict[str, Any]
    prior: Callable[[Any], None] | None = None


class Kernel(NamedTuple):
    """What an estimator was asked for, and the scale of f that its weak priors are about.

    And whether its hyperparameters are averaged over.
    """

    kernel: str | KernelFunction
    ard: bool
    scale: float = 1.0
    average: bool = False


def fit_process(
    X: FloatArray,
    y: Any,
    kernel: Kernel,
    define: Callable[[], Definition],
    settings: SearchSettings,
    seed: int,
    weights: IntArray | None = None,
) -> FittedProcess:
    """Learn hyperparameters, then condition on all data.

    Parameters
    ----------
    X : ndarray, shape (n, d)
    y
        As the likelihood takes it.
    kernel : Kernel
    define : callable
        Called inside a ``pm.Model``.
    settings : SearchSettings
    seed : int
    weights : ndarray of int, optional
        How often each observation was made. Default once.
    """
    with pm.Model() as model:
        mean_func, likelihood, start, prior = define()
        if callable(kernel.kernel):
            cov_func = kernel.kernel(X.shape[1])
        else:
            cov_func, own = named_kernel(X, kernel.kernel, kernel.ard, kernel.scale, kernel.average)
            start = start | own
        if prior is not None:
            prior(cov_func)
        gp = SkewGP(mean_func=mean_func, cov_func=cov_func)
        _refuse_without_blocks(gp, X, y, likelihood)  # now, and not after the search
    if kernel.average:
        if weights is not None:
            y = np.repeat(y, weights, axis=0)
        return FittedProcess(*averaged_process(TrainingData(gp, X, y, likelihood), start, seed))
    run = None
    if model.free_RVs:
        data = TrainingData(gp, X, y, likelihood, weights=weights)
        run = learn(data, settings, np.random.default_rng(seed), start=start)
        warn_of_learnt(data, run, stacklevel=2)
    point = run.values if run else None
    with never_stopping(quiet=run is not None):  # a search is not thrown away
        posterior = gp.posterior(
            X, y, likelihood=likelihood, weights=weights, point=point, random_seed=seed
        )
    # Its draws belong to the fit, not to the first prediction.
    evidence = posterior.log_marginal_likelihood
    return FittedProcess(posterior, run.report(evidence) if run else None)


def _refuse_without_blocks(gp: SkewGP, X: FloatArray, y: Any, likelihood: Any) -> None:
    """Raise for rows that are too many, in a posterior, for the kernel as it is."""
    if X.shape[0] <= MANY_ROWS or (likelihood.n_functions(y) == 1 and likelihood.y_dim == "obs_id"):
        return
    reason = why_not_by_rows(gp, [known_of(X, y, likelihood)])
    if reason is not None:
        refuse_too_many_rows(X.shape[0], reason)
