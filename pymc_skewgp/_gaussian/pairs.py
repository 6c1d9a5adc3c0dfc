r"""Mirrored pairs from EP's Gaussian with tails drawn, under factors of one predictor each.

Coordinates c ~ N(0, I) with sites :math:`p(y_i \mid \eta_i)`, :math:`\eta = a + F c`, and maybe
with a rectangle for rows u that are jointly Gaussian with c. EP's sites make of N(0, I) the
Gaussian :math:`q = N(c_0, P^{-1})`. Under q the rectangle is drawn first, and c given u is
:math:`E[c \mid u] \pm x`: both members of a pair have one density, so the mean of their weights
:math:`W(c) = \prod_i p(y_i \mid \eta_i) N(c; 0, I) / q(c)` is a weight of the pair. What EP's
Gaussian lacks first is skewness, whose effect on log W is odd and cancels within a pair.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import ndtri

from pymc_skewgp._gaussian import coordinate_gaussian as cg
from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.covariance import DenseCovariance
from pymc_skewgp._gaussian.gaussian_sum import DrawnSum
from pymc_skewgp._gaussian.tabulated import HERMITE_NODES, TabulatedDensity, missing_of_functions
from pymc_skewgp._gaussian.tempering import Proposal
from pymc_skewgp._gaussian.tilted import cavity
from pymc_skewgp._gaussian.weights import log_sum_exp
from pymc_skewgp._validation import FloatArray

# Draws of the tails that sites have and EP's Gaussian lacks.
#
# With EP's Gaussian q in white coordinates w, directions :math:`g_i` of single predictors, and a
# density :math:`t_i(z)` that is the larger of the target along the line :math:`w = g_i z` and of
# EP's cavity times the site's own factor, times :math:`1 + |z|^3`,
#
# .. math:: \pi_0\, q(w) + \sum_i \pi_i\, q(w \mid g_i^\top w)\, t_i(g_i^\top w)
#     + \pi_w\, q_w(w) = q(w) \Bigl\{\pi_0 + \sum_i \pi_i
#     \frac{t_i(g_i^\top w)}{N(g_i^\top w; 0, 1)} + \pi_w \frac{q_w(w)}{q(w)}\Bigr\}
#
# meets the tails of noise that is not Gaussian, or of places with no counts at all, one at a time,
# and as often as third moments need, to which a tail adds more than to the evidence; its density
# takes one product for each direction. Several tails at once are met by :math:`q_w`,
# which is EP's Gaussian with all sites to a power below 1.

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
    wide : CoordinateGaussian
        :math:`q_w`.
    wide_share : float
        :math:`\pi_w`.
    """

    directions: FloatArray
    tables: tuple[TabulatedDensity, ...]
    shares: FloatArray
    covered: NDArray[np.bool_]
    wide: cg.CoordinateGaussian
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
        moved[:, chosen == k] = self.wide.of_white(white[:, chosen == k])
        return moved

    def log_ratio(self, white: FloatArray) -> FloatArray:
        """Log density of the mixture over that of q."""
        plain = 1.0 - self.wide_share - float(self.shares.sum())
        parts = np.empty((self.shares.size + 2, white.shape[1]))
        parts[0], parts[1] = np.log(plain), self.wide.log_over_prior(white)
        parts[1] += np.log(self.wide_share)
        shares = np.log(self.shares)
        for i, (direction, table) in enumerate(zip(self.directions, self.tables, strict=True)):
            z = direction @ white
            parts[i + 2] = shares[i] + table.log_pdf(z) + 0.5 * z**2 + _LOG_SQRT_2PI
        # Beyond 37 deviations, where another mode may be, the ratio itself overflows.
        return log_sum_exp(parts, 0)


