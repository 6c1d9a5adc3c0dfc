"""What draws of a Gaussian vector under sites need: EP, its Gaussian of the coordinates, pairs."""

from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._errors import SeveralModesWarning, no_warnings, warn
from pymc_skewgp._gaussian.proposals.coordinate_gaussian import (
    CoordinateGaussian,
    SiteLogDensity,
    SiteMarginals,
    coordinate_gaussian,
)
from pymc_skewgp._gaussian.proposals.ep import EPResult, fit_ep
from pymc_skewgp._gaussian.proposals.escalation import RectangleSampler
from pymc_skewgp._gaussian.proposals.mode_pairs import with_modes
from pymc_skewgp._gaussian.proposals.modes import find_modes
from pymc_skewgp._gaussian.proposals.pairs import GivenRows, PairProposal, pair_proposal
from pymc_skewgp._gaussian.proposals.policy import DEFAULT, Rung
from pymc_skewgp._gaussian.samplers.sites import SiteSampler
from pymc_skewgp._gaussian.site_factors import SiteFactors
from pymc_skewgp._observations.sites import SitesOfParts
from pymc_skewgp._posterior.conditioning import Conditioning
from pymc_skewgp._posterior.contradiction import refuse_contradictory_constraints
from pymc_skewgp._posterior.site_predictors import ep_of_sites, factors_of, site_log_density

_EP_TOLERANCE = 1e-2  # of sampling: weights make up for what is left
_BESIDE = 0.01  # of the probability of EP's mode, from which on others are warned of


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
        rows = self._rows() if m else None
        return pair_proposal(self.gaussian, self.predictors, marginals, rows)

    @cached_property
    def sampler(self) -> SiteSampler:
        """Proposals, which the evidence and all draws share."""
        proposal = self.proposal
        if proposal.rows is None or self._factors.log_concave:
            return SiteSampler(with_modes(proposal, self._factors))
        self._warn_of_modes()
        return SiteSampler(proposal)

    def _warn_of_modes(self) -> None:
        """Beside rows draws are about EP's mode alone: a mixture would need the rows' density."""
        found = find_modes(self.predictors, self._factors.slopes, self.gaussian.mean)
        evidence: list[float] = []
        for mode in found:
            rows = self._given.with_coordinates(mode.gaussian.mean, mode.gaussian.chol)
            with no_warnings(), np.errstate(all="ignore"):
                own = fit_ep(rows.cov, rows.lower, rows.upper).log_prob
            evidence.append(mode.log_evidence + own)
        beside = sum(float(np.exp(own - evidence[0])) for own in evidence[1:])
        if beside > _BESIDE:
            warn(
                f"the posterior has {len(found)} modes, and draws are about one of them, beside "
                "rows that are intervals: their errors do not know of the others, which have "
                f"about {beside / (1.0 + beside):.0%} of the probability by Laplace's "
                "approximation. Without pseudo-points and intervals draws are about all of them.",
                SeveralModesWarning,
                stacklevel=2,
            )

    def _rows(self) -> GivenRows:
        given, gaussian = self._given, self.gaussian
        tilted = given.with_coordinates(gaussian.mean, gaussian.chol)
        settings = replace(DEFAULT, first=self._rung)
        sampler = RectangleSampler(tilted.cov, tilted.lower, tilted.upper, settings)
        if self._constrained.any():
            rows = np.flatnonzero(self._constrained) + self._n_latent
            refuse_contradictory_constraints(sampler, rows, tilted.noise_variances[rows])
        gain, spread = tilted.coordinates_given_rows()
        return GivenRows(sampler.first, gain, spread, given.row_factor @ gaussian.mean)
