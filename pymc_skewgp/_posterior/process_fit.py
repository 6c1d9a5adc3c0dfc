"""A process conditioned on rows or factors, its sampler fitted once."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._gaussian.blocks.pairs import RowsBeside, with_modes
from pymc_skewgp._gaussian.coordinate_gaussian import (
    CoordinateGaussian,
    SiteLogDensity,
    SiteMarginals,
    coordinate_gaussian,
)
from pymc_skewgp._gaussian.coordinates import SiteSampler
from pymc_skewgp._gaussian.covariance import predictor_covariance
from pymc_skewgp._gaussian.ep import EPResult, fit_factors
from pymc_skewgp._gaussian.escalation import DEFAULT, RectangleSampler, Rung
from pymc_skewgp._gaussian.modes import Target
from pymc_skewgp._gaussian.pairs import GivenRows, PairProposal, pair_proposal
from pymc_skewgp._gaussian.tilted import Intervals, Joined, SiteFactors
from pymc_skewgp._gaussian.truncated_draws import TruncatedDraws
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._limits import few_blas_threads
from pymc_skewgp._observations.likelihood import Values
from pymc_skewgp._observations.observations import Observations, equal_rows
from pymc_skewgp._observations.sites import Sites
from pymc_skewgp._posterior.conditioning import Conditioning, Regression
from pymc_skewgp._posterior.function_fit import (
    CoordinateFit,
    FunctionFit,
    draw_latent,
    equal_draws,
    refuse_contradictory_constraints,
)
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray, Seed

# Predictors of sites as functions of a Gaussian vector's coordinates, and EP of them.


def site_log_density(given: Conditioning, sites: Sites, skip: int) -> SiteLogDensity:
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


def factors_of(sites: Sites, density: SiteLogDensity) -> SiteFactors:
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


# What draws of a Gaussian vector under sites need: EP, its Gaussian of the coordinates, pairs.

_EP_TOLERANCE = 1e-2  # of sampling: weights make up for what is left


class SiteDraws:
    """A conditioned vector z = mean + factor c under sites; its rows are intervals.

    Parameters
    ----------
    given : Conditioning
    sites : Sites
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
        sites: Sites,
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


# A process under sites, functions p(y_i | eta_i) of one predictor each, beside rows or without.
#
# With the functions given the points z = m + F c, c ~ N(0, I), and predictors :math:`\eta = A z +
# a`. The latent vector is c: EP's Gaussian of it under all sites and rows, draws of it in mirrored
# pairs, and everything else is Gaussian given c.


