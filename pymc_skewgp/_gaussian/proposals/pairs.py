r"""Mirrored pairs from EP's Gaussian, for likelihoods that are functions of one predictor each.

Coordinates c ~ N(0, I) with sites :math:`p(y_i \mid \eta_i)`, :math:`\eta = a + F c`, and maybe
with a rectangle for rows u that are jointly Gaussian with c. EP's sites make of N(0, I) the
Gaussian :math:`q = N(c_0, P^{-1})`. Under q the rectangle is drawn first, and c given u is
:math:`E[c \mid u] \pm x`: both members of a pair have one density, so the mean of their weights
:math:`W(c) = \prod_i p(y_i \mid \eta_i) N(c; 0, I) / q(c)` is a weight of the pair. What EP's
Gaussian lacks first is skewness, whose effect on log W is odd and cancels within a pair.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import ndtri

from pymc_skewgp._gaussian.proposals.tabulated import TabulatedDensity
from pymc_skewgp._gaussian.proposals.tempering import Proposal
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

    def of_white(self, white: FloatArray) -> FloatArray:
        """Coordinates mean + L^-T white, as columns."""
        left = solve_triangular(self.chol, white, lower=True, trans="T", check_finite=False)
        left += self.mean[:, None]
        return left

    def log_ratio(self, coordinates: FloatArray, white: FloatArray) -> FloatArray:
        """Log N(c; 0, I) / q(c), for columns of coordinates and what they are the images of."""
        ratio = np.einsum("ij,ij->j", white, white)
        ratio -= np.einsum("ij,ij->j", coordinates, coordinates)
        ratio *= 0.5
        ratio -= float(np.log(self.chol.diagonal()).sum())
        return ratio


@dataclass(frozen=True)
class GivenRows:
    """White coordinates given rows u: gain u + spread x, x standard normal.

    Attributes
    ----------
    proposal : Proposal
        Of u within its rectangle.
    gain, spread : ndarray, shape (r, m) and (r, d)
    """

    proposal: Proposal
    gain: FloatArray
    spread: FloatArray


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

    def unseen_share(self, sites: SiteLogDensity, n_draws: int) -> float:
        """Relative error of the evidence from tails of each predictor that draws hardly meet."""
        off = self.mean + np.sqrt(self.variance) * HERMITE_NODES[:, None]
        with np.errstate(over="ignore"):
            log_ratio = sites.log_prob(sites.offset + off)
        log_ratio -= (self.nu - 0.5 * self.tau * off) * off
        missing = missing_of_functions(log_ratio.T, n_draws)
        return float(np.sqrt(missing @ missing))


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
    """

    gaussian: CoordinateGaussian
    sites: SiteLogDensity
    marginals: SiteMarginals
    rows: GivenRows | None = None

    @property
    def first(self) -> TabulatedDensity | None:
        """No leading direction but that of the rows."""
        return None

    @property
    def n_dims(self) -> int:
        """Uniforms needed for one draw: of the rows, of x, and one that picks a member."""
        if self.rows is None:
            return self.gaussian.mean.size + 1
        return self.rows.proposal.n_dims + self.rows.spread.shape[1] + 1

    def pairs(self, points: FloatArray) -> Pairs:
        """Both members of each pair; the last of the points, which picks one, is not used."""
        if self.rows is None:
            white = np.asarray(ndtri(points[: self.gaussian.mean.size]))
            mirrored, log_rows = -white, np.zeros(points.shape[1])
        else:
            m = self.rows.proposal.n_dims
            u, log_rows = self.rows.proposal.draw(points[:m])
            centre = self.rows.gain @ u
            off = self.rows.spread @ np.asarray(ndtri(points[m:-1]))
            white, mirrored = centre + off, centre - off
        plus, minus = self.gaussian.of_white(white), self.gaussian.of_white(mirrored)
        log_plus = log_rows + self.gaussian.log_ratio(plus, white) + self.sites(plus)
        log_minus = log_rows + self.gaussian.log_ratio(minus, mirrored) + self.sites(minus)
        return Pairs(plus, minus, log_plus, log_minus)

    def draw(
        self, points: FloatArray, *, overwrite_points: bool = False
    ) -> tuple[FloatArray, FloatArray]:
        """One member of each pair as columns, picked by its weight, and the pairs' log weights."""
        pairs = self.pairs(points)
        return picked(pairs, points[-1]), pairs.log_weights

    def unseen_share(self, n_draws: int) -> float:
        """Relative error of the evidence from tails that so many draws hardly meet."""
        own = self.marginals.unseen_share(self.sites, n_draws)
        rows = 0.0 if self.rows is None else self.rows.proposal.unseen_share(n_draws)
        return float(np.hypot(own, rows))


def picked(pairs: Pairs, uniform: FloatArray) -> FloatArray:
    """A member of each pair, drawn by their weights."""
    with np.errstate(over="ignore"):
        share = 1.0 / (1.0 + np.exp(pairs.log_minus - pairs.log_plus))
    return np.where(uniform < share, pairs.plus, pairs.minus)
