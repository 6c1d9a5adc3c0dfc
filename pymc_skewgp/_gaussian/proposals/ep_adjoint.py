r"""How EP's sites move with the limits and the covariance, in reverse.

The sites are an implicit function: at the fixed point every tilted marginal has the Gaussian's
moments. A number that was made with the sites, differentiated in them, becomes by the adjoint of
that equation a number differentiated in the Gaussian's marginals and in the limits.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dgesv

from pymc_skewgp._gaussian.proposals.ep import SHRINKAGE, EPResult
from pymc_skewgp._gaussian.univariate import edge_densities
from pymc_skewgp._gaussian.univariate_moments import truncated_shape
from pymc_skewgp._validation import FloatArray

# Share of a row's precision that its cavity keeps: round-off may leave it none.
_LEAST_CAVITY = 1e-14


class SiteMotion(NamedTuple):
    """What the motion of the sites adds to derivatives.

    Attributes
    ----------
    mean, variance : ndarray, shape (n,)
        In the mean and the marginal variances of EP's Gaussian, as functions of the covariance at
        fixed sites.
    lower, upper : ndarray, shape (n,)
        In the limits.
    value : float
        What the number itself would change by if EP's residual were zero, to first order.
    """

    mean: FloatArray
    variance: FloatArray
    lower: FloatArray
    upper: FloatArray
    value: float


def site_motion(
    ep: EPResult,
    posterior: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    by_nu: FloatArray,
    by_tau: FloatArray,
) -> SiteMotion:
    r"""Pull derivatives in the sites back to what the sites are a function of.

    Let a site be :math:`\exp(\nu w - \tau w^2/2)` with w = u - m, m being EP's mean, and let K, F
    and D be the covariances of the statistics :math:`(w_i, -w_i^2/2)` of all rows under EP's
    Gaussian, of single rows under it, and of single rows under the tilted marginals. Linearised,
    the fixed point is

    .. math:: (I - W K)\, \mathrm ds = W\, \mathrm d\mu + D^{-1}\, \mathrm db, \qquad
        W = F^{-1} - D^{-1},

    with :math:`\mathrm d\mu` the change of the Gaussian's marginals at fixed sites and
    :math:`\mathrm db` that of the tilted ones at fixed cavities, both as means of the statistics.
    K consists of S and S*S/2, S being the Gaussian's covariance, and W is made of the tilted
    marginals' skewness and excess kurtosis: sites move only where those are not Gaussian.

    Parameters
    ----------
    ep : EPResult
        Near its fixed point: what this leaves out is of the order of the residual, in `value` of
        its square.
    posterior : ndarray, shape (n, n)
        S, the covariance of EP's Gaussian.
    lower, upper : ndarray, shape (n,)
        Limits, at least one of each row finite.
    by_nu, by_tau : ndarray, shape (n,)
        Derivatives in the sites as they are written above, m fixed.

    Returns
    -------
    SiteMotion

    References
    ----------
    .. [1] T. P. Minka (2001), Expectation propagation for approximate Bayesian inference,
       arXiv:1301.2294.
    .. [2] M. Blondel et al. (2022), Efficient and modular implicit differentiation,
       arXiv:2105.15183.
    """
    # All in standard deviations of the Gaussian's marginals.
    sd = np.sqrt(posterior.diagonal())
    cavity_precision = np.maximum(1.0 / ep.variance - ep.tau, _LEAST_CAVITY / ep.variance)
    cavity_mean = (ep.mean / ep.variance - ep.nu) / cavity_precision
    cavity_sd = 1.0 / np.sqrt(cavity_precision)
    a, b = (lower - cavity_mean) / cavity_sd, (upper - cavity_mean) / cavity_sd
    shift, spread, *shape = truncated_shape(a, b)
    tilted = _Tilted(*shape)
    pull = _pull(posterior / sd / sd[:, None], tilted, np.stack([by_nu / sd, by_tau / sd**2]))
    moved, at_tilted = tilted.excess_information(pull), tilted.information(pull)

    def weigh(off: FloatArray, square: FloatArray) -> FloatArray:
        """What `at_tilted` says of changes of the tilted marginals' E[w] and E[w^2]."""
        return at_tilted[0] * off - 0.5 * at_tilted[1] * square

    by_limits = []
    for limit, density in zip((lower, upper), edge_densities(a, b), strict=True):
        off = np.where(np.isfinite(limit), (limit - ep.mean) / sd, 0.0)
        by_limits.append(weigh(off, off**2 - 1.0) * density / cavity_sd)
    off = (cavity_mean + cavity_sd * shift - ep.mean) / sd
    spread = np.maximum(spread, SHRINKAGE[0]) / (cavity_precision * ep.variance)
    value = float(weigh(off, spread + off**2 - 1.0).sum())
    return SiteMotion(moved[0] / sd, -0.5 * moved[1] / sd**2, -by_limits[0], by_limits[1], value)


class _Tilted:
    """Variables of mean 0 and variance 1 with D the covariance of (w, -w^2/2), row by row.

    D has the rows (1, -skewness / 2) and (-skewness / 2, 1/2 + kurtosis / 4).
    """

    def __init__(self, skewness: FloatArray, excess_kurtosis: FloatArray) -> None:
        determinant = 0.5 + 0.25 * (excess_kurtosis - skewness**2)
        # F^-1 - D^-1 with F = diag(1, 1/2), without the cancellation.
        self.cross = -0.5 * skewness / determinant
        self.first = 0.5 * skewness * self.cross
        self.second = 0.5 * (excess_kurtosis - skewness**2) / determinant

    def excess_information(self, x: FloatArray) -> FloatArray:
        """(F^-1 - D^-1) x, for x of shape (2, n)."""
        return np.stack(
            [self.first * x[0] + self.cross * x[1], self.cross * x[0] + self.second * x[1]]
        )

    def information(self, x: FloatArray) -> FloatArray:
        """D^-1 x, for x of shape (2, n)."""
        return np.stack([x[0], 2.0 * x[1]]) - self.excess_information(x)


def _pull(correlation: FloatArray, tilted: _Tilted, x: FloatArray) -> FloatArray:
    """(I - K W)^-1 x, where K consists of two blocks.

    By elimination: iterations take some twenty products, which pays from 300 rows on and saves a
    twentieth of an evaluation there.
    """
    n = correlation.shape[0]
    squares = -0.5 * correlation**2
    matrix = np.empty((2 * n, 2 * n), order="F")
    np.multiply(correlation, -tilted.first, out=matrix[:n, :n])
    np.multiply(correlation, -tilted.cross, out=matrix[:n, n:])
    np.multiply(squares, tilted.cross, out=matrix[n:, :n])
    np.multiply(squares, tilted.second, out=matrix[n:, n:])
    matrix[np.diag_indices_from(matrix)] += 1.0
    solved = dgesv(matrix, x.reshape(2 * n, 1), overwrite_a=1)[2]
    return np.reshape(solved, (2, n))
