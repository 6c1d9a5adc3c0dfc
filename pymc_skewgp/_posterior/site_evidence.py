r"""The evidence of sites beside a rectangle, with its gradient: by EP, and exactly by pairs.

.. math:: Z = \mathrm E\Bigl\{1(l < u < h) \prod_i p(y_i \mid a_i + e_i)\Bigr\}, \qquad
    (u, e) \sim N(0, G)

the last rows of G being those of the sites' predictors. EP's evidence is stationary in its sites
t, so that only explicit dependence counts. That does not hold where p is not log-concave and would
add to a cavity's variance: EP cuts t there (`ep_gradient`), and its gradient is not quite that of
its value. Of the exact one, on which t has no bearing, log Z is that of N(0, G) times t plus
log E(W), W being p over t and the mean over EP's Gaussian q = N(m, S), and by Gaussian integration
by parts the derivatives of the second term in mean and covariance of q are

.. math:: \mathrm E(g \mid y), \qquad \tfrac12 S^{-1} \mathrm E\{(e - m)\, g^\top \mid y\}

with g the slopes of log p less those of log t, small where q is near; where they jump nothing
changes. These means are over the same weighted draws as the evidence. Where there are several modes
no one Gaussian is near: t is then a sum over sites of EP and of the modes, and each of its terms an
expectation over a Gaussian of its own.

A derivative in a parameter of p is the mean of that of log p, each draw weighted so that the same
identities hold for the moments of the predictors.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import pinv, qr, solve_triangular
from scipy.special import softmax

from pymc_skewgp._gaussian import coordinate_gaussian as cg
from pymc_skewgp._gaussian import coordinates, escalation, linalg, tilted, univariate
from pymc_skewgp._gaussian.blocks.beside import RowsBeside
from pymc_skewgp._gaussian.blocks.pairs import ModePairs, with_modes
from pymc_skewgp._gaussian.covariance import SemidefiniteMatrix, WithSites, predictor_covariance
from pymc_skewgp._gaussian.ep import EPResult, cavities, ep_cov_gradient, fit_factors
from pymc_skewgp._gaussian.gaussian_sum import MOST
from pymc_skewgp._gaussian.log_prob_gradient import LogProbGradient
from pymc_skewgp._gaussian.modes import Target
from pymc_skewgp._gaussian.pairs import PairProposal, pair_proposal
from pymc_skewgp._gaussian.twisted import Rung
from pymc_skewgp._gaussian.weights import normalized_weights
from pymc_skewgp._limits import few_blas_threads
from pymc_skewgp._observations.sites import SitesGiven
from pymc_skewgp._validation import FloatArray, as_generator

MAX_SWEEPS = 100
# Of EP's fixed point behind pairs: their weights make up for what is left, but by another error.
_PAIRS_TOLERANCE = 1e-5
# Of the largest variance, below which a direction of the predictors is left out.
NEGLIGIBLE = 1e-12
# Part of the rows shows whether the factor has too many columns to save anything.
_LOW_RANK_SHARE = 0.3


# Rows that are intervals, and then the predictors of sites, minus their means for limits: `lower`
# and `upper`, shape (m,), and `cov`, shape (m, m).
Rectangle = Any


def sites_by_ep(
    rows: Rectangle, sites: SitesGiven, tol: float, start: EPResult | None = None
) -> tuple[LogProbGradient, EPResult]:
    """EP's log probability of the rows that are intervals, times sites, with its gradient.

    The gradient is not that of the value where a site that is not log-concave was cut.
    """
    k = rows.lower.size - sites.size
    ep, cov, factors = ep_of_sites(rows, sites, tol, start)
    mean, sd = cavities(cov, ep)
    lower, upper = np.zeros(rows.lower.size), np.zeros(rows.lower.size)
    lower[k:] = -ep.weights[k:]
    if k:
        edges = univariate.Edges.of(rows.lower[:k], rows.upper[:k], mean[:k], sd[:k])
        lower[:k], upper[:k] = -edges.lower, edges.upper
    parameters = sites.in_parameters(*factors.nodes(mean[k:], sd[k:]))
    slopes = lower, upper, ep_cov_gradient(cov, ep)
    return LogProbGradient(ep.log_prob, *slopes, in_parameters=parameters), ep


def ep_of_sites(
    rows: Rectangle, sites: SitesGiven, tol: float, start: EPResult | None = None
) -> tuple[EPResult, WithSites, tilted.SiteFactors]:
    """EP alone, the covariance that it was fitted to, and the factors."""
    k = rows.lower.size - sites.size
    factors = tilted.SiteFactors(sites.log_prob, sites.slopes, -rows.lower[k:])
    cov = _covariance(linalg.symmetric(rows.cov), k)
    return _ep(cov, factors, (rows.lower[:k], rows.upper[:k]), tol, start), cov, factors


def sites_by_pairs(
    rows: Rectangle, sites: SitesGiven, n_draws: int, random_seed: int, tol: float
) -> LogProbGradient:
    """The same by mirrored pairs at fixed points.

    With rows that are intervals the gradient is EP's, at a residual of `tol`: limits have no
    derivative by draws. So it is where some draws are impossible, as beyond a limit of a predictor.
    `LogProbGradient.noise` is the standard error of the value where draws were tempered.
    """
    pairs = pairs_of(rows, sites)
    draws = pairs.sampler.members(n_draws, as_generator(random_seed))
    estimate = draws.log_prob
    assert estimate is not None
    noise = 0.0 if draws.method == "pairs" else estimate.std_error
    e = draws.draws @ pairs.density.factor.T
    by_ep = rows.lower.size > sites.size
    if by_ep or np.isneginf(draws.log_weights).any():
        found = sites_by_ep(rows, sites, tol, pairs.ep)[0]
        return found._replace(value=estimate.value, noise=noise)
    weights = normalized_weights(draws.log_weights)
    exact = _exact_slopes(linalg.symmetric(rows.cov), pairs, sites, draws.draws, weights)
    found = LogProbGradient(
        estimate.value, -exact.mean, np.zeros(exact.mean.size), exact.cov, noise
    )
    if not sites.has_parameters:
        return found
    shares = _calibrated(e, weights, pairs.ep, exact)
    return found._replace(in_parameters=sites.in_parameters(pairs.density.offset + e, shares))


def _ep(
    cov: WithSites,
    factors: tilted.SiteFactors,
    limits: Sequence[FloatArray],
    tol: float,
    start: EPResult | None = None,
) -> EPResult:
    """Of rows between limits, of which there may be none, then of predictors of sites."""
    every = tilted.Joined([tilted.Intervals(*limits), factors]) if limits[0].size else factors
    with few_blas_threads(cov.size):
        return fit_factors(cov, every, tol=tol, max_sweeps=MAX_SWEEPS, start=start)


@dataclass(eq=False)
class SiteDraws:
    """Coordinates c of predictors under sites, beside rows that are intervals or without.

    Attributes
    ----------
    density : SiteLogDensity
    slopes : callable
        Derivatives of the log of the sites.
    cov : SemidefiniteMatrix or LowRankCovariance
        Of the rows, then of the predictors.
    rows : RowsBeside or None
    tol : float
        Of expectation propagation: weights make up for what is left.
    rung : Rung
        How the rows are proposed.
    certain : bool, default False
        Whether all sites are known to be log-concave.
    moments : bool, default True
        See `pair_proposal`.
    most : int
        See `Target`.
    """

    density: cg.SiteLogDensity
    slopes: tilted.SlopeFunction
    cov: WithSites
    rows: RowsBeside | None
    tol: float
    rung: Rung = escalation.DEFAULT.first
    certain: bool = field(default=False, kw_only=True)
    moments: bool = field(default=True, kw_only=True)
    most: int = field(default=MOST, kw_only=True)

    @cached_property
    def _factors(self) -> tilted.SiteFactors:
        found = tilted.SiteFactors(self.density.log_prob, self.slopes, self.density.offset)
        found.certain = self.certain
        return found

    @property
    def log_concave(self) -> bool:
        """Whether all sites are, after EP."""
        return self._factors.log_concave

    @cached_property
    def ep(self) -> EPResult:
        """EP's fixed point for [rows, predictors less their offset]."""
        rows, none = self.rows, np.zeros(0)
        limits = (none, none) if rows is None else (rows.lower, rows.upper)
        return _ep(self.cov, self._factors, limits, self.tol)

    @cached_property
    def proposal(self) -> PairProposal:
        """Pairs of coordinates, from N(0, I) times the sites of the likelihood, not of rows."""
        ep, m = self.ep, self.ep.mean.size - self.density.offset.size
        marginals = cg.SiteMarginals(*(x[m:] for x in (ep.mean, ep.variance, ep.tau, ep.nu)))
        gaussian = cg.coordinate_gaussian(self.density.factor, marginals.tau, marginals.nu)
        given = None
        with few_blas_threads(self.cov.size):
            if self.rows is not None:
                given = self.rows.given(gaussian, replace(escalation.DEFAULT, first=self.rung))
            known = gaussian, self.density, marginals, given
            return pair_proposal(*known, moments=self.moments)

    @cached_property
    def sampler(self) -> coordinates.SiteSampler:
        """Proposals, which the evidence and all draws share."""
        proposal = self.proposal
        sd = np.linalg.norm(self.density.factor, axis=1)
        known = self._factors.log_concave_within(sd)
        target = None if known else Target(self.density, self.slopes, most=self.most)
        return coordinates.SiteSampler(with_modes(proposal, target, self.rows))


