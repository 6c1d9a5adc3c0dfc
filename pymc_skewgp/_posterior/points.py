r"""A Gaussian vector given points: exact Gaussian-process regression, before any interval.

With rows :math:`v_P = A_P z + a_P + e_P = y`, :math:`G = A_P K A_P^\top + S_P` and
:math:`r = y - A_P m - a_P`,

.. math:: z \mid y \sim N(m + C G^{-1} r,\; K - C G^{-1} C^\top), \qquad C = K A_P^\top,
    \qquad \log p(y) = \log N(r; 0, G)

(Rasmussen & Williams 2006, chapter 2). Two forms of :math:`G^{-1}`: a Cholesky factorisation of G,
and, where K has few columns and every row its own noise, one in the r coordinates of K's factor.
"""

from typing import NamedTuple, Protocol

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.operators.factored import FactoredCovariance
from pymc_skewgp._observations.noise import Noise, add_noise, shared_noise
from pymc_skewgp._observations.observations import Observations, as_matrix
from pymc_skewgp._validation import FloatArray

_LOG_2PI = float(np.log(2.0 * np.pi))
# Below this share of columns the coordinates of the factor need fewer operations. But they lose
# digits like the variance over the noise, so noise below this share of the variance goes without.
LOW_RANK_SHARE = 0.5
_LEAST_NOISE = 1e-6


class PointPrecision(Protocol):
    """G^-1 of the points, in whatever form."""

    def solve(self, x: FloatArray) -> FloatArray:
        """G^-1 x."""
        ...


class PointRegression(NamedTuple):
    """What regression on points needs elsewhere.

    Attributes
    ----------
    rows : Observations
        The points.
    precision : PointPrecision
        G^-1.
    weights : ndarray, shape (n_points,)
        G^-1 r.
    """

    rows: Observations
    precision: PointPrecision
    weights: FloatArray


class GivenPoints(NamedTuple):
    """A Gaussian vector z given its points, and what is left to condition on.

    Attributes
    ----------
    mean : ndarray, shape (q,)
    cov : FactoredCovariance
        Of z given the points.
    intervals : Observations
        The other rows, their noise independent of that of the points.
    log_density : float
        log p(y) of the points; 0 without any.
    points : PointRegression or None
        None without points.
    """

    mean: FloatArray
    cov: FactoredCovariance
    intervals: Observations
    log_density: float
    points: PointRegression | None = None


def given_points(
    mean: FloatArray, cov: FactoredCovariance, observations: Observations
) -> GivenPoints:
    """Condition z ~ N(mean, cov) on the rows that are points."""
    chosen = observations.is_point
    if not chosen.any():
        return GivenPoints(mean, cov, observations, 0.0)
    points = observations if chosen.all() else observations.rows(chosen)
    intervals = with_own_noise(observations, points)
    residual = points.value - points.of(mean) - points.a
    row_factor = points.of(cov.factor)
    few = row_factor.shape[1] < LOW_RANK_SHARE * points.n_rows
    least = _LEAST_NOISE * float(cov.diagonal().max())
    if few and points.S.ndim == 1 and (least < points.S).all():
        low_rank = _InCoordinates(row_factor, points.S)
        coordinates = low_rank.mean(residual)
        return GivenPoints(
            mean + cov.factor @ coordinates,
            FactoredCovariance(low_rank.spread(cov.factor), units=cov.units),
            intervals,
            low_rank.log_density(residual),
            PointRegression(points, low_rank, low_rank.solve(residual)),
        )
    gram = _Gram(row_matrix(cov, points, row_factor), points.S)
    half = gram.half(points.of(cov.dense()))
    matrix = linalg.symmetric(cov.dense() - half.T @ half)
    return GivenPoints(
        mean + half.T @ gram.half(residual),
        cov.conditioned(matrix),
        intervals,
        gram.log_density(residual),
        PointRegression(points, gram, gram.solve(residual)),
    )


def row_matrix(cov: FactoredCovariance, rows: Observations, row_factor: FloatArray) -> FloatArray:
    """A K A', from the kernel's own matrix where the rows only choose and scale its values."""
    if rows.A is None or (isinstance(rows.A, np.ndarray) and rows.A.ndim == 1):
        return cov.leading(rows.n_rows, rows.A)
    if isinstance(rows.A, np.ndarray):
        return row_factor @ row_factor.T
    return rows.of(np.ascontiguousarray(rows.of(cov.dense()).T))


