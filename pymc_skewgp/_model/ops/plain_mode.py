"""NumPy under PyTensor's own rewrites: functions that are there at once, without compilation.

Kernel matrices are evaluated a few times or a few hundred times. Compiling them would be most of
the wait, while NumPy's passes over whole matrices are as fast as compiled loops.
"""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor import scalar
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Constant
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter
from pytensor.tensor.elemwise import CAReduce, Elemwise

from pymc_skewgp._model.ops.plain_functions import as_array_functions
from pymc_skewgp._model.ops.plain_linker import PlainLinker


@node_rewriter([Elemwise])
def _clip_as_bounds(fgraph: Any, node: Any) -> Any:
    """`Clip` as `Maximum` of `Minimum`, which NumPy has: it would call Python for every entry.

    In this order: a value below both limits becomes the lower one, also where that is the larger.
    PyMC's squared distances are clipped at 0, without an upper limit.
    """
    if not isinstance(node.op.scalar_op, scalar.Clip):
        return None
    x, low, high = node.inputs
    below = x if _is_infinite(high) else pt.minimum(x, high)
    return [pt.maximum(below, low).astype(node.outputs[0].type.dtype)]


@node_rewriter([Elemwise])
def _one_bound(fgraph: Any, node: Any) -> Any:
    """``x >= a`` alone where also ``x <= inf`` is asked for: in the derivative of such a clip."""
    if not isinstance(node.op.scalar_op, scalar.AND) or len(node.inputs) != 2:
        return None
    first, second = (x.owner for x in node.inputs)
    both = first is not None and second is not None
    if not (both and _compares(first, scalar.GE) and _compares(second, scalar.LE)):
        return None
    # Of a number that is none both are false.
    same = first.inputs[0] is second.inputs[0] and _is_infinite(second.inputs[1])
    shape = first.outputs[0].type.broadcastable == node.outputs[0].type.broadcastable
    return [first.outputs[0]] if same and shape else None


@node_rewriter([CAReduce])
def _of_a_number(fgraph: Any, node: Any) -> Any:
    """A number's sum over an axis is itself, as PyMC's CAR takes: NumPy knows no such axis."""
    (x,) = node.inputs
    return None if x.type.ndim else [x.astype(node.outputs[0].type.dtype)]


def _compares(node: Any, kind: type) -> bool:
    return isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, kind)


def _is_infinite(x: Any) -> bool:
    return isinstance(x, Constant) and bool(np.all(x.data == np.inf))


# With each of them that it removes the stack trace of a constant grows threefold: of the shapes of
# an autoregression of 30 steps to gigabytes.
_TRACED = ("local_useless_switch",)


def _plain(*excluded: str) -> Mode:
    """A mode without what would run element by element in Python: fused loops and powers."""
    # The last position: rewrites make clips. One after the other: two in one have a cache of their
    # own, which cannot be pickled.
    return (
        Mode(linker=PlainLinker(), optimizer="fast_run")
        .excluding("fusion", "local_pow_to_nested_squaring", *_TRACED, *excluded)
        .register(
            (dfs_rewriter(_of_a_number), 0.02),  # before constants are computed
            (dfs_rewriter(_clip_as_bounds), 99),
            (dfs_rewriter(_one_bound), 99),
            (dfs_rewriter(as_array_functions), 99),
        )
    )


PLAIN = _plain("inplace")
# For loops until all draws are accepted: not in place each step would copy memory for all steps.
PLAIN_LOOPS = _plain()
