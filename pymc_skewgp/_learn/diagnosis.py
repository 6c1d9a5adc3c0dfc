"""What is wrong where a model's evidence has no value anywhere: the variable and the reason."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
from pymc.logprob.utils import ParameterValueError
from pytensor.graph.traversal import graph_inputs

from pymc_skewgp._model.graph.analysis import BlockGraph
from pymc_skewgp._model.graph.joint_gaussian import proper_joint
from pymc_skewgp._model.graph.observed import distribution_name
from pymc_skewgp._model.ops.known_functions import plain_function
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._validation import FloatArray

_REMEDY = "Mend the data or the parameters, or give start."


def why_no_value(model: pm.Model, block: BlockGraph, values: Mapping[str, Any]) -> str | None:
    """Of a block at values of the model's value variables; None where nothing is found."""
    looks = (_bad_member, _singular_prior, _bad_predictor, _bad_observations)
    return next((why for look in looks if (why := look(model, block, values))), None)


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


def _singular_prior(model: pm.Model, block: BlockGraph, values: Mapping[str, Any]) -> str | None:
    """Members, potentials included, whose log density is quadratic without being a Gaussian's."""

    def is_gaussian(graph: Any) -> bool:
        return bool(np.isfinite(_evaluated(model, [graph], values)[0]).all())

    names = [x.name for x in block.members if not is_gaussian(x.factor)]
    potentials = [x for x in model.potentials if x not in block.rest]
    are_all_proper = not names and not any(x.is_flat for x in block.members)
    if (
        are_all_proper
        and potentials
        and not is_gaussian(proper_joint(model, block.members, potentials).factor)
    ):
        names = [*block.names, *(x.name for x in potentials)]
    if not names:
        return None
    of = " and ".join(names)
    return (
        f"the log density of {of} is quadratic, but no Gaussian's: the matrix of its second "
        "derivatives is not negative definite, so that the density has no finite integral. Add a "
        "term that bounds it in every direction; or, where the data are to bound it, let the "
        "variable be pm.Flat and its density a pm.Potential."
    )


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


def _bad_observations(model: pm.Model, block: BlockGraph, values: Mapping[str, Any]) -> str | None:
    """An observed variable that has no density where the search begins."""
    for name in [*(y.name for y in block.observed), *(y.name for y in block.sites)]:
        rv = model[name]
        kind = f"{name}, a {distribution_name(rv)} variable,"
        begins = "with the values that the other variables start from"
        try:
            (found,) = _evaluated(model, model.logp(vars=[rv], sum=False), values)
        except ParameterValueError as error:
            return f"{kind} has no density {begins}: PyMC asks for {error}. {_REMEDY}"
        bad = np.flatnonzero(~np.isfinite(np.ravel(found)))
        if bad.size:
            data = np.ravel(model.rvs_to_values[rv].eval(mode=PLAIN))
            seen = f" ({data[bad[0]]})" if data.size == np.size(found) else ""
            return (
                f"{kind} has no density at {bad.size} of {np.size(found)} observations, the first "
                f"of them number {bad[0]}{seen}, {begins}: its log is "
                f"{np.ravel(found)[bad[0]]}. {_REMEDY}"
            )
    return None


def _evaluated(model: pm.Model, graphs: list[Any], values: Mapping[str, Any]) -> list[FloatArray]:
    used = set(graph_inputs(graphs))
    inputs = [value for value in model.value_vars if value in used]
    found: list[FloatArray] = plain_function(inputs, graphs)(*(values[x.name] for x in inputs))
    return found
