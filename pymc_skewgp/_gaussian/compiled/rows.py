"""Rows of expectation propagation for intervals: sites, marginals, cavities, all in one array."""

import math
from typing import Any, NamedTuple

import numpy as np

from pymc_skewgp._gaussian.compiled.interval import interval_moments
from pymc_skewgp._gaussian.compiled.jit import jit

# What the rows of an array of shape (N_ROWS, n) are: the sites, the Gaussian's marginals, the sites
# that their cavities ask for, these cavities, and the log mass of the limits under them.
TAU, NU, MEAN, VARIANCE, NEW_TAU, NEW_NU, CAVITY_MEAN, CAVITY_VAR, LOG_MASS = range(9)
N_ROWS = 9

# Shares of the prior's: the least variance that a row keeps, and the least precision of a cavity.
LEAST_VARIANCE, LEAST_CAVITY = 1e-14, 1e-10

# What `judge` finds: EP has converged, makes no progress, has taken a step, or is so near that a
# model of the marginals will do.
CONVERGED, STUCK, STEPPED, NEAR = range(4)

# As in `fit_factors`.
_LEAST_SHRINKAGE = 1e-12
_LEAST_DAMPING = 0.1
# Residual below which the marginals are near enough for a model of them.
_NEAR = 1.0
# How often the residual may grow there before another algorithm is taken.
_MAX_SETBACKS = 2


class Progress(NamedTuple):
    """How far EP has come, in arrays of one number."""

    residual: Any
    damping: Any
    setbacks: Any


def new_progress() -> Progress:
    """Before the first sweep."""
    return Progress(np.full(1, np.inf), np.ones(1), np.zeros(1))


@jit()
def judge(rows, limits, least, tol, progress):  # type: ignore[no-untyped-def]
    """Compare the marginals with the tilted ones; far from the fixed point also take a step."""
    residual = tilt(rows, limits, least)
    before = progress.residual[0]
    progress.residual[0] = residual
    if residual < tol:
        return CONVERGED
    if not residual < math.inf:
        return STUCK
    if residual > before:
        progress.damping[0] = max(_LEAST_DAMPING, 0.7 * progress.damping[0])
        progress.setbacks[0] += 1.0
    if residual < _NEAR:
        return NEAR if progress.setbacks[0] <= _MAX_SETBACKS else STUCK
    share = progress.damping[0]
    for i in range(rows.shape[1]):
        for k in range(2):
            rows[TAU + k, i] += share * (rows[NEW_TAU + k, i] - rows[TAU + k, i])
    return STEPPED


@jit()
def tilt(rows, limits, least):  # type: ignore[no-untyped-def]
    """Fill in all that follows from sites and marginals; return the largest residual.

    `limits` are the lower and the upper ones, `least` the least precisions of the cavities.
    """
    residual = 0.0
    for i in range(rows.shape[1]):
        lower, upper = limits[0, i], limits[1, i]
        mean, variance = rows[MEAN, i], rows[VARIANCE, i]
        cavity_var = 1.0 / max(1.0 / variance - rows[TAU, i], least[i])
        cavity_mean = cavity_var * (mean / variance - rows[NU, i])
        rows[CAVITY_MEAN, i], rows[CAVITY_VAR, i] = cavity_mean, cavity_var
        rows[NEW_TAU, i] = rows[NEW_NU, i] = rows[LOG_MASS, i] = 0.0
        if lower == -math.inf and upper == math.inf:
            continue
        sd = math.sqrt(cavity_var)
        moments = interval_moments((lower - cavity_mean) / sd, (upper - cavity_mean) / sd)
        shift, spread = moments[1], max(moments[2], _LEAST_SHRINKAGE)
        taken = min(max(1.0 - spread, _LEAST_SHRINKAGE), 1.0 - _LEAST_SHRINKAGE)
        kept = cavity_var * (spread if spread < 0.5 else 1.0 - taken)
        rows[NEW_TAU, i] = taken / kept
        rows[NEW_NU, i] = (cavity_mean * taken + sd * shift) / kept
        rows[LOG_MASS, i] = moments[0]
        gap = abs(cavity_mean + sd * shift - mean) / math.sqrt(variance)
        gap += abs(math.log(cavity_var * spread / variance))
        if not gap <= residual:  # or not a number
            residual = gap
    return residual


@jit()
def log_scales(rows):  # type: ignore[no-untyped-def]
    """Sum of the log scales of all sites, as in `fit_factors`."""
    total = 0.0
    for i in range(rows.shape[1]):
        tau, nu, mean, var = rows[TAU, i], rows[NU, i], rows[CAVITY_MEAN, i], rows[CAVITY_VAR, i]
        ratio = 1.0 + tau * var
        quadratic = (mean * mean * tau - 2.0 * mean * nu - var * nu * nu) / ratio
        total += rows[LOG_MASS, i] + 0.5 * math.log(ratio) + 0.5 * quadratic
    return total