def pairs_of(rows: Rectangle, sites: SitesGiven) -> SiteDraws:
    """For sites, and for rows that are intervals before them."""
    k = rows.lower.size - sites.size
    matrix = linalg.symmetric(rows.cov)
    factor = linalg.low_rank_factor(matrix[k:, k:], NEGLIGIBLE)
    density = cg.SiteLogDensity(sites.log_prob, -rows.lower[k:], factor)
    if not k:
        cov = predictor_covariance(factor)
        return SiteDraws(density, sites.slopes, cov, None, _PAIRS_TOLERANCE)
    # Of the rows given the coordinates of the predictors.
    orthogonal, triangle = qr(factor, mode="economic", check_finite=False)
    white = solve_triangular(triangle, orthogonal.T @ matrix[k:, :k], check_finite=False)
    left = matrix[:k, :k] - white.T @ white
    beside = RowsBeside(white.T, rows.lower[:k], rows.upper[:k], left)
    return SiteDraws(density, sites.slopes, SemidefiniteMatrix(matrix), beside, _PAIRS_TOLERANCE)


def _covariance(matrix: FloatArray, k: int) -> WithSites:
    """In the form that needs fewer operations: smooth kernels have few columns."""
    if not np.isfinite(matrix).all():
        raise ArithmeticError("the covariance is not finite.")
    if not k:
        n = matrix.shape[0]
        half = linalg.low_rank_factor(matrix[::2, ::2], NEGLIGIBLE)
        if half.shape[1] < _LOW_RANK_SHARE * n:
            return predictor_covariance(linalg.low_rank_factor(matrix, NEGLIGIBLE))
    return SemidefiniteMatrix(matrix)


