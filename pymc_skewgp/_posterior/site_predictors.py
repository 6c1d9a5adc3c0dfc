"""Predictors of sites as functions of a Gaussian vector's coordinates, and EP of them."""

import numpy as np

from pymc_skewgp._gaussian.operators.predictors import predictor_covariance
from pymc_skewgp._gaussian.proposals.coordinate_gaussian import SiteLogDensity
from pymc_skewgp._gaussian.proposals.ep import EPResult, fit_factors
from pymc_skewgp._gaussian.site_factors import SiteFactors
from pymc_skewgp._gaussian.tilted import Intervals, Joined
from pymc_skewgp._observations.sites import SitesOfParts
from pymc_skewgp._posterior.conditioning import Conditioning
from pymc_skewgp._threads import few_blas_threads


def site_log_density(given: Conditioning, sites: SitesOfParts, skip: int) -> SiteLogDensity:
    """Log density of the sites in the coordinates of z, of whose values the first `skip` have none.

    Raises
    ------
    ValueError
        Where it is not finite at the mean of z.
    """
    offset = sites.of(given.mean[skip:]) + sites.a
    with np.errstate(all="ignore"):
        wrong = ~np.isfinite(sites.log_prob(offset))
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(
            f"the log likelihood is not finite in {int(wrong.sum())} of {wrong.size} rows at the "
            f"mean of the prior given exact data: row {i} has the predictor {offset[i]:.3g}. Give "
            "a mean_func where the data are possible, or check y."
        )
    return SiteLogDensity(sites.log_prob, offset, sites.of(given.factor[skip:]))


def factors_of(sites: SitesOfParts, density: SiteLogDensity) -> SiteFactors:
    """What EP asks."""
    return SiteFactors(sites.log_prob, sites.slopes, density.offset)


def ep_of_sites(
    given: Conditioning, factors: SiteFactors, density: SiteLogDensity, tol: float
) -> EPResult:
    """EP's fixed point for u, then the predictors less their offset."""
    with few_blas_threads(density.offset.size):
        if not given.n_rows:
            return fit_factors(predictor_covariance(density.factor), factors, tol=tol)
        joint = np.vstack([given.row_factor, density.factor])
        cov = predictor_covariance(joint, given.dense_noise)
        both = Joined([Intervals(given.lower, given.upper), factors])
        return fit_factors(cov, both, tol=tol)
