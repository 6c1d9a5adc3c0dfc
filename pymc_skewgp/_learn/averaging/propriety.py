r"""Whether a posterior under flat priors of hyperparameters is a distribution: its tails decide.

A flat prior has density one on the scale of its variable. Along one coordinate, the others at their
best, the posterior is judged where it is a power: far out a density that falls no faster than 1/v
has an infinite integral. Where x is the logarithm of v, Jacobian included, this is a slope of 0.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from pymc_skewgp._errors import ImproperPriorError
from pymc_skewgp._learn.averaging.modes import Mode
from pymc_skewgp._learn.averaging.problem import Integrand
from pymc_skewgp._learn.averaging.settings import ModeSettings
from pymc_skewgp._learn.coordinates import FlatCoordinate
from pymc_skewgp._learn.optimizers import maximize
from pymc_skewgp._learn.point import Function

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


def refuse_improper(
    problem: Integrand, function: Function, mode: Mode, settings: ModeSettings
) -> None:
    """Follow both tails of each coordinate with a flat prior.

    Raises
    ------
    ImproperPriorError
        Where one does not decay.
    """
    for flat in problem.objective.coordinates.flat:
        moved = mode.point.x[flat.place] - problem.origins[0].x[flat.place]
        if flat.is_log and abs(moved) > settings.farthest:  # no mode, the end of an ascent
            raise _improper(flat, moved)
        for sign in (-1.0, 1.0):
            walk = list(_walk(problem, function, mode, settings, flat, sign))
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
    problem: Integrand,
    function: Function,
    mode: Mode,
    settings: ModeSettings,
    flat: FlatCoordinate,
    sign: float,
) -> Iterator[tuple[float, float]]:
    """Distances from a mode and the log density there, the other coordinates at their best."""
    k, point, before = flat.place, mode.point, mode.log_density
    bounds = problem.objective.coordinates.bounds(point.x, settings.start.half_width)
    fallen = 0
    for distance in _distances(flat, float(np.sqrt(mode.covariance[k, k]))):
        x = point.x.copy()
        x[k] = mode.point.x[k] + sign * distance
        bounds[k] = (x[k], x[k])
        point = point.at(x)
        if x.size > 1:
            point = maximize(function, point, bounds, settings.optimizer).point
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


def _distances(flat: FlatCoordinate, width: float) -> Sequence[float]:
    if flat.is_log:
        return _LOG_DISTANCES
    return [width * 2.0**i for i in range(_MOST_DOUBLINGS)]


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
