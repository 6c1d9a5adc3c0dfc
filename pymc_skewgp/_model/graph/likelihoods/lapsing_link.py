"""Probabilities in a graph that are a + b Phi(eta): labels that are flipped or given as guesses."""

from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor import scalar
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import equal_computations

from pymc_skewgp._mcmc.lapses import Lapses
from pymc_skewgp._model.graph.likelihoods.likelihood import MixtureGraphs, required, spread
from pymc_skewgp._model.graph.likelihoods.probit_link import (
    REARRANGING,
    is_elementwise,
    of_log_cdf,
    unscaled,
)

_ROUND_OFF = 1e-9


class LapsingLink(NamedTuple):
    """A probability a + b Phi(eta), its parts being graphs that broadcast together."""

    eta: Any
    a: Any
    b: Any


def lapsing_link(p: Any) -> LapsingLink | None:
    """Parts of the graph `p` where it is a + b Phi(eta), else None.

    Found are sums, differences and products of error functions, or PyMC's normal distribution
    functions, with one eta in all of them, and of anything else, which the caller has to refuse if
    it depends on f.
    """
    node = p.owner
    if node is None:
        return None
    if is_elementwise(node, scalar.Erf | scalar.Erfc | scalar.Exp):
        return _phi(node)
    if isinstance(node.op, ViewOp) or is_elementwise(node, scalar.Identity):
        return lapsing_link(node.inputs[0])
    if isinstance(node.op, REARRANGING):
        return _rearranged(node)
    if is_elementwise(node, scalar.Neg):
        return _times(lapsing_link(node.inputs[0]), -1.0)
    if is_elementwise(node, scalar.Add | scalar.Sub):
        return _sum(node)
    if is_elementwise(node, scalar.Mul):
        return _product(node)
    if is_elementwise(node, scalar.TrueDiv):
        return _times(lapsing_link(node.inputs[0]), 1.0 / node.inputs[1])
    return None


def lapses_of(name: str, link: LapsingLink, is_one: Any, shape: Any) -> MixtureGraphs:
    """Labels of the variable `name`, 1 where `is_one` says so, of the shape `shape` raveled."""
    a, b = spread(link.a, shape), spread(link.b, shape)
    lowest, highest = pt.minimum(a, a + b), pt.maximum(a, a + b)
    lapse = required(
        pt.switch(is_one, lowest, np.float64(1.0) - highest),
        f"the probability of {name} must lie between 0 and 1 wherever f is: in a + b Phi(f) both a "
        "and a + b must. Give rates of lapses and flips a prior from 0 to 1, such as pm.Beta.",
        pt.ge(lowest, -_ROUND_OFF),
        pt.le(highest, 1.0 + _ROUND_OFF),
    )
    return MixtureGraphs(Lapses, (pt.maximum(lapse, np.float64(0.0)), b))


def _phi(node: Any) -> LapsingLink | None:
    """Erf(eta / sqrt(2)) = 2 Phi(eta) - 1, erfc(-eta / sqrt(2)) = 2 Phi(eta), and Phi itself."""
    zero, one, two = np.float64(0.0), np.float64(1.0), np.float64(2.0)
    if is_elementwise(node, scalar.Erf):
        return LapsingLink(unscaled(node.inputs[0], negative=False), -one, two)
    if is_elementwise(node, scalar.Erfc):
        return LapsingLink(unscaled(node.inputs[0], negative=True), zero, two)
    eta = of_log_cdf(node.inputs[0])
    return None if eta is None else LapsingLink(eta, zero, one)


def _rearranged(node: Any) -> LapsingLink | None:
    """Entries of a probability whose parts have one entry, or as many as it has."""
    p, *where = node.inputs
    inner = lapsing_link(p)
    if inner is None or inner.eta.type.broadcastable != p.type.broadcastable:
        return None
    parts = [node.op(inner.eta, *where)]
    for x in map(pt.as_tensor, (inner.a, inner.b)):
        if all(x.type.broadcastable):
            parts.append(x.squeeze())
        elif x.type.broadcastable == p.type.broadcastable:
            parts.append(node.op(x, *where))
        else:
            return None
    return LapsingLink(*parts)


def _times(link: LapsingLink | None, factor: Any) -> LapsingLink | None:
    return None if link is None else LapsingLink(link.eta, link.a * factor, link.b * factor)


def _sum(node: Any) -> LapsingLink | None:
    """Terms with one eta, and others."""
    minus = is_elementwise(node, scalar.Sub)
    eta, a, b = None, np.float64(0.0), np.float64(0.0)
    for i, x in enumerate(node.inputs):
        sign = -1.0 if minus and i else 1.0
        link = lapsing_link(x)
        if link is None:
            a = a + sign * x
            continue
        if eta is not None and not equal_computations([eta], [link.eta]):
            return None
        eta, a, b = link.eta, a + sign * link.a, b + sign * link.b
    return None if eta is None else LapsingLink(eta, a, b)


def _product(node: Any) -> LapsingLink | None:
    """One factor with eta, and others."""
    links = [lapsing_link(x) for x in node.inputs]
    found = [link for link in links if link is not None]
    if len(found) != 1:
        return None
    product: LapsingLink | None = found[0]
    for x, link in zip(node.inputs, links, strict=True):
        if link is None:
            product = _times(product, x)
    return product
