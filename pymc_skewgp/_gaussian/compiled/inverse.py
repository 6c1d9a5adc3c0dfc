"""The inverse of a positive definite matrix, eight rows at a time.

Up to some hundred rows this takes less time than LAPACK's two calls.
"""

import math

import numpy as np

from pymc_skewgp._gaussian.compiled.jit import Index, jit_sums

_WIDTH = 8
# Of other types than bool: for each of its values a function would be compiled anew.
WHOLE, DETERMINANT = Index(1), Index(0)


@jit_sums()
def sweep(a, whole):  # type: ignore[no-untyped-def]
    """Overwrite the lower triangle of `a` by minus its inverse; return the log determinant.

    Rows are swept (Goodnight 1979, doi:10.1080/00031305.1979.10482685), n^3 operations in all.
    Where not the `whole` is asked for, rows before the ones in turn are left out: of n^3/3
    operations only the log determinant is of use. It is not a number where `a` is not positive
    definite.
    """
    n, width = Index(a.shape[0]), Index(_WIDTH)
    own = np.empty((_WIDTH, _WIDTH))
    columns = np.empty((n + width, width))
    solved = np.empty((width, n + width))
    log_det = 0.0
    start = Index(0)
    while start < n:
        stop = min(start + width, n)
        first = Index(0) if whole else start
        _gather(a, columns, own, start, first)
        log_det += _sweep_block(own)
        if np.isnan(log_det):
            return log_det
        for j in range(first, n):
            for m in range(width):
                total = 0.0
                for k in range(width):
                    total -= columns[j, k] * own[k, m]
                solved[m, j] = total
        _subtract(a, columns, solved, first)
        for k in range(start, stop):
            for i in range(first, start):
                a[k, i] = solved[k - start, i]
            for m in range(start, k + Index(1)):
                a[k, m] = own[k - start, m - start]
        for i in range(stop, n):
            for k in range(start, stop):
                a[i, k] = solved[k - start, i]
        start = stop
    return log_det


@jit_sums()
def _gather(a, columns, own, start, first):  # type: ignore[no-untyped-def]
    """Take the columns of a block of rows from the lower triangle; missing ones are 0 and 1."""
    n, width = Index(a.shape[0]), Index(_WIDTH)
    stop = min(start + width, n)
    if stop < start + width:
        for i in range(n + width):
            for k in range(width):
                columns[i, k] = 0.0
    for i in range(first, start):
        for k in range(start, stop):
            columns[i, k - start] = a[k, i]
    for i in range(start, stop):
        for k in range(start, i + Index(1)):
            columns[i, k - start] = a[i, k]
            columns[k, i - start] = a[i, k]
    for i in range(stop, n):
        for k in range(start, stop):
            columns[i, k - start] = a[i, k]
    for i in range(width):
        for k in range(width):
            inside = start + i < stop and start + k < stop
            own[i, k] = columns[start + i, k] if inside else (1.0 if i == k else 0.0)


@jit_sums()
def _sweep_block(p):  # type: ignore[no-untyped-def]
    """Replace `p` by minus its inverse; return its log determinant, or not a number."""
    n = Index(_WIDTH)
    log_det = 0.0
    for k in range(n):
        pivot = p[k, k]
        if not pivot > 0.0:
            return np.nan
        log_det += math.log(pivot)
        share = 1.0 / pivot
        for i in range(n):
            if i != k:
                factor = p[i, k] * share
                for j in range(n):
                    if j != k:
                        p[i, j] -= factor * p[k, j]
        for i in range(n):
            if i != k:
                p[i, k] *= share
                p[k, i] *= share
        p[k, k] = -share
    return log_det


@jit_sums()
def _subtract(a, c, d, first):  # type: ignore[no-untyped-def]
    """Take c d off the lower triangle, two rows at once; written out, so that it is vectorised."""
    k0, k1, k2, k3 = Index(0), Index(1), Index(2), Index(3)
    k4, k5, k6, k7 = Index(4), Index(5), Index(6), Index(7)
    n = Index(a.shape[0])
    i = first
    while i < n:
        s = min(i + k1, n - k1)
        p0, p1, p2, p3 = c[i, k0], c[i, k1], c[i, k2], c[i, k3]
        p4, p5, p6, p7 = c[i, k4], c[i, k5], c[i, k6], c[i, k7]
        if s == i:
            for j in range(first, i + k1):
                x = p0 * d[k0, j] + p1 * d[k1, j] + p2 * d[k2, j] + p3 * d[k3, j]
                x += p4 * d[k4, j] + p5 * d[k5, j] + p6 * d[k6, j] + p7 * d[k7, j]
                a[i, j] -= x
            return
        q0, q1, q2, q3 = c[s, k0], c[s, k1], c[s, k2], c[s, k3]
        q4, q5, q6, q7 = c[s, k4], c[s, k5], c[s, k6], c[s, k7]
        # One entry above the diagonal comes along; nobody reads it.
        for j in range(first, s + k1):
            e0, e1, e2, e3 = d[k0, j], d[k1, j], d[k2, j], d[k3, j]
            e4, e5, e6, e7 = d[k4, j], d[k5, j], d[k6, j], d[k7, j]
            x = p0 * e0 + p1 * e1 + p2 * e2 + p3 * e3
            x += p4 * e4 + p5 * e5 + p6 * e6 + p7 * e7
            y = q0 * e0 + q1 * e1 + q2 * e2 + q3 * e3
            y += q4 * e4 + q5 * e5 + q6 * e6 + q7 * e7
            a[i, j] -= x
            a[s, j] -= y
        i += k2
