"""Loops over the columns of a sparse Cholesky factor R, P = R R': solves, and parts of P^-1."""

import numpy as np

from pymc_skewgp._gaussian.compiled.rows import jit, jit_inner


@jit()
def solve_transposed(starts, rows, values, x, first, stop):  # type: ignore[no-untyped-def]
    """Solve R' y = x in place from row `stop` down to `first`, x of shape (d, N).

    Rows from `stop` on hold y already. The diagonal comes first in each column.
    """
    for j in range(stop - 1, first - 1, -1):
        for t in range(starts[j] + 1, starts[j + 1]):
            for k in range(x.shape[1]):
                x[j, k] -= values[t] * x[rows[t], k]
        for k in range(x.shape[1]):
            x[j, k] /= values[starts[j]]


@jit()
def selected_inverse(starts, rows, values, out):  # type: ignore[no-untyped-def]
    """Entries of P^-1 where R has entries, into `out`, from the last column to the first.

    With l = R_{>j, j} / R_jj, of Z = P^-1 the column below the diagonal is -Z_{>j, >j} l, and
    Z_jj = 1 / R_jj^2 - l' Z_{>j, j}: all that this needs has been found before (Takahashi, Fagan &
    Chin 1973; Erisman & Tinney 1975, doi:10.1145/360680.360704).
    """
    place = np.full(starts.size - 1, -1)
    for j in range(starts.size - 2, -1, -1):
        first, stop = starts[j], starts[j + 1]
        pivot = values[first]
        for t in range(first + 1, stop):
            place[rows[t]] = t
            out[t] = 0.0
        for t in range(first + 1, stop):
            k, share = rows[t], values[t] / pivot
            out[t] -= share * out[starts[k]]
            for s in range(starts[k] + 1, starts[k + 1]):
                other = place[rows[s]]
                if other >= 0:
                    out[other] -= share * out[s]
                    out[t] -= values[other] / pivot * out[s]
        total = 1.0 / (pivot * pivot)
        for t in range(first + 1, stop):
            total -= values[t] / pivot * out[t]
            place[rows[t]] = -1
        out[first] = total


@jit_inner()
def _entry(starts, rows, inverse, i, j):  # type: ignore[no-untyped-def]
    """One entry of P^-1, by bisection in the column of the smaller index."""
    column, row = min(i, j), max(i, j)
    low, high = starts[column], starts[column + 1]
    while low < high:
        middle = (low + high) // 2
        if rows[middle] < row:
            low = middle + 1
        else:
            high = middle
    return inverse[low]


@jit()
def covariances(starts, rows, inverse, where, first, values, out):  # type: ignore[no-untyped-def]
    """Of each entry A_ij the covariance of c_j with the predictor A_i c, into `out`.

    Entries of row i are first[i] to first[i + 1], of the variables `where` in the order of R.
    """
    for i in range(first.size - 1):
        for s in range(first[i], first[i + 1]):
            total = 0.0
            for t in range(first[i], first[i + 1]):
                total += values[t] * _entry(starts, rows, inverse, where[s], where[t])
            out[s] = total
