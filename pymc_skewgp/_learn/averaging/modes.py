"""Posterior modes of hyperparameters with their curvature: where importance sampling begins."""

from typing import NamedTuple

import numpy as np

from pymc_skewgp._errors import ImproperPriorError
from pymc_skewgp._learn.averaging.problem import Integrand
from pymc_skewgp._learn.averaging.settings import ModeSettings
from pymc_skewgp._learn.coordinates import Coordinates
from pymc_skewgp._learn.optimizers import (
    Optimum,
    maximize,
    negative_hessian,
    with_value,
)
from pymc_skewgp._learn.point import Bounds, Function, Point
from pymc_skewgp._learn.searched import Searched
from pymc_skewgp._learn.starts import spread_starts
from pymc_skewgp._validation import FloatArray


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


def find_modes(
    problem: Integrand,
    function: Function,
    settings: ModeSettings,
    rng: np.random.Generator,
) -> list[Mode]:
    """The modes that count, the largest first.

    Parameters
    ----------
    problem : Integrand
    function : callable
        Value of its objective at a point, as it is to be counted.
    settings : ModeSettings
    rng : numpy.random.Generator

    Raises
    ------
    ValueError
        Where the posterior has no density at any start.
    ImproperPriorError
        Where it rises without end.
    """
    objective, origins = problem.objective, problem.origins
    first = origins[0]
    restarts = settings.restarts(first.x.size)
    vectors = spread_starts(problem.coarse or objective, first, restarts, settings.start, rng)
    optima = [
        climbed(function, origin.at(x), objective.coordinates, settings)
        for origin in origins
        for x in vectors
    ]
    return modes_of(function, optima, objective.coordinates, settings)


def climbed(
    function: Function, start: Point, coordinates: Coordinates, settings: ModeSettings
) -> Optimum:
    """An ascent whose box goes with it: a start may be many factors away from all mass."""
    for _ in range(settings.boxes):
        bounds = coordinates.bounds(start.x, settings.start.half_width)
        optimum = maximize(function, start, bounds, settings.optimizer)
        if not _at_an_end(optimum.point.x, bounds):
            break
        start = optimum.point
    return optimum


def _at_an_end(x: FloatArray, bounds: Bounds) -> bool:
    return any(value in ends for value, ends in zip(x.tolist(), bounds, strict=True))


def modes_of(
    function: Function, optima: list[Optimum], coordinates: Coordinates, settings: ModeSettings
) -> list[Mode]:
    """Where ascents have ended: the modes that count, the largest first."""
    found = with_value(optima, "posterior density of the hyperparameters")
    # A narrow mode has less mass than a wide one as high: some nats more than count in the end.
    highest = max(optimum.value.total for optimum in found)
    high = [optimum for optimum in found if optimum.value.total > highest - 2.0 * settings.margin]
    distinct = _distinct(high, settings)
    modes = [_mode(function, optimum, coordinates, settings) for optimum in distinct]
    return _counting(modes, settings)


def with_mode_from(
    modes: list[Mode],
    point: Point,
    objective: Searched,
    function: Function,
    settings: ModeSettings,
) -> list[Mode]:
    """The modes that count, with that to which an ascent from a point goes."""
    optimum = climbed(function, point, objective.coordinates, settings)
    return _counting(
        [*modes, _mode(function, optimum, objective.coordinates, settings)], settings
    )  # fmt: skip


def _counting(modes: list[Mode], settings: ModeSettings) -> list[Mode]:
    modes = sorted(modes, key=lambda mode: mode.log_mass, reverse=True)
    least = modes[0].log_mass - settings.margin
    if not least < modes[0].log_mass:  # nor where a nat is below round-off
        raise ImproperPriorError(
            "the posterior density of the hyperparameters has no mode: it rises until double "
            "precision ends. So it does where the model can fit the data without any error and "
            "nothing keeps a standard deviation from 0: give that a prior whose density vanishes "
            "at 0, such as pm.InverseGamma, or look at the data."
        )
    return [mode for mode in modes if mode.log_mass > least]


def _mode(
    function: Function, optimum: Optimum, coordinates: Coordinates, settings: ModeSettings
) -> Mode:
    bounds = coordinates.bounds(optimum.point.x, settings.start.half_width)
    hessian = negative_hessian(function, optimum.point, bounds, settings.optimizer)
    values, vectors = np.linalg.eigh(hessian)
    values = np.maximum(values, settings.least_curvature)
    log_mass = optimum.value.total + 0.5 * float((np.log(2.0 * np.pi) - np.log(values)).sum())
    return Mode(optimum.point, (vectors / values) @ vectors.T, log_mass, optimum.value.total)


def _distinct(optima: list[Optimum], settings: ModeSettings) -> list[Optimum]:
    kept: list[Optimum] = []
    for optimum in sorted(optima, key=lambda o: o.value.total, reverse=True):
        same = (
            other.point.pattern == optimum.point.pattern
            and abs(other.value.total - optimum.value.total) < settings.same_value
            and bool(np.abs(other.point.x - optimum.point.x).max(initial=0.0) < settings.same_place)
            for other in kept
        )
        if not any(same):
            kept.append(optimum)
    return kept
