"""One process under one likelihood: hyperparameters learnt, then its posterior given all data."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._learn.fit_report import HyperparameterFit
from pymc_skewgp._learn.learning_run import learn
from pymc_skewgp._learn.named_kernels import KernelFunction, named_kernel
from pymc_skewgp._learn.problem import TrainingData
from pymc_skewgp._learn.settings import SearchSettings
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._posterior.posterior import SkewGPPosterior
from pymc_skewgp._validation import FloatArray


class FittedProcess(NamedTuple):
    """A posterior, and the search for hyperparameters: None where there was nothing to learn."""

    posterior: SkewGPPosterior
    fit: HyperparameterFit | None


class Definition(NamedTuple):
    """A process and a likelihood with what is to be learnt of them as variables.

    Attributes
    ----------
    mean_func : pymc.gp.mean.Mean
    likelihood : Likelihood
    start : dict
        Where these variables start.
    """

    mean_func: Any
    likelihood: Any
    start: dict[str, Any]


class Kernel(NamedTuple):
    """What an estimator was asked for, and the scale of f that its weak priors are about."""

    kernel: str | KernelFunction
    ard: bool
    scale: float = 1.0


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
        mean_func, likelihood, start = define()
        if callable(kernel.kernel):
            cov_func = kernel.kernel(X.shape[1])
        else:
            cov_func, own = named_kernel(X, kernel.kernel, kernel.ard, kernel.scale)
            start = start | own
        gp = SkewGP(mean_func=mean_func, cov_func=cov_func)
    run = None
    if model.free_RVs:
        data = TrainingData(gp, X, y, likelihood, weights=weights)
        run = learn(data, settings, np.random.default_rng(seed), start=start)
    point = run.values if run else None
    posterior = gp.posterior(
        X, y, likelihood=likelihood, weights=weights, point=point, random_seed=seed
    )
    # Its draws belong to the fit, not to the first prediction.
    evidence = posterior.log_marginal_likelihood
    return FittedProcess(posterior, run.report(evidence) if run else None)
