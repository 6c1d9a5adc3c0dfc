"""Points from which a search starts: drawn from the priors, or about a given one."""

from typing import Any

import numpy as np
import pymc as pm

from pymc_skewgp._gaussian.points import uniform_points
from pymc_skewgp._learn.coordinates import Coordinates
from pymc_skewgp._learn.point import Point
from pymc_skewgp._learn.searched import Searched
from pymc_skewgp._learn.settings import StartSettings
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._validation import FloatArray


def spread_starts(
    objective: Searched,
    origin: Point,
    n_restarts: int,
    settings: StartSettings,
    rng: np.random.Generator,
) -> list[FloatArray]:
    """`origin`, and the best of many candidates that are far from it and from each other."""
    starts = [origin.x]
    if not n_restarts or not origin.x.size:
        return starts
    count = settings.candidates * n_restarts
    points = candidates(objective.coordinates, origin.x, count, settings, rng)
    values = [objective.total_by_ep(origin.at(x))[0] for x in points]
    best_first = [i for i in np.argsort(values)[::-1] if np.isfinite(values[i])]
    for i in best_first:
        distance = min(float(np.abs(points[i] - x).max()) for x in starts)
        far = distance > settings.min_distance
        if len(starts) <= n_restarts and far:
            starts.append(points[i])
    if len(starts) == 1 and best_first and not np.isfinite(objective.total_by_ep(origin)[0]):
        starts.append(points[best_first[0]])  # far from nothing that has a value
    return starts


def candidates(
    coordinates: Coordinates,
    origin: FloatArray,
    count: int,
    settings: StartSettings,
    rng: np.random.Generator,
) -> list[FloatArray]:
    """Points all over the prior, or, where it is flat, up to a factor of twenty from `origin`.

    In every second one the entries of a variable move together, under a flat prior in all:
    lengthscales of many inputs are long together or short together.
    """
    continuous = coordinates.continuous
    shifts = uniform_points(max(len(continuous), 1), count, 1, rng)
    columns = []
    for value, part, q in zip(continuous, coordinates.split(origin), shifts, strict=False):
        own = _prior_draws(coordinates.model, value, count, rng)
        if own is None:
            together = settings.spread * (2.0 * q[:, None] - 1.0)
            scatter = rng.normal(0.0, settings.scatter, (count, part.size))
            own = part.ravel() + together + scatter
        elif part.size > 1:
            _move_together(own.reshape(count, -1), settings.scatter, rng)
        columns.append(own.reshape(count, -1))
    if not columns:
        return [origin] * count
    low, high = np.transpose(coordinates.bounds(origin, settings.half_width))
    return list(np.clip(np.hstack(columns), low, high))


def _move_together(drawn: FloatArray, scatter: float, rng: np.random.Generator) -> None:
    """Every second of the draws of a variable: away from the median all as its first entry is."""
    middle, some = np.median(drawn, axis=0), drawn[1::2]
    some[:] = middle + (some[:, :1] - middle[0]) + rng.normal(0.0, scatter, some.shape)


def _prior_draws(
    model: pm.Model, value: Any, count: int, rng: np.random.Generator
) -> FloatArray | None:
    """Draws of a variable on its unconstrained scale; None where its prior is flat.

    Or so vague that draws are beyond double precision.
    """
    rv = model.values_to_rvs[value]
    transform = model.rvs_to_transforms[rv]
    free = rv if transform is None else transform.forward(rv, *rv.owner.inputs)
    try:
        drawn = pm.draw(free, count, random_seed=int(rng.integers(2**31)), mode=PLAIN)
    # Of a generator that divides by a draw, or by whose own parameter a draw is impossible.
    except (NotImplementedError, ArithmeticError, ValueError):
        return None
    return np.asarray(drawn) if np.isfinite(drawn).all() else None
