r"""Mirrored pairs from EP's Gaussian, for likelihoods that are functions of one predictor each.

Coordinates c ~ N(0, I) with sites :math:`p(y_i \mid \eta_i)`, :math:`\eta = a + F c`, and maybe
with a rectangle for rows u that are jointly Gaussian with c. EP's sites make of N(0, I) the
Gaussian :math:`q = N(c_0, P^{-1})`. Under q the rectangle is drawn first, and c given u is
:math:`E[c \mid u] \pm x`: both members of a pair have one density, so the mean of their weights
:math:`W(c) = \prod_i p(y_i \mid \eta_i) N(c; 0, I) / q(c)` is a weight of the pair. What EP's
Gaussian lacks first is skewness, whose effect on log W is odd and cancels within a pair.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import ndtri

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.operators.dense import DenseCovariance
from pymc_skewgp._gaussian.proposals.coordinate_gaussian import (
    CoordinateGaussian,
    SiteLogDensity,
    SiteMarginals,
)
from pymc_skewgp._gaussian.proposals.grouped_sites import with_grouped_sites
from pymc_skewgp._gaussian.proposals.site_tails import SiteTails, site_tails
from pymc_skewgp._gaussian.proposals.tabulated import TabulatedDensity
from pymc_skewgp._gaussian.proposals.tempering import Proposal
from pymc_skewgp._validation import FloatArray

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


@dataclass(frozen=True)
class PairProposal:
    """A proposal for coordinates under sites, maybe with a rectangle.

    Attributes
    ----------
    gaussian : CoordinateGaussian
        EP's.
    sites : SiteLogDensity
    marginals : SiteMarginals
    rows : GivenRows or None
    tails : SiteTails or None
        Only without rows.
    """

    gaussian: CoordinateGaussian
    sites: SiteLogDensity
    marginals: SiteMarginals
    rows: GivenRows | None = None
    tails: SiteTails | None = None

    @property
    def first(self) -> TabulatedDensity | None:
        """No leading direction but that of the rows."""
        return None

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

    @property
    def n_sites(self) -> int:
        """Number of sites."""
        return self.sites.offset.size

    def pairs(self, points: FloatArray) -> Pairs:
        """Both members of each pair; the last of the points, which picks one, is not used."""
        return self._weighed(*self._white(points))

    def members(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Coordinates of both members of each pair, not weighed."""
        plus, minus, _, _ = self._white(points)
        return self.gaussian.of_white(plus), self.gaussian.of_white(minus)

    def log_over_prior(self, coordinates: FloatArray) -> FloatArray:
        """Log of the density, tails included, over N(c; 0, I), of columns; without rows."""
        white = self.gaussian.white(coordinates)
        log_tails = 0.0 if self.tails is None else self.tails.log_ratio(white)
        return log_tails - self.gaussian.log_ratio(coordinates, white)

    def pair_at(self, coordinates: FloatArray, u: FloatArray) -> Pairs:
        """The pair of one c and its rows u, less their mean before EP's sites of the likelihood.

        Of a proposal with rows that knows the weight of any of them.
        """
        rows, gaussian = self.rows, self.gaussian
        assert rows is not None
        white = gaussian.chol.T @ (coordinates - gaussian.mean)
        u = u - rows.shift
        log_rows = rows.proposal.log_weights_of(u[:, None])  # type: ignore[attr-defined]
        mirrored = 2.0 * (rows.gain @ u) - white
        return self._weighed(white[:, None], mirrored[:, None], log_rows.copy(), log_rows)

    def _weighed(
        self,
        white: FloatArray,
        mirrored: FloatArray,
        log_plus: FloatArray,
        log_minus: FloatArray,
    ) -> Pairs:
        """Pairs of white coordinates, from EP's Gaussian over what they are drawn from."""
        plus, minus = self.gaussian.of_white(white), self.gaussian.of_white(mirrored)
        log_plus += self.gaussian.log_ratio(plus, white) + self.sites(plus)
        log_minus += self.gaussian.log_ratio(minus, mirrored) + self.sites(minus)
        return Pairs(plus, minus, log_plus, log_minus)

    def _white(self, points: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """White coordinates of both members, and log EP's Gaussian over what they are drawn from.

        That of the rows included.
        """
        if self.rows is not None:
            m = self.rows.proposal.n_dims
            u, log_rows = self.rows.proposal.draw(points[:m])
            centre = self.rows.gain @ u
            off = self.rows.spread @ np.asarray(ndtri(points[m:-1]))
            return centre + off, centre - off, log_rows.copy(), log_rows
        r, tails = self.gaussian.mean.size, self.tails
        white = np.asarray(ndtri(points[:r]))
        if tails is None:
            return white, -white, np.zeros(white.shape[1]), np.zeros(white.shape[1])
        mirrored = tails.moved(-white, points[r], 1.0 - points[r + 1])
        white = tails.moved(white, points[r], points[r + 1])
        return white, mirrored, -tails.log_ratio(white), -tails.log_ratio(mirrored)

    def draw(
        self, points: FloatArray, *, overwrite_points: bool = False
    ) -> tuple[FloatArray, FloatArray]:
        """One member of each pair as columns, picked by its weight, and the pairs' log weights."""
        pairs = self.pairs(points)
        return picked(pairs, points[-1]), pairs.log_weights

    def surrogate(self) -> Surrogate | None:
        """None: with few rows all of them are met."""
        return None

    def unseen_share(self, n_draws: int) -> float:
        """Relative error of the evidence from tails that so many draws hardly meet."""
        missing = self.marginals.missing(self.sites, n_draws)
        if self.tails is not None:
            missing[self.tails.covered] = 0.0
        rows = 0.0 if self.rows is None else self.rows.proposal.unseen_share(n_draws)
        return float(np.sqrt(missing @ missing + rows**2))


def picked(pairs: Pairs, uniform: FloatArray) -> FloatArray:
    """A member of each pair, drawn by their weights."""
    # Where both are impossible it does not matter which.
    with np.errstate(over="ignore", invalid="ignore"):
        share = 1.0 / (1.0 + np.exp(pairs.log_minus - pairs.log_plus))
    return np.where(uniform < share, pairs.plus, pairs.minus)


def pair_proposal(
    gaussian: CoordinateGaussian,
    sites: SiteLogDensity,
    marginals: SiteMarginals,
    rows: GivenRows | None,
    *,
    moments: bool = True,
) -> PairProposal:
    """With tails of single sites drawn apart, where they need it and there are no rows.

    Where few sites have them also for the sake of third `moments`.
    """
    if rows is not None:
        return PairProposal(gaussian, sites, marginals, rows)
    gaussian, marginals = with_grouped_sites(gaussian, sites, marginals)
    tails = site_tails(gaussian, sites, marginals, _APART, _DRAWS, moments=moments)
    return PairProposal(gaussian, sites, marginals, tails=tails)
