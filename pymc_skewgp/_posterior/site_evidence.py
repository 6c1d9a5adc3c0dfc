r"""The evidence of sites beside a rectangle, with its gradient: by EP, and exactly by pairs.

.. math:: Z = \mathrm E\Bigl\{1(l < u < h) \prod_i p(y_i \mid a_i + e_i)\Bigr\}, \qquad
    (u, e) \sim N(0, G)

the last rows of G being those of the sites' predictors. EP's evidence is stationary in its sites
t, so that only explicit dependence counts. That does not hold where p is not log-concave and would
add to a cavity's variance: EP cuts t there (`ep_gradient`), and its gradient is not quite that of
its value. Of the exact one, on which t has no bearing, log Z is that of N(0, G) times t plus
log E(W), W being p over t and the mean over EP's Gaussian q, and by Gaussian integration by parts
the derivatives of the second term in mean and covariance of q are

.. math:: \mathrm E(g \mid y), \qquad
    \tfrac12 \mathrm E\{g g^\top + \mathrm{diag}(h) \mid y\}

with g and h the slopes of log p less those of log t, small where q is near. These means are over
the same weighted draws as the evidence. Where g jumps, h has a delta there that no draw meets; its
mean is then that of g alone, by Stein's identity with the mean m and covariance S of q,

.. math:: \mathrm E(h_i \mid y) = \frac{\mathrm E\{(e_i - m_i)\, g_i \mid y\}
    - \sum_k S_{ik} \mathrm E(g_i g_k \mid y)}{S_{ii}}.

Where there are several modes no one Gaussian is near: t is then a sum over sites of EP and of the
modes, and each of its terms an expectation over a Gaussian of its own; h is a matrix.

A derivative in a parameter of p is the mean of that of log p, each draw weighted so that the same
identities hold for the moments of the predictors.
"""

from dataclasses import replace
from functools import partial, reduce
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.linalg import qr, solve_triangular
from scipy.special import softmax

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.blocks.pairs import ModePairs, RowsBeside, with_modes
from pymc_skewgp._gaussian.coordinate_gaussian import (
    CoordinateGaussian,
    SiteLogDensity,
    SiteMarginals,
    coordinate_gaussian,
)
from pymc_skewgp._gaussian.coordinates import SiteSampler
from pymc_skewgp._gaussian.covariance import (
    DenseCovariance,
    SemidefiniteMatrix,
    WithSites,
    predictor_covariance,
)
from pymc_skewgp._gaussian.ep import EPResult, cavities, ep_cov_gradient, fit_factors
from pymc_skewgp._gaussian.escalation import DEFAULT, RectangleSampler, SamplerSettings
from pymc_skewgp._gaussian.log_prob_gradient import LogProbGradient
from pymc_skewgp._gaussian.modes import Target
from pymc_skewgp._gaussian.pairs import GivenRows, pair_proposal
from pymc_skewgp._gaussian.tilted import Intervals, Joined, SiteFactors
from pymc_skewgp._gaussian.truncated_draws import TruncatedDraws
from pymc_skewgp._gaussian.univariate import Edges
from pymc_skewgp._gaussian.weights import Estimate, normalized_weights
from pymc_skewgp._observations.sites import SitesGiven, support_jumps
from pymc_skewgp._validation import FloatArray, as_generator

MAX_SWEEPS = 100
# Of EP's fixed point behind pairs: their weights make up for what is left, but by another error.
_PAIRS_TOLERANCE = 1e-5
# Of the largest variance, below which a direction of the predictors is left out.
_NEGLIGIBLE = 1e-12
# Part of the rows shows whether the factor has too many columns to save anything.
_LOW_RANK_SHARE = 0.3


class Rectangle(Protocol):
    """Rows that are intervals, and then the predictors of sites, minus their means for limits."""

    @property
    def lower(self) -> FloatArray:
        """Shape (m,)."""
        ...

    @property
    def upper(self) -> FloatArray:
        """Shape (m,)."""
        ...

    @property
    def cov(self) -> FloatArray:
        """Shape (m, m)."""
        ...


