"""Many rows: where an integral over hyperparameters begins, and the basis that it is made with."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pymc_skewgp._cost import announce_average
from pymc_skewgp._learn.averaging.modes import Mode, modes_of
from pymc_skewgp._learn.averaging.posterior_functions import PosteriorFunctions, Wanted
from pymc_skewgp._learn.averaging.problem import Integrand, ManyRowsProblem
from pymc_skewgp._learn.averaging.settings import IntegrationSettings
from pymc_skewgp._learn.evaluation_log import EvaluationLog
from pymc_skewgp._learn.optimizers import maximize
from pymc_skewgp._learn.point import Point, Value
from pymc_skewgp._learn.problem import coarse_part
from pymc_skewgp._learn.rows.data_kinds import n_computed
from pymc_skewgp._learn.rows.loss_at import warn_of_loss_at
from pymc_skewgp._learn.rows.many_rows import ManyRows
from pymc_skewgp._learn.rows.rows_objective import RowsObjective
from pymc_skewgp._learn.settings import SearchSettings
from pymc_skewgp._learn.starts import spread_starts
from pymc_skewgp._posterior.approximations.features import Approximation
from pymc_skewgp._posterior.approximations.hsgp import HSGP
from pymc_skewgp._posterior.approximations.inducing import Inducing

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
    n = n_computed(rows.kinds)
    if wanted.kept:
        most = max(_FEWEST_KEPT, _BYTES // (8 * n * rank))
        settings = replace(settings, n_evidences=min(settings.n_evidences, most))
    n_points = settings.evaluations(problem.origins[0].x.size)
    n_functions = objective.latent.functions.known.shape[0]
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
    some = rows.of_some(part, starts, bounds, search, log).optima
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
