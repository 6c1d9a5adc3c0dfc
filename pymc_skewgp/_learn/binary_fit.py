"""One class against the rest: kernel, start, hyperparameters, posterior."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_skewgp import cov
from pymc_skewgp._learn.batches import random_batches
from pymc_skewgp._learn.fit_report import HyperparameterFit
from pymc_skewgp._learn.hyperparameters import learn
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._posterior.posterior import SkewGPPosterior
from pymc_skewgp._validation import FloatArray

KernelFunction = Callable[[int], Any]

_STATIONARY = {
    "rbf": pm.gp.cov.ExpQuad,
    "matern32": pm.gp.cov.Matern32,
    "matern52": pm.gp.cov.Matern52,
}
KERNELS = (*_STATIONARY, "nn")
# Phases that are tried out; more take the labels of the rows that they start at.
_MOST_TRIED = 3
_DRAWS = 256
_ROUND_OFF = 1e-9
_FAR = 100.0  # standard deviations from 0


class Options(NamedTuple):
    """What `SkewGPClassifier` was asked for."""

    kernel: str | KernelFunction
    ard: bool
    n_pseudo_points: int
    batch_size: int | None
    n_restarts: int


class BinaryFit(NamedTuple):
    """The posterior of one class against the rest, and the search for its hyperparameters."""

    posterior: SkewGPPosterior
    fit: HyperparameterFit | None


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
    sign = np.where(y, 1.0, -1.0)
    gp, start = _process(X, options, None, None)
    centre = dict(start)
    rng = np.random.default_rng(seed)
    common: dict[str, Any] = {
        # A composite likelihood is off by more than expectation propagation is.
        "method": "twisted" if options.batch_size is None else "ep",
        "batch_size": options.batch_size,
        "n_draws": _DRAWS,
        "rng": rng,
        "curved": False,
        "progressbar": False,
    }
    learnt = None
    kernel = {rv.name for rv in gp.model.free_RVs}
    start |= {name: value for name, value in (before or {}).items() if name in kernel}
    # With pseudo-points all is learnt once more, from the kernel of the GP on.
    known = before is not None and options.n_pseudo_points > 0 and options.batch_size is None
    if kernel and not known:
        restarts = options.n_restarts if before is None else 0
        # A first search starts at its centre: to work that out again would be a compilation.
        box = None if before is None else centre
        learnt = learn(gp, X, y, start=start, centre=box, n_restarts=restarts, **common)
        start = {name: value for name, value in learnt.point.items() if name in kernel}
    if options.n_pseudo_points:
        # At rows that lie apart.
        rows = _spread_rows(X, options.n_pseudo_points, rng)
        gp, _ = _process(X, options, X[rows], sign[rows])
        start["pseudo_points"] = centre["pseudo_points"] = X[rows]
        if options.batch_size is None:
            learnt = learn(gp, X, y, start=start, centre=centre, n_restarts=0, **common)
        else:
            # On one batch, and under that kernel: a composite likelihood would count what the
            # points tell once for each batch, and move all else to make the most of it.
            seen = random_batches(sign, options.batch_size, rng)[0]
            common["batch_size"] = None
            learnt = learn(gp, X[seen], y[seen], start=start, n_restarts=0, held=learnt, **common)
            learnt = replace(learnt, in_batches=True)
    posterior = gp.posterior(X, y, point=learnt.point if learnt else None, random_seed=seed)
    # Its draws belong to the fit, not to the first prediction.
    evidence = posterior.log_marginal_likelihood
    return BinaryFit(posterior, learnt.report(evidence) if learnt else None)


def _process(
    X: FloatArray, options: Options, points: FloatArray | None, phase: FloatArray | None
) -> tuple[SkewGP, dict[str, Any]]:
    """The SkewGP with what is to be learnt of it as variables, and where these start."""
    d = X.shape[1]
    start: dict[str, Any] = {}
    with pm.Model():
        if callable(options.kernel):
            kernel = options.kernel(d)
        else:
            kernel, start = _named_kernel(X, options.kernel, options.ard)
        told: dict[str, Any] = {}
        if points is not None and phase is not None:
            s = points.shape[0]
            told["pseudo_points"] = pm.Flat("pseudo_points", shape=(s, d))
            if s > 1:
                pm.Potential("apart", _log_volume(kernel, told["pseudo_points"]))
            told["phase"] = phase
            if s <= _MOST_TRIED:
                told["phase"] = 2 * pm.Bernoulli("positive", 0.5, shape=s) - 1
        return SkewGP(cov_func=kernel, **told), start


def _log_volume(kernel: Any, points: Any) -> Any:
    """Half the log determinant of the correlations at the pseudo-points, which keeps them apart.

    Without it opposite phases would close in on one point: the prior would be told that f crosses
    zero exactly there, an optimum of the marginal likelihood that no data justify.
    """
    matrix = kernel(points)
    sd = pt.sqrt(pt.diagonal(matrix))
    correlation = matrix / sd / sd[:, None]
    chol = pt.linalg.cholesky(correlation + _ROUND_OFF * pt.eye(matrix.shape[0]))
    return pt.log(pt.diagonal(chol)).sum()


def _named_kernel(X: FloatArray, name: str, ard: bool) -> tuple[Any, dict[str, Any]]:
    """eta^2 times the kernel, with flat priors, and starts at the scale of the inputs."""
    d = X.shape[1]
    eta = pm.HalfFlat("eta")
    ls = pm.HalfFlat("ls", shape=d) if ard else pm.HalfFlat("ls")
    if name == "nn":
        bias = pm.HalfFlat("bias")
        size = np.sqrt(np.mean(X**2, axis=0))
        kernel = cov.NeuralNetwork(d, ls=ls, bias=bias)
        start = {"eta": 2.0, "ls": _lengthscale(size, ard) / 2.0, "bias": 1.0}
    else:
        kernel = _STATIONARY[name](d, ls=ls)
        spread = np.std(X, axis=0)
        # Round-off leaves a constant column a deviation that is tiny, not zero.
        spread[np.ptp(X, axis=0) == 0] = 0.0
        start = {"eta": 2.0, "ls": _lengthscale(spread, ard)}
        centre = X.mean(axis=0)
        if (np.abs(centre) > _FAR * spread).any():
            # Squared distances are differences of squares, which far from 0 have no digits left.
            kernel = pm.gp.cov.WarpedInput(d, kernel, _minus, (centre,))
    return eta**2 * kernel, start


def _minus(X: Any, centre: FloatArray) -> Any:
    return X - centre


def _lengthscale(size: FloatArray, ard: bool) -> Any:
    """Of each input, or of all: distances between rows come out as 1 or so."""
    varies = size > 0
    if not varies.any():
        return np.ones(size.size) if ard else 1.0
    if not ard:
        return float(np.sqrt((size**2).sum()))
    # A constant column has no say at any lengthscale.
    return np.where(varies, size, 1.0) * np.sqrt(varies.sum())


def _spread_rows(X: FloatArray, count: int, rng: np.random.Generator) -> Any:
    """Rows far from each other: each drawn in proportion to its squared distance to the others.

    The seeding of k-means++ (Arthur & Vassilvitskii 2007).
    """
    scale = np.std(X, axis=0)
    Z = X / np.where(scale > 0, scale, 1.0)
    chosen = [int(rng.integers(X.shape[0]))]
    distance = np.full(X.shape[0], np.inf)
    while len(chosen) < count:
        distance = np.minimum(distance, ((Z - Z[chosen[-1]]) ** 2).sum(axis=1))
        total = distance.sum()
        if not total > 0:
            raise ValueError(
                f"n_pseudo_points={count}, but X has only {len(chosen)} different rows."
            )
        chosen.append(int(rng.choice(X.shape[0], p=distance / total)))
    return np.array(chosen)
