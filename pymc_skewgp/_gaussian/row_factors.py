r"""Intervals of one predictor, each with noise of its own, as one factor of that predictor.

Given eta the rows :math:`v_j = \eta + e_j` are independent: a thousand labels at one place are
:math:`\prod_j P(l_j < v_j < h_j \mid \eta)`, log Phi to a power. Its long tail on the side that no
limit restricts is one function of eta, which quadrature sees. Rows drawn one by one share that
tail, and may all miss it.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import log_ndtr

from pymc_skewgp._gaussian.blocks.block_sites import RowSites
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray

# A row has so many others within this many deviations of its noise: their predictors are as good
# as one, or are one.
_LEAST_ALIKE, ALIKE, EQUAL = 8.0, 0.2, 1e-3
# Skewness of one predictor given the rows that are of it, from which on its tail is long: draws of
# EP's Gaussian, which is narrower, lack .015 of it. Nodes in prior deviations; predictors at most.
_SKEWED, _NODES, _MOST = 0.9, np.linspace(-9.0, 9.0, 73), 4
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


def equal_predictors(factor: FloatArray, offset: FloatArray) -> tuple[IntArray, IntArray]:
    """Which of the different predictors factor c + offset each is, and where each is first.

    By random projections: what differs by round-off alone is equal.
    """
    probes = np.random.default_rng(0).standard_normal((factor.shape[1], 3))
    seen = np.column_stack([factor @ probes, offset])
    step = _SAME * max(float(np.abs(seen).max(initial=0.0)), 1e-300)
    whole = np.round(seen / step)
    _, first, unit = np.unique(whole, axis=0, return_index=True, return_inverse=True)
    return unit.ravel(), first


class OpenRows(NamedTuple):
    """What says whether rows leave a tail of their predictor open.

    Attributes
    ----------
    lower, upper : ndarray, shape (m,)
        Limits less the predictors' means.
    variance : ndarray, shape (m,)
        Of the predictors.
    """

    lower: FloatArray
    upper: FloatArray
    variance: FloatArray


def are_alike(
    counts: FloatArray,
    noise: FloatArray,
    squared: Callable[[slice], FloatArray],
    within: float = ALIKE,
    limits: OpenRows | None = None,
) -> bool:
    """Whether many rows are of nearly one predictor: decided by structure, never by draws.

    Parameters
    ----------
    counts, noise : ndarray, shape (m,)
        Rows that each stands for, and the variances of their noise.
    squared : callable
        Variances of the differences between some predictors and all, shape (rows, m).
    within : float
        Deviations of the noise up to which predictors are as good as one.
    limits : OpenRows, optional
        Predictors that are not equal count only where the tail that their rows leave is long.
    """
    if counts.max(initial=0.0) >= _LEAST_ALIKE or counts.sum() < _LEAST_ALIKE:
        return bool(counts.max(initial=0.0) >= _LEAST_ALIKE)
    size = max(1, _AT_ONCE // counts.size)
    fewest = _LEAST_ALIKE / counts.max()  # kinds of rows
    for start in range(0, counts.size, size):
        rows = slice(start, start + size)
        gaps = squared(rows)
        gaps /= np.minimum(noise[rows, None], noise)
        near = gaps <= within**2
        if np.count_nonzero(near, axis=1).max() < fewest:
            continue
        alike = near @ counts >= _LEAST_ALIKE
        if not alike.any():
            continue
        if limits is None or ((gaps[alike] <= EQUAL**2) @ counts >= _LEAST_ALIKE).any():
            return True
        centres = np.arange(counts.size)[rows][alike]
        if _tail_is_long(near[alike] @ _of_each_side(counts, limits), centres, noise, limits):
            return True
    return False


def _of_each_side(counts: FloatArray, limits: OpenRows) -> FloatArray:
    """Rows open above alone, open below alone, and all, shape (m, 3)."""
    above, below = np.isposinf(limits.upper), np.isneginf(limits.lower)
    return np.column_stack([counts * (above & ~below), counts * (below & ~above), counts])


def _tail_is_long(
    sides: FloatArray, centres: IntArray, noise: FloatArray, limits: OpenRows
) -> bool:
    """Of the predictor of any of the `centres`, given its rows, where these leave one side open.

    One row of 200 on the other side leaves no long tail. Limits are taken to be those of the
    centre, and the skewness to be that of the predictor's normal distribution times log Phi to a
    power, by quadrature.
    """
    above, below, number = sides.T
    variance, own = limits.variance[centres], noise[centres]
    open_ = np.flatnonzero((above == number) | (below == number))
    open_ = open_[np.argsort(-(number * variance / own)[open_], kind="stable")[:_MOST]]
    if not open_.size:
        return False
    i = centres[open_]
    limit = np.where(above[open_] == number[open_], limits.lower[i], -limits.upper[i])
    sd = np.sqrt(variance[open_])
    inside = (sd[:, None] * _NODES - limit[:, None]) / np.sqrt(own[open_])[:, None]
    logs = number[open_, None] * log_ndtr(inside) - 0.5 * _NODES**2
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    off = _NODES - (weights @ _NODES)[:, None]
    skewness = (weights * off**3).sum(axis=1) / (weights * off**2).sum(axis=1) ** 1.5
    return bool((skewness >= _SKEWED).any())


def squared_gaps(factor: FloatArray) -> Callable[[slice], FloatArray]:
    """Variances of differences between predictors factor c, c ~ N(0, I)."""
    squares = np.einsum("ij,ij->i", factor, factor)

    def gaps(rows: slice) -> FloatArray:
        found: FloatArray = factor[rows] @ (-2.0 * factor.T)
        found += squares
        found += squares[rows, None]
        return found

    return gaps


def squared_gaps_of(cov: FloatArray, noise: FloatArray) -> Callable[[slice], FloatArray]:
    """The same of predictors whose rows, noise of their own included, have this covariance."""
    variances = cov.diagonal() - noise

    def gaps(rows: slice) -> FloatArray:
        found: FloatArray = variances[rows, None] + variances - 2.0 * cov[rows]
        place = np.arange(variances.size)[rows]
        found[np.arange(place.size), place] = 0.0
        return found

    return gaps
