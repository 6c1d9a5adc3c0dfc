r"""Draws of the tails that sites have and EP's Gaussian lacks.

With EP's Gaussian q in white coordinates w, directions :math:`g_i` of single predictors, and a
density :math:`t_i(z)` that is the larger of the target along the line :math:`w = g_i z` and of EP's
cavity times the site's own factor, times :math:`1 + |z|^3`,

.. math:: \pi_0\, q(w) + \sum_i \pi_i\, q(w \mid g_i^\top w)\, t_i(g_i^\top w)
    + \pi_w\, q_w(w) = q(w) \Bigl\{\pi_0 + \sum_i \pi_i
    \frac{t_i(g_i^\top w)}{N(g_i^\top w; 0, 1)} + \pi_w \frac{q_w(w)}{q(w)}\Bigr\}

meets the tails of noise that is not Gaussian, or of places with no counts at all, one at a time,
and as often as third moments need, to which a tail adds more than to the evidence; its density
takes one product for each direction. Several tails at once are met by :math:`q_w`,
which is EP's Gaussian with all sites to a power below 1.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.proposals.coordinate_gaussian import (
    CoordinateGaussian,
    SiteLogDensity,
    SiteMarginals,
    coordinate_gaussian,
)
from pymc_skewgp._gaussian.proposals.grouped_sites import (
    ALIKE,
    MOST,
    directions_apart,
    nodes_along,
)
from pymc_skewgp._gaussian.proposals.tabulated import TabulatedDensity
from pymc_skewgp._gaussian.proposals.unseen import HERMITE_NODES, missing_of_functions
from pymc_skewgp._gaussian.weights import log_sum_exp
from pymc_skewgp._validation import FloatArray

# Share of all draws that are of tails, in terms of what is missing; how many of these are of the
# wide Gaussian, and the power of its sites.
_PER_MISSING, _LEAST_SHARE, _MOST_SHARE = 80.0, 0.1, 0.4
_WIDE, _POWER = 0.25, 0.4
# Evaluations of a site to look along directions, at most.
_MOST_EVALUATIONS = 2**16
# Third moment in tails that draws hardly meet, in deviations, from which on they are drawn apart
# where there are as few sites as directions: quasi-random draws err less than that.
_LEAST_THIRD = 0.002
_CUT = 120.0  # nats
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
    r"""The mixture, with tails in k directions.

    Attributes
    ----------
    directions : ndarray, shape (k, r)
        g_i, of unit length.
    tables : tuple of TabulatedDensity
        t_i.
    shares : ndarray, shape (k,)
        :math:`\pi_i`.
    covered : ndarray of bool, shape (n,)
        Sites whose predictors have one of these directions, or nearly so.
    wide : WideGaussian
        :math:`q_w`.
    wide_share : float
        :math:`\pi_w`.
    """

    directions: FloatArray
    tables: tuple[TabulatedDensity, ...]
    shares: FloatArray
    covered: NDArray[np.bool_]
    wide: WideGaussian
    wide_share: float

    def moved(self, white: FloatArray, which: FloatArray, uniform: FloatArray) -> FloatArray:
        """Draws of the mixture from such of q, as columns.

        `which` are uniforms that choose a component, `uniform` those that place the draw along it.
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
        parts = np.empty((self.shares.size + 2, white.shape[1]))
        parts[0], parts[1] = np.log(plain), np.log(self.wide_share) + self.wide.log_ratio(white)
        shares = np.log(self.shares)
        for i, (direction, table) in enumerate(zip(self.directions, self.tables, strict=True)):
            z = direction @ white
            parts[i + 2] = shares[i] + table.log_pdf(z) + 0.5 * z**2 + _LOG_SQRT_2PI
        # Beyond 37 deviations, where another mode may be, the ratio itself overflows.
        return log_sum_exp(parts, 0)


