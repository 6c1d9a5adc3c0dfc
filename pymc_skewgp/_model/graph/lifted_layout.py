"""Graphs in which entries are picked and arranged before functions of them are taken, not after.

A user may write exp(f)[index] for exp(f[index]): only in the second form is what the function is
of, f[index], affine in f.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import io_toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Alloc, Join, MakeVector
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import (
    AdvancedSubtensor,
    Subtensor,
    indices_from_subtensor,
)

from pymc_skewgp._model.graph.affine import why_not_affine

_LAYOUT = (AdvancedSubtensor, Alloc, JoinDims, Reshape, SpecifyShape, SplitDims, Subtensor)
# More than any model has, so that no graph is rewritten for ever.
_MOST = 500


def lifted_layout(graph: Any, xs: Sequence[Any]) -> Any:
    """`graph` with picking and arranging moved to before what is not affine in `xs`."""
    for _ in range(_MOST):
        node = _first_late(graph, xs)
        if node is None:
            break
        earlier = _earlier(node)
        graph = graph_replace([graph], {node.outputs[0]: earlier}, strict=False)[0]
    return graph


def entries_by_name(graph: Any) -> Any:
    """`graph` with entries of vectors that are stacked from scalars as these scalars.

    As of the coefficients ``[level, 0.6]`` of an autoregression, of which each enters by itself.
    """
    found = {}
    for node in io_toposort([], [graph]):
        if not isinstance(node.op, Subtensor):
            continue
        vector = node.inputs[0].owner
        if vector is not None and isinstance(vector.op, DimShuffle):
            order = vector.op.new_order
            vector = vector.inputs[0].owner if order[0] == 0 and len(set(order)) < 3 else None
        index, *others = indices_from_subtensor(node.inputs[1:], node.op.idx_list)
        whole = all(other == slice(None) for other in others)
        entries = [] if vector is None or not whole else _entries(vector)
        if entries and isinstance(index, Constant) and np.ndim(index.data) == 0:
            kept, dtype = node.outputs[0].type.ndim, vector.outputs[0].type.dtype
            entry = pt.cast(entries[int(index.data)], dtype)
            found[node.outputs[0]] = entry.dimshuffle(["x"] * kept)
    return graph_replace([graph], found, strict=False)[0] if found else graph


def _entries(vector: Apply) -> list[Any]:
    """Scalars that a vector is stacked from; none where that is not known."""
    if isinstance(vector.op, MakeVector):
        return list(vector.inputs)
    lengths = [x.type.shape[0] for x in vector.inputs if x.type.ndim == 1]
    if not isinstance(vector.op, Join) or len(lengths) < len(vector.inputs) or None in lengths:
        return []
    parts = zip(vector.inputs, lengths, strict=True)
    return [part[i] for part, length in parts for i in range(length)]


def _first_late(graph: Any, xs: Sequence[Any]) -> Apply | None:
    """First operation that arranges the entries of a function that is not affine in `xs`."""
    found: set[Variable] = set(xs)
    curved: set[Variable] = set()
    for node in io_toposort(list(xs), [graph]):
        if found.isdisjoint(node.inputs) or isinstance(node.op, Shape | Shape_i):
            continue
        found.update(node.outputs)
        if not curved.isdisjoint(node.inputs) or why_not_affine(node.outputs[0], xs) is not None:
            curved.update(node.outputs)
        first, *others = node.inputs
        if (
            isinstance(node.op, (*_LAYOUT, DimShuffle))
            and first in curved
            and found.isdisjoint(others)
            and not _leaves_in_place(node)
            and _passes(getattr(first.owner, "op", None))
        ):
            return node
    return None


def _passes(op: Any) -> bool:
    """Whether the order of an operation and an arrangement of entries does not matter."""
    return isinstance(op, Elemwise | CheckAndRaise) or type(op) is ViewOp


def _leaves_in_place(node: Apply) -> bool:
    """Whether an operation only states a shape."""
    before, after = node.inputs[0].type, node.outputs[0].type
    same = before.ndim == after.ndim and before.broadcastable == after.broadcastable
    return isinstance(node.op, Alloc | SpecifyShape) and same


def _earlier(node: Apply) -> Any:
    """What a node arranges that is a function of something, as that function of it arranged."""
    function = node.inputs[0].owner
    assert function is not None
    if isinstance(function.op, CheckAndRaise):
        value, *conditions = function.inputs
        return function.op(_arranged(node, value), *conditions)
    if isinstance(function.op, ViewOp):
        return _arranged(node, function.inputs[0])
    whole = node.inputs[0]
    inputs: list[Any] = []
    for source in function.inputs:
        if isinstance(node.op, DimShuffle):
            inputs.append(_arranged(node, source))
        elif all(source.type.broadcastable):
            inputs.append(source.dimshuffle())
        else:
            same = source.type.broadcastable == whole.type.broadcastable
            full = source if same else pt.broadcast_to(source, _shape_of(function))
            inputs.append(_arranged(node, full))
    return function.op(*inputs)


def _arranged(node: Apply, source: Any) -> Any:
    return node.op(source, *node.inputs[1:])


def _shape_of(function: Apply) -> Any:
    """Shape of what an operation on every entry gives."""
    known = function.outputs[0].type.shape
    return pt.broadcast_shape(*function.inputs) if None in known else known
