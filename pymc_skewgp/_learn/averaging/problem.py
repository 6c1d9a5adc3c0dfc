"""What is to be integrated: the objective, where to start, and the latent functions."""

import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

from pymc_skewgp._learn.averaging.model_functions import ModelFunctions
from pymc_skewgp._learn.averaging.prior_draws import PriorDraws, prior_draws
from pymc_skewgp._learn.averaging.process_functions import ProcessFunctions
from pymc_skewgp._learn.objective import compile_objective
from pymc_skewgp._learn.point import Pattern, Point
from pymc_skewgp._learn.problem import (
    ProcessObjective,
    Start,
    TrainingData,
    coarse_part,
    process_objective,
)
from pymc_skewgp._learn.searched import Searched
from pymc_skewgp._learn.settings import SearchSettings
from pymc_skewgp._model.gp.marginal_variable import data_of_model
from pymc_skewgp._model.gp.process import as_input_graph
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._model.graph.collapsed import Collapsed, collapse_model
from pymc_skewgp._model.graph.covariance_coordinates import in_covariance_coordinates
from pymc_skewgp._observations.arguments import as_inputs
from pymc_skewgp._validation import FloatArray

_DIMENSIONS = ("chain", "draw")
_MOST_DRAWN = 10_000  # rows at which f is drawn


@dataclass(frozen=True, eq=False)
class Integrand:
    """What is to be integrated over hyperparameters.

    Attributes
    ----------
    objective : Objective or RowsObjective
        Log evidence by EP, and log prior, on the unconstrained scale.
    origins : list of Point
        Where to start, one for each pattern of binary values.
    coarse : Searched or None
        With some of the data, to try starts on; None where all are few enough.
    """

    objective: Searched
    origins: list[Point]
    coarse: Searched | None

    def prior_draws(self, pattern: Pattern, rng: np.random.Generator) -> PriorDraws | None:
        """The prior of the continuous coordinates; None where it cannot be drawn from."""
        return prior_draws(self.objective.coordinates, pattern, rng)

    @property
    def n_rows(self) -> int:
        """Of the largest evidence, each as often as it was observed."""
        every = list(self.objective.terms_at(self.origins[0]))
        if not every:
            return sys.maxsize  # many: in blocks
        return max(terms.n_rows for terms in every)

    @property
    def improper_priors(self) -> list[str]:
        """Names of variables with density one, be they integrated out or hyperparameters."""
        return improper_priors(self.objective)

    @property
    def n_distinct(self) -> int:
        """The same with equal ones once: the matrices that are factorised have as many.

        Or as many as would take as long.
        """
        return max(x.n_factorised for x in self.objective.terms_at(self.origins[0]))


@dataclass(frozen=True, eq=False)
class IntegrationProblem(Integrand):
    """And of whose functions draws are wanted.

    Attributes
    ----------
    latent : LatentFunctions
    """

    latent: ModelFunctions | ProcessFunctions

    @property
    def size(self) -> int:
        """Values of the functions in one draw."""
        return self.latent.size


class ManyRowsProblem(NamedTuple):
    """What is to be integrated, its objective to be made of a basis that is not placed yet.

    Attributes
    ----------
    data : TrainingData
    found : ProcessObjective
        With `rows`.
    origins : list of Point
        As of `Integrand`.
    Xnew : ndarray, shape (t, d), or None
    """

    data: TrainingData
    found: ProcessObjective
    origins: list[Point]
    Xnew: FloatArray | None

    @property
    def at_data(self) -> bool:
        """Whether the rows are not too many for draws of f there."""
        return self._n_rows <= _MOST_DRAWN

    @property
    def size(self) -> int:
        """Values of f in one draw."""
        new = 0 if self.Xnew is None else self.Xnew.shape[0]
        return new + (self._n_rows if self.at_data else 0)

    @property
    def improper_priors(self) -> list[str]:
        """As of `Integrand`."""
        return improper_priors(self.found.objective)

    @property
    def _n_rows(self) -> int:
        assert self.found.rows is not None
        return self.found.rows.X.shape[0]


def _refuse_names(model: pm.Model) -> None:
    clash = [x.name for x in model.unobserved_RVs if x.name in _DIMENSIONS]
    if clash:
        raise ValueError(
            f"a variable is called {clash[0]}, as a dimension of all draws is: give it another "
            "name."
        )


def improper_priors(objective: Searched) -> list[str]:
    """Names of variables with density one; of those integrated out first."""
    coordinates = objective.coordinates
    return [*objective.density_one, *dict.fromkeys(x.name for x in coordinates.flat)]


def problem_of_model(
    model: pm.Model, collapsed: Collapsed, start: Start, most_binary: int
) -> IntegrationProblem:
    """Of a model of which it is known what is integrated out.

    Raises
    ------
    ValueError
        As `integration_problem`.
    """
    _refuse_names(model)
    objective, origin = compile_objective(model, collapsed, averaged=True, start=start)
    origins = [Point(origin, p) for p in objective.coordinates.patterns(most_binary)]
    latent = ModelFunctions(model, collapsed, objective)
    return IntegrationProblem(objective, origins, None, latent)


def integration_problem(
    data: TrainingData,
    Xnew: Any,
    start: Start,
    most_binary: int,
    *,
    drawn: bool = True,
) -> IntegrationProblem | ManyRowsProblem:
    """Compile what is to be integrated.

    `drawn`: coefficients of the mean are, as f is, and no hyperparameters; see `process_objective`.

    Raises
    ------
    ImproperPriorError
        For flat priors of coefficients that no data bound.
    TypeError, ValueError
        For what is no model, data that are missing or do not belong.
    """
    model = data.model
    latent: ProcessFunctions
    many: ProcessObjective | None = None
    new: FloatArray | None = None
    coarse: Searched | None = None
    if isinstance(model, pm.Model):
        if any(x is not None for x in data[1:]) or Xnew is not None:
            raise ValueError(
                "X, y, likelihood, coregion and Xnew go with a SkewGP: a model has its data in it. "
                "Use integrate(gp, X, y, ...), or SkewGP.sample_latent(idata, Xnew=...) with the "
                "result of integrate(model)."
            )
        own = in_covariance_coordinates(model.root)
        return problem_of_model(own, collapse_model(own, drawn=drawn), start, most_binary)
    if isinstance(model, SkewGP):
        rng = np.random.default_rng(0)  # of the part that starts are tried on
        found = process_objective(data, None, rng, start, averaged=True, drawn=drawn)
        objective, origin = found.objective, found.origin
        new = (
            None
            if Xnew is None
            else as_input_graph("Xnew", as_inputs("Xnew", Xnew), model.n_columns)
        )
        if found.rows is not None:
            many = found
        else:
            given = data_of_model(model, data.X, data.y, data.likelihood, data.coregion)
            latent = ProcessFunctions(model, given, new, objective, found.coefficients)
            part = coarse_part(found, SearchSettings(), rng)
            coarse = None if part is None else part.objective
    else:
        raise TypeError(f"model must be a pm.Model or a SkewGP, got {type(model).__name__}.")
    origins = [Point(origin, p) for p in objective.coordinates.patterns(most_binary)]
    if many is not None:
        return ManyRowsProblem(data, many, origins, new)
    return IntegrationProblem(objective, origins, coarse, latent)
