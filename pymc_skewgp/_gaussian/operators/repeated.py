"""A covariance diag(d) + F F' of rows that repeat, each row of F standing for so many."""

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from pymc_skewgp._gaussian.operators.covariance import SiteProduct
from pymc_skewgp._gaussian.operators.low_rank import LowRankCovariance
from pymc_skewgp._gaussian.operators.row_noise import IndependentNoise
from pymc_skewgp._validation import FloatArray


class RepeatedCovariance(LowRankCovariance):
    """Rows with equal sites: marginals are those of one of each kind.

    Parameters
    ----------
    noise : ndarray, shape (d,)
        Of each row of a kind, independent.
    factor : ndarray, shape (d, r)
    count : ndarray, shape (d,)
        Rows of each kind.
    """

    def __init__(self, noise: FloatArray, factor: FloatArray, count: FloatArray) -> None:
        super().__init__(noise, factor)
        self.noise: IndependentNoise = IndependentNoise(noise)
        self.count = count

    def site_product(
        self, tau: FloatArray, nu: FloatArray, work: FloatArray | None = None
    ) -> SiteProduct:
        """Marginals and normalising constant, every row of a kind under the same site."""
        shrunk = self.noise.shrunk(tau)
        # Of the coordinates: so many rows with what is left of a precision of tau each.
        chol, half = self._core(self.count * tau, shrunk)
        variance = shrunk.variances() + np.einsum("ij,ij->j", half, half)
        coordinates = cho_solve((chol, True), self.factor.T @ (self.count * shrunk.back(nu)))
        fitted = self.factor @ coordinates
        mean = shrunk.of(fitted) + shrunk.covariance_of(nu)
        weights = shrunk.back(nu - tau * fitted)
        log_det = 2.0 * float(np.log(chol.diagonal()).sum())
        log_det -= float(self.count @ np.log(shrunk.share))
        log_constant = 0.5 * float((self.count * nu) @ mean) - 0.5 * log_det
        return SiteProduct(mean, variance, log_constant, weights, log_det)

    def kind_precision(self, tau: FloatArray) -> FloatArray:
        """(F F' + T^-1)^-1, T being what the sites of all rows of a kind say of its entry of F."""
        shrunk = self.noise.shrunk(tau)
        precision = self.count * tau * shrunk.share
        chol, _ = self._core(self.count * tau, shrunk)
        half = solve_triangular(chol, self.factor.T * precision, lower=True)
        return np.diag(precision) - half.T @ half
