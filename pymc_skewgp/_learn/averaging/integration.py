"""An integral over hyperparameters from the problem to weighted points: the rungs of the ladder."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from pymc.exceptions import SamplingError

from pymc_skewgp._gaussian.weights import Estimate, describe_weights
from pymc_skewgp._learn.averaging.chains import points_by_chains
from pymc_skewgp._learn.averaging.importance import AdaptiveImportance, IntegrationSettings
from pymc_skewgp._learn.averaging.modes import Evaluations, Mode, proper_modes, with_mode_from
from pymc_skewgp._learn.averaging.points import WeightedPoints, joined
from pymc_skewgp._learn.averaging.problem import IntegrationProblem
from pymc_skewgp._learn.averaging.surrogate import SmoothTarget, first_points, points_by_surrogate
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.optimizers import NoValueError
from pymc_skewgp._limits import stage

_log = logging.getLogger("pymc.pymc_skewgp")

# Rungs of the ladder, in order.
EXACT, IMPORTANCE, MORE_ROUNDS, SURROGATE, CHAINS = range(5)
RUNGS = (
    "no continuous hyperparameters",
    "importance sampling",
    "more rounds",
    "surrogate",
    "NUTS",
)
# Rounds of importance sampling after which weights have to do, where they do.
_ROUNDS = 4
# Relative ESS of the last round below which more rounds are not tried.
_PROMISING = 0.01
# Coordinates above which the surrogate is not tried, unless it is asked for.
_MOST_OF_SURROGATE = 80
# Nats by which a point has to be above every mode to begin an ascent of its own, and how often.
_ABOVE, _MOST_BEGINNINGS = 1.0, 6


@dataclass(frozen=True)
class Integral:
    """The posterior of the hyperparameters with EP's evidence.

    Attributes
    ----------
    points : WeightedPoints
    log_integral : Estimate
        EP's log evidence of the model, hyperparameters integrated out.
    rung : int
        Of the ladder: see `RUNGS`.
    accepted : bool
        Whether the weights, or the chains, are good enough.
    n_evaluations : int
        Of EP.
    """

    points: WeightedPoints
    log_integral: Estimate
    rung: int
    accepted: bool
    n_evaluations: int = 0


def rungs(problem: IntegrationProblem, settings: IntegrationSettings) -> list[int]:
    """Those to be tried, in order."""
    size, method = problem.origins[0].x.size, settings.method
    automatic = {
        IMPORTANCE: size <= settings.most_coordinates,
        SURROGATE: size <= _MOST_OF_SURROGATE,
        CHAINS: problem.n_rows <= settings.most_rows_of_chains,
    }
    names = {"importance": IMPORTANCE, "surrogate": SURROGATE, "nuts": CHAINS}
    if method != "auto":
        return [names[method]]
    # One at least.
    return [rung for rung, wanted in automatic.items() if wanted] or [IMPORTANCE]


def evaluations(settings: IntegrationSettings, n_coordinates: int) -> int:
    """Of EP, about as many as the importance sampling takes where all goes well."""
    wanted = max(settings.enough, settings.n_evidences)
    if n_coordinates <= settings.most_coordinates:
        return settings.points_of_round(n_coordinates) + wanted
    return first_points(n_coordinates) + settings.learnt // 2 + 2 * wanted


class Ladder:
    """Rungs, to be climbed until one is accepted.

    Parameters
    ----------
    problem : IntegrationProblem
    evaluate : Evaluations
        Of its objective.
    settings : IntegrationSettings
    rng : numpy.random.Generator
    """

    def __init__(
        self,
        problem: IntegrationProblem,
        evaluate: Evaluations,
        settings: IntegrationSettings,
        rng: np.random.Generator,
    ) -> None:
        self._problem, self._evaluate, self._rng = problem, evaluate, rng
        self._settings = settings
        self._enough = max(settings.enough, settings.n_evidences)

    def at(self, rung: int, modes: list[Mode]) -> tuple[Integral, list[Mode]]:
        """One rung; importance sampling begun anew while it finds a point above the modes."""
        if rung == CHAINS:
            return self._by_chains(modes), modes
        one = self._by_importance if rung == IMPORTANCE else self._by_surrogate
        for _ in range(_MOST_BEGINNINGS):
            found, higher = one(modes)
            if higher is None:
                break
            modes = with_mode_from(modes, higher, self._problem.objective, self._evaluate)
        return found, modes

    def _by_importance(self, modes: list[Mode]) -> tuple[Integral, Point | None]:
        """Rounds until there are enough effective points, and more where the weights are poor.

        And until there is a point above the modes, which is returned.
        """
        settings = self._settings
        prior = partial(self._problem.prior_draws, rng=self._rng)
        sampler = AdaptiveImportance(self._evaluate.values, modes, settings, self._rng, prior)
        wanted = 0
        while True:
            points = sampler.round(wanted)
            estimate = points.estimate()
            best = int(np.argmax(points.log_target))
            if _is_above(points.log_target[best], modes):
                return Integral(points, estimate, MORE_ROUNDS, False), points.point(best)
            stage(
                f"Importance sampling: round {sampler.n_rounds}, "
                f"relative ESS {estimate.relative_ess:.2f}"
            )
            # The first round knows nothing but the curvature at the modes.
            accepted = settings.accepts(estimate) and sampler.n_rounds > 1
            over = sampler.n_rounds >= _ROUNDS
            lacking = self._enough - estimate.relative_ess * len(points.x)
            if accepted and (over or lacking <= 0.0):
                break
            # The proposal is good: one round with all that is wanted.
            # One large weight in the last round alone must not multiply it.
            share = max(sampler.last_relative_ess, estimate.relative_ess)
            wanted = int(lacking / share) if accepted else 0
            if sampler.n_rounds == _ROUNDS:
                _say_fallback(RUNGS[IMPORTANCE], estimate, RUNGS[MORE_ROUNDS])
            unpromising = over and sampler.last_relative_ess < _PROMISING
            if unpromising or sampler.n_rounds >= settings.more_rounds:
                break
        rung = IMPORTANCE if sampler.n_rounds <= _ROUNDS else MORE_ROUNDS
        return Integral(points, estimate, rung, accepted), None

    def _by_surrogate(self, modes: list[Mode]) -> tuple[Integral, Point | None]:
        """Draws from a surrogate of the log evidence, with weights."""
        objective, evaluate = self._problem.objective, self._evaluate
        groups = objective.coordinates.groups
        target = SmoothTarget(evaluate, evaluate.values, objective.log_prior.at_rows, groups)
        given = self._enough, self._settings, self._rng
        points, highest, log_density = points_by_surrogate(target, modes, *given)
        estimate = points.estimate()
        found = Integral(points, estimate, SURROGATE, self._settings.accepts(estimate))
        return found, highest if _is_above(log_density, modes) else None

    def _by_chains(self, modes: list[Mode]) -> Integral:
        """NUTS."""
        stage("NUTS on the posterior of the hyperparameters")
        objective = self._problem.objective
        given = self._evaluate, objective.log_prior, modes, self._settings, self._rng
        try:
            points, estimate, converged = points_by_chains(*given)
        except SamplingError as error:
            raise NoValueError(_without_start(objective.coordinates.labels)) from error
        return Integral(points, estimate, CHAINS, converged)


def _is_above(log_density: float, modes: list[Mode]) -> bool:
    """Whether a point is above every mode: they are not those with the mass."""
    return log_density > max(mode.log_density for mode in modes) + _ABOVE


def integral_by_ep(
    problem: IntegrationProblem,
    settings: IntegrationSettings,
    rng: np.random.Generator,
    modes: Sequence[Mode] = (),
) -> Integral:
    """Climb the ladder until a rung is accepted, or the last one was tried.

    `modes` where they are known.
    """
    evaluate = Evaluations(problem.objective)
    if not problem.origins[0].x.size:
        return _without_coordinates(problem, evaluate)
    stage("Posterior modes of the hyperparameters")
    modes = proper_modes(problem, evaluate, rng, modes)
    ladder = Ladder(problem, evaluate, settings, rng)
    found: list[Integral] = []
    for rung in rungs(problem, settings):
        if found:
            _say_fallback(RUNGS[found[-1].rung], found[-1].log_integral, RUNGS[rung])
        new, modes = ladder.at(rung, modes)
        found.append(new)
        if new.accepted:
            break
    # Chains, where there are any, otherwise the best weights.
    best = max(found, key=lambda x: (x.accepted, x.rung == CHAINS, x.log_integral.relative_ess))
    return replace(best, n_evaluations=evaluate.count)


def _say_fallback(what: str, found: Estimate, then: str) -> None:
    _log.info(
        f"Hyperparameters by {what}: {describe_weights(found)}, which is not enough. Next is "
        f"{then}, which takes longer. Priors without long tails, fewer hyperparameters or start= "
        "may need less; method= asks for one way from the start."
    )


def _without_start(labels: Sequence[str]) -> str:
    """Why no chain begins at a mode."""
    sizes = Counter(label.partition("[")[0] for label in labels)
    named = " and ".join(f"{name} ({size} coordinates)" for name, size in sizes.items())
    return (
        "NUTS cannot begin where the posterior of the hyperparameters is highest: its density is "
        f"not finite there, or has no bound. They are {named}. A variable of many "
        "entries is a hyperparameter where its prior is not Gaussian, as pm.Uniform is: with "
        "pm.Normal, pm.Flat or pm.GaussianRandomWalk it is integrated out. Otherwise use "
        "pm.sample."
    )


def _without_coordinates(problem: IntegrationProblem, evaluate: Evaluations) -> Integral:
    """All patterns of binary values: the integral is the sum over them."""
    origins = problem.origins
    target, evidence = evaluate.values(origins)
    if not np.isfinite(target).any():
        why = problem.objective.why_no_value(origins[0])
        raise NoValueError(why or "the model has no evidence: check its priors and its data.")
    one = np.zeros(1, dtype=np.intp)
    parts = [
        WeightedPoints.of(point.pattern, point.x[None], value, log_evidence, value, one)
        for point, value, log_evidence in zip(
            origins, target[:, None], evidence[:, None], strict=True
        )
    ]
    known = Estimate(float(np.logaddexp.reduce(target)), 0.0, 1.0, -np.inf)
    return Integral(joined(parts), known, EXACT, True, evaluate.count)
