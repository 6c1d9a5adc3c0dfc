"""Probabilities in a graph that are Phi(eta), however they are written."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
from pymc.logprob.utils import CheckParameterValue
from pytensor import scalar
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Constant, Variable, equal_computations
from pytensor.graph.traversal import walk
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

# What may stand between a probability and the variable it belongs to: entries are only rearranged.
REARRANGING = (AdvancedSubtensor, DimShuffle, Reshape, Subtensor, ViewOp)


def probit_predictor(p: Any) -> Variable | None:
    """Predictor eta where the graph `p` is Phi(eta), else None.

    Recognised are ``pm.math.invprobit(eta)`` = 0.5 erfc(-eta / sqrt(2)), 0.5 (1 + erf(eta /
    sqrt(2))), the exponential of PyMC's log distribution function of ``pm.Normal.dist()``, 1 less
    any of these, and their entries rearranged.
    """
    node = p.owner
    if node is None:
        return None
    if isinstance(node.op, REARRANGING) or is_elementwise(node, scalar.Identity):
        inner = probit_predictor(node.inputs[0])
        return None if inner is None else node.op(inner, *node.inputs[1:])
    if is_elementwise(node, scalar.Exp):
        return of_log_cdf(node.inputs[0])
    if is_elementwise(node, scalar.Sub) and constant_value(node.inputs[0]) == 1.0:
        inner = probit_predictor(node.inputs[1])
        return None if inner is None else -inner
    return _of_error_function(node)


def is_elementwise(node: Any, kind: Any) -> bool:
    """Whether a node computes the scalar function `kind` of each entry."""
    return isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, kind)


def uncopied(variable: Any) -> Any:
    """The variable itself, without the copies that name it."""
    while variable.owner and (
        isinstance(variable.owner.op, ViewOp) or is_elementwise(variable.owner, scalar.Identity)
    ):
        variable = variable.owner.inputs[0]
    return variable


def constant_value(variable: Any) -> float | None:
    """Value of a constant that all entries share, else None."""
    while variable.owner and isinstance(variable.owner.op, DimShuffle):
        variable = variable.owner.inputs[0]
    if isinstance(variable, Constant) and np.size(variable.data) == 1:
        return float(np.asarray(variable.data).item())
    if variable.owner and is_elementwise(variable.owner, scalar.Sqrt):
        value = constant_value(variable.owner.inputs[0])
        return None if value is None else float(np.sqrt(value))
    return None


def first_above(graph: Any, wanted: Callable[[Any], bool]) -> Any:
    """Node nearest to `graph`, among those that it is computed by, that is `wanted`; or None."""
    found = walk([graph], lambda v: v.owner.inputs if v.owner else [])
    return next((v.owner for v in found if v.owner is not None and wanted(v.owner)), None)


def _of_error_function(node: Any) -> Variable | None:
    """0.5 erfc(-eta / sqrt(2)) or 0.5 (1 + erf(eta / sqrt(2)))."""
    if not is_elementwise(node, scalar.Mul) or len(node.inputs) != 2:
        return None
    for half, rest in (node.inputs, node.inputs[::-1]):
        inner = uncopied(rest).owner
        if inner is None or constant_value(half) != 0.5:
            continue
        if is_elementwise(inner, scalar.Erfc):
            return unscaled(inner.inputs[0], negative=True)
        if is_elementwise(inner, scalar.Add) and len(inner.inputs) == 2:
            for one, erf in (inner.inputs, inner.inputs[::-1]):
                above = uncopied(erf).owner
                if constant_value(one) == 1.0 and above and is_elementwise(above, scalar.Erf):
                    return unscaled(above.inputs[0], negative=False)
    return None


def unscaled(argument: Any, negative: bool) -> Variable:
    """Argument times sqrt(2), or minus it: as it stood, where that can be seen."""
    sign = -1.0 if negative else 1.0
    node = argument.owner
    if (
        node
        and is_elementwise(node, scalar.TrueDiv)
        and constant_value(node.inputs[1]) == np.sqrt(2)
    ):
        above = node.inputs[0].owner
        if not negative:
            return node.inputs[0]
        if above and is_elementwise(above, scalar.Neg):
            return above.inputs[0]
    return sign * np.sqrt(2.0) * argument


def of_log_cdf(log_p: Any) -> Variable | None:
    """(x - mu) / sigma where `log_p` is PyMC's log distribution function of a normal, else None.

    That function is a page of operations: what is looked for is the place of x, mu and sigma, and
    then whether PyMC makes the same of them.
    """
    if not isinstance(getattr(log_p.owner, "op", None), CheckParameterValue):
        return None

    def is_standardised(node: Any) -> bool:
        above = node.inputs[0].owner if is_elementwise(node, scalar.TrueDiv) else None
        return above is not None and is_elementwise(above, scalar.Sub)

    node = first_above(log_p.owner.inputs[0], is_standardised)
    if node is None:
        return None
    difference, sigma = node.inputs
    x, mu = difference.owner.inputs
    for s in without_expansion(sigma):
        for m in without_expansion(mu):
            rebuilt = pm.logcdf(pm.Normal.dist(m, s), x)
            if equal_computations([log_p], [rebuilt]):
                return node.outputs[0]
    return None


def without_expansion(variable: Any) -> list[Any]:
    """The variable, then what it was before dimensions were added to it."""
    found = [variable]
    while variable.owner and isinstance(variable.owner.op, DimShuffle):
        variable = variable.owner.inputs[0]
        found.append(variable)
    return found
