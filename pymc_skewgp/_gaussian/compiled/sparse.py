"""Loops over the columns of a sparse Cholesky factor R, P = R R': solves, and parts of P^-1."""

import numpy as np

from pymc_skewgp._gaussian.compiled.rows import jit, jit_inner


@jit()
def solve(starts, rows, values, x):  # type: ignore[no-untyped-def]
    """Solve R y = x in place, x of shape (d, N)."""
    for j in range(starts.size - 1):
        for k in range(x.shape[1]):
            x[j, k] /= values[starts[j]]
        for t in range(starts[j] + 1, starts[j + 1]):
            for k in range(x.shape[1]):
                x[rows[t], k] -= values[t] * x[j, k]


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
    """Entries of P^-1 where R has entries, into `out`, from the last columns to the first.

    Columns J with entries in the same rows K below them are taken together. With
    Y = R_KJ R_JJ^-1, of Z = P^-1 the block Z_KJ is -Z_KK Y, and Z_JJ = (R_JJ R_JJ')^-1 + Y' Z_KK Y:
    all that this needs has been found before (Takahashi, Fagan & Chin 1973; Erisman & Tinney 1975,
    doi:10.1145/360680.360704).
    """
    place = np.full(starts.size - 1, -1)
    last = starts.size - 2
    while last >= 0:
        first, k = last, starts[last + 1] - starts[last] - 1
        while first > 0:  # as long as the column before has the same rows, and this one
            j = starts[first - 1]
            if starts[first] - j != k + last - first + 2 or rows[j + 1] != first:
                break
            first -= 1
        width, below = last - first + 1, rows[starts[last] + 1 : starts[last + 1]]
        for i in range(k):
            place[below[i]] = i
        known = np.empty((k, k))
        for i in range(k):
            for s in range(starts[below[i]], starts[below[i] + 1]):
                if place[rows[s]] >= 0:
                    known[i, place[rows[s]]] = out[s]
                    known[place[rows[s]], i] = out[s]
        for i in range(k):
            place[below[i]] = -1
        # Y' above; below it the inverse of R_JJ', row by row.
        solved = np.zeros((width, k + width))
        for c in range(width - 1, -1, -1):
            column = starts[first + c]
            solved[c, :k] = values[column + width - c : column + width - c + k]
            solved[c, k + c] = 1.0
            for e in range(c + 1, width):
                solved[c] -= values[column + e - c] * solved[e]
            solved[c] /= values[column]
        ratio = np.ascontiguousarray(solved[:, :k])
        inverse = np.ascontiguousarray(solved[:, k:])
        moved = np.dot(ratio, known)
        own = np.dot(inverse, inverse.T) + np.dot(moved, ratio.T)
        for c in range(width):
            column = starts[first + c]
            out[column : column + width - c] = own[c, c:]
            out[column + width - c : column + width - c + k] = -moved[c]
        last = first - 1


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
