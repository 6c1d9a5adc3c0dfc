"""PyMC's checks of parameters, entry by entry.

PyMC checks all entries of a parameter together and raises an error, or makes the whole log
probability -inf, if one of them is outside of its range. Sites need it of that entry alone: far out
in a predictor's distribution a scale may underflow to 0.
"""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.logprob.utils import CheckParameterValue
from pytensor import scalar
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.tensor.basic import Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import CAReduce, DimShuffle


def checked_by_entry(log_prob: Any, x: Variable, broken: float = -np.inf) -> Any:
    """`log_prob` that is -inf at entries where a parameter that depends on `x` breaks a check.

    Or that is another number, `broken`.

    Checks of what does not depend on `x` stay: they raise an error when they are evaluated.
    """
    while True:  # one at a time: a replacement makes new nodes of all that follows
        node = next((v for v in _checks(log_prob, x)), None)
        if node is None:
            return log_prob
        value, conditions = node.inputs[0], node.inputs[1:]
        parts = [part for condition in conditions for part in _parts(condition)]
        own = [part for part in parts if _depends(part, x)]
        others = [part for part in parts if part not in own]
        if others:
            value = node.op(value, pt.all(pt.stack([pt.all(part) for part in others])))
        for part in own:
            value = pt.switch(_aligned(part, value.type.ndim), value, broken)
        log_prob = graph_replace([log_prob], {node.outputs[0]: value}, strict=False)[0]


def _checks(log_prob: Any, x: Variable) -> list[Any]:
    return [
        node
        for node in io_toposort([x], [log_prob])
        if isinstance(node.op, CheckParameterValue)
        and node.op.can_be_replaced_by_ninf
        and any(_depends(condition, x) for condition in node.inputs[1:])
    ]


def _depends(graph: Variable, x: Variable) -> bool:
    return x in ancestors([graph])


def _parts(condition: Any) -> list[Any]:
    """Conditions that one number is the conjunction of, each an array."""
    node = condition.owner
    if node is None:
        return [condition]
    if isinstance(node.op, DimShuffle) and condition.type.ndim <= node.inputs[0].type.ndim:
        return _parts(node.inputs[0])
    if isinstance(node.op, ScalarFromTensor | TensorFromScalar):
        return _parts(node.inputs[0])
    if isinstance(node.op, MakeVector):
        return [part for v in node.inputs for part in _parts(v)]
    if isinstance(node.op, Join):
        return [part for v in node.inputs for part in _parts(v)]
    whole = node.inputs[0]
    if isinstance(node.op, CAReduce) and isinstance(node.op.scalar_op, scalar.AND):
        axis = node.op.axis
        if axis is None or len(axis) == whole.type.ndim:
            return _parts(whole)
    return [condition]


def _aligned(part: Any, ndim: int) -> Any:
    """A condition of no more dimensions than the value; what it has more is inside an entry."""
    excess = part.type.ndim - ndim
    return pt.all(part, axis=tuple(range(ndim, part.type.ndim))) if excess > 0 else part
