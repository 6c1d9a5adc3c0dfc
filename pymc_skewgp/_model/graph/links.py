"""Probabilities in a graph that are a + b Phi(eta), however written, or of ``pm.OrderedProbit``."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.logprob.utils import CheckParameterValue
from pytensor import scalar
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Constant, Variable, equal_computations
from pytensor.graph.traversal import walk
from pytensor.tensor.basic import Join
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

# What may stand between a probability and the variable it belongs to: entries are only rearranged.
_REARRANGING = (AdvancedSubtensor, DimShuffle, Reshape, Subtensor)
_ZERO, _ONE = np.float64(0.0), np.float64(1.0)


class Link(NamedTuple):
    """A probability a + b Phi(eta): graphs that broadcast together; a and b numbers where known."""

    eta: Any
    a: Any = _ZERO
    b: Any = _ONE

    @property
    def probit(self) -> Any:
        """The predictor of a probability that is Phi of it; None where labels lapse."""
        known = isinstance(self.a, float) and isinstance(self.b, float)
        if known and (self.a, self.b) == (0.0, 1.0):
            return self.eta
        return -self.eta if known and (self.a, self.b) == (1.0, -1.0) else None


def link_of(p: Any) -> Link | None:
    """Parts of the graph `p` where it is a + b Phi(eta), else None.

    Found are sums, differences and products of error functions, or PyMC's normal distribution
    functions, with one eta in all of them, and of anything else, which the caller has to refuse if
    it depends on f; and their entries rearranged.
    """
    node = p.owner
    if node is None:
        return None
    first, *others = node.inputs
    if isinstance(node.op, ViewOp) or is_elementwise(node, scalar.Identity):
        return link_of(first)
    if isinstance(node.op, _REARRANGING):
        return _rearranged(node)
    if is_elementwise(node, scalar.Exp):
        eta = _of_log_cdf(first)
        return None if eta is None else Link(eta)
    if is_elementwise(node, scalar.Erf):  # of eta / sqrt(2) it is 2 Phi(eta) - 1
        return Link(_unscaled(first, negative=False), -_ONE, 2.0 * _ONE)
    if is_elementwise(node, scalar.Erfc):  # of -eta / sqrt(2) it is 2 Phi(eta)
        return Link(_unscaled(first, negative=True), _ZERO, 2.0 * _ONE)
    if is_elementwise(node, scalar.Neg):
        return _times(link_of(first), -_ONE)
    if is_elementwise(node, scalar.TrueDiv):
        return _times(link_of(first), _ONE / _number(others[0]))
    if is_elementwise(node, scalar.Add | scalar.Sub):
        return _sum(node)
    return _product(node) if is_elementwise(node, scalar.Mul) else None


def _rearranged(node: Any) -> Link | None:
    """Entries of a probability whose parts have one entry, or as many as it has."""
    p, *where = node.inputs
    inner = link_of(p)
    if inner is None or inner.eta.type.broadcastable != p.type.broadcastable:
        return None
    parts = [node.op(inner.eta, *where)]
    for x in (inner.a, inner.b):
        if isinstance(x, float):
            parts.append(x)
        elif all(x.type.broadcastable):
            parts.append(x.squeeze())
        elif x.type.broadcastable == p.type.broadcastable:
            parts.append(node.op(x, *where))
        else:
            return None
    return Link(*parts)


def _times(link: Link | None, factor: Any) -> Link | None:
    return None if link is None else Link(link.eta, link.a * factor, link.b * factor)


def _sum(node: Any) -> Link | None:
    """Terms with one eta, and others."""
    eta, a, b = None, _ZERO, _ZERO
    for i, x in enumerate(node.inputs):
        sign = -_ONE if i and is_elementwise(node, scalar.Sub) else _ONE
        link = link_of(x)
        if link is None:
            a = a + sign * _number(x)
        elif eta is not None and not equal_computations([eta], [link.eta]):
            return None
        else:
            eta, a, b = link.eta, a + sign * link.a, b + sign * link.b
    return None if eta is None else Link(eta, a, b)


def _product(node: Any) -> Link | None:
    """One factor with eta, and others."""
    links = [link_of(x) for x in node.inputs]
    if sum(link is not None for link in links) != 1:
        return None
    product = next((link for link in links if link is not None), None)
    for x, link in zip(node.inputs, links, strict=True):
        if link is None:
            product = _times(product, _number(x))
    return product


def _number(x: Any) -> Any:
    """A number in place of the constant that it is."""
    known = constant_value(x)
    return x if known is None else np.float64(known)


def is_elementwise(node: Any, kind: Any) -> bool:
    """Whether a node computes the scalar function `kind` of each entry."""
    return isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, kind)


def constant_value(variable: Any) -> float | None:
    """Value of a constant that all entries share, else None."""
    variable = _without_expansion(variable)[-1]
    if isinstance(variable, Constant) and np.size(variable.data) == 1:
        return float(np.asarray(variable.data).item())
    if variable.owner and is_elementwise(variable.owner, scalar.Sqrt):
        value = constant_value(variable.owner.inputs[0])
        return None if value is None else float(np.sqrt(value))
    return None


def _without_expansion(variable: Any) -> list[Any]:
    """The variable, then what it was before dimensions were added to it."""
    found = [variable]
    while variable.owner and isinstance(variable.owner.op, DimShuffle):
        variable = variable.owner.inputs[0]
        found.append(variable)
    return found


def _first_above(graph: Any, wanted: Callable[[Any], bool]) -> Any:
    """Node nearest to `graph`, among those that it is computed by, that is `wanted`; or None."""
    found = walk([graph], lambda v: v.owner.inputs if v.owner else [])
    return next((v.owner for v in found if v.owner is not None and wanted(v.owner)), None)


def _is_of(node: Any, kind: Any, inner: Callable[[Any], bool]) -> bool:
    """Whether a node is an operation of each entry, its first input being made by an `inner`."""
    above = node.inputs[0].owner if is_elementwise(node, kind) else None
    return above is not None and inner(above)


def _is_standardised(node: Any) -> bool:
    """Whether a node is a difference over something."""
    return _is_of(node, scalar.TrueDiv, lambda above: is_elementwise(above, scalar.Sub))


def _unscaled(argument: Any, negative: bool) -> Variable:
    """Argument times sqrt(2), or minus it: as it stood, where that can be seen."""
    node = argument.owner
    if is_root := node and is_elementwise(node, scalar.TrueDiv):
        is_root = constant_value(node.inputs[1]) == np.sqrt(2)
    if is_root and not negative:
        return node.inputs[0]
    if is_root and node.inputs[0].owner and is_elementwise(node.inputs[0].owner, scalar.Neg):
        return node.inputs[0].owner.inputs[0]
    return (-1.0 if negative else 1.0) * np.sqrt(2.0) * argument


def _of_log_cdf(log_p: Any) -> Variable | None:
    """(x - mu) / sigma where `log_p` is PyMC's log distribution function of a normal, else None.

    That function is a page of operations: what is looked for is the place of x, mu and sigma, and
    then whether PyMC makes the same of them.
    """
    if not isinstance(getattr(log_p.owner, "op", None), CheckParameterValue):
        return None
    node = _first_above(log_p.owner.inputs[0], _is_standardised)
    if node is None:
        return None
    difference, sigma = node.inputs
    x, mu = difference.owner.inputs
    for s in _without_expansion(sigma):
        for m in _without_expansion(mu):
            if equal_computations([log_p], [pm.logcdf(pm.Normal.dist(m, s), x)]):
                return node.outputs[0]
    return None


# The arguments of ``pm.OrderedProbit``, of which a model's graph has the probabilities alone.


def ordered_arguments(p: Any) -> tuple[Any, Any, Any] | None:
    """What ``pm.OrderedProbit`` made probabilities of, some of them masked; None of others."""
    p = _uncopied(p)
    # Of one predictor for many data dimensions were added in front.
    while p.owner and isinstance(p.owner.op, DimShuffle) and p.owner.op.is_left_expand_dims:
        p = _uncopied(p.owner.inputs[0])
    if not (p.owner and isinstance(p.owner.op, AdvancedSubtensor)):
        return _arguments_of_all(p)
    whole, *index = p.owner.inputs
    found = _arguments_of_all(_uncopied(whole))
    if found is None or len(index) != 1 or index[0].type.dtype != "bool":
        return None
    (mask,) = index
    if mask.type.ndim != whole.type.ndim - 1:
        return None
    shape, (eta, cutpoints, sigma) = list(mask.shape), found
    if cutpoints.type.ndim > 1:
        cutpoints = pt.broadcast_to(cutpoints, [*shape, cutpoints.shape[-1]])[mask]
    if sigma.type.ndim:
        sigma = pt.broadcast_to(sigma, shape)[mask]
    return pt.broadcast_to(eta, shape)[mask], cutpoints, sigma


def _uncopied(variable: Any) -> Any:
    """The variable itself, without the copies that name it."""
    while variable.owner and (
        isinstance(variable.owner.op, ViewOp) or is_elementwise(variable.owner, scalar.Identity)
    ):
        variable = variable.owner.inputs[0]
    return variable


def _arguments_of_all(p: Any) -> tuple[Any, Any, Any] | None:
    """The arguments: their places in a page of operations, if PyMC makes the same of them."""
    if not (p.owner and _is_of(p.owner, scalar.Exp, lambda above: isinstance(above.op, Join))):
        return None

    def is_difference(node: Any) -> bool:  # of eta, with a dimension added, and cut-points
        return _is_of(node, scalar.Sub, lambda above: isinstance(above.op, DimShuffle))

    difference, standardised = _first_above(p, is_difference), _first_above(p, _is_standardised)
    if difference is None or standardised is None:
        return None
    eta = difference.inputs[0].owner.inputs[0]
    for cutpoints in _without_expansion(difference.inputs[1]):
        for sigma in _without_expansion(standardised.inputs[1]):
            # Elsewhere dimensions do not fit.
            with suppress(ValueError, TypeError, IndexError):
                rebuilt = pm.OrderedProbit.compute_p(eta, cutpoints, sigma)
                if cutpoints.type.ndim and equal_computations([p], [rebuilt]):
                    return eta, cutpoints, sigma
    return None
