"""Rows with noise of their own as sites of their predictors: EP's new sites, and log weights.

A row v = eta + e, e ~ N(0, s^2), is a point, where v is known, or an interval that v lies in. So
that one loop serves both, a row is five numbers: lower, upper and value, each less the predictor's
offset, the variance of the noise, and how many equal rows it stands for; `value` is NaN where the
row is an interval.
"""

import math

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._gaussian.compiled.rows import (
    interval_moments,
    jit,
    jit_inner,
    log_ndtr_table,
    tabulated_log_ndtr,
    tabulated_ndtr,
)
from pymc_skewgp._validation import FloatArray

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


@jit()
def row_moments(rows, mean, sd, out):  # type: ignore[no-untyped-def]
    """Moments of N(mean_i, sd_i^2) times the site of row i.

    `rows` are those of the module, shape (5, n). Filled in is `out`, shape (4, n): log
    mass, mean less mean_i and variance in units of the Gaussian's, and 1 less that variance.
    """
    for i in range(mean.size):
        noise, cavity = rows[3, i], sd[i] * sd[i]
        total = math.sqrt(cavity + noise)
        share = sd[i] / total
        value = rows[2, i]
        if value == value:
            z = (value - mean[i]) / total
            out[0, i] = -0.5 * z * z - math.log(total) - _LOG_SQRT_2PI
            out[1, i] = share * z
            out[2, i], out[3, i] = noise / (cavity + noise), cavity / (cavity + noise)
        elif rows[0, i] == -np.inf and rows[1, i] == np.inf:
            out[0, i], out[1, i], out[2, i], out[3, i] = 0.0, 0.0, 1.0, 0.0
        else:
            low, high = (rows[0, i] - mean[i]) / total, (rows[1, i] - mean[i]) / total
            log_mass, shift, spread = interval_moments(low, high)
            out[0, i] = log_mass
            out[1, i] = share * shift
            out[3, i] = share * share * (1.0 - spread)
            out[2, i] = 1.0 - out[3, i]


@jit_inner()
def _log_site(lower, upper, value, deviation, eta, table):  # type: ignore[no-untyped-def]
    """Log p of a row without both limits, of noise with that deviation, given its predictor."""
    if value == value:
        z = (value - eta) / deviation
        return -0.5 * z * z - math.log(deviation) - _LOG_SQRT_2PI
    if upper < np.inf:
        return tabulated_log_ndtr((upper - eta) / deviation, table)
    return tabulated_log_ndtr((eta - lower) / deviation, table)  # of no limit 0


def log_probs(rows: FloatArray, eta: FloatArray) -> FloatArray:
    """Log p of each row, once, given predictors eta, shape (k, n)."""
    rows, eta = np.ascontiguousarray(rows), np.ascontiguousarray(eta)
    found, both = np.empty(eta.shape), _with_both_limits(rows)
    _log_probs(rows, eta, log_ndtr_table(), found)
    if both.any():
        found[:, both] = _between(rows[:, both], eta[:, both])
    return found


def add_log_probs(
    rows: FloatArray, centre: FloatArray, off: FloatArray, sign: float, total: FloatArray
) -> None:
    """Add to `total`, shape (N,), log p of all rows given predictors centre_i + sign off_ij.

    Each counts as often as it says.
    """
    both = _with_both_limits(rows)
    if both.any():
        eta = (centre[both, None] + sign * off[both]).T
        total += _between(rows[:, both], eta) @ rows[4, both]
        rows, centre, off = rows[:, ~both], centre[~both], off[~both]
    rows, off = np.ascontiguousarray(rows), np.ascontiguousarray(off)
    _add_log_probs(rows, centre, off, sign, log_ndtr_table(), total)


def _with_both_limits(rows: FloatArray) -> NDArray[np.bool_]:
    """These have functions of their own, which take long to compile and few need."""
    return np.isfinite(rows[:2]).all(axis=0) & np.isnan(rows[2])


def _between(rows: FloatArray, eta: FloatArray) -> FloatArray:
    found = np.empty(eta.shape)
    _interval_log_probs(np.ascontiguousarray(rows), np.ascontiguousarray(eta), found)
    return found


@jit()
def _log_probs(rows, eta, table, found):  # type: ignore[no-untyped-def]
    for i in range(eta.shape[1]):
        deviation = math.sqrt(rows[3, i])
        for k in range(eta.shape[0]):
            found[k, i] = _log_site(rows[0, i], rows[1, i], rows[2, i], deviation, eta[k, i], table)


@jit()
def _interval_log_probs(rows, eta, found):  # type: ignore[no-untyped-def]
    for i in range(eta.shape[1]):
        deviation = math.sqrt(rows[3, i])
        for k in range(eta.shape[0]):
            low, high = (rows[0, i] - eta[k, i]) / deviation, (rows[1, i] - eta[k, i]) / deviation
            found[k, i] = interval_moments(low, high)[0]