class _Exact(NamedTuple):
    """Derivatives in mean and covariance of predictors, and moments of these given the data.

    `first` and `second` are those of the predictors less EP's mean, by the same identities.
    """

    mean: FloatArray
    cov: FloatArray
    first: FloatArray
    second: FloatArray


def _exact_slopes(
    matrix: FloatArray, pairs: SiteDraws, sites: SitesGiven, c: FloatArray, weights: FloatArray
) -> _Exact:
    """By weighted draws of the coordinates, shape (N, r)."""
    proposal, ep, factor = pairs.sampler.proposal, pairs.ep, pairs.density.factor
    modes = proposal.modes if isinstance(proposal, ModePairs) else ()
    known = [(ep.tau, ep.nu), *((mode.tau, mode.nu) for mode in modes)]
    gaussians = [cg.coordinate_gaussian(factor, *own) for own in known]
    # Of each draw among the Gaussians.
    shares = softmax(np.array([x.log_over_prior(c.T) for x in gaussians]), axis=0)
    e, back = c @ factor.T, pinv(factor)
    slopes = sites.gradient(pairs.density.offset + e)
    for (tau, nu), share in zip(known, shares, strict=True):
        slopes = slopes - share[:, None] * (nu - tau * e)
    found = []
    for (tau, nu), gaussian, share in zip(known, gaussians, shares, strict=True):
        part = weights * share
        precision, mass = pairs.cov.site_precision(tau), part.sum()
        pull = nu - precision @ (matrix @ nu)
        kept = -(precision @ matrix)
        kept[np.diag_indices_from(kept)] += 1.0
        spread, off = matrix @ kept, matrix @ pull - ep.mean
        pulled = kept @ (part @ slopes)
        shared = (part[:, None] * slopes).T @ (c - gaussian.mean)
        first = matrix @ pulled
        second = np.einsum("ij,ji->i", spread, shared @ factor.T) + 2.0 * off * first
        second += mass * (spread.diagonal() + off**2)
        carried = kept @ shared @ back - mass * precision
        carried += np.outer(mass * pull + 2.0 * pulled, pull)
        found.append((mass * pull + pulled, carried, first + mass * off, second))
    mean, in_cov, *moments = (reduce(np.add, x) for x in zip(*found, strict=True))
    return _Exact(mean, 0.5 * linalg.symmetric(in_cov), *moments)


