r"""The direction in which a truncated Gaussian is least Gaussian, and its density along it.

EP's Gaussian q is symmetric. Where many limits share one factor, the target is not: along that
factor its density falls off like the prior on the side that no limit restricts, and is cut on the
other. What EP's fixed point knows of this is read off row by row: with q(u_i | a) the Gaussian of
row i given the direction's value a,

.. math:: p(a) \propto q(a) \prod_i \int q(u_i \mid a)
    \frac{1(l_i < u_i < h_i)}{t_i(u_i)}\, \mathrm du_i,

exact where the rows are independent given a, and a first-order correction elsewhere (Cseke &
Heskes 2011). It costs n evaluations a node of a table; the table is what draws are made from, so
that importance weights stay exact whatever the table gets wrong.

References
----------
B. Cseke & T. Heskes (2011), Approximate marginals in latent Gaussian models, JMLR 12, 417-454.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.sparse.linalg import eigsh
from scipy.special import ndtr, ndtri

from pymc_skewgp._gaussian.operators.covariance import Covariance
from pymc_skewgp._gaussian.proposals.site_ratio import log_site_ratio
from pymc_skewgp._gaussian.proposals.tabulated import TabulatedDensity, tabulate
from pymc_skewgp._gaussian.univariate import BoolArray
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray

# Rows whose correlation with the direction is below this say nothing about it.
_LEAST_CORRELATION = 1e-3
_MOST_OWN = 0.5  # share of the direction's prior variance that may be private to its rows
# Quantiles of either density at which the two are compared.
_LEVELS = (np.arange(256) + 0.5) / 256


class SiteGaussian(NamedTuple):
    """N(0, G) times Gaussian sites, rows in the order in which they are drawn.

    Attributes
    ----------
    order : ndarray of int, shape (n,)
        The caller's rows.
    mean, covariance : ndarray, shapes (n,) and (n, n)
    tau, nu : ndarray, shape (n,)
        Sites exp(-tau w^2/2 + nu w) in w = u - mean.
    lower, upper : ndarray, shape (n,)
        Limits of u.
    """

    order: IntArray
    mean: FloatArray
    covariance: FloatArray
    tau: FloatArray
    nu: FloatArray
    lower: FloatArray
    upper: FloatArray


@dataclass(frozen=True)
class LeadingDirection:
    """A scalar a, jointly Gaussian with u under q, and its density under the target.

    Attributes
    ----------
    row : ndarray, shape (n,)
        Covariance of a with u.
    mean, variance : float
        Of a under q.
    density : TabulatedDensity
        Of (a - mean) / sd under the target, to first order.
    """

    row: FloatArray
    mean: float
    variance: float
    density: TabulatedDensity

    @cached_property
    def divergence(self) -> float:
        r"""Triangular discrimination :math:`\int (p - q)^2 / (p + q)` from the normal, 0 to 2."""
        x = np.concatenate([self.density.quantile(_LEVELS), ndtri(_LEVELS)])
        ratio = self.density.log_pdf(x) + 0.5 * x**2 + 0.5 * np.log(2.0 * np.pi)
        return 2.0 * float(np.mean(np.tanh(0.5 * ratio) ** 2))

    def unseen(self, n_draws: int) -> float:
        """Share of the target that so many draws of q meet too seldom, or too often, to weigh."""
        reach = ndtri(1.0 / n_draws)
        below, above = self.density.cdf(np.array([reach, -reach]))
        return float(abs(below - ndtr(reach)) + abs(1.0 - above - ndtr(reach)))


def leading_direction(cov: Covariance, gaussian: SiteGaussian) -> LeadingDirection | None:
    """The direction a = rho w'u / sd(w'u) + (1 - rho^2)^.5 e that moves most sites at once.

    w is the leading eigenvector of T^.5 S T^.5 scaled by T^.5. The independent part e keeps what
    the coordinates do not share, without which u given a would be degenerate. None where no row is
    restricted, or where most of it would be the rows' own: each row is drawn exactly by itself.
    """
    order, tau, posterior = gaussian.order, gaussian.tau, gaussian.covariance
    if not tau.any():
        return None
    root = np.sqrt(tau)
    scaled = posterior * root * root[:, None]
    if root.size < 3:
        vector = np.linalg.eigh(scaled)[1][:, -1:]
    else:
        _, vector = eigsh(scaled, k=1, v0=_toward_limits(gaussian), tol=1e-3)
    w = root * vector[:, 0]
    unordered = np.empty_like(w)
    unordered[order] = w
    prior = float(unordered @ cov.multiply(unordered))
    own = float(unordered**2 @ cov.conditional_variances()) / prior
    if own > _MOST_OWN:
        return None
    shared = 1.0 - max(own, 1e-6)
    row = np.sqrt(shared / prior) * (posterior @ w)
    variance = shared / prior * float(w @ posterior @ w) + 1.0 - shared
    centre = float(np.sqrt(shared / prior) * (w @ gaussian.mean))
    return LeadingDirection(row, centre, variance, _density(gaussian, row / np.sqrt(variance)))


def _toward_limits(gaussian: SiteGaussian) -> FloatArray:
    """Where the search for the direction starts: every row moved to the side it has to be on.

    So that rows times -1, limits and all, are the same problem.
    """
    below = np.isneginf(gaussian.lower) & np.isfinite(gaussian.upper)
    side = np.where(below, -1.0, 1.0)
    return side * side[0]


def _density(gaussian: SiteGaussian, loading: FloatArray) -> TabulatedDensity:
    """Density of the standardised direction, whose covariance with each row is `loading`.

    Marginals of a Gaussian within limits are log-concave, and so is the table: far out the product
    may rise again, where it counts what dependent rows share more than once.
    """
    variance = gaussian.covariance.diagonal()
    seen = np.abs(loading) > _LEAST_CORRELATION * np.sqrt(variance)
    return tabulate(_correction(gaussian, loading, variance, seen))


def _correction(
    gaussian: SiteGaussian, loading: FloatArray, variance: FloatArray, rows: BoolArray
) -> Callable[[FloatArray], FloatArray]:
    """Sum over rows of the log mean of limits over site, given the direction's value."""
    direction, total, tau, nu = (
        x[rows, None] for x in (loading, variance, gaussian.tau, gaussian.nu)
    )
    left = np.maximum(total - direction**2, 1e-14 * total)
    low, high = ((x - gaussian.mean)[rows, None] for x in (gaussian.lower, gaussian.upper))

    def correction(x: FloatArray) -> FloatArray:
        terms = log_site_ratio(direction * x, left, tau, nu, low, high)
        whole: FloatArray = terms.sum(axis=0)
        return whole

    return correction
