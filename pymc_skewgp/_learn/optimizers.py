"""The optimum of a function with a gradient, in a box: starts, L-BFGS, Newton, a log."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import xarray as xr

from pymc_skewgp._gaussian.linalg import symmetric
from pymc_skewgp._gaussian.weights import uniform_points
from pymc_skewgp._learn.coordinates import (
    HALF_WIDTH,
    Bounds,
    Coordinates,
    Function,
    Point,
    Searched,
    Value,
    draws_of,
    free_variable,
)
from pymc_skewgp._limits import stage
from pymc_skewgp._validation import FloatArray

# Every evaluation of a search, kept and shown as it comes.


class EvaluationLog:
    """Runs of evaluations of an objective: one for each ascent.

    Parameters
    ----------
    labels : sequence of str
        Of the coordinates.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = list(labels)
        self._runs: list[tuple[str, list[tuple[Point, Value]]]] = []  # by their methods

    def run(self, method: str, function: Function) -> Function:
        """Begin a run: `function`, with each of its evaluations kept."""
        found: list[tuple[Point, Value]] = []
        self._runs.append((method, found))
        number, best = len(self._runs), self._by(method)

        def logged(point: Point) -> Value:
            nonlocal best
            value = function(point)
            found.append((point, value))
            best = [_best([*best, found[-1]])]
            stage(
                f"Run {number}, {method}: log evidence {value.log_evidence:.2f} "
                f"(at the best point {best[0][1].log_evidence:.2f})"
            )
            return value

        return logged

    def _by(self, method: str) -> list[tuple[Point, Value]]:
        # Totals of part of the data, or by another method, do not compare.
        return [x for name, found in self._runs if name == method for x in found]

    def best(self) -> tuple[Point, Value] | None:
        """The best evaluation by the last method; None before the first."""
        methods = [method for method, found in self._runs if found]
        return _best(self._by(methods[-1])) if methods else None

    def path(self) -> xr.Dataset:
        """All evaluations."""
        every = [(i, *x) for i, (_, found) in enumerate(self._runs) for x in found]
        runs, points, values = zip(*every, strict=True)
        columns = {
            "run": runs,
            "log_evidence": [value.log_evidence for value in values],
            "total": [value.total for value in values],
        }
        found = xr.Dataset({name: ("evaluation", list(x)) for name, x in columns.items()})
        found["x"] = ("evaluation", "coordinate"), np.array([point.x for point in points])
        return found.assign_coords(coordinate=self._labels)

    def runs(self) -> xr.Dataset:
        """One row for each run, by its best evaluation."""
        every = [(method, len(own), *_best(own)) for method, own in self._runs if own]
        columns = {
            "method": [method for method, *_ in every],
            "pattern": ["".join(map(str, point.pattern)) for *_, point, _ in every],
            "n_evaluations": [count for _, count, *_ in every],
            "log_evidence": [value.log_evidence for *_, value in every],
            "total": [value.total for *_, value in every],
        }
        return xr.Dataset({name: ("run", column) for name, column in columns.items()})


def _best(evaluations: list[tuple[Point, Value]]) -> tuple[Point, Value]:
    return max(evaluations, key=lambda evaluation: evaluation[1].total)


# Every choice and threshold of a search for hyperparameters.

Method = Literal["twisted", "ep"]
METHODS: tuple[Method, ...] = ("twisted", "ep")


@dataclass(frozen=True)
class OptimizerSettings:
    """When an ascent ends, and how far its first step may go.

    Attributes
    ----------
    max_iterations : int
        Of L-BFGS.
    tolerance : float
        Gain, in nats, below which L-BFGS ends: what an evidence is compared to is never finer.
    gradient_tolerance : float
    first_step : float
        Longest first step of L-BFGS. In a box SciPy takes the whole gradient, which of many rows
        leads to a corner of it.
    newton_gain : float
        Gain by the quadratic model that another Newton step needs, in nats.
    """

    max_iterations: int = 200
    tolerance: float = 2e-4
    gradient_tolerance: float = 1e-3
    first_step: float = np.inf
    newton_gain: float = 5e-3


