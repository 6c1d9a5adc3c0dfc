"""A linker that calls NumPy for each node of a graph, with as little in between as there can be.

PyTensor's own linker of this kind takes 10 to 20 microseconds a node: at every call it looks up and
checks what is known when the function is made. NumPy itself takes one for a number, and ten for a
matrix of 100 rows.
"""

from collections.abc import Callable, Sequence
from functools import singledispatch
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pytensor import scalar
from pytensor.graph.basic import Apply
from pytensor.link.basic import PerformLinker
from pytensor.link.utils import gc_helper, raise_with_op
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise

# What a variable is while a function runs, in a list of one.
Cell = list[Any]
Thunk = Callable[[], Any]
_Array = NDArray[Any]


class _Step(NamedTuple):
    """A node, what computes it, whether NumPy alone does, and what nobody reads after it."""

    node: Apply
    thunk: Thunk
    of_numpy: bool
    dead: tuple[Cell, ...]


class PlainLinker(PerformLinker):
    """As ``PerformLinker``, with thunks of its own for the commonest operations."""

    def make_all(
        self, input_storage: Any = None, output_storage: Any = None, storage_map: Any = None
    ) -> Any:
        """See ``PerformLinker``."""
        made = super().make_all(input_storage, output_storage, storage_map)
        function, inputs, outputs, thunks, nodes = made
        # A choice between branches asks PyTensor's own thunks what is computed already.
        if any(getattr(thunk, "lazy", False) for thunk in thunks):
            return made
        cells, results = function.storage_map, self.fgraph.outputs
        computed, last_user = gc_helper(nodes)
        steps = []
        for node, thunk in zip(nodes, thunks, strict=True):
            own = thunk_of(node.op, node, [cells[x] for x in node.inputs], cells[node.outputs[0]])
            last = {x for x in node.inputs if x in computed and last_user[x] is node}
            dead = tuple(cells[x] for x in last.difference(results))
            steps.append(_Step(node, own or thunk, own is not None, dead))
        # An output may be an input: of shared variables that change places.
        stale = [cells[x] for x in results if x in computed]
        run = _runner(self.fgraph, steps, [cells[x] for x in results], stale)
        run.allow_gc, run.storage_map = True, cells  # what PyTensor reads of it
        return run, inputs, outputs, [step.thunk for step in steps], nodes


def _runner(fgraph: Any, steps: Sequence[_Step], results: list[Cell], stale: list[Cell]) -> Any:
    """What runs the steps and returns the results; `stale` are emptied first."""
    groups = [(quiet, list(own)) for quiet, own in groupby(steps, lambda step: step.of_numpy)]

    def run() -> list[Any]:
        for cell in stale:
            cell[0] = None
        step = None
        try:
            for quiet, own in groups:
                if not quiet:
                    for step in own:
                        step.thunk()
                        for cell in step.dead:
                            cell[0] = None
                    continue
                with np.errstate(all="ignore"):
                    for step in own:
                        step.thunk()
                        for cell in step.dead:
                            cell[0] = None
        except Exception:
            assert step is not None
            raise_with_op(fgraph, step.node, step.thunk)
        return [cell[0] for cell in results]

    return run


@singledispatch
def thunk_of(op: Any, node: Apply, inputs: list[Cell], output: Cell) -> Thunk | None:
    """What fills the output's cell from those of the inputs; None where PyTensor's own is to."""
    return None


@thunk_of.register
def _(op: Elemwise, node: Apply, inputs: list[Cell], output: Cell) -> Thunk | None:
    function = _function_of(op, node)
    if function is None or op.inplace_pattern or len(node.outputs) > 1:
        return None
    dtype = np.dtype(node.outputs[0].type.dtype)
    may_differ = _lengths_that_may_differ(node)
    if may_differ:
        return _checked(_elementwise(function, inputs, output, dtype), op, node, inputs, may_differ)
    return _elementwise(function, inputs, output, dtype)


