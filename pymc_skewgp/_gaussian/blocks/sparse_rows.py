"""Rows of few non-zero loadings each, as of effects: what a block does in n r^2 takes n k^2."""

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from pymc_skewgp._gaussian.blocks.block_sites import BlockSites
from pymc_skewgp._gaussian.blocks.row_block import RowBlock
from pymc_skewgp._gaussian.blocks.site_steps import SiteSums
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray

# Share of the largest terms of a sum below which too few of its digits are left.
_CANCELLED = 1e-8
# Operations of dense rows in the time of one of sparse rows, and those not worth the trouble.
_SLOWER, _FEW = 10, 10**5


class Pattern(NamedTuple):
    """Where entries are that are not zero, and where products of two of a row are.

    Attributes
    ----------
    rows, columns : ndarray of int, shape (m,)
    starts : ndarray of int, shape (n + 1,)
        Of each row's.
    shape : tuple of int
    place : ndarray of int, shape (m,)
        In the row.
    products : ndarray of int, shape (n, k (k + 1) / 2)
        Places in the lower triangle, raveled; of entries that a row lacks the first.
    """

    rows: IntArray
    columns: IntArray
    starts: IntArray
    shape: tuple[int, ...]
    place: IntArray
    products: IntArray

    @classmethod
    def of(cls, factor: FloatArray, k: int) -> "Pattern":
        """Of rows of at most k entries."""
        n, r = factor.shape
        rows, columns = np.nonzero(factor)
        starts = np.searchsorted(rows, np.arange(n + 1))
        place = np.arange(rows.size) - starts[rows]
        index = np.zeros((n, k), dtype=np.intp)
        index[rows, place] = columns
        i, j = np.tril_indices(k)
        first, second = index[:, i], index[:, j]
        products = np.maximum(first, second) * r + np.minimum(first, second)
        return cls(rows, columns, starts, factor.shape, place, products)

    def is_of(self, factor: FloatArray) -> bool:
        """Whether these are the entries that are not zero."""
        if factor.shape != self.shape:
            return False
        own = factor[self.rows, self.columns]
        return np.count_nonzero(factor) == own.size and bool(own.all())


def row_block(
    factor: FloatArray, sites: BlockSites, pattern: Pattern | None = None
) -> "RowBlock | SparseBlock":
    """A block, of sparse rows where that takes less time; maybe of a pattern known before."""
    n, r = factor.shape
    if n * r * r < _FEW:
        return RowBlock(factor, sites)
    if pattern is None or not pattern.is_of(factor):
        k = int(np.count_nonzero(factor, axis=1).max())
        if _SLOWER * k * (k + 1) > r * r:
            return RowBlock(factor, sites)
        pattern = Pattern.of(factor, k)
    return SparseBlock(factor, pattern, sites)


class SparseBlock(RowBlock):
    """Rows of few entries that are not zero.

    Parameters
    ----------
    factor : ndarray, shape (n, r)
    pattern : Pattern
        Of these.
    sites : BlockSites
    """

    factor: Any

    def __init__(self, factor: FloatArray, pattern: Pattern, sites: BlockSites) -> None:
        super().__init__(factor, sites)
        self.pattern = pattern
        n, r = factor.shape
        known = factor[pattern.rows, pattern.columns]
        self.factor = sparse.csr_array((known, pattern.columns, pattern.starts), shape=(n, r))
        n_products = pattern.products.shape[1]
        i, j = np.tril_indices(int(np.sqrt(2 * n_products)))
        value = np.zeros((n, i[-1] + 1))
        value[pattern.rows, pattern.place] = known
        self._products = sparse.csr_array(
            (
                (value[:, i] * value[:, j]).ravel(),
                pattern.products.ravel(),
                np.arange(n + 1) * n_products,
            ),
            shape=(n, r * r),
        )

    def _sums_of(self, tau: FloatArray, nu: FloatArray) -> SiteSums:
        r = self.rank
        lower = (self._products.T @ (self._counts * tau)).reshape(r, r)
        return SiteSums(lower + np.tril(lower, -1).T, self.factor.T @ (self._counts * nu))

    def _variances(self, spread: FloatArray) -> FloatArray:
        return self._of_covariance(spread, spread @ spread.T)

    def _covariances(self, spread: FloatArray) -> tuple[FloatArray, FloatArray]:
        cov = spread @ spread.T
        return self.factor @ cov, self._of_covariance(spread, cov)

    def _of_covariance(self, spread: FloatArray, cov: FloatArray) -> FloatArray:
        """Sums of products, or of squares where nothing would be left of those."""
        twice = 2.0 * cov
        twice[np.diag_indices_from(twice)] *= 0.5
        variance: FloatArray = self._products @ twice.ravel()
        largest = abs(self.factor) @ np.sqrt(cov.diagonal())
        if (variance < _CANCELLED * largest**2).any():
            white = self.factor @ spread
            variance = np.einsum("ij,ij->i", white, white)
        return np.maximum(variance, 1e-300)

    def _factor_of(self, rows: IntArray) -> FloatArray:
        found: FloatArray = self.factor[rows].toarray()
        return found
