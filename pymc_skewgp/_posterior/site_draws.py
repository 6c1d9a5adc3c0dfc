"""What draws of a Gaussian vector under sites need: EP, its Gaussian of the coordinates, pairs."""

from dataclasses import replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._gaussian.proposals.coordinate_gaussian import (
    CoordinateGaussian,
    SiteLogDensity,
    SiteMarginals,
    coordinate_gaussian,
)
from pymc_skewgp._gaussian.proposals.ep import EPResult
from pymc_skewgp._gaussian.proposals.escalation import RectangleSampler
from pymc_skewgp._gaussian.proposals.mode_pairs import RowsBeside, with_modes
from pymc_skewgp._gaussian.proposals.modes import Target
from pymc_skewgp._gaussian.proposals.pairs import GivenRows, PairProposal, pair_proposal
from pymc_skewgp._gaussian.proposals.policy import DEFAULT, Rung
from pymc_skewgp._gaussian.samplers.sites import SiteSampler
from pymc_skewgp._gaussian.site_factors import SiteFactors
from pymc_skewgp._observations.sites import SitesOfParts
from pymc_skewgp._posterior.conditioning import Conditioning
from pymc_skewgp._posterior.contradiction import refuse_contradictory_constraints
from pymc_skewgp._posterior.site_predictors import ep_of_sites, factors_of, site_log_density

_EP_TOLERANCE = 1e-2  # of sampling: weights make up for what is left


class SiteDraws:
    """A conditioned vector z = mean + factor c under sites; its rows are intervals.

    Parameters
    ----------
    given : Conditioning
    sites : SitesOfParts
        Of the values of z after its first `n_latent`.
    n_latent : int
    constrained : ndarray of bool
        Which of the rows after the first `n_latent` are constraints.
    rung : Rung, optional
        How the rows are proposed.
    """

    def __init__(
        self,
        given: Conditioning,
        sites: SitesOfParts,
        n_latent: int,
        constrained: NDArray[np.bool_],
        rung: Rung = DEFAULT.first,
    ) -> None:
        self._given, self._sites, self._rung = given, sites, rung
        self._n_latent, self._constrained = n_latent, constrained

    @cached_property
    def predictors(self) -> SiteLogDensity:
        """Log density of the sites in the coordinates c."""
        return site_log_density(self._given, self._sites, self._n_latent)

    @cached_property
    def _factors(self) -> SiteFactors:
        return factors_of(self._sites, self.predictors)

    @cached_property
    def ep(self) -> EPResult:
        """EP's fixed point for [u, predictors less their offset]."""
        return ep_of_sites(self._given, self._factors, self.predictors, _EP_TOLERANCE)

    @cached_property
    def gaussian(self) -> CoordinateGaussian:
        """N(0, I) of c times EP's sites of the likelihood, but not of the rows."""
        m = self._given.n_rows
        return coordinate_gaussian(self.predictors.factor, self.ep.tau[m:], self.ep.nu[m:])

    @cached_property
    def proposal(self) -> PairProposal:
        """Pairs of coordinates."""
        m, ep = self._given.n_rows, self.ep
        marginals = SiteMarginals(*(x[m:] for x in (ep.mean, ep.variance, ep.tau, ep.nu)))
        rows = self._rows(self.gaussian, self._rung) if m else None
        return pair_proposal(self.gaussian, self.predictors, marginals, rows)

    @cached_property
    def sampler(self) -> SiteSampler:
        """Proposals, which the evidence and all draws share."""
        proposal, factors = self.proposal, self._factors
        target = None if factors.log_concave else Target(self.predictors, factors.slopes)
        return SiteSampler(with_modes(proposal, target, self._beside()))

    def _beside(self) -> RowsBeside | None:
        given = self._given
        if not given.n_rows:
            return None
        own = partial(self._rows, rung=DEFAULT.move_rungs[0])
        limits = given.lower, given.upper
        return RowsBeside(given.row_factor, *limits, given.noise_variances, own)

    def _rows(self, gaussian: CoordinateGaussian, rung: Rung) -> GivenRows:
        given = self._given
        tilted = given.with_coordinates(gaussian.mean, gaussian.chol)
        settings = replace(DEFAULT, first=rung)
        sampler = RectangleSampler(tilted.cov, tilted.lower, tilted.upper, settings)
        if self._constrained.any():
            rows = np.flatnonzero(self._constrained) + self._n_latent
            refuse_contradictory_constraints(sampler, rows, tilted.noise_variances[rows])
        gain, spread = tilted.coordinates_given_rows()
        return GivenRows(sampler.first, gain, spread, given.row_factor @ gaussian.mean)