class JointGradient(NamedTuple):
    """A log probability with its derivatives.

    Attributes
    ----------
    rows : LogProbGradient
        In limits and covariance of all rows; of sites `lower` is minus the predictor's mean.
    parameters : list of ndarray
        In each parameter of the sites.
    """

    rows: LogProbGradient
    parameters: list[FloatArray]


def sites_by_ep(
    rows: Rectangle, sites: SitesGiven, tol: float, start: EPResult | None = None
) -> tuple[JointGradient, EPResult]:
    """EP's log probability of the rows that are intervals, times sites, with its gradient.

    The gradient is not that of the value where a site that is not log-concave was cut.
    """
    k = rows.lower.size - sites.size
    factors = SiteFactors(sites.log_prob, sites.slopes, -rows.lower[k:])
    cov = _covariance(linalg.symmetric(rows.cov), k)
    ep = _fit(cov, rows, factors, k, tol, start)
    mean, sd = cavities(cov, ep)
    lower, upper = np.zeros(rows.lower.size), np.zeros(rows.lower.size)
    lower[k:] = -ep.weights[k:]
    if k:
        edges = Edges.of(rows.lower[:k], rows.upper[:k], mean[:k], sd[:k])
        lower[:k], upper[:k] = -edges.lower, edges.upper
    found = LogProbGradient(ep.log_prob, lower, upper, ep_cov_gradient(cov, ep))
    parameters = sites.in_parameters(*factors.nodes(mean[k:], sd[k:]))
    return JointGradient(found, parameters), ep


def sites_by_pairs(
    rows: Rectangle, sites: SitesGiven, n_draws: int, random_seed: int, tol: float
) -> JointGradient:
    """The same by mirrored pairs at fixed points.

    With rows that are intervals the gradient is EP's, at a residual of `tol`: limits have no
    derivative by draws. So it is for sites that are impossible beyond a limit of the predictor.
    `LogProbGradient.noise` is the standard error of the value where draws were tempered.
    """
    pairs = _Pairs(rows, sites)
    draws = pairs.draws(n_draws, random_seed)
    estimate = _estimate(draws)
    noise = 0.0 if draws.method == "pairs" else estimate.std_error
    e = draws.draws @ pairs.density.factor.T
    by_ep = rows.lower.size > sites.size
    if by_ep or support_jumps(sites.log_prob, pairs.density.offset + e).any():
        own, parameters = sites_by_ep(rows, sites, tol, pairs.ep)[0]
        return JointGradient(own._replace(value=estimate.value, noise=noise), parameters)
    weights = normalized_weights(draws.log_weights)
    exact = _exact_slopes(linalg.symmetric(rows.cov), pairs, sites, draws.draws, weights)
    found = LogProbGradient(
        estimate.value, -exact.mean, np.zeros(exact.mean.size), exact.cov, noise
    )
    if not sites.has_parameters:
        return JointGradient(found, [])
    shares = _calibrated(e, weights, pairs.ep, exact)
    return JointGradient(found, sites.in_parameters(pairs.density.offset + e, shares))


def sites_estimate(rows: Rectangle, sites: SitesGiven, n_draws: int, random_seed: int) -> Estimate:
    """The value alone with its error, rows that are intervals among them or not."""
    return _estimate(_Pairs(rows, sites).draws(n_draws, random_seed))


