"""What is wrong where a model's evidence has no value anywhere: the variable and the reason."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
from pymc.logprob.utils import ParameterValueError
from pytensor.graph.traversal import graph_inputs

from pymc_skewgp._model.graph.analysis import BlockGraph
from pymc_skewgp._model.graph.observed import distribution_name
from pymc_skewgp._model.ops.known_functions import plain_function
from pymc_skewgp._validation import FloatArray


def why_no_value(model: pm.Model, block: BlockGraph, values: Mapping[str, Any]) -> str | None:
    """Of a block at values of the model's value variables; None where nothing is found."""
    return _bad_member(model, block, values) or _bad_predictor(model, block, values)


def _bad_member(model: pm.Model, block: BlockGraph, values: Mapping[str, Any]) -> str | None:
    """A member without a density in PyMC itself."""
    for name in block.names:
        rv = model[name]
        try:
            (found,) = _evaluated(model, [model.logp(vars=[rv])], values)
            if np.isfinite(found):
                continue
            reason = f"its log density is {found}"
        except ParameterValueError as error:
            reason = f"PyMC asks for {error}"
        except (ValueError, ArithmeticError) as error:  # of matrices that are not finite
            reason = str(error).split("\n", 1)[0]
        kind = distribution_name(rv)
        if kind == "CAR":
            reason += " (W must be symmetric, and each area have a neighbour)"
        return (
            f"{name} has no density in PyMC itself, whatever is observed: as pm.{kind} with the "
            f"values it starts from, {reason}. Mend its arguments, or give start."
        )
    return None


def _bad_predictor(model: pm.Model, block: BlockGraph, values: Mapping[str, Any]) -> str | None:
    """An observed variable whose predictor is not finite."""
    observed: list[Any] = [*block.observed, *block.sites]
    for y in observed:
        graphs = [y.a] if y.A is None else [y.a, y.A]
        a, *A = _evaluated(model, graphs, values)
        bad = ~np.isfinite(a)
        if A:
            bad = bad | ~np.isfinite(A[0]).all(axis=1)
        if bad.any():
            return (
                f"the predictor of {y.name} is not finite: look for missing values (NaN) and "
                "infinities in what it is computed from, such as a covariate, and leave these rows "
                "out or fill them in."
            )
    return None


def _evaluated(model: pm.Model, graphs: list[Any], values: Mapping[str, Any]) -> list[FloatArray]:
    used = set(graph_inputs(graphs))
    inputs = [value for value in model.value_vars if value in used]
    found: list[FloatArray] = plain_function(inputs, graphs)(*(values[x.name] for x in inputs))
    return found