def site_tails(
    gaussian: cg.CoordinateGaussian,
    sites: cg.SiteLogDensity,
    marginals: cg.SiteMarginals,
    least: float,
    n_draws: int,
    *,
    moments: bool = True,
) -> SiteTails | None:
    """The mixture, where tails that `n_draws` draws hardly meet hold more than the share `least`.

    Few sites have it for the sake of third `moments` as well.

    Looked at are the sites that lack most by themselves, and the target along their directions.
    """
    own = marginals.missing(sites.off, n_draws)
    along = solve_triangular(gaussian.chol, sites.factor.T, lower=True)
    along /= np.linalg.norm(along, axis=0)
    most = min(cg.MOST, max(1, _MOST_EVALUATIONS // (HERMITE_NODES.size * own.size)))
    chosen = cg.directions_apart(along, np.argsort(-np.abs(own)), most)
    directions = along[:, chosen].T
    missing = np.abs(
        missing_of_functions(_along(gaussian, sites, directions, HERMITE_NODES), n_draws)
    )
    lacking = max(float(np.linalg.norm(missing)), float(np.linalg.norm(own)))
    if lacking <= least:
        third = marginals.missing(sites.off, n_draws, power=3)
        if not moments or own.size > cg.MOST or third.max() <= _LEAST_THIRD:
            return None
    # In units of q: the prior's deviation along each direction, as far as it reaches.
    nodes = cg.nodes_along(gaussian, directions)
    logs = _along(gaussian, sites, directions, nodes) - 0.5 * nodes**2
    tilted = _tilted(sites, marginals, chosen, nodes)
    logs = np.maximum(_below_peak(logs), _below_peak(tilted)) + np.log1p(np.abs(nodes) ** 3)
    tables = tuple(TabulatedDensity.of(z, values) for z, values in zip(nodes, logs, strict=True))
    share = min(max(_PER_MISSING * lacking, _LEAST_SHARE), _MOST_SHARE)
    shares = missing + 1e-3 * lacking
    shares *= (1.0 - _WIDE) * share / shares.sum()
    finite = [bool(np.isfinite(table.log_density).all()) for table in tables]
    covered = (np.abs(directions[finite] @ along) > cg.ALIKE).any(axis=0)
    # EP's Gaussian with all sites to a power below 1, of q's white coordinates.
    whole = cg.coordinate_gaussian(sites.factor, _POWER * marginals.tau, _POWER * marginals.nu)
    chol = solve_triangular(gaussian.chol, whole.chol, lower=True)
    wide = cg.CoordinateGaussian(gaussian.chol.T @ (whole.mean - gaussian.mean), chol)
    return SiteTails(directions, tables, shares, covered, wide, _WIDE * share)


def _below_peak(logs: FloatArray) -> FloatArray:
    return np.maximum(logs - logs.max(axis=1, keepdims=True), -_CUT)


def _tilted(
    sites: cg.SiteLogDensity, marginals: cg.SiteMarginals, chosen: list[int], z: FloatArray
) -> FloatArray:
    """Log of cavity times factor of the chosen sites, z in deviations of q, shape (k, nodes)."""
    mean, variance = marginals.mean[chosen], marginals.variance[chosen]
    sites_of = marginals.tau[chosen], marginals.nu[chosen]
    centre, left = cavity(mean, variance, *sites_of, 1e-12 / variance)
    off = mean + np.sqrt(variance) * z.T
    eta = np.tile(sites.offset, (z.shape[1], 1))
    eta[:, chosen] += off
    with np.errstate(over="ignore"):
        logs = sites.log_prob(eta)[:, chosen]
    logs -= 0.5 * (off - centre) ** 2 / left
    return np.asarray(logs.T)


def _along(
    gaussian: cg.CoordinateGaussian, sites: cg.SiteLogDensity, directions: FloatArray, z: FloatArray
) -> FloatArray:
    """Log of target over q at points z along each direction, shape (k, nodes)."""
    white = directions[:, :, None] * (z if z.ndim == 1 else z[:, None])
    white = np.ascontiguousarray(white.transpose(1, 0, 2)).reshape(directions.shape[1], -1)
    coordinates = gaussian.of_white(white)
    with np.errstate(over="ignore"):
        logs = gaussian.log_ratio(coordinates, white) + sites(coordinates)
    return logs.reshape(directions.shape[0], -1)


# Share of the evidence in tails that draws hardly meet, from which on these are drawn apart: of a
# third moment ten or twenty times as much is there.
_APART = 0.0005
_DRAWS = 1024


@dataclass(frozen=True)
class GivenRows:
    """White coordinates given rows u: gain u + spread x, x standard normal.

    Attributes
    ----------
    proposal : Proposal
        Of u within its rectangle.
    gain, spread : ndarray, shape (r, m) and (r, d)
    shift : ndarray, shape (m,)
        What EP's sites of the likelihood move the mean of u by.
    """

    proposal: Proposal
    gain: FloatArray
    spread: FloatArray
    shift: FloatArray

    @classmethod
    def of(
        cls, proposal: Proposal, cov: DenseCovariance, white: FloatArray, shift: FloatArray
    ) -> "GivenRows":
        """Of rows with the covariance `cov`, and the covariance `white` (m, r) with white c."""
        half = solve_triangular(cov.chol, white, lower=True, check_finite=False)
        gain = solve_triangular(cov.chol, half, lower=True, trans="T", check_finite=False).T
        left = -(half.T @ half)
        left[np.diag_indices_from(left)] += 1.0
        return cls(proposal, gain, linalg.low_rank_factor(linalg.symmetric(left)), shift)

    def log_weights_of(self, u: FloatArray) -> FloatArray:
        """Of columns of rows, less their mean before sites of a likelihood.

        ValueError for a proposal with a leading direction.
        """
        found: FloatArray = self.proposal.log_weights_of(  # type: ignore[attr-defined]
            u - self.shift[:, None]
        )
        return found


class Surrogate(NamedTuple):
    """A proposal whose weights take less time, and log of the true weights over these."""

    proposal: Proposal
    log_ratio: Callable[[FloatArray], FloatArray]


class Pairs(NamedTuple):
    """Members of N pairs: coordinates as columns, shape (r, N), and log weights."""

    plus: FloatArray
    minus: FloatArray
    log_plus: FloatArray
    log_minus: FloatArray

    @property
    def log_weights(self) -> FloatArray:
        """Of the pairs: log of the mean of their members' weights, less log 2."""
        weights: FloatArray = np.logaddexp(self.log_plus, self.log_minus)
        weights -= np.log(2.0)
        return weights


class Members(NamedTuple):
    """Both members of N pairs, drawn and not weighed.

    Attributes
    ----------
    plus, minus : ndarray, shape (r, N)
        White coordinates.
    log_plus, log_minus : ndarray, shape (N,)
        Log of the Gaussian over what they are drawn from, that of the rows included.
    rows : ndarray, shape (m, N), or None
        What they are given, less its mean before sites of a likelihood.
    """

    plus: FloatArray
    minus: FloatArray
    log_plus: FloatArray
    log_minus: FloatArray
    rows: FloatArray | None


class DrawnInPairs(Proposal, Protocol):
    """A proposal whose draws come in pairs, with no leading direction but that of rows."""

    @property
    def first(self) -> TabulatedDensity | None:
        """None."""
        return None

    @property
    @abstractmethod
    def n_sites(self) -> int:
        """Number of sites."""

    @property
    @abstractmethod
    def n_modes(self) -> int:
        """Modes that it is about."""

    @property
    def covers(self) -> bool:
        """Whether evenly spaced draws are known to err less than independent ones."""
        return True

    @abstractmethod
    def pairs(self, points: FloatArray) -> Pairs:
        """Both members of each pair; the last of the points, which picks one, is not used."""

    def draw(
        self, points: FloatArray, *, overwrite_points: bool = False
    ) -> tuple[FloatArray, FloatArray]:
        """One member of each pair as columns, picked by its weight, and the pairs' log weights."""
        pairs = self.pairs(points)
        return picked(pairs, points[-1]), pairs.log_weights

    def surrogate(self) -> Surrogate | None:
        """None: with few rows all of them are met."""
        return None

    def in_place(self) -> DrawnSum | None:
        """What is drawn by where pairs weigh little alike, in place of tempering."""
        return None


@dataclass(frozen=True)
class GaussianPairs:
    """Mirrored pairs from a Gaussian of coordinates, maybe with a rectangle that is drawn first.

    Attributes
    ----------
    gaussian : CoordinateGaussian
    rows : GivenRows or None
    tails : SiteTails or None
        Only without rows.
    """

    gaussian: cg.CoordinateGaussian
    rows: GivenRows | None = field(default=None, kw_only=True)
    tails: SiteTails | None = field(default=None, kw_only=True)

    @property
    def n_modes(self) -> int:
        """Modes that it is about."""
        return 1

    @property
    def n_dims(self) -> int:
        """Uniforms needed for one draw: of the rows, of x, of tails, and one to pick a member."""
        if self.rows is not None:
            return self.rows.proposal.n_dims + self.rows.spread.shape[1] + 1
        return self.gaussian.mean.size + (1 if self.tails is None else 3)

    def members(self, points: FloatArray) -> Members:
        """Of uniform points, a draw a column."""
        if self.rows is not None:
            m, d = self.rows.proposal.n_dims, self.rows.spread.shape[1]
            u, log_rows = self.rows.proposal.draw(points[:m])
            centre = self.rows.gain @ u
            off = self.rows.spread @ np.asarray(ndtri(points[m : m + d]))
            u += self.rows.shift[:, None]
            return Members(centre + off, centre - off, log_rows.copy(), log_rows, u)
        r, tails = self.gaussian.mean.size, self.tails
        white = np.asarray(ndtri(points[:r]))
        if tails is None:
            return Members(white, -white, np.zeros(white.shape[1]), np.zeros(white.shape[1]), None)
        mirrored = tails.moved(-white, points[r], 1.0 - points[r + 1])
        white = tails.moved(white, points[r], points[r + 1])
        return Members(white, mirrored, -tails.log_ratio(white), -tails.log_ratio(mirrored), None)

    def log_over_prior(self, coordinates: FloatArray, rows: FloatArray | None) -> FloatArray:
        """Log of the density of columns and their rows, over that before sites of a likelihood."""
        white = self.gaussian.white(coordinates)
        found = -self.gaussian.log_ratio(coordinates, white)
        if self.tails is not None:
            found += self.tails.log_ratio(white)
        if self.rows is not None:
            assert rows is not None
            found -= self.rows.log_weights_of(rows)
        return found

    def mirrored(self, white: FloatArray, rows: FloatArray) -> FloatArray:
        """The other member's white coordinates, given the rows of both."""
        assert self.rows is not None
        return 2.0 * (self.rows.gain @ (rows - self.rows.shift[:, None])) - white


@dataclass(frozen=True)
class EPPairs(GaussianPairs, DrawnInPairs):
    """Pairs from EP's Gaussian of coordinates under sites.

    Attributes
    ----------
    drawn_sum : DrawnSum or None
        Of sites that are not all log-concave.
    """

    drawn_sum: DrawnSum | None = field(default=None, kw_only=True)

    def in_place(self) -> DrawnSum | None:
        """See `DrawnInPairs`."""
        return self.drawn_sum

    @property
    @abstractmethod
    def n_sites(self) -> int:
        """Number of sites."""

    @abstractmethod
    def log_prob(self, coordinates: FloatArray) -> FloatArray:
        """Log density of the sites, of columns."""

    def pairs(self, points: FloatArray) -> Pairs:
        """See `DrawnInPairs`."""
        return self._weighed(*self.members(points)[:4])

    def _weighed(
        self, white: FloatArray, mirrored: FloatArray, log_plus: FloatArray, log_minus: FloatArray
    ) -> Pairs:
        """Pairs of white coordinates, from EP's Gaussian over what they are drawn from."""
        plus, minus = self.gaussian.of_white(white), self.gaussian.of_white(mirrored)
        log_plus += self.gaussian.log_ratio(plus, white) + self.log_prob(plus)
        log_minus += self.gaussian.log_ratio(minus, mirrored) + self.log_prob(minus)
        return Pairs(plus, minus, log_plus, log_minus)

    @abstractmethod
    def missing(self, n_draws: int) -> float:
        """Sum of squared shares of the evidence in tails of sites that draws hardly meet."""

    def unseen_share(self, n_draws: int) -> float:
        """Relative error of the evidence from tails that so many draws hardly meet."""
        return float(np.sqrt(self.missing(n_draws) + self.unseen_of_rows(n_draws) ** 2))

    def unseen_of_rows(self, n_draws: int) -> float:
        """The same of those of the rows alone."""
        return 0.0 if self.rows is None else self.rows.proposal.unseen_share(n_draws)


@dataclass(frozen=True)
class PairProposal(EPPairs):
    """With sites as a function of all coordinates.

    Attributes
    ----------
    sites : SiteLogDensity
    marginals : SiteMarginals
    """

    sites: cg.SiteLogDensity
    marginals: cg.SiteMarginals

    @property
    def n_sites(self) -> int:
        """See `EPPairs`."""
        return self.sites.offset.size

    def log_prob(self, coordinates: FloatArray) -> FloatArray:
        """See `EPPairs`."""
        return self.sites(coordinates)

    def pair_at(self, coordinates: FloatArray, u: FloatArray) -> Pairs:
        """The pair of one c and its rows u, less their mean before EP's sites of the likelihood.

        Of a proposal with rows that knows the weight of any of them.
        """
        assert self.rows is not None
        white, u = self.gaussian.white(coordinates[:, None]), u[:, None]
        log_rows = self.rows.log_weights_of(u)
        return self._weighed(white, self.mirrored(white, u), log_rows.copy(), log_rows)

    def missing(self, n_draws: int) -> float:
        """See `EPPairs`."""
        missing = self.marginals.missing(self.sites.off, n_draws)
        if self.tails is not None:
            missing[self.tails.covered] = 0.0
        return float(missing @ missing)


def picked(pairs: Pairs, uniform: FloatArray) -> FloatArray:
    """A member of each pair, drawn by their weights."""
    # Where both are impossible it does not matter which.
    with np.errstate(over="ignore", invalid="ignore"):
        share = 1.0 / (1.0 + np.exp(pairs.log_minus - pairs.log_plus))
    return np.where(uniform < share, pairs.plus, pairs.minus)


def pair_proposal(
    gaussian: cg.CoordinateGaussian,
    sites: cg.SiteLogDensity,
    marginals: cg.SiteMarginals,
    rows: GivenRows | None,
    *,
    moments: bool = True,
) -> PairProposal:
    """With tails of single sites drawn apart, where they need it and there are no rows.

    Where few sites have them also for the sake of third `moments`, which a value alone has no use
    for: it is known worse.
    """
    if rows is not None:
        return PairProposal(gaussian, sites, marginals, rows=rows)
    gaussian, marginals = cg.with_grouped_sites(gaussian, sites, marginals)
    tails = site_tails(gaussian, sites, marginals, _APART, _DRAWS, moments=moments)
    return PairProposal(gaussian, sites, marginals, tails=tails)
