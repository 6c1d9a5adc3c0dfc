"""What is to be integrated: the objective, where to start, and the latent functions."""

from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from pymc.distributions.continuous import FlatRV, HalfFlatRV

from pymc_skewgp._errors import ImproperPriorError
from pymc_skewgp._learn.averaging.model_functions import ModelFunctions
from pymc_skewgp._learn.averaging.process_functions import ProcessFunctions
from pymc_skewgp._learn.objective import Objective, compile_objective
from pymc_skewgp._learn.point import Point
from pymc_skewgp._learn.problem import Start, TrainingData, process_objective
from pymc_skewgp._model.gp.marginal_variable import data_of_model
from pymc_skewgp._model.gp.process import as_input_graph
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._model.graph.collapsed import collapse_model
from pymc_skewgp._observations.arguments import as_inputs


class IntegrationProblem(NamedTuple):
    """What is to be integrated.

    Attributes
    ----------
    objective : Objective
        Log evidence by EP, and log prior, on the unconstrained scale.
    origins : list of Point
        Where to start, one for each pattern of binary values.
    latent : LatentFunctions
    """

    objective: Objective
    origins: list[Point]
    latent: ModelFunctions | ProcessFunctions

    @property
    def n_rows(self) -> int:
        """Of the largest evidence, each as often as it was observed."""
        every = self.objective.terms_at(self.origins[0])
        return max(int(np.broadcast_to(terms.counts, terms.value.shape).sum()) for terms in every)


def integration_problem(
    data: TrainingData, Xnew: Any, start: Start, most_binary: int
) -> IntegrationProblem:
    """Compile what is to be integrated.

    Raises
    ------
    ImproperPriorError
        For flat priors.
    TypeError, ValueError
        For what is no model, data that are missing or do not belong.
    """
    model = data.model
    latent: ModelFunctions | ProcessFunctions
    if isinstance(model, pm.Model):
        if any(x is not None for x in data[1:]) or Xnew is not None:
            raise ValueError(
                "X, y, likelihood, coregion and Xnew go with a SkewGP: a model has its data in it. "
                "Use integrate(gp, X, y, ...), or SkewGP.sample_latent(idata, Xnew=...) with the "
                "result of integrate(model)."
            )
        root = model.root
        collapsed = collapse_model(root)
        objective, origin = compile_objective(root, collapsed, averaged=True, start=start)
        latent = ModelFunctions(root, collapsed, objective)
    elif isinstance(model, SkewGP):
        rng = np.random.default_rng(0)  # of batches, which there are none of
        found = process_objective(data, None, rng, start, averaged=True)
        objective, origin = found.objective, found.origin
        new = (
            None
            if Xnew is None
            else as_input_graph("Xnew", as_inputs("Xnew", Xnew), model.n_columns)
        )
        given = data_of_model(model, data.X, data.y, data.likelihood, data.coregion)
        latent = ProcessFunctions(model, given, new, objective)
    else:
        raise TypeError(f"model must be a pm.Model or a SkewGP, got {type(model).__name__}.")
    _refuse_flat_priors(objective)
    patterns = objective.coordinates.patterns(most_binary)
    return IntegrationProblem(objective, [Point(origin, p) for p in patterns], latent)


def _refuse_flat_priors(objective: Objective) -> None:
    coordinates = objective.coordinates
    rvs = [coordinates.model.values_to_rvs[value] for value in coordinates.continuous]
    flat = [rv.name for rv in rvs if isinstance(rv.owner.op, FlatRV | HalfFlatRV)]
    if flat:
        raise ImproperPriorError(
            f"{', '.join(flat)} has a flat prior, which is no distribution: the evidence of the "
            "model is not defined, and the posterior may not be. Give a proper prior, such as "
            "pm.InverseGamma for a lengthscale and pm.HalfNormal for a standard deviation, or use "
            "find_hyperparameters, which maximises."
        )
