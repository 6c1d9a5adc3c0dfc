"""An integral over hyperparameters with many rows, from the problem to posteriors at points."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from xarray import DataTree

from pymc_skewgp._learn.averaging import integration, modes
from pymc_skewgp._learn.averaging.importance import IntegrationSettings
from pymc_skewgp._learn.averaging.model_functions import dataset_of
from pymc_skewgp._learn.averaging.points import EqualDraws, ExactPoints, Task, exact_points
from pymc_skewgp._learn.averaging.problem import (
    IntegrationProblem,
    ManyRowsProblem,
    likelihoods_of,
)
from pymc_skewgp._learn.coordinates import Point, Searched
from pymc_skewgp._learn.optimizers import EvaluationLog, SearchSettings, maximize, spread_starts
from pymc_skewgp._learn.problem import TrainingData, coarse_part
from pymc_skewgp._learn.rows.many_rows import ManyRows
from pymc_skewgp._learn.rows.rows_objective import RowsObjective, warn_of_loss_at
from pymc_skewgp._limits import announce_average
from pymc_skewgp._model.gp.exact_posterior import posterior_of
from pymc_skewgp._model.gp.functions import SharedFunctions
from pymc_skewgp._model.gp.latent_draws import LatentDraws, latent_tree
from pymc_skewgp._observations.new_rows import NewRows
from pymc_skewgp._posterior.draws_with_evidence import DrawsWithEvidence
from pymc_skewgp._posterior.features import HSGP, Inducing
from pymc_skewgp._posterior.output import as_probabilities
from pymc_skewgp._posterior.posterior import SkewGPPosterior, draws_here_and_there
from pymc_skewgp._posterior.prior import DataSet
from pymc_skewgp._validation import FloatArray

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
_FEWEST_KEPT, _BYTES = 4, 2**31  # posteriors, and bytes of the features of all of them


def integral_with_many_rows(
    problem: ManyRowsProblem,
    settings: IntegrationSettings,
    n_draws: float | None,
    rng: np.random.Generator,
    n_jobs: int | None = None,
) -> tuple[Searched, integration.Integral, ExactPoints, PosteriorFunctions]:
    """Modes, importance sampling with EP's evidence, and posteriors at points with equal weights.

    Modes are looked for with some hundred rows, then some thousand, then all. Returned are the
    objective, the integral with EP's evidence, exact evidences at few points, and what was drawn,
    or kept, at these.

    Parameters
    ----------
    problem : ManyRowsProblem
    settings : IntegrationSettings
    n_draws : float or None
        Of f, at all points together; None to keep the posteriors themselves.
    rng : numpy.random.Generator
    n_jobs : int, optional
        Of joblib.
    """
    rows, data, first = problem.found.rows, problem.data, problem.origins[0]
    assert rows is not None
    found: list[modes.Mode] = []
    n_evaluations = 0
    if first.x.size:
        objective, found, n_evaluations = _modes(problem, rows, rng)
    else:
        objective = rows.on_all(first)
    # What has this basis at all hyperparameters: the box of a spectral one is the data's.
    basis, approximation = objective.latent.basis, rows.approximation
    rank = int(basis.rank if isinstance(approximation, HSGP) else basis.shape[0])
    if not isinstance(approximation, HSGP):
        approximation = Inducing(basis)
    n = sum(kind.n_computed for kind in rows.kinds)
    n_evidences = settings.many_rows_evidences
    if n_draws is None:  # no more posteriors than there is memory for
        n_evidences = min(n_evidences, max(_FEWEST_KEPT, _BYTES // (8 * n * rank)))
    settings = replace(settings.for_many_rows(), n_evidences=n_evidences)
    n_functions = objective.latent.n_functions
    n_points = integration.evaluations(settings, first.x.size)
    announce_average(n * n_functions, rank, n_points, n_evidences)
    latent = PosteriorFunctions(
        data._replace(model=data.model.approximated_by(approximation)),
        objective,
        int(rng.integers(2**31)),
        keep=n_draws is None,
        Xnew=problem.Xnew,
        at_data=problem.at_data,
    )
    mode = found[0].point if found else first
    warn_of_loss_at(data, approximation, objective.named(mode), stacklevel=3)
    integral = integration.integral_by_ep(
        IntegrationProblem(objective, problem.origins), settings, rng, found
    )
    integral = replace(integral, n_evaluations=integral.n_evaluations + n_evaluations)
    count = 1 if len(integral.points.x) == 1 else n_evidences
    given = latent, integral.points, count, n_draws or 0.0, 0
    exact = exact_points(*given, rng, n_jobs)
    return objective, integral, exact, latent


def _modes(
    problem: ManyRowsProblem, rows: ManyRows, rng: np.random.Generator
) -> tuple[RowsObjective, list[modes.Mode], int]:
    """The objective of all rows, its basis placed at the best mode of some; its modes.

    An evaluation with all rows takes long. Of the optima with some thousand rows only those go on
    that are near the best there: with all rows others are further from it. And how often EP ran
    with all rows.
    """
    first, coordinates = problem.origins[0], rows.objective.coordinates
    part = coarse_part(problem.found, _SEARCH, rng)
    assert part is not None
    bounds = coordinates.bounds(first.x)
    n_starts = modes.n_restarts(first.x.size)
    vectors = spread_starts(part.objective, first, n_starts, rng, modes.CANDIDATES)
    starts = [origin.at(x) for origin in problem.origins for x in vectors]
    search = replace(_SEARCH, ep_margin=modes.MARGIN, seed=int(rng.integers(2**31)))
    log = EvaluationLog(coordinates.labels)
    _, some, _ = rows.of_some(part, starts, bounds, search, log)
    objective = rows.on_all(some[0].point)
    evaluate = modes.Evaluations(objective.for_differences())
    optimizer = replace(
        search.optimizer, first_step=search.rows_first_step, tolerance=search.rows_tolerance
    )
    least = some[0].value.total - modes.MARGIN
    near = [found.point for found in some if found.value.total > least]
    optima = [maximize(evaluate, point, bounds, optimizer) for point in near]
    return objective, modes.modes_of(evaluate, optima, objective), evaluate.count
