"""Where a model begins, by one function for all models that are alike."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.initial_point import make_initial_point_expression
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import graph_inputs

from pymc_skewgp._model.ops.plain_mode import plain_function


def initial_point(
    model: pm.Model, given: Mapping[Any, Any] | None = None, *, transformed: bool = True
) -> dict[str, NDArray[Any]]:
    """As ``model.initial_point``, which makes a function anew at each call.

    Parameters
    ----------
    model : pymc.Model
    given : mapping, optional
        Values of free variables, on their own scale, in place of the model's.
    transformed : bool, default True
        Whether on the unconstrained scale, by names of value variables.

    Returns
    -------
    dict of arrays, by name
    """
    strategies = {**model.rvs_to_initial_values, **(given or {})}
    # Numbers are arguments: other ones ask for no other function.
    symbolic = str | Variable | None
    numbers = {rv: np.asarray(x) for rv, x in strategies.items() if not isinstance(x, symbolic)}
    inputs = {rv: pt.as_tensor_variable(x).type() for rv, x in numbers.items()}
    values = make_initial_point_expression(
        free_rvs=model.free_RVs,
        rvs_to_transforms=model.rvs_to_transforms,
        initval_strategies={**strategies, **inputs},
        return_transformed=transformed,
    )
    own = [model.rvs_to_values[rv] if transformed else rv for rv in model.free_RVs]
    found = plain_function(list(inputs.values()), values)(*numbers.values())
    return {x.name: np.asarray(value) for x, value in zip(own, found, strict=True)}


def inputs_at_start(model: pm.Model, graphs: Sequence[Any]) -> tuple[list[Any], list[NDArray[Any]]]:
    """Value variables that graphs depend on, and what they are where the model begins."""
    used = set(graph_inputs(graphs))
    inputs = [x for x in model.value_vars if x in used]
    point = initial_point(model) if inputs else {}
    return inputs, [point[x.name] for x in inputs]
