"""Graphs that are affine, or analytic, in some variables; coefficients, entries picked before."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor import scalar
from pytensor.compile.ops import ViewOp
from pytensor.gradient import jacobian
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.replace import clone_replace, graph_replace
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.sparse.math import StructuredDot, TrueDot
from pytensor.tensor import basic, subtensor
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.einsum import Einsum
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.solvers.psd import CholeskySolve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.math import All, Dot, Prod, Sum
from pytensor.tensor.math import Any as AnyOf
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.special import LogSoftmax, LogSumExp, Softmax

from pymc_skewgp._model.ops.plain_mode import is_constant, plain_function

# Linear in all inputs together.
LINEAR = (basic.Join, basic.MakeVector)
_LINEAR_SCALAR = (scalar.Add, scalar.Sub, scalar.Neg, scalar.Identity, scalar.Second)
# Linear in the first input, the others being no functions of x.
LINEAR_IN_FIRST = (
    subtensor.AdvancedSubtensor,
    basic.Alloc,
    DimShuffle,
    JoinDims,
    Reshape,
    basic.ScalarFromTensor,
    SpecifyShape,
    basic.Split,
    SplitDims,
    subtensor.Subtensor,
    Sum,
    basic.TensorFromScalar,
    ViewOp,
)
# Linear in any one input, the others being no functions of x.
_MULTILINEAR = (Dot, Einsum, TrueDot, StructuredDot)
# Chains of these and of f + offset leave every entry where it is.
_IN_PLACE = (SpecifyShape, ViewOp)


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
        if not keeps_affine(node, places):
            return str(node.op)
    return None


def affine_coefficients(
    graph: Any, xs: Sequence[Any], origins: Sequence[Any], shape: Any
) -> tuple[Any, Any]:
    """W, (m, p), and z, (m,), of a graph W x + z of `xs`, broadcast to `shape` and raveled.

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
    tuple of TensorVariable
        Free of `xs`, whose values are one after the other in x.
    """
    rows = pt.broadcast_to(graph, shape).ravel()
    zeros = dict(zip(xs, origins, strict=True))
    offset = clone_replace(rows, zeros)
    used = set(ancestors([graph]))
    designs = []
    for x, origin in zip(xs, origins, strict=True):
        m, p = offset.shape[0], origin.size
        if x not in used:
            design = pt.zeros((m, p))
        elif shape.type.shape == (1,) and stays_in_place(graph, x):  # or one entry for all
            design = pt.switch(pt.eq(m, p), pt.eye(m, p), pt.ones((m, p)))
        else:
            design = clone_replace(_linear_map(rows, x), zeros)
        designs.append(design)
    return pt.concatenate(designs, axis=1), offset


def _linear_map(rows: Any, x: Any) -> Any:
    """The Jacobian in `x`, raveled: of a linear map it is the same everywhere.

    Column by column, as the transpose of the transpose: row by row an index into x would scatter
    m x m numbers.
    """
    v = rows.type("v")
    transposed = pt.grad((v * rows).sum(), x).ravel()
    found = jacobian(transposed, v, vectorize=True)
    return clone_replace(found, {v: pt.zeros_like(rows)}).T


def keeps_affine(node: Apply, places: list[int]) -> bool:
    """Whether a node is affine in x when its inputs at `places` are, and no others depend on x."""
    op: Any = node.op.core_op if isinstance(node.op, Blockwise) else node.op
    if isinstance(op, SolveTriangular | CholeskySolve):
        return places == [1]
    if isinstance(op, Elemwise):
        kind = op.scalar_op
        if isinstance(kind, scalar.Pow):
            return places == [0] and bool(np.all(_number(node.inputs[1]) == 1.0))
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
    if isinstance(op, subtensor.IncSubtensor | subtensor.AdvancedIncSubtensor):
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


def _number(x: Variable) -> Any:
    """Of a graph without variables; NaN of others."""
    return plain_function([], x)() if is_constant(x) else np.nan


def stays_in_place(graph: Variable, x: Any) -> bool:
    """Whether a vector graph is x plus something by construction, entry by entry."""
    if x.type.shape == (1,):  # which an offset may stretch
        return False
    for node, places in followed([graph], [x]):
        kind = node.op.scalar_op if isinstance(node.op, Elemwise) else None
        first = places == [0] and (
            isinstance(kind, scalar.Sub | scalar.Identity) or isinstance(node.op, _IN_PLACE)
        )
        if not first and not (isinstance(kind, scalar.Add) and len(places) == 1):
            return False
    return bool(graph.type.ndim == 1)


# Whether a graph is an analytic function of some of its inputs, by its operations.
#
# Analytic functions that are equal at random points are equal everywhere: their difference would
# have zeros on a set of measure zero alone. With a switch in them they may be equal on one side
# only.

_SCALAR = tuple(
    getattr(scalar, name)
    for name in (
        "Add", "Sub", "Mul", "TrueDiv", "Neg", "Reciprocal", "Identity", "Second", "Sqr",
        "Exp", "Exp2", "Expm1", "Log", "Log2", "Log10", "Log1p", "Sin", "Cos", "Tan", "Sinh",
        "Cosh", "Tanh", "ArcTan", "ArcSinh", "ArcTanh", "Sigmoid",
        "Softplus", "Log1mexp", "Erf", "Erfc", "Erfcx", "Erfinv", "Erfcinv", "GammaLn", "Gamma",
        "Psi", "TriGamma",
    )
)  # fmt: skip
_TENSOR = (
    *LINEAR, basic.AllocDiag, Cholesky, CholeskySolve, CumOp, Dot, Einsum, basic.ExtractDiag,
    LogSoftmax, LogSumExp, Prod, Softmax, SolveTriangular,
)  # fmt: skip
# Where their argument is positive: the root of a square is no analytic function, nor what follows
# from its logarithm; ArcCosh and ArcCos, which give |x| too, are not in the list.
_ROOTS = (scalar.Sqrt, scalar.Pow)
_LOGS = (scalar.Log, scalar.Log2, scalar.Log10)
_POSITIVE = (scalar.Exp, scalar.Exp2, scalar.Sigmoid, scalar.Softplus)
_POSITIVE_OF_POSITIVE = (
    scalar.Mul, scalar.TrueDiv, scalar.Reciprocal, scalar.Identity, scalar.Cast, scalar.Sqrt,
    scalar.Sqr,
)  # fmt: skip
# In the first input, the others being no functions of x: shapes and indices.
_IN_FIRST = (*LINEAR_IN_FIRST, CheckAndRaise)
_EQUALITIES, _ORDERS = (scalar.EQ, scalar.NEQ), (scalar.LT, scalar.LE, scalar.GT, scalar.GE)
# Of conditions; PyMC has a product for both.
_LOGICAL = (scalar.AND, scalar.OR, scalar.Invert, scalar.Mul)
_OF_ALL = (All, AnyOf, DimShuffle, basic.Alloc)


def is_analytic(graphs: Sequence[Variable], xs: Sequence[Variable]) -> bool:
    """Whether `graphs` are analytic in `xs` where they are finite, but on a set of measure zero.

    By a white list of operations. A switch is one whose condition is free of x; or asks whether
    numbers are equal, which is so on a set of measure zero; or has minus infinity as one value.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_skewgp._model.graph.affine import is_analytic
    >>> x = pt.vector("x")
    >>> is_analytic([pt.exp(x) / 2], [x]), is_analytic([pt.switch(x > 0, x, 1)], [x])
    (True, False)
    """
    conditions: dict[Variable, bool] = {}  # on x, and whether they are equalities
    for node, places in followed(graphs, xs):
        known = [conditions.get(node.inputs[i]) for i in places]
        if None not in known and _is_of(node, _LOGICAL, _OF_ALL):
            conditions |= dict.fromkeys(node.outputs, all(known))
        elif known.count(None) == len(known) and _is_of(node, _EQUALITIES + _ORDERS):
            conditions |= dict.fromkeys(node.outputs, _is_of(node, _EQUALITIES))
        elif not _keeps_analytic(node, places, known):
            return False
    return conditions.keys().isdisjoint(graphs)


def _is_of(node: Apply, kinds: tuple[type, ...], ops: tuple[type, ...] = ()) -> bool:
    op: Any = node.op
    return isinstance(op.scalar_op, kinds) if isinstance(op, Elemwise) else isinstance(op, ops)


def _keeps_analytic(node: Apply, places: list[int], known: list[bool | None]) -> bool:
    """`known`: of the inputs at these places None, or for conditions whether of equality."""
    op: Any = node.op.core_op if isinstance(node.op, Blockwise) else node.op
    if _is_of(node, (scalar.Switch,)):
        condition = known[0] if places[0] == 0 else True
        values = known[1:] if places[0] == 0 else known
        ends = any(np.all(_number(x) == -np.inf) for x in node.inputs[1:])
        return set(values) <= {None} and (condition or (condition is False and ends))
    if set(known) != {None}:
        return False
    if _is_of(node, (scalar.Cast,)):
        return bool(node.outputs[0].type.dtype == "float64")
    if _is_of(node, _ROOTS):
        return _is_whole(_power(node)) or (places == [0] and is_positive(node.inputs[0]))
    if _is_of(node, _LOGS) and _is_square(node.inputs[0]):
        return is_positive(node.inputs[0])
    if isinstance(op, Elemwise):
        return isinstance(op.scalar_op, _SCALAR)
    if isinstance(op, subtensor.IncSubtensor | subtensor.AdvancedIncSubtensor):
        return set(places) <= {0, 1}
    return isinstance(op, _TENSOR) or (isinstance(op, _IN_FIRST) and places == [0])


def is_positive(x: Variable) -> bool:
    """Whether a graph is positive by its operations: exponentials, numbers, and what follows."""
    if is_constant(x):
        return bool(np.all(_number(x) > 0.0))
    if x.owner is None:
        return False
    inputs = x.owner.inputs
    if _is_of(x.owner, _POSITIVE):
        return True
    if _is_of(x.owner, (scalar.Add,)):
        known = [is_positive(y) for y in inputs]
        return any(known) and all(a or _is_square(y) for a, y in zip(known, inputs, strict=True))
    if _is_of(x.owner, _POSITIVE_OF_POSITIVE):
        return all(is_positive(y) for y in inputs)
    first = _is_of(x.owner, (scalar.Pow,), (*_IN_FIRST, DimShuffle, basic.Alloc, Sum))
    return first and is_positive(inputs[0])


def _is_square(x: Variable) -> bool:
    return x.owner is not None and _is_whole(0.5 * _power(x.owner))


def _power(node: Apply) -> Any:
    """Of the first input; NaN where it is not known."""
    if _is_of(node, (scalar.Sqr,)):
        return 2.0
    return _number(node.inputs[1]) if _is_of(node, (scalar.Pow,)) else np.nan


def _is_whole(power: Any) -> bool:
    return bool((power == np.round(power)).all())


# Graphs in which entries are picked and arranged before functions of them are taken, not after.
#
# A user may write exp(f)[index] for exp(f[index]): only in the second form is what the function is
# of, f[index], affine in f.

_LAYOUT = (
    subtensor.AdvancedSubtensor,
    basic.Alloc,
    JoinDims,
    Reshape,
    SpecifyShape,
    SplitDims,
    subtensor.Subtensor,
)


def lifted_layout(graph: Any, xs: Sequence[Any]) -> Any:
    """`graph` with picking and arranging moved to before what is not affine in `xs`."""
    found: dict[Variable, Any] = {}
    seen, curved = set(xs), set[Variable]()
    along = dict(followed([graph], xs))
    for node in io_toposort(list(xs), [graph]):
        inputs, new = [found.get(v, v) for v in node.inputs], node.outputs
        lifts = node in along and isinstance(node.op, (*_LAYOUT, DimShuffle))
        if lifts and inputs[0] in curved and seen.isdisjoint(node.inputs[1:]):
            new = [_arranged(node, inputs[0], curved)]
        elif inputs != node.inputs:
            new = node.clone_with_new_inputs(inputs, strict=False).outputs
        if node in along:
            seen.update(node.outputs)
            if not curved.isdisjoint(inputs) or not keeps_affine(node, along[node]):
                curved.update(new)
        found |= dict(zip(node.outputs, new, strict=True))
    return found.get(graph, graph)


def entries_by_name(graph: Any) -> Any:
    """`graph` with entries of vectors that are stacked from scalars as these scalars.

    As of the coefficients ``[level, 0.6]`` of an autoregression, of which each enters by itself.
    """
    found = {}
    for node in io_toposort([], [graph]):
        if not isinstance(node.op, subtensor.Subtensor):
            continue
        vector = node.inputs[0].owner
        if vector is not None and isinstance(vector.op, DimShuffle):
            order = vector.op.new_order
            vector = vector.inputs[0].owner if order[0] == 0 and len(set(order)) < 3 else None
        index, *others = subtensor.indices_from_subtensor(node.inputs[1:], node.op.idx_list)
        whole = all(other == slice(None) for other in others)
        entries = [] if vector is None or not whole else _entries(vector)
        if entries and isinstance(index, Constant) and np.ndim(index.data) == 0:
            kept, dtype = node.outputs[0].type.ndim, vector.outputs[0].type.dtype
            entry = pt.cast(entries[int(index.data)], dtype)
            found[node.outputs[0]] = entry.dimshuffle(["x"] * kept)
    return graph_replace([graph], found, strict=False)[0] if found else graph


def _entries(vector: Apply) -> list[Any]:
    """Scalars that a vector is stacked from; none where that is not known."""
    if isinstance(vector.op, basic.MakeVector):
        return list(vector.inputs)
    lengths = [x.type.shape[0] for x in vector.inputs if x.type.ndim == 1]
    if (
        not isinstance(vector.op, basic.Join)
        or len(lengths) < len(vector.inputs)
        or None in lengths
    ):
        return []
    parts = zip(vector.inputs, lengths, strict=True)
    return [part[i] for part, length in parts for i in range(length)]


def _arranged(node: Apply, x: Any, curved: set[Variable]) -> Any:
    """What a node makes of x; of a function of something that function of it arranged."""
    function, op = x.owner, getattr(x.owner, "op", None)
    before, after = x.type, node.outputs[0].type
    same = before.ndim == after.ndim and before.broadcastable == after.broadcastable
    states_shape = isinstance(node.op, basic.Alloc | SpecifyShape) and same
    # The order of these and of an arrangement of entries does not matter.
    of_each = isinstance(op, Elemwise | CheckAndRaise) or type(op) is ViewOp
    if x not in curved or states_shape or not of_each:
        return node.op(x, *node.inputs[1:])
    inputs: list[Any] = []
    for source in function.inputs[:1] if isinstance(op, CheckAndRaise) else function.inputs:
        if isinstance(node.op, DimShuffle) or source.type.broadcastable == before.broadcastable:
            inputs.append(_arranged(node, source, curved))
        elif all(source.type.broadcastable):
            inputs.append(source.dimshuffle())
        else:
            shape = pt.broadcast_shape(*function.inputs) if None in before.shape else before.shape
            stretched = pt.broadcast_to(source, shape).owner
            inputs.append(_arranged(node, _arranged(stretched, source, curved), curved))
    new = function.op(*inputs, *function.inputs[len(inputs) :])
    curved.add(new)
    return new
