"""Graphs that are jointly affine in some of their variables, and their coefficients."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytensor.tensor as pt
from pytensor import scalar
from pytensor.compile.ops import ViewOp
from pytensor.gradient import jacobian
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.sparse.math import StructuredDot, TrueDot
from pytensor.tensor.basic import (
    Alloc,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.einsum import Einsum
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.linalg.solvers.psd import CholeskySolve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)

from pymc_skewgp._model.ops.known_functions import is_constant, plain_function

# Linear in all inputs together.
LINEAR = (Join, MakeVector)
_LINEAR_SCALAR = (scalar.Add, scalar.Sub, scalar.Neg, scalar.Identity, scalar.Second)
# Linear in the first input, the others being no functions of x.
LINEAR_IN_FIRST = (
    AdvancedSubtensor,
    Alloc,
    DimShuffle,
    JoinDims,
    Reshape,
    ScalarFromTensor,
    SpecifyShape,
    Split,
    SplitDims,
    Subtensor,
    Sum,
    TensorFromScalar,
    ViewOp,
)
# Linear in any one input, the others being no functions of x.
_MULTILINEAR = (Dot, Einsum, TrueDot, StructuredDot)
# Chains of these and of f + offset leave every entry where it is.
_IN_PLACE = (SpecifyShape, ViewOp)


class Affine(NamedTuple):
    """A graph W x + z, x being the values of several variables one after the other.

    Attributes
    ----------
    design : TensorVariable, shape (m, p), or None
        W; None where x is one variable and W the identity by construction (a column of ones, where
        p = 1 < m).
    offset : TensorVariable, shape (m,)
        z.
    """

    design: Any
    offset: Any


def uses_values(graphs: Sequence[Variable], x: Variable, blockers: Sequence[Variable]) -> bool:
    """Whether the value of `x`, and not its shape alone, enters `graphs` past the `blockers`."""
    return x in graphs or bool(followed(graphs, [x], blockers))


def followed(
    graphs: Sequence[Variable], xs: Sequence[Variable], blockers: Sequence[Variable] = ()
) -> list[tuple[Apply, list[int]]]:
    """Nodes on the way of values of `xs` to `graphs` past the `blockers`, in order.

    With the places of the inputs by which they come; what only a shape is taken of, or what is
    only checked, is not on the way.
    """
    order = list(io_toposort([*xs, *blockers], graphs))
    used = set(graphs)
    for node in reversed(order):
        if not used.isdisjoint(node.outputs):
            used.update(node.inputs[i] for i in _by_value(node))
    found, nodes = set(xs), []
    for node in order:
        places = [i for i in _by_value(node) if node.inputs[i] in found]
        if places and not used.isdisjoint(node.outputs):
            found.update(node.outputs)
            nodes.append((node, places))
    return nodes


def why_not_affine(graph: Variable, xs: Sequence[Variable]) -> str | None:
    """First operation that is not known to keep a graph affine in all of `xs` jointly, or None.

    A white list decides: what is not on it is refused, affine or not.

    Parameters
    ----------
    graph : TensorVariable
    xs : sequence of TensorVariable
        Variables in it.

    Returns
    -------
    str or None

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_skewgp._model.graph.affine import why_not_affine
    >>> x, y, b = pt.vector("x"), pt.vector("y"), pt.scalar("b")
    >>> why_not_affine(b * x[::-1] - y, [x, y]) is None
    True
    >>> why_not_affine(x * y, [x, y])
    'Mul'
    """
    for node, places in followed([graph], xs):
        if not _keeps_affine(node, places):
            return str(node.op)
    return None


def affine_coefficients(
    graph: Any, xs: Sequence[Any], origins: Sequence[Any], shape: Any
) -> Affine:
    """W and z of a graph that is affine in `xs`, broadcast to `shape` and raveled.

    Parameters
    ----------
    graph : TensorVariable
        For which `why_not_affine` is None.
    xs : sequence of TensorVariable
        The variables, of any shape.
    origins : sequence of TensorVariable
        Zeros of the same shapes, which take the place of `xs`.
    shape : TensorVariable, shape (d,)
        The shape wanted, d known.

    Returns
    -------
    Affine
        Free of `xs`.
    """
    rows = pt.broadcast_to(graph, shape).ravel()
    zeros = dict(zip(xs, origins, strict=True))
    offset = clone_replace(rows, zeros)
    in_place = [shape.type.shape == (1,) and stays_in_place(graph, x) for x in xs]
    if in_place == [True]:
        return Affine(None, offset)
    used = set(ancestors([graph]))
    designs = []
    for x, same, origin in zip(xs, in_place, origins, strict=True):
        m, p = offset.shape[0], origin.size
        if x not in used:
            design = pt.zeros((m, p))
        elif same:
            design = pt.switch(pt.eq(m, p), pt.eye(m, p), pt.ones((m, p)))
        else:
            design = clone_replace(_linear_map(rows, x), zeros)
        designs.append(design)
    return Affine(designs[0] if len(designs) == 1 else pt.concatenate(designs, axis=1), offset)


def _linear_map(rows: Any, x: Any) -> Any:
    """The Jacobian in `x`, raveled: of a linear map it is the same everywhere.

    Column by column, as the transpose of the transpose: row by row an index into x would scatter
    m x m numbers.
    """
    v = rows.type("v")
    transposed = pt.grad((v * rows).sum(), x).ravel()
    found = jacobian(transposed, v, vectorize=True)
    return clone_replace(found, {v: pt.zeros_like(rows)}).T


def _keeps_affine(node: Apply, places: list[int]) -> bool:
    """Whether a node is affine in x when its inputs at `places` are, and no others depend on x."""
    op: Any = node.op.core_op if isinstance(node.op, Blockwise) else node.op
    if isinstance(op, SolveTriangular | CholeskySolve):
        return places == [1]
    if isinstance(op, Elemwise):
        kind = op.scalar_op
        if isinstance(kind, scalar.Pow):
            return places == [0] and _is_one(node.inputs[1])
        if isinstance(kind, scalar.Mul):
            return len(places) == 1
        if isinstance(kind, scalar.TrueDiv):
            return places == [0]
        if isinstance(kind, scalar.Switch):
            return 0 not in places
        if isinstance(kind, scalar.Cast):
            return bool(node.outputs[0].type.dtype in ("float32", "float64"))
        return isinstance(kind, _LINEAR_SCALAR)
    if isinstance(op, ViewOp) and type(op) is not ViewOp:
        return False  # disconnected_grad and its like: the Jacobian is not that of the value
    if isinstance(op, _MULTILINEAR):
        return len(places) == 1
    if isinstance(op, IncSubtensor | AdvancedIncSubtensor):
        return set(places) <= {0, 1}
    if isinstance(op, CumOp):
        return op.mode == "add"
    return isinstance(op, LINEAR) or (isinstance(op, LINEAR_IN_FIRST) and places == [0])


def _by_value(node: Apply) -> Sequence[int]:
    """Places of the inputs whose values those of the outputs depend on."""
    if isinstance(node.op, Shape | Shape_i):
        return ()
    if isinstance(node.op, CheckAndRaise):
        return (0,)
    fills = isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, scalar.Second)
    return range(int(fills), len(node.inputs))


def _is_one(power: Variable) -> bool:
    """Whether a power is 1, as in the derivative of a square."""
    return is_constant(power) and bool((plain_function([], power)() == 1.0).all())


def stays_in_place(graph: Variable, x: Any) -> bool:
    """Whether a vector graph is x plus something by construction, entry by entry."""
    if x.type.shape == (1,):  # which an offset may stretch
        return False
    found = {x}
    for node in io_toposort([x], [graph]):
        places = [i for i, variable in enumerate(node.inputs) if variable in found]
        if not places or isinstance(node.op, Shape | Shape_i):
            continue
        kind = node.op.scalar_op if isinstance(node.op, Elemwise) else None
        first = places == [0] and (
            isinstance(kind, scalar.Sub | scalar.Identity) or isinstance(node.op, _IN_PLACE)
        )
        if not first and not (isinstance(kind, scalar.Add) and len(places) == 1):
            return False
        found.update(node.outputs)
    return bool(graph.type.ndim == 1)
