"""Functions of every entry that NumPy lacks and SciPy has: PyTensor would call Python for each."""

from collections.abc import Callable
from typing import Any

import numpy as np
from pytensor import scalar
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.scalar.math import Log1mexp, Softplus, TriGamma
from pytensor.tensor.elemwise import Elemwise
from scipy.special import polygamma

from pymc_skewgp._validation import FloatArray


def softplus(x: FloatArray) -> FloatArray:
    """Log(1 + exp(x)), in half the time of `logaddexp`, which is not vectorised."""
    found = np.asarray(np.abs(x))  # of a number too: in place
    np.negative(found, out=found)
    np.log1p(np.exp(found, out=found), out=found)
    found += np.maximum(x, 0.0)
    return found


def _log1mexp(x: FloatArray) -> FloatArray:
    """Log(1 - exp(x)), x negative (Maechler 2012)."""
    with np.errstate(divide="ignore"):  # at 0 it is -inf
        near = np.log(-np.expm1(x))
        return np.where(x > -np.log(2.0), near, np.log1p(-np.exp(x)))


def _trigamma(x: FloatArray) -> FloatArray:
    return np.asarray(polygamma(1, x))


_FUNCTIONS: dict[type, Callable[[FloatArray], FloatArray]] = {
    Softplus: softplus,
    Log1mexp: _log1mexp,
    TriGamma: _trigamma,
}


class ArrayFunction(Op):
    """A function of whole arrays in place of one of single numbers."""

    __props__ = ("kind",)

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def make_node(self, x: Any) -> Apply:
        """Of a floating-point array, of the same type."""
        return Apply(self, [x], [x.type()])

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """The function itself."""
        (x,) = inputs
        output_storage[0][0] = np.asarray(_FUNCTIONS[self.kind](x), dtype=x.dtype)


@node_rewriter([Elemwise])
def as_array_functions(fgraph: Any, node: Any) -> Any:
    """An operation on every entry as a function of the whole array, where there is one."""
    kind: type[scalar.ScalarOp] = type(node.op.scalar_op)
    (x, *others) = node.inputs
    if kind not in _FUNCTIONS or others or x.type.dtype != node.outputs[0].type.dtype:
        return None
    return [ArrayFunction(kind)(x).astype(node.outputs[0].type.dtype)]