@jit()
def row_slopes(rows, eta, first, second):  # type: ignore[no-untyped-def]
    """First and second derivative of the same in the predictors, filled in."""
    for i in range(eta.shape[1]):
        lower, upper, value = rows[0, i], rows[1, i], rows[2, i]
        deviation = math.sqrt(rows[3, i])
        for k in range(eta.shape[0]):
            mean, variance = (value - eta[k, i]) / deviation, 0.0
            if value != value:  # not a number: an interval
                low, high = (lower - eta[k, i]) / deviation, (upper - eta[k, i]) / deviation
                _, mean, variance = interval_moments(low, high)
            first[k, i] = mean / deviation
            second[k, i] = (variance - 1.0) / rows[3, i]


@jit()
def _add_log_probs(rows, centre, off, sign, table, total):  # type: ignore[no-untyped-def]
    for i in range(off.shape[0]):
        lower, upper, value, count = rows[0, i], rows[1, i], rows[2, i], rows[4, i]
        deviation = math.sqrt(rows[3, i])
        side = one_sided(lower, upper, value)
        if side == 0.0:
            for j in range(total.size):
                eta = centre[i] + sign * off[i, j]
                total[j] += count * _log_site(lower, upper, value, deviation, eta, table)
            continue
        base = side / deviation * (centre[i] - (lower if side > 0.0 else upper))
        slope = sign * side / deviation
        for j in range(total.size):
            total[j] += count * tabulated_log_ndtr(base + slope * off[i, j], table)


@jit_inner()
def one_sided(lower, upper, value):  # type: ignore[no-untyped-def]
    """1 for an interval without an upper limit, -1 for one without a lower, 0 for other rows."""
    if value == value:
        return 0.0
    if upper == np.inf and lower > -np.inf:
        return 1.0
    if lower == -np.inf and upper < np.inf:
        return -1.0
    return 0.0


# Rows that share one factor of their noise: log probability that all are above their limits.
#
# With a standard normal z that the m rows of a group share,
#
# .. math:: P = \int \phi(z) \prod_{j=1}^m \Phi(a_j + w_j \eta_j + b_j z) \, \mathrm dz,
#
# by the trapezoid rule, which converges exponentially for such integrands: this one is log-concave,
# and no narrower than a normal density of variance :math:`1 / (1 + \sum_j b_j^2)`, which a step of
# one standard deviation integrates to 5e-9 of itself.

_LOST = 20.0  # nats below the largest term, from which on terms are none
_SMALL = math.exp(-_LOST)
_LEAST = 1e-200  # sum below which products are taken as sums of logs


@jit()
def one_factor_log_probs(rows, eta, tables, found):  # type: ignore[no-untyped-def]
    """Fill in log P of n groups, shape (n, N), for predictors of shape (n, m, N).

    `rows` are a, w and b of each row, shape (3, n, m); `tables` those of log Phi and of Phi. All
    draws take the same nodes, as many as any of them needs.
    """
    n, m, n_draws = eta.shape
    logs, plain = tables[0], tables[1]
    at, slope = np.empty((m, n_draws)), np.empty(m)
    first, before, term = np.empty(n_draws), np.empty(n_draws), np.empty(n_draws)
    for i in range(n):
        narrowest = 1.0
        for j in range(m):
            slope[j] = rows[2, i, j]
            narrowest += slope[j] * slope[j]
            base, weight = rows[0, i, j], rows[1, i, j]
            for k in range(n_draws):
                at[j, k] = base + weight * eta[i, j, k]
        step, total = 1.0 / math.sqrt(narrowest), found[i]
        _fill_terms(at, slope, 0.0, plain, first)
        for k in range(n_draws):
            total[k] = first[k]
        for side in (1.0, -1.0):
            for k in range(n_draws):
                before[k] = first[k]
            z, more = 0.0, True
            while more:
                z += side * step
                _fill_terms(at, slope, z, plain, term)
                more = _add(term, before, total)
        for k in range(n_draws):
            if total[k] > _LEAST:
                total[k] = math.log(total[k] * step) - _LOG_SQRT_2PI
            else:
                total[k] = _log_integral(at, slope, k, step, logs)


@jit_inner()
def _fill_terms(at, slope, z, table, term):  # type: ignore[no-untyped-def]
    """The integrand at a node, for all draws, without the constant of the density."""
    density = math.exp(-0.5 * z * z)
    for k in range(term.size):
        term[k] = density
    for j in range(slope.size):
        shift = slope[j] * z
        for k in range(term.size):
            term[k] *= tabulated_ndtr(at[j, k] + shift, table)


