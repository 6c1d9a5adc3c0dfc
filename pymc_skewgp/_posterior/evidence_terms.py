r"""What a log evidence is a function of: Gaussian rows that are points or intervals.

Points are conditioned on first, which is Gaussian regression; of the intervals a rectangle is left.
With P and I for the two kinds of rows, and r the values less their means,

.. math:: \log p(y) = \log N(r; 0, G_{PP}) + \log P(l - G_{IP} w < u < h - G_{IP} w), \qquad
    w = G_{PP}^{-1} r, \quad u \sim N(0, G_{II} - G_{IP} G_{PP}^{-1} G_{PI})
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_solve

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._validation import FloatArray

_LOG_2PI = float(np.log(2.0 * np.pi))


class EvidenceTerms(NamedTuple):
    """Rows of a Gaussian vector and what is known of them, for arrays and for graphs alike.

    Attributes
    ----------
    lower, upper : (s + n,)
        Limits of the rows, less their means; what they are at points has no meaning. A label 1 is
        the interval (0, inf) of the noisy predictor, a label 0 is (-inf, 0). Where there are sites,
        the last rows are their predictors, of which both are 0 less the mean.
    value : (s + n,)
        At points, less their means; NaN at intervals.
    cov : (s + n, s + n)
        G: s rows for the pseudo-points, which are intervals, then n observations, their noise in
        it.
    noise : (s + n,)
        Variances of noise that each row has for itself, as far as that is known; 0 for none. It
        says which form of G is cheaper, nothing more.
    prior_lower, prior_upper : (s,)
        Limits of the pseudo-points' rows alone; the upper ones are infinite.
    prior_cov : (s, s)
        Their covariance.
    log_constant : ()
        What the log evidence has beyond that of the rows.
    counts : (s + n,) or ()
        Rows that each interval stands for, each with noise of its own, which must be known.
    """

    lower: Any
    upper: Any
    value: Any
    cov: Any
    noise: Any
    prior_lower: Any
    prior_upper: Any
    prior_cov: Any
    log_constant: Any = np.float64(0.0)
    counts: Any = np.float64(1.0)

    @property
    def n_rows(self) -> int:
        """Rows, each as often as it was observed."""
        return int(np.broadcast_to(self.counts, self.value.shape).sum())

    @property
    def n_factorised(self) -> int:
        """Rows of the matrix that is factorised."""
        return int(self.value.size)


class RowGradient(NamedTuple):
    """Derivatives of a log probability in rows: limits, values, and covariance (symmetric)."""

    lower: FloatArray
    upper: FloatArray
    value: FloatArray
    cov: FloatArray


class Intervals:
    """The rows that are intervals, given those that are points; those that stand for none left out.

    Parameters
    ----------
    terms : EvidenceTerms
        Arrays.

    Attributes
    ----------
    lower, upper, noise, counts : ndarray, shape (m,)
    cov : ndarray, shape (m, m)
        Limits and covariance of a rectangle.
    log_density : float
        Of the points, 0 without any.

    Raises
    ------
    NotPositiveDefiniteError
        Where the points have no covariance.
    """

    def __init__(self, terms: EvidenceTerms) -> None:
        counts = np.broadcast_to(terms.counts, terms.value.shape)
        point = ~np.isnan(terms.value)
        self._n_rows = point.size
        self._points = p = np.flatnonzero(point)
        self._kept = i = np.flatnonzero(~point & (counts > 0))
        self.log_density = 0.0
        self.lower, self.upper, self.cov = terms.lower, terms.upper, terms.cov
        self.noise, self.counts = terms.noise, counts
        if i.size == point.size:
            return
        self.noise, self.counts = terms.noise[i], counts[i]
        self.lower, self.upper = terms.lower[i], terms.upper[i]
        self.cov = terms.cov[np.ix_(i, i)]
        if not p.size:
            return
        residual = terms.value[p]
        chol, _ = linalg.cholesky(
            "the covariance of the values", linalg.symmetric(terms.cov[np.ix_(p, p)])
        )
        cross = terms.cov[np.ix_(p, i)]
        self._chol = chol
        self._weights = cho_solve((chol, True), residual)
        self._solved = cho_solve((chol, True), cross)
        shift = cross.T @ self._weights
        self.lower, self.upper = self.lower - shift, self.upper - shift
        self.cov = self.cov - cross.T @ self._solved
        self.log_density = float(
            -0.5 * residual @ self._weights
            - np.log(chol.diagonal()).sum()
            - 0.5 * residual.size * _LOG_2PI
        )

    def at_intervals(self, x: FloatArray | float) -> FloatArray:
        """A vector for all rows with `x` at these, 0 elsewhere."""
        full = np.zeros(self._n_rows)
        full[self._kept] = x
        return full

    def pull_back(self, lower: FloatArray, upper: FloatArray, cov: FloatArray) -> RowGradient:
        r"""Gradient in all rows of `log_density` plus what has these derivatives in the rectangle.

        With :math:`g` the derivative in the conditional means and :math:`B = G_{PP}^{-1} G_{PI}`:

        .. math:: \partial r = B g - w, \quad \partial G_{IP} = g w^\top - 2 \Gamma B^\top,
            \quad \partial G_{PP} = \tfrac12 (w w^\top - G_{PP}^{-1}) - B g w^\top
            + B \Gamma B^\top

        with :math:`\Gamma` the derivative in the rectangle's covariance.
        """
        n, p, i = self._n_rows, self._points, self._kept
        if i.size == n:
            return RowGradient(lower, upper, np.zeros_like(lower), cov)
        full = RowGradient(
            self.at_intervals(lower), self.at_intervals(upper), np.zeros(n), np.zeros((n, n))
        )
        full.cov[np.ix_(i, i)] = cov
        if not p.size:
            return full
        weights, solved = self._weights, self._solved
        by_mean = -(lower + upper)
        moved = solved @ by_mean
        full.value[p] = moved - weights
        carried = solved @ cov
        across = 0.5 * np.outer(weights, by_mean) - carried
        own = 0.5 * np.outer(weights, weights - 2.0 * moved) + carried @ solved.T
        own -= 0.5 * cho_solve((self._chol, True), np.eye(p.size))
        full.cov[np.ix_(p, p)] = linalg.symmetric(own)
        full.cov[np.ix_(p, i)], full.cov[np.ix_(i, p)] = across, across.T
        return full
