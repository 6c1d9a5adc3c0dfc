"""An integral over hyperparameters from the problem to weighted points: the rungs of the ladder."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import numpy as np
from pymc.exceptions import SamplingError

from pymc_skewgp._errors import ImproperPriorError
from pymc_skewgp._gaussian.weights import Estimate, short_path
from pymc_skewgp._learn.averaging.chains import points_by_chains
from pymc_skewgp._learn.averaging.points import WeightedPoints
from pymc_skewgp._learn.averaging.problem import Integrand, Mode, find_modes, with_mode_from
from pymc_skewgp._learn.averaging.settings import IntegrationSettings, ModeSettings, Stages
from pymc_skewgp._learn.averaging.surrogate import (
    AdaptiveImportance,
    SmoothTarget,
    points_by_surrogate,
)
from pymc_skewgp._learn.coordinates import FlatCoordinate, Function, Point, Value
from pymc_skewgp._learn.optimizers import NoValueError, maximize
from pymc_skewgp._validation import FloatArray

# Whether a posterior under flat priors of hyperparameters is a distribution: its tails decide.
#
# A flat prior has density one on the scale of its variable. Along one coordinate, the others at
# their best, the posterior is judged where it is a power: far out a density that falls no faster
# than 1/v has an infinite integral. Where x is the logarithm of v, Jacobian included, this is a
# slope of 0.

# Powers of v by which a density must fall beyond 1/v: those that occur are multiples of a half,
# and EP's evidence moves by less along the tail.
_LEAST_POWER = 0.1
# How far out, where the coordinate is a logarithm: beyond e^5 what is left of other terms is a
# hundredth, and up to e^9 wide Gaussians in place of flat coefficients are wide enough.
_LOG_DISTANCES = (2.0, 5.0, 7.0, 9.0)
# Elsewhere in doublings of the mode's width: so many after the density has fallen.
_MOST_DOUBLINGS, _BEYOND, _FALL = 40, 6, 3.0
# Nats above all modes: it rises without end, or double precision has ended on a plateau.
_RISE = 10.0
_NEGLIGIBLE = 200.0  # nats below the mode at which a falling tail needs no further look


def refuse_improper(
    problem: Integrand, function: Function, mode: Mode, settings: ModeSettings
) -> None:
    """Follow both tails of each coordinate with a flat prior.

    Raises
    ------
    ImproperPriorError
        Where one does not decay.
    """
    for flat in problem.objective.coordinates.flat:
        moved = mode.point.x[flat.place] - problem.origins[0].x[flat.place]
        if flat.is_log and abs(moved) > settings.farthest:  # no mode, the end of an ascent
            raise _improper(flat, moved)
        for sign in (-1.0, 1.0):
            walk = list(_walk(problem, function, mode, settings, flat, sign))
            risen = any(value > mode.log_density + _RISE for _, value in walk)
            if risen or not _decays(flat, walk):
                raise _improper(flat, sign)


def _improper(flat: FlatCoordinate, sign: float) -> ImproperPriorError:
    return ImproperPriorError(
        f"{flat.label} has a flat prior, and the posterior is improper: as it goes to "
        f"{flat.ends[int(sign > 0)]}, the evidence times the prior does not decay, so that it has "
        "no integral. Give a proper prior, such as pm.HalfNormal for a standard deviation and "
        "pm.InverseGamma for a lengthscale, or use find_hyperparameters, which maximises."
    )


def _walk(
    problem: Integrand,
    function: Function,
    mode: Mode,
    settings: ModeSettings,
    flat: FlatCoordinate,
    sign: float,
) -> Iterator[tuple[float, float]]:
    """Distances from a mode and the log density there, the other coordinates at their best."""
    k, point, before = flat.place, mode.point, mode.log_density
    bounds = problem.objective.coordinates.bounds(point.x, settings.start.half_width)
    fallen = 0
    for distance in _distances(flat, float(np.sqrt(mode.covariance[k, k]))):
        x = point.x.copy()
        x[k] = mode.point.x[k] + sign * distance
        bounds[k] = (x[k], x[k])
        point = point.at(x)
        if x.size > 1:
            point = maximize(function, point, bounds, settings.optimizer).point
        value = function(point).total
        if not np.isfinite(value):
            return  # beyond double precision: what was met before tells
        yield distance, value
        fallen += value < mode.log_density - _FALL
        if value < min(before, mode.log_density - _NEGLIGIBLE):
            return
        if not flat.is_log and fallen > _BEYOND:
            return
        before = value


def _distances(flat: FlatCoordinate, width: float) -> Sequence[float]:
    if flat.is_log:
        return _LOG_DISTANCES
    return [width * 2.0**i for i in range(_MOST_DOUBLINGS)]


def _decays(flat: FlatCoordinate, walk: list[tuple[float, float]]) -> bool:
    """By the last three points; a density that ends before there are two has no tail.

    By three, for at the last one Gaussians in place of flat coefficients may be too narrow.
    """
    for (near, high), (far, low) in pairwise(walk[-3:]):
        least = far - near if flat.is_log else np.log(far / near)
        power = _LEAST_POWER if flat.is_log else 1.0 + _LEAST_POWER
        if not low - high < -power * least:
            return False
    return True


# Rungs of the ladder, in order.
EXACT, IMPORTANCE, MORE_ROUNDS, SURROGATE, CHAINS = range(5)
_MOST_BEGINNINGS = 6
RUNGS = (
    "no continuous hyperparameters",
    "importance sampling",
    "more rounds",
    "surrogate",
    "NUTS",
)


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
    seconds : dict
        By stage.
    """

    points: WeightedPoints
    log_integral: Estimate
    rung: int
    accepted: bool
    n_evaluations: int
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def relative_ess(self) -> float:
        """Of the points."""
        return self.log_integral.relative_ess


