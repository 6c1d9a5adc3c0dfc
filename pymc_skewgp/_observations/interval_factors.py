"""Intervals that repeat as factors of their predictors: see `row_factors`."""

import numpy as np

from pymc_skewgp._gaussian.blocks.block_sites import RowSites
from pymc_skewgp._gaussian.row_factors import (
    RowFactors,
    are_alike,
    equal_predictors,
    squared_gaps,
)
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.observations import Observations, as_matrix
from pymc_skewgp._observations.sites import Sites
from pymc_skewgp._validation import FloatArray


def interval_factors(
    rows: Observations, counts: FloatArray, factor: FloatArray, centre: FloatArray
) -> Sites | None:
    """Intervals as factors of their predictors, where many are of nearly the same one.

    Parameters
    ----------
    rows : Observations
        Intervals of a vector z, with positive noise of their own.
    counts : ndarray, shape (m,)
        Rows that each stands for.
    factor, centre : ndarray, shape (m, r) and (m,)
        Predictors A z + a = centre + factor c, c ~ N(0, I).

    Returns
    -------
    Sites or None
        None where rows are about predictors that differ.
    """
    if not are_alike(counts, rows.S, squared_gaps(factor)):
        return None
    return factors_of(rows, counts, *equal_predictors(np.column_stack([factor, centre])))


def factors_of(rows: Observations, counts: FloatArray, unit: IntArray, first: IntArray) -> Sites:
    """Intervals of equal predictors as one factor of each, that of the `first` row of the unit."""
    table = np.column_stack([unit, rows.lower, rows.upper, rows.S])
    kinds, index = np.unique(table, axis=0, return_inverse=True)
    low, high, variance = np.ascontiguousarray(kinds[:, 1:].T)
    known = RowSites(low, high, np.full(low.size, np.nan), variance)
    number = np.bincount(index.ravel(), counts)
    of_kind = kinds[:, 0].astype(np.intp)
    found = RowFactors(of_kind, known, number, np.ones(low.size), first.size)
    A = as_matrix(rows.A, rows.n_rows)[first]
    return Sites(A, rows.a[first], found.log_prob, found.slopes)
