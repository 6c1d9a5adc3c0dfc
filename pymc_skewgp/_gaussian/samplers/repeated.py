"""Coordinates of rows that repeat: a thousand rows of one value take the algebra of one."""

from dataclasses import replace
from functools import cached_property

import numpy as np

from pymc_skewgp._gaussian.blocks.block_sites import RowSites
from pymc_skewgp._gaussian.operators.low_rank import LowRankCovariance
from pymc_skewgp._gaussian.operators.predictors import predictor_covariance
from pymc_skewgp._gaussian.operators.repeated import RepeatedCovariance
from pymc_skewgp._gaussian.proposals.coordinate_gaussian import (
    SiteLogDensity,
    SiteMarginals,
    coordinate_gaussian,
)
from pymc_skewgp._gaussian.proposals.coordinates import CoordinateProposal, RowKinds
from pymc_skewgp._gaussian.proposals.ep import EPResult, fit_ep, fit_factors
from pymc_skewgp._gaussian.proposals.escalation import RectangleSampler
from pymc_skewgp._gaussian.proposals.pairs import PairProposal, pair_proposal
from pymc_skewgp._gaussian.proposals.policy import DEFAULT, Goal, Rung, SamplerSettings
from pymc_skewgp._gaussian.proposals.runs import SamplingResult
from pymc_skewgp._gaussian.row_factors import RowFactors
from pymc_skewgp._gaussian.samplers.sites import SiteSampler
from pymc_skewgp._gaussian.site_factors import SiteFactors

_EP_TOLERANCE = 1e-3  # of all factors together


class RepeatedRowsSampler(RectangleSampler):
    """Coordinates c ~ N(0, I) of rows within limits, so many of each kind.

    In mirrored pairs, rows of one predictor being one factor of it; where some rows have no noise,
    by what these cut off (`coordinates`).

    Parameters
    ----------
    kinds : RowKinds
    settings : SamplerSettings
        Thresholds of the escalation policy. Of a rung only `relax` is looked at.
    """

    def __init__(self, kinds: RowKinds, settings: SamplerSettings = DEFAULT) -> None:
        cov = LowRankCovariance(kinds.noise, kinds.factor)
        super().__init__(cov, -np.inf, np.inf, settings)
        self._kinds = kinds

    @cached_property
    def ep(self) -> EPResult:
        """EP's fixed point: sites of a row of each kind."""
        kinds = self._kinds
        cov = RepeatedCovariance(kinds.noise, kinds.factor, kinds.count)
        tol = self.settings.ep_tolerance
        return fit_ep(cov, kinds.lower, kinds.upper, tol=tol, count=kinds.count)

    @cached_property
    def pairs(self) -> PairProposal:
        """The proposal where all rows have noise."""
        kinds = self._kinds
        _, first, unit = np.unique(kinds.group, return_index=True, return_inverse=True)
        order = np.argsort(unit, kind="stable")
        low, high, noise = (x[order] for x in (kinds.lower, kinds.upper, kinds.noise))
        rows = RowSites(low, high, np.full(order.size, np.nan), noise)
        ones = np.ones(order.size)
        known = RowFactors(unit[order], rows, kinds.count[order], ones, first.size)
        sites = SiteLogDensity(known.log_prob, np.zeros(first.size), kinds.factor[first])
        factors = SiteFactors(known.log_prob, known.slopes, sites.offset)
        ep = fit_factors(predictor_covariance(sites.factor), factors, tol=_EP_TOLERANCE)
        gaussian = coordinate_gaussian(sites.factor, ep.tau, ep.nu)
        marginals = SiteMarginals(ep.mean, ep.variance, ep.tau, ep.nu)
        return pair_proposal(gaussian, sites, marginals, None, moments=False)

    @property
    def single(self) -> bool:
        """Whether there is one row of each kind, so that these can be drawn as well."""
        return bool((self._kinds.count == 1.0).all())

    @cached_property
    def _of_pairs(self) -> SiteSampler:
        return SiteSampler(self.pairs, self.settings)

    @property
    def collapsed(self) -> bool:
        """Whether pairs leave next to nothing of their draws."""
        return bool((self._kinds.noise > 0.0).all()) and self._of_pairs.collapsed

    def coordinates(
        self, n_draws: int, rng: np.random.Generator, *, goal: Goal, rtol: float | None = None
    ) -> SamplingResult:
        """Weighted draws, as columns, and the log probability of all limits."""
        if not (self._kinds.noise > 0.0).all():
            result = super().sample(n_draws, rng, goal=goal, rtol=rtol)
            return replace(result, method=result.method.replace("twisted", "coordinates"))
        found = self._of_pairs.members(-(-n_draws // 2), rng)
        assert found.log_prob is not None
        return SamplingResult(
            found.draws.T, found.log_weights, found.log_prob, found.method, found.replicate
        )

    def _twist(self, rung: Rung) -> CoordinateProposal:
        return CoordinateProposal(self._kinds, self.ep, rung.relax, self.settings.ep_tolerance)

    @property
    def _jitter_effect(self) -> float:
        """The coordinates are drawn without jitter."""
        return 0.0
