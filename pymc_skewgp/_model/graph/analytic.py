"""Whether a graph is an analytic function of some of its inputs, by its operations.

Analytic functions that are equal at random points are equal everywhere: their difference would have
zeros on a set of measure zero alone. With a switch in them they may be equal on one side only.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor import scalar
from pytensor.graph.basic import Apply, Variable
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import (
    Alloc,
    AllocDiag,
    ExtractDiag,
)
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.einsum import Einsum
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.solvers.psd import CholeskySolve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.math import All, Dot, Prod, Sum
from pytensor.tensor.math import Any as AnyOf
from pytensor.tensor.special import LogSoftmax, LogSumExp, Softmax
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    IncSubtensor,
)

from pymc_skewgp._model.graph.affine import LINEAR, LINEAR_IN_FIRST, followed
from pymc_skewgp._model.ops.known_functions import is_constant, plain_function

_SCALAR = tuple(
    getattr(scalar, name)
    for name in (
        "Add", "Sub", "Mul", "TrueDiv", "Neg", "Reciprocal", "Identity", "Second", "Sqr",
        "Exp", "Exp2", "Expm1", "Log", "Log2", "Log10", "Log1p", "Sin", "Cos", "Tan", "Sinh",
        "Cosh", "Tanh", "ArcSin", "ArcCos", "ArcTan", "ArcSinh", "ArcCosh", "ArcTanh", "Sigmoid",
        "Softplus", "Log1mexp", "Erf", "Erfc", "Erfcx", "Erfinv", "Erfcinv", "GammaLn", "Gamma",
        "Psi", "TriGamma",
    )
)  # fmt: skip
_TENSOR = (
    *LINEAR, AllocDiag, Cholesky, CholeskySolve, CumOp, Dot, Einsum, ExtractDiag, LogSoftmax,
    LogSumExp, Prod, Softmax, SolveTriangular,
)  # fmt: skip
# Where their argument is positive: the root of a square is no analytic function.
_ROOTS = (scalar.Sqrt, scalar.Pow)
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
_OF_ALL = (All, AnyOf, DimShuffle, Alloc)


def is_analytic(graphs: Sequence[Variable], xs: Sequence[Variable]) -> bool:
    """Whether `graphs` are analytic in `xs` where they are finite, but on a set of measure zero.

    By a white list of operations. A switch is one whose condition is free of x; or asks whether
    numbers are equal, which is so on a set of measure zero; or has minus infinity as one value.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_skewgp._model.graph.analytic import is_analytic
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
        ends = any(_is_minus_infinity(x) for x in node.inputs[1:])
        return set(values) <= {None} and (condition or (condition is False and ends))
    if set(known) != {None}:
        return False
    if _is_of(node, (scalar.Cast,)):
        return bool(node.outputs[0].type.dtype == "float64")
    if _is_of(node, _ROOTS):
        return _is_whole(_power(node)) or (places == [0] and is_positive(node.inputs[0]))
    if isinstance(op, Elemwise):
        return isinstance(op.scalar_op, _SCALAR)
    if isinstance(op, IncSubtensor | AdvancedIncSubtensor):
        return set(places) <= {0, 1}
    return isinstance(op, _TENSOR) or (isinstance(op, _IN_FIRST) and places == [0])


def is_positive(x: Variable) -> bool:
    """Whether a graph is positive by its operations: exponentials, numbers, and what follows."""
    if is_constant(x):
        return bool((plain_function([], x)() > 0.0).all())
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
    first = _is_of(x.owner, (scalar.Pow,), (*_IN_FIRST, DimShuffle, Alloc, Sum))
    return first and is_positive(inputs[0])


def _is_square(x: Variable) -> bool:
    return x.owner is not None and _is_whole(0.5 * _power(x.owner))


def _power(node: Apply) -> Any:
    """Of the first input; NaN where it is not known."""
    if _is_of(node, (scalar.Sqr,)):
        return 2.0
    known = _is_of(node, (scalar.Pow,)) and is_constant(node.inputs[1])
    return plain_function([], node.inputs[1])() if known else np.nan


def _is_whole(power: Any) -> bool:
    return bool((power == np.round(power)).all())


def _is_minus_infinity(x: Variable) -> bool:
    return is_constant(x) and bool((plain_function([], x)() == -np.inf).all())
