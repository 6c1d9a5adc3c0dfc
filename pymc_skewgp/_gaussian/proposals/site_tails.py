r"""Draws of the tails that sites have and EP's Gaussian lacks.

Under EP's Gaussian q a predictor is :math:`\eta_i \sim N(m_i, v_i)`, under the cavity times its own
factor it has a density :math:`t_i` that may be far wider: noise of heavy tails, or no count where
some were expected. The mixture

.. math:: \pi_0\, q(c) + \sum_i \pi_i\, q(c \mid \eta_i)\, t_i(\eta_i) + \pi_w\, q_w(c)
    = q(c) \Bigl\{\pi_0 + \sum_i \pi_i \frac{t_i(\eta_i)}{N(\eta_i; m_i, v_i)}
    + \pi_w \frac{q_w(c)}{q(c)}\Bigr\}

meets these tails one at a time, and its density is known from the predictors alone. Several tails
at once are met by :math:`q_w`, which is EP's Gaussian with all sites to a power below 1.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.proposals.coordinate_gaussian import (
    CoordinateGaussian,
    SiteLogDensity,
    SiteMarginals,
    coordinate_gaussian,
)
from pymc_skewgp._gaussian.proposals.tabulated import TabulatedDensity
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray

# Share of all draws that are of tails, in terms of what is missing; how many of these are of the
# wide Gaussian, and the power of its sites.
_PER_MISSING, _LEAST_SHARE, _MOST_SHARE = 80.0, 0.1, 0.4
_WIDE, _POWER = 0.25, 0.4
_MOST_SITES = 64  # with a tail of their own: those that lack most
_NODES, _TAIL, _CUT = 161, 8.7, 120.0
_LOG_SQRT_2PI = 0.5 * float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class WideGaussian:
    """N(mean, B B') of white coordinates, `spread` being B, lower triangular."""

    mean: FloatArray
    spread: FloatArray

    @classmethod
    def of(
        cls,
        gaussian: CoordinateGaussian,
        sites: SiteLogDensity,
        marginals: SiteMarginals,
    ) -> "WideGaussian":
        """With the sites to a power below 1."""
        tau, nu = _POWER * marginals.tau, _POWER * marginals.nu
        wide = coordinate_gaussian(sites.factor, tau, nu)
        half = solve_triangular(wide.chol, gaussian.chol, lower=True)
        # L' P_w^-1 L = half' half, and a triangular root of it.
        spread, _ = linalg.cholesky("the covariance of wide draws", half.T @ half)
        return cls(gaussian.chol.T @ (wide.mean - gaussian.mean), spread)

    def draw(self, white: FloatArray) -> FloatArray:
        """From standard normal columns."""
        return self.mean[:, None] + self.spread @ white

    def log_ratio(self, white: FloatArray) -> FloatArray:
        """Log density over the standard normal one."""
        off = white - self.mean[:, None]
        standard = solve_triangular(self.spread, off, lower=True, check_finite=False)
        ratio = np.einsum("ij,ij->j", white, white) - np.einsum("ij,ij->j", standard, standard)
        return np.asarray(0.5 * ratio - np.log(self.spread.diagonal()).sum())


@dataclass(frozen=True)
class SiteTails:
    r"""The mixture, with tails of k of the sites.

    Attributes
    ----------
    directions : ndarray, shape (k, r)
        Of unit length: predictors in deviations from their mean are these times white coordinates.
    tables : tuple of TabulatedDensity
        Densities t_i, likewise in deviations.
    shares : ndarray, shape (k,)
        :math:`\pi_i`.
    which : ndarray of int, shape (k,)
        The sites.
    wide : WideGaussian
        :math:`q_w`.
    wide_share : float
        :math:`\pi_w`.
    """

    directions: FloatArray
    tables: tuple[TabulatedDensity, ...]
    shares: FloatArray
    which: IntArray
    wide: WideGaussian
    wide_share: float

    def moved(self, white: FloatArray, which: FloatArray, uniform: FloatArray) -> FloatArray:
        """Draws of the mixture from such of q, as columns.

        `which` are uniforms that choose a component, `uniform` those that place its predictor.
        """
        k = self.shares.size
        ends = np.cumsum(np.append(self.shares, self.wide_share))
        chosen = np.searchsorted(ends, which, side="right")
        moved = white.copy()
        for i, table in enumerate(self.tables):
            draws = np.flatnonzero(chosen == i)
            if draws.size:
                direction = self.directions[i]
                step = table.quantile(uniform[draws]) - direction @ white[:, draws]
                moved[:, draws] += np.outer(direction, step)
        moved[:, chosen == k] = self.wide.draw(white[:, chosen == k])
        return moved

    def log_ratio(self, white: FloatArray) -> FloatArray:
        """Log density of the mixture over that of q."""
        plain = 1.0 - self.wide_share - float(self.shares.sum())
        ratio = plain + self.wide_share * np.exp(self.wide.log_ratio(white))
        for direction, table, share in zip(self.directions, self.tables, self.shares, strict=True):
            z = direction @ white
            ratio += share * np.exp(table.log_pdf(z) + 0.5 * z**2 + _LOG_SQRT_2PI)
        return np.asarray(np.log(ratio))


def site_tails(
    gaussian: CoordinateGaussian,
    sites: SiteLogDensity,
    marginals: SiteMarginals,
    missing: FloatArray,
) -> SiteTails:
    """The mixture for the sites whose tails lack most, `missing` being how much, shape (n,)."""
    chosen = np.argsort(-np.abs(missing))[:_MOST_SITES]
    shares = np.abs(missing[chosen])
    mean, sd = marginals.mean, np.sqrt(marginals.variance)
    cavity_var = 1.0 / np.maximum(1.0 / marginals.variance - marginals.tau, 1e-12 / sd**2)
    cavity_mean = cavity_var * (mean / marginals.variance - marginals.nu)
    reach = (np.abs(cavity_mean - mean) + _TAIL * np.sqrt(cavity_var)) / sd
    z = np.sinh(np.linspace(-1.0, 1.0, _NODES)[:, None] * np.arcsinh(reach))
    off = mean + sd * z
    with np.errstate(over="ignore"):
        logs = sites.log_prob(sites.offset + off) - 0.5 * (off - cavity_mean) ** 2 / cavity_var
    logs = np.maximum(logs, logs.max(axis=0) - _CUT)
    directions = solve_triangular(gaussian.chol, sites.factor[chosen].T, lower=True).T
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    tables = tuple(TabulatedDensity.of(z[:, i], logs[:, i]) for i in chosen)
    wide = WideGaussian.of(gaussian, sites, marginals)
    needed = _PER_MISSING * float(np.linalg.norm(missing))
    share = min(max(needed, _LEAST_SHARE), _MOST_SHARE)
    shares *= (1.0 - _WIDE) * share / shares.sum()
    return SiteTails(directions, tables, shares, chosen, wide, _WIDE * share)
