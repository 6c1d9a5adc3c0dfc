r"""Draws of few coordinates under all rows: of rows that repeat, and of one predictor's factors.

Rows u = F c + e, e ~ N(0, S), are independent given the r coordinates c ~ N(0, I), so the log
probability of their limits is a sum over rows. Under EP's sites c is N(m, P); with rows that have
no noise among them, N(m, P) is cut off there, by the twisted sampler. A draw has the weight

.. math:: w(c) = \frac{N(c; 0, I)}{N(c; m, P)} \prod_i P(l_i < u_i < h_i \mid c)^{n_i},

whose mean is the probability of all limits. The more rows each coordinate has, the nearer to
Gaussian is the target, and the nearer to each other are the weights.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.special import log_ndtr, ndtri

from pymc_skewgp._errors import CollapsedWeightsError, DoublePrecisionError
from pymc_skewgp._gaussian import coordinate_gaussian as cg
from pymc_skewgp._gaussian import covariance, escalation, linalg
from pymc_skewgp._gaussian import weights as w
from pymc_skewgp._gaussian.blocks.rows import RowSites
from pymc_skewgp._gaussian.ep import EPResult, fit_ep, fit_factors
from pymc_skewgp._gaussian.pairs import DrawnInPairs, PairProposal, pair_proposal, picked
from pymc_skewgp._gaussian.tabulated import HERMITE_NODES, missing_of_functions
from pymc_skewgp._gaussian.tilted import SiteFactors
from pymc_skewgp._gaussian.truncated import warn_of_few
from pymc_skewgp._gaussian.truncated_draws import TruncatedDraws
from pymc_skewgp._gaussian.twisted import TwistedProposal, twist
from pymc_skewgp._gaussian.univariate import BoolArray, log_ndtr_interval
from pymc_skewgp._limits import few_blas_threads
from pymc_skewgp._validation import FloatArray


@dataclass(frozen=True)
class RowKinds:
    """Rows u = F c + e between limits, so many of each kind.

    Attributes
    ----------
    factor : ndarray, shape (d, r)
        F of a row of each kind.
    noise : ndarray, shape (d,)
        Variance of e, independent from row to row; 0 allowed.
    lower, upper : ndarray, shape (d,)
        Limits, infinities allowed.
    count : ndarray, shape (d,)
        Rows of each kind; 1 where there is no noise.
    group : ndarray of int, shape (d,)
        Which predictor each kind is of.
    """

    factor: FloatArray
    noise: FloatArray
    lower: FloatArray
    upper: FloatArray
    count: FloatArray
    group: w.IntArray


class CoordinateProposal:
    """Proposal for the coordinates, from EP's sites.

    Parameters
    ----------
    kinds : RowKinds
    ep : EPResult
        Sites of a row of each kind.
    relax : float in (0, 1]
        Power to which the sites are raised: below 1 the proposal is wider.
    ep_tolerance : float
        For what is cut off by rows without noise.
    """

    first = None  # no leading direction
    direction = None

    def __init__(self, kinds: RowKinds, ep: EPResult, relax: float, ep_tolerance: float) -> None:
        noisy = kinds.noise > 0
        self._factor, self._sd = kinds.factor[noisy], np.sqrt(kinds.noise[noisy])
        self._lower, self._upper = kinds.lower[noisy], kinds.upper[noisy]
        self._count, self._group = kinds.count[noisy], kinds.group[noisy]
        shrink = relax / (1.0 + ep.tau * kinds.noise)[noisy]
        self._tau, self._nu = ep.tau[noisy] * shrink, ep.nu[noisy] * shrink
        precision = self._factor.T @ ((self._count * self._tau)[:, None] * self._factor)
        precision[np.diag_indices_from(precision)] += 1.0
        self._chol = cholesky(precision, lower=True)
        pull = self._factor.T @ (self._count * self._nu)
        self._mean = cho_solve((self._chol, True), pull)
        # Columns that whiten c: c = m + spread z has the covariance P.
        self._spread = solve_triangular(self._chol, np.eye(pull.size), lower=True).T
        self._cut = _Cut.of(kinds, ~noisy, self._mean, self._spread, ep_tolerance)
        # What is drawn, as a Gaussian: with sites for the cuts.
        self._chol_drawn, self._mean_drawn = self._chol, self._mean
        if self._cut is not None:
            self._spread = self._cut.spread
            hard = kinds.factor[~noisy]
            precision += hard.T @ (ep.tau[~noisy, None] * hard)
            self._chol_drawn = cholesky(precision, lower=True)
            pull += hard.T @ ep.nu[~noisy]
            self._mean_drawn = cho_solve((self._chol_drawn, True), pull)

    @property
    def n_dims(self) -> int:
        """Uniforms needed for one draw."""
        return self._spread.shape[1] + (0 if self._cut is None else self._cut.twisted.n_dims)

    def draw(
        self, points: FloatArray, *, overwrite_points: bool = False
    ) -> tuple[FloatArray, FloatArray]:
        """Map uniform points, a draw a column, to coordinates and log weights."""
        own = points[points.shape[0] - self._spread.shape[1] :]
        c = self._spread @ np.asarray(ndtri(own))
        log_weights = np.zeros(points.shape[1])
        if self._cut is not None:
            rows, log_weights = self._cut.twisted.draw(points[: self._cut.twisted.n_dims].copy())
            c += self._cut.gain @ rows
        c += self._mean[:, None]
        return c, log_weights + self._log_ratio(c)

    def _log_ratio(self, c: FloatArray) -> FloatArray:
        """Log weights, but for rows without noise."""
        white = self._chol.T @ (c - self._mean[:, None])
        ratio = 0.5 * (np.einsum("ij,ij->j", white, white) - np.einsum("ij,ij->j", c, c))
        ratio -= float(np.log(self._chol.diagonal()).sum())
        found: FloatArray = ratio + self._count @ self.log_masses(self._factor @ c)
        return found

    def unseen_share(self, n_draws: int) -> float:
        """Relative error of the probability from tails that `n_draws` draws hardly meet.

        As for `unseen.unseen_share`, of each group of rows alone, whose weight is a known function
        of its own Gaussian.
        """
        centre = self._factor @ self._mean_drawn
        half = solve_triangular(self._chol_drawn, self._factor.T, lower=True)
        sd = np.sqrt(np.einsum("ij,ij->j", half, half))
        names, index = np.unique(self._group, return_inverse=True)
        value = centre[:, None] + sd[:, None] * HERMITE_NODES
        log_ratio = self._count[:, None] * (
            self.log_masses(value) + 0.5 * self._tau[:, None] * value**2 - self._nu[:, None] * value
        )
        by_group = np.zeros((names.size, HERMITE_NODES.size))
        np.add.at(by_group, index, log_ratio)
        missing = missing_of_functions(by_group, n_draws)
        cut = 0.0 if self._cut is None else self._cut.twisted.unseen_share(n_draws)
        return float(np.sqrt(missing @ missing + cut**2))

    def log_masses(self, value: FloatArray) -> FloatArray:
        """Log probability of the limits of a row of each kind, given its value without noise."""
        sd, low, high = self._sd[:, None], self._lower[:, None], self._upper[:, None]
        result = np.empty(value.shape)
        below, above = np.isneginf(self._lower), np.isposinf(self._upper)
        for rows in (below, above & ~below, ~below & ~above):
            if rows.any():
                scale = sd[rows]
                start, stop = (low[rows] - value[rows]) / scale, (high[rows] - value[rows]) / scale
                result[rows] = log_ndtr_interval(start, stop, (high[rows] - low[rows]) / scale)
        return result


@dataclass(frozen=True)
class _Cut:
    """What rows without noise make of N(m, P): drawn first, the rest given them.

    Attributes
    ----------
    twisted : TwistedProposal
        Of these rows less their mean.
    rows : ndarray, shape (s, r)
        Of the coordinates.
    gain, spread : ndarray, shapes (r, s) and (r, r')
        c - m = gain rows + spread z.
    """

    twisted: TwistedProposal
    rows: FloatArray
    gain: FloatArray
    spread: FloatArray

    @classmethod
    def of(
        cls,
        kinds: RowKinds,
        exact: BoolArray,
        mean: FloatArray,
        spread: FloatArray,
        ep_tolerance: float,
    ) -> "_Cut | None":
        """None without such rows."""
        if not exact.any():
            return None
        rows = kinds.factor[exact]
        own = rows @ spread
        cov = covariance.DenseCovariance(own @ own.T, "the covariance at pseudo_points")
        low, high = (x[exact] - rows @ mean for x in (kinds.lower, kinds.upper))
        twisted = twist(cov, fit_ep(cov, low, high, tol=ep_tolerance), low, high)
        gain = spread @ cho_solve((cov.chol, True), own).T
        left = spread - gain @ own
        return cls(twisted, rows, gain, linalg.low_rank_factor(linalg.symmetric(left @ left.T)))


# Intervals of one predictor, each with noise of its own, as one factor of that predictor.
#
# Given eta the rows :math:`v_j = \eta + e_j` are independent: a thousand labels at one place are
# :math:`\prod_j P(l_j < v_j < h_j \mid \eta)`, log Phi to a power. Its long tail on the side that
# no limit restricts is one function of eta, which quadrature sees. Rows drawn one by one share that
# tail, and may all miss it.

# A row has so many others within this many deviations of its noise: their predictors are as good
# as one, or are one.
_LEAST_ALIKE, ALIKE, EQUAL = 8.0, 0.2, 1e-3
# Skewness of one predictor given the rows that are of it, from which on its tail is long: draws of
# EP's Gaussian, which is narrower, lack .015 of it. Nodes in prior deviations; predictors at most.
_SKEWED, _NODES, _MOST = 0.9, np.linspace(-9.0, 9.0, 73), 4
_SAME = 1e-9  # of the largest deviation: predictors that differ by round-off alone
_AT_ONCE = 2**22  # pairs of rows


class RowFactors:
    """Rows of some predictors as one factor of each: log probabilities are added up.

    Parameters
    ----------
    unit : ndarray of int, shape (d,)
        Which predictor each kind of rows is of, ascending.
    rows : RowSites
        One of each kind.
    counts : ndarray, shape (d,)
        How many rows there are of the kind.
    size : int
        Number of predictors.
    """

    def __init__(self, unit: w.IntArray, rows: RowSites, counts: FloatArray, size: int) -> None:
        self._unit, self._rows = unit, rows
        shape = (size, unit.size)
        self._sums = sparse.csr_array((counts, (unit, np.arange(unit.size))), shape=shape)

    def log_prob(self, eta: FloatArray) -> FloatArray:
        """Log of the factors, predictors of shape (..., size)."""
        return self._added(self._rows.log_prob(slice(None), self._spread(eta)), eta)

    def slopes(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """First and second derivative of it."""
        first, second = self._rows.slopes(slice(None), self._spread(eta))
        return self._added(first, eta), self._added(second, eta)

    def _added(self, values: FloatArray, eta: FloatArray) -> FloatArray:
        return np.asarray((self._sums @ values.T).T).reshape(eta.shape)

    def _spread(self, eta: FloatArray) -> FloatArray:
        """What each kind is of, one set of predictors a row."""
        return np.ascontiguousarray(eta[..., self._unit].reshape(-1, self._unit.size))


def equal_predictors(factor: FloatArray, offset: FloatArray) -> tuple[w.IntArray, w.IntArray]:
    """Which of the different predictors factor c + offset each is, and where each is first.

    By random projections: what differs by round-off alone is equal.
    """
    probes = np.random.default_rng(0).standard_normal((factor.shape[1], 3))
    seen = np.column_stack([factor @ probes, offset])
    step = _SAME * max(float(np.abs(seen).max(initial=0.0)), 1e-300)
    whole = np.round(seen / step)
    _, first, unit = np.unique(whole, axis=0, return_index=True, return_inverse=True)
    return unit.ravel(), first


class OpenRows(NamedTuple):
    """What says whether rows leave a tail of their predictor open.

    Attributes
    ----------
    lower, upper : ndarray, shape (m,)
        Limits less the predictors' means.
    variance : ndarray, shape (m,)
        Of the predictors.
    """

    lower: FloatArray
    upper: FloatArray
    variance: FloatArray


def are_alike(
    counts: FloatArray,
    noise: FloatArray,
    squared: Callable[[slice], FloatArray],
    within: float = ALIKE,
    limits: OpenRows | None = None,
) -> bool:
    """Whether many rows are of nearly one predictor: decided by structure, never by draws.

    Parameters
    ----------
    counts, noise : ndarray, shape (m,)
        Rows that each stands for, and the variances of their noise.
    squared : callable
        Variances of the differences between some predictors and all, shape (rows, m).
    within : float
        Deviations of the noise up to which predictors are as good as one.
    limits : OpenRows, optional
        Predictors that are not equal count only where the tail that their rows leave is long.
    """
    if counts.max(initial=0.0) >= _LEAST_ALIKE or counts.sum() < _LEAST_ALIKE:
        return bool(counts.max(initial=0.0) >= _LEAST_ALIKE)
    size = max(1, _AT_ONCE // counts.size)
    fewest = _LEAST_ALIKE / counts.max()  # kinds of rows
    for start in range(0, counts.size, size):
        rows = slice(start, start + size)
        gaps = squared(rows)
        gaps /= np.minimum(noise[rows, None], noise)
        near = gaps <= within**2
        if np.count_nonzero(near, axis=1).max() < fewest:
            continue
        alike = near @ counts >= _LEAST_ALIKE
        if not alike.any():
            continue
        if limits is None or ((gaps[alike] <= EQUAL**2) @ counts >= _LEAST_ALIKE).any():
            return True
        centres = np.arange(counts.size)[rows][alike]
        if _tail_is_long(near[alike] @ _of_each_side(counts, limits), centres, noise, limits):
            return True
    return False


def _of_each_side(counts: FloatArray, limits: OpenRows) -> FloatArray:
    """Rows open above alone, open below alone, and all, shape (m, 3)."""
    above, below = np.isposinf(limits.upper), np.isneginf(limits.lower)
    return np.column_stack([counts * (above & ~below), counts * (below & ~above), counts])


def _tail_is_long(
    sides: FloatArray, centres: w.IntArray, noise: FloatArray, limits: OpenRows
) -> bool:
    """Of the predictor of any of the `centres`, given its rows, where these leave one side open.

    One row of 200 on the other side leaves no long tail. Limits are taken to be those of the
    centre, and the skewness to be that of the predictor's normal distribution times log Phi to a
    power, by quadrature.
    """
    above, below, number = sides.T
    variance, own = limits.variance[centres], noise[centres]
    open_ = np.flatnonzero((above == number) | (below == number))
    open_ = open_[np.argsort(-(number * variance / own)[open_], kind="stable")[:_MOST]]
    if not open_.size:
        return False
    i = centres[open_]
    limit = np.where(above[open_] == number[open_], limits.lower[i], -limits.upper[i])
    sd = np.sqrt(variance[open_])
    inside = (sd[:, None] * _NODES - limit[:, None]) / np.sqrt(own[open_])[:, None]
    logs = number[open_, None] * log_ndtr(inside) - 0.5 * _NODES**2
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    off = _NODES - (weights @ _NODES)[:, None]
    skewness = (weights * off**3).sum(axis=1) / (weights * off**2).sum(axis=1) ** 1.5
    return bool((skewness >= _SKEWED).any())


def squared_gaps(factor: FloatArray) -> Callable[[slice], FloatArray]:
    """Variances of differences between predictors factor c, c ~ N(0, I)."""
    squares = np.einsum("ij,ij->i", factor, factor)

    def gaps(rows: slice) -> FloatArray:
        found: FloatArray = factor[rows] @ (-2.0 * factor.T)
        found += squares
        found += squares[rows, None]
        return found

    return gaps


def squared_gaps_of(cov: FloatArray, noise: FloatArray) -> Callable[[slice], FloatArray]:
    """The same of predictors whose rows, noise of their own included, have this covariance."""
    variances = cov.diagonal() - noise

    def gaps(rows: slice) -> FloatArray:
        found: FloatArray = variances[rows, None] + variances - 2.0 * cov[rows]
        place = np.arange(variances.size)[rows]
        found[np.arange(place.size), place] = 0.0
        return found

    return gaps


# Draws of coordinates under sites: EP, mirrored pairs, and tempering where these are too few.

# Relative ESS that the true weights of a surrogate's draws have to have.
_LEAST_PAIRS_ALIKE = 0.8
# Share of the evidence in tails that draws hardly meet, from which on they are tempered.
LARGEST_UNSEEN = 0.005
# Share of impossible draws under several sites, whose ends EP does not see together: with a tenth
# of them standard deviations were a tenth too small. One site's moments are those of quadrature.
_MOST_IMPOSSIBLE = 0.01
# Relative ESS of a pilot run of so many pairs, below which nothing is tempered from them where
# there is another proposal: evidences of a hundred coordinates, tempered from pairs of .34, lay
# 1.5 of their errors apart.
_COLLAPSED, _PILOT = 0.5, 256
# Groups of tempered replicates: so few that errors are no less than those of independent draws.
# Small populations lack the same tails, which their spread does not say.
_GROUPS = 7


@dataclass(frozen=True)
class SiteSampler:
    """Draws from a proposal of pairs, by the escalation policy: pairs, then tempering from them.

    Attributes
    ----------
    proposal : DrawnInPairs
    settings : SamplerSettings
        Thresholds.
    largest_unseen : float
        Share of the evidence in tails that draws hardly meet, from which on they are tempered.
    more : int
        So many times as many pairs are drawn as are asked for.
    tempers : bool
        Whether anything is: of factors that couple all coordinates draws that weigh little alike
        leave out what steps from them do not find, and errors do not say so.
    by_tails : bool
        Whether few draws, as those of one evidence of many, are no more than tails ask for.
    """

    proposal: DrawnInPairs
    settings: escalation.SamplerSettings = escalation.DEFAULT
    largest_unseen: float = LARGEST_UNSEEN
    more: int = 1
    tempers: bool = True
    by_tails: bool = False

    @cached_property
    def collapsed(self) -> bool:
        """Whether pairs leave next to nothing of their draws: of a run that is not used again."""
        rng = np.random.default_rng(self.settings.pilot_seed)
        with few_blas_threads(self.proposal.n_sites), np.errstate(all="ignore"):
            log_weights = escalation.pilot_log_weights(self.proposal, _PILOT, rng)
        return not w.relative_ess(log_weights) >= _COLLAPSED

    def members(self, n_pairs: int, rng: np.random.Generator) -> TruncatedDraws:
        """Both members of `n_pairs` pairs, each with its weight; of tempered draws one each."""
        return self._draws(self._enough(n_pairs), rng, both=True)

    def singles(self, n_draws: int, rng: np.random.Generator) -> TruncatedDraws:
        """One member of each of `n_draws` pairs, with the weight of the pair."""
        return self._draws(self._enough(n_draws), rng, both=False)

    def _enough(self, n_draws: int) -> int:
        """Pairs for so many draws."""
        most, n = self.more * n_draws, escalation.MIN_DRAWS
        if n_draws > n or not self.by_tails:
            return most
        while n < most and self.proposal.unseen_share(n) > self.largest_unseen:
            n *= 2
        return n

    def _tempered(
        self, n_pairs: int, log_weights: FloatArray, rng: np.random.Generator
    ) -> escalation.SamplingResult:
        """Tempered draws; by a surrogate, where this leaves weights that are nearly equal.

        `log_weights` are those of pairs, which were not accepted.
        """
        settings = self.settings
        surrogate = self.proposal.surrogate()
        if surrogate is not None:
            found = escalation.temper_in_batches(
                surrogate.proposal, n_pairs, rng, settings.largest_se, settings
            )
            log_ratio = surrogate.log_ratio(found.u)
            if w.relative_ess(log_ratio) >= _LEAST_PAIRS_ALIKE:
                return _reweighted(found, log_ratio)
        return escalation.temper_in_batches(
            self.proposal, n_pairs, rng, settings.largest_se, settings
        )

    def _draws(self, n_pairs: int, rng: np.random.Generator, *, both: bool) -> TruncatedDraws:
        proposal, settings = self.proposal, self.settings
        n_sites = proposal.n_sites
        with few_blas_threads(n_sites):
            size = -(-max(n_pairs, escalation.MIN_DRAWS) // escalation.N_REPLICATES)
            points = w.uniform_points(proposal.n_dims, size, escalation.N_REPLICATES, rng)
            pairs = proposal.pairs(points)
            log_weights = pairs.log_weights
            if np.isnan(log_weights).any() or not np.isfinite(log_weights.max()):
                raise DoublePrecisionError(
                    "the importance weights are not finite: the data and the prior are too far "
                    "apart for double precision. Check units and offsets."
                )
            impossible = float(np.isneginf([pairs.log_plus, pairs.log_minus]).mean())
            if impossible > _MOST_IMPOSSIBLE and n_sites > 1:
                raise DoublePrecisionError(
                    f"the likelihood is 0 at {100 * impossible:.0f} % of the draws about the "
                    "posterior's Gaussian approximation: it ends at a value that depends on the "
                    "latent variables, as that of pm.Uniform with such a bound does, and draws "
                    "near its end are too few to say where. Use pm.sample."
                )
            estimate = w.replicate_estimate(
                log_weights, escalation.N_REPLICATES, even=proposal.covers
            )
            unseen = proposal.unseen_share(log_weights.size)
            error = float(np.hypot(estimate.std_error, unseen))
            estimate = estimate._replace(std_error=error)
            # Weights of draws that all missed a tail are all alike.
            near = unseen <= self.largest_unseen
            accepted = near and settings.accepts_first(estimate, "draws", n_sites)
            if not accepted and not self.tempers:
                raise CollapsedWeightsError(
                    f"draws about the modes of the posterior weigh very unequally "
                    f"({w.describe_weights(estimate)}), as where it bends along a curve: what "
                    "couples all of the Gaussian variables is not integrated out. Use pm.sample, "
                    "or write it in coordinates that are nearer to independent."
                )
            if not accepted:
                result = self._tempered(n_pairs, log_weights, rng)
                warn_of_few(result.log_prob, n_pairs, settings.largest_se)
                found = result.u.T, result.log_weights, result.log_prob, result.method
                assert result.replicate is not None  # of tempered runs
                together = result.replicate % _GROUPS
                return TruncatedDraws(*found, replicate=together, n_modes=proposal.n_modes)
        replicate = np.repeat(np.arange(escalation.N_REPLICATES), size)
        if not both:
            # Not by a coordinate of the points: evenly spaced ones go with the others of x.
            single = picked(pairs, rng.random(log_weights.size))[:, :n_pairs].T
            return TruncatedDraws(
                single, log_weights[:n_pairs], estimate, "pairs", n_modes=proposal.n_modes
            )
        kept = [x[..., :n_pairs] for x in pairs]
        return TruncatedDraws(
            np.concatenate([kept[0].T, kept[1].T]),
            np.concatenate([kept[2], kept[3]]),
            estimate,
            "pairs",
            replicate=np.tile(replicate[:n_pairs], 2) if proposal.covers else None,
            n_modes=proposal.n_modes,
        )


def _reweighted(
    found: escalation.SamplingResult, log_ratio: FloatArray
) -> escalation.SamplingResult:
    """The same draws for another target, given the log of its weights over theirs."""
    log_weights = found.log_weights + log_ratio
    gain = w.log_mean_exp(log_weights) - w.log_mean_exp(found.log_weights)
    assert found.replicate is not None  # of tempered runs
    own = np.array(
        [w.log_mean_exp(log_weights[found.replicate == i]) for i in np.unique(found.replicate)]
    )
    before = found.log_prob
    fraction = before.relative_ess * w.relative_ess(log_ratio)
    # A replicate's evidence and its mean ratio are not independent.
    error = max(before.std_error, w.spread_of_replicates(own, w.log_mean_exp(own)))
    after = before._replace(value=before.value + gain, std_error=error, relative_ess=fraction)
    return replace(found, log_weights=log_weights, log_prob=after)


# Coordinates of rows that repeat: a thousand rows of one value take the algebra of one.

_EP_TOLERANCE = 1e-3  # of all factors together


class RepeatedRowsSampler(escalation.RectangleSampler):
    """Coordinates c ~ N(0, I) of rows within limits, so many of each kind.

    In mirrored pairs, rows of one predictor being one factor of it; where some rows have no noise,
    by what these cut off (`coordinates`).

    Parameters
    ----------
    kinds : RowKinds
    settings : SamplerSettings
        Thresholds of the escalation policy. Of a rung only `relax` is looked at.
    """

    def __init__(
        self, kinds: RowKinds, settings: escalation.SamplerSettings = escalation.DEFAULT
    ) -> None:
        cov = covariance.LowRankCovariance(kinds.noise, kinds.factor)
        super().__init__(cov, -np.inf, np.inf, settings)
        self._kinds = kinds

    @cached_property
    def ep(self) -> EPResult:
        """EP's fixed point: sites of a row of each kind."""
        kinds = self._kinds
        cov = covariance.RepeatedCovariance(kinds.noise, kinds.factor, kinds.count)
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
        known = RowFactors(unit[order], rows, kinds.count[order], first.size)
        sites = cg.SiteLogDensity(known.log_prob, np.zeros(first.size), kinds.factor[first])
        factors = SiteFactors(known.log_prob, known.slopes, sites.offset)
        ep = fit_factors(covariance.predictor_covariance(sites.factor), factors, tol=_EP_TOLERANCE)
        gaussian = cg.coordinate_gaussian(sites.factor, ep.tau, ep.nu)
        marginals = cg.SiteMarginals(ep.mean, ep.variance, ep.tau, ep.nu)
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
        self,
        n_draws: int,
        rng: np.random.Generator,
        *,
        goal: escalation.Goal,
        rtol: float | None = None,
    ) -> escalation.SamplingResult:
        """Weighted draws, as columns, and the log probability of all limits."""
        if not (self._kinds.noise > 0.0).all():
            result = super().sample(n_draws, rng, goal=goal, rtol=rtol)
            return replace(result, method=result.method.replace("twisted", "coordinates"))
        found = self._of_pairs.members(-(-n_draws // 2), rng)
        assert found.log_prob is not None
        return escalation.SamplingResult(
            found.draws.T, found.log_weights, found.log_prob, found.method, found.replicate
        )

    def _twist(self, rung: escalation.Rung) -> CoordinateProposal:
        return CoordinateProposal(self._kinds, self.ep, rung.relax, self.settings.ep_tolerance)

    @property
    def _jitter_effect(self) -> float:
        """The coordinates are drawn without jitter."""
        return 0.0
