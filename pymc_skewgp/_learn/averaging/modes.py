"""Posterior modes of hyperparameters with their curvature, and whether the posterior is proper."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pymc_skewgp._errors import ImproperPriorError
from pymc_skewgp._gaussian.weights import short_path
from pymc_skewgp._learn import optimizers
from pymc_skewgp._learn.averaging.problem import IntegrationProblem
from pymc_skewgp._learn.coordinates import (
    HALF_WIDTH,
    FlatCoordinate,
    Function,
    Point,
    Searched,
    Value,
)
from pymc_skewgp._validation import FloatArray

# Where modes are looked for. With a lengthscale for each input there are as many modes as ways to
# explain the data by some of the inputs, and few ascents end in the one with the mass.

# Ascents besides that from the model's initial point: one for each coordinate, within these.
_FEWEST_RESTARTS, _MOST_RESTARTS, CANDIDATES = 2, 8, 8
# Nats of Laplace's log evidence below the best mode within which another one counts.
MARGIN = 9.0
# Within which two modes are one: nats, and distance.
_SAME_VALUE, _SAME_PLACE = 0.1, 0.2
# Least eigenvalue of the negative Hessian: no proposal is wider than three units by it.
_LEAST_CURVATURE = 0.1
# How often an ascent that has ended at an end of its box goes on in one around that.
_BOXES = 6
# A mode only begins the importance sampling: a tenth of a nat is near enough.
_ASCENT = optimizers.OptimizerSettings(
    max_iterations=60, tolerance=1e-2, gradient_tolerance=5e-2, first_step=1.0
)


class Mode(NamedTuple):
    """A mode of the posterior by Laplace's method.

    Attributes
    ----------
    point : Point
    covariance : ndarray, shape (D, D)
        Inverse of the negative Hessian, bounded.
    log_mass : float
        Laplace's log integral over its surroundings.
    log_density : float
        There.
    """

    point: Point
    covariance: FloatArray
    log_mass: float
    log_density: float = -np.inf


def by_pattern(modes: Sequence[Mode]) -> list[list[Mode]]:
    """Those of each pattern of binary values: the integral is the sum over them."""
    patterns = dict.fromkeys(mode.point.pattern for mode in modes)
    return [[mode for mode in modes if mode.point.pattern == pattern] for pattern in patterns]


class Evaluations:
    """An objective, counted."""

    def __init__(self, objective: Searched, count: int = 0) -> None:
        self._objective, self.count = objective, count

    def __call__(self, point: Point) -> Value:
        """Value with gradient."""
        self.count += 1
        return self._objective.by_ep(point)

    def values(self, points: Sequence[Point]) -> tuple[FloatArray, FloatArray]:
        """Log target and EP's log evidence at points."""
        self.count += len(points)
        # EP begins from its last fixed point.
        order = short_path(np.array([point.x for point in points]))
        found = np.empty((2, len(points)))
        found[:, order] = self._objective.totals_by_ep([points[i] for i in order])
        return found[0], found[1]


def n_restarts(n_coordinates: int) -> int:
    """Ascents besides the first."""
    return min(max(n_coordinates, _FEWEST_RESTARTS), _MOST_RESTARTS)


def proper_modes(
    problem: IntegrationProblem, evaluate: Function, rng: np.random.Generator
) -> list[Mode]:
    """Those known, or found, of a posterior whose tails are looked at; the largest first.

    Raises
    ------
    NoValueError
        Where there are none: the message says why.
    ImproperPriorError
        Where the posterior is no distribution.
    """
    modes, first = list(problem.modes), problem.origins[0]
    if not modes:
        part = problem.coarse or problem.objective
        count = n_restarts(first.x.size) - problem.is_slow
        vectors = optimizers.spread_starts(part, first, count, rng, CANDIDATES)
        starts = [origin.at(x) for origin in problem.origins for x in vectors]
        try:
            optima = [_climbed(evaluate, start, problem.objective) for start in starts]
            modes = modes_of(evaluate, optima, problem.objective)
        except optimizers.NoValueError as error:
            raise optimizers.NoValueError(
                problem.objective.why_no_value(first) or str(error)
            ) from None
    _refuse_improper(problem, evaluate, modes[0])
    return modes


def modes_of(
    function: Function, optima: list[optimizers.Optimum], objective: Searched
) -> list[Mode]:
    """Where ascents have ended: the modes that count, the largest first."""
    found = optimizers.with_value(optima, "posterior density of the hyperparameters")
    # A narrow mode has less mass than a wide one as high: some nats more than count in the end.
    highest = max(optimum.value.total for optimum in found)
    high = [optimum for optimum in found if optimum.value.total > highest - 2.0 * MARGIN]
    if not high:  # nats are beyond double precision
        raise optimizers.NoValueError(
            "no mode of the hyperparameters is reached from start: their log density is "
            f"{highest:.3g} at best. Give start nearer to what the data may be, or leave it out."
        )
    apart = optimizers.distinct(high, _SAME_VALUE, _SAME_PLACE)
    return _counting([_mode(function, optimum, objective) for optimum in apart])


def with_mode_from(
    modes: list[Mode], point: Point, objective: Searched, function: Function
) -> list[Mode]:
    """The modes that count, with that to which an ascent from a point goes."""
    optimum = _climbed(function, point, objective)
    return _counting([*modes, _mode(function, optimum, objective)])


