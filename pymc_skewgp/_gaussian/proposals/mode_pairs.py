r"""Mirrored pairs about several modes, for factors that are not log-concave.

A component is chosen for each pair, EP's Gaussian with its tails, Laplace's at a mode, a wider one
there, or the prior, and both members of the pair are weighed by the density of the mixture,

.. math:: W(c) = \frac{\prod_i p(y_i \mid \eta_i)\, N(c; 0, I)}{\sum_k \pi_k\, q_k(c)}

(Veach & Guibas 1995, doi:10.1145/218380.218498; Owen & Zhou 2000,
doi:10.1080/01621459.2000.10473909): each component is symmetric about its mean, and the mean weight
of a pair is unbiased whatever the modes are. The share of the prior bounds the weights where the
factors are bounded.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp, ndtri

from pymc_skewgp._gaussian.proposals.coordinate_gaussian import CoordinateGaussian
from pymc_skewgp._gaussian.proposals.modes import Mode, find_modes
from pymc_skewgp._gaussian.proposals.pairs import PairProposal, Pairs, Surrogate, picked
from pymc_skewgp._gaussian.proposals.tabulated import TabulatedDensity
from pymc_skewgp._gaussian.site_factors import SiteFactors
from pymc_skewgp._gaussian.weights import log_mean_exp, normalized_weights
from pymc_skewgp._validation import FloatArray

# Shares of EP's Gaussian, of the prior, and of a Gaussian about what EP's misses; the rest is of
# modes, by evidence, but of none less than this part of equal shares. Part of a mode's share that
# its wider Gaussian has. Shares are multiples of one over the last.
_OF_EP, _OF_PRIOR, _OF_MISSED, _LEAST, _WIDE, _FRACTIONS = 0.3, 0.1, 0.2, 0.4, 0.25, 32
# Draws of the prior by which mass is looked for that EP's Gaussian hardly meets, and of the pilot
# run that says what the evidence is; times the mean weight that are much; the error of second
# moments from which on it matters, and draws that would have it.
_DRAWS, _PILOT, _HARDLY, _MATTERS, _OF_MOMENTS = 512, 128, 3.0, 0.02, 1024


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

    def pairs(self, points: FloatArray) -> Pairs:
        """Both members of each pair; the last of the points, which picks one, is not used."""
        chosen = np.searchsorted(np.cumsum(self.shares)[:-1], points[0], side="right")
        r = self.ep.gaussian.mean.size
        plus, minus = np.empty((2, r, chosen.size))
        own = np.flatnonzero(chosen == 0)
        plus[:, own], minus[:, own] = self.ep.members(points[1:, own])
        for k, gaussian in enumerate(self.others, start=1):
            own = np.flatnonzero(chosen == k)
            off = gaussian.spread @ np.asarray(ndtri(points[1 : r + 1, own]))
            plus[:, own], minus[:, own] = gaussian.mean[:, None] + [off, -off]
        return Pairs(plus, minus, self._log_weights(plus), self._log_weights(minus))

    def _log_weights(self, c: FloatArray) -> FloatArray:
        parts = [self.ep.log_over_prior(c), *(own.log_over_prior(c) for own in self.others)]
        return self.ep.sites(c) - logsumexp(np.array(parts), axis=0, b=self.shares[:, None])

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
    sites, ep = proposal.sites, proposal.gaussian
    if factors.log_concave or proposal.rows is not None:
        return proposal
    modes = find_modes(sites, factors.slopes, ep.mean)
    missed = _missed(proposal)
    if not modes and missed is None:
        return proposal
    prior = CoordinateGaussian(np.zeros(ep.mean.size), np.eye(ep.mean.size))
    spread = [prior] if missed is None else [prior, missed]
    of_spread = [_OF_PRIOR] if missed is None else [_OF_PRIOR, _OF_MISSED]
    own = _shares(modes) * (1.0 - _OF_EP - sum(of_spread))
    parts = [(1.0 - _WIDE) * own, _WIDE * own, of_spread]
    shares = _rounded(np.concatenate([[1.0 - own.sum() - sum(of_spread)], *parts]))
    gaussians = *(x.gaussian for x in modes), *(x.wide for x in modes), *spread
    return ModePairs(proposal, gaussians, shares, max(len(modes), 1))


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


def _missed(proposal: PairProposal) -> CoordinateGaussian | None:
    """About posterior mass that draws of the proposal hardly meet, such as a plateau.

    None where the error of second moments by a thousand draws would be hardly of these few.
    """
    rng, gaussian = np.random.default_rng(0), proposal.gaussian
    r = gaussian.mean.size
    with np.errstate(all="ignore"):
        c = rng.standard_normal((r, _DRAWS))
        log_likelihood = proposal.sites(c)
        log_weights = log_likelihood - proposal.log_over_prior(c)
        evidence = log_mean_exp(proposal.draw(rng.random((proposal.n_dims, _PILOT)))[1])
        hardly = log_weights > evidence + np.log(_HARDLY)
        c, log_likelihood = c[:, hardly], log_likelihood[hardly]
        square = (gaussian.white(c) ** 2).mean(axis=0)
        variance = np.exp(log_likelihood - evidence) @ square**2 / _DRAWS
        if not variance > _MATTERS**2 * _OF_MOMENTS:
            return None
    weights = normalized_weights(log_likelihood)
    mean = c @ weights
    # Smoothed as a density of so many draws is (Silverman 1986).
    smooth = float(weights @ weights) ** (2.0 / (r + 4.0))
    covariance = ((c - mean[:, None]) * weights) @ (c - mean[:, None]).T + smooth * np.eye(r)
    return CoordinateGaussian(mean, np.linalg.cholesky(np.linalg.inv(covariance)))
