r"""A step on (theta, f) under sites by mirrored pairs, hyperparameters moved with f integrated out.

At each theta EP's Gaussian of f makes a map :math:`f = f_\theta(x)` from white coordinates x ~
N(0, I), and weights :math:`W_\theta(x)`: the density of f and the data over that of EP's Gaussian.
The step adds N vectors x_j, a place k and a sign s to the state, with the density

.. math:: \tilde\pi(\theta, x_1, \dots, x_N, k, s) \propto p(\theta) \prod_j N(x_j; 0, I)\;
    W_\theta(s x_k), \qquad f = f_\theta(s x_k).

*It has the right marginal.* Integrate out the other vectors: given any k and s, (theta, s x_k) has
the density :math:`p(\theta) N(x; 0, I) W_\theta(x)`, N(0, I) being symmetric. Under the map
:math:`f_\theta` that is the density of theta, f and the data, whatever EP's Gaussian is.

*The step leaves it as it is.* In three moves, each on some of the variables given the others:

1. All but theta and f are drawn anew: (k, s) is uniform on its 2 N values and independent of
   (theta, s x_k), so it may be put to (1, +), with :math:`x_1 = f_\theta^{-1}(f)`; the other
   vectors are independent of it, N(0, I).
2. theta given all vectors, k and s integrated out: their sum makes of the density :math:`p(\theta)
   \hat Z_\theta(x)`, with the mean weight :math:`\hat Z` of the members :math:`\pm x_j`. Slices
   at fixed vectors are on a function without noise (Murray & Graham 2016, arXiv:1510.02958).
3. (k, s) given theta and the vectors: a member drawn by its weight, and with it f.

Without 2 it is iterated sampling importance resampling in pairs (Andrieu, Lee & Vihola 2018,
doi:10.3150/15-BEJ785); with one vector and no sign, 1 and 2 are a slice at a fixed whitened f.
:math:`\hat Z` is an estimate of the evidence (Andrieu & Roberts 2009, doi:10.1214/07-AOS574) whose
error is that of few pairs, hundredths of a nat as a rule: nearly the chain with f integrated out.

The map must be a function of theta alone during a step. It is one of the covariance at theta and
of sites that are fixed meanwhile, learnt while widths of slices are; where they do not serve, EP
begins with them, and need not reach its fixed point: the weights make up for all of it. Of a
covariance at its numerical rank r < p the map uses the first r entries of x; the others have no say
in the weights, and stay N(0, I).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from pymc_skewgp._gaussian.proposals.coordinate_gaussian import (
    CoordinateGaussian,
    coordinate_gaussian,
)
from pymc_skewgp._gaussian.proposals.pairs import Pairs
from pymc_skewgp._gaussian.weights import normalized_weights, relative_ess
from pymc_skewgp._mcmc.site_target import GaussianSites, SiteTarget
from pymc_skewgp._validation import FloatArray

# Residuals of EP where known sites do not serve, and where they are learnt.
_TOLERANCE, _REFERENCE_TOLERANCE = 0.5, 1e-2
# Of Newton's method from the mean of EP's Gaussian, squared, up to which known sites serve.
_DECREMENT = 0.5
_LEAST_SHARE = 0.05  # of the last theta in the mean of the sites
# Precision that all sites together may add to a direction of f that is left as in the prior.
_LEFT_OUT = 1e-2


@dataclass(frozen=True)
class SiteMap:
    """The map from x to c, and the weights, at one theta.

    Attributes
    ----------
    target : SiteTarget
    gaussian : CoordinateGaussian
        EP's of the leading coordinates; the others are as in the prior.
    """

    target: SiteTarget
    gaussian: CoordinateGaussian

    def pairs(self, white: FloatArray) -> Pairs:
        """Both members of pairs, `white` of shape (p, N)."""
        rank, leading = self.target.factor.pivots.size, self.gaussian.mean.size
        own, rest = white[:leading], white[leading:rank]
        off = solve_triangular(self.gaussian.chol, own, lower=True, trans="T", check_finite=False)
        c = np.concatenate([np.hstack([off, -off]), np.hstack([rest, -rest])])
        c[:leading] += self.gaussian.mean[:, None]
        log_weights = self.gaussian.log_ratio(c[:leading], np.hstack([own, own]))
        with np.errstate(all="ignore"):
            log_weights += self.target.density(c)
        log_weights[np.isnan(log_weights)] = -np.inf
        n = white.shape[1]
        return Pairs(c[:, :n], c[:, n:], log_weights[:n], log_weights[n:])

    def white(self, c: FloatArray) -> FloatArray:
        """The x of coordinates c, as many entries as they have."""
        leading = self.gaussian.mean.size
        own = self.gaussian.chol.T @ (c[:leading] - self.gaussian.mean)
        return np.concatenate([own, c[leading:]])


def site_map(target: SiteTarget, known: GaussianSites | None) -> SiteMap:
    """The map, a function of the target and of sites that are `known`, by these where they do.

    They do where the mean of the Gaussian that they make is near the mode of f: the decrement of a
    step of Newton's method says so. Elsewhere EP begins with them.
    """
    if known is not None:
        tau, nu = known.about(target.density.offset)
        gaussian = _gaussian(target, tau, nu)
        score = target.score(gaussian.mean, tau, nu)
        pull = target.density.factor[:, : gaussian.mean.size].T @ score
        step = solve_triangular(gaussian.chol, pull, lower=True, check_finite=False)
        if step @ step < _DECREMENT:
            return SiteMap(target, gaussian)
    found = target.ep(_TOLERANCE, known)
    size = target.density.offset.size
    if found is None:
        return SiteMap(target, _gaussian(target, np.zeros(size), np.zeros(size)))
    return SiteMap(target, _gaussian(target, *found.about(target.density.offset)))


def _gaussian(target: SiteTarget, tau: FloatArray, nu: FloatArray) -> CoordinateGaussian:
    """Of the coordinates that the sites have a say in."""
    leading = int(np.count_nonzero(target.factor.left * tau.sum() > _LEFT_OUT))
    return coordinate_gaussian(target.density.factor[:, :leading], tau, nu)


class Reference:
    """Sites that serve at many theta: a running mean of EP's along a chain.

    Attributes
    ----------
    sites : GaussianSites or None
        None before any.
    """

    def __init__(self) -> None:
        self.sites: GaussianSites | None = None
        self._count = 0

    def learn(self, target: SiteTarget) -> None:
        """Of one more theta."""
        found = target.ep(_REFERENCE_TOLERANCE, self.sites)
        if found is not None:
            self._count += 1
            share = max(1.0 / self._count, _LEAST_SHARE)
            self.sites = found if self.sites is None else self.sites.mixed(found, share)


class Weighed(NamedTuple):
    """The members of all pairs at one theta."""

    target: SiteTarget
    pairs: Pairs

    @property
    def log_weights(self) -> FloatArray:
        """Of the members, shape (2 N,)."""
        return np.concatenate([self.pairs.log_plus, self.pairs.log_minus])

    @property
    def log_evidence(self) -> float:
        """Log of the mean weight."""
        weights = self.log_weights
        largest = weights.max()
        if not np.isfinite(largest):
            return -np.inf
        return float(largest + np.log(np.exp(weights - largest).mean()))

    def pick(self, rng: np.random.Generator) -> tuple[FloatArray, dict[str, float]]:
        """The f of a member drawn by its weight, and what is known of the step."""
        log_weights = self.log_weights
        i = int(rng.choice(log_weights.size, p=normalized_weights(log_weights)))
        c = np.concatenate([self.pairs.plus, self.pairs.minus], axis=1)[:, i]
        stats = {
            "accept": float(i != 0),
            "log_weight": float(log_weights[i]) - self.log_evidence,
            "relative_ess": relative_ess(self.pairs.log_weights),
        }
        return self.target.function(c), stats


@dataclass(frozen=True)
class SitePairs:
    """The vectors x_j of a step, the first that of the state; see the module.

    Attributes
    ----------
    white : ndarray, shape (p, N)
    known : GaussianSites or None
        See `site_map`.
    """

    white: FloatArray
    known: GaussianSites | None

    @classmethod
    def around(
        cls,
        c: FloatArray,
        here: SiteMap,
        known: GaussianSites | None,
        n: int,
        rng: np.random.Generator,
    ) -> "SitePairs":
        """Drawn given the coordinates of f, `here` being the map at its theta."""
        white = rng.standard_normal((here.target.mean.size, n))
        own = here.white(c)
        white[: own.size, 0] = own
        return cls(white, known)

    def at(self, target: SiteTarget) -> Weighed:
        """Their members' weights at another theta."""
        return self.weighed(site_map(target, self.known))

    def weighed(self, there: SiteMap) -> Weighed:
        """The same, the map being known."""
        return Weighed(there.target, there.pairs(self.white))
