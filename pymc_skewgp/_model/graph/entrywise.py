"""Whether entry i of a graph depends on entry i of a variable alone, by its operations.

Of every graph in between it is known which of its axes runs with which axis of the variable. So an
entry of it depends on one entry of the variable, for as long as no operation mixes along such axes.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pymc.logprob.utils import CheckParameterValue
from pytensor import scalar
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor import basic, subtensor
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Argmax, Dot
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.sort import ArgSortOp, SortOp
from pytensor.tensor.special import LogSoftmax, LogSumExp, Softmax

# Of each axis of a graph, the axis of the variable that it runs with, or None.
Axes = tuple[int | None, ...]
_WHOLE = slice(None, None, None)


class Coupling(NamedTuple):
    """An operation after which an entry may depend on several entries.

    Attributes
    ----------
    operation : str
        As PyTensor calls it.
    certain : bool
        Whether it mixes entries, rather than being unknown here.
    """

    operation: str
    certain: bool


class _Mixes(Exception):
    """An operation mixes entries, or is not known."""

    def __init__(self, certain: bool) -> None:
        self.certain = certain


def coupling(graph: Variable, x: Variable) -> Coupling | None:
    """First operation in the way of a proof that entry i of `graph` depends on x_i alone, or None.

    `graph` and `x` have the same shape. Where a value is looked at by a check that raises an error,
    or by its shape alone, nothing depends on it.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_skewgp._model.graph.entrywise import coupling
    >>> x = pt.vector("x")
    >>> coupling(pt.exp(x) + 1, x) is None
    True
    >>> coupling(x - x.mean(), x).operation
    'Sum{axes=None}'
    """
    axes: dict[Variable, Axes] = {x: tuple(range(x.type.ndim))}
    if all(length == 1 for length in x.type.shape):
        return None
    for node in io_toposort([x], [graph]):
        found = _following(node, axes)
        if isinstance(found, Coupling):
            return found
    if graph in axes and axes[graph] != axes[x]:
        return Coupling(str(getattr(graph.owner, "op", graph)), certain=True)
    return None


def rebuilt(graph: Any, others: Mapping[Any, Any]) -> Any:
    """`graph` with others in the place of some variables, of a shape that these may stretch to."""
    found = dict(others)
    for node in io_toposort(list(others), [graph]):
        if node.outputs[0] not in others and any(v in found for v in node.inputs):
            new = node.op(*(found.get(v, v) for v in node.inputs), return_list=True)
            found |= dict(zip(node.outputs, new, strict=True))
    return found.get(graph, graph)


def of_some(graph: Any, x: Any, some: Any, rows: Any) -> Any:
    """`graph` at some entries of the vector `x`, which `rows` are; None where it is not seen how.

    Of operations entry by entry, whose other inputs have as many entries as `x`, or one for all.
    """
    axes: dict[Variable, Axes] = {x: (0,)}
    found = {x: some}
    for node in io_toposort([x], [graph]):
        if not any(v in found for v in node.inputs):
            continue
        if not isinstance(node.op, _EACH) or isinstance(_following(node, axes), Coupling):
            return None
        inputs = [found.get(v, v) for v in node.inputs]
        if isinstance(node.op, Elemwise):
            along = axes[node.outputs[0]].index(0)
            inputs = [
                new if v in found or v.type.broadcastable[along] else v.take(rows, axis=along)
                for v, new in zip(node.inputs, inputs, strict=True)
            ]
        same = isinstance(node.op, SpecifyShape)
        new = inputs[:1] if same else node.op(*inputs, return_list=True)
        found |= dict(zip(node.outputs, new, strict=True))
    return found.get(graph)


def _following(node: Apply, axes: dict[Variable, Axes]) -> Coupling | None:
    """Axes of the outputs of a node added to `axes`, where they depend on the variable."""
    if not any(v in axes for v in node.inputs) or isinstance(node.op, Shape | Shape_i):
        return None
    rules = (rule for kinds, rule in _RULES if isinstance(node.op, kinds))
    try:
        outputs = next(rules, _unknown)(node, [axes.get(v) for v in node.inputs])
    except _Mixes as mixes:
        inner = getattr(node.op, "core_op", node.op)
        is_each = isinstance(inner, Elemwise)
        return Coupling(type(inner.scalar_op).__name__ if is_each else str(inner), mixes.certain)
    for variable, found in zip(node.outputs, outputs, strict=True):
        if found is not None:
            axes[variable] = found
    return None


def _unknown(node: Apply, inputs: list[Axes | None]) -> list[Axes | None]:
    raise _Mixes(certain=False)


def _merged(inputs: list[Axes | None]) -> Axes:
    """Axes of graphs that are broadcast against each other; they must run in step."""
    known = [found for found in inputs if found is not None]
    # Where one input runs along an axis and the other stays, it meets every entry of the other.
    if any(found != known[0] for found in known[1:]):
        raise _Mixes(certain=True)
    return known[0]


def _dimshuffle(node: Apply, inputs: list[Axes | None]) -> list[Axes | None]:
    (found,) = inputs
    assert found is not None
    order = node.op.new_order
    if any(found[i] is not None for i in range(len(found)) if i not in order):
        raise _Mixes(certain=False)
    return [tuple(None if i == "x" else found[i] for i in order)]


def _reduction(node: Apply, inputs: list[Axes | None]) -> list[Axes | None]:
    (found,) = inputs
    assert found is not None
    kept = _not_along(node.op.axis, found)
    return [kept for _ in node.outputs]


def _along_axis(node: Apply, inputs: list[Axes | None]) -> list[Axes | None]:
    """Of operations along axes that keep the shape."""
    found = inputs[0]
    if found is None or any(other is not None for other in inputs[1:]):
        raise _Mixes(certain=False)
    _not_along(node.op.axis, found)
    return [found for _ in node.outputs]


def _not_along(axis: Any, found: Axes) -> Axes:
    """Axes without those at `axis` (None: all), none of which runs with the variable."""
    gone = range(len(found)) if axis is None else (axis,) if isinstance(axis, int) else axis
    gone = {i % len(found) for i in gone} if found else set()
    if any(found[i] is not None for i in gone):
        raise _Mixes(certain=True)
    return tuple(a for i, a in enumerate(found) if i not in gone)


def _join(node: Apply, inputs: list[Axes | None]) -> list[Axes | None]:
    merged = _merged(inputs)
    if merged[node.op.axis] is not None:
        raise _Mixes(certain=True)
    return [merged]


def _alloc(node: Apply, inputs: list[Axes | None]) -> list[Axes | None]:
    found = inputs[0]
    if found is None:
        raise _Mixes(certain=True)
    return [(None,) * (node.outputs[0].type.ndim - len(found)) + found]


def _subtensor(node: Apply, inputs: list[Axes | None]) -> list[Axes | None]:
    found = inputs[0]
    if found is None or any(other is not None for other in inputs[1:]):
        raise _Mixes(certain=True)
    entries: Any = subtensor.indices_from_subtensor(node.inputs[1:], node.op.idx_list)
    kept: list[int | None] = []
    for axis, entry in zip(found, entries, strict=False):
        if axis is not None and entry != _WHOLE:
            raise _Mixes(certain=True)
        if isinstance(entry, slice):
            kept.append(axis)
    return [(*kept, *found[len(entries) :])]


def _advanced_subtensor(node: Apply, inputs: list[Axes | None]) -> list[Axes | None]:
    """Of x[0, 1, ..., n-1; y]: every entry picks its own, as in `pt.take_along_axis`."""
    found = inputs[0]
    if found is None or any(other is not None for other in inputs[1:]):
        raise _Mixes(certain=True)
    entries: Any = subtensor.indices_from_subtensor(node.inputs[1:], node.op.idx_list)
    arrays = [i for i, entry in enumerate(entries) if not isinstance(entry, slice)]
    if arrays != list(range(arrays[0], arrays[-1] + 1)):
        raise _Mixes(certain=False)
    if any(entries[i].type.dtype == "bool" for i in arrays):
        raise _Mixes(certain=False)
    ndim = max(entries[i].type.ndim for i in arrays)
    block: list[int | None] = [None] * ndim
    for i, axis in enumerate(found):
        if axis is None or (i < len(entries) and i not in arrays and entries[i] == _WHOLE):
            continue
        if i >= len(entries):
            continue
        place = _counts_along(entries[i], ndim) if i in arrays else None
        if place is None:
            raise _Mixes(certain=True)
        block[place] = axis
    before, after = found[: arrays[0]], found[arrays[-1] + 1 :]
    return [(*before, *block, *after)]


def _counts_along(index: Any, ndim: int) -> int | None:
    """Axis, of `ndim`, along which an index is 0, 1, 2, ...; None for any other index."""
    offset = ndim - index.type.ndim
    if isinstance(index, Constant):
        data = np.asarray(index.data)
        long = [i for i, length in enumerate(data.shape) if length > 1]
        counts = len(long) == 1 and np.array_equal(data.ravel(), np.arange(data.size))
        return offset + long[0] if counts else None
    op, sources = getattr(index.owner, "op", None), getattr(index.owner, "inputs", [])
    if isinstance(op, basic.ARange):
        start, _, step = sources
        known = isinstance(start, Constant) and isinstance(step, Constant)
        return offset if known and (int(start.data), int(step.data)) == (0, 1) else None
    place = None
    if isinstance(op, DimShuffle):
        place = op.new_order.index(0) if op.input_ndim == 1 else None
    elif isinstance(op, Reshape) and isinstance(sources[1], Constant):
        lengths = list(sources[1].data)
        one = sources[0].type.ndim == 1 and lengths.count(1) == len(lengths) - 1
        place = lengths.index(-1) if one and -1 in lengths else None
    if place is None or _counts_along(sources[0], 1) is None:
        return None
    return offset + place


def _set_entries(node: Apply, inputs: list[Axes | None]) -> list[Axes | None]:
    """Some entries replaced by what does not depend on the variable."""
    if any(found is not None for found in inputs[1:]):
        raise _Mixes(certain=False)
    return [inputs[0]]


def _dot(node: Apply, inputs: list[Axes | None]) -> list[Axes | None]:
    left, right = inputs
    if left is not None and right is not None:
        raise _Mixes(certain=True)
    if left is not None:
        kept, others = _not_along(-1, left), (None,) * (node.inputs[1].type.ndim - 1)
        return [(*kept, *others)]
    assert right is not None
    kept, others = _not_along(0, right), (None,) * (node.inputs[0].type.ndim - 1)
    return [(*others, *kept)]


def _blockwise(node: Apply, inputs: list[Axes | None]) -> list[Axes | None]:
    """Operations on core dimensions that none of the variable's axes is among."""
    op: Any = node.op
    batches: list[Axes | None] = []
    for found, core in zip(inputs, op.inputs_sig, strict=True):
        if found is None:
            batches.append(None)
            continue
        batch = len(found) - len(core)
        if any(axis is not None for axis in found[batch:]):
            raise _Mixes(certain=not isinstance(op.core_op, CheckAndRaise))
        batches.append(found[:batch])
    merged = _merged(batches)
    return [(*merged, *(None for _ in core)) for core in op.outputs_sig]


