"""Cholesky factors of I + F' D F for one F and many diagonals D, and what is solved with them."""

import numpy as np

from pymc_skewgp._gaussian.compiled.rows import Index, jit, jit_sums


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
