r"""Mirrored pairs about several modes, for factors that are not log-concave.

A component is chosen for each pair, EP's Gaussian with its tails, Laplace's at a mode, a wider one
there, or the prior, and both members of the pair are weighed by the density of the mixture,

.. math:: W(c) = \frac{\prod_i p(y_i \mid \eta_i)\, N(c; 0, I)}{\sum_k \pi_k\, q_k(c)}

(Veach & Guibas 1995, doi:10.1145/218380.218498; Owen & Zhou 2000,
doi:10.1080/01621459.2000.10473909): each component is symmetric about its mean, and the mean weight
of a pair is unbiased whatever the modes are. The share of the prior bounds the weights where the
factors are bounded.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp, ndtri

from pymc_skewgp._gaussian.proposals.coordinate_gaussian import CoordinateGaussian
from pymc_skewgp._gaussian.proposals.modes import Mode, find_modes
from pymc_skewgp._gaussian.proposals.pairs import PairProposal, Pairs, Surrogate, picked
from pymc_skewgp._gaussian.proposals.tabulated import TabulatedDensity
from pymc_skewgp._gaussian.site_factors import SiteFactors
from pymc_skewgp._gaussian.weights import log_mean_exp, normalized_weights
from pymc_skewgp._validation import FloatArray

# Shares of EP's Gaussian beside several modes, of the prior, and of a Gaussian about what others
# hardly meet. Of the modes by evidence, but of none less than this part of equal shares; part of a
# mode's share that its wider Gaussian has. Shares are multiples of one over the last.
_OF_EP, _OF_PRIOR, _OF_MISSED, _LEAST, _WIDE, _FRACTIONS = 0.4, 0.1, 0.15, 0.4, 0.25, 32
# Pairs by which mass is looked for that draws hardly meet, as many from the prior; times the mean
# weight that such draws weigh. What they hold of a predictor's fourth moment, in deviations, from
# which on the prior has its share, and from which on a Gaussian about them.
_PILOT, _HARDLY, _DEFENDED, _MATTERS = 256, 2.0, 0.002, 0.05


@dataclass(frozen=True)
class ModePairs:
    """A mixture of proposals for coordinates under sites.

    Attributes
    ----------
    ep : PairProposal
        Without rows: the first component.
    others : tuple of CoordinateGaussian
    shares : ndarray, shape (1 + len(others),)
        That sum to 1.
    n_modes : int
    """

    ep: PairProposal
    others: tuple[CoordinateGaussian, ...]
    shares: FloatArray
    n_modes: int

    @property
    def first(self) -> TabulatedDensity | None:
        """No leading direction."""
        return None

    @property
    def n_dims(self) -> int:
        """Uniforms needed for one draw: which component, and those of EP's."""
        return 1 + self.ep.n_dims

    @property
    def n_sites(self) -> int:
        """Number of sites."""
        return self.ep.n_sites

    def members(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Coordinates of both members of each pair, not weighed."""
        chosen = np.searchsorted(np.cumsum(self.shares)[:-1], points[0], side="right")
        r = self.ep.gaussian.mean.size
        plus, minus = np.empty((2, r, chosen.size))
        own = np.flatnonzero(chosen == 0)
        plus[:, own], minus[:, own] = self.ep.members(points[1:, own])
        for k, gaussian in enumerate(self.others, start=1):
            own = np.flatnonzero(chosen == k)
            off = gaussian.spread @ np.asarray(ndtri(points[1 : r + 1, own]))
            plus[:, own], minus[:, own] = gaussian.mean[:, None] + [off, -off]
        return plus, minus

    def log_over_prior(self, coordinates: FloatArray) -> FloatArray:
        """Log of the density over N(c; 0, I), of columns."""
        parts = [self.ep.log_over_prior(coordinates)]
        parts += [own.log_over_prior(coordinates) for own in self.others]
        return np.asarray(logsumexp(np.array(parts), axis=0, b=self.shares[:, None]))

    def pairs(self, points: FloatArray) -> Pairs:
        """Both members of each pair; the last of the points, which picks one, is not used."""
        plus, minus = self.members(points)
        logs = [self.ep.sites(c) - self.log_over_prior(c) for c in (plus, minus)]
        return Pairs(plus, minus, *logs)

    def draw(
        self, points: FloatArray, *, overwrite_points: bool = False
    ) -> tuple[FloatArray, FloatArray]:
        """One member of each pair as columns, picked by its weight, and the pairs' log weights."""
        pairs = self.pairs(points)
        return picked(pairs, points[-1]), pairs.log_weights

    def surrogate(self) -> Surrogate | None:
        """None."""
        return None

    def unseen_share(self, n_draws: int) -> float:
        """That of EP's Gaussian."""
        return self.ep.unseen_share(n_draws)


def with_modes(proposal: PairProposal, factors: SiteFactors) -> PairProposal | ModePairs:
    """The proposal as it is, where the posterior has one mode that it covers; else a mixture.

    Parameters
    ----------
    proposal : PairProposal
        With rows it stays as it is.
    factors : SiteFactors
        After EP. Where all of them are log-concave there is one mode.
    """
    if factors.log_concave or proposal.rows is not None:
        return proposal
    ep = proposal.gaussian
    modes = find_modes(proposal.sites, factors.slopes, ep.mean)
    core: PairProposal | ModePairs = proposal
    if modes:
        own = (1.0 - _OF_EP) * _shares(modes)
        shares = np.concatenate([[_OF_EP], (1.0 - _WIDE) * own, _WIDE * own])
        gaussians = *(x.gaussian for x in modes), *(x.wide for x in modes)
        core = ModePairs(proposal, gaussians, shares, len(modes))
    prior = CoordinateGaussian(np.zeros(ep.mean.size), np.eye(ep.mean.size))
    spread = _spread(core, proposal, prior)
    if not modes and not spread:
        return proposal
    if isinstance(core, PairProposal):
        core = ModePairs(core, (), np.ones(1), 1)
    spread = spread or [prior]
    own = np.array([_OF_PRIOR, _OF_MISSED][: len(spread)])
    shares = _rounded(np.concatenate([(1.0 - own.sum()) * core.shares, own]))
    return replace(core, others=(*core.others, *spread), shares=shares)


def _rounded(shares: FloatArray) -> FloatArray:
    """To fractions with which evenly spaced points have as many of each component every time."""
    counts = np.maximum(np.round(_FRACTIONS * shares), 1.0)
    counts[counts.argmax()] += _FRACTIONS - counts.sum()
    return np.asarray(counts / _FRACTIONS)


def _shares(modes: list[Mode]) -> FloatArray:
    if not modes:
        return np.zeros(0)
    evidence = np.array([mode.log_evidence for mode in modes])
    share = np.exp(evidence - logsumexp(evidence))
    share = np.maximum(share, _LEAST / len(modes))
    return np.asarray(share / share.sum())


def _spread(
    core: PairProposal | ModePairs, ep: PairProposal, prior: CoordinateGaussian
) -> list[CoordinateGaussian]:
    """The prior, and a Gaussian about posterior mass that `core` hardly meets, such as a plateau.

    Each only where it matters.
    """
    rng, r = np.random.default_rng(0), prior.mean.size
    own = core.members(rng.random((core.n_dims, _PILOT)))
    c = np.hstack([*own, rng.standard_normal((r, 2 * _PILOT))])
    with np.errstate(all="ignore"):
        logs, log_core = ep.sites(c), core.log_over_prior(c)
        logs[np.isnan(logs)] = -np.inf
        log_weights = logs - np.logaddexp(log_core, 0.0)
        hardly = logs - log_core > log_mean_exp(log_weights) + np.log(2.0 * _HARDLY)
    weights = normalized_weights(log_weights)
    off = ep.sites.factor @ (c - (c @ weights)[:, None])
    off **= 2
    # EP's variance, for where few draws have all of the weight.
    off /= np.maximum(off @ weights, ep.marginals.variance)[:, None]
    c, weights, off = c[:, hardly], weights[hardly], off[:, hardly]
    fourth = (off**2 @ weights).max(initial=0.0)
    if fourth < _MATTERS:
        return [prior] if fourth > _DEFENDED else []
    weights = weights * off.mean(axis=0)
    weights /= weights.sum()
    mean = c @ weights
    # Smoothed as a density of so many draws is (Silverman 1986).
    smooth = float(weights @ weights) ** (2.0 / (r + 4.0))
    covariance = ((c - mean[:, None]) * weights) @ (c - mean[:, None]).T + smooth * np.eye(r)
    return [prior, CoordinateGaussian(mean, np.linalg.cholesky(np.linalg.inv(covariance)))]