@dataclass(frozen=True)
class SearchSettings:
    """What is searched for, how thoroughly, and by which rules.

    Attributes
    ----------
    method : {"twisted", "ep"}
    batch_size : int or None
        Labels in each batch of a composite likelihood; None for the evidence of all.
    n_restarts : int
    n_draws : int
        Behind a twisted evidence.
    seed : int
        Of these draws.
    hessian : bool
        Whether the Hessian with all data is wanted.
    half_width : float
        Of the box, on the unconstrained scale.
    coarse_size : int
        Labels on which every start is tried before the best go on with all: a step costs as their
        cube.
    coarse_above : int
        Labels above which that is done.
    ep_margin : float
        Nats below the best optimum by EP within which another may be the best by the twisted
        sampler: EP is off by less, as a rule.
    max_noise : float
        Of the values, above which there are more draws.
    rows_coarse_size : int
        Of many rows, those on which every start is tried where the data are of several kinds, or
        comparisons: these have no `coarse_size`.
    rows_size : int
        Of many rows, those with which a search goes on after the start, before it takes all.
    rows_tolerance : float
        As `OptimizerSettings.tolerance`, with all of many rows.
    rows_first_step : float
        As `OptimizerSettings.first_step`, with some and all of many rows.
    rows_max_hessian : int
        Coordinates up to which second derivatives are computed with many rows: more than so many
        would take longer than the search.
    batch_above, auto_batch_size : int
        Rows above which estimators learn from batches by themselves, and their size: one
        factorisation for each step is too slow then.
    optimizer : OptimizerSettings
    partial : bool
        Whether a search that is interrupted ends at the best point so far.
    """

    method: Method = "twisted"
    batch_size: int | None = None
    n_restarts: int = 2
    n_draws: int = 256
    seed: int = 0
    hessian: bool = True
    half_width: float = HALF_WIDTH
    coarse_size: int = 300
    coarse_above: int = 450
    ep_margin: float = 2.0
    max_noise: float = 0.05
    rows_coarse_size: int = 1000
    rows_size: int = 5000
    rows_tolerance: float = 0.05
    rows_first_step: float = 0.5
    rows_max_hessian: int = 12
    batch_above: int = 1500
    auto_batch_size: int = 500
    optimizer: OptimizerSettings = OptimizerSettings()
    partial: bool = False

    def at_start(self) -> "SearchSettings":
        """Of no search at all: hyperparameters stay where they start."""
        still = replace(self.optimizer, max_iterations=0)
        return replace(self, method="ep", n_restarts=0, hessian=False, optimizer=still)

    def batch_size_for(self, n: int) -> int | None:
        """What ``batch_size="auto"`` is for `n` rows."""
        return self.auto_batch_size if n > self.batch_above else None


class Optimum(NamedTuple):
    """Where an ascent ended.

    Attributes
    ----------
    point : Point
    value : Value
    converged : bool
        Whether it ended because there was nothing left to gain.
    """

    point: Point
    value: Value
    converged: bool


class NoValueError(ValueError):
    """A function to be maximised is minus infinity at every start."""


def with_value(optima: list[Optimum], what: str) -> list[Optimum]:
    """Those with a finite value.

    Raises
    ------
    NoValueError
        Where there are none: `what` has no value.
    """
    found = [optimum for optimum in optima if np.isfinite(optimum.value.total)]
    if not found:
        raise NoValueError(
            f"the {what} has no value at any start: check the priors, the scale of the inputs and "
            "start; and, where there are pseudo-points, whether their phases contradict each other "
            "(SkewGP.posterior says so)."
        )
    return found


def distinct(
    optima: list[Optimum], same_value: float = 0.02, same_place: float = 0.1
) -> list[Optimum]:
    """Different optima, the best first: not within so many nats and so near to each other."""
    kept: list[Optimum] = []
    for optimum in sorted(optima, key=lambda o: o.value.total, reverse=True):
        same = (
            other.point.pattern == optimum.point.pattern
            and abs(other.value.total - optimum.value.total) < same_value
            and bool(np.abs(other.point.x - optimum.point.x).max(initial=0.0) < same_place)
            for other in kept
        )
        if not any(same):
            kept.append(optimum)
    return kept


