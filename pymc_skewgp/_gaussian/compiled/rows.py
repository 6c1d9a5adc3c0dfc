"""What EP's loops share: an interval's moments, cavities, a model of how sites move, log Phi."""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numba
import numpy as np
from scipy.special import log_ndtr as exact_log_ndtr
from scipy.special import ndtr as exact_ndtr

from pymc_skewgp._validation import FloatArray

# How this package compiles loops: without Python's lock, and kept on disk. `max` and `min` of two
# numbers are written out where all wait for it: numba compiles a function for each of them.
#
# What is kept is made anew when the file of a function changes, not when one that it calls lies in
# another file: after a change here clear ``NUMBA_CACHE_DIR`` or ``__pycache__``.

jit = partial(numba.njit, cache=True, nogil=True, error_model="numpy")
# Called by compiled functions alone: half the time to compile a short one.
jit_inner = partial(jit, no_cpython_wrapper=True, no_cfunc_wrapper=True)
# Sums in any order, which lets a loop be vectorised.
jit_sums = partial(jit_inner, fastmath={"contract", "nsz", "reassoc"})

# Indices of this type cannot be negative: without a test for that, loops are vectorised.
Index = np.uintp


# A standard normal restricted to an interval, one at a time: log mass, moments, edges.
#
# The formulas are those of `univariate` and `univariate_moments`, and so are the places where one
# takes over from another.

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_SQRT_HALF = math.sqrt(0.5)
_HAZARD_SCALE = math.sqrt(2.0 / math.pi)
# Above this the variance comes from the continued fraction.
_TAIL = 3.0
_FRACTION_TERMS = 50
# exp(-45): a bound so far down is invisible from the other one.
_INVISIBLE = 45.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)
_NODES, _WEIGHTS = 0.5 * (_NODES + 1.0), 0.5 * _WEIGHTS


@jit_inner()
def interval_moments(a, b):  # type: ignore[no-untyped-def]
    """Log mass, mean and variance of a standard normal in (a, b)."""
    sign = 1.0
    if a + b < 0.0:
        a, b, sign = -b, -a, -1.0
    width = b - a
    decay = 0.5 * width * (a + b)
    if b == np.inf or (decay >= _INVISIBLE and a > 0.0):
        log_mass, mean, variance = _above(a)
    elif a <= 1.0 and width >= 1.0:
        log_mass, mean, variance = _between(a, b)
    else:
        log_mass, mean, variance = _summed(a, width)
    return log_mass, sign * mean, 1.0 if variance > 1.0 else variance


@jit_inner()
def edge_density(x, log_mass):  # type: ignore[no-untyped-def]
    """Density at the bound x of a standard normal restricted to an interval of that mass."""
    return math.exp(-0.5 * x * x - log_mass - _LOG_SQRT_2PI)


@jit_inner(inline="always")
def _above(p):  # type: ignore[no-untyped-def]
    """Without an upper bound."""
    if p < -40.0:  # no bound at all, to double precision
        return 0.0, 0.0, 1.0
    if p <= _TAIL:
        twice = math.erfc(p * _SQRT_HALF)
        hazard = _HAZARD_SCALE * math.exp(-0.5 * p * p) / twice
        mass = 0.5 * twice
        log_mass = math.log(mass) if p > -1.0 else math.log1p(-0.5 * math.erfc(-p * _SQRT_HALF))
        return log_mass, hazard, 1.0 - hazard * (hazard - p)
    # Ratios of successive moments of the excess over p; begun at the recursion's fixed point.
    first = 2.0 * _FRACTION_TERMS / (p + math.sqrt(p * p + 4.0 * _FRACTION_TERMS))
    second = first
    for k in range(_FRACTION_TERMS, 0, -1):
        first, second = k / (p + first), first
    hazard = p + first
    log_mass = -0.5 * p * p - _LOG_SQRT_2PI - math.log(hazard)
    return log_mass, hazard, first * (second - first)


@jit_inner(inline="always")
def _between(p, q):  # type: ignore[no-untyped-def]
    """Wide intervals near 0, in closed form."""
    # The density underflows: 0 * inf avoided.
    p, q = p if p > -40.0 else -40.0, q if q < 40.0 else 40.0
    mass = 0.5 * (math.erfc(p * _SQRT_HALF) - math.erfc(q * _SQRT_HALF))
    at_p = math.exp(-0.5 * p * p - _LOG_SQRT_2PI) / mass
    at_q = math.exp(-0.5 * q * q - _LOG_SQRT_2PI) / mass
    mean = at_p - at_q
    log_mass = math.log(mass)
    if p < 0.0:
        log_mass = math.log1p(-0.5 * (math.erfc(-p * _SQRT_HALF) + math.erfc(q * _SQRT_HALF)))
    return log_mass, mean, 1.0 + p * at_p - q * at_q - mean * mean