class _Pairs:
    """Mirrored pairs for sites, and for rows that are intervals before them."""

    def __init__(self, rows: Rectangle, sites: SitesGiven) -> None:
        k = rows.lower.size - sites.size
        matrix = linalg.symmetric(rows.cov)
        factor = linalg.low_rank_factor(matrix[k:, k:], _NEGLIGIBLE)
        self.density = SiteLogDensity(sites.log_prob, -rows.lower[k:], factor)
        factors = SiteFactors(sites.log_prob, sites.slopes, self.density.offset)
        self.cov = SemidefiniteMatrix(matrix) if k else predictor_covariance(factor)
        self.ep = ep = _fit(self.cov, rows, factors, k, _PAIRS_TOLERANCE)
        marginals = SiteMarginals(*(x[k:] for x in (ep.mean, ep.variance, ep.tau, ep.nu)))
        gaussian = coordinate_gaussian(factor, marginals.tau, marginals.nu)
        given = beside = None
        if k:
            own = _RowsGiven(rows, matrix, factor)
            given, beside = own.under(gaussian, DEFAULT), own.beside()
        proposal = pair_proposal(gaussian, self.density, marginals, given)
        target = None if factors.log_concave else Target(self.density, sites.slopes)
        self.sampler = SiteSampler(with_modes(proposal, target, beside))

    def draws(self, n_draws: int, random_seed: int) -> TruncatedDraws:
        """Both members of so many pairs."""
        return self.sampler.members(n_draws, as_generator(random_seed))


class _RowsGiven:
    """Rows beside the predictors, given the coordinates c of these."""

    def __init__(self, rows: Rectangle, matrix: FloatArray, factor: FloatArray) -> None:
        k = matrix.shape[0] - factor.shape[0]
        self._lower, self._upper = rows.lower[:k], rows.upper[:k]
        orthogonal, triangle = qr(factor, mode="economic", check_finite=False)
        white = solve_triangular(triangle, orthogonal.T @ matrix[k:, :k], check_finite=False)
        self._cross = white.T
        self._left = matrix[:k, :k] - white.T @ white

    def beside(self) -> RowsBeside:
        """As they are beside several modes."""
        settings = replace(DEFAULT, first=DEFAULT.move_rungs[0])
        given = partial(self.under, settings=settings)
        noise = np.maximum(self._left.diagonal(), 0.0)
        return RowsBeside(self._cross, self._lower, self._upper, noise, given)

    def under(self, gaussian: CoordinateGaussian, settings: SamplerSettings) -> GivenRows:
        """Under a Gaussian of c, and white c given them."""
        cross = self._cross
        white = solve_triangular(gaussian.chol, cross.T, lower=True, check_finite=False).T
        cov = linalg.symmetric(self._left + white @ white.T)
        own = DenseCovariance(cov, "the covariance of the rows")
        shift = cross @ gaussian.mean
        sampler = RectangleSampler(own, self._lower - shift, self._upper - shift, settings)
        return GivenRows.of(sampler.first, own, white, shift)


def _fit(
    cov: WithSites,
    rows: Rectangle,
    factors: SiteFactors,
    k: int,
    tol: float,
    start: EPResult | None = None,
) -> EPResult:
    if not k:
        return fit_factors(cov, factors, tol=tol, max_sweeps=MAX_SWEEPS, start=start)
    both = Joined([Intervals(rows.lower[:k], rows.upper[:k]), factors])
    return fit_factors(cov, both, tol=tol, max_sweeps=MAX_SWEEPS, start=start)


def _covariance(matrix: FloatArray, k: int) -> WithSites:
    """In the form that needs fewer operations: smooth kernels have few columns."""
    if not np.isfinite(matrix).all():
        raise ArithmeticError("the covariance is not finite.")
    if not k:
        n = matrix.shape[0]
        half = linalg.low_rank_factor(matrix[::2, ::2], _NEGLIGIBLE)
        if half.shape[1] < _LOW_RANK_SHARE * n:
            return predictor_covariance(linalg.low_rank_factor(matrix, _NEGLIGIBLE))
    return SemidefiniteMatrix(matrix)


class _Exact(NamedTuple):
    """Derivatives in mean and covariance of predictors, and moments of these given the data.

    `first` and `second` are those of the predictors less EP's mean, by the same identities.
    """

    mean: FloatArray
    cov: FloatArray
    first: FloatArray
    second: FloatArray


