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
from pymc_skewgp._learn.averaging.problem import Integrand
from pymc_skewgp._learn.averaging.settings import ImportanceSettings, SurrogateSettings
from pymc_skewgp._learn.averaging.student_mixture import StudentMixture
from pymc_skewgp._learn.averaging.surrogate import KernelChoice, Known, Surrogate
from pymc_skewgp._learn.averaging.weighted_points import WeightedPoints
from pymc_skewgp._learn.point import Function, Pattern, Point
from pymc_skewgp._validation import FloatArray

# Log target and EP's log evidence at points.
Values = Callable[[Sequence[Point]], tuple[FloatArray, FloatArray]]


class Evaluated(NamedTuple):
    """How the target is evaluated.

    Attributes
    ----------
    function : callable
        Value with gradient.
    values : callable
        Of many points, without.
    """

    function: Function
    values: Values


class _Draws(NamedTuple):
    """Points, what is known there, and weights whose mean estimates the integral."""

    x: FloatArray
    log_target: FloatArray
    log_evidence: FloatArray
    log_weights: FloatArray
    replicate: IntArray


def points_by_surrogate(
    problem: Integrand,
    evaluate: Evaluated,
    modes: list[Mode],
    enough: int,
    settings: SurrogateSettings,
    rng: np.random.Generator,
    report: Callable[[int, float], None],
) -> WeightedPoints:
    """Points for each pattern of binary values.

    Parameters
    ----------
    problem : Integrand
    evaluate : Evaluated
    modes : list of Mode
    enough : int
        Effective points that are wanted.
    settings : SurrogateSettings
    rng : numpy.random.Generator
    report : callable
        Called with the number of points and the relative ESS after each round.
    """
    patterns = list(dict.fromkeys(mode.point.pattern for mode in modes))
    parts = []
    for pattern in patterns:
        own = [mode for mode in modes if mode.point.pattern == pattern]
        sampler = _OnePattern(problem, evaluate, pattern, settings, rng)
        each = -(-enough // len(patterns))
        begin = mixture_of_modes(own, ImportanceSettings(), ((0.0, 1.0, 1.0),))
        sampler.learn(begin, each, report)
        parts.append(sampler.draws(each))
    sizes = [part.log_target.size for part in parts]
    # The integral is the sum over patterns.
    shares = np.repeat(np.log(sum(sizes)) - np.log(sizes), sizes)
    x, log_target, log_evidence, log_weights, replicate = map(
        np.concatenate, zip(*parts, strict=True)
    )
    which = np.repeat(np.arange(len(parts)), sizes)
    return WeightedPoints(
        x, which, patterns, log_target, log_evidence, log_weights + shares, replicate
    )


class _OnePattern:
    """The surrogate with one pattern of binary values."""

    def __init__(
        self,
        problem: Integrand,
        evaluate: Evaluated,
        pattern: Pattern,
        settings: SurrogateSettings,
        rng: np.random.Generator,
    ) -> None:
        self._objective, self._evaluate, self._pattern = problem.objective, evaluate, pattern
        self._groups = problem.objective.coordinates.groups
        self._settings, self._rng = settings, rng
        self._known = Known.nothing(problem.origins[0].x.size)

    def learn(
        self, proposal: StudentMixture, enough: int, report: Callable[[int, float], None]
    ) -> None:
        """Fit the surrogate where its own draws are, until these are near the evidence's.

        Until further points would be more than those that are then weighted.
        """
        settings, rng = self._settings, self._rng
        each = -(-settings.first_points(proposal.means.shape[1]) // settings.n_groups)
        uniforms = uniform_points(proposal.n_uniforms, each, settings.n_groups, rng)
        self._observe(np.concatenate([proposal.means, proposal.draw(uniforms)]))
        self._choice = KernelChoice(self._known, self._groups)
        while True:
            self._surrogate = Surrogate(self._known, self._choice.best)
            self._envelope = proposal
            self._enclose()
            cloud = annealed(
                self._density,
                proposal,
                settings.n_groups,
                settings.cloud,
                settings.annealing,
                rng,
            )
            flat = cloud.x.reshape(-1, cloud.x.shape[2])
            equal = np.full(len(flat), 1.0 / len(flat))
            proposal = self._proposal = proposal.fitted(
                flat, equal, widen=settings.widen, least_share=settings.least_share, steps=2
            )
            chosen = cloud.x[:, : settings.points_of_group].reshape(-1, flat.shape[1])
            guess = cloud.log_density[:, : settings.points_of_group].ravel()
            before = self._known.value.size
            log_ratio = self._observe(chosen) - guess
            self._choice.add(self._known.since(before))
            finite = log_ratio[np.isfinite(log_ratio)]
            reached = relative_ess(finite) * finite.size / log_ratio.size if finite.size else 0.0
            report(len(self._known.value), reached)
            count = self._known.value.size
            if reached * count >= enough or count >= settings.most_points:
                break
        self._surrogate = Surrogate(self._known, self._choice.best)
        self._enclose()

    def draws(self, enough: int) -> _Draws:
        """Points by which the surrogate was not fitted, until there are enough effective ones."""
        settings = self._settings
        cloud = annealed(
            self._density,
            self._proposal,
            settings.n_groups,
            settings.final_cloud,
            settings.annealing,
            self._rng,
        )
        parts: list[_Draws] = []
        for begin in range(0, settings.final_cloud, settings.portion):
            parts.append(self._weighted(cloud, slice(begin, begin + settings.portion)))
            found = _Draws(*map(np.concatenate, zip(*parts, strict=True)))
            if relative_ess(found.log_weights) * found.log_weights.size >= enough:
                break
        return found

    def _weighted(self, cloud: Annealed, part: slice) -> _Draws:
        chosen = cloud.x[:, part]
        groups, each, d = chosen.shape
        x = chosen.reshape(-1, d)
        log_target, log_evidence = self._evaluate.values([Point(row, self._pattern) for row in x])
        heads = np.repeat(cloud.log_integral, each)
        log_weights = heads + log_target - cloud.log_density[:, part].ravel()
        return _Draws(x, log_target, log_evidence, log_weights, np.repeat(np.arange(groups), each))

    def _density(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The surrogate with the exact prior."""
        value, gradient = self._surrogate(x)
        log_prior, slope = self._objective.log_prior_at(x, self._pattern)
        log_bound, away = self._envelope.slope(x)
        value, log_bound = value + log_prior, log_bound + self._height
        found = -np.logaddexp(-value, -log_bound)
        share = np.exp(found - value)[:, None]
        return found, share * (gradient + slope) + (1.0 - share) * away

    def _enclose(self) -> None:
        log_prior, _ = self._objective.log_prior_at(self._known.x, self._pattern)
        ratio = self._known.value + log_prior - self._envelope.log_density(self._known.x)
        self._height = float(ratio.max()) + self._settings.margin

    def _observe(self, x: FloatArray) -> FloatArray:
        """Add points to what is known; the target there."""
        found = [self._evaluate.function(Point(row, self._pattern)) for row in x]
        total = np.array([value.total for value in found])
        log_prior, slope = self._objective.log_prior_at(x, self._pattern)
        gradient = np.array([value.gradient for value in found]) - slope
        kept = np.isfinite(total) & np.isfinite(log_prior)
        self._known = self._known.joined(
            Known(x[kept], total[kept] - log_prior[kept], gradient[kept])
        )
        return total
