"""Draws of coordinates under sites: EP, mirrored pairs, and tempering where these are too few."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve

from pymc_skewgp._errors import DoublePrecisionError
from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.operators.covariance import WithSites
from pymc_skewgp._gaussian.operators.dense import SemidefiniteMatrix
from pymc_skewgp._gaussian.operators.low_rank import LowRankCovariance
from pymc_skewgp._gaussian.points import uniform_points
from pymc_skewgp._gaussian.proposals.pairs import CoordinateGaussian, PairProposal, picked
from pymc_skewgp._gaussian.proposals.policy import DEFAULT, SamplerSettings
from pymc_skewgp._gaussian.proposals.runs import MIN_DRAWS, N_REPLICATES, temper_in_batches
from pymc_skewgp._gaussian.truncated_draws import TruncatedDraws
from pymc_skewgp._gaussian.weights import replicate_estimate
from pymc_skewgp._threads import few_blas_threads
from pymc_skewgp._validation import FloatArray

# Below this share of columns the low-rank form needs fewer operations than the dense one.
_LOW_RANK_SHARE = 0.3


def site_covariance(factor: FloatArray, noise: FloatArray | None = None) -> WithSites:
    """F F' of predictors, rows with `noise` before them, in the form that EP takes less time with.

    Parameters
    ----------
    factor : ndarray, shape (m + n, r)
    noise : ndarray, shape (m,) or (m, m), optional
        Variances of the first rows' noise, or its covariance.
    """
    n, r = factor.shape
    own = np.zeros(0) if noise is None else noise
    if r < _LOW_RANK_SHARE * n and own.ndim == 1:
        return LowRankCovariance(np.concatenate([own, np.zeros(n - own.size)]), factor)
    matrix = factor @ factor.T
    m = own.shape[0]
    matrix[:m, :m] += np.diag(own) if own.ndim == 1 else own
    return SemidefiniteMatrix(matrix)


def coordinate_gaussian(factor: FloatArray, tau: FloatArray, nu: FloatArray) -> CoordinateGaussian:
    """N(0, I) of the coordinates c times sites exp(-tau e^2/2 + nu e), with e = F c."""
    precision = factor.T @ (tau[:, None] * factor)
    precision[np.diag_indices_from(precision)] += 1.0
    chol, _ = linalg.cholesky("the precision of the coordinates", precision)
    return CoordinateGaussian(cho_solve((chol, True), factor.T @ nu), chol)


@dataclass(frozen=True)
class SiteSampler:
    """Draws from a proposal of pairs, by the escalation policy: pairs, then tempering from them.

    Attributes
    ----------
    proposal : PairProposal
    settings : SamplerSettings
        Thresholds.
    largest_unseen : float
        Where tails that draws hardly meet hold more than this share of the evidence, draws are
        tempered whatever their weights are: those of draws that missed a tail are all alike.
    """

    proposal: PairProposal
    settings: SamplerSettings = DEFAULT
    largest_unseen: float = 0.005

    def members(self, n_pairs: int, rng: np.random.Generator) -> TruncatedDraws:
        """Both members of `n_pairs` pairs, each with its weight; of tempered draws one each."""
        return self._draws(n_pairs, rng, both=True)

    def singles(self, n_draws: int, rng: np.random.Generator) -> TruncatedDraws:
        """One member of each of `n_draws` pairs, with the weight of the pair."""
        return self._draws(n_draws, rng, both=False)

    def _draws(self, n_pairs: int, rng: np.random.Generator, *, both: bool) -> TruncatedDraws:
        proposal, settings = self.proposal, self.settings
        n_sites = proposal.sites.offset.size
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
            estimate = replicate_estimate(log_weights, N_REPLICATES)
            unseen = proposal.unseen_share(log_weights.size)
            error = float(np.hypot(estimate.std_error, unseen))
            estimate = estimate._replace(std_error=error)
            near = unseen <= self.largest_unseen
            if not (near and settings.accepts_first(estimate, "draws", n_sites)):
                result = temper_in_batches(proposal, n_pairs, rng, settings.largest_se, settings)
                return TruncatedDraws(
                    result.u.T,
                    result.log_weights,
                    result.log_prob,
                    result.method,
                    replicate=result.replicate,
                )
        replicate = np.repeat(np.arange(N_REPLICATES), size)
        if not both:
            single = picked(pairs, points[-1])[:, :n_pairs].T
            return TruncatedDraws(single, log_weights[:n_pairs], estimate, "pairs")
        kept = [x[..., :n_pairs] for x in pairs]
        return TruncatedDraws(
            np.concatenate([kept[0].T, kept[1].T]),
            np.concatenate([kept[2], kept[3]]),
            estimate,
            "pairs",
            replicate=np.tile(replicate[:n_pairs], 2),
        )
