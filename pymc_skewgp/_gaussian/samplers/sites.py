"""Draws of coordinates under sites: EP, mirrored pairs, and tempering where these are too few."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from pymc_skewgp._errors import DoublePrecisionError
from pymc_skewgp._gaussian.points import uniform_points
from pymc_skewgp._gaussian.proposals.pairs import Pairs, Surrogate, picked
from pymc_skewgp._gaussian.proposals.policy import (
    DEFAULT,
    SamplerSettings,
    pilot_log_weights,
)
from pymc_skewgp._gaussian.proposals.runs import (
    MIN_DRAWS,
    N_REPLICATES,
    SamplingResult,
    temper_in_batches,
)
from pymc_skewgp._gaussian.proposals.tempering import Proposal
from pymc_skewgp._gaussian.rectangle import warn_of_few
from pymc_skewgp._gaussian.truncated_draws import TruncatedDraws
from pymc_skewgp._gaussian.weights import (
    log_mean_exp,
    relative_ess,
    replicate_estimate,
    spread_of_replicates,
)
from pymc_skewgp._threads import few_blas_threads
from pymc_skewgp._validation import FloatArray

# Relative ESS that the true weights of a surrogate's draws have to have.
_LEAST_ALIKE = 0.8
# Share of the evidence in tails that draws hardly meet, from which on they are tempered.
_LARGEST_UNSEEN = 0.005
# Share of impossible draws under several sites, whose ends EP does not see together: with a tenth
# of them standard deviations were a tenth too small. One site's moments are those of quadrature.
_MOST_IMPOSSIBLE = 0.01
# Relative ESS of a pilot run of so many pairs, below which nothing is tempered from them where
# there is another proposal: evidences of a hundred coordinates, tempered from pairs of .34, lay
# 1.5 of their errors apart.
_COLLAPSED, _PILOT = 0.5, 256


class ProposalOfPairs(Proposal, Protocol):
    """A proposal whose draws come in pairs."""

    @property
    def n_sites(self) -> int:
        """Number of sites."""
        ...

    @property
    def n_modes(self) -> int:
        """Modes that it is about."""
        ...

    def pairs(self, points: FloatArray) -> Pairs:
        """Both members of each pair."""
        ...

    def surrogate(self) -> Surrogate | None:
        """What tempering takes less time with; None where there is nothing."""
        ...


@dataclass(frozen=True)
class SiteSampler:
    """Draws from a proposal of pairs, by the escalation policy: pairs, then tempering from them.

    Attributes
    ----------
    proposal : ProposalOfPairs
    settings : SamplerSettings
        Thresholds.
    """

    proposal: ProposalOfPairs
    settings: SamplerSettings = DEFAULT

    @cached_property
    def collapsed(self) -> bool:
        """Whether pairs leave next to nothing of their draws: of a run that is not used again."""
        rng = np.random.default_rng(self.settings.pilot_seed)
        with few_blas_threads(self.proposal.n_sites), np.errstate(all="ignore"):
            log_weights = pilot_log_weights(self.proposal, _PILOT, rng)
        return not relative_ess(log_weights) >= _COLLAPSED

    def members(self, n_pairs: int, rng: np.random.Generator) -> TruncatedDraws:
        """Both members of `n_pairs` pairs, each with its weight; of tempered draws one each."""
        return self._draws(n_pairs, rng, both=True)

    def singles(self, n_draws: int, rng: np.random.Generator) -> TruncatedDraws:
        """One member of each of `n_draws` pairs, with the weight of the pair."""
        return self._draws(n_draws, rng, both=False)

    def _tempered(self, n_pairs: int, rng: np.random.Generator) -> SamplingResult:
        """Tempered draws; by a surrogate, where this leaves weights that are nearly equal."""
        settings = self.settings
        surrogate = self.proposal.surrogate()
        if surrogate is not None:
            found = temper_in_batches(
                surrogate.proposal, n_pairs, rng, settings.largest_se, settings
            )
            log_ratio = surrogate.log_ratio(found.u)
            if relative_ess(log_ratio) >= _LEAST_ALIKE:
                return _reweighted(found, log_ratio)
        return temper_in_batches(self.proposal, n_pairs, rng, settings.largest_se, settings)

    def _draws(self, n_pairs: int, rng: np.random.Generator, *, both: bool) -> TruncatedDraws:
        proposal, settings = self.proposal, self.settings
        n_sites = proposal.n_sites
        with few_blas_threads(n_sites):
            size = -(-max(n_pairs, MIN_DRAWS) // N_REPLICATES)
            points = uniform_points(proposal.n_dims, size, N_REPLICATES, rng)
            pairs = proposal.pairs(points)
            log_weights = pairs.log_weights
            if np.isnan(log_weights).any() or not np.isfinite(log_weights.max()):
                raise DoublePrecisionError(
                    "the importance weights are not finite: the data and the prior are too far "
                    "apart for double precision. Check units and offsets."
                )
            impossible = float(np.isneginf([pairs.log_plus, pairs.log_minus]).mean())
            if impossible > _MOST_IMPOSSIBLE and n_sites > 1:
                raise DoublePrecisionError(
                    f"the likelihood is 0 at {100 * impossible:.0f} % of the draws about the "
                    "posterior's Gaussian approximation: it ends at a value that depends on the "
                    "latent variables, as that of pm.Uniform with such a bound does, and draws "
                    "near its end are too few to say where. Use pm.sample."
                )
            estimate = replicate_estimate(log_weights, N_REPLICATES)
            unseen = proposal.unseen_share(log_weights.size)
            error = float(np.hypot(estimate.std_error, unseen))
            estimate = estimate._replace(std_error=error)
            # Weights of draws that all missed a tail are all alike.
            near = unseen <= _LARGEST_UNSEEN
            if not (near and settings.accepts_first(estimate, "draws", n_sites)):
                result = self._tempered(n_pairs, rng)
                warn_of_few(result.log_prob, n_pairs, settings.largest_se)
                return TruncatedDraws(
                    result.u.T,
                    result.log_weights,
                    result.log_prob,
                    result.method,
                    replicate=result.replicate,
                    n_modes=proposal.n_modes,
                )
        replicate = np.repeat(np.arange(N_REPLICATES), size)
        if not both:
            # Not by a coordinate of the points: evenly spaced ones go with the others of x.
            single = picked(pairs, rng.random(log_weights.size))[:, :n_pairs].T
            return TruncatedDraws(
                single, log_weights[:n_pairs], estimate, "pairs", n_modes=proposal.n_modes
            )
        kept = [x[..., :n_pairs] for x in pairs]
        return TruncatedDraws(
            np.concatenate([kept[0].T, kept[1].T]),
            np.concatenate([kept[2], kept[3]]),
            estimate,
            "pairs",
            replicate=np.tile(replicate[:n_pairs], 2),
            n_modes=proposal.n_modes,
        )


def _reweighted(found: SamplingResult, log_ratio: FloatArray) -> SamplingResult:
    """The same draws for another target, given the log of its weights over theirs."""
    log_weights = found.log_weights + log_ratio
    gain = log_mean_exp(log_weights) - log_mean_exp(found.log_weights)
    assert found.replicate is not None  # of tempered runs
    own = np.array(
        [log_mean_exp(log_weights[found.replicate == i]) for i in np.unique(found.replicate)]
    )
    before = found.log_prob
    fraction = before.relative_ess * relative_ess(log_ratio)
    # A replicate's evidence and its mean ratio are not independent.
    error = max(before.std_error, spread_of_replicates(own, log_mean_exp(own)))
    after = before._replace(value=before.value + gain, std_error=error, relative_ess=fraction)
    return replace(found, log_weights=log_weights, log_prob=after)
