r"""The log evidence with its gradient: a density of points, and probabilities of rectangles.

.. math:: \log p(y) = \log N(r; 0, G_{PP}) + \log P(l < u < h \mid r)
    - \log P(l_0 < u_{1:s} < h_0), \qquad u \sim N(0, G)

The rows of u are the pseudo-points of a Skew GP, then the observations that are intervals. By
expectation propagation for an optimiser on its way, by the twisted sampler where it arrives.

Where there are sites, functions p(y_i | eta_i) of one predictor each, these are the last rows, and
the probability is that of the others times all p(y_i | eta_i): see `site_evidence`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, pinv

from pymc_skewgp._errors import no_warnings
from pymc_skewgp._gaussian import coordinates, covariance, ep_dense, escalation, linalg
from pymc_skewgp._gaussian import log_prob_gradient as gradients
from pymc_skewgp._gaussian.blocks.beside import RowsBeside
from pymc_skewgp._gaussian.blocks.rows import RowSites
from pymc_skewgp._gaussian.coordinate_gaussian import CoordinateGaussian, SiteLogDensity
from pymc_skewgp._gaussian.ep import EPResult, cavities, fit_ep
from pymc_skewgp._gaussian.truncated import TruncatedDraws, log_prob_rectangle, warn_of_error
from pymc_skewgp._gaussian.univariate import Edges
from pymc_skewgp._gaussian.weights import Estimate, IntArray, add_estimates, normalized_weights
from pymc_skewgp._limits import few_blas_threads
from pymc_skewgp._observations.sites import SitesGiven
from pymc_skewgp._posterior import site_evidence as beside
from pymc_skewgp._sun.parameters import round_off_effect
from pymc_skewgp._validation import FloatArray, as_generator

# What a log evidence is a function of: Gaussian rows that are points or intervals.
#
# Points are conditioned on first, which is Gaussian regression; of the intervals a rectangle is
# left. With P and I for the two kinds of rows, and r the values less their means,
#
# .. math:: \log p(y) = \log N(r; 0, G_{PP}) + \log P(l - G_{IP} w < u < h - G_{IP} w), \qquad
#     w = G_{PP}^{-1} r, \quad u \sim N(0, G_{II} - G_{IP} G_{PP}^{-1} G_{PI})

_LOG_2PI = float(np.log(2.0 * np.pi))


class EvidenceTerms(NamedTuple):
    """Rows of a Gaussian vector and what is known of them, for arrays and for graphs alike.

    Attributes
    ----------
    lower, upper : (s + n,)
        Limits of the rows, less their means; what they are at points has no meaning. A label 1 is
        the interval (0, inf) of the noisy predictor, a label 0 is (-inf, 0). Where there are sites,
        the last rows are their predictors, of which both are 0 less the mean.
    value : (s + n,)
        At points, less their means; NaN at intervals.
    cov : (s + n, s + n)
        G: s rows for the pseudo-points, which are intervals, then n observations, their noise in
        it.
    noise : (s + n,)
        Variances of noise that each row has for itself, as far as that is known; 0 for none. It
        says which form of G is cheaper, nothing more.
    prior_lower, prior_upper : (s,)
        Limits of the pseudo-points' rows alone; the upper ones are infinite.
    prior_cov : (s, s)
        Their covariance.
    log_constant : ()
        What the log evidence has beyond that of the rows.
    counts : (s + n,) or ()
        Rows that each interval stands for, each with noise of its own, which must be known.
    """

    lower: Any
    upper: Any
    value: Any
    cov: Any
    noise: Any
    prior_lower: Any
    prior_upper: Any
    prior_cov: Any
    log_constant: Any = np.float64(0.0)
    counts: Any = np.float64(1.0)

    @property
    def n_rows(self) -> int:
        """Rows, each as often as it was observed."""
        return int(np.broadcast_to(self.counts, self.value.shape).sum())

    @property
    def n_factorised(self) -> int:
        """Rows of the matrix that is factorised."""
        return int(self.value.size)


# Share of its variance below which the noise of a single row is left in the covariance of z.
_NUGGET = 1e-4
_REPEATED_EP_TOLERANCE = 1e-8
_PAIRS_TOLERANCE = 1e-3  # of all factors together


@dataclass(eq=False)
class Rows:
    """Rows u = z + e between limits, so many of each kind, which share the entry of z ~ N(0, K).

    Attributes
    ----------
    cov : ndarray, shape (d, d)
        Of a row of each kind, its noise included.
    noise : ndarray, shape (d,)
        Variance of the noise e of each row; 0 for a row whose noise is not known, or not its own.
    lower, upper : ndarray, shape (d,)
        Limits, infinities allowed.
    counts : ndarray, shape (d,)
        Rows of each kind, 1 or more; 1 where `noise` is 0.
    """

    cov: FloatArray
    noise: FloatArray
    lower: FloatArray
    upper: FloatArray
    counts: FloatArray

    @property
    def repeat(self) -> bool:
        """Whether some kinds stand for several rows."""
        return bool((self.counts != 1).any() and np.isfinite(self.cov).all())

    def are_alike(self, within: float = coordinates.ALIKE) -> bool:
        """Whether many rows with noise of their own are of nearly one predictor.

        Rows drawn one by one would share a tail that all draws miss. See `coordinates.are_alike`
        for `within`: of predictors that are one whatever the hyperparameters, where what is climbed
        must not jump with them.
        """
        if not (self.noise > 0.0).any() or not np.isfinite(self.cov).all():
            return False
        own = np.flatnonzero((self.own_noise > 0.0) & ~self.still)
        if not own.size:
            return False
        noise, cov = self.own_noise[own], self.cov[np.ix_(own, own)]
        limits = self.lower[own], self.upper[own], cov.diagonal() - noise
        gaps, open_rows = coordinates.squared_gaps_of(cov, noise), coordinates.OpenRows(*limits)
        return coordinates.are_alike(self.counts[own], noise, gaps, within, open_rows)

    @cached_property
    def own_noise(self) -> FloatArray:
        """Noise but for nuggets, which are not what draws of z can be weighed by."""
        nugget = (self.counts == 1) & (self.noise < _NUGGET * self.cov.diagonal())
        return np.where(nugget, 0.0, self.noise)

    @cached_property
    def predictor_cov(self) -> FloatArray:
        """K."""
        return linalg.symmetric(self.cov - np.diag(self.own_noise))

    @cached_property
    def factor(self) -> FloatArray:
        """F, with K = F F'."""
        return linalg.low_rank_factor(self.predictor_cov)

    def single(self) -> tuple["Rows", IntArray | None]:
        """The rows one by one, and which kind each is of; None where none stands for several."""
        if not self.repeat:
            return self, None
        kind = np.repeat(np.arange(self.counts.size), self.counts.astype(np.intp))
        cov, noise = self.predictor_cov[np.ix_(kind, kind)], self.own_noise[kind]
        cov[np.diag_indices_from(cov)] += noise
        return Rows(cov, noise, self.lower[kind], self.upper[kind], np.ones(kind.size)), kind

    @cached_property
    def hard(self) -> IntArray:
        """Rows without noise."""
        return np.flatnonzero(self.own_noise <= 0.0)

    @cached_property
    def still(self) -> NDArray[np.bool_]:
        """Noisy rows whose predictors are known, as that of a duel of equal items."""
        variance = np.einsum("ij,ij->i", self.factor, self.factor)
        return coordinates.are_still(variance, self.own_noise)

    def log_prob_by(self, drawn: TruncatedDraws) -> Estimate:
        """By `draws`, which have no such rows."""
        assert drawn.log_prob is not None
        own = (x[self.still] for x in (self.lower, self.upper, self.own_noise, self.counts))
        known = coordinates.log_prob_of_still(*own)
        return drawn.log_prob._replace(value=drawn.log_prob.value + known)

    @cached_property
    def draws(self) -> beside.SiteDraws:
        """Of the coordinates: rows of one predictor are one factor of it, hard ones beside."""
        hard, noisy = self.hard, np.flatnonzero((self.own_noise > 0.0) & ~self.still)
        unit, first = coordinates.equal_predictors(self.factor[noisy], np.zeros(noisy.size))
        order = np.argsort(unit, kind="stable")
        own = (x[noisy[order]] for x in (self.lower, self.upper, self.own_noise, self.counts))
        low, high, noise, counts = own
        rows = RowSites(low, high, np.full(order.size, np.nan), noise)
        known = coordinates.RowFactors(unit[order], rows, counts, first.size)
        density = SiteLogDensity(known.log_prob, np.zeros(first.size), self.factor[noisy[first]])
        cut = RowsBeside(*(x[hard] for x in (self.factor, self.lower, self.upper, self.noise)))
        cov = covariance.predictor_covariance(np.vstack([cut.factor, density.factor]))
        rest = cut if hard.size else None
        given = density, known.slopes, cov, rest, _PAIRS_TOLERANCE
        return beside.SiteDraws(*given, certain=True, moments=False)

    @property
    def rows_are_better(self) -> bool:
        """Whether rows can be drawn one by one, and pairs leave next to nothing of their draws."""
        single = not self.hard.size and bool((self.counts == 1.0).all())
        return single and self.draws.sampler.collapsed


