r"""Log Phi by a table of polynomials: five times as fast as by erfc and log, and as exact.

Between -8 and 9 the line is cut into pieces of 1/8, each with a polynomial of degree 7 through
Chebyshev nodes: the error is below 2e-14 of 1 + |log Phi|. Below, a continued fraction.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from scipy.special import log_ndtr as exact_log_ndtr
from scipy.special import ndtr as exact_ndtr

from pymc_skewgp._gaussian.compiled.interval import interval_moments
from pymc_skewgp._gaussian.compiled.jit import jit_inner
from pymc_skewgp._validation import FloatArray

_FIRST, _LAST, _PER_UNIT = -8.0, 9.0, 8.0
_N_TERMS = 8


@cache
def log_ndtr_table() -> FloatArray:
    """Coefficients, shape (pieces, 8), of powers of the distance from each piece's middle."""
    return _table(exact_log_ndtr)


@cache
def ndtr_tables() -> FloatArray:
    """Those of log Phi, and of Phi itself, shape (2, pieces, 8)."""
    return np.stack([log_ndtr_table(), _table(exact_ndtr)])


def _table(function: Callable[[FloatArray], FloatArray]) -> FloatArray:
    n_pieces = int((_LAST - _FIRST) * _PER_UNIT)
    middle = _FIRST + (np.arange(n_pieces) + 0.5) / _PER_UNIT
    nodes = np.cos(np.pi * (np.arange(_N_TERMS) + 0.5) / _N_TERMS)
    values = function(middle[:, None] + nodes * (0.5 / _PER_UNIT))
    powers = np.vander(nodes, increasing=True)
    scaled = np.linalg.solve(powers, values.T).T
    table = scaled * (2.0 * _PER_UNIT) ** np.arange(_N_TERMS)
    return np.ascontiguousarray(table)


@jit_inner()
def tabulated_log_ndtr(x, table):  # type: ignore[no-untyped-def]
    """Log Phi(x)."""
    if x >= _LAST:
        return 0.0
    if not x >= _FIRST:
        return interval_moments(-x, np.inf)[0]
    place = (x - _FIRST) * _PER_UNIT
    return _polynomial(place, table)


@jit_inner()
def tabulated_ndtr(x, table):  # type: ignore[no-untyped-def]
    """Phi(x), with all digits of small ones."""
    if x >= _LAST:
        return 1.0
    if not x >= _FIRST:
        return math.exp(interval_moments(-x, np.inf)[0])
    return _polynomial((x - _FIRST) * _PER_UNIT, table)


@jit_inner()
def _polynomial(place, table):  # type: ignore[no-untyped-def]
    piece = int(place)
    t = (place - piece - 0.5) / _PER_UNIT
    c = table[piece]
    low = (c[0] + t * c[1]) + t * t * (c[2] + t * c[3])
    high = (c[4] + t * c[5]) + t * t * (c[6] + t * c[7])
    return low + (t * t) * (t * t) * high
