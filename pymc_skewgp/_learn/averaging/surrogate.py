"""Importance sampling of hyperparameters in rounds, and by a surrogate of the log evidence.

With g the surrogate and P the points in coordinates of their own (see `Warp`),

    g ~ GP(level, s^2 exp(-|P - P'|^2 / (2 l^2))),

observed with its gradient at every point, with a little noise. Far from all points it returns to
its level, which is low: no draw is led to where nothing is known. The weights of N points in D
coordinates solve a system of N (D + 1) equations; conjugate gradients need products with its matrix
only, which cost 6 N^2 D operations each and no more memory than N x N.

What is drawn from the surrogate is weighted by the evidence itself: it need not be exact.

References
----------
.. [1] E. Solak, R. Murray-Smith, W. Leithead, D. Leith & C. Rasmussen (2003), Derivative
   observations in Gaussian process models of dynamic systems, NeurIPS 15.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import logsumexp

from pymc_skewgp._gaussian.weights import IntArray, normalized_weights, relative_ess, uniform_points
from pymc_skewgp._learn.averaging.points import WeightedPoints
from pymc_skewgp._learn.averaging.problem import Mode, PriorDraws
from pymc_skewgp._learn.averaging.settings import (
    Annealed,
    ImportanceSettings,
    StudentMixture,
    SurrogateSettings,
    annealed,
)
from pymc_skewgp._learn.coordinates import Function, Pattern, Point
from pymc_skewgp._limits import few_blas_threads
from pymc_skewgp._validation import FloatArray

# Share of the scale that is noise, of values and of slopes in units.
_NOISE = 1e-4
# Nats below the highest value at which noise is twice that: it matters only that it is low there.
_DEPTH = 15.0
_LENGTHS = (2.0, 3.0, 4.5, 7.0)
# Distances of the bend from the variable's upper quartile; infinite for none.
_BENDS = (-0.5, 0.0, 0.5, 1.0, np.inf)
_QUARTILE = 0.75
# Quantile of the values that is the level.
_LOW = 0.1
# Points of which length and bend are judged.
_JUDGED, _FEWEST_JUDGED = 48, 8
# Size of the matrix of their values and slopes, at most.
_LARGEST = 800
_LEAST_UNIT, _LARGEST_UNIT = 0.1, 10.0
# Squared, in nats.
_LEAST_SCALE = 1e-20
_MOST_STEPS, _TOLERANCE = 400, 1e-4


class Known(NamedTuple):
    """Points where the log evidence is known.

    Attributes
    ----------
    x : ndarray, shape (N, D)
    value : ndarray, shape (N,)
    gradient : ndarray, shape (N, D)
    """

    x: FloatArray
    value: FloatArray
    gradient: FloatArray

    @classmethod
    def nothing(cls, n_coordinates: int) -> "Known":
        """No points."""
        return cls(np.zeros((0, n_coordinates)), np.zeros(0), np.zeros((0, n_coordinates)))

    def joined(self, other: "Known") -> "Known":
        """These and others."""
        return Known(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))

    def first(self, count: int) -> "Known":
        """Some of them."""
        return Known(self.x[:count], self.value[:count], self.gradient[:count])

    def since(self, count: int) -> "Known":
        """The others."""
        return Known(self.x[count:], self.value[count:], self.gradient[count:])


@dataclass(frozen=True, eq=False)
class Warp:
    """Coordinates in which the log evidence is nearly stationary.

    Once a lengthscale is long its input is irrelevant, and the evidence no longer changes: on the
    log scale such a coordinate becomes c - log(1 + exp(2 (c - x))) / 2, which bends to a constant
    beyond c.

    Attributes
    ----------
    bend : ndarray, shape (D,)
        c, infinite where there is none.
    unit : ndarray, shape (D,)
    """

    bend: FloatArray
    unit: FloatArray

    def __call__(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Coordinates of rows, and the derivative of each."""
        bent = np.isfinite(self.bend)
        ratio = 2.0 * (np.where(bent, self.bend, 0.0) - x)
        warped = np.where(bent, -0.5 * np.logaddexp(0.0, ratio), x)
        slope = np.where(bent, 1.0 / (1.0 + np.exp(-ratio)), 1.0)
        return warped / self.unit, slope / self.unit