@jit_inner(inline="always")
def _summed(p, width):  # type: ignore[no-untyped-def]
    """Narrow or tail intervals by Gauss-Legendre nodes, the density relative to that at p."""
    total, first, second = 0.0, 0.0, 0.0
    for i in range(_NODES.size):
        t = _NODES[i] * width
        mass = _WEIGHTS[i] * math.exp(-t * (p + 0.5 * t))
        total += mass
        first += mass * _NODES[i]
    mean = first / total
    for i in range(_NODES.size):
        t = _NODES[i] * width
        off = _NODES[i] - mean
        second += _WEIGHTS[i] * math.exp(-t * (p + 0.5 * t)) * off * off
    log_mass = math.log(width) + math.log(total) - 0.5 * p * p - _LOG_SQRT_2PI
    return log_mass, p + width * mean, width * width * second / total


# What the rows of an array of shape (N_ROWS, n) are: the sites, the Gaussian's marginals, the sites
# that their cavities ask for, these cavities, and the log mass of the limits under them.
TAU, NU, MEAN, VARIANCE, NEW_TAU, NEW_NU, CAVITY_MEAN, CAVITY_VAR, LOG_MASS = range(9)
N_ROWS = 9

# Shares of the prior's: the least variance that a row keeps, and the least precision of a cavity.
LEAST_VARIANCE, LEAST_CAVITY = 1e-14, 1e-10

# What `judge` finds: EP has converged, makes no progress, is far from its fixed point, where sites
# take a share of their step, or so near that a model of the marginals will do.
CONVERGED, STUCK, FAR, NEAR = range(4)

# Of a row's variance: the least that its site takes, and leaves.
LEAST_SHRINKAGE = 1e-12
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


# Those that follow and are not compiled here call what is: from Python that costs microseconds,
# while LLVM would optimise all that they call once more with each of them. `compiled.ep` compiles
# them for itself.


def judge(rows, limits, least, tol, progress):  # type: ignore[no-untyped-def]
    """Compare the marginals with the tilted ones; say what is to be done."""
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
    return FAR


@jit()
def tilt(rows, limits, least):  # type: ignore[no-untyped-def]
    """Fill in all that follows from sites and marginals; return the largest residual.

    `limits` are the lower and the upper ones, `least` the least precisions of the cavities.
    """
    residual = 0.0
    for i in range(rows.shape[1]):
        lower, upper = limits[0, i], limits[1, i]
        mean, variance = rows[MEAN, i], rows[VARIANCE, i]
        left = 1.0 / variance - rows[TAU, i]
        cavity_var = 1.0 / (left if left > least[i] else least[i])
        cavity_mean = cavity_var * (mean / variance - rows[NU, i])
        rows[CAVITY_MEAN, i], rows[CAVITY_VAR, i] = cavity_mean, cavity_var
        rows[NEW_TAU, i] = rows[NEW_NU, i] = rows[LOG_MASS, i] = 0.0
        if lower == -math.inf and upper == math.inf:
            continue
        sd = math.sqrt(cavity_var)
        moments = interval_moments((lower - cavity_mean) / sd, (upper - cavity_mean) / sd)
        shift, spread = moments[1], moments[2]
        spread = LEAST_SHRINKAGE if spread < LEAST_SHRINKAGE else spread
        taken = LEAST_SHRINKAGE if 1.0 - spread < LEAST_SHRINKAGE else 1.0 - spread
        taken = 1.0 - LEAST_SHRINKAGE if taken > 1.0 - LEAST_SHRINKAGE else taken
        kept = cavity_var * (spread if spread < 0.5 else 1.0 - taken)
        rows[NEW_TAU, i] = taken / kept
        rows[NEW_NU, i] = (cavity_mean * taken + sd * shift) / kept
        rows[LOG_MASS, i] = moments[0]
        gap = abs(cavity_mean + sd * shift - mean) / math.sqrt(variance)
        gap += abs(math.log(cavity_var * spread / variance))
        if not gap <= residual:  # or not a number
            residual = gap
    return residual


# Where the sites of expectation propagation go, by a model of the Gaussian's marginals.
#
# When the site of row j alone changes, by :math:`\delta\tau_j, \delta\nu_j`, the Gaussian of mean m
# and covariance S gets the marginals
#
# .. math:: S_{ii} - S_{ij}^2 \frac{\delta\tau_j}{1 + \delta\tau_j S_{jj}}, \qquad
#     m_i + S_{ij} \frac{\delta\nu_j - \delta\tau_j m_j}{1 + \delta\tau_j S_{jj}}.
#
# The model adds this up over the rows: exact for one row, and to first order for all. Its fixed
# point takes n^2 operations an iteration, and the sites there are right to the square of the
# residual.

