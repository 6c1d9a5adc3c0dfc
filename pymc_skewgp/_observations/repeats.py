"""Rows that repeat: equal intervals counted once, or made as often as they count."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import sparse

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.observations import Observations, as_matrix
from pymc_skewgp._validation import FloatArray


def each_row(observations: Observations, counts: FloatArray) -> Observations:
    """Intervals that stand for so many each, with noise of their own, as so many rows."""
    index = np.repeat(np.arange(counts.size), counts.astype(np.intp))
    columns = (x[index] for x in (observations.a, observations.S))
    limits = (x[index] for x in (observations.lower, observations.upper, observations.value))
    A = as_matrix(observations.A, observations.n_rows)[index]
    return Observations(A, *columns, *limits, log_constant=observations.log_constant)


class EqualRows(NamedTuple):
    """Of rows that may repeat, one of each kind.

    Attributes
    ----------
    first : ndarray of int, shape (d,)
        The first row of each kind, in their order.
    counts : ndarray, shape (d,)
        How many rows there are of it; points are kinds of their own.
    """

    first: IntArray
    counts: FloatArray


def equal_rows(
    observations: Observations, columns: Sequence[FloatArray] = (), *, merge: bool = True
) -> EqualRows:
    """Which intervals are equal, but for noise of their own.

    `columns` are arrays, a row for each, in which they must be equal as well. All rows are kinds of
    their own where they share noise, or where not to `merge`.
    """
    m = observations.n_rows
    alone = EqualRows(np.arange(m), np.ones(m))
    if observations.S.ndim == 2 or not merge or not m:
        return alone
    design = sparse.csr_array(as_matrix(observations.A, m))
    design.sort_indices()
    entries = np.diff(design.indptr)
    if (entries != entries[0]).any():
        return alone
    rows = (design.indices, design.data, observations.a, observations.S)
    limits = [observations.lower, observations.upper]
    # Points keep their place, and so differ from all other rows.
    place = np.where(observations.is_point, np.arange(m), -1)
    limits = [np.where(observations.is_point, 0.0, x) for x in limits]
    every = np.column_stack([x.reshape(m, -1) for x in (*rows, *limits, place, *columns)])
    _, first, counts = np.unique(every, axis=0, return_index=True, return_counts=True)
    order = np.argsort(first)
    return EqualRows(first[order], counts[order].astype(np.float64))