@thunk_of.register
def _(op: CAReduce, node: Apply, inputs: list[Cell], output: Cell) -> Thunk | None:
    if type(op).perform is not CAReduce.perform:
        return None
    (x,) = inputs
    dtype, axis, reduce = np.dtype(node.outputs[0].type.dtype), op.axis, op.ufunc.reduce
    within = np.dtype(op.acc_dtype or dtype)

    def thunk() -> None:
        output[0] = np.asarray(reduce(x[0], axis=axis, dtype=within), dtype)

    return thunk


@thunk_of.register
def _(op: DimShuffle, node: Apply, inputs: list[Cell], output: Cell) -> Thunk | None:
    if op.drop:
        return None
    (x,) = inputs
    order = op.shuffle
    index = tuple(None if i == "x" else slice(None) for i in op.new_order)

    def thunk() -> None:
        output[0] = x[0].transpose(order)[index]

    return thunk


def _function_of(op: Elemwise, node: Apply) -> Callable[..., Any] | None:
    """The function of arrays that PyTensor itself calls, where it is one of NumPy's or SciPy's."""
    kind, n_inputs = op.scalar_op, len(node.inputs)
    if isinstance(kind, scalar.Cast):
        return np.asarray
    if isinstance(kind, scalar.Add | scalar.Mul) and n_inputs != 2:
        return _folded(op.nfunc, node) if n_inputs > 2 else None
    if op.nfunc is None or op.nfunc_spec[1:] != (n_inputs, 1):
        return None
    signature = getattr(node.tag, "sig", None)
    function: Callable[..., Any] = op.nfunc
    return function if signature is None else _with_signature(op.nfunc, signature)


def _folded(function: Callable[..., Any], node: Apply) -> Callable[..., Any]:
    """A function of two arrays as one of several, in as little memory as can be known before."""
    types, result = [x.type for x in node.inputs], node.outputs[0].type
    first = zip(types[0].broadcastable, types[1].broadcastable, strict=True)
    whole = tuple(a and b for a, b in first) == result.broadcastable
    one_kind = all(x.dtype == result.dtype for x in types)
    if whole and one_kind and result.ndim:

        def folded(x: _Array, y: _Array, *others: _Array) -> Any:
            total = function(x, y)
            for y in others:
                function(total, y, out=total)
            return total

    else:

        def folded(x: _Array, y: _Array, *others: _Array) -> Any:
            total = function(x, y)
            for y in others:
                total = function(total, y)
            return total

    return folded


def _with_signature(function: Callable[..., Any], signature: str) -> Callable[..., Any]:
    return lambda *arrays: function(*arrays, sig=signature)


def _elementwise(
    function: Callable[..., Any], inputs: list[Cell], output: Cell, dtype: np.dtype[Any]
) -> Thunk:
    asarray = np.asarray
    if function is asarray:  # a cast, which is a copy

        def thunk() -> None:
            output[0] = inputs[0][0].astype(dtype)

    elif len(inputs) == 1:
        (x,) = inputs

        def thunk() -> None:
            output[0] = asarray(function(x[0]), dtype)

    elif len(inputs) == 2:
        x, y = inputs

        def thunk() -> None:
            output[0] = asarray(function(x[0], y[0]), dtype)

    else:

        def thunk() -> None:
            output[0] = asarray(function(*[cell[0] for cell in inputs]), dtype)

    return thunk


def _lengths_that_may_differ(node: Apply) -> list[tuple[int, list[int]]]:
    """Dimensions whose lengths only the arrays say, with the inputs that must agree in them."""
    found = []
    for d in range(node.outputs[0].type.ndim):
        long = [i for i, x in enumerate(node.inputs) if not x.type.broadcastable[d]]
        if len({node.inputs[i].type.shape[d] or (i,) for i in long}) > 1:
            found.append((d, long))
    return found


def _checked(
    thunk: Thunk,
    op: Elemwise,
    node: Apply,
    inputs: list[Cell],
    may_differ: list[tuple[int, list[int]]],
) -> Thunk:
    """NumPy would repeat a row that happens to be the only one."""
    pairs = [(d, inputs[own[0]], inputs[i]) for d, own in may_differ for i in own[1:]]

    def checked() -> None:
        for d, x, y in pairs:
            if x[0].shape[d] != y[0].shape[d]:
                op._check_runtime_broadcast(node, [cell[0] for cell in inputs])
        thunk()

    return checked