_MAX_ITERATIONS = 40
# The model is off by some hundredths of the squared residual, or more: no use to solve it better.
_TOLERANCE = 1e-2
# Of a variance, or of a cavity's precision: the least that the model may leave of it.
_LEAST_LEFT = 0.05
# Differences that mixing keeps.
_DEPTH = 5
# Share of its precision, old or new, below which mixing never takes a site: it must stay proper.
_LEAST_KEPT = 0.1
# Of a squared step, itself apart from the others: less is their round-off.
_LEAST_PIVOT = 1e-12


def solve_model(covariance, rows, model, limits, residual, tol):  # type: ignore[no-untyped-def]
    """Leave the model's fixed point in the new sites of `model`, a copy of `rows`.

    `covariance` is that of the Gaussian, in the lower triangle, and `residual` that of the rows.
    """
    n = rows.shape[1]
    history, work = np.empty((2 * _DEPTH + 3, 2 * n)), np.empty((4, n))
    sites, asked = model[TAU : NU + 1].reshape(-1), model[NEW_TAU : NEW_NU + 1].reshape(-1)
    scale = np.concatenate((rows[VARIANCE], np.sqrt(rows[VARIANCE])))
    shares = np.empty((_DEPTH, _DEPTH + 2))
    goal = max(_TOLERANCE * residual * min(residual, 1.0), 0.1 * tol)
    damping, count = 1.0, Index(0)
    for _ in range(_MAX_ITERATIONS):
        count = Index(model_step(sites, asked, scale, history, shares, count, damping))
        model_marginals(covariance, rows, model, work)
        found = tilt(model, limits, work[0])
        if found > residual:
            damping = max(_LEAST_DAMPING, 0.7 * damping)
            count = Index(0)
        residual = found
        if residual < goal:
            break


@jit_sums(no_cpython_wrapper=False)
def model_marginals(s, rows, model, work):  # type: ignore[no-untyped-def]
    """Marginals at the sites of `model`, and in `work[0]` the least precisions of its cavities."""
    n = Index(s.shape[0])
    by_nu, by_tau, left = Index(1), Index(2), Index(3)
    for i in range(n):
        work[Index(0), i] = _LEAST_LEFT / rows[CAVITY_VAR, i]
        moved = model[TAU, i] - rows[TAU, i]
        left_of_it = 1.0 + moved * rows[VARIANCE, i]
        share = 1.0 / (left_of_it if left_of_it > 0.1 else 0.1)
        work[by_tau, i] = moved * share
        work[by_nu, i] = (model[NU, i] - rows[NU, i] - moved * rows[MEAN, i]) * share
        model[MEAN, i] = rows[MEAN, i]
        work[left, i] = rows[VARIANCE, i]
    for i in range(n):
        a, b = work[by_nu, i], work[by_tau, i]
        x, y = 0.0, 0.0
        for j in range(i):
            entry = s[i, j]
            square = entry * entry
            x += entry * work[by_nu, j]
            y += square * work[by_tau, j]
            model[Index(MEAN), j] += entry * a
            work[left, j] -= square * b
        entry = s[i, i]
        model[MEAN, i] += x + entry * a
        work[left, i] -= y + entry * entry * b
    for i in range(n):
        least = _LEAST_LEFT * rows[VARIANCE, i]
        model[VARIANCE, i] = work[left, i] if work[left, i] > least else least


@jit_sums(no_cpython_wrapper=False)
def model_step(sites, asked, scale, history, share, count, damping):  # type: ignore[no-untyped-def]
    """Take sites a step on to those `asked` for, mixed with `count` differences; their new number.

    Anderson's acceleration, as in `pymc_skewgp._gaussian.linalg`. `history` has the last sites
    that were asked for, the last step, and differences of both, of which the oldest go first.
    """
    m, last = Index(sites.size), Index(2 * _DEPTH + 2)
    newest = 2 + 2 * ((count - Index(1)) % Index(_DEPTH) if count > 0 else Index(0))
    for i in range(m):
        step = scale[i] * (asked[i] - sites[i])
        history[newest, i] = asked[i] - history[0, i]
        history[newest + 1, i] = step - history[1, i]
        history[0, i], history[1, i] = asked[i], step
    n = count if count < Index(_DEPTH) else Index(_DEPTH)
    for k in range(n):
        for j in range(n + 1):
            other = 3 + 2 * j if j < n else 1
            total = 0.0
            for i in range(m):
                total += history[3 + 2 * k, i] * history[other, i]
            share[k, j] = total
        share[k, n + 1] = share[k, k]
    for k in range(n):
        # Unknowns that add nothing to those before them are 0.
        pivot = share[k, k]
        inverse = 1.0 / pivot if pivot > _LEAST_PIVOT * share[k, n + 1] else 0.0
        for j in range(n + 1):
            share[k, j] *= inverse
        for i in range(n):
            factor = share[i, k] if i != k else 0.0
            for j in range(n + 1):
                share[i, j] -= factor * share[k, j]
    proper = count > 0
    for i in range(m):
        mixed = history[0, i]
        for k in range(n):
            mixed -= share[k, n] * history[2 + 2 * k, i]
        history[last, i] = mixed
        least = sites[i] if sites[i] < asked[i] else asked[i]
        proper &= 2 * i >= m or mixed >= _LEAST_KEPT * least  # the first half are precisions
    for i in range(m):
        sites[i] = history[last, i] if proper else sites[i] + damping * (asked[i] - sites[i])
    return count + Index(1)


