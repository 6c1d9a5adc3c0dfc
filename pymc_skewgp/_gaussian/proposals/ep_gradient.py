"""The gradient of expectation propagation's evidence at its fixed point.

There the evidence is stationary in the sites (Minka 2001), so that only explicit dependence on the
limits and the covariance counts.

Rows and factors that are log-concave take from a cavity's variance. Where another factor, such as
Student's t, would add to it, EP cuts its site at nearly none: moments are then not matched, the
evidence is not stationary in that site, and these derivatives are not those of its value.
"""

from typing import NamedTuple

import numpy as np

from pymc_skewgp._gaussian.edges import Edges
from pymc_skewgp._gaussian.operators.covariance import Covariance, WithSites
from pymc_skewgp._gaussian.proposals.ep import EPResult
from pymc_skewgp._validation import FloatArray


class EPGradient(NamedTuple):
    """Derivatives of EP's log probability."""

    lower: FloatArray  # (n,)
    upper: FloatArray  # (n,)
    cov: FloatArray  # (n, n), symmetric


def ep_gradient(cov: Covariance, ep: EPResult, lower: FloatArray, upper: FloatArray) -> EPGradient:
    r"""Derivatives of ``ep.log_prob``, exact at the fixed point and off by the residual near it.

    With sites :math:`T = \mathrm{diag}(\tau)` and mean :math:`m`,

    .. math:: \frac{\partial \log Z}{\partial G}
        = \frac12 \left\{\alpha\alpha^\top - (G + T^{-1})^{-1}\right\}, \qquad
        \alpha = G^{-1} m,

    and in a limit the density of the cavity's truncated normal there.

    Parameters
    ----------
    cov : Covariance
    ep : EPResult
        ``fit_ep(cov, lower, upper)``.
    lower, upper : ndarray, shape (n,)

    Returns
    -------
    EPGradient

    References
    ----------
    .. [1] J. P. Cunningham, P. Hennig & S. Lacoste-Julien (2011), Gaussian probabilities and
       expectation propagation, arXiv:1111.6832.
    """
    edges = Edges.of(lower, upper, *cavities(cov, ep))
    return EPGradient(-edges.lower, edges.upper, ep_cov_gradient(cov, ep))


def ep_cov_gradient(cov: WithSites, ep: EPResult) -> FloatArray:
    """That in the covariance, whatever the factors; ``ep.weights`` is that in the mean."""
    gradient = cov.site_precision(ep.tau)
    gradient *= -0.5
    gradient += np.outer(0.5 * ep.weights, ep.weights)
    return gradient


def cavities(cov: WithSites, ep: EPResult) -> tuple[FloatArray, FloatArray]:
    """Means and deviations of the Gaussian without each site in turn.

    Where a factor has a parameter, the derivative in it is the mean of that of the log factor under
    cavity times factor (`SiteFactors.nodes`).
    """
    # As in `fit_ep`: round-off may leave a marginal at its site's variance.
    variance = 1.0 / np.maximum(1.0 / ep.variance - ep.tau, 1e-10 / cov.diagonal())
    return variance * (ep.mean / ep.variance - ep.nu), np.sqrt(variance)