def maximize(
    function: Function, start: Point, bounds: Bounds, settings: OptimizerSettings
) -> Optimum:
    """Maximise by L-BFGS-B; the line search turns back where `function` is minus infinity.

    Parameters
    ----------
    function : callable
    start : Point
    bounds : list of pairs
        Of the continuous part.
    settings : OptimizerSettings

    Returns
    -------
    Optimum
        The best point met.
    """
    from scipy.optimize import minimize  # a tenth of a second that few need

    first = function(start)
    best = Optimum(start, first, False)
    if not np.isfinite(first.total) or not start.x.size:
        return best._replace(converged=bool(np.isfinite(first.total)))
    if settings.max_iterations == 0:  # of which SciPy makes one
        return best

    def negative(x: FloatArray) -> tuple[float, FloatArray]:
        nonlocal best
        point = start.at(x.copy())
        found = first if np.array_equal(x, start.x) else function(point)
        if not np.isfinite(found.total):
            return 1e3 * (1.0 + abs(first.total)) / scale, np.zeros_like(x)
        if found.total > best.value.total:
            best = Optimum(point, found, False)
        return -found.total / scale, -found.gradient / scale

    scale = max(1.0, float(np.linalg.norm(first.gradient)) / settings.first_step)
    tolerance = settings.tolerance / max(abs(first.total), scale)
    result = minimize(
        negative,
        start.x,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={
            "maxiter": settings.max_iterations,
            "ftol": tolerance,
            "gtol": settings.gradient_tolerance / scale,
            "maxcor": 20,
        },
    )
    return best._replace(converged=bool(result.status == 0))


# Half the distance of the gradients behind a numerical Hessian.
_DIFFERENCE = 0.03


def negative_hessian(function: Function, point: Point, bounds: Bounds) -> FloatArray:
    """Minus the matrix of second derivatives, from central differences of the gradient.

    Near a bound the difference is taken inside the box.
    """
    x = point.x
    low, high = np.transpose(bounds) if x.size else (x, x)
    rows = []
    for i in range(x.size):
        ahead, behind = x.copy(), x.copy()
        ahead[i] = min(x[i] + _DIFFERENCE, high[i])
        behind[i] = max(x[i] - _DIFFERENCE, low[i])
        fall = function(point.at(behind)).gradient - function(point.at(ahead)).gradient
        rows.append(fall / (ahead[i] - behind[i]))
    return symmetric(np.array(rows).reshape(x.size, x.size))


# Of Newton's method. A gain counts as a share of the noise of the values, where that is more.
_NOISE_SHARE = 0.2
# What a step may lose. A twisted evidence of some hundred draws jumps by so much between two
# points; its gradient, and with it the gain by the model, is a tenth as noisy.
_LOSS = 0.02
# Least eigenvalue of the negative Hessian, nats a squared unit; longest step; most steps, and
# halvings of each.
_LEAST_HESSIAN, _LONGEST, _MOST_STEPS, _MOST_HALVINGS = 0.05, 1.0, 8, 3


def newton(
    function: Function, start: Point, bounds: Bounds, hessian: FloatArray, least_gain: float
) -> Optimum:
    r"""Newton steps, for a function whose every value is expensive and noisy.

    The steps :math:`d = H^{-1} g` use the negative Hessian of a neighbouring function, updated by
    BFGS. They end when the quadratic model has less to gain, :math:`g'd/2`, than `least_gain` or
    its share of the value's noise.

    Parameters
    ----------
    function : callable
    start : Point
    bounds : list of pairs
    hessian : ndarray, shape (k, k)
        Negative Hessian, as known.
    least_gain : float

    Returns
    -------
    Optimum
    """
    low, high = np.transpose(bounds) if start.x.size else (start.x, start.x)
    point, value = start, function(start)
    if not np.isfinite(value.total) or not start.x.size:
        return Optimum(point, value, bool(np.isfinite(value.total)))
    values, vectors = np.linalg.eigh(hessian)
    # Where it is not concave a step along the slope is right, of moderate length.
    inverse = (vectors / np.maximum(np.abs(values), _LEAST_HESSIAN)) @ vectors.T
    for _ in range(_MOST_STEPS):
        # A coordinate stays at a bound that the gradient pushes it against.
        x, gradient = point.x, value.gradient
        inside = ~((x <= low) & (gradient < 0) | (x >= high) & (gradient > 0))
        slope = np.where(inside, gradient, 0.0)
        step = np.where(inside, inverse @ slope, 0.0)
        gain = 0.5 * slope @ step
        if gain < max(least_gain, _NOISE_SHARE * value.noise):
            return Optimum(point, value, True)
        step *= min(1.0, _LONGEST / np.abs(step).max())
        loss = max(_LOSS, value.noise)
        for _ in range(_MOST_HALVINGS):
            next_point = point.at(np.clip(x + step, low, high))
            found = function(next_point)
            if found.total > value.total - loss:
                break
            step = 0.5 * step
        else:
            return Optimum(point, value, bool(gain < loss))
        inverse = _bfgs(inverse, next_point.x - x, gradient - found.gradient)
        point, value = next_point, found
    return Optimum(point, value, False)


