"""Arithmetic of users' numbers in 64 bits.

PyTensor makes an int8 of the number 100 and a float32 of its logarithm: the square of an int8
overflows at 12 without a word.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor import config
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.scalar.basic import autocast_float, autocast_int
from pytensor.tensor.random.op import RNGConsumerOp
from pytensor.tensor.variable import TensorConstant

_WIDE = dict.fromkeys(("int8", "int16", "int32", "uint8", "uint16", "uint32"), "int64")
_WIDE |= dict.fromkeys(("float16", "float32"), "float64")


def as_real(value: Any) -> Any:
    """A number, array or graph in double precision, before anything is computed of it."""
    (graph,) = in_double([pt.as_tensor_variable(value)])
    if graph.type.dtype == "float64":
        return graph
    if isinstance(graph, TensorConstant):
        return pt.constant(np.asarray(graph.data, dtype=np.float64))
    return pt.cast(graph, "float64")


def in_double(graphs: Sequence[Any]) -> list[Any]:
    """Graphs in which nothing is computed in fewer than 64 bits.

    What is computed in 64 bits as it stands stays the same node, and so do random variables, with
    all that is above them.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_skewgp._model.ops.double_precision import in_double
    >>> square = pt.sqr(pt.as_tensor_variable(100))
    >>> print(square.eval(), *(x.eval() for x in in_double([square])))
    16 10000
    """
    return _rebuilt(graphs, {v: v for v in ancestors(graphs) if _is_random(v)})


@contextmanager
def doubles() -> Iterator[None]:
    """Python's numbers as graphs of 64 bits: by PyTensor's custom those are of the fewest."""
    with ExitStack() as restored:
        for cast, dtype in ((autocast_int, "int64"), (autocast_float, "float64")):
            restored.callback(setattr, cast, "dtypes", cast.dtypes)
            cast.dtypes = (dtype,)
        yield


def _rebuilt(graphs: Sequence[Any], known: Mapping[Any, Any]) -> list[Any]:
    """`in_double` of graphs with other variables in the place of those that are `known`."""
    wide = dict(known)
    for node in io_toposort(list(known), graphs):
        inputs = [wide.get(v, v) for v in node.inputs]
        if any(_is_narrow(v) for v in node.outputs):
            inputs = [pt.cast(v, _WIDE[v.type.dtype]) if _is_narrow(v) else v for v in inputs]
        if all(new is old for new, old in zip(inputs, node.inputs, strict=True)):
            continue
        for old, new in zip(node.outputs, _outputs(node, inputs), strict=True):
            new.name = new.name or old.name
            wide[old] = new
    return [wide.get(graph, graph) for graph in graphs]


def _outputs(node: Any, inputs: list[Any]) -> list[Any]:
    """Of an operation on wider inputs; on those of its own types, where it takes no others."""
    try:
        outputs: list[Any] = node.op.make_node(*inputs).outputs
        return outputs
    except TypeError:
        if isinstance(node.op, OpFromGraph):
            inner = node.op.fgraph.unfreeze()
            return _rebuilt(inner.outputs, dict(zip(inner.inputs, inputs, strict=True)))
    pairs = zip(inputs, node.inputs, strict=True)
    inputs = [x if x.type == own.type else pt.cast(x, own.type.dtype) for x, own in pairs]
    outputs = node.op.make_node(*inputs).outputs
    return outputs


def _is_narrow(v: Any) -> bool:
    """Whether a graph is of fewer than 64 bits, and PyTensor was not asked for singles."""
    dtype = getattr(v.type, "dtype", None)
    return dtype in _WIDE and (dtype[0] != "f" or config.floatX == "float64")


def _is_random(v: Any) -> bool:
    return isinstance(getattr(v.owner, "op", None), RNGConsumerOp)