def _calibrated(e: FloatArray, weights: FloatArray, ep: EPResult, exact: _Exact) -> FloatArray:
    """Weights of draws for each site, shape (N, m), that have the exact first two moments.

    Times a quadratic function of the predictor, near 1: what such functions explain of a mean over
    the draws is then without Monte Carlo error.
    """
    sd = np.sqrt(ep.variance)
    x = (e - ep.mean) / sd
    powers = np.stack([np.ones_like(x), x, x * x])
    known = np.stack([np.ones_like(sd), exact.first / sd, exact.second / ep.variance])
    moments = np.einsum("ajm,bjm,j->mab", powers, powers, weights, optimize=True)
    by = np.linalg.solve(moments, known.T[:, :, None])[..., 0]
    shares: FloatArray = np.einsum("ajm,ma->jm", powers, by) * weights[:, None]
    return shares


# What the evidence of a block without a SkewGP is a function of: predictors of white coordinates.
#
# .. math:: p(y) = C \int \prod_i p(y_i \mid a_i + F_i c)\, N(c; 0, I)\, dc
#
# Wide priors are large rows of F: nothing is lost to round-off that a matrix of predictors would
# lose.


class FactorTerms(NamedTuple):
    """Predictors F c + a of rows, then of sites, for arrays and for graphs alike.

    Attributes
    ----------
    factor : (k + m, r)
        F.
    offset : (k + m,)
        a.
    lower, upper, value, noise : (k,)
        Limits of the noisy predictors of the rows, the value of those that are known, else NaN;
        variances of their noise.
    counts : (k,) or ()
        How often each row was seen.
    log_constant : ()
        Log of C.
    """

    factor: Any
    offset: Any
    lower: Any
    upper: Any
    value: Any
    noise: Any
    counts: Any = np.float64(1.0)
    log_constant: Any = np.float64(0.0)

    @property
    def n_rows(self) -> int:
        """Predictors."""
        return int(self.offset.size)

    @property
    def n_factorised(self) -> int:
        """Rows of a matrix whose factorisation takes as long as a sweep: (n r^2)^(1/3)."""
        n, r = self.factor.shape
        return int((n * r * r) ** (1.0 / 3.0))

    @property
    def finite(self) -> tuple[Any, ...]:
        """What has to be."""
        return self.factor, self.offset, self.log_constant

    def deviations(self, rows: slice) -> Any:
        """Of the predictors of some rows in the prior, also of stacked terms."""
        factor = self.factor[..., rows, :]
        return np.sqrt(np.einsum("...i,...i->...", factor, factor))


class FieldTerms(NamedTuple):
    r"""Predictors A z + a of a field z whose precision is Q + U'U, with Q and A sparse.

    .. math:: p(y) = C\, (2\pi)^{-d/2} \int \prod_i p(y_i \mid a_i + A_i z)
        \exp(b^\top z - \tfrac12 z^\top Q z - \tfrac12 |U z|^2)\, dz

    The prior need not have an integral. Rows and constants are as in `FactorTerms`; places are
    floating-point numbers, as all terms are.

    Attributes
    ----------
    design, precision : (m,) and (q,)
        Entries of A, row by row, and of both triangles of Q.
    of_design, of_precision : (2, m) and (2, q)
        Their rows and columns.
    slope : (d,)
        b.
    ties : (k, d)
        U, of few rows.
    """

    design: Any
    of_design: Any
    precision: Any
    of_precision: Any
    slope: Any
    ties: Any
    offset: Any
    lower: Any
    upper: Any
    value: Any
    noise: Any
    counts: Any = np.float64(1.0)
    log_constant: Any = np.float64(0.0)

    @property
    def n_rows(self) -> int:
        """Predictors."""
        return int(self.offset.size)

    @property
    def n_factorised(self) -> int:
        """No dense matrix is."""
        return 1

    @property
    def finite(self) -> tuple[Any, ...]:
        """What has to be."""
        rows = self.design, self.offset, self.log_constant
        return *rows, self.precision, self.slope, self.ties

    def deviations(self, rows: slice) -> Any:
        """One: those of the prior may be infinite."""
        return np.ones(self.offset[rows].size)
