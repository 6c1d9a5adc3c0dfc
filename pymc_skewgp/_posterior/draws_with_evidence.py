"""The evidence and draws of f from one run of the sampler, for thousands of hyperparameters.

Where hyperparameters are drawn too, each of their values needs both: an unbiased estimate of the
evidence, by which it is weighted, and f given it. Weighted draws of the rectangle u give both.
"""

from typing import NamedTuple

import numpy as np

from pymc_skewgp._gaussian.operators.factored import FactoredCovariance
from pymc_skewgp._gaussian.proposals.escalation import RectangleSampler
from pymc_skewgp._gaussian.rectangle import log_prob_rectangle
from pymc_skewgp._gaussian.samplers.sites import SiteSampler
from pymc_skewgp._gaussian.weights import Estimate, systematic_resample
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


class Case(NamedTuple):
    """Functions given data, at one value of the hyperparameters.

    Attributes
    ----------
    given : Conditioning
        Of z, of which the values after the first `n_pseudo_points` are wanted.
    n_pseudo_points : int
    log_prob_of_signs : float
        Of those at the pseudo-points under the prior, before any data: see
        `log_prob_of_prior_signs`.
    sites : SitesOfParts or None
        Observations that are no rows.
    """

    given: Conditioning
    n_pseudo_points: int
    log_prob_of_signs: float
    sites: SitesOfParts | None = None

    def by_factors(self) -> "Case":
        """The same with intervals that repeat as factors of their predictors, where some do."""
        given = self.given
        if self.sites is not None or not given.n_rows:
            return self
        kept = (np.arange(given.n_rows) < self.n_pseudo_points) | (given.noise_variances <= 0.0)
        found = given.with_factors(np.ones(given.n_rows), kept, self.n_pseudo_points)
        return self if found is None else self._replace(given=found[0], sites=found[1])


def draws_with_evidence(
    case: Case, count: int, n_candidates: int, rng: np.random.Generator
) -> DrawsWithEvidence:
    """`count` draws from `n_candidates` of u; under sites from as many mirrored pairs."""
    by_rows, case = case, case.by_factors()
    pairs = None if case.sites is None else _pairs(case, case.sites)
    if pairs is None or (by_rows.sites is None and pairs.collapsed):
        given = by_rows.given
        sampler = RectangleSampler(given.cov, given.lower, given.upper)
        return draws_by_sampler(sampler, by_rows, count, n_candidates, rng)
    given, skip = case.given, case.n_pseudo_points
    latent = pairs.singles(max(count, n_candidates), rng)
    chosen = systematic_resample(latent.log_weights, count, rng)
    f = latent.draws[chosen] @ given.factor[skip:].T + given.mean[skip:]
    return _result(case, latent.log_prob, f)


def _pairs(case: Case, sites: SitesOfParts) -> SiteSampler:
    given, skip = case.given, case.n_pseudo_points
    nothing = np.zeros(given.n_rows - skip, dtype=bool)
    return SiteDraws(given, sites, skip, nothing).sampler


def draws_by_sampler(
    sampler: RectangleSampler,
    case: Case,
    count: int,
    n_candidates: int,
    rng: np.random.Generator,
) -> DrawsWithEvidence:
    """The same by a sampler of the rows, where there are no sites."""
    skip, size = case.n_pseudo_points, max(count, n_candidates)
    latent = draw_latent(sampler, size, "twisted", rng, n_pseudo_points=skip)
    chosen = systematic_resample(latent.log_weights, count, rng)
    f = case.given.draw(latent.draws, rng, chosen, skip=skip)
    return _result(case, latent.log_prob, f)


def _result(case: Case, log_prob: Estimate | None, f: FloatArray) -> DrawsWithEvidence:
    assert log_prob is not None  # the twisted sampler always knows it
    log_evidence = case.given.log_density + log_prob.value - case.log_prob_of_signs
    return DrawsWithEvidence(log_evidence, log_prob.std_error, log_prob.relative_ess, f)


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