def _bfgs(inverse: FloatArray, step: FloatArray, change: FloatArray) -> FloatArray:
    """Update of an inverse Hessian by the change of the gradient over a step."""
    product = float(step @ change)
    if product <= 1e-8 * float(np.linalg.norm(step) * np.linalg.norm(change)):
        return inverse
    left = np.eye(step.size) - np.outer(step, change) / product
    return left @ inverse @ left.T + np.outer(step, step) / product


# Points from which a search starts: drawn from the priors, or about a given one.

# Least distance of two starts, in the coordinate in which they differ most.
_MIN_DISTANCE = 1.0
# What candidates move a variable with a flat prior by: its entries together, at most, and each by
# itself, as a standard deviation.
_TOGETHER, _SCATTER = 3.0, 0.3


def spread_starts(
    objective: Searched,
    origin: Point,
    n_restarts: int,
    rng: np.random.Generator,
    n_candidates: int = 16,
) -> list[FloatArray]:
    """`origin`, and the best of many candidates that are far from it and from each other."""
    starts = [origin.x]
    if not n_restarts or not origin.x.size:
        return starts
    points = candidates(objective.coordinates, origin.x, n_candidates * n_restarts, rng)
    values = objective.totals_by_ep([origin.at(x) for x in points])[0]
    best_first = [i for i in np.argsort(values)[::-1] if np.isfinite(values[i])]
    for i in best_first:
        distance = min(float(np.abs(points[i] - x).max()) for x in starts)
        if len(starts) <= n_restarts and distance > _MIN_DISTANCE:
            starts.append(points[i])
    if len(starts) == 1 and best_first and not np.isfinite(objective.totals_by_ep([origin])[0][0]):
        starts.append(points[best_first[0]])  # far from nothing that has a value
    return starts


def candidates(
    coordinates: Coordinates, origin: FloatArray, count: int, rng: np.random.Generator
) -> list[FloatArray]:
    """Points all over the prior, or, where it is flat, up to a factor of twenty from `origin`.

    In every second one the entries of a variable move together, under a flat prior in all:
    lengthscales of many inputs are long together or short together.
    """
    continuous = coordinates.continuous
    shifts = uniform_points(max(len(continuous), 1), count, 1, rng)
    columns = []
    for value, part, q in zip(continuous, coordinates.split(origin), shifts, strict=False):
        free = free_variable(coordinates.model, coordinates.model.values_to_rvs[value])
        own = draws_of(free, count, int(rng.integers(2**31)))
        # Where the prior is flat, or so vague that draws are beyond double precision.
        if own is None or not np.isfinite(own).all():
            together = _TOGETHER * (2.0 * q[:, None] - 1.0)
            own = part.ravel() + together + rng.normal(0.0, _SCATTER, (count, part.size))
        elif part.size > 1:  # away from the median every second of all is as its first entry
            drawn = own.reshape(count, -1)
            middle, some = np.median(drawn, axis=0), drawn[1::2]
            scatter = rng.normal(0.0, _SCATTER, some.shape)
            some[:] = middle + (some[:, :1] - middle[0]) + scatter
        columns.append(own.reshape(count, -1))
    if not columns:
        return [origin] * count
    low, high = np.transpose(coordinates.bounds(origin))
    return list(np.clip(np.hstack(columns), low, high))
