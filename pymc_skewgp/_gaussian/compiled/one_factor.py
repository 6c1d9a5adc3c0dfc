r"""Rows that share one factor of their noise: log probability that all are above their limits.

With a standard normal z that the m rows of a group share,

.. math:: P = \int \phi(z) \prod_{j=1}^m \Phi(a_j + w_j \eta_j + b_j z) \, \mathrm dz,

by the trapezoid rule, which converges exponentially for such integrands: this one is log-concave,
and no narrower than a normal density of variance :math:`1 / (1 + \sum_j b_j^2)`, which a step of
one standard deviation integrates to 5e-9 of itself.
"""

import math

import numpy as np

from pymc_skewgp._gaussian.compiled.jit import jit, jit_inner
from pymc_skewgp._gaussian.compiled.log_ndtr_table import tabulated_log_ndtr, tabulated_ndtr

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
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