def with_own_noise(observations: Observations, points: Observations) -> Observations:
    r"""The intervals, with noise that is independent of the points'.

    With :math:`R = S_{IP} S_{PP}^{-1}`, :math:`e_I = R e_P + e'` and :math:`e_P = y - A_P f - a_P`:
    rows :math:`(A_I - R A_P) f + a_I + R (y - a_P) + e'`.
    """
    others = ~observations.is_point
    intervals = observations.rows(others)
    shared = shared_noise(observations.S, others, observations.is_point)
    if shared is None:
        return intervals
    chol, _ = linalg.cholesky("the covariance of the noise at points", _as_dense(points.S))
    gain = cho_solve((chol, True), shared.T).T
    A = as_matrix(intervals.A, intervals.n_rows) - gain @ as_matrix(points.A, points.n_rows)
    return Observations(
        np.asarray(A),
        intervals.a + gain @ (points.value - points.a),
        linalg.symmetric(_as_dense(intervals.S) - gain @ shared.T),
        intervals.lower,
        intervals.upper,
        intervals.value,
    )


def _as_dense(noise: Noise) -> FloatArray:
    matrix = np.zeros((noise.shape[0],) * 2)
    add_noise(matrix, noise)
    return matrix


class _Gram:
    """G factorised: n^3 / 3 operations for n points."""

    def __init__(self, matrix: FloatArray, noise: Noise) -> None:
        add_noise(matrix, noise)
        self._chol, _ = linalg.cholesky("the covariance of the observed values", matrix)

    def half(self, x: FloatArray) -> FloatArray:
        """L^-1 x, with G = L L'."""
        return solve_triangular(self._chol, x, lower=True, check_finite=False)

    def solve(self, x: FloatArray) -> FloatArray:
        """G^-1 x."""
        return cho_solve((self._chol, True), x, check_finite=False)

    def log_density(self, residual: FloatArray) -> float:
        """Log of N(residual; 0, G)."""
        white = self.half(residual)
        log_root_det = float(np.log(self._chol.diagonal()).sum())
        return -0.5 * float(white @ white) - log_root_det - 0.5 * residual.size * _LOG_2PI


class _InCoordinates:
    r"""The r coordinates c of z = m + F c given the points: :math:`L L^\top = I + B^\top S^{-1} B`.

    n r^2 operations for n points, with B = A_P F.
    """

    def __init__(self, row_factor: FloatArray, noise: FloatArray) -> None:
        self._noise, self._row_factor = noise, row_factor
        self._scaled = row_factor / np.sqrt(noise)[:, None]
        precision = self._scaled.T @ self._scaled
        precision[np.diag_indices_from(precision)] += 1.0
        self._chol, _ = linalg.cholesky("the precision of the coordinates", precision)

    def mean(self, residual: FloatArray) -> FloatArray:
        """Mean of the coordinates."""
        white = residual / np.sqrt(self._noise)
        return cho_solve((self._chol, True), self._scaled.T @ white, check_finite=False)

    def spread(self, factor: FloatArray) -> FloatArray:
        """F L^-T: the factor of z given the points."""
        return solve_triangular(self._chol, factor.T, lower=True, check_finite=False).T

    def solve(self, x: FloatArray) -> FloatArray:
        """G^-1 x, by the identity of Woodbury and one step of refinement."""
        solved = self._woodbury(x)
        noisy = self._noise * solved if x.ndim == 1 else self._noise[:, None] * solved
        left = x - noisy - self._row_factor @ (self._row_factor.T @ solved)
        return solved + self._woodbury(left)

    def _woodbury(self, x: FloatArray) -> FloatArray:
        root = np.sqrt(self._noise) if x.ndim == 1 else np.sqrt(self._noise)[:, None]
        white = x / root
        inner = cho_solve((self._chol, True), self._scaled.T @ white, check_finite=False)
        result: FloatArray = (white - self._scaled @ inner) / root
        return result

    def log_density(self, residual: FloatArray) -> float:
        """Log of N(residual; 0, G)."""
        log_root_det = float(np.log(self._chol.diagonal()).sum() + 0.5 * np.log(self._noise).sum())
        square = float(residual @ self.solve(residual))
        return -0.5 * square - log_root_det - 0.5 * residual.size * _LOG_2PI
