"""Intervals of one predictor, each with noise of its own, as one factor of that predictor.

Given eta the rows v_j = eta + e_j are independent, so that a thousand labels at one place are the
factor :math:`\\prod_j P(l_j < v_j < h_j \\mid \\eta)`, log Phi to a power. Its long tail on the side
that no limit restricts is one function of eta, which quadrature sees. Rows drawn one by one share
that tail, and may all miss it.
"""

import numpy as np
from scipy import sparse

from pymc_skewgp._gaussian.blocks.block_sites import RowSites
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.observations import Observations, as_matrix
from pymc_skewgp._observations.sites import Sites
from pymc_skewgp._validation import FloatArray

# A row has so many others within this many deviations of its noise: their predictors are as good
# as one.
_LEAST_ALIKE, _ALIKE = 8.0, 0.2
_SAME = 1e-9  # of the largest deviation: predictors that differ by round-off alone
_AT_ONCE = 2**22  # pairs of rows


class RowFactors:
    """Rows of some predictors as one factor of each: log probabilities are added up.

    Parameters
    ----------
    unit : ndarray of int, shape (d,)
        Which predictor each kind of rows is of, ascending.
    rows : RowSites
        One of each kind, of `scale` times the predictor.
    counts, scale : ndarray, shape (d,)
        How many rows there are of the kind.
    size : int
        Number of predictors.
    """

    def __init__(
        self, unit: IntArray, rows: RowSites, counts: FloatArray, scale: FloatArray, size: int
    ) -> None:
        self._unit, self._rows, self._counts, self._scale = unit, rows, counts, scale
        shape = (size, unit.size)
        self._sums = sparse.csr_array((counts, (unit, np.arange(unit.size))), shape=shape)

    def part(self, units: slice) -> "RowFactors":
        """Those of some predictors in a row."""
        first, last, _ = units.indices(self._sums.shape[0])
        own = np.arange(*np.searchsorted(self._unit, [first, last]))
        columns = (self._counts[own], self._scale[own])
        return RowFactors(self._unit[own] - first, self._rows.some(own), *columns, last - first)

    def log_prob(self, eta: FloatArray) -> FloatArray:
        """Log of the factors, predictors of shape (..., size)."""
        return self._added(self._rows.log_prob(slice(None), self._spread(eta)), eta)

    def slopes(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """First and second derivative of it."""
        first, second = self._rows.slopes(slice(None), self._spread(eta))
        return self._added(self._scale * first, eta), self._added(self._scale**2 * second, eta)

    def _added(self, values: FloatArray, eta: FloatArray) -> FloatArray:
        return np.asarray((self._sums @ values.T).T).reshape(eta.shape)

    def _spread(self, eta: FloatArray) -> FloatArray:
        """What each kind is of, one set of predictors a row."""
        wide = self._scale * eta[..., self._unit]
        return np.ascontiguousarray(wide.reshape(-1, self._unit.size))


def interval_factors(
    rows: Observations, counts: FloatArray, factor: FloatArray, centre: FloatArray
) -> Sites | None:
    """Intervals as factors of their predictors, where many are of nearly the same one.

    Parameters
    ----------
    rows : Observations
        Intervals of a vector, with positive noise of their own.
    counts : ndarray, shape (m,)
        Rows that each stands for.
    factor, centre : ndarray, shape (m, r) and (m,)
        Predictors A z + a = centre + factor c of a Gaussian vector z, c ~ N(0, I).

    Returns
    -------
    Sites or None
        None where rows are about predictors that differ.
    """
    unit, first = _units(factor, centre)
    total = np.bincount(unit, counts)
    noise = np.full(first.size, np.inf)
    np.minimum.at(noise, unit, rows.S)
    if _most_alike(factor[first], total, noise) < _LEAST_ALIKE:
        return None
    table = np.column_stack([unit, rows.lower, rows.upper, rows.S])
    kinds, index = np.unique(table, axis=0, return_inverse=True)
    low, high, variance = kinds[:, 1:].T
    of_kinds = RowFactors(
        kinds[:, 0].astype(np.intp),
        RowSites(low, high, np.full(low.size, np.nan), np.ascontiguousarray(variance)),
        np.bincount(index.ravel(), counts),
        np.ones(low.size),
        first.size,
    )
    design = sparse.csr_array(as_matrix(rows.A, rows.n_rows))[first]
    return Sites(design, rows.a[first], of_kinds.log_prob, of_kinds.slopes)


def _units(factor: FloatArray, centre: FloatArray) -> tuple[IntArray, IntArray]:
    """Which predictor each row is of, and the first row of each, by random projections."""
    probe = np.random.default_rng(0).standard_normal((factor.shape[1], 3))
    seen = np.column_stack([factor @ probe, centre])
    step = _SAME * max(float(np.abs(seen).max(initial=0.0)), 1e-300)
    _, first, unit = np.unique(
        np.round(seen / step), axis=0, return_index=True, return_inverse=True
    )
    return unit.ravel(), first


def _most_alike(factor: FloatArray, counts: FloatArray, noise: FloatArray) -> float:
    """Rows that are nearly of one predictor, at most."""
    most, n = float(counts.max(initial=0.0)), counts.size
    if most >= _LEAST_ALIKE or counts.sum() < _LEAST_ALIKE:
        return most
    squares = np.einsum("ij,ij->i", factor, factor)
    size = max(1, _AT_ONCE // n)
    for start in range(0, n, size):
        own = slice(start, start + size)
        gap = squares[own, None] + squares - 2.0 * (factor[own] @ factor.T)
        near = gap <= _ALIKE**2 * np.minimum(noise[own, None], noise)
        most = max(most, float((near @ counts).max()))
    return most