def _inner_graph(node: Apply, inputs: list[Axes | None]) -> list[Axes | None]:
    """Operations that are graphs of their own."""
    graph: Any = node.op.fgraph
    axes = {v: found for v, found in zip(graph.inputs, inputs, strict=True) if found is not None}
    for inner in graph.toposort():
        found = _following(inner, axes)
        if isinstance(found, Coupling):
            raise _Mixes(found.certain)
    return [axes.get(v) for v in graph.outputs]


# Of which an entry needs that entry of the inputs alone, wherever it is.
_EACH = (Elemwise, DimShuffle, CheckAndRaise, SpecifyShape, ViewOp)
_Rule = Callable[[Apply, list[Axes | None]], list[Axes | None]]
_RULES: tuple[tuple[tuple[type, ...], _Rule], ...] = (
    ((Elemwise,), lambda node, inputs: [_merged(inputs)] * len(node.outputs)),
    ((DimShuffle,), _dimshuffle),
    ((LogSumExp, CAReduce, Argmax), _reduction),
    ((Softmax, LogSoftmax, CumOp, SortOp, ArgSortOp), _along_axis),
    # Values that are those of the first input: checks, conversions, shapes made explicit.
    ((CheckAndRaise, SpecifyShape, ViewOp), lambda node, inputs: [inputs[0]]),
    ((basic.Join,), _join),
    ((basic.Alloc,), _alloc),
    ((subtensor.Subtensor,), _subtensor),
    ((subtensor.AdvancedSubtensor,), _advanced_subtensor),
    ((subtensor.IncSubtensor, subtensor.AdvancedIncSubtensor), _set_entries),
    ((Dot,), _dot),
    ((Blockwise,), _blockwise),
    ((OpFromGraph,), _inner_graph),
)


