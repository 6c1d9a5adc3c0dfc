"""EP's Gaussian of the coordinates c of a function, and sites as functions of them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.proposals.unseen import HERMITE_NODES, missing_of_functions
from pymc_skewgp._gaussian.site_factors import SiteFunction
from pymc_skewgp._validation import FloatArray

_BLOCK = 2**16  # predictors at a time: what is done to them stays in the cache


@dataclass(frozen=True)
class SiteLogDensity:
    """Log density of all sites as a function of the coordinates.

    Attributes
    ----------
    log_prob : SiteFunction
    offset : ndarray, shape (n,)
        a.
    factor : ndarray, shape (n, r)
        F.
    """

    log_prob: SiteFunction
    offset: FloatArray
    factor: FloatArray

    def __call__(self, coordinates: FloatArray) -> FloatArray:
        """Of columns of coordinates, shape (r, N)."""
        size = max(1, _BLOCK // max(self.offset.size, 1))
        found = np.empty(coordinates.shape[1])
        for start in range(0, found.size, size):
            eta = coordinates[:, start : start + size].T @ self.factor.T
            eta += self.offset
            found[start : start + size] = self.log_prob(eta).sum(axis=-1)
        return found


@dataclass(frozen=True)
class CoordinateGaussian:
    """q = N(mean, P^-1) of the coordinates, with the Cholesky factor L of P."""

    mean: FloatArray
    chol: FloatArray

    @cached_property
    def spread(self) -> FloatArray:
        """L^-T."""
        eye = np.eye(self.mean.size)
        return solve_triangular(self.chol, eye, lower=True, trans="T", check_finite=False)

    def of_white(self, white: FloatArray) -> FloatArray:
        """Coordinates mean + L^-T white, as columns."""
        coordinates: FloatArray = self.spread @ white
        coordinates += self.mean[:, None]
        return coordinates

    def log_ratio(self, coordinates: FloatArray, white: FloatArray) -> FloatArray:
        """Log N(c; 0, I) / q(c), for columns of coordinates and what they are the images of."""
        ratio = np.einsum("ij,ij->j", white, white)
        ratio -= np.einsum("ij,ij->j", coordinates, coordinates)
        ratio *= 0.5
        ratio -= float(np.log(self.chol.diagonal()).sum())
        return ratio

    def white(self, coordinates: FloatArray) -> FloatArray:
        """What columns of coordinates are the images of."""
        white: FloatArray = self.chol.T @ (coordinates - self.mean[:, None])
        return white

    def log_over_prior(self, coordinates: FloatArray) -> FloatArray:
        """Log q(c) / N(c; 0, I) of columns."""
        return -self.log_ratio(coordinates, self.white(coordinates))


@dataclass(frozen=True)
class SiteMarginals:
    """EP's Gaussian of each predictor and the site that is in it, for what draws leave out.

    Attributes
    ----------
    mean, variance, tau, nu : ndarray, shape (n,)
        Of predictors less their offset.
    """

    mean: FloatArray
    variance: FloatArray
    tau: FloatArray
    nu: FloatArray

    def missing(self, sites: SiteLogDensity, n_draws: int, power: int = 0) -> FloatArray:
        """Share of the evidence in tails of each predictor that draws hardly meet, shape (n,).

        Or, with a power, what is there of a moment; see `missing_of_functions`.
        """
        off = self.mean + np.sqrt(self.variance) * HERMITE_NODES[:, None]
        with np.errstate(over="ignore"):
            log_ratio = sites.log_prob(sites.offset + off)
        log_ratio -= (self.nu - 0.5 * self.tau * off) * off
        return missing_of_functions(log_ratio.T, n_draws, power)


def coordinate_gaussian(factor: FloatArray, tau: FloatArray, nu: FloatArray) -> CoordinateGaussian:
    """N(0, I) of the coordinates c times sites exp(-tau e^2/2 + nu e), with e = F c."""
    precision = factor.T @ (tau[:, None] * factor)
    precision[np.diag_indices_from(precision)] += 1.0
    chol, _ = linalg.cholesky("the precision of the coordinates", precision)
    return CoordinateGaussian(cho_solve((chol, True), factor.T @ nu), chol)
