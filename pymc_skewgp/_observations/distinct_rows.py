"""Rows of a table that are equal, found by a hash.

Tables of half a million rows often have many equal ones. These have equal features and equal sites,
so that products over rows need only one of each.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray

MOST_DISTINCT = 0.5  # share of the rows, above which merging saves too little
_SEED = 6174  # of odd factors
_SHIFT = np.uint64(29)


class DistinctRows(NamedTuple):
    """Of n rows, one of each kind.

    Attributes
    ----------
    first : ndarray of int, shape (d,)
        The first row of each kind.
    kind : ndarray of int, shape (n,)
        Kind of each row.
    """

    first: IntArray
    kind: IntArray

    @property
    def counts(self) -> FloatArray:
        """How many rows there are of each kind, shape (d,)."""
        return np.bincount(self.kind, minlength=self.first.size).astype(np.float64)


def distinct_rows(columns: Sequence[FloatArray]) -> DistinctRows | None:
    """Kinds of rows that are equal in all columns, of shape (n,) or (n, k); NaN equals NaN.

    None where more than half of the rows are kinds of their own.
    """
    if not len(columns[0]):
        return None
    key = np.zeros(len(columns[0]), dtype=np.uint64)
    for i, column in enumerate(columns):
        key = _mixed(key, column.reshape(len(key), -1), i)
    _, first, kind = np.unique(key, return_index=True, return_inverse=True)
    if first.size > MOST_DISTINCT * key.size:
        return None
    # Different rows with one key are next to impossible, but not impossible.
    if not all(np.array_equal(x, x[first[kind]], equal_nan=True) for x in columns):
        return None
    return DistinctRows(first, kind)


def one_of_each(X: FloatArray) -> IntArray:
    """The first of the rows of each kind; of next to no two rows that differ, one is left out."""
    key = _mixed(np.zeros(len(X), dtype=np.uint64), X, 0)
    return np.unique(key, return_index=True)[1]


def _mixed(key: NDArray[np.uint64], column: FloatArray, i: int) -> NDArray[np.uint64]:
    """A key that depends on these columns too."""
    factors = np.random.default_rng((_SEED, i)).integers(2**63, size=(column.shape[1], 2))
    for values, (odd, other) in zip(column.T, factors.astype(np.uint64), strict=True):
        bits = (np.ascontiguousarray(values, dtype=np.float64) + 0.0).view(np.uint64)
        key = (key ^ bits) * (odd | np.uint64(1)) + other
        key ^= key >> _SHIFT
    return key