def site_tails(
    gaussian: CoordinateGaussian,
    sites: SiteLogDensity,
    marginals: SiteMarginals,
    least: float,
    n_draws: int,
    *,
    moments: bool = True,
) -> SiteTails | None:
    """The mixture, where tails that `n_draws` draws hardly meet hold more than the share `least`.

    Few sites have it for the sake of third `moments` as well.

    Looked at are the sites that lack most by themselves, and the target along their directions.
    """
    own = marginals.missing(sites, n_draws)
    along = solve_triangular(gaussian.chol, sites.factor.T, lower=True)
    along /= np.linalg.norm(along, axis=0)
    most = min(MOST, max(1, _MOST_EVALUATIONS // (HERMITE_NODES.size * own.size)))
    chosen = directions_apart(along, np.argsort(-np.abs(own)), most)
    directions = along[:, chosen].T
    missing = np.abs(
        missing_of_functions(_along(gaussian, sites, directions, HERMITE_NODES), n_draws)
    )
    lacking = max(float(np.linalg.norm(missing)), float(np.linalg.norm(own)))
    if lacking <= least:
        third = marginals.missing(sites, n_draws, power=3)
        if not moments or own.size > MOST or third.max() <= _LEAST_THIRD:
            return None
    # In units of q: the prior's deviation along each direction, as far as it reaches.
    nodes = nodes_along(gaussian, directions)
    logs = _along(gaussian, sites, directions, nodes) - 0.5 * nodes**2
    tilted = _tilted(sites, marginals, chosen, nodes)
    logs = np.maximum(_below_peak(logs), _below_peak(tilted)) + np.log1p(np.abs(nodes) ** 3)
    tables = tuple(TabulatedDensity.of(z, values) for z, values in zip(nodes, logs, strict=True))
    share = min(max(_PER_MISSING * lacking, _LEAST_SHARE), _MOST_SHARE)
    shares = missing + 1e-3 * lacking
    shares *= (1.0 - _WIDE) * share / shares.sum()
    finite = [bool(np.isfinite(table.log_density).all()) for table in tables]
    covered = (np.abs(directions[finite] @ along) > ALIKE).any(axis=0)
    wide = WideGaussian.of(gaussian, sites, marginals)
    return SiteTails(directions, tables, shares, covered, wide, _WIDE * share)


def _below_peak(logs: FloatArray) -> FloatArray:
    return np.maximum(logs - logs.max(axis=1, keepdims=True), -_CUT)


def _tilted(
    sites: SiteLogDensity, marginals: SiteMarginals, chosen: list[int], z: FloatArray
) -> FloatArray:
    """Log of cavity times factor of the chosen sites, z in deviations of q, shape (k, nodes)."""
    mean, variance = marginals.mean[chosen], marginals.variance[chosen]
    precision = np.maximum(1.0 / variance - marginals.tau[chosen], 1e-12 / variance)
    cavity = (mean / variance - marginals.nu[chosen]) / precision
    off = mean + np.sqrt(variance) * z.T
    eta = np.tile(sites.offset, (z.shape[1], 1))
    eta[:, chosen] += off
    with np.errstate(over="ignore"):
        logs = sites.log_prob(eta)[:, chosen]
    logs -= 0.5 * precision * (off - cavity) ** 2
    return np.asarray(logs.T)


def _along(
    gaussian: CoordinateGaussian, sites: SiteLogDensity, directions: FloatArray, z: FloatArray
) -> FloatArray:
    """Log of target over q at points z along each direction, shape (k, nodes)."""
    white = directions[:, :, None] * (z if z.ndim == 1 else z[:, None])
    white = np.ascontiguousarray(white.transpose(1, 0, 2)).reshape(directions.shape[1], -1)
    coordinates = gaussian.of_white(white)
    with np.errstate(over="ignore"):
        logs = gaussian.log_ratio(coordinates, white) + sites(coordinates)
    return logs.reshape(directions.shape[0], -1)