@jit_inner()
def _add(term, before, total):  # type: ignore[no-untyped-def]
    """Add terms to their sums; whether any is not yet negligible, or still rises."""
    more = False
    for k in range(term.size):
        total[k] += term[k]
        if total[k] > _LEAST and not (term[k] <= before[k] and term[k] < _SMALL * total[k]):
            more = True
        before[k] = term[k]
    return more


@jit_inner()
def _log_term(at, slope, k, z, table):  # type: ignore[no-untyped-def]
    term = -0.5 * z * z
    for j in range(slope.size):
        term += tabulated_log_ndtr(at[j, k] + slope[j] * z, table)
    return term


@jit_inner()
def _near_top(at, slope, k, step, table):  # type: ignore[no-untyped-def]
    """A node within one step of the largest term: in a far tail that is thousands of steps away."""
    z, stride = 0.0, step
    top = _log_term(at, slope, k, z, table)
    while stride >= step:
        moved = 0.0
        for side in (1.0, -1.0):
            term = _log_term(at, slope, k, z + side * stride, table)
            if term > top:
                top, moved = term, side * stride
        z += moved
        stride *= 0.5 if moved == 0.0 else 2.0
    return z


@jit_inner()
def _log_integral(at, slope, k, step, table):  # type: ignore[no-untyped-def]
    """The log of the integral for draw k, by logs of the terms."""
    middle = _near_top(at, slope, k, step, table)
    first = _log_term(at, slope, k, middle, table)
    if not first > -math.inf:
        return first
    top, total = first, 1.0
    for side in (1.0, -1.0):
        z, before = middle, first
        # No further: the normal density alone has lost enough there.
        for _ in range(int(12.0 / step) + 8):
            z += side * step
            term = _log_term(at, slope, k, z, table)
            if term > top:
                total = total * math.exp(top - term) + 1.0
                top = term
            else:
                total += math.exp(term - top)
                if term <= before and term < top - _LOST:
                    break
            before = term
    return top + math.log(total * step) - _LOG_SQRT_2PI


# Which Gaussian of its sum each of some factors is, drawn anew given those of all others.

_LEAST = 1e-9  # of a cavity's precision, where a site takes all of it


@jit()
def redraw_kinds(cov, mean, kind, factor, rows, sums, uniform):  # type: ignore[no-untyped-def]
    """Gibbs steps, and what they make of Gaussians of the coordinates, in place.

    Parameters
    ----------
    cov, mean : ndarray, shape (N, r, r) and (N, r)
    kind : ndarray of int, shape (N, n)
        Which Gaussian each factor is.
    factor : ndarray, shape (n, r)
        Of the predictors.
    rows : ndarray of int, shape (k,)
        Factors that are drawn anew, one after the other.
    sums : tuple of ndarray, shape (n, K)
        Log heights, means and precisions.
    uniform : ndarray, shape (N, k)
    """
    height, centre, precision = sums
    r, size = mean.shape[1], height.shape[1]
    shares, gain = np.empty(size), np.empty(r)
    for j in range(mean.shape[0]):
        for a, i in enumerate(rows):
            old = kind[j, i]
            tau = precision[i, old]
            own_mean, own_variance = 0.0, 0.0
            for p in range(r):
                total = 0.0
                for q in range(r):
                    total += cov[j, p, q] * factor[i, q]
                gain[p] = total
                own_mean += mean[j, p] * factor[i, p]
                own_variance += total * factor[i, p]
            left = max(1.0 - tau * own_variance, _LEAST)
            variance = own_variance / left
            middle = (own_mean - own_variance * tau * centre[i, old]) / left
            largest = -np.inf
            for k in range(size):
                wide = 1.0 + variance * precision[i, k]
                off = precision[i, k] * (middle - centre[i, k]) ** 2 / wide
                shares[k] = height[i, k] - 0.5 * (math.log(wide) + off)
                largest = max(largest, shares[k])
            total = 0.0
            for k in range(size):
                shares[k] = math.exp(shares[k] - largest)
                total += shares[k]
            level, new = uniform[j, a] * total - shares[0], 0
            while level >= 0.0 and new < size - 1:
                new += 1
                level -= shares[new]
            if new == old:
                continue
            kind[j, i] = new
            change = precision[i, new] - tau
            pull = precision[i, new] * centre[i, new] - tau * centre[i, old]
            scale = 1.0 / (1.0 + change * own_variance)
            pull = (pull - change * own_mean) * scale
            for p in range(r):
                mean[j, p] += gain[p] * pull
                own = change * scale * gain[p]
                for q in range(r):
                    cov[j, p, q] -= own * gain[q]