@dataclass(frozen=True, eq=False)
class Kernel:
    """Of the process, but for its scale.

    Attributes
    ----------
    warp : Warp
    centre : ndarray, shape (D,)
    length : float
    """

    warp: Warp
    centre: FloatArray
    length: float

    def placed(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Coordinates in units of the length, with derivatives."""
        p, slope = self.warp(x)
        return (p - self.centre) / self.length, slope / self.length


class KernelChoice:
    """Length and bends with the largest marginal likelihood of sets of points, one after another.

    The sets are taken for independent, so that their matrices stay small.

    Parameters
    ----------
    first : Known
        Where the bends are placed by; judged as well.
    groups : sequence of (index, bool)
        Coordinates of each variable, and whether these are logarithms.
    """

    def __init__(self, first: Known, groups: Sequence[tuple[IntArray, bool]]) -> None:
        self._kernels = _candidates(first, groups)
        self._totals = np.zeros(len(self._kernels))
        self.add(first)

    def add(self, known: Known) -> None:
        """Judge by further points."""
        if known.value.size > 1:
            level = float(np.quantile(known.value, _LOW))
            size = known.x.shape[1] + 1
            judged = known.first(max(min(_JUDGED, _LARGEST // size), _FEWEST_JUDGED))
            self._totals += [_fit_of(kernel, judged, level) for kernel in self._kernels]

    @property
    def best(self) -> Kernel:
        """So far."""
        return self._kernels[int(np.argmax(self._totals))]


class Surrogate:
    """The posterior mean of the process.

    Parameters
    ----------
    known : Known
        Finite.
    kernel : Kernel
    """

    def __init__(self, known: Known, kernel: Kernel) -> None:
        self._level = float(np.quantile(known.value, _LOW))
        self._kernel = kernel
        p, slope = kernel.placed(known.x)
        self._p = p
        depth = (known.value.max() - known.value) / _DEPTH
        self._values, self._slopes = _solved(p, slope, known, self._level, 1.0 + depth**2)

    def __call__(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Value and gradient at rows."""
        p, slope = self._kernel.placed(x)
        value, gradient = _product(p, self._p, self._values, self._slopes)
        return self._level + value, gradient * slope


def _product(
    p: FloatArray, q: FloatArray, values: FloatArray, slopes: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Covariance of value and slopes at `p` with those at `q`, times weights of the latter."""
    among = np.exp(-0.5 * _squared_distances(p, q))
    parts = among * (values - np.einsum("nd,nd->n", q, slopes) + p @ slopes.T)
    sums = parts.sum(axis=1)
    return sums, among @ slopes + parts @ q - sums[:, None] * p


def _squared_distances(p: FloatArray, q: FloatArray) -> FloatArray:
    found = np.square(p).sum(axis=1)[:, None] + np.square(q).sum(axis=1) - 2.0 * p @ q.T
    return np.maximum(found, 0.0)


def _solved(
    p: FloatArray, slope: FloatArray, known: Known, level: float, noisier: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Weights by conjugate gradients."""
    n, d = p.shape
    # Where a coordinate has bent its derivative says nothing: noise in place of a division by 0.
    noise = _NOISE * np.concatenate([np.ones((n, 1)), 1.0 + 1.0 / np.maximum(slope, 1e-6) ** 2], 1)
    noise *= noisier[:, None]
    target = np.concatenate(
        [(known.value - level)[:, None], known.gradient / np.maximum(slope, 1e-6)], axis=1
    )
    diagonal = 1.0 + noise
    weights = np.zeros((n, d + 1))
    residual, step = target, target / diagonal
    inner = float((residual * step).sum())
    smallest = _TOLERANCE**2 * inner
    for _ in range(_MOST_STEPS):
        if inner <= smallest:
            break
        value, slopes = _product(p, p, step[:, 0], step[:, 1:])
        image = np.concatenate([value[:, None], slopes], axis=1) + noise * step
        length = inner / float((step * image).sum())
        weights = weights + length * step
        residual = residual - length * image
        scaled = residual / diagonal
        last, inner = inner, float((residual * scaled).sum())
        step = scaled + (inner / last) * step
    return weights[:, 0], weights[:, 1:]


def _candidates(first: Known, groups: Sequence[tuple[IntArray, bool]]) -> list[Kernel]:
    """Candidates for lengths and bends."""
    d = first.x.shape[1]
    unit = np.clip(first.x.std(axis=0), _LEAST_UNIT, _LARGEST_UNIT)
    found = []
    for beyond in _BENDS:
        bend = np.full(d, np.inf)
        for own, logarithms in groups:
            if logarithms:
                unit[own] = 1.0
                bend[own] = np.quantile(first.x[:, own], _QUARTILE) + beyond
        warp = Warp(bend, unit)
        centre = warp(first.x)[0].mean(axis=0)
        found += [Kernel(warp, centre, length) for length in _LENGTHS]
    return found


def _fit_of(kernel: Kernel, known: Known, level: float) -> float:
    """Log marginal likelihood of values and slopes at some points, its scale at the maximum."""
    p, slope = kernel.placed(known.x)
    n, d = p.shape
    among = np.exp(-0.5 * _squared_distances(p, p))
    apart = p[:, None, :] - p[None]
    cov = np.empty((n, d + 1, n, d + 1))
    cov[:, 0, :, 0] = among
    cov[:, 0, :, 1:] = among[..., None] * apart
    cov[:, 1:, :, 0] = cov[:, 0, :, 1:].transpose(1, 2, 0)
    bowl = np.eye(d) - apart[..., :, None] * apart[..., None, :]
    cov[:, 1:, :, 1:] = (among[..., None, None] * bowl).transpose(0, 2, 1, 3)
    factors = np.concatenate([np.ones((n, 1)), slope], axis=1)
    cov *= factors[:, :, None, None] * factors
    matrix = cov.reshape(n * (d + 1), -1)
    noise = _NOISE * np.concatenate([np.ones((n, 1)), 1.0 + slope**2], axis=1)
    matrix[np.diag_indices_from(matrix)] += noise.ravel()
    data = np.concatenate([(known.value - level)[:, None], known.gradient], axis=1).ravel()
    try:
        factor = cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        return -np.inf
    squared = float(data @ cho_solve(factor, data, check_finite=False))
    log_det = 2.0 * float(np.log(np.diagonal(factor[0])).sum())
    # Where the evidence is constant the scale is 0: any kernel does.
    return -0.5 * (data.size * np.log(max(squared / data.size, _LEAST_SCALE)) + log_det)


# Adaptive multiple importance sampling over hyperparameters, from their posterior modes.
#
# Each round draws quasi-random points from a mixture of Student t distributions that the points of
# all rounds before it have been used to fit. A point's weight is the target over the average of all
# rounds' mixtures (deterministic mixture weights), so that no round's mistakes count alone. The
# integral is estimated from each round's own mixture instead: it was fitted before the round's
# points were drawn, so that there is no bias.
#
# References
# ----------
# .. [1] J.-M. Cornuet, J.-M. Marin, A. Mira & C. P. Robert (2012), Adaptive multiple importance
#    sampling, doi:10.1111/j.1467-9469.2011.00756.x.

# Log target and EP's log evidence at points.
Target = Callable[[Sequence[Point]], tuple[FloatArray, FloatArray]]
_TEMPERINGS = 30
# Of each mode at the start: place, in units of `spread_modes`, scale, and share. The last one is
# for tails that the curvature does not know of.
_COMPONENTS = ((0.0, 1.0, 0.45), (-1.0, 1.3, 0.2), (1.0, 1.3, 0.2), (0.0, 3.0, 0.15))


class AdaptiveImportance:
    """Rounds of importance sampling.

    Parameters
    ----------
    target : callable
    modes : list of Mode
        At least one.
    settings : ImportanceSettings
    rng : numpy.random.Generator
    prior : callable, optional
        Draws from the prior given a pattern of binary values, where there are any: every round has
        a share of them. Default none.
    """

    def __init__(
        self,
        target: Target,
        modes: list[Mode],
        settings: ImportanceSettings,
        rng: np.random.Generator,
        prior: Callable[[Pattern], PriorDraws | None] = lambda _: None,
    ) -> None:
        self._target, self._settings, self._rng = target, settings, rng
        self.patterns: list[Pattern] = list(dict.fromkeys(mode.point.pattern for mode in modes))
        self._samplers = [
            _DrawsOfPattern(
                [mode for mode in modes if mode.point.pattern == pattern], prior(pattern), settings
            )
            for pattern in self.patterns
        ]
        self.n_rounds = 0

    def round(self, n_points: int | None = None) -> WeightedPoints:
        """Another round, of `n_points` or more; all points so far, with their weights."""
        if self.n_rounds:
            self._adapt()
        self.n_rounds += 1
        each = -(-(n_points or 0) // len(self.patterns))
        for pattern, sampler in zip(self.patterns, self._samplers, strict=True):
            x = sampler.draw(each, self._rng)
            sampler.take(*self._target([Point(row, pattern) for row in x]))
        return self.points

    @property
    def points(self) -> WeightedPoints:
        """All points so far."""
        parts = self._samplers
        return WeightedPoints(
            np.concatenate([part.x for part in parts]),
            np.repeat(np.arange(len(parts)), [len(part.x) for part in parts]),
            self.patterns,
            np.concatenate([part.log_target for part in parts]),
            np.concatenate([part.log_evidence for part in parts]),
            # Every pattern has its own points: the integral is the sum over patterns.
            np.concatenate([part.log_weights for part in parts]) + np.log(len(parts)),
            np.concatenate([part.replicate for part in parts]),
            np.concatenate([part.log_ratio for part in parts]) + np.log(len(parts)),
        )

    @property
    def last_relative_ess(self) -> float:
        """Of the last round alone, by its own weights, the worst pattern's."""
        return min(part.last_relative_ess for part in self._samplers)

    def _adapt(self) -> None:
        for part in self._samplers:
            part.adapt()


class _DrawsOfPattern:
    """Rounds with one pattern of binary values."""

    def __init__(
        self, modes: list[Mode], prior: PriorDraws | None, settings: ImportanceSettings
    ) -> None:
        self._settings, self._prior = settings, prior
        self._share = 0.0 if prior is None else settings.prior_share
        self._mixtures = [mixture_of_modes(modes, settings)]
        d = modes[0].point.x.size
        self._least = settings.points_of_round(d)
        self._sizes: list[int] = []
        self.x = np.zeros((0, d))
        self.log_target, self.log_evidence = np.zeros(0), np.zeros(0)
        self._log_prior = np.zeros(0)

    def draw(self, n_points: int, rng: np.random.Generator) -> FloatArray:
        """Points of a round, no fewer than the settings say."""
        replicates = self._settings.n_replicates
        mixture = self._mixtures[-1]
        each = -(-max(n_points, self._least) // replicates)
        self._sizes.append(each * replicates)
        uniforms = uniform_points(mixture.n_uniforms, each, replicates, rng)
        of_prior = uniforms[0] < self._share
        uniforms[0] = (uniforms[0] - self._share) / (1.0 - self._share)
        new = np.empty((uniforms.shape[1], mixture.means.shape[1]))
        new[~of_prior] = mixture.draw(uniforms[:, ~of_prior])
        log_prior = np.full(len(new), -np.inf)
        if self._prior is not None:
            new[of_prior] = self._prior.draw(int(of_prior.sum()))
            log_prior = self._prior.log_density(new)
        self.x = np.concatenate([self.x, new])
        self._log_prior = np.concatenate([self._log_prior, log_prior])
        return new

    def take(self, log_target: FloatArray, log_evidence: FloatArray) -> None:
        """What the target is at these points."""
        self.log_target = np.concatenate([self.log_target, log_target])
        self.log_evidence = np.concatenate([self.log_evidence, log_evidence])

    @property
    def replicate(self) -> IntArray:
        """Of each point."""
        n = self._settings.n_replicates
        return np.concatenate([np.repeat(np.arange(n), size // n) for size in self._sizes])

    @property
    def log_weights(self) -> FloatArray:
        """Target over the average of all mixtures."""
        every = slice(None)
        proposals = np.array([self._log_proposal(mixture, every) for mixture in self._mixtures])
        shares = np.array(self._sizes) / sum(self._sizes)
        found: FloatArray = self.log_target - logsumexp(proposals, axis=0, b=shares[:, None])
        return found

    @property
    def log_ratio(self) -> FloatArray:
        """Target over each round's own mixture, of all rounds but the first if there are others."""
        counted = self._sizes[1:] or self._sizes
        found = np.full(self.log_target.size, np.nan)
        begin = found.size - sum(counted)
        for mixture, size in zip(self._mixtures[-len(counted) :], counted, strict=True):
            own = slice(begin, begin + size)
            found[own] = self.log_target[own] - self._log_proposal(mixture, own)
            begin += size
        return found

    def _log_proposal(self, mixture: StudentMixture, own: slice) -> FloatArray:
        """At points, with the share of the prior."""
        found = np.log1p(-self._share) + mixture.log_density(self.x[own])
        with np.errstate(divide="ignore"):
            return np.logaddexp(found, np.log(self._share) + self._log_prior[own])

    @property
    def last_relative_ess(self) -> float:
        """Of the last round alone."""
        last = self.log_ratio[-self._sizes[-1] :]
        return _effective(last) / last.size

    def adapt(self) -> None:
        """Fit the next round's mixture."""
        settings = self._settings
        log_weights = self.log_weights
        # Few effective points make a poor mixture: powers of the weights until there are enough.
        wanted = min(10.0 * (self.x.shape[1] + 2), 0.2 * log_weights.size)
        power = 1.0
        for _ in range(_TEMPERINGS):
            if _effective(power * log_weights) >= wanted:
                break
            power *= 0.8
        next_mixture = self._mixtures[-1].fitted(
            self.x,
            normalized_weights(power * log_weights),
            widen=settings.widen,
            least_share=settings.least_share,
            steps=settings.em_steps,
        )
        self._mixtures.append(next_mixture)


def _effective(log_weights: FloatArray) -> float:
    weights = normalized_weights(log_weights)
    return float(1.0 / (weights @ weights))


def mixture_of_modes(
    modes: list[Mode],
    settings: ImportanceSettings,
    components: Sequence[tuple[float, float, float]] = _COMPONENTS,
) -> StudentMixture:
    """Each mode with its curvature, with others beside it and around it."""
    means, chols, log_shares = [], [], []
    for mode in modes:
        _, vectors = np.linalg.eigh(mode.covariance)
        chol = np.linalg.cholesky(mode.covariance)
        width = np.sqrt(vectors[:, -1:].T @ mode.covariance @ vectors[:, -1:])[0]
        shift = settings.spread_modes * width * vectors[:, -1]
        for place, scale, share in components:
            means.append(mode.point.x + place * shift)
            chols.append(scale * chol)
            log_shares.append(mode.log_mass + np.log(share))
    shares = np.maximum(normalized_weights(np.array(log_shares)), settings.least_share)
    return StudentMixture(shares / shares.sum(), np.array(means), np.array(chols), settings.df)


# Importance sampling over many hyperparameters, from a surrogate of the log evidence.
#
# With twenty and more coordinates no mixture is near enough to the posterior: where an input does
# not matter, its lengthscale follows the prior from some length on and is cut off below, and
# weights multiply over the coordinates. A Gaussian process through the log evidence and its
# gradient knows that shape from some hundred points. Draws from it, times the exact prior, cost no
# evidence; their weights are the evidence over the surrogate, at points by which the surrogate was
# not fitted.

# Of each mode at the start: place, scale and share, as of `mixture_of_modes`.
_AT_MODES = ((0.0, 1.0, 1.0),)
# Log density where there is none.
_NOWHERE = -1e10
# Rows of the surrogate's matrices: too few for a second thread.
_SMALL = 100

# Log target and EP's log evidence at points.
Values = Callable[[Sequence[Point]], tuple[FloatArray, FloatArray]]


class SmoothTarget(NamedTuple):
    """Log prior plus log evidence.

    Attributes
    ----------
    function : callable
        Value with gradient.
    values : callable
        Of many points, without.
    log_prior : callable
        Of rows, with gradients; finite.
    groups : sequence of (index, bool)
        As of `KernelChoice`.
    """

    function: Function
    values: Values
    log_prior: Callable[[FloatArray, Pattern], tuple[FloatArray, FloatArray]]
    groups: Sequence[tuple[IntArray, bool]]


class SurrogatePoints(NamedTuple):
    """What was found.

    Attributes
    ----------
    points : WeightedPoints
    highest : Point
        Of all that were evaluated with their gradient.
    log_density : float
        There.
    """

    points: WeightedPoints
    highest: Point
    log_density: float


class _Draws(NamedTuple):
    """Points, what is known there, and weights whose mean estimates the integral."""

    x: FloatArray
    log_target: FloatArray
    log_evidence: FloatArray
    log_weights: FloatArray
    replicate: IntArray


def points_by_surrogate(
    target: SmoothTarget,
    modes: list[Mode],
    enough: int,
    settings: SurrogateSettings,
    rng: np.random.Generator,
    report: Callable[[int, float], None],
) -> SurrogatePoints:
    """Points for each pattern of binary values.

    Parameters
    ----------
    target : SmoothTarget
    modes : list of Mode
    enough : int
        Effective points that are wanted.
    settings : SurrogateSettings
    rng : numpy.random.Generator
    report : callable
        Called with the number of points and the relative ESS after each round.
    """
    patterns = list(dict.fromkeys(mode.point.pattern for mode in modes))
    parts, highest = [], []
    for pattern in patterns:
        own = [mode for mode in modes if mode.point.pattern == pattern]
        sampler = _OnePattern(target, own, settings, rng)
        each = -(-enough // len(patterns))
        sampler.learn(each, report)
        parts.append(sampler.draws(each))
        highest.append(sampler.highest)
    sizes = [part.log_target.size for part in parts]
    # The integral is the sum over patterns.
    shares = np.repeat(np.log(sum(sizes)) - np.log(sizes), sizes)
    x, log_target, log_evidence, log_weights, replicate = map(
        np.concatenate, zip(*parts, strict=True)
    )
    which = np.repeat(np.arange(len(parts)), sizes)
    points = WeightedPoints(
        x, which, patterns, log_target, log_evidence, log_weights + shares, replicate
    )
    return SurrogatePoints(points, *max(highest, key=lambda pair: pair[1]))


class _OnePattern:
    """The surrogate with one pattern of binary values."""

    def __init__(
        self,
        target: SmoothTarget,
        modes: list[Mode],
        settings: SurrogateSettings,
        rng: np.random.Generator,
    ) -> None:
        self._target, self._pattern = target, modes[0].point.pattern
        self._settings, self._rng = settings, rng
        self._known = Known.nothing(modes[0].point.x.size)
        # Wider to begin with: other modes may be near.
        self._first = mixture_of_modes(modes, ImportanceSettings())
        self._proposal = mixture_of_modes(modes, ImportanceSettings(), _AT_MODES)
        self.highest = modes[0].point, -np.inf

    def learn(self, enough: int, report: Callable[[int, float], None]) -> None:
        """Evaluate the target at draws from the surrogate, round after round.

        Until the weights are good and further points would be more than those that are then
        weighted, twice in a row: some tens of weights look better than they are.
        """
        settings = self._settings
        self._observe(self._first_points())
        with few_blas_threads(_SMALL):
            self._choice = KernelChoice(self._known, self._target.groups)
        count, reached, last = 0, 0.0, 0.0
        while count < settings.most_points and (
            min(reached, last) < settings.good or min(reached, last) * count < enough
        ):
            self._fit()
            cloud = self._annealed(settings.cloud)
            self._move_to(cloud.x)
            before, part = self._known.value.size, slice(settings.points_of_group)
            chosen = cloud.x[:, part].reshape(-1, cloud.x.shape[2])
            log_ratio = self._observe(chosen) - cloud.log_density[:, part].ravel()
            with few_blas_threads(_SMALL):
                self._choice.add(self._known.since(before))
            last = reached
            reached = _relative_ess(log_ratio)
            count += log_ratio.size
            report(count, reached)
        self._fit()

    def draws(self, enough: int) -> _Draws:
        """Points by which the surrogate was not fitted, until there are enough effective ones."""
        settings = self._settings
        cloud = self._annealed(settings.final_cloud)
        parts: list[_Draws] = []
        for begin in range(0, settings.final_cloud, settings.portion):
            parts.append(self._weighted(cloud, slice(begin, begin + settings.portion)))
            found = _Draws(*map(np.concatenate, zip(*parts, strict=True)))
            if _relative_ess(found.log_weights) * found.log_weights.size >= enough:
                break
        return found

    def _first_points(self) -> FloatArray:
        """The modes, and points around them."""
        settings, proposal = self._settings, self._first
        each = -(-settings.first_points(proposal.means.shape[1]) // settings.n_groups)
        uniforms = uniform_points(proposal.n_uniforms, each, settings.n_groups, self._rng)
        return np.concatenate([proposal.means, proposal.draw(uniforms)])

    def _fit(self) -> None:
        """The surrogate, and the bound on its density, by all that is known."""
        with few_blas_threads(_SMALL):
            self._surrogate = Surrogate(self._known, self._choice.best)
        self._bound = self._proposal
        log_prior, _ = self._target.log_prior(self._known.x, self._pattern)
        ratio = self._known.value + log_prior - self._bound.log_density(self._known.x)
        self._height = float(ratio.max()) + self._settings.margin

    def _annealed(self, each: int) -> Annealed:
        """Draws in groups."""
        settings, begin = self._settings, self._proposal
        with few_blas_threads(_SMALL):
            return annealed(
                self._density, begin, settings.n_groups, each, settings.annealing, self._rng
            )

    def _move_to(self, x: FloatArray) -> None:
        """Begin there the next time."""
        rows = x.reshape(-1, x.shape[2])
        equal = np.full(len(rows), 1.0 / len(rows))
        settings = self._settings
        self._proposal = self._proposal.fitted(
            rows,
            equal,
            widen=settings.widen,
            least_share=settings.least_share,
            steps=settings.em_steps,
        )

    def _weighted(self, cloud: Annealed, part: slice) -> _Draws:
        """The evidence at some draws of each group."""
        groups, each, d = cloud.x[:, part].shape
        x = cloud.x[:, part].reshape(-1, d)
        log_target, log_evidence = self._target.values([Point(row, self._pattern) for row in x])
        log_density = cloud.log_density[:, part].ravel()
        log_weights = np.repeat(cloud.log_integral, each) + log_target - log_density
        return _Draws(x, log_target, log_evidence, log_weights, np.repeat(np.arange(groups), each))

    def _density(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Prior times surrogate, as far as it is below a multiple of the mixture.

        Where few points are known a Gaussian process goes up as steeply as it goes down elsewhere.
        """
        log_prior, slope = self._target.log_prior(x, self._pattern)
        value, gradient = self._surrogate(x)
        value, gradient = value + log_prior, gradient + slope
        bound, away = self._bound.slope(x)
        bound += self._height
        found = -np.logaddexp(-value, -bound)
        share = np.exp(found - value)[:, None]
        wild = ~np.isfinite(found)
        found = np.where(wild, _NOWHERE, found)
        return found, np.where(wild[:, None], 0.0, share * gradient + (1.0 - share) * away)

    def _observe(self, x: FloatArray) -> FloatArray:
        """Add points to what is known; the target there."""
        found = [self._target.function(Point(row, self._pattern)) for row in x]
        total = np.array([value.total for value in found])
        log_prior, slope = self._target.log_prior(x, self._pattern)
        gradient = np.array([value.gradient for value in found]) - slope
        best = int(np.argmax(total))
        if total[best] > self.highest[1]:
            self.highest = Point(x[best], self._pattern), float(total[best])
        kept = np.isfinite(total + log_prior) & np.isfinite(gradient).all(axis=1)
        self._known = self._known.joined(
            Known(x[kept], total[kept] - log_prior[kept], gradient[kept])
        )
        return total


def _relative_ess(log_weights: FloatArray) -> float:
    """None where no point has any weight."""
    return relative_ess(log_weights) if np.isfinite(log_weights.max()) else 0.0
