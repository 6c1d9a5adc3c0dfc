"""A covariance diag(d) + F F' of rows that repeat, each row of F standing for so many."""

import numpy as np
from scipy.linalg import cho_solve

from pymc_skewgp._gaussian.operators.covariance import SiteProduct
from pymc_skewgp._gaussian.operators.low_rank import LowRankCovariance
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
        self.count = count

    def site_product(
        self, tau: FloatArray, nu: FloatArray, work: FloatArray | None = None
    ) -> SiteProduct:
        """Marginals and normalising constant, every row of a kind under the same site."""
        shrink = 1.0 / (1.0 + tau * self.noise)
        # Of the coordinates: so many rows with a precision of tau shrink each.
        chol, half = self._core(self.count * tau, shrink)
        variance = self.noise * shrink + np.einsum("ij,ij->j", half, half) * shrink**2
        coordinates = cho_solve((chol, True), self.factor.T @ (self.count * nu * shrink))
        fitted = self.factor @ coordinates
        mean = (fitted + self.noise * nu) * shrink
        weights = (nu - tau * fitted) * shrink
        log_det = 2.0 * float(np.log(chol.diagonal()).sum())
        log_det -= float(self.count @ np.log(shrink))
        log_constant = 0.5 * float((self.count * nu) @ mean) - 0.5 * log_det
        return SiteProduct(mean, variance, log_constant, weights, log_det)
