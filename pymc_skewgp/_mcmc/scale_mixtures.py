r"""Noise that is normal given its variance: Student-t and asymmetric Laplace.

An indicator z scales the variance S of a row, and shifts it where the noise is skewed. Given its
error an indicator has a distribution in closed form. The error of an interval is not known given f:
it is drawn first, from the noise within the limits.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, stdtr, stdtrit

from pymc_skewgp._mcmc.model import Rows
from pymc_skewgp._validation import FloatArray


@dataclass(frozen=True)
class StudentTNoise:
    r"""Errors of a Student-t distribution whose scale is the root of S.

    .. math:: e \mid z \sim N(0, S z), \qquad 1 / z \sim \mathrm{Gamma}(\nu / 2, \nu / 2)

    Attributes
    ----------
    nu : ndarray, shape (m,)
        Degrees of freedom.
    """

    nu: FloatArray

    def draw(self, errors: Rows, rng: np.random.Generator) -> FloatArray:
        """See `Mixture`: inverse gamma given the error."""
        sd = np.sqrt(errors.variance)
        e = errors.value / sd
        within = np.isnan(e)
        if within.any():
            lower, upper = (x[within] / sd[within] for x in (errors.lower, errors.upper))
            e[within] = _truncated_t(self.nu[within], lower, upper, rng)
        return 0.5 * (self.nu + e**2) / rng.standard_gamma(0.5 * (self.nu + 1.0))

    def given(self, rows: Rows, z: FloatArray) -> Rows:
        """See `Mixture`."""
        return rows._replace(variance=rows.variance * z)

    def log_density(self, z: FloatArray) -> FloatArray:
        """See `Mixture`."""
        a = 0.5 * self.nu
        density: FloatArray = a * np.log(a) - gammaln(a) - (a + 1.0) * np.log(z) - a / z
        return density


@dataclass(frozen=True)
class LaplaceNoise:
    r"""Errors of an asymmetric Laplace distribution, exponential on each side of 0.

    .. math:: e \mid z \sim N(\theta z, S z), \qquad z \sim \mathrm{Exponential}(1)

    The sides have the means :math:`\sqrt{\theta^2/4 + S/2} \pm \theta/2` (Kozumi & Kobayashi 2011,
    doi:10.1080/00949655.2010.496117). Points only.

    Attributes
    ----------
    shift : ndarray, shape (m,)
        Theta, 0 for the Laplace distribution.
    """

    shift: FloatArray

    def draw(self, errors: Rows, rng: np.random.Generator) -> FloatArray:
        """See `Mixture`: 1/z is inverse Gaussian given the error.

        By Michael, Schucany & Haas (1976), both roots written so that errors near 0 cost no digits.
        """
        shape = 2.0 + self.shift**2 / errors.variance
        inverse_mean = np.abs(errors.value) / np.sqrt(errors.variance * shape)
        chi2 = rng.standard_normal(errors.value.size) ** 2 / shape
        large = inverse_mean + 0.5 * chi2 + np.sqrt(chi2 * (inverse_mean + 0.25 * chi2))
        takes_large = rng.random(large.size) * (large + inverse_mean) <= large
        z: FloatArray = np.where(takes_large, large, inverse_mean**2 / large)
        return np.maximum(z, np.finfo(float).tiny)

    def given(self, rows: Rows, z: FloatArray) -> Rows:
        """See `Mixture`."""
        return rows._replace(offset=rows.offset + self.shift * z, variance=rows.variance * z)

    def log_density(self, z: FloatArray) -> FloatArray:
        """See `Mixture`."""
        return -z


def _truncated_t(
    nu: FloatArray, lower: FloatArray, upper: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Standard Student-t draws within limits, by the distribution function of the nearer tail."""
    right = lower > 0
    low, high = np.where(right, -upper, lower), np.where(right, -lower, upper)
    p, q = stdtr(nu, low), stdtr(nu, high)
    x = stdtrit(nu, p + rng.random(nu.size) * (q - p))
    x = np.where(np.isfinite(x), x, high)  # where the tail underflows, all of it is at its end
    x = np.clip(x, low, high)
    found: FloatArray = np.where(right, -x, x)
    return found