class Intervals(Rows):
    """The rows that are intervals, given those that are points; those that stand for none left out.

    Parameters
    ----------
    terms : EvidenceTerms
        Arrays.

    Attributes
    ----------
    log_density : float
        Of the points, 0 without any.

    Raises
    ------
    NotPositiveDefiniteError
        Where the points have no covariance.
    """

    def __init__(self, terms: EvidenceTerms) -> None:
        counts = np.broadcast_to(terms.counts, terms.value.shape)
        point = ~np.isnan(terms.value)
        self._n_rows = point.size
        self._points = p = np.flatnonzero(point)
        self._kept = i = np.flatnonzero(~point & (counts > 0))
        self.log_density, every = 0.0, i.size == point.size
        columns = terms.noise, terms.lower, terms.upper, counts
        cov = terms.cov if every else terms.cov[np.ix_(i, i)]
        super().__init__(cov, *(x if every else x[i] for x in columns))
        if not p.size:
            return
        residual = terms.value[p]
        chol, _ = linalg.cholesky(
            "the covariance of the values", linalg.symmetric(terms.cov[np.ix_(p, p)])
        )
        cross = terms.cov[np.ix_(p, i)]
        self._chol = chol
        self._weights = cho_solve((chol, True), residual)
        self._solved = cho_solve((chol, True), cross)
        shift = cross.T @ self._weights
        self.lower, self.upper = self.lower - shift, self.upper - shift
        self.cov = self.cov - cross.T @ self._solved
        self.log_density = float(
            -0.5 * residual @ self._weights
            - np.log(chol.diagonal()).sum()
            - 0.5 * residual.size * _LOG_2PI
        )

    def at_intervals(self, x: FloatArray | float) -> FloatArray:
        """A vector for all rows with `x` at these, 0 elsewhere."""
        full = np.zeros(self._n_rows)
        full[self._kept] = x
        return full

    def pull_back(
        self, lower: FloatArray, upper: FloatArray, cov: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        r"""Gradient of `log_density` plus what has these derivatives in the rectangle.

        In limits, values and covariance (symmetric) of all rows.

        With :math:`g` the derivative in the conditional means and :math:`B = G_{PP}^{-1} G_{PI}`:

        .. math:: \partial r = B g - w, \quad \partial G_{IP} = g w^\top - 2 \Gamma B^\top,
            \quad \partial G_{PP} = \tfrac12 (w w^\top - G_{PP}^{-1}) - B g w^\top
            + B \Gamma B^\top

        with :math:`\Gamma` the derivative in the rectangle's covariance.
        """
        n, p, i = self._n_rows, self._points, self._kept
        if i.size == n:
            return lower, upper, np.zeros_like(lower), cov
        value, full = np.zeros(n), np.zeros((n, n))
        full[np.ix_(i, i)] = cov
        if p.size:
            weights, solved = self._weights, self._solved
            by_mean = -(lower + upper)  # the limits move by -mean, and the mean by C' K^-1 r
            moved = solved @ by_mean
            value[p] = moved - weights
            carried = solved @ cov
            across = 0.5 * np.outer(weights, by_mean) - carried
            own = 0.5 * np.outer(weights, weights - 2.0 * moved) + carried @ solved.T
            own -= 0.5 * cho_solve((self._chol, True), np.eye(p.size))
            full[np.ix_(p, p)] = linalg.symmetric(own)
            full[np.ix_(p, i)], full[np.ix_(i, p)] = across, across.T
        return self.at_intervals(lower), self.at_intervals(upper), value, full


# The log probability of the intervals: rows one by one, or kinds of rows that repeat.

# An optimiser needs a gradient that is right to a few digits; the value is off by the square.
EP_TOLERANCE = 1e-4


def joint_log_prob(
    rows: Rows,
    sites: SitesGiven | None = None,
    *,
    method: gradients.LogProbMethod = "twisted",
    n_draws: int = 256,
    random_seed: int = 0,
    tol: float = EP_TOLERANCE,
    compiled: bool = False,
) -> gradients.LogProbGradient:
    """Log probability of the intervals, times sites, with its gradient.

    Options as of `log_prob_and_gradient`; under sites "twisted" is by mirrored pairs, and `tol` is
    the residual of EP.
    """
    if sites is None and method == "ep" and rows.repeat:
        return log_prob_by_ep(rows, _REPEATED_EP_TOLERANCE)[0]
    if sites is None and method == "twisted" and rows.are_alike(coordinates.EQUAL):
        return log_prob_by_draws(rows, n_draws, random_seed)
    single, kind = rows.single()
    if sites is None:
        options: dict[str, Any] = {"method": method, "n_draws": n_draws, "random_seed": random_seed}
        limits = single.lower, single.upper
        found = gradients.log_prob_and_gradient(*limits, single.cov, **options, compiled=compiled)
    elif method == "ep":
        found, _ = beside.sites_by_ep(single, sites, tol)
    else:
        found = beside.sites_by_pairs(single, sites, n_draws, random_seed, tol)
    return _of_kinds(found, kind, rows)


def _of_kinds(
    found: gradients.LogProbGradient, kind: IntArray | None, rows: Rows
) -> gradients.LogProbGradient:
    """The gradient in the kinds from that in their single rows."""
    if kind is None:
        return found
    to_kind = np.zeros((rows.counts.size, kind.size))
    to_kind[kind, np.arange(kind.size)] = 1.0
    cov = to_kind @ found.cov @ to_kind.T
    own = to_kind @ found.cov.diagonal() - cov.diagonal()
    return found._replace(
        lower=to_kind @ found.lower, upper=to_kind @ found.upper, cov=cov, own_noise=own
    )


def log_prob_by_ep(
    rows: Rows, tol: float, max_sweeps: int = 200, start: EPResult | None = None
) -> tuple[gradients.LogProbGradient, EPResult]:
    """EP's log probability with its gradient, and the sites, one for each kind.

    With one site for each kind, raised to the number of its rows, it is EP of all rows: they have
    equal sites.
    """
    noise, lower, upper, count = rows.own_noise, rows.lower, rows.upper, rows.counts
    cov = covariance.LowRankCovariance(noise, rows.factor, count)
    ep = fit_ep(cov, lower, upper, tol=tol, max_sweeps=max_sweeps, start=start, count=count)
    edges = Edges.of(lower, upper, *cavities(cov, ep))
    pull = count * ep.weights
    # What the sites of all rows of a kind say of its entry of z.
    of_kinds = covariance.LowRankCovariance(np.zeros(noise.size), rows.factor)
    precision = of_kinds.site_precision(count * ep.tau / (1.0 + noise * ep.tau))
    gradient = 0.5 * (np.outer(pull, pull) - precision)
    each = 0.5 * (ep.weights**2 - ep.tau + ep.tau**2 * ep.variance)  # in the noise of one row
    own = count * each - gradient.diagonal()
    found = gradients.LogProbGradient(
        ep.log_prob, -count * edges.lower, count * edges.upper, gradient, own_noise=own
    )
    return found, ep


def log_prob_by_draws(rows: Rows, n_draws: int, random_seed: int) -> gradients.LogProbGradient:
    r"""The log of a mean weight at fixed points, and the gradient by Fisher's identity.

    .. math:: \frac{\partial \log P}{\partial K}
        = \frac12 K^{-1} \left(\mathrm E[z z'] - K\right) K^{-1}, \qquad
        \frac{\partial \log P}{\partial \mathrm E z} = K^{-1} \mathrm E z,

    z within the limits. Draws say only what these lack to the Gaussian that EP's sites make of z,
    cut off by the rows without noise: of it they are known.
    """
    drawn = rows.draws.sampler.members(-(-n_draws // 2), as_generator(random_seed))
    log_prob = rows.log_prob_by(drawn)
    c, weights = drawn.draws.T, normalized_weights(drawn.log_weights)
    tempered = drawn.method == "tempered"
    lower, upper = np.zeros((2, rows.counts.size))
    # Moments of c: what they have beyond those of a Gaussian that is known, unless tempered.
    if tempered:
        first, second = c @ weights, (c * weights) @ c.T
    else:
        proposal, hard = rows.draws.proposal, rows.hard
        q, sites = proposal.gaussian, proposal.sites
        log_target = q.log_ratio(c, q.white(c)) + sites(c)
        change = weights - normalized_weights(drawn.log_weights - log_target)
        known = _within(q, rows.factor[hard], rows.lower[hard], rows.upper[hard])
        first, second = known[0] + c @ change, known[1] + (c * change) @ c.T
        lower[hard], upper[hard] = known[2:]
    back = pinv(rows.factor)
    mean = back.T @ first
    cov = linalg.symmetric(0.5 * back.T @ (second - np.eye(len(c))) @ back)
    noisy = rows.own_noise > 0
    value = rows.factor[noisy] @ c
    sd = np.sqrt(rows.own_noise[noisy])[:, None]
    edges = Edges.of(rows.lower[noisy, None], rows.upper[noisy, None], value, sd)
    count = rows.counts[noisy]
    lower[noisy], upper[noisy] = -count * (edges.lower @ weights), count * (edges.upper @ weights)
    _shift_together(rows, lower, upper, mean)
    own = np.zeros(rows.counts.size)
    own[noisy] = count * (edges.spread @ weights) / (2.0 * rows.own_noise[noisy])
    own[noisy] -= cov.diagonal()[noisy]
    noise = log_prob.std_error if tempered else 0.0
    return gradients.LogProbGradient(log_prob.value, lower, upper, cov, noise, own)


def _within(
    q: CoordinateGaussian, factor: FloatArray, lower: FloatArray, upper: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """First and second moments of N(m, S) with rows F c within limits, and derivatives in these.

    By derivatives of the probability: S F' times those in F c.
    """
    spread = q.spread @ q.spread.T
    centre, gain = factor @ q.mean, spread @ factor.T
    cut = gradients.log_prob_and_gradient(
        lower - centre, upper - centre, factor @ gain, n_draws=1024
    )
    if not np.isfinite(cut.value):
        raise ArithmeticError("round-off decides the probability of the signs at pseudo-points.")
    first = q.mean - gain @ (cut.lower + cut.upper)
    second = spread + 2.0 * gain @ cut.cov @ gain.T - np.outer(q.mean, q.mean)
    second += np.outer(first, q.mean) + np.outer(q.mean, first)
    return first, second, cut.lower, cut.upper


def _shift_together(rows: Rows, lower: FloatArray, upper: FloatArray, mean: FloatArray) -> None:
    """Make derivatives in limits add up to that in the mean, which draws say more exactly.

    That of a predictor, which is shared out among its kinds of rows.
    """
    low, high = np.isfinite(rows.lower), np.isfinite(rows.upper)
    unit, _ = coordinates.equal_predictors(rows.factor, np.zeros(mean.size))
    sides = np.maximum(np.bincount(unit, low.astype(float) + high), 1.0)
    missing = (np.bincount(unit, -mean - lower - upper) / sides)[unit]
    missing[rows.still] = 0.0
    lower += np.where(low, missing, 0.0)
    upper += np.where(high, missing, 0.0)


_VALUE_TOLERANCE = 1e-2
# Residual from which on what EP says may be anything, not rough alone.
_FAR = 10.0
_MAX_SWEEPS = 100
# What may be left of the prior's variances besides its leading factor, in units of the least
# noise; it joins the noise, so that the variances stay as they are.
_LEFT_OVER = 2e-6
_COINCIDENT = 1.0 - 1e-6
# Above this share of columns the dense form needs fewer operations.
_LOW_RANK_SHARE = 0.4
# Up to so many rows the dense form takes less time all the same.
_FEW_ROWS = 150


class EvidenceGradient(NamedTuple):
    """Log evidence with its gradient.

    Attributes
    ----------
    value : float
    wrt : EvidenceTerms or FactorTerms
        Derivatives in each of its entries; 0 for infinite limits, and for `noise`, which is part
        of the covariance, but where rows repeat: what the noise of each says beyond that.
    noise : float
        See `LogProbGradient`.
    in_parameters : sequence of ndarray
        Derivatives in the parameters of sites.
    """

    value: float
    wrt: Any
    noise: float = 0.0
    in_parameters: Sequence[FloatArray] = ()


class EvidenceByEP:
    """Expectation propagation's log evidence, begun each time where the last one ended.

    Parameters
    ----------
    tol : float, default 1e-4
        Residual, in standard deviations, at which EP stops; for the value alone no less than 1e-2.
    """

    def __init__(self, tol: float = EP_TOLERANCE) -> None:
        self._tol = tol
        self._last: EPResult | None = None

    def __call__(self, terms: EvidenceTerms, sites: SitesGiven | None = None) -> EvidenceGradient:
        """Value and gradient; minus infinity and zeros where no evidence can be computed."""

        def joint(rows: Intervals) -> gradients.LogProbGradient:
            if sites is None:
                return self._rectangle(terms, rows)
            single, kind = rows.single()
            start = self._start(single.lower.size)
            found, ep = beside.sites_by_ep(single, sites, self._tol, start)
            self._keep(ep)
            return _of_kinds(found, kind, rows)

        return evidence_of(terms, joint, _of_signs(terms))

    def value(self, terms: EvidenceTerms, sites: SitesGiven | None = None) -> float:
        """The value alone, in less time where there are no pseudo-points."""
        if terms.prior_lower.size or (sites is None and terms.counts.size > 1):
            return self(terms, sites).value
        try:
            with no_warnings(), np.errstate(all="ignore"), few_blas_threads(terms.lower.size):
                rows = Intervals(terms)
                log_prob = self._log_prob(terms, rows, sites) if rows.lower.size else 0.0
        except (np.linalg.LinAlgError, ArithmeticError, ValueError):
            return -np.inf
        value = rows.log_density + float(terms.log_constant) + log_prob
        return value if np.isfinite(value) else -np.inf

    def values(self, known: Iterable[tuple[EvidenceTerms, SitesGiven | None] | None]) -> FloatArray:
        """`value` of many terms with sites; minus infinity of None."""
        return np.array([-np.inf if each is None else self.value(*each) for each in known])

    def _log_prob(self, terms: EvidenceTerms, rows: Intervals, sites: SitesGiven | None) -> float:
        tol = max(self._tol, _VALUE_TOLERANCE)
        if sites is None:
            limits, start = (rows.lower, rows.upper), self._start(rows.lower.size)
            cov = _covariance(terms, rows)
            ep = ep_dense.ep_alone(cov, *limits, tol=tol, max_sweeps=_MAX_SWEEPS, start=start)
        else:
            single = rows.single()[0]
            ep = beside.ep_of_sites(single, sites, tol, self._start(single.lower.size))[0]
        self._keep(ep)
        return ep.log_prob

    def _start(self, size: int) -> EPResult | None:
        """The last sites, where there are as many rows."""
        return self._last if self._last is not None and self._last.tau.size == size else None

    def _keep(self, ep: EPResult) -> None:
        if not ep.residual < _FAR:
            raise ArithmeticError(f"EP stopped with residual {ep.residual:.2g}: no evidence.")
        if np.isfinite(ep.log_prob):
            self._last = ep

    def _rectangle(self, terms: EvidenceTerms, rows: Intervals) -> gradients.LogProbGradient:
        lower, upper = rows.lower, rows.upper
        if not lower.size:
            return gradients.LogProbGradient(0.0, lower, upper, rows.cov)
        start = self._start(lower.size)
        if rows.repeat:
            found, ep = log_prob_by_ep(rows, self._tol, _MAX_SWEEPS, start)
            self._keep(ep)
            return found
        cov = _covariance(terms, rows)
        ep, gradient = ep_dense.ep_with_gradient(
            cov, lower, upper, tol=self._tol, max_sweeps=_MAX_SWEEPS, start=start
        )
        self._keep(ep)
        return gradients.LogProbGradient(ep.log_prob, gradient.lower, gradient.upper, gradient.cov)


def evidence_by_draws(
    terms: EvidenceTerms, n_draws: int, random_seed: int = 0, sites: SitesGiven | None = None
) -> EvidenceGradient:
    """Log evidence by the twisted sampler, or mirrored pairs, at fixed points, with its gradient.

    Without sites that of this very number, else by the same draws.
    """
    joint = partial(joint_log_prob, sites=sites, n_draws=n_draws, random_seed=random_seed)
    return evidence_of(terms, joint, _of_signs(terms))


def evidence_estimate(
    terms: EvidenceTerms, n_draws: int, random_seed: int = 0, sites: SitesGiven | None = None
) -> Estimate:
    """Log evidence with its standard error, no gradient.

    Minus infinity where the signs at pseudo-points have a probability that round-off decides.
    """
    if not _round_off(terms) <= escalation.LARGEST_EFFECT:
        return Estimate(-np.inf, 0.0, 1.0, -np.inf)
    rows = Intervals(terms)
    single, rng = rows.single()[0], as_generator(random_seed)
    if sites is not None:
        joint = beside.pairs_of(single, sites).sampler.members(n_draws, rng).log_prob
    elif rows.are_alike() and not rows.rows_are_better:
        joint = rows.log_prob_by(rows.draws.sampler.members(-(-n_draws // 2), rng))
        warn_of_error(joint, escalation.DEFAULT.largest_se)
    else:
        limits = single.lower, single.upper
        joint = log_prob_rectangle(single.cov, *limits, n_draws, None, random_seed)
    assert joint is not None
    known = rows.log_density + float(terms.log_constant)
    if not terms.prior_lower.size:
        return joint._replace(value=joint.value + known)
    prior = log_prob_rectangle(
        terms.prior_cov, terms.prior_lower, terms.prior_upper, n_draws, None, random_seed
    )
    total = add_estimates(known, joint, prior)
    return joint._replace(value=total.value, std_error=total.std_error)


def evidence_of(
    terms: EvidenceTerms,
    joint_of: Callable[[Intervals], gradients.LogProbGradient],
    signs: gradients.LogProbGradient | None,
) -> EvidenceGradient:
    """Of the points and the rectangle given them, over the probability of the prior's signs.

    Minus infinity and zeros where no evidence can be computed, or the signs are impossible: None.
    """
    try:
        with no_warnings(), np.errstate(all="ignore"), few_blas_threads(terms.lower.size):
            rows = Intervals(terms)
            joint = joint_of(rows)
    except (np.linalg.LinAlgError, ArithmeticError, ValueError):
        return _nothing(terms)
    if signs is None or not all(np.isfinite(x).all() for x in joint[:6]):
        return _nothing(terms)
    value = rows.log_density + float(terms.log_constant) + joint.value - signs.value
    own = rows.pull_back(joint.lower, joint.upper, joint.cov)
    if not (np.isfinite(value) and np.isfinite(own[-1]).all()):
        return _nothing(terms)
    wrt = EvidenceTerms(
        *own,
        rows.at_intervals(joint.own_noise),
        -signs.lower,
        -signs.upper,
        -signs.cov,
        np.ones_like(terms.log_constant),
        np.zeros_like(terms.counts),
    )
    return EvidenceGradient(value, wrt, joint.noise, joint.in_parameters)


def _of_signs(terms: EvidenceTerms) -> gradients.LogProbGradient | None:
    limits, cov = (terms.prior_lower, terms.prior_upper), terms.prior_cov
    if not cov.size:
        return gradients.LogProbGradient(0.0, *limits, cov)
    return None if coincide(cov) else gradients.log_prob_and_gradient(*limits, cov, n_draws=1024)


def _round_off(terms: EvidenceTerms, added: float = 0.0) -> float:
    """Nats that round-off may move the pseudo-points' log probability by."""
    return round_off_effect(terms.prior_cov, -terms.prior_lower, added).nats


def _covariance(terms: EvidenceTerms, rows: Intervals) -> covariance.Covariance:
    """In the form that takes less time: smooth kernels have few columns."""
    matrix, noise = rows.cov, rows.noise
    n = matrix.shape[0]
    if not np.isfinite(matrix).all():
        raise ArithmeticError("the covariance is not finite.")
    noisy = noise[noise > 0]
    if n <= _FEW_ROWS or not noisy.size:
        return covariance.DenseCovariance(matrix)
    left_over = _LEFT_OVER * float(noisy.min())
    # Improbable signs at pseudo-points feel the little that the low-rank form leaves to noise.
    if not _round_off(terms, left_over) <= escalation.LARGEST_EFFECT:
        return covariance.DenseCovariance(matrix)
    # A part of the rows shows at an eighth of the cost that there are too many columns.
    half = slice(None, None, 2)
    if _factor(matrix[half, half], noise[half], left_over).shape[1] <= _LOW_RANK_SHARE * n:
        factor = _factor(matrix, noise, left_over)
        if factor.shape[1] <= _LOW_RANK_SHARE * n:
            left = matrix.diagonal() - np.einsum("ij,ij->i", factor, factor)
            # A row without noise that the factor holds altogether keeps what round-off may ask.
            return covariance.LowRankCovariance(
                np.maximum(left, 1e-10 * float(noisy.min())), factor
            )
    return covariance.DenseCovariance(matrix)


def _factor(matrix: FloatArray, noise: FloatArray, left_over: float) -> FloatArray:
    prior = matrix.copy()
    prior[np.diag_indices_from(prior)] -= noise
    if not (matrix.diagonal() > 0).all():
        raise ArithmeticError("a variance is not positive.")
    largest = float(prior.diagonal().max())
    if largest <= left_over:  # nothing but noise
        return np.zeros((noise.size, 0))
    return linalg.low_rank_factor(prior, left_over / largest)


def coincide(prior_cov: FloatArray) -> bool:
    """Whether two pseudo-points are as good as one: of opposite phases their probability is 0."""
    sd = np.sqrt(prior_cov.diagonal())
    return bool((np.abs(np.triu(prior_cov / sd / sd[:, None], 1)) > _COINCIDENT).any())


def _nothing(terms: EvidenceTerms) -> EvidenceGradient:
    return EvidenceGradient(-np.inf, EvidenceTerms(*(np.zeros_like(x) for x in terms)))
