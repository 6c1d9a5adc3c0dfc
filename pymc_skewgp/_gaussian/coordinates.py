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
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import log_ndtr

from pymc_skewgp._errors import CollapsedWeightsError, DoublePrecisionError
from pymc_skewgp._gaussian import escalation
from pymc_skewgp._gaussian import weights as w
from pymc_skewgp._gaussian.blocks.rows import RowSites
from pymc_skewgp._gaussian.gaussian_sum import DrawnSum, SumDraws
from pymc_skewgp._gaussian.pairs import DrawnInPairs, picked
from pymc_skewgp._gaussian.truncated import TruncatedDraws, warn_of_few
from pymc_skewgp._gaussian.univariate import log_ndtr_interval
from pymc_skewgp._limits import few_blas_threads
from pymc_skewgp._validation import FloatArray

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


# Share of the noise below which a predictor's variance is none, as that of two equal items.
_STILL = 1e-12


def are_still(variance: FloatArray, noise: FloatArray) -> NDArray[np.bool_]:
    """Noisy rows whose predictors are known, as that of a duel of equal items."""
    return (noise > 0.0) & (variance <= _STILL * noise)


def log_prob_of_still(
    lower: FloatArray, upper: FloatArray, noise: FloatArray, counts: FloatArray
) -> float:
    """Of such rows, so many of each, between limits of their noise."""
    sd = np.sqrt(noise)
    return float(counts @ log_ndtr_interval(lower / sd, upper / sd))


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
_MOST_FILTERS = 8 * escalation.N_REPLICATES
# Tempered populations that all lack the same parts of a posterior of many agree too well: of 250
# values, any of which may be an outlier, log evidences were up to 4.3 of their errors too small.
_AGREE_TOO_WELL = 3.0


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

    def _points(self, size: int, rng: np.random.Generator) -> FloatArray:
        """In replicates of this size."""
        return w.uniform_points(self.proposal.n_dims, size, escalation.N_REPLICATES, rng)

    def _tempered(
        self, n_pairs: int, log_weights: FloatArray, rng: np.random.Generator
    ) -> escalation.SamplingResult:
        """Tempered draws; by a surrogate, where this leaves weights that are nearly equal.

        `log_weights` are those of pairs, which were not accepted.
        """
        settings = self.settings
        in_place = self.proposal.in_place()
        if in_place is not None and in_place.sums is not None:
            return _by_sum(in_place, n_pairs, rng, settings)
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

    def _by_tempering(
        self, n_pairs: int, log_weights: FloatArray, rng: np.random.Generator
    ) -> TruncatedDraws:
        result = self._tempered(n_pairs, log_weights, rng)
        if result.method == "tempered" and self.proposal.in_place() is not None:
            result = replace(result, log_prob=_widened(result.log_prob))
        warn_of_few(result.log_prob, n_pairs, self.settings.largest_se)
        found = result.u.T, result.log_weights, result.log_prob, result.method
        assert result.replicate is not None  # of tempered runs
        together = result.replicate % _GROUPS
        return TruncatedDraws(*found, replicate=together, n_modes=self.proposal.n_modes)

    def _draws(self, n_pairs: int, rng: np.random.Generator, *, both: bool) -> TruncatedDraws:
        proposal, settings = self.proposal, self.settings
        n_sites = proposal.n_sites
        with few_blas_threads(n_sites):
            size = -(-max(n_pairs, escalation.MIN_DRAWS) // escalation.N_REPLICATES)
            pairs = proposal.pairs(self._points(size, rng))
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
                return self._by_tempering(n_pairs, log_weights, rng)
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


def _widened(found: w.Estimate) -> w.Estimate:
    fraction = 1.0 / (1.0 + _AGREE_TOO_WELL**2 * (1.0 / found.relative_ess - 1.0))
    return found._replace(std_error=_AGREE_TOO_WELL * found.std_error, relative_ess=fraction)


def _by_sum(
    drawn_sum: DrawnSum,
    n_draws: int,
    rng: np.random.Generator,
    settings: escalation.SamplerSettings,
) -> escalation.SamplingResult:
    """Replicates of a filter, as many as the evidence's error asks for."""
    size = -(-n_draws // escalation.N_REPLICATES)
    runs: list[SumDraws] = []
    estimate = w.Estimate(0.0, np.inf, 0.0, np.inf)
    while estimate.std_error > settings.largest_se and len(runs) < _MOST_FILTERS:
        runs += [drawn_sum.draw(size, rng) for _ in range(escalation.N_REPLICATES)]
        log_weights = np.concatenate([run.log_weights for run in runs])
        estimate = w.replicate_estimate(log_weights, len(runs), even=False)
    replicate = np.repeat(np.arange(len(runs)), size)
    chosen = np.arange(n_draws) * replicate.size // n_draws
    # Independent draws that would give the evidence this error.
    fraction = 1.0 / (1.0 + replicate.size * estimate.std_error**2)
    return escalation.SamplingResult(
        np.hstack([run.coordinates for run in runs])[:, chosen],
        log_weights[chosen],
        estimate._replace(relative_ess=fraction),
        "filtered",
        replicate[chosen],
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
