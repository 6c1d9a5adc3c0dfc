"""An integral over hyperparameters with many rows, from the problem to posteriors at points."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from xarray import Dataset, DataTree

from pymc_skewgp._learn.averaging.integration import Integral, integral_by_ep
from pymc_skewgp._learn.averaging.model_functions import dataset_of
from pymc_skewgp._learn.averaging.points import EqualDraws, ExactPoints, Task, exact_points
from pymc_skewgp._learn.averaging.problem import Integrand, ManyRowsProblem, Mode, modes_of
from pymc_skewgp._learn.averaging.settings import IntegrationSettings, Stages
from pymc_skewgp._learn.coordinates import Point, Searched, Value
from pymc_skewgp._learn.optimizers import EvaluationLog, SearchSettings, maximize, spread_starts
from pymc_skewgp._learn.problem import TrainingData, coarse_part
from pymc_skewgp._learn.rows.many_rows import ManyRows
from pymc_skewgp._learn.rows.rows_objective import RowsObjective, warn_of_loss_at
from pymc_skewgp._limits import announce_average
from pymc_skewgp._model.gp.exact_posterior import posterior_of
from pymc_skewgp._model.gp.functions import SharedFunctions
from pymc_skewgp._model.gp.latent_draws import LatentDraws, latent_tree
from pymc_skewgp._posterior.draws_with_evidence import DrawsWithEvidence
from pymc_skewgp._posterior.features import HSGP, Inducing
from pymc_skewgp._posterior.posterior import SkewGPPosterior, draws_here_and_there
from pymc_skewgp._posterior.prior import Approximation, DataSet
from pymc_skewgp._validation import FloatArray

# The latent function as a posterior at each value of the hyperparameters.
#
# Where posteriors are what is wanted, or rows are many: see `LatentFunctions` for draws alone.


@dataclass(frozen=True)
class Wanted:
    """What is drawn of each posterior, or whether it is kept as it is.

    Attributes
    ----------
    Xnew : ndarray, shape (t, d), or None
    at_data : bool
        Whether f there is.
    n_draws : int
        Pairs of draws behind its evidence.
    kept : bool
        Whether the posterior itself is, and nothing drawn.
    """

    Xnew: FloatArray | None = None
    at_data: bool = False
    n_draws: int = 256
    kept: bool = True


def _evidence_and_draws(
    posterior: SkewGPPosterior,
    wanted: Wanted,
    count: int,
    _: int,
    rng: np.random.Generator,
) -> DrawsWithEvidence:
    """The evidence of a posterior, and draws."""
    found = posterior.log_marginal_likelihood
    drawn = np.zeros((count, 0))
    if not wanted.kept:
        drawn = draws_here_and_there(posterior, wanted.Xnew, wanted.at_data, count, rng)
    return DrawsWithEvidence(found.value, found.std_error, found.relative_ess, drawn)


class PosteriorFunctions:
    """See `LatentFunctions`: a posterior at each point.

    Parameters
    ----------
    data : TrainingData
        Of a SkewGP; of many rows with an approximation that is one basis.
    objective : Searched
    wanted : Wanted
    seed : int
    """

    def __init__(self, data: TrainingData, objective: Searched, wanted: Wanted, seed: int) -> None:
        self._data, self._objective, self._wanted = data, objective, wanted
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
                n_draws=self._wanted.n_draws,
                random_seed=int(self._rng.integers(2**31)),
            )
            self._sets = posterior._sets
            self._likelihoods[id(point)] = [own.likelihood for own in self._sets]
            if self._wanted.kept:
                self._posteriors[id(point)] = posterior
            yield [partial(_evidence_and_draws, posterior, self._wanted)]

    def posteriors(self, exact: ExactPoints) -> list[SkewGPPosterior]:
        """At points whose evidences were computed, where they are kept."""
        return [self._posteriors[id(point)] for point in exact.points]

    def tree(
        self, points: Sequence[Point], draws: EqualDraws, rng: np.random.Generator
    ) -> DataTree:
        """See `LatentFunctions`; of many rows without f at the data."""
        likelihoods = np.empty(len(points), dtype=object)
        likelihoods[:] = [self._likelihoods[id(point)] for point in points]
        wanted = self._wanted
        drawn = LatentDraws(
            "f",
            draws.f,
            draws.relative_ess,
            likelihoods[draws.point],
            wanted.Xnew,
            wanted.at_data,
        )
        return latent_tree(dataset_of(self._objective, points, draws.point), self._sets, drawn, rng)


# Many rows: where an integral over hyperparameters begins, and the basis that it is made with.

_SEARCH = SearchSettings()
_FEWEST_KEPT, _BYTES = 4, 2**31  # posteriors, and bytes of the features of all of them


class Begun(NamedTuple):
    """An integral that is made with many rows.

    Attributes
    ----------
    integrand : Integrand
        With one basis for all hyperparameters.
    latent : PosteriorFunctions
        With the same basis.
    settings : IntegrationSettings
        With no more posteriors than there is memory for, where these are kept.
    modes : list of Mode
    n_evaluations : int
        Of EP with all rows.
    """

    integrand: Integrand
    latent: PosteriorFunctions
    settings: IntegrationSettings
    modes: list[Mode]
    n_evaluations: int


def begun(
    problem: ManyRowsProblem,
    settings: IntegrationSettings,
    wanted: Wanted,
    rng: np.random.Generator,
) -> Begun:
    """Look for the modes with some hundred rows, then some thousand, then all.

    Parameters
    ----------
    problem : ManyRowsProblem
    settings : IntegrationSettings
    wanted : Wanted
    rng : numpy.random.Generator
    """
    rows, data = problem.found.rows, problem.data
    assert rows is not None
    modes: list[Mode] = []
    n_evaluations = 0
    if problem.origins[0].x.size:
        objective, modes, n_evaluations = _modes(problem, rows, settings, rng)
    else:
        objective = rows.on_all(problem.origins[0])
    approximation, rank = _basis(rows.approximation, objective)
    n = sum(kind.n_computed for kind in rows.kinds)
    if wanted.kept:
        most = max(_FEWEST_KEPT, _BYTES // (8 * n * rank))
        settings = replace(settings, n_evidences=min(settings.n_evidences, most))
    n_points = settings.evaluations(problem.origins[0].x.size)
    n_functions = objective.latent.n_functions
    announce_average(n * n_functions, rank, n_points, settings.n_evidences)
    data = data._replace(model=data.model.approximated_by(approximation))
    wanted = replace(wanted, Xnew=problem.Xnew, at_data=problem.at_data)
    latent = PosteriorFunctions(data, objective, wanted, int(rng.integers(2**31)))
    integrand = Integrand(objective, problem.origins, None)
    mode = modes[0].point if modes else problem.origins[0]
    warn_of_loss_at(problem.data, approximation, objective.named(mode), stacklevel=5)
    return Begun(integrand, latent, settings, modes, n_evaluations)


def _modes(
    problem: ManyRowsProblem,
    rows: ManyRows,
    settings: IntegrationSettings,
    rng: np.random.Generator,
) -> tuple[RowsObjective, list[Mode], int]:
    """The objective of all rows, its basis placed at the best mode of some; its modes.

    An evaluation with all rows takes long. Of the optima with some thousand rows only those go on
    that are near the best there: with all rows others are further from it.
    """
    first, own = problem.origins[0], settings.modes
    part = coarse_part(problem.found, _SEARCH, rng)
    assert part is not None
    coordinates = rows.objective.coordinates
    bounds = coordinates.bounds(first.x, own.start.half_width)
    restarts = own.restarts(first.x.size)
    vectors = spread_starts(part.objective, first, restarts, own.start, rng)
    starts = [origin.at(x) for origin in problem.origins for x in vectors]
    search = replace(_SEARCH, ep_margin=own.margin, seed=int(rng.integers(2**31)))
    log = EvaluationLog(coordinates.labels, False)
    _, some, _ = rows.of_some(part, starts, bounds, search, log)
    objective = rows.on_all(some[0].point)
    evaluate = _Counted(objective.for_differences())
    optimizer = replace(
        search.optimizer, first_step=search.rows_first_step, tolerance=search.rows_tolerance
    )
    least = some[0].value.total - own.margin
    near = [found.point for found in some if found.value.total > least]
    optima = [maximize(evaluate, point, bounds, optimizer) for point in near]
    return objective, modes_of(evaluate, optima, coordinates, own), evaluate.count


class _Counted:
    """An objective's value with its gradient, counted."""

    def __init__(self, objective: RowsObjective) -> None:
        self._objective, self.count = objective, 0

    def __call__(self, point: Point) -> Value:
        self.count += 1
        return self._objective.by_ep(point)