class SiteFit(CoordinateFit):
    """Functions given sites, and rows where there are some: the latent vector is c.

    Parameters
    ----------
    prior : Prior
        Of each function.
    parts : sequence of Values
        What the data are about.
    given : Observations or Conditioning
        Rows of these values, none of them where all data are sites; or f given these.
    sites : Sites
    constrained : ndarray of bool, shape (m,)
        Which of the rows that are intervals are constraints.
    single_rows : FunctionFit, optional
        The same with a row for each interval, where sites are made of them.
    """

    def __init__(
        self,
        prior: Prior,
        parts: Sequence[Values],
        given: Observations | Conditioning,
        sites: Sites,
        constrained: NDArray[np.bool_],
        single_rows: FunctionFit | None = None,
    ) -> None:
        super().__init__(prior, parts)
        self._rows, self._sites, self._constrained = given, sites, constrained
        self._single_rows = single_rows

    @cached_property
    def conditioning(self) -> Conditioning:
        """See `FunctionFit`: u are the signs at pseudo-points, and the intervals of the data."""
        return self._rows if isinstance(self._rows, Conditioning) else self._given(self._rows)

    @property
    def of_single_rows(self) -> FunctionFit:
        """See `FunctionFit`."""
        return self._single_rows or self

    @cached_property
    def sampler(self) -> SiteSampler:
        """See `CoordinateFit`."""
        return SiteDraws(self.conditioning, self._sites, self.n_latent, self._constrained).sampler

    def draw(
        self,
        latent: TruncatedDraws,
        chosen: IntArray,
        rng: np.random.Generator,
        rows: IntArray | None = None,
    ) -> FloatArray:
        """See `FunctionFit`: c says all of f at the data."""
        given, s = self.conditioning, self.n_latent
        at = slice(s, None) if rows is None else s + rows
        f = latent.draws[chosen.ravel()] @ given.factor[at].T
        f += given.mean[at]
        return f.reshape(*chosen.shape, -1)

    def sun(self) -> SunParameters:
        """ValueError where it is none."""
        if self._single_rows is not None:
            return self._single_rows.sun()
        raise ValueError(
            "under a likelihood that is not made of intervals the posterior of f is no SUN: use "
            "sample, predict or marginals."
        )

    def _here(self, joint: bool, group: int) -> Regression:
        given, s = self.conditioning, self.n_latent
        mean, factor = given.mean[s:], given.factor[s:]
        shape = (mean.size // group, group, group)
        covariance = None if group == 1 else np.zeros(shape)
        taken = factor @ factor.T if joint else None
        return Regression(mean, np.zeros(mean.size), factor.T, taken, covariance)

    def _there(
        self, mean: FloatArray, variance: FloatArray, cross: FloatArray, joint: bool = False
    ) -> Regression:
        return self.conditioning.regression_at(
            mean, variance, cross, joint=joint, on_coordinates=True
        )


class ProcessFit(FunctionFit):
    """Functions given data that are rows: the latent vector is u, within its rectangle.

    Parameters
    ----------
    prior : Prior
        Of each function.
    parts : sequence of Values
        What the data are about.
    observations : Observations
        Rows of these values.
    constrained : ndarray of bool, shape (m,)
        Which of them are constraints, which may contradict each other or the data.
    """

    def __init__(
        self,
        prior: Prior,
        parts: Sequence[Values],
        observations: Observations,
        constrained: NDArray[np.bool_],
    ) -> None:
        super().__init__(prior, parts)
        self._constrained = constrained[~observations.is_point]
        self._observations = observations

    @cached_property
    def conditioning(self) -> Conditioning:
        """See `FunctionFit`."""
        return self._given(self._observations)

    @cached_property
    def sampler(self) -> RectangleSampler:
        """EP and proposals, which the evidence and all draws share."""
        given = self.conditioning
        sampler = RectangleSampler(given.cov, given.lower, given.upper)
        if self._constrained.any():
            rows = np.flatnonzero(self._constrained) + self.n_latent
            refuse_contradictory_constraints(sampler, rows, given.noise_variances[rows])
        return sampler

    def by_factors(self) -> FunctionFit:
        """See `FunctionFit`: rows drawn one by one would share a tail of f that all draws miss."""
        rows = self._observations
        equal = equal_rows(rows)
        given, few = None, rows
        if equal.first.size < rows.n_rows:
            chosen = np.zeros(rows.n_rows, dtype=bool)
            chosen[equal.first] = True
            few = replace(rows.rows(chosen), log_constant=rows.log_constant)
            given = self._given(few)
        elif rows.is_point.all():
            return self
        given = given or self.conditioning
        own = ~few.is_point
        every = np.zeros(rows.n_rows, dtype=bool)
        every[~rows.is_point] = self._constrained
        constrained = every[equal.first][own]
        left = constrained | (few.variances[own] <= 0.0)
        kept = np.concatenate([np.ones(self.n_latent, dtype=bool), left])
        counts = np.concatenate([np.ones(self.n_latent), equal.counts[own]])
        found = given.with_factors(counts, kept, self.n_latent)
        if found is None:
            return self
        fit = SiteFit(self._prior, self._parts, *found, constrained[left], self)
        return self if few is rows and fit.sampler.collapsed else fit

    @property
    def fitted(self) -> bool:
        """Whether EP and its proposal are there: what is asked next only draws from them."""
        return "sampler" in vars(self) and self.sampler.fitted

    def latent(self, n_draws: int, random_seed: Seed) -> TruncatedDraws:
        """Weighted draws of u."""
        count = n_draws if self.sampler.size else 1  # without u there is nothing to draw
        n_latent = self.n_latent
        return draw_latent(self.sampler, count, "twisted", random_seed, n_pseudo_points=n_latent)

    def equal_draws(
        self, shape: tuple[int, int], method: str, rng: np.random.Generator, thin: int = 1
    ) -> tuple[TruncatedDraws, IntArray]:
        """Draws of u, and which of them to take, `shape` being (chains, draws)."""
        n_latent = self.n_latent
        return equal_draws(self.sampler, shape, method, rng, n_pseudo_points=n_latent, thin=thin)

    def draw(
        self,
        latent: TruncatedDraws,
        chosen: IntArray,
        rng: np.random.Generator,
        rows: IntArray | None = None,
    ) -> FloatArray:
        """Draws of f at the data, all parts in a row, shape (chains, draws, q)."""
        f = self.conditioning.draw(latent.draws, rng, chosen.ravel(), skip=self.n_latent)
        if rows is not None:
            k = self.n_functions
            f = f[:, (k * rows[:, None] + np.arange(k)).ravel()]
        return f.reshape(*chosen.shape, -1)

    def _here(self, joint: bool, group: int) -> Regression:
        return self.conditioning.regression(skip=self.n_latent, joint=joint, group=group)

    def _there(
        self, mean: FloatArray, variance: FloatArray, cross: FloatArray, joint: bool = False
    ) -> Regression:
        return self.conditioning.regression_at(mean, variance, cross, joint=joint)

    def sun(self) -> SunParameters:
        """Of f at the data, one latent dimension for each row of u.

        Raises
        ------
        ValueError
            For observations with two finite limits.
        """
        given, s = self.conditioning, self.n_latent
        above = np.isposinf(given.upper)
        if not (above | np.isneginf(given.lower)).all():
            raise ValueError(
                "a SUN has one-sided latent limits, and some observations have two: use sample, "
                "predict or marginals."
            )
        side = np.where(above, 1.0, -1.0)
        factor, row_factor = given.factor[s:], side[:, None] * given.row_factor
        return SunParameters(
            given.mean[s:],
            factor @ factor.T,
            factor @ row_factor.T,
            np.where(above, -given.lower, given.upper),
            side[:, None] * given.cov.dense() * side,
        )
