"""EP's and Laplace's Gaussian for f under sites."""

import numpy as np
from scipy import sparse
from scipy.linalg import solve_triangular

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.proposals.coordinate_gaussian import coordinate_gaussian
from pymc_skewgp._observations.shared_rows import RowSlopes
from pymc_skewgp._observations.sites import SitesOfParts
from pymc_skewgp._posterior.conditioning import Conditioning
from pymc_skewgp._posterior.gaussian_function import GaussianPosterior
from pymc_skewgp._posterior.laplace_mode import mode_of
from pymc_skewgp._posterior.site_predictors import ep_of_sites, factors_of, site_log_density
from pymc_skewgp._validation import FloatArray


def site_ep(given: Conditioning, sites: SitesOfParts, skip: int, tol: float) -> GaussianPosterior:
    """By EP; the rows beside the sites have no noise, as signs at pseudo-points have none."""
    density = site_log_density(given, sites, skip)
    ep = ep_of_sites(given, factors_of(sites, density), density, tol)
    joint = np.vstack([given.row_factor, density.factor])
    gaussian = coordinate_gaussian(joint, ep.tau, ep.nu)
    evidence = given.log_density + ep.log_prob
    return _of_coordinates(given, skip, gaussian.mean, gaussian.chol, evidence)


def site_laplace(given: Conditioning, sites: SitesOfParts) -> GaussianPosterior:
    """By the mode and the curvature there, without any rows."""
    density = site_log_density(given, sites, 0)
    slopes = _SiteSlopes(sites, density.offset)
    found = mode_of(slopes, density.factor)
    # Newton's steps take no negative curvature; what there is of it at the mode counts.
    second = sites.slopes(density.offset + density.factor @ found.c)[1]
    precision = density.factor.T @ (-second[:, None] * density.factor)
    precision[np.diag_indices_from(precision)] += 1.0
    chol, _ = linalg.cholesky("the precision at the mode", linalg.symmetric(precision))
    change = float(np.log(found.chol.diagonal() / chol.diagonal()).sum())
    evidence = given.log_density + found.log_prob + change
    return _of_coordinates(given, 0, found.c, chol, evidence)


class _SiteSlopes:
    """Sites as rows whose derivatives are known."""

    def __init__(self, sites: SitesOfParts, offset: FloatArray) -> None:
        self._sites, self._offset = sites, offset

    def slopes(self, eta: FloatArray) -> RowSlopes:
        """At predictors less their offset."""
        there = self._offset + eta
        with np.errstate(over="ignore", invalid="ignore"):
            value = float(self._sites.log_prob(there).sum())
            first, second = self._sites.slopes(there)
        curvature = sparse.diags_array(np.maximum(-second, 0.0), format="csr")
        return RowSlopes(value, first, curvature)


def _of_coordinates(
    given: Conditioning, skip: int, mean: FloatArray, chol: FloatArray, log_evidence: float
) -> GaussianPosterior:
    factor = given.factor[skip:]
    half = solve_triangular(chol, factor.T, lower=True, check_finite=False)
    return GaussianPosterior(given.mean[skip:] + factor @ mean, half.T @ half, log_evidence)