def _basis(asked: Approximation, objective: RowsObjective) -> tuple[Approximation, int]:
    """What has the objective's basis at all hyperparameters, and its rank."""
    basis = objective.latent.basis
    if isinstance(asked, HSGP):  # its box is that of the data
        return asked, int(basis.rank)
    return Inducing(basis), int(basis.shape[0])


@dataclass(frozen=True, eq=False)
class RowsIntegral:
    """Hyperparameters by EP's evidence, and exact posteriors at few of them.

    Attributes
    ----------
    objective : Searched
    integral : Integral
    exact : ExactPoints
    latent : PosteriorFunctions
        What was drawn, or kept, at the points of `exact`.
    """

    objective: Searched
    integral: Integral
    exact: ExactPoints
    latent: PosteriorFunctions

    def hyperparameters(self, count: int, rng: np.random.Generator) -> Dataset:
        """Draws with equal weights under EP's evidence, in one chain.

        There are far more points than exact posteriors, and the ratio of the two evidences is the
        more nearly the same at all of them the more rows there are: see `ExactPoints.correction`.
        """
        points = self.integral.points
        chosen = np.sort(points.resampled(count, rng))
        different, index = np.unique(chosen, return_inverse=True)
        found = [points.point(i) for i in different]
        return dataset_of(self.objective, found, index[None])


def integral_with_many_rows(
    problem: ManyRowsProblem,
    settings: IntegrationSettings,
    wanted: Wanted,
    n_draws: float,
    rng: np.random.Generator,
    stages: Stages,
    n_jobs: int | None = None,
) -> RowsIntegral:
    """Modes, importance sampling with EP's evidence, and posteriors at points with equal weights.

    Parameters
    ----------
    problem : ManyRowsProblem
    settings : IntegrationSettings
    wanted : Wanted
    n_draws : float
        Of f, at all points together.
    rng : numpy.random.Generator
    stages : Stages
    n_jobs : int, optional
        Of joblib.
    """
    found = begun(problem, settings, wanted, rng)
    latent, settings = found.latent, found.settings
    integral = integral_by_ep(found.integrand, settings, rng, stages, found.modes)
    integral = replace(integral, n_evaluations=integral.n_evaluations + found.n_evaluations)
    count = 1 if integral.points.log_weights.size == 1 else settings.n_evidences
    stages.begin("Exact evidences", count)
    exact = exact_points(latent, integral.points, count, n_draws, 0, rng, stages.tick, n_jobs)
    return RowsIntegral(found.integrand.objective, integral, exact, latent)
