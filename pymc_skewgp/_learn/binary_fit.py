"""One class against the rest: kernel, start, hyperparameters, posterior."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from xarray import DataTree

from pymc_skewgp._learn.averaging.average_process import averaged_process
from pymc_skewgp._learn.averaging.averaged_posterior import AveragedPosterior
from pymc_skewgp._learn.batches import random_batches
from pymc_skewgp._learn.fit_report import HyperparameterFit
from pymc_skewgp._learn.learning_run import LearningRun, learn
from pymc_skewgp._learn.learnt_pseudo_points import pseudo_points, spread_rows
from pymc_skewgp._learn.named_kernels import KernelFunction, named_kernel
from pymc_skewgp._learn.problem import TrainingData
from pymc_skewgp._learn.rows.loss_at import warn_of_learnt
from pymc_skewgp._learn.settings import SearchSettings
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._posterior.approximations.automatic import never_stopping
from pymc_skewgp._posterior.posterior import SkewGPPosterior
from pymc_skewgp._validation import FloatArray

# An amplitude of which the noise of labels is a hundredth.
LARGE = 100.0


class Options(NamedTuple):
    """What `SkewGPClassifier` was asked for."""

    kernel: str | KernelFunction
    ard: bool
    n_pseudo_points: int
    search: SearchSettings
    average: bool = False


class BinaryFit(NamedTuple):
    """The posterior of one class against the rest, and the search for its hyperparameters.

    Or a mixture, with draws of the hyperparameters.

    Attributes
    ----------
    rise : float or None
        Nats by which the evidence is above that at an amplitude that is `LARGE`; None where it has
        a maximum in the amplitude, or the amplitude is not larger.
    """

    posterior: SkewGPPosterior | AveragedPosterior
    fit: HyperparameterFit | DataTree | None
    rise: float | None = None


def fit_binary(
    X: FloatArray,
    y: Any,
    options: Options,
    seed: int,
    before: Mapping[str, Any] | None = None,
) -> BinaryFit:
    """Learn hyperparameters, then condition on all labels.

    Parameters
    ----------
    X : ndarray, shape (n, d)
    y : ndarray of bool, shape (n,)
    options : Options
    seed : int
    before : mapping, optional
        Hyperparameters of an earlier fit with this kernel, to go on from.

    Returns
    -------
    BinaryFit
        Its `fit` is None where the kernel has nothing to learn.
    """
    rng = np.random.default_rng(seed)
    if options.average:
        gp, centre = _process(X, options)
        return BinaryFit(*averaged_process(TrainingData(gp, X, y), centre, seed))
    # The search is of rows in one order, whatever order they came in: on labels that are separable
    # the evidence has no maximum, and round-off would decide where it ends.
    order = np.lexsort((y, *X.T))
    seen, labels = X[order], y[order]
    gp, centre = _process(seen, options)
    kernel = {rv.name for rv in gp.model.free_RVs}
    start = centre | {name: value for name, value in (before or {}).items() if name in kernel}
    in_batches = options.search.batch_size is not None
    run = None
    # With pseudo-points all is learnt once more, from the kernel of the GP on.
    known = before is not None and options.n_pseudo_points > 0 and not in_batches
    if kernel and not known:
        settings = options.search if before is None else replace(options.search, n_restarts=0)
        # A first search starts at its centre: to work that out again would be a compilation.
        box = None if before is None else centre
        run = learn(TrainingData(gp, seen, labels), settings, rng, start=start, centre=box)
        start = {name: value for name, value in run.values.items() if name in kernel}
    if options.n_pseudo_points:
        data = TrainingData(gp, seen, labels)
        gp, run = _with_pseudo_points(data, options, start, centre, run, rng)
    if run is not None:
        warn_of_learnt(TrainingData(gp, X, y), run, stacklevel=2)
    with never_stopping(quiet=run is not None):  # a search is not thrown away
        posterior = gp.posterior(X, y, point=run.values if run else None, random_seed=seed)
    # Its draws belong to the fit, not to the first prediction.
    evidence = posterior.log_marginal_likelihood
    if run is None:
        return BinaryFit(posterior, None)
    rise = None
    if not callable(options.kernel) and run.values["eta"] > LARGE:
        rise = (run.fixed_from or run).rise("eta", LARGE)
    return BinaryFit(posterior, run.report(evidence), rise)


def _with_pseudo_points(
    data: TrainingData,
    options: Options,
    start: dict[str, Any],
    centre: dict[str, Any],
    run: LearningRun | None,
    rng: np.random.Generator,
) -> tuple[SkewGP, LearningRun]:
    """The process with pseudo-points, and the search for them that goes on from `start`."""
    X, y = data.X, data.y
    rows = spread_rows(X, options.n_pseudo_points, rng)
    gp, _ = _process(X, options, X[rows], np.where(y[rows], 1.0, -1.0))
    points = {"pseudo_points": X[rows]}
    settings = replace(options.search, n_restarts=0, batch_size=None)
    if options.search.batch_size is None:
        data = TrainingData(gp, X, y)
        return gp, learn(data, settings, rng, start=start | points, centre=centre | points)
    # On one batch, and with the kernel fixed: in a composite likelihood the prior at the points
    # counts once for each batch, and all else moves to make the most of it.
    seen = random_batches(y, options.search.batch_size, rng)[0]
    data = TrainingData(gp, X[seen], y[seen])
    run = learn(data, settings, rng, start=start | points, fixed_from=run)
    return gp, replace(run, in_batches=True)


def _process(
    X: FloatArray,
    options: Options,
    points: FloatArray | None = None,
    labels: FloatArray | None = None,
) -> tuple[SkewGP, dict[str, Any]]:
    """The SkewGP with what is to be learnt of it as variables, and where these start."""
    start: dict[str, Any] = {}
    scale = 1.0 if options.average else None  # an average needs priors
    with pm.Model():
        if callable(options.kernel):
            kernel = options.kernel(X.shape[1])
        else:
            average = options.average
            kernel, start = named_kernel(X, options.kernel, options.ard, scale, average)
        known: dict[str, Any] = {}
        if points is not None and labels is not None:
            known = pseudo_points(kernel, points, labels)
        return SkewGP(cov_func=kernel, **known), start