class _Reference(NamedTuple):
    """Gaussian sites, with what N(0, G) times these is."""

    tau: FloatArray
    nu: FloatArray
    mean: FloatArray
    weights: FloatArray
    precision: FloatArray
    share: FloatArray  # of each draw, among all references

    def slopes(self, e: FloatArray) -> FloatArray:
        """Of the log of the sites."""
        return self.nu - self.tau * e


def _references(
    matrix: FloatArray, pairs: "_Pairs", c: FloatArray, e: FloatArray
) -> list[_Reference]:
    """EP's sites, and those about the modes where there are several."""
    proposal, ep = pairs.sampler.proposal, pairs.ep
    modes = proposal.modes if isinstance(proposal, ModePairs) else ()
    sites = [(ep.tau, ep.nu), *((mode.tau, mode.nu) for mode in modes)]
    shares = np.ones((1, c.shape[0]))
    if modes:
        logs = [coordinate_gaussian(pairs.density.factor, *x).log_over_prior(c.T) for x in sites]
        shares = softmax(np.array(logs), axis=0)
    found = []
    for (tau, nu), share in zip(sites, shares, strict=True):
        precision = pairs.cov.site_precision(tau)
        weights = nu - precision @ (matrix @ nu)
        found.append(_Reference(tau, nu, matrix @ weights, weights, precision, share))
    return found


def _exact_slopes(
    matrix: FloatArray, pairs: "_Pairs", sites: SitesGiven, draws: FloatArray, weights: FloatArray
) -> _Exact:
    """By weighted draws of the coordinates."""
    e = draws @ pairs.density.factor.T
    eta = pairs.density.offset + e
    references = _references(matrix, pairs, draws, e)
    slopes, curvatures = sites.slopes(eta)
    shared = np.sum([own.share[:, None] * own.slopes(e) for own in references], axis=0)
    slopes -= shared
    kinked = np.flatnonzero(sites.kinked(eta))
    found = []
    for own in references:
        part = weights * own.share
        mass, moved = part.sum(), part @ slopes
        curved = slopes.T @ (part[:, None] * slopes)
        smooth = curved.diagonal()[kinked]
        _add_bends(curved, part @ curvatures, references, part, e, shared)
        kept = -(own.precision @ matrix)
        kept[np.diag_indices_from(kept)] += 1.0
        variance = np.einsum("ij,ji->i", matrix, kept)
        if kinked.size:
            alone = part @ ((e - own.mean) * slopes)[:, kinked]
            rest = curved[kinked]
            rest[np.arange(kinked.size), kinked] = smooth
            alone -= np.einsum("ik,ik->i", matrix[kinked] @ kept, rest)
            curved[kinked, kinked] = smooth + alone / variance[kinked]
        pulled, carried = kept @ moved, kept @ curved @ kept.T
        first, off = matrix @ pulled, own.mean - pairs.ep.mean
        second = np.einsum("ij,ji->i", matrix @ carried, matrix)
        second += mass * (variance + off**2) + 2.0 * off * first
        carried -= mass * own.precision
        carried += np.outer(mass * own.weights + 2.0 * pulled, own.weights)
        found.append((mass * own.weights + pulled, carried, first + mass * off, second))
    mean, in_cov, *moments = (reduce(np.add, x) for x in zip(*found, strict=True))
    return _Exact(mean, 0.5 * linalg.symmetric(in_cov), *moments)


def _add_bends(
    curved: FloatArray,
    curvatures: FloatArray,
    references: list[_Reference],
    part: FloatArray,
    e: FloatArray,
    shared: FloatArray,
) -> None:
    """Add the mean second derivatives of the log of the sites over the sum of the references."""
    diagonal = np.diag_indices_from(curved)
    curved[diagonal] += curvatures + sum((part @ own.share) * own.tau for own in references)
    if len(references) > 1:
        curved += shared.T @ (part[:, None] * shared)
        for own in references:
            slopes = own.slopes(e)
            curved -= slopes.T @ ((part * own.share)[:, None] * slopes)


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


def _estimate(draws: TruncatedDraws) -> Estimate:
    assert draws.log_prob is not None
    return draws.log_prob


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