# Log Phi by a table of polynomials: five times as fast as by erfc and log, and as exact.
#
# Between -8 and 9 the line is cut into pieces of 1/8, each with a polynomial of degree 7 through
# Chebyshev nodes: the error is below 2e-14 of 1 + |log Phi|. Below, a continued fraction.

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
        return _log_tail(-x)
    return _polynomial((x - _FIRST) * _PER_UNIT, table)


@jit_inner()
def tabulated_ndtr(x, table):  # type: ignore[no-untyped-def]
    """Phi(x), with all digits of small ones."""
    if x >= _LAST:
        return 1.0
    if not x >= _FIRST:
        return math.exp(_log_tail(-x))
    return _polynomial((x - _FIRST) * _PER_UNIT, table)


@jit_inner(inline="always")
def _log_tail(p):  # type: ignore[no-untyped-def]
    """As `_above` has it."""
    first = 2.0 * _FRACTION_TERMS / (p + math.sqrt(p * p + 4.0 * _FRACTION_TERMS))
    for k in range(_FRACTION_TERMS, 0, -1):
        first = k / (p + first)
    return -0.5 * p * p - _LOG_SQRT_2PI - math.log(p + first)


@jit_inner(inline="always")
def _polynomial(place, table):  # type: ignore[no-untyped-def]
    i = int(place)
    t = (place - i - 0.5) / _PER_UNIT
    low = (table[i, 0] + t * table[i, 1]) + t * t * (table[i, 2] + t * table[i, 3])
    high = (table[i, 4] + t * table[i, 5]) + t * t * (table[i, 6] + t * table[i, 7])
    return low + (t * t) * (t * t) * high


# Cholesky factors of I + F' D F for one F and many diagonals D, and what is solved with them.


@jit_sums()
def _product(a, b, n):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(n):
        total += a[i] * b[i]
    return total


@jit_sums()
def _add(own, other, factor, n):  # type: ignore[no-untyped-def]
    for i in range(n):
        own[i] += factor * other[i]


@jit()
def factorise(rows, diagonals, ridge, chol, log_det):  # type: ignore[no-untyped-def]
    """Fill in lower triangles, row by row, and log determinants, NaN where there is no factor.

    By a unit diagonal, whatever the units are, with a ridge.
    """
    n, r = Index(rows.shape[0]), Index(rows.shape[1])
    scale = np.empty(rows.shape[1])
    for s in range(Index(len(diagonals))):
        own = chol[s]
        own[:] = 0.0
        for j in range(r):
            own[j, j] = 1.0
        for i in range(n):
            for j in range(r):
                _add(own[j], rows[i], diagonals[s, i] * rows[i, j], j + Index(1))
        for j in range(r):
            scale[j] = np.sqrt(own[j, j])
        log_det[s] = 0.0
        for j in range(r):
            for k in range(j):
                own[j, k] /= scale[j] * scale[k]
                own[j, k] = (own[j, k] - _product(own[j], own[k], k)) / own[k, k]
            pivot = 1.0 + ridge - _product(own[j], own[j], j)
            if not pivot > 0.0:
                log_det[s] = np.nan
                break
            own[j, j] = np.sqrt(pivot)
            log_det[s] += 2.0 * np.log(scale[j] * own[j, j])
        for j in range(r):
            for k in range(j + Index(1)):
                own[j, k] *= scale[j]


@jit()
def solve(chol, x, transposed):  # type: ignore[no-untyped-def]
    """Put L^-1 x, or L'^-1 x, in the place of x, one row for each L."""
    r = Index(x.shape[1])
    for s in range(Index(len(x))):
        own, y = chol[s], x[s]
        for i in range(r):
            if transposed:
                j = r - Index(1) - i
                y[j] /= own[j, j]
                _add(y, own[j], -y[j], j)
            else:
                y[i] = (y[i] - _product(own[i], y, i)) / own[i, i]