def _climbed(function: Function, start: Point, objective: Searched) -> optimizers.Optimum:
    """An ascent whose box goes with it: a start may be many factors away from all mass."""
    for _ in range(_BOXES):
        bounds = objective.coordinates.bounds(start.x)
        optimum = optimizers.maximize(function, start, bounds, _ASCENT)
        start = optimum.point
        if not any(x in ends for x, ends in zip(start.x.tolist(), bounds, strict=True)):
            break
    return optimum


def _counting(modes: list[Mode]) -> list[Mode]:
    modes = sorted(modes, key=lambda mode: mode.log_mass, reverse=True)
    least = modes[0].log_mass - MARGIN
    if not least < modes[0].log_mass:  # nor where a nat is below round-off
        raise ImproperPriorError(
            "the posterior density of the hyperparameters has no mode: it rises until double "
            "precision ends. So it does where the model can fit the data without any error and "
            "nothing keeps a standard deviation from 0: give that a prior whose density vanishes "
            "at 0, such as pm.InverseGamma, or look at the data."
        )
    return [mode for mode in modes if mode.log_mass > least]


def _mode(function: Function, optimum: optimizers.Optimum, objective: Searched) -> Mode:
    bounds = objective.coordinates.bounds(optimum.point.x)
    values, vectors = np.linalg.eigh(optimizers.negative_hessian(function, optimum.point, bounds))
    values = np.maximum(values, _LEAST_CURVATURE)
    log_mass = optimum.value.total + 0.5 * float((np.log(2.0 * np.pi) - np.log(values)).sum())
    return Mode(optimum.point, (vectors / values) @ vectors.T, log_mass, optimum.value.total)


# Whether a posterior under flat priors of hyperparameters is a distribution: its tails decide.
#
# A flat prior has density one on the scale of its variable. Along one coordinate, the others at
# their best, the posterior is judged where it is a power: far out a density that falls no faster
# than 1/v has an infinite integral. Where x is the logarithm of v, Jacobian included, this is a
# slope of 0.

# Powers of v by which a density must fall beyond 1/v: those that occur are multiples of a half,
# and EP's evidence moves by less along the tail.
_LEAST_POWER = 0.1
# How far out, where the coordinate is a logarithm: beyond e^5 what is left of other terms is a
# hundredth, and up to e^9 wide Gaussians in place of flat coefficients are wide enough.
_LOG_DISTANCES = (2.0, 5.0, 7.0, 9.0)
# Elsewhere in doublings of the mode's width: so many after the density has fallen.
_MOST_DOUBLINGS, _BEYOND, _FALL = 40, 6, 3.0
# Nats above all modes: it rises without end, or double precision has ended on a plateau.
_RISE = 10.0
_NEGLIGIBLE = 200.0  # nats below the mode at which a falling tail needs no further look
# From the origin of an ascent: where it gets in all its boxes but the last.
_FARTHEST = (_BOXES - 1) * HALF_WIDTH


def _refuse_improper(problem: IntegrationProblem, function: Function, mode: Mode) -> None:
    """Follow both tails of each coordinate with a flat prior."""
    for flat in problem.objective.coordinates.flat:
        moved = mode.point.x[flat.place] - problem.origins[0].x[flat.place]
        if flat.is_log and abs(moved) > _FARTHEST:  # no mode, the end of an ascent
            raise _improper(flat, moved)
        for sign in (-1.0, 1.0):
            walk = list(_walk(problem.objective, function, mode, flat, sign))
            risen = any(value > mode.log_density + _RISE for _, value in walk)
            if risen or not _decays(flat, walk):
                raise _improper(flat, sign)


def _improper(flat: FlatCoordinate, sign: float) -> ImproperPriorError:
    return ImproperPriorError(
        f"{flat.label} has a flat prior, and the posterior is improper: as it goes to "
        f"{flat.ends[int(sign > 0)]}, the evidence times the prior does not decay, so that it has "
        "no integral. Give a proper prior, such as pm.HalfNormal for a standard deviation and "
        "pm.InverseGamma for a lengthscale, or use find_hyperparameters, which maximises."
    )


def _walk(
    objective: Searched, function: Function, mode: Mode, flat: FlatCoordinate, sign: float
) -> Iterator[tuple[float, float]]:
    """Distances from a mode and the log density there, the other coordinates at their best."""
    k, point, before = flat.place, mode.point, mode.log_density
    bounds = objective.coordinates.bounds(point.x)
    width = float(np.sqrt(mode.covariance[k, k]))
    doublings = (width * 2.0**i for i in range(_MOST_DOUBLINGS))
    fallen = 0
    for distance in _LOG_DISTANCES if flat.is_log else doublings:
        x = point.x.copy()
        x[k] = mode.point.x[k] + sign * distance
        bounds[k] = (x[k], x[k])
        point = point.at(x)
        if x.size > 1:
            point = optimizers.maximize(function, point, bounds, _ASCENT).point
        value = function(point).total
        if not np.isfinite(value):
            return  # beyond double precision: what was met before tells
        yield distance, value
        fallen += value < mode.log_density - _FALL
        if value < min(before, mode.log_density - _NEGLIGIBLE):
            return
        if not flat.is_log and fallen > _BEYOND:
            return
        before = value


def _decays(flat: FlatCoordinate, walk: list[tuple[float, float]]) -> bool:
    """By the last three points; a density that ends before there are two has no tail.

    By three, for at the last one Gaussians in place of flat coefficients may be too narrow.
    """
    for (near, high), (far, low) in pairwise(walk[-3:]):
        least = far - near if flat.is_log else np.log(far / near)
        power = _LEAST_POWER if flat.is_log else 1.0 + _LEAST_POWER
        if not low - high < -power * least:
            return False
    return True
