r"""Rows that repeat beside rows without noise: draws of few coordinates, weighed by all rows.

Rows u = F c + e, e ~ N(0, S), are independent given the r coordinates c ~ N(0, I), so the log
probability of their limits is a sum over rows. Under EP's sites c is N(m, P); with rows that have
no noise among them, N(m, P) is cut off there, by the twisted sampler. A draw has the weight

.. math:: w(c) = \frac{N(c; 0, I)}{N(c; m, P)} \prod_i P(l_i < u_i < h_i \mid c)^{n_i},

whose mean is the probability of all limits. The more rows each coordinate has, the nearer to
Gaussian is the target, and the nearer to each other are the weights.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.special import ndtri

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.operators.dense import DenseCovariance
from pymc_skewgp._gaussian.proposals.ep import EPResult, fit_ep
from pymc_skewgp._gaussian.proposals.twisted import TwistedProposal, twist
from pymc_skewgp._gaussian.proposals.unseen import HERMITE_NODES, missing_of_functions
from pymc_skewgp._gaussian.univariate import BoolArray, log_ndtr_interval
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray


@dataclass(frozen=True)
class RowKinds:
    """Rows u = F c + e between limits, so many of each kind.

    Attributes
    ----------
    factor : ndarray, shape (d, r)
        F of a row of each kind.
    noise : ndarray, shape (d,)
        Variance of e, independent from row to row; 0 allowed.
    lower, upper : ndarray, shape (d,)
        Limits, infinities allowed.
    count : ndarray, shape (d,)
        Rows of each kind; 1 where there is no noise.
    group : ndarray of int, shape (d,)
        Which predictor each kind is of.
    """

    factor: FloatArray
    noise: FloatArray
    lower: FloatArray
    upper: FloatArray
    count: FloatArray
    group: IntArray


class CoordinateProposal:
    """Proposal for the coordinates, from EP's sites.

    Parameters
    ----------
    kinds : RowKinds
    ep : EPResult
        Sites of a row of each kind.
    relax : float in (0, 1]
        Power to which the sites are raised: below 1 the proposal is wider.
    ep_tolerance : float
        For what is cut off by rows without noise.
    """

    first = None  # no leading direction
    direction = None

    def __init__(self, kinds: RowKinds, ep: EPResult, relax: float, ep_tolerance: float) -> None:
        noisy = kinds.noise > 0
        self._factor, self._sd = kinds.factor[noisy], np.sqrt(kinds.noise[noisy])
        self._lower, self._upper = kinds.lower[noisy], kinds.upper[noisy]
        self._count, self._group = kinds.count[noisy], kinds.group[noisy]
        shrink = relax / (1.0 + ep.tau * kinds.noise)[noisy]
        self._tau, self._nu = ep.tau[noisy] * shrink, ep.nu[noisy] * shrink
        precision = self._factor.T @ ((self._count * self._tau)[:, None] * self._factor)
        precision[np.diag_indices_from(precision)] += 1.0
        self._chol = cholesky(precision, lower=True)
        pull = self._factor.T @ (self._count * self._nu)
        self._mean = cho_solve((self._chol, True), pull)
        # Columns that whiten c: c = m + spread z has the covariance P.
        self._spread = solve_triangular(self._chol, np.eye(pull.size), lower=True).T
        self._cut = _Cut.of(kinds, ~noisy, self._mean, self._spread, ep_tolerance)
        # What is drawn, as a Gaussian: with sites for the cuts.
        self._chol_drawn, self._mean_drawn = self._chol, self._mean
        if self._cut is not None:
            self._spread = self._cut.spread
            hard = kinds.factor[~noisy]
            precision += hard.T @ (ep.tau[~noisy, None] * hard)
            self._chol_drawn = cholesky(precision, lower=True)
            pull += hard.T @ ep.nu[~noisy]
            self._mean_drawn = cho_solve((self._chol_drawn, True), pull)

    @property
    def n_dims(self) -> int:
        """Uniforms needed for one draw."""
        return self._spread.shape[1] + (0 if self._cut is None else self._cut.twisted.n_dims)

    def draw(
        self, points: FloatArray, *, overwrite_points: bool = False
    ) -> tuple[FloatArray, FloatArray]:
        """Map uniform points, a draw a column, to coordinates and log weights."""
        own = points[points.shape[0] - self._spread.shape[1] :]
        c = self._spread @ np.asarray(ndtri(own))
        log_weights = np.zeros(points.shape[1])
        if self._cut is not None:
            rows, log_weights = self._cut.twisted.draw(points[: self._cut.twisted.n_dims].copy())
            c += self._cut.gain @ rows
        c += self._mean[:, None]
        return c, log_weights + self._log_ratio(c)

    def _log_ratio(self, c: FloatArray) -> FloatArray:
        """Log weights, but for rows without noise."""
        white = self._chol.T @ (c - self._mean[:, None])
        ratio = 0.5 * (np.einsum("ij,ij->j", white, white) - np.einsum("ij,ij->j", c, c))
        ratio -= float(np.log(self._chol.diagonal()).sum())
        found: FloatArray = ratio + self._count @ self.log_masses(self._factor @ c)
        return found

    def unseen_share(self, n_draws: int) -> float:
        """Relative error of the probability from tails that `n_draws` draws hardly meet.

        As for `unseen.unseen_share`, of each group of rows alone, whose weight is a known function
        of its own Gaussian.
        """
        centre = self._factor @ self._mean_drawn
        half = solve_triangular(self._chol_drawn, self._factor.T, lower=True)
        sd = np.sqrt(np.einsum("ij,ij->j", half, half))
        names, index = np.unique(self._group, return_inverse=True)
        value = centre[:, None] + sd[:, None] * HERMITE_NODES
        log_ratio = self._count[:, None] * (
            self.log_masses(value) + 0.5 * self._tau[:, None] * value**2 - self._nu[:, None] * value
        )
        by_group = np.zeros((names.size, HERMITE_NODES.size))
        np.add.at(by_group, index, log_ratio)
        missing = missing_of_functions(by_group, n_draws)
        cut = 0.0 if self._cut is None else self._cut.twisted.unseen_share(n_draws)
        return float(np.sqrt(missing @ missing + cut**2))

    def log_masses(self, value: FloatArray) -> FloatArray:
        """Log probability of the limits of a row of each kind, given its value without noise."""
        sd, low, high = self._sd[:, None], self._lower[:, None], self._upper[:, None]
        result = np.empty(value.shape)
        below, above = np.isneginf(self._lower), np.isposinf(self._upper)
        for rows in (below, above & ~below, ~below & ~above):
            if rows.any():
                scale = sd[rows]
                start, stop = (low[rows] - value[rows]) / scale, (high[rows] - value[rows]) / scale
                result[rows] = log_ndtr_interval(start, stop, (high[rows] - low[rows]) / scale)
        return result


@dataclass(frozen=True)
class _Cut:
    """What rows without noise make of N(m, P): drawn first, the rest given them.

    Attributes
    ----------
    twisted : TwistedProposal
        Of these rows less their mean.
    rows : ndarray, shape (s, r)
        Of the coordinates.
    gain, spread : ndarray, shapes (r, s) and (r, r')
        c - m = gain rows + spread z.
    """

    twisted: TwistedProposal
    rows: FloatArray
    gain: FloatArray
    spread: FloatArray

    @classmethod
    def of(
        cls,
        kinds: RowKinds,
        exact: BoolArray,
        mean: FloatArray,
        spread: FloatArray,
        ep_tolerance: float,
    ) -> "_Cut | None":
        """None without such rows."""
        if not exact.any():
            return None
        rows = kinds.factor[exact]
        own = rows @ spread
        cov = DenseCovariance(own @ own.T, "the covariance at pseudo_points")
        low, high = (x[exact] - rows @ mean for x in (kinds.lower, kinds.upper))
        twisted = twist(cov, fit_ep(cov, low, high, tol=ep_tolerance), low, high)
        gain = spread @ cho_solve((cov.chol, True), own).T
        left = spread - gain @ own
        return cls(twisted, rows, gain, linalg.low_rank_factor(linalg.symmetric(left @ left.T)))
