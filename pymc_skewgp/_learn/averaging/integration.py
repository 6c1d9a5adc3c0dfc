"""An integral over hyperparameters from the problem to weighted points: the rungs of the ladder."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from pymc.exceptions import SamplingError
from xarray import DataTree

from pymc_skewgp._gaussian.weights import Estimate, describe_weights
from pymc_skewgp._learn.averaging.chains import points_by_chains
from pymc_skewgp._learn.averaging.importance import AdaptiveImportance, IntegrationSettings
from pymc_skewgp._learn.averaging.interpolation import InterpolatedTarget
from pymc_skewgp._learn.averaging.model_functions import ModelFunctions, dataset_of
from pymc_skewgp._learn.averaging.modes import (
    CANDIDATES,
    MARGIN,
    Evaluations,
    Mode,
    by_pattern,
    modes_of,
    n_restarts,
    proper_modes,
    with_mode_from,
)
from pymc_skewgp._learn.averaging.points import (
    N_CANDIDATES,
    EqualDraws,
    ExactPoints,
    Task,
    WeightedPoints,
    exact_points,
    joined,
)
from pymc_skewgp._learn.averaging.problem import IntegrationProblem, ManyRowsProblem, likelihoods_of
from pymc_skewgp._learn.averaging.surrogate import (
    SmoothTarget,
    SurrogateSampler,
    first_points,
    mass_beyond,
)
from pymc_skewgp._learn.coordinates import Point, Searched
from pymc_skewgp._learn.optimizers import (
    EvaluationLog,
    NoValueError,
    SearchSettings,
    maximize,
    spread_starts,
)
from pymc_skewgp._learn.problem import TrainingData, coarse_part
from pymc_skewgp._learn.rows.rows_objective import ManyRows, RowsObjective, warn_of_loss_at
from pymc_skewgp._limits import announce_average, announce_exact_average, posteriors_kept, stage
from pymc_skewgp._model.gp.exact_posterior import posterior_of
from pymc_skewgp._model.gp.functions import SharedFunctions
from pymc_skewgp._model.gp.latent_draws import LatentDraws, latent_tree
from pymc_skewgp._observations.new_rows import NewRows
from pymc_skewgp._posterior.draws_with_evidence import DrawsWithEvidence
from pymc_skewgp._posterior.features import Inducing, PivotedCholesky
from pymc_skewgp._posterior.output import as_probabilities
from pymc_skewgp._posterior.posterior import SkewGPPosterior, draws_here_and_there
from pymc_skewgp._posterior.prior import DataSet
from pymc_skewgp._posterior.vecchia import Vecchia
from pymc_skewgp._validation import FloatArray

_log = logging.getLogger("pymc.pymc_skewgp")

# Rungs of the ladder, in order.
EXACT, IMPORTANCE, MORE_ROUNDS, SURROGATE, CHAINS = range(5)
RUNGS = ("no continuous hyperparameters", "importance sampling", "more rounds", "surrogate", "NUTS")
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
    if n_coordinates <= settings.most_coordinates:
        return 3 * settings.points_of_round(n_coordinates) // 2
    wanted = max(settings.enough, settings.n_evidences)
    return first_points(n_coordinates) + settings.learnt // 2 + 2 * wanted


class _Sampled(NamedTuple):
    """Points of one pattern by a rung; the highest that was met, and the target there."""

    points: WeightedPoints
    rung: int
    highest: Point
    log_density: float


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
            patterns = by_pattern(modes)
            parts = [one(own, -(-self._enough // len(patterns))) for own in patterns]
            points = joined([part.points for part in parts])
            best = max(parts, key=lambda part: part.log_density)
            above = best.log_density > max(mode.log_density for mode in modes) + _ABOVE
            if not above:
                break
            # The modes are not those with the mass.
            modes = with_mode_from(modes, best.highest, self._problem.objective, self._evaluate)
        estimate = points.estimate()
        if rung == SURROGATE:
            values = self._evaluate.values
            lost = max(mass_beyond(values, part.points, part.highest.pattern) for part in parts)
            estimate = estimate._replace(std_error=float(np.hypot(estimate.std_error, lost)))
        accepted = self._settings.accepts(estimate) and not above
        return Integral(points, estimate, max(part.rung for part in parts), accepted), modes

    def _by_importance(self, modes: list[Mode], enough: int) -> _Sampled:
        """Rounds until there are enough effective points, and more where the weights are poor.

        And until there is a point above the modes.
        """
        settings = self._settings
        prior = self._problem.prior_draws(modes[0].point.pattern, self._rng)
        objective, pattern = self._problem.objective, modes[0].point.pattern
        log_prior = objective.log_prior.values_at_rows
        values, slow = self._evaluate.values, self._problem.is_slow
        target = InterpolatedTarget(values, log_prior, pattern, self._rng, by_few=slow)
        sampler = AdaptiveImportance(target, modes, settings, self._rng, prior)
        wanted = 0
        while True:
            points = sampler.round(wanted)
            estimate = points.estimate()
            best = int(np.argmax(points.log_target))
            highest = points.log_target[best]
            stage(
                f"Importance sampling: round {sampler.n_rounds}, "
                f"relative ESS {estimate.relative_ess:.2f}"
            )
            # The first round knows nothing but the curvature at the modes.
            accepted = settings.accepts(estimate) and sampler.n_rounds > 1
            over = sampler.n_rounds >= _ROUNDS
            # As many evaluations as without interpolation, at most.
            most = enough if slow else max(enough, settings.enough_interpolated)
            lacking = min(enough / target.share, most) - estimate.relative_ess * len(points.x)
            if accepted and (over or lacking <= 0.0):
                break
            # The proposal is good: one round with all that is wanted.
            # One large weight in the last round alone must not multiply it.
            share = max(sampler.last_relative_ess, estimate.relative_ess)
            wanted = int(lacking / share) if accepted else 0
            unpromising = over and sampler.last_relative_ess < _PROMISING
            above = highest > max(mode.log_density for mode in modes) + _ABOVE
            if above or unpromising or sampler.n_rounds >= settings.more_rounds:
                break
            if sampler.n_rounds == _ROUNDS:
                _say_fallback(RUNGS[IMPORTANCE], estimate, RUNGS[MORE_ROUNDS])
        rung = IMPORTANCE if sampler.n_rounds <= _ROUNDS else MORE_ROUNDS
        return _Sampled(points, rung, points.point(best), highest)

    def _by_surrogate(self, modes: list[Mode], enough: int) -> _Sampled:
        """Draws from a surrogate of the log evidence, with weights."""
        objective, evaluate = self._problem.objective, self._evaluate
        groups = objective.coordinates.groups
        target = SmoothTarget(evaluate, evaluate.values, objective.log_prior.at_rows, groups)
        sampler = SurrogateSampler(target, modes, self._settings, self._rng)
        sampler.learn(enough)
        return _Sampled(sampler.draws(enough), SURROGATE, *sampler.highest)

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


def integral_by_ep(
    problem: IntegrationProblem,
    settings: IntegrationSettings,
    rng: np.random.Generator,
) -> Integral:
    """Climb the ladder until a rung is accepted, or the last one was tried."""
    evaluate = Evaluations(problem.objective, problem.n_evaluations)
    if not problem.origins[0].x.size:
        return _without_coordinates(problem, evaluate)
    stage("Posterior modes of the hyperparameters")
    latent = problem.latent
    if isinstance(latent, ModelFunctions):
        latent.refuse_scaled(problem.origins[0])
    modes = proper_modes(problem, evaluate, rng)
    if isinstance(latent, ModelFunctions):
        latent.refuse_unbounded(modes[0].point)
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


# An average over hyperparameters, from the problem to exact evidences and posteriors at points.

# The latent function as a posterior at each value of the hyperparameters.
#
# Where posteriors are what is wanted, or rows are many: see `LatentFunctions` for draws alone.

_PAIRS = 256  # of draws behind each evidence


class PosteriorFunctions:
    """See `LatentFunctions`: a posterior at each point.

    Parameters
    ----------
    data : TrainingData
        Of a SkewGP; of many rows with an approximation that is one basis.
    objective : Searched
    seed : int
    keep : bool
        Whether the posteriors themselves are, and nothing drawn.
    Xnew : ndarray, shape (t, d), or None
        Where f is drawn.
    at_data : bool
        Whether f is drawn there.
    """

    def __init__(
        self,
        data: TrainingData,
        objective: Searched,
        seed: int,
        *,
        keep: bool = True,
        Xnew: FloatArray | None = None,
        at_data: bool = False,
    ) -> None:
        self._data, self._objective, self._keep = data, objective, keep
        self._Xnew, self._at_data = Xnew, at_data
        self._rng, self._shared = np.random.default_rng(seed), SharedFunctions()
        self._posteriors: dict[int, SkewGPPosterior] = {}  # by identity of the point
        self._likelihoods: dict[int, list[Any]] = {}
        self._sets: tuple[DataSet, ...] = ()

    def tasks(self, points: Sequence[Point]) -> Iterator[list[Task]]:
        """See `LatentFunctions`."""
        data = self._data
        for point in points:
            posterior = posterior_of(
                data.model,
                data.X,
                data.y,
                data.likelihood,
                self._objective.named(point),
                coregion=data.coregion,
                shared=self._shared,
                n_draws=_PAIRS,
                random_seed=int(self._rng.integers(2**31)),
            )
            self._sets = posterior._sets
            self._likelihoods[id(point)] = [own.likelihood for own in self._sets]
            if self._keep:
                self._posteriors[id(point)] = posterior
                yield [partial(_evidence_and_draws, posterior, None)]
            else:
                yield [partial(_evidence_and_draws, posterior, (self._Xnew, self._at_data))]

    def posteriors(self, exact: ExactPoints) -> list[SkewGPPosterior]:
        """At points whose evidences were computed, where they are kept."""
        return [self._posteriors[id(point)] for point in exact.points]

    def tree(
        self, points: Sequence[Point], draws: EqualDraws, rng: np.random.Generator
    ) -> DataTree:
        """See `LatentFunctions`; of many rows without f at the data."""
        likelihoods = likelihoods_of(draws, [self._likelihoods[id(point)] for point in points])
        new = None if self._Xnew is None else NewRows(self._Xnew)
        own = likelihoods, new, self._at_data, as_probabilities(None)
        trace = dataset_of(self._objective, points, draws.point)
        drawn = LatentDraws("f", draws.f, draws.relative_ess, *own)
        return latent_tree(trace, self._sets, drawn, rng)


def _evidence_and_draws(
    posterior: SkewGPPosterior,
    where: tuple[FloatArray | None, bool] | None,
    count: int,
    _: int,
    rng: np.random.Generator,
) -> DrawsWithEvidence:
    """The evidence of a posterior, and draws, if they are wanted anywhere."""
    found = posterior.log_marginal_likelihood
    drawn = np.zeros((count, 0))
    if where is not None:
        drawn = draws_here_and_there(posterior, *where, count, rng)
    return DrawsWithEvidence(*found[:3], drawn, found.pareto_k)


# Many rows: where an integral over hyperparameters begins, and the basis that it is made with.

_SEARCH = SearchSettings()
# Draws of f at each point over what equal weights would ask for.
_SPARE = 1.5
_FEWEST_KEPT, _BYTES = 4, 2**31  # posteriors, and bytes of the features of all of them


def _placed(
    problem: ManyRowsProblem, settings: IntegrationSettings, keep: bool, rng: np.random.Generator
) -> tuple[IntegrationProblem, IntegrationSettings]:
    """The problem with a basis, its modes, and how many posteriors there are to be.

    Modes are looked for with some hundred rows, then some thousand, then all.
    """
    rows, data, first = problem.found.rows, problem.data, problem.origins[0]
    assert rows is not None
    found: list[Mode] = []
    n_evaluations = 0
    if first.x.size:
        objective, found, n_evaluations = _modes(problem, rows, rng)
    else:
        objective = rows.on_all(first)
    # What has this basis at all hyperparameters: the box of a spectral one is the data's.
    basis, approximation = objective.latent.basis, rows.approximation
    if isinstance(approximation, Inducing | PivotedCholesky):
        approximation, rank = Inducing(basis), len(basis)
    elif isinstance(approximation, Vecchia):
        # About as many entries has a row of R.
        approximation, rank = basis, min(basis.rank, basis.m**2)
    else:
        rank = basis.rank
    n = sum(kind.n_computed for kind in rows.kinds)
    n_evidences = settings.many_rows_evidences
    if keep:  # no more posteriors than there is memory for
        n_evidences = min(n_evidences, max(_FEWEST_KEPT, _BYTES // (8 * n * rank)))
    settings = replace(settings.for_many_rows(), n_evidences=n_evidences)
    n_functions = objective.latent.n_functions
    n_points = evaluations(settings, first.x.size)
    announce_average(n * n_functions, rank, n_points, n_evidences)
    latent = PosteriorFunctions(
        data._replace(model=data.model.approximated_by(approximation)),
        objective,
        int(rng.integers(2**31)),
        keep=keep,
        Xnew=problem.Xnew,
        at_data=problem.at_data,
    )
    mode = found[0].point if found else first
    warn_of_loss_at(data, approximation, objective.named(mode), stacklevel=4)
    given = objective, problem.origins, None, latent, data, found, n_evaluations
    return IntegrationProblem(*given), settings


class Average(NamedTuple):
    """Hyperparameters integrated out.

    Attributes
    ----------
    objective : Searched
    latent : LatentFunctions
    integral : Integral
        With EP's evidence.
    exact : ExactPoints
        At points with equal weights.
    """

    objective: Searched
    latent: Any
    integral: Integral
    exact: ExactPoints


def average(
    problem: IntegrationProblem | ManyRowsProblem,
    settings: IntegrationSettings,
    n_draws: int | None,
    rng: np.random.Generator,
    n_jobs: int | None = None,
) -> Average:
    """Points by EP's evidence, and exact evidences and draws at those with equal weights.

    Parameters
    ----------
    problem : IntegrationProblem or ManyRowsProblem
    settings : IntegrationSettings
    n_draws : int or None
        Of f, at all points together; None to keep the posteriors themselves.
    rng : numpy.random.Generator
    n_jobs : int, optional
        Of joblib.
    """
    keep = n_draws is None
    if isinstance(problem, ManyRowsProblem):
        problem, settings = _placed(problem, settings, keep, rng)
    else:
        n = problem.n_distinct
        if keep:  # each evidence is by the draws that forecasts are made of afterwards
            settings = replace(settings, n_evidences=posteriors_kept(n, settings.n_evidences))
            assert problem.data is not None
            seed = int(rng.integers(2**31))
            latent = PosteriorFunctions(problem.data, problem.objective, seed)
            problem = replace(problem, latent=latent)
        n_points = evaluations(settings, problem.origins[0].x.size)
        announce_exact_average(n, n_points, settings.n_evidences)
    integral = integral_by_ep(problem, settings, rng)
    count, wanted = settings.n_evidences, _SPARE * (n_draws or 0)
    if len(integral.points.x) == 1:
        count, wanted = 1, n_draws or 0
    given = problem.latent, integral.points, count, wanted, N_CANDIDATES
    exact = exact_points(*given, rng, n_jobs)
    return Average(problem.objective, problem.latent, integral, exact)


def _modes(
    problem: ManyRowsProblem, rows: ManyRows, rng: np.random.Generator
) -> tuple[RowsObjective, list[Mode], int]:
    """The objective of all rows, its basis placed at the best mode of some; its modes.

    An evaluation with all rows takes long. Of the optima with some thousand rows only those go on
    that are near the best there: with all rows others are further from it. And how often EP ran
    with all rows.
    """
    first, coordinates = problem.origins[0], rows.objective.coordinates
    part = coarse_part(problem.found, _SEARCH, rng)
    assert part is not None
    bounds = coordinates.bounds(first.x)
    n_starts = n_restarts(first.x.size)
    vectors = spread_starts(part.objective, first, n_starts, rng, CANDIDATES)
    starts = [origin.at(x) for origin in problem.origins for x in vectors]
    search = replace(_SEARCH, ep_margin=MARGIN, seed=int(rng.integers(2**31)))
    log = EvaluationLog(coordinates.labels)
    _, some, _ = rows.of_some(part, starts, bounds, search, log)
    objective = rows.on_all(some[0].point)
    evaluate = Evaluations(objective.for_differences())
    optimizer = replace(
        search.optimizer, first_step=search.rows_first_step, tolerance=search.rows_tolerance
    )
    least = some[0].value.total - MARGIN
    near = [found.point for found in some if found.value.total > least]
    optima = [maximize(evaluate, point, bounds, optimizer) for point in near]
    return objective, modes_of(evaluate, optima, objective), evaluate.count