class Evaluations:
    """The objective, counted."""

    def __init__(self, problem: Integrand) -> None:
        self._objective, self.count = problem.objective, 0

    def __call__(self, point: Point) -> Value:
        """Value with gradient."""
        self.count += 1
        return self._objective.by_ep(point)

    def values(self, points: Sequence[Point]) -> tuple[FloatArray, FloatArray]:
        """Log target and EP's log evidence at points."""
        self.count += len(points)
        found = np.empty((len(points), 2))
        # EP begins from its last fixed point.
        for i in short_path(np.array([point.x for point in points])):
            found[i] = self._objective.total_by_ep(points[i])
        return found[:, 0], found[:, 1]


@dataclass(frozen=True, eq=False)
class Run:
    """What every rung needs.

    Attributes
    ----------
    problem : Integrand
    evaluate : Evaluations
        Of its objective.
    settings : IntegrationSettings
    rng : numpy.random.Generator
    stages : Stages
    """

    problem: Integrand
    evaluate: Evaluations
    settings: IntegrationSettings
    rng: np.random.Generator
    stages: Stages


# What it found, and a point above all modes where there is one.
Rung = Callable[[Run, list[Mode]], tuple[Integral, Point | None]]


def integral_by_ep(
    problem: Integrand,
    settings: IntegrationSettings,
    rng: np.random.Generator,
    stages: Stages,
    modes: Sequence[Mode] = (),
) -> Integral:
    """Climb the ladder until a rung is accepted, or the last one was tried.

    `modes` where they are known.
    """
    evaluate = Evaluations(problem)
    if not problem.origins[0].x.size:
        return _without_coordinates(problem, evaluate)
    began = time.perf_counter()
    modes = proper_modes(problem, evaluate, settings.modes, rng, modes)
    seconds = {"modes": time.perf_counter() - began}
    run = Run(problem, evaluate, settings, rng, stages)
    found: list[Integral] = []
    for rung in rungs(problem, settings):
        began = time.perf_counter()
        if rung == CHAINS:
            new = _by_chains(run, modes)
        else:
            one = _by_importance if rung == IMPORTANCE else _by_surrogate
            new, modes = _from_every_mode(one, run, modes)
        seconds[RUNGS[rung]] = time.perf_counter() - began
        found.append(new)
        if new.accepted:
            break
    # Chains, where there are any, otherwise the best weights.
    best = max(found, key=lambda one: (one.accepted, one.rung == CHAINS, one.relative_ess))
    return replace(best, n_evaluations=evaluate.count, seconds=seconds)


def proper_modes(
    problem: Integrand,
    evaluate: Evaluations,
    settings: ModeSettings,
    rng: np.random.Generator,
    known: Sequence[Mode] = (),
) -> list[Mode]:
    """Those `known`, or found, of a posterior whose tails are looked at.

    Raises
    ------
    NoValueError
        Where there are none: the message says why.
    ImproperPriorError
        Where the posterior is no distribution.
    """
    try:
        modes = list(known) or find_modes(problem, evaluate, settings, rng)
    except NoValueError as error:
        raise NoValueError(_reason(problem) or str(error)) from None
    refuse_improper(problem, evaluate, modes[0], settings)
    return modes


def rungs(problem: Integrand, settings: IntegrationSettings) -> list[int]:
    """Those to be tried, in order."""
    size, automatic = problem.origins[0].x.size, settings.method == "auto"
    tried = {
        IMPORTANCE: settings.method == "importance"
        or (automatic and size <= settings.most_coordinates),
        SURROGATE: settings.method == "surrogate"
        or (automatic and size <= settings.most_of_surrogate),
        CHAINS: settings.method == "nuts"
        or (automatic and problem.n_rows <= settings.most_rows_of_chains),
    }
    # One at least.
    return [rung for rung, wanted in tried.items() if wanted] or [IMPORTANCE]


def _by_surrogate(run: Run, modes: list[Mode]) -> tuple[Integral, Point | None]:
    """Draws from a surrogate of the log evidence, with weights."""

    def report(count: int, ess: float) -> None:
        run.stages.begin(f"Surrogate of the log evidence: {count} points, relative ESS {ess:.2f}")

    objective, evaluate, settings = run.problem.objective, run.evaluate, run.settings
    target = SmoothTarget(
        evaluate, evaluate.values, objective.log_prior_at, objective.coordinates.groups
    )
    enough = max(settings.importance.enough, settings.n_evidences)
    found = points_by_surrogate(target, modes, enough, settings.surrogate, run.rng, report)
    estimate = found.points.estimate()
    accepted = settings.importance.accepts(estimate)
    higher = found.highest if _is_above(found.log_density, modes, settings) else None
    return Integral(found.points, estimate, SURROGATE, accepted, evaluate.count), higher


