r"""Where the sites of expectation propagation go, by a model of the Gaussian's marginals.

When the site of row j alone changes, by :math:`\delta\tau_j, \delta\nu_j`, the Gaussian of mean m
and covariance S gets the marginals

.. math:: S_{ii} - S_{ij}^2 \frac{\delta\tau_j}{1 + \delta\tau_j S_{jj}}, \qquad
    m_i + S_{ij} \frac{\delta\nu_j - \delta\tau_j m_j}{1 + \delta\tau_j S_{jj}}.

The model adds this up over the rows: exact for one row, and to first order for all. Its fixed point
takes n^2 operations an iteration, and the sites there are right to the square of the residual.
"""

import math

import numpy as np

from pymc_skewgp._gaussian.compiled.jit import Index, jit, jit_inner, jit_sums
from pymc_skewgp._gaussian.compiled.rows import (
    CAVITY_VAR,
    MEAN,
    N_ROWS,
    NEW_NU,
    NEW_TAU,
    NU,
    TAU,
    VARIANCE,
    tilt,
)

_MAX_ITERATIONS = 40
# The model is off by some hundredths of the squared residual, or more: no use to solve it better.
_TOLERANCE = 1e-2
# Of a variance, or of a cavity's precision: the least that the model may leave of it.
_LEAST_LEFT = 0.05
# Differences that mixing keeps.
_DEPTH = 5
_LEAST_DAMPING = 0.1
# Share of its precision, old or new, below which mixing never takes a site: it must stay proper.
_LEAST_KEPT = 0.1
# Of a squared step, itself apart from the others: less is their round-off.
_LEAST_PIVOT = 1e-12


@jit()
def solve_model(covariance, rows, limits, residual, tol):  # type: ignore[no-untyped-def]
    """Replace the sites in `rows`, which have that residual, by the model's fixed point.

    `covariance` is that of the Gaussian, in the lower triangle. Marginals are left as they are.
    """
    n = rows.shape[1]
    model, least = np.empty((N_ROWS, n)), np.empty((4, n))
    history = np.empty((2 * _DEPTH + 3, 2 * n))
    for i in range(n):
        for k in range(N_ROWS):
            model[k, i] = rows[k, i]
        least[0, i] = _LEAST_LEFT / rows[CAVITY_VAR, i]
    goal = max(_TOLERANCE * residual * min(residual, 1.0), 0.1 * tol)
    damping, count = 1.0, Index(0)
    for _ in range(_MAX_ITERATIONS):
        count = _step(model, rows, history, count, damping)
        _model_marginals(covariance, rows, model, least)
        found = tilt(model, limits, least[0])
        if found > residual:
            damping = max(_LEAST_DAMPING, 0.7 * damping)
            count = Index(0)
        residual = found
        if residual < goal:
            break
    for i in range(n):
        rows[TAU, i], rows[NU, i] = model[NEW_TAU, i], model[NEW_NU, i]


@jit_sums()
def _model_marginals(s, rows, model, work):  # type: ignore[no-untyped-def]
    """Marginals at the sites of `model`; the last three rows of `work` are overwritten."""
    n = Index(s.shape[0])
    by_nu, by_tau, left = Index(1), Index(2), Index(3)
    for i in range(n):
        moved = model[TAU, i] - rows[TAU, i]
        share = 1.0 / max(1.0 + moved * rows[VARIANCE, i], 0.1)
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
        model[VARIANCE, i] = max(work[left, i], _LEAST_LEFT * rows[VARIANCE, i])


@jit_sums()
def _step(model, rows, history, count, damping):  # type: ignore[no-untyped-def]
    """Take the sites in `model` a step on, mixed with `count` differences; return their number.

    Anderson's acceleration, as in `pymc_skewgp._gaussian.anderson`. `history` has the last sites
    that were asked for, the last step, and differences of both, of which the oldest go first.
    """
    n, m = Index(rows.shape[1]), 2 * Index(rows.shape[1])
    newest = 2 + 2 * ((count - Index(1)) % Index(_DEPTH) if count > 0 else Index(0))
    for i in range(n):
        for k in range(2):
            at, asked = k * n + i, model[NEW_TAU + k, i]
            scale = rows[VARIANCE, i] if k == 0 else math.sqrt(rows[VARIANCE, i])
            step = scale * (asked - model[TAU + k, i])
            history[newest, at] = asked - history[0, at]
            history[newest + 1, at] = step - history[1, at]
            history[0, at], history[1, at] = asked, step
    n_differences = min(count, Index(_DEPTH))
    share = np.zeros((_DEPTH, _DEPTH + 1))
    for k in range(n_differences):
        row = 3 + 2 * k
        for j in range(k, n_differences + 1):
            other = 3 + 2 * j if j < n_differences else 1
            total = 0.0
            for i in range(m):
                total += history[row, i] * history[other, i]
            share[k, j if j < n_differences else _DEPTH] = total
    _solve_least_squares(share, n_differences)
    proper = count > 0
    for i in range(m):
        mixed = history[0, i]
        for k in range(n_differences):
            mixed -= share[k, _DEPTH] * history[2 + 2 * k, i]
        history[2 * _DEPTH + 2, i] = mixed
        if i < n:
            proper &= mixed >= _LEAST_KEPT * min(model[TAU, i], model[NEW_TAU, i])
    for i in range(n):
        for k in range(2):
            if proper:
                model[TAU + k, i] = history[2 * _DEPTH + 2, k * n + i]
            else:
                model[TAU + k, i] += damping * (model[NEW_TAU + k, i] - model[TAU + k, i])
    return count + Index(1)


@jit_inner()
def _solve_least_squares(a, n):  # type: ignore[no-untyped-def]
    """Overwrite the last column by the solution of the first n normal equations.

    They are given above the diagonal. Unknowns that add nothing to those before them are 0.
    """
    last = a.shape[1] - 1
    for k in range(n):
        for j in range(k):
            a[k, j] = a[j, k]
    whole = np.empty(n)
    for k in range(n):
        whole[k] = a[k, k]
    for k in range(n):
        if not a[k, k] > _LEAST_PIVOT * whole[k]:
            for i in range(n):
                a[i, k] = 0.0
            a[k, last] = 0.0
            for j in range(n):
                a[k, j] = 0.0
            continue
        pivot = a[k, k]
        for j in range(n):
            a[k, j] /= pivot
        a[k, last] /= pivot
        for i in range(n):
            if i != k:
                factor = a[i, k]
                for j in range(n):
                    a[i, j] -= factor * a[k, j]
                a[i, last] -= factor * a[k, last]
