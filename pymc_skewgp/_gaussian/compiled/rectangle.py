"""Log probability of a rectangle by EP, with its gradient: `log_prob_and_gradient` without Python.

For what is asked for again and again while a chain runs. What is not simple is left to Python.
Other compiled functions call it by a symbol, as one of another library. Where it were linked into
them, each would be compiled together with all of it anew.
"""

import math
from functools import cache
from typing import Any

import numpy as np
from llvmlite.binding import add_symbol
from numba import carray, cfunc, types  # type: ignore[attr-defined]

from pymc_skewgp._gaussian.compiled.ep import fit, gradient
from pymc_skewgp._gaussian.compiled.inverse import DETERMINANT, sweep

# Rows up to which it is at least as fast as LAPACK.
_MOST_ROWS = 400
# As in `log_prob_and_gradient`.
_TOLERANCE = 1e-8
_ROUND_OFF = 1e-13
_LARGEST_EFFECT = 0.1
_RELATIVE_EFFECT = 1e-6
_MAX_SWEEPS = 50
# The largest jitter that a covariance may need to be one.
_JITTER = 1e-6


_ARRAY = types.CPointer(types.float64)
_SIGNATURE = types.float64(types.intp, *[_ARRAY] * 5)
_SYMBOL = "pymc_skewgp_rectangle_by_ep"


@cache
def rectangle_by_ep() -> Any:
    """`_rectangle_by_ep` for functions that numba compiles, arrays as ``x.ctypes``."""
    # Kept in this module: the code must not be freed.
    add_symbol(_SYMBOL, _compiled().address)
    return types.ExternalFunction(_SYMBOL, _SIGNATURE)


@cache
def _compiled() -> Any:
    return cfunc(_SIGNATURE, cache=True, error_model="numpy")(_rectangle_by_ep)


def _rectangle_by_ep(n, cov, noise, limits, by_cov, by_limits):  # type: ignore[no-untyped-def]
    """Log P(limits) under N(0, cov + diag(noise)), and the derivatives filled in.

    `limits` and `by_limits` are (2, n). `cov` must be a covariance by itself, as `LogEvidence` asks
    for, and the noise be more than jitter. The result is not a number where Python has to decide:
    at few or many rows, where a number is missing or a matrix not definite, where EP is stuck or
    round-off decides.
    """
    if n < 3 or n > _MOST_ROWS:
        return np.nan
    square, pair = (n, n), (2, n)
    limits, by_limits = carray(limits, pair), carray(by_limits, pair)
    cov, by_cov, noise = carray(cov, square), carray(by_cov, square), carray(noise, n)
    work, joint = np.empty((n, n)), np.empty((n, n))
    n_bounded = 0
    for i in range(n):
        if not (limits[0, i] < limits[1, i] and noise[i] > _JITTER * cov[i, i] > 0.0):
            return np.nan
        n_bounded += np.isfinite(limits[0, i]) or np.isfinite(limits[1, i])
        for j in range(i + 1):
            work[i, j] = joint[i, j] = joint[j, i] = 0.5 * (cov[i, j] + cov[j, i])
        work[i, i] *= 1.0 + _JITTER
        joint[i, i] += noise[i]
    if n_bounded < 3 or np.isnan(sweep(work, DETERMINANT)):
        return np.nan
    rows, weights, log_prob = fit(joint, limits, work, _TOLERANCE, _MAX_SWEEPS)
    if not np.isfinite(log_prob):
        return np.nan
    gradient(rows, limits, weights, work, by_limits, by_cov)
    effect = 0.0
    for i in range(n):
        effect += _ROUND_OFF * joint[i, i] * by_cov[i, i]
    if not math.fabs(effect) <= _LARGEST_EFFECT + _RELATIVE_EFFECT * math.fabs(log_prob):
        return np.nan
    return log_prob
