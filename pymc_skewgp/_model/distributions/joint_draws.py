"""Vector random variables whose equal rows are drawn together, in NumPy and under numba.

A draw takes factorisations and a sampler to be set up; a thousand draws with the same parameters
hardly take longer than one. PyTensor's numba backend would call a random variable row by row, and
has no way for a draw that is NumPy's work but to warn of it. So before that backend's own rewrite
these variables are replaced by an Op that draws the whole array in object mode, with the same
generator and the same stream as in Python.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from pytensor.compile import optdb
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import copy_stack_trace, dfs_rewriter, node_rewriter
from pytensor.tensor.random.op import RandomVariable

from pymc_skewgp._validation import FloatArray


class JointDrawsRV(RandomVariable):
    """A random variable whose ``rng_fn`` serves a whole array of draws well."""

    dtype = "floatX"


def batch_shape_of(parameters: Sequence[tuple[FloatArray, int]]) -> tuple[int, ...]:
    """Common shape of the batch dimensions of parameters, each with its number of core ones."""
    return np.broadcast_shapes(*(value.shape[: value.ndim - core] for value, core in parameters))


def draw_groups(
    draw_rows: Callable[..., FloatArray],
    batch_shape: Sequence[int],
    n_dims: int,
    parameters: Sequence[tuple[FloatArray, int]],
) -> FloatArray:
    """Draw an array of rows, those with the same parameters in one call.

    Parameters
    ----------
    draw_rows : callable
        ``draw_rows(n, *parameters)`` gives n independent rows, shape (n, n_dims), for one set of
        parameters without batch dimensions.
    batch_shape : sequence of int
        Shape of the array of rows.
    n_dims : int
        Length of a row.
    parameters : sequence of (ndarray, int)
        Each parameter with the number of its core dimensions; the batch dimensions broadcast
        together and with `batch_shape`. Rows along a dimension of length one are a group.

    Returns
    -------
    ndarray, shape (*batch_shape, n_dims)
    """
    own = batch_shape_of(parameters)
    own = (1,) * (len(batch_shape) - len(own)) + own
    spread = [
        np.broadcast_to(value, own + value.shape[value.ndim - core :]) for value, core in parameters
    ]
    draws = np.empty((*batch_shape, n_dims))
    for index in np.ndindex(*own):
        rows = tuple(slice(None) if n == 1 else i for i, n in zip(index, own, strict=True))
        shape = draws[rows].shape
        if prod(shape):
            draws[rows] = draw_rows(prod(shape[:-1]), *(v[index] for v in spread)).reshape(shape)
    return draws


class ObjectModeDraws(Op):
    """The draws of a random variable by its ``perform``, for numba to call in object mode."""

    __props__ = ("rv_op",)

    def __init__(self, rv_op: RandomVariable) -> None:
        self.rv_op = rv_op
        if rv_op.inplace:
            self.destroy_map = {0: [0]}

    def make_node(self, *inputs: Any) -> Apply:
        """Node with the inputs and outputs of the random variable's own."""
        outputs = self.rv_op.make_node(*inputs).outputs
        return Apply(self, list(inputs), [output.type() for output in outputs])

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Any) -> None:
        """Draw."""
        self.rv_op.perform(node, inputs, outputs)


@node_rewriter([JointDrawsRV])
def draw_in_object_mode(fgraph: FunctionGraph, node: Apply) -> list[Any]:
    """Replace the random variable by one call for all its rows."""
    outputs = ObjectModeDraws(node.op).make_node(*node.inputs).outputs
    copy_stack_trace(node.outputs, outputs)
    return list(outputs)


# Just before PyTensor's rewrite for numba, at 100, which would take the variable apart into rows.
optdb.register(
    "pymc_skewgp_draw_in_object_mode",
    dfs_rewriter(draw_in_object_mode),
    "numba",
    position=99.9,
)
