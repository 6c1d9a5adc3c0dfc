"""A covariance's Cholesky factor with pivots: its columns in the order of what they explain."""

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray

_NEGLIGIBLE = 1e-13  # of the largest variance


class PivotedFactor(NamedTuple):
    """F with F F' the covariance, r columns of decreasing size.

    Attributes
    ----------
    columns : ndarray, shape (n, r)
        F.
    pivots : ndarray of int, shape (r,)
        Rows of F that are a lower triangle, in this order.
    """

    columns: FloatArray
    pivots: IntArray

    @property
    def left(self) -> FloatArray:
        """The largest variance that the columns before each leave unexplained, shape (r,)."""
        found: FloatArray = self.columns[self.pivots, np.arange(self.pivots.size)] ** 2
        return found

    def coordinates(self, values: FloatArray) -> FloatArray:
        """The c with F c = `values`, shape (n,), in as many entries as F has rank."""
        triangle = self.columns[self.pivots]
        return solve_triangular(triangle, values[self.pivots], lower=True, check_finite=False)


def pivoted_factor(matrix: FloatArray) -> PivotedFactor:
    """Of a positive semidefinite matrix, at its numerical rank."""
    matrix = linalg.symmetric(matrix)
    tol = _NEGLIGIBLE * float(matrix.diagonal().max(initial=0.0))
    # The transpose is the same matrix, in the order of LAPACK.
    factor, pivots, rank, _ = dpstrf(matrix.T, tol=tol, lower=1, overwrite_a=1)
    rows = pivots.astype(np.int64) - 1
    columns = np.empty((matrix.shape[0], rank))
    columns[rows] = np.tril(factor[:, :rank])
    return PivotedFactor(columns, rows[:rank])
