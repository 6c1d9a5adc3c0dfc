"""Importance sampling over many hyperparameters, from a surrogate of the log evidence.

With twenty and more coordinates no mixture is near enough to the posterior: where an input does
not matter, its lengthscale follows the prior from some length on and is cut off below, and weights
multiply over the coordinates. A Gaussian process through the log evidence and its gradient knows
that shape from some hundred points. Draws from it, times the exact prior, cost no evidence; their
weights are the evidence over the surrogate, at points by which the surrogate was not fitted.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from pymc_skewgp._gaussian.points import uniform_points
from pymc_skewgp._gaussian.weights import IntArray, relative_ess
from pymc_skewgp._learn.averaging.adaptive_importance import mixture_of_modes
from pymc_skewgp._learn.averaging.annealing import Annealed, annealed
from pymc_skewgp._learn.averaging.modes import Mode
from pymc_skewgp._learn.averaging.settings import ImportanceSettings, SurrogateSettings
from pymc_skewgp._learn.averaging.surrogate import KernelChoice, Known, Surrogate
from pymc_skewgp._learn.averaging.weighted_points import WeightedPoints
from pymc_skewgp._learn.point import Function, Pattern, Point
from pymc_skewgp._threads import few_blas_threads
from pymc_skewgp._validation import FloatArray

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
