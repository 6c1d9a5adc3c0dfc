"""The evidence and draws of f from one run of the sampler, for thousands of hyperparameters.

Where hyperparameters are drawn too, each of their values needs both: an unbiased estimate of the
evidence, by which it is weighted, and f given it. Weighted draws of the rectangle u give both.
"""

from typing import NamedTuple

import numpy as np

from pymc_skewgp._gaussian.operators.factored import FactoredCovariance
from pymc_skewgp._gaussian.proposals.escalation import RectangleSampler
from pymc_skewgp._gaussian.rectangle import log_prob_rectangle
from pymc_skewgp._gaussian.weights import systematic_resample
from pymc_skewgp._observations.observations import Observations, intervals, points, stacked
from pymc_skewgp._observations.sites import SitesOfParts
from pymc_skewgp._posterior.conditioning import Conditioning
from pymc_skewgp._posterior.latent import draw_latent
from pymc_skewgp._posterior.site_draws import SiteDraws
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray

# Behind the probability of the signs at pseudo-points, which every evidence is divided by.
_SIGN_DRAWS = 1024


class DrawsWithEvidence(NamedTuple):
    """Draws of f at one value of the hyperparameters, and the evidence there.

    Attributes
    ----------
    log_evidence : float
        Log of an unbiased estimate, but for that of the signs at three or more pseudo-points.
    std_error : float
        Of `log_evidence`.
    relative_ess : float
        Of the weights behind it.
    f : ndarray, shape (count, q)
        Draws with equal weights.
    """

    log_evidence: float
    std_error: float
    relative_ess: float
    f: FloatArray


def draws_with_evidence(
    given: Conditioning,
    count: int,
    n_candidates: int,
    rng: np.random.Generator,
    *,
    n_pseudo_points: int,
    log_prob_of_signs: float,
    sites: SitesOfParts | None = None,
) -> DrawsWithEvidence:
    """Of z after its first `n_pseudo_points` values, `count` draws from `n_candidates` of u.

    Under `sites` from as many mirrored pairs of coordinates; `log_prob_of_signs` is that of the
    prior, before any data.
    """
    if sites is not None:
        found = _under_sites(given, count, n_candidates, rng, n_pseudo_points, sites)
        return found._replace(log_evidence=found.log_evidence - log_prob_of_signs)
    sampler = RectangleSampler(given.cov, given.lower, given.upper)
    size = max(count, n_candidates)
    latent = draw_latent(sampler, size, "twisted", rng, n_pseudo_points=n_pseudo_points)
    chosen = systematic_resample(latent.log_weights, count, rng)
    f = given.draw(latent.draws, rng, chosen, skip=n_pseudo_points)
    assert latent.log_prob is not None  # the twisted sampler always knows it
    value, std_error, relative_ess, _ = latent.log_prob
    log_evidence = given.log_density + value - log_prob_of_signs
    return DrawsWithEvidence(log_evidence, std_error, relative_ess, f)


def _under_sites(
    given: Conditioning,
    count: int,
    n_candidates: int,
    rng: np.random.Generator,
    n_pseudo_points: int,
    sites: SitesOfParts,
) -> DrawsWithEvidence:
    nothing = np.zeros(given.n_rows - n_pseudo_points, dtype=bool)
    sampler = SiteDraws(given, sites, n_pseudo_points, nothing).sampler
    latent = sampler.singles(max(count, n_candidates), rng)
    chosen = systematic_resample(latent.log_weights, count, rng)
    f = latent.draws[chosen] @ given.factor[n_pseudo_points:].T + given.mean[n_pseudo_points:]
    assert latent.log_prob is not None
    value, std_error, relative_ess, _ = latent.log_prob
    return DrawsWithEvidence(given.log_density + value, std_error, relative_ess, f)


def log_prob_of_prior_signs(cov: FloatArray, phase: FloatArray, truncation: FloatArray) -> float:
    """Log probability that phase f / sd + truncation is positive, f ~ N(0, cov)."""
    if not phase.size:
        return 0.0
    scale = phase / np.sqrt(cov.diagonal())
    return log_prob_rectangle(
        scale[:, None] * cov * scale, -truncation, np.inf, _SIGN_DRAWS, None, 0
    ).value


def sun_given(
    prior: SunParameters, observations: Observations, latent: FloatArray | None = None
) -> Conditioning:
    """A SUN vector given rows of it, and its latent variables, which are the first values.

    Given the latent variables too, where `latent` has their values.
    """
    s = prior.truncation.size
    if not s:
        cov = FactoredCovariance.of_kernel(prior.scale)
        return Conditioning(prior.mu, cov, observations)
    matrix = np.block([[prior.latent_cov, prior.cross_cov.T], [prior.cross_cov, prior.scale]])
    if latent is None:
        own = intervals(-prior.truncation, np.full(s, np.inf), np.zeros(s))
    else:
        own = points(latent, np.zeros(s))
    rows = stacked([own, observations], [s, prior.mu.size])
    mean = np.concatenate([np.zeros(s), prior.mu])
    return Conditioning(mean, FactoredCovariance.of_kernel(matrix), rows)