def _by_chains(run: Run, modes: list[Mode]) -> Integral:
    """NUTS."""
    run.stages.begin("NUTS on the posterior of the hyperparameters")
    log_prior, chains = run.problem.objective.log_prior, run.settings.chains
    try:
        drawn = points_by_chains(run.evaluate, log_prior, modes, chains, run.rng)
    except SamplingError as error:
        raise NoValueError(_without_start(run.problem)) from error
    count = run.evaluate.count
    return Integral(drawn.points, drawn.log_integral, CHAINS, drawn.converged, count)


def _from_every_mode(one: Rung, run: Run, modes: list[Mode]) -> tuple[Integral, list[Mode]]:
    """Importance sampling, begun anew while it finds a point above the modes; and the modes."""
    for _ in range(_MOST_BEGINNINGS):
        found, higher = one(run, modes)
        if higher is None:
            break
        objective, settings = run.problem.objective, run.settings.modes
        modes = with_mode_from(modes, higher, objective, run.evaluate, settings)
    return found, modes


def _is_above(log_density: float, modes: list[Mode], settings: IntegrationSettings) -> bool:
    """Whether a point is above every mode: they are not those with the mass."""
    highest = max(mode.log_density for mode in modes)
    return log_density > highest + settings.modes.above


def _by_importance(run: Run, modes: list[Mode]) -> tuple[Integral, Point | None]:
    """Rounds until there are enough effective points, and more where the weights are poor.

    And until there is a point above the modes, which is returned.
    """
    evaluate, settings = run.evaluate, run.settings
    sampling = settings.importance
    prior = partial(run.problem.prior_draws, rng=run.rng)
    importance = AdaptiveImportance(evaluate.values, modes, sampling, run.rng, prior)
    enough = max(sampling.enough, settings.n_evidences)
    wanted = None
    while True:
        points = importance.round(wanted)
        estimate = points.estimate()
        best = int(np.argmax(points.log_target))
        if _is_above(points.log_target[best], modes, settings):
            found = Integral(points, estimate, MORE_ROUNDS, False, evaluate.count)
            return found, points.point(best)
        run.stages.begin(
            f"Importance sampling: round {importance.n_rounds}, "
            f"relative ESS {estimate.relative_ess:.2f}"
        )
        # The first round knows nothing but the curvature at the modes.
        accepted = sampling.accepts(estimate) and importance.n_rounds > 1
        over = importance.n_rounds >= sampling.rounds
        lacking = enough - estimate.relative_ess * points.log_weights.size
        if accepted and (over or lacking <= 0.0):
            break
        # The proposal is good: one round with all that is wanted.
        # One large weight in the last round alone must not multiply it.
        share = max(importance.last_relative_ess, estimate.relative_ess)
        wanted = int(lacking / share) if accepted else None
        unpromising = over and importance.last_relative_ess < sampling.promising
        if unpromising or importance.n_rounds >= sampling.more_rounds:
            break
    rung = IMPORTANCE if importance.n_rounds <= sampling.rounds else MORE_ROUNDS
    return Integral(points, estimate, rung, accepted, evaluate.count), None


def _without_start(problem: Integrand) -> str:
    """Why no chain begins at a mode."""
    labels = problem.objective.coordinates.labels
    sizes = Counter(label.partition("[")[0] for label in labels)
    named = " and ".join(f"{name} ({size} coordinates)" for name, size in sizes.items())
    return (
        "NUTS cannot begin where the posterior of the hyperparameters is highest: its density is "
        f"not finite there, or has no bound. They are {named}. A variable of many "
        "entries is a hyperparameter where its prior is not Gaussian, as pm.Uniform is: with "
        "pm.Normal, pm.Flat or pm.GaussianRandomWalk it is integrated out. Otherwise use "
        "pm.sample."
    )


def _reason(problem: Integrand) -> str | None:
    return problem.objective.why_no_value(problem.origins[0])


def _without_coordinates(problem: Integrand, evaluate: Evaluations) -> Integral:
    """All patterns of binary values: the integral is the sum over them."""
    origins = problem.origins
    log_target, log_evidence = evaluate.values(origins)
    if not np.isfinite(log_target).any():
        why = _reason(problem)
        raise NoValueError(why or "the model has no evidence: check its priors and its data.")
    known = Estimate(float(np.logaddexp.reduce(log_target)), 0.0, 1.0, -np.inf)
    points = WeightedPoints(
        np.array([point.x for point in origins]),
        np.arange(len(origins)),
        [point.pattern for point in origins],
        log_target,
        log_evidence,
        log_target + np.log(len(origins)),
        np.zeros(len(origins), dtype=np.intp),
    )
    return Integral(points, known, EXACT, True, evaluate.count)
