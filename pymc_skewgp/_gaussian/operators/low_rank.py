"""A covariance diag(d) + F F': n r^2 operations a sweep of EP, in the r coordinates of F."""

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular

from pymc_skewgp._gaussian.operators.covariance import SiteProduct
from pymc_skewgp._validation import FloatArray


class LowRankCovariance:
    """A covariance diag(noise) + factor factor', with few columns in `factor`.

    Parameters
    ----------
    noise : ndarray, shape (n,)
        Independent variances, >= 0; zero rows must be independent in `factor`.
    factor : ndarray, shape (n, r)
        For instance from `linalg.low_rank_factor` of a smooth kernel's matrix.
    """

    def __init__(self, noise: FloatArray, factor: FloatArray) -> None:
        self.noise, self.factor = noise, factor
        self.jitter = 0.0

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.noise.size

    def diagonal(self) -> FloatArray:
        """Marginal variances."""
        return self.noise + np.einsum("ij,ij->i", self.factor, self.factor)

    def conditional_variances(self) -> FloatArray:
        """See `Covariance`."""
        return self.noise

    def dense(self) -> FloatArray:
        """G as an array."""
        matrix = self.factor @ self.factor.T
        matrix[np.diag_indices_from(matrix)] += self.noise
        return matrix

    def multiply(self, x: FloatArray) -> FloatArray:
        """G x."""
        return (self.noise * x.T).T + self.factor @ (self.factor.T @ x)

    def workspace(self) -> None:
        """None: what it needs is small."""

    def site_product(
        self, tau: FloatArray, nu: FloatArray, work: FloatArray | None = None
    ) -> SiteProduct:
        """Marginals and normalising constant under Gaussian sites; `work` is not used."""
        shrink = 1.0 / (1.0 + tau * self.noise)
        chol, half = self._core(tau, shrink)
        variance = self.noise * shrink + np.einsum("ij,ij->j", half, half) * shrink**2
        coordinates = cho_solve((chol, True), self.factor.T @ (nu * shrink))
        fitted = self.factor @ coordinates
        mean = (fitted + self.noise * nu) * shrink
        weights = (nu - tau * fitted) * shrink
        log_det = 2.0 * float(np.log(chol.diagonal()).sum()) - float(np.log(shrink).sum())
        log_constant = 0.5 * float(nu @ mean) - 0.5 * log_det
        return SiteProduct(mean, variance, log_constant, weights, log_det)

    def site_covariance(self, tau: FloatArray) -> FloatArray:
        """S = (G^-1 + diag(tau))^-1."""
        shrink = 1.0 / (1.0 + tau * self.noise)
        half = self._core(tau, shrink)[1] * shrink
        matrix = half.T @ half
        matrix[np.diag_indices_from(matrix)] += self.noise * shrink
        return matrix

    def site_precision(self, tau: FloatArray) -> FloatArray:
        """(G + diag(tau)^-1)^-1, rows of sites that are zero being zero."""
        shrink = 1.0 / (1.0 + tau * self.noise)
        half = self._core(tau, shrink)[1] * (tau * shrink)
        matrix = -(half.T @ half)
        matrix[np.diag_indices_from(matrix)] += tau * shrink
        return matrix

    def coordinate_half(self, tau: FloatArray, x: FloatArray) -> FloatArray:
        """H = L^-1 x', with L L' the coordinates' precision under sites: H'H is that of x c."""
        chol, _ = self._core(tau, 1.0 / (1.0 + tau * self.noise))
        return np.asarray(solve_triangular(chol, x.T, lower=True))

    def _core(self, tau: FloatArray, shrink: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Cholesky factor of the posterior precision in the coordinates, and L^-1 F'."""
        precision = self.factor.T @ ((tau * shrink)[:, None] * self.factor)
        precision[np.diag_indices_from(precision)] += 1.0
        chol = cholesky(precision, lower=True, overwrite_a=True)
        return chol, solve_triangular(chol, self.factor.T, lower=True)
