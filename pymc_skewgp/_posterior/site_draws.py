"""One draw of functions under sites, for many sets of hyperparameters: one each."""

import numpy as np

from pymc_skewgp._gaussian.proposals.coordinate_gaussian import (
    CoordinateGaussian,
    SiteLogDensity,
    SiteMarginals,
    coordinate_gaussian,
)
from pymc_skewgp._gaussian.proposals.ep import EPResult
from pymc_skewgp._gaussian.proposals.escalation import RectangleSampler
from pymc_skewgp._gaussian.proposals.pairs import GivenRows, pair_proposal
from pymc_skewgp._gaussian.samplers.sites import SiteSampler
from pymc_skewgp._gaussian.weights import systematic_resample
from pymc_skewgp._observations.sites import SitesOfParts
from pymc_skewgp._posterior.conditioning import Conditioning
from pymc_skewgp._posterior.site_predictors import ep_of_sites, site_log_density
from pymc_skewgp._validation import FloatArray

EP_TOLERANCE = 1e-2  # of sampling: weights make up for what is left


def gaussian_of_sites(
    given: Conditioning, density: SiteLogDensity, ep: EPResult
) -> CoordinateGaussian:
    """N(0, I) of the coordinates c times EP's sites of the likelihood, but not of the rows."""
    m = given.n_rows
    return coordinate_gaussian(density.factor, ep.tau[m:], ep.nu[m:])


def pair_sampler(
    given: Conditioning,
    density: SiteLogDensity,
    ep: EPResult,
    gaussian: CoordinateGaussian,
    rows: GivenRows | None,
) -> SiteSampler:
    """Mirrored pairs from EP's Gaussian, the ladder behind them."""
    m = given.n_rows
    marginals = SiteMarginals(*(x[m:] for x in (ep.mean, ep.variance, ep.tau, ep.nu)))
    return SiteSampler(pair_proposal(gaussian, density, marginals, rows))


def pick_draw_under_sites(
    given: Conditioning,
    sites: SitesOfParts,
    n_candidates: int,
    rng: np.random.Generator,
    *,
    n_pseudo_points: int,
) -> tuple[FloatArray, float]:
    """One draw of f after the pseudo-points, and the relative ESS of its candidates' weights."""
    density = site_log_density(given, sites, n_pseudo_points)
    ep = ep_of_sites(given, sites, density, EP_TOLERANCE)
    gaussian = gaussian_of_sites(given, density, ep)
    rows = None
    if given.n_rows:
        tilted = given.with_coordinates(gaussian.mean, gaussian.chol)
        first = RectangleSampler(tilted.cov, tilted.lower, tilted.upper).first
        rows = GivenRows(first, *tilted.coordinates_given_rows())
    latent = pair_sampler(given, density, ep, gaussian, rows).singles(n_candidates, rng)
    (chosen,) = systematic_resample(latent.log_weights, 1, rng)
    s = n_pseudo_points
    return given.mean[s:] + given.factor[s:] @ latent.draws[chosen], latent.relative_ess
