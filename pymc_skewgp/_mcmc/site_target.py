r"""f under sites at given hyperparameters, given the rows u beside them: a Gaussian times sites.

With the rows known, as points are, :math:`f = m + F c` with standard normal c. What is left of the
data are sites :math:`p(y_i \mid \eta_i)`, :math:`\eta = A f + a`.
"""

from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pymc_skewgp._errors import no_warnings
from pymc_skewgp._gaussian.operators.predictors import predictor_covariance
from pymc_skewgp._gaussian.pivoted import PivotedFactor, pivoted_factor
from pymc_skewgp._gaussian.proposals.coordinate_gaussian import SiteLogDensity
from pymc_skewgp._gaussian.proposals.ep import EPResult, fit_factors
from pymc_skewgp._gaussian.site_factors import SiteFactors
from pymc_skewgp._mcmc.model import ConjugateModel
from pymc_skewgp._observations.sites import Sites
from pymc_skewgp._posterior.draws_with_evidence import sun_given
from pymc_skewgp._validation import FloatArray

# Of the largest variance, below which EP leaves a direction of f out.
_LEFT_OUT = 1e-5
_EP_SWEEPS = 60


class GaussianSites(NamedTuple):
    """Sites exp(nu eta - tau eta^2 / 2) in the predictors, offsets included; shape (m,) each."""

    tau: FloatArray
    nu: FloatArray

    def about(self, offset: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The same sites, tau and nu, in predictors less an offset."""
        return self.tau, self.nu - self.tau * offset

    def mixed(self, other: "GaussianSites", share: float) -> "GaussianSites":
        """With a share of others."""
        tau, nu = ((1.0 - share) * x + share * y for x, y in zip(self, other, strict=True))
        return GaussianSites(tau, nu)


class SiteTarget:
    """f = mean + F c under sites.

    Parameters
    ----------
    model : ConjugateModel
        With sites.
    rows : ndarray, shape (s + m,)
        x0 + truncation and v of the intervals; of none an empty one.

    Attributes
    ----------
    mean : ndarray, shape (p,)
    factor : PivotedFactor
        F.
    density : SiteLogDensity
        Of the sites, as a function of c.
    """

    def __init__(self, model: ConjugateModel, rows: FloatArray) -> None:
        assert model.sites is not None
        self._sites: Sites = model.sites
        self.mean, matrix = _given_rows(model, rows)
        self.factor: PivotedFactor = pivoted_factor(matrix)
        sites = self._sites
        offset = sites.of(self.mean) + sites.a
        self.density = SiteLogDensity(sites.log_prob, offset, sites.of(self.factor.columns))

    @cached_property
    def n_leading(self) -> int:
        """Columns of F that explain f but for what does not matter to EP."""
        left = self.factor.left
        return int(np.count_nonzero(left > _LEFT_OUT * left.max(initial=0.0)))

    def factors(self) -> SiteFactors:
        """What EP asks."""
        return SiteFactors(self.density.log_prob, self._sites.slopes, self.density.offset)

    def ep(self, tol: float, start: GaussianSites | None) -> GaussianSites | None:
        """EP's sites, a function of its arguments alone; None where it breaks down."""
        density, leading = self.density, self.density.factor[:, : self.n_leading]
        zero = np.zeros(density.offset.size)
        first = None
        if start is not None:
            tau, nu = start.about(density.offset)
            first = EPResult(tau, nu, zero, zero, zero, 0.0, 0, np.inf)
        with no_warnings(), np.errstate(all="ignore"):
            try:
                found = fit_factors(
                    predictor_covariance(leading),
                    self.factors(),
                    tol=tol,
                    start=first,
                    max_sweeps=_EP_SWEEPS,
                )
            except (np.linalg.LinAlgError, ArithmeticError, ValueError):
                return None
        if not (np.isfinite(found.tau).all() and np.isfinite(found.nu).all()):
            return None
        return GaussianSites(found.tau, found.nu + found.tau * density.offset)

    def score(self, c: FloatArray, tau: FloatArray, nu: FloatArray) -> FloatArray:
        """Slopes of the log probability less those of sites about the offset, at leading c."""
        e = self.density.factor[:, : c.size] @ c
        with np.errstate(all="ignore"):
            slopes = self._sites.slopes(self.density.offset + e)[0]
        return slopes - (nu - tau * e)

    def coordinates(self, f: FloatArray) -> FloatArray:
        """The c of f."""
        return self.factor.coordinates(f - self.mean)

    def function(self, c: FloatArray) -> FloatArray:
        """The f of c."""
        f: FloatArray = self.mean + self.factor.columns @ c
        return f


def _given_rows(model: ConjugateModel, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and covariance of f given the points and rows with these values."""
    prior, observed = model.prior, model.observations
    if not observed.n_rows and not rows.size:
        return prior.mu, prior.scale
    s = prior.truncation.size
    value = observed.value.copy()
    value[~observed.is_point] = rows[s:]
    given = sun_given(prior, replace(observed, value=value), rows[:s] - prior.truncation)
    factor = given.factor[s:]
    return given.mean[s:], factor @ factor.T
