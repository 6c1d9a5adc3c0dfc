"""The procedure of the paper, for replication: SPSA on a Frechet lower bound. Do not use it to fit.

The bound is negative, and so has no information, unless the labels of every batch are almost
certain: with B batches of probability p it is B p - (B - 1), and p is 1e-5 or so for thirty labels.
A negative bound is flat as well, so that SPSA makes a random walk. `find_hyperparameters` does
better with the same batches (``batch_size=``).
"""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pymc_skewgp._learn.evaluation_log import EvaluationLog
from pymc_skewgp._learn.fit_report import HyperparameterFit
from pymc_skewgp._learn.point import Bounds, Function, Point, Value
from pymc_skewgp._learn.problem import TrainingData, process_objective
from pymc_skewgp._learn.settings import SearchSettings
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._validation import Seed, as_count, as_generator

_DRAWS = 256
# Spall's (1998) exponents of the gains, and the share of iterations that steps stay long for.
_ALPHA, _GAMMA, _STABILITY = 0.602, 0.101, 0.1


def frechet_lower_bound(log_evidences: ArrayLike) -> float:
    r"""Lower bound of the evidence of all labels from those of its batches.

    .. math:: p(y) \ge \sum_{b=1}^{B} p(y_b) - (B - 1)

    Parameters
    ----------
    log_evidences : array_like, shape (B,)
        Log evidence of each batch.

    Returns
    -------
    float
        At most 1. Zero or negative, it has no information.

    References
    ----------
    .. [1] M. Frechet (1935), Generalisation du theoreme des probabilites totales, Fundamenta
       Mathematicae 25.
    .. [2] A. Benavoli, D. Azzimonti & D. Piga (2020), arXiv:2005.12987.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp._learn.frechet import frechet_lower_bound
    >>> print(f"{frechet_lower_bound(np.log([0.9, 0.95])):.2f}")
    0.85
    >>> print(f"{frechet_lower_bound(np.log([0.1, 0.1, 0.1])):.2f}")
    -1.70
    """
    logs = np.atleast_1d(np.asarray(log_evidences, dtype=np.float64))
    # Each less 1 first: near certainty the sum would lose its digits.
    return float(1.0 + np.expm1(logs).sum())


def spsa(
    function: Function,
    start: Point,
    bounds: Bounds,
    n_iterations: int,
    rng: np.random.Generator,
    *,
    step: float = 0.1,
    perturbation: float = 0.1,
) -> tuple[Point, Value]:
    r"""Simultaneous perturbation stochastic approximation, maximising.

    .. math:: x_{k+1} = x_k + a_k \frac{F(x_k + c_k \delta) - F(x_k - c_k \delta)}{2 c_k}
        \delta^{-1}, \qquad a_k = \frac{a}{(A + k)^{.602}}, \quad c_k = \frac{c}{k^{.101}},

    with independent signs in :math:`\delta`.

    Parameters
    ----------
    function : callable
        Gradients are not used.
    start : Point
    bounds : list of pairs
    n_iterations : int
        Of two evaluations each.
    rng : numpy.random.Generator
    step : float, default 0.1
        What the first step moves each coordinate by, about; sets a.
    perturbation : float, default 0.1
        c.

    Returns
    -------
    point : Point
        The last one.
    value : Value

    References
    ----------
    .. [1] J. C. Spall (1998), An overview of the simultaneous perturbation method for efficient
       optimization, Johns Hopkins APL Technical Digest 19.
    """
    x = start.x.copy()
    low, high = np.transpose(bounds) if x.size else (x, x)
    stability = _STABILITY * n_iterations
    gain = None
    for k in range(1, n_iterations + 1):
        away = perturbation / k**_GAMMA
        signs = rng.choice([-1.0, 1.0], x.size)
        ahead, behind = np.clip(x + away * signs, low, high), np.clip(x - away * signs, low, high)
        change = function(start.at(ahead)).total - function(start.at(behind)).total
        slope = change / (2.0 * away) * signs
        size = float(np.abs(slope).max(initial=0.0))
        if gain is None and np.isfinite(size) and size > 0:
            gain = step / size * (stability + k) ** _ALPHA
        if gain is not None and np.isfinite(size):
            x = np.clip(x + gain / (stability + k) ** _ALPHA * slope, low, high)
    point = start.at(x)
    return point, function(point)


def maximize_frechet_bound(
    gp: SkewGP,
    X: ArrayLike,
    y: ArrayLike,
    *,
    batch_size: int = 30,
    n_iterations: int = 200,
    start: Mapping[str, Any] | None = None,
    random_seed: Seed = None,
    progressbar: bool = True,
) -> HyperparameterFit:
    """Hyperparameters by the procedure of Benavoli, Azzimonti & Piga (2020), for replication only.

    SPSA on `frechet_lower_bound` of random batches. Priors are left out, as they are there. Use
    `find_hyperparameters` to fit a model.

    Parameters
    ----------
    gp : SkewGP
        Made inside a model, as for `find_hyperparameters`; it must not have binary variables.
    X, y : array_like, shapes (n, d) and (n,)
        Inputs and labels.
    batch_size : int, default 30
        Labels in a batch.
    n_iterations : int, default 200
        Of simultaneous perturbation stochastic approximation (SPSA); each evaluates all batches
        twice.
    start : mapping, optional
        Values of random variables by name, on their own scale.
    random_seed : int, Generator, SeedSequence or None, default None
        Of batches and perturbations; give one for the same result each time.
    progressbar : bool, default True
        Show progress.

    Returns
    -------
    HyperparameterFit
        ``kind`` is "frechet"; ``path["total"]`` is the bound, a probability, and
        ``path["log_evidence"]`` the composite likelihood of the same batches.
        ``log_marginal_likelihood`` is that of all labels.

    Raises
    ------
    ValueError
        As `find_hyperparameters`, and for binary variables.

    References
    ----------
    .. [1] A. Benavoli, D. Azzimonti & D. Piga (2020), arXiv:2005.12987.
    """
    began = time.perf_counter()
    rng, settings = as_generator(random_seed), SearchSettings()
    data = TrainingData(gp, X, y)
    found = process_objective(data, as_count("batch_size", batch_size), rng, start)
    objective, coordinates = found.objective, found.objective.coordinates
    if coordinates.binary:
        raise ValueError(
            f"{', '.join(coordinates.binary_names)} cannot be perturbed: give the phases as "
            "numbers."
        )
    bounds = coordinates.bounds(found.origin, settings.start.half_width)

    def bound(point: Point) -> Value:
        logs = objective.batch_evidences(point, _DRAWS)
        unknown = np.full(point.x.size, np.nan)
        return Value(frechet_lower_bound(logs), float(logs.sum()), unknown)

    with EvaluationLog(coordinates.labels, progressbar) as log:
        n_iterations = as_count("n_iterations", n_iterations)
        logged = log.run("spsa", bound)
        point, _ = spsa(logged, Point(found.origin), bounds, n_iterations, rng)
    whole = objective.on([found.arrays])
    return HyperparameterFit(
        point=objective.named(point),
        log_marginal_likelihood=whole.estimate(point, settings.evidence_draws, 0),
        log_prior=objective.log_prior(point),
        std_error={},
        kind="frechet",
        converged=True,
        at_bound=[],
        flat=[],
        runs=log.runs(),
        path=log.path(),
        seconds=time.perf_counter() - began,
    )
