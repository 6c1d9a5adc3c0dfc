"""Intervals that repeat as factors of their predictors: see `row_factors`."""

import numpy as np

from pymc_skewgp._gaussian.blocks.block_sites import RowSites
from pymc_skewgp._gaussian.row_factors import RowFactors
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.observations import Observations, as_matrix
from pymc_skewgp._observations.sites import Sites
from pymc_skewgp._validation import FloatArray


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