# PyMC's checks of parameters, entry by entry.
#
# PyMC checks all entries of a parameter together and raises an error, or makes the whole log
# probability -inf, if one of them is outside of its range. Sites need it of that entry alone: far
# out in a predictor's distribution a scale may underflow to 0.


def checked_by_entry(log_prob: Any, x: Variable, broken: float = -np.inf) -> Any:
    """`log_prob` that is -inf at entries where a parameter that depends on `x` breaks a check.

    Or that is another number, `broken`.

    Checks of what does not depend on `x` stay: they raise an error when they are evaluated.
    """
    while True:  # one at a time: a replacement makes new nodes of all that follows
        checks: Any = (
            v
            for v in io_toposort([x], [log_prob])
            if isinstance(v.op, CheckParameterValue) and v.op.can_be_replaced_by_ninf
        )
        node = next((v for v in checks if any(_depends(y, x) for y in v.inputs[1:])), None)
        if node is None:
            return log_prob
        value, conditions = node.inputs[0], node.inputs[1:]
        parts = [part for condition in conditions for part in _parts(condition)]
        own = [part for part in parts if _depends(part, x)]
        others = [part for part in parts if part not in own]
        for part in others:
            value = node.op(value, pt.all(part))
        for part in own:
            value = pt.switch(_aligned(part, value.type.ndim), value, broken)
        log_prob = graph_replace([log_prob], {node.outputs[0]: value}, strict=False)[0]


def _depends(graph: Variable, x: Variable) -> bool:
    return x in ancestors([graph])


def _parts(condition: Any) -> list[Any]:
    """Conditions that one number is the conjunction of, each an array."""
    node = condition.owner
    if node is None:
        return [condition]
    if isinstance(node.op, basic.MakeVector | basic.Join):
        return [part for v in node.inputs for part in _parts(v)]
    whole = node.inputs[0]
    same = isinstance(node.op, basic.ScalarFromTensor | basic.TensorFromScalar)
    if isinstance(node.op, DimShuffle):
        same = condition.type.ndim <= whole.type.ndim
    if isinstance(node.op, CAReduce) and isinstance(node.op.scalar_op, scalar.AND):
        same = node.op.axis is None or len(node.op.axis) == whole.type.ndim
    return _parts(whole) if same else [condition]


def _aligned(part: Any, ndim: int) -> Any:
    """A condition of no more dimensions than the value; what it has more is inside an entry."""
    excess = part.type.ndim - ndim
    return pt.all(part, axis=tuple(range(ndim, part.type.ndim))) if excess > 0 else part
