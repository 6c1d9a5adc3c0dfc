"""A covariance S + F F', S of rows or small blocks: n r^2 operations a sweep of EP.

All is done in the r coordinates of F.
"""

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular

from pymc_skewgp._gaussian.operators.covariance import SiteProduct
from pymc_skewgp._gaussian.operators.row_noise import IndependentNoise, RowNoise, ShrunkNoise
from pymc_skewgp._validation import FloatArray


class LowRankCovariance:
    """A covariance noise + factor factor', with few columns in `factor`.

    Parameters
    ----------
    noise : ndarray, shape (n,), or RowNoise
        Independent variances, >= 0, or noise that rows share; rows without any must be independent
        in `factor`.
    factor : ndarray, shape (n, r)
        For instance from `linalg.low_rank_factor` of a smooth kernel's matrix.
    """

    def __init__(self, noise: FloatArray | RowNoise, factor: FloatArray) -> None:
        self.noise: RowNoise = IndependentNoise(noise) if isinstance(noise, np.ndarray) else noise
        self.factor = factor
        self.jitter = 0.0

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.factor.shape[0]

    def diagonal(self) -> FloatArray:
        """Marginal variances."""
        return self.noise.variances + np.einsum("ij,ij->i", self.factor, self.factor)

    def conditional_variances(self) -> FloatArray:
        """See `Covariance`."""
        return self.noise.conditional_variances()

    def dense(self) -> FloatArray:
        """G as an array."""
        matrix = self.factor @ self.factor.T
        self.noise.add_to(matrix)
        return matrix

    def multiply(self, x: FloatArray) -> FloatArray:
        """G x."""
        return self.noise.multiply(x) + self.factor @ (self.factor.T @ x)

    def workspace(self) -> None:
        """None: what it needs is small."""

    def site_product(
        self, tau: FloatArray, nu: FloatArray, work: FloatArray | None = None
    ) -> SiteProduct:
        """Marginals and normalising constant under Gaussian sites; `work` is not used."""
        shrunk = self.noise.shrunk(tau)
        chol, half = self._core(tau, shrunk)
        variance = shrunk.variances() + np.einsum("ij,ij->j", half, half)
        coordinates = cho_solve((chol, True), self.factor.T @ shrunk.back(nu))
        fitted = self.factor @ coordinates
        mean = shrunk.of(fitted) + shrunk.covariance_of(nu)
        weights = shrunk.back(nu - tau * fitted)
        log_det = 2.0 * float(np.log(chol.diagonal()).sum()) - shrunk.log_det
        log_constant = 0.5 * float(nu @ mean) - 0.5 * log_det
        return SiteProduct(mean, variance, log_constant, weights, log_det)

    def site_covariance(self, tau: FloatArray) -> FloatArray:
        """S = (G^-1 + diag(tau))^-1."""
        shrunk = self.noise.shrunk(tau)
        half = self._core(tau, shrunk)[1]
        matrix = half.T @ half
        shrunk.add_covariance(matrix)
        return matrix

    def site_precision(self, tau: FloatArray) -> FloatArray:
        """(G + diag(tau)^-1)^-1, rows of sites that are zero being zero."""
        shrunk = self.noise.shrunk(tau)
        half = self._core(tau, shrunk)[1] * tau
        matrix = -(half.T @ half)
        shrunk.add_precision(matrix, tau)
        return matrix

    def coordinate_half(self, tau: FloatArray, x: FloatArray) -> FloatArray:
        """H = L^-1 x', with L L' the coordinates' precision under sites: H'H is that of x c."""
        chol, _ = self._core(tau, self.noise.shrunk(tau))
        return np.asarray(solve_triangular(chol, x.T, lower=True))

    def _core(self, tau: FloatArray, shrunk: ShrunkNoise) -> tuple[FloatArray, FloatArray]:
        """Cholesky factor L of the posterior precision in the coordinates, and L^-1 F' Q'."""
        left = shrunk.of(self.factor)
        precision = self.factor.T @ (tau[:, None] * left)
        precision[np.diag_indices_from(precision)] += 1.0
        chol = cholesky(precision, lower=True, overwrite_a=True)
        return chol, solve_triangular(chol, left.T, lower=True)
