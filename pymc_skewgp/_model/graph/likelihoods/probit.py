"""Probit observations: y = 1 with probability Phi(eta)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pytensor import scalar
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.basic import BernoulliRV
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_skewgp._model.distributions.bernoulli_probit import BernoulliProbitRV
from pymc_skewgp._model.graph.likelihoods.likelihood import Likelihood, RowGraphs, data_shape
from pymc_skewgp._model.ops.skew_normal import label_intervals

# What may stand between a probability and the variable it belongs to: entries are only rearranged.
_REARRANGING = (AdvancedSubtensor, DimShuffle, Reshape, Subtensor, ViewOp)


def _rows(rv: Any, labels: Any) -> RowGraphs | None:
    """A label 1 is (0, inf), a label 0 is (-inf, 0), with noise of variance 1."""
    eta = _predictor(rv)
    if eta is None:
        return None
    return RowGraphs(eta, data_shape(labels), *label_intervals(labels.ravel()))


def _check(name: str, labels: NDArray[Any]) -> None:
    """Any others would pass for 0 or 1."""
    found = np.unique(labels)
    if not np.isin(found, (0, 1)).all():
        raise ValueError(f"the observations of {name} must be 0 or 1, got {found[:5]}.")


def _predictor(rv: Any) -> Variable | None:
    """Predictor eta where `rv` is Bernoulli with probability Phi(eta), else None."""
    if isinstance(rv.owner.op, BernoulliProbitRV):
        (eta,) = rv.owner.op.dist_params(rv.owner)
        return eta
    if isinstance(rv.owner.op, BernoulliRV):
        (p,) = rv.owner.op.dist_params(rv.owner)
        return _probit_of(p)
    return None


def _probit_of(p: Any) -> Variable | None:
    """Predictor where the graph `p` is 0.5 erfc(-eta / sqrt(2)) = Phi(eta), else None."""
    node = p.owner
    if node is None:
        return None
    if isinstance(node.op, _REARRANGING) or _is_elementwise(node, scalar.Identity):
        inner = _probit_of(node.inputs[0])
        return None if inner is None else node.op(inner, *node.inputs[1:])
    if not _is_elementwise(node, scalar.Mul) or len(node.inputs) != 2:
        return None
    for half, tail in (node.inputs, node.inputs[::-1]):
        tail = _uncopied(tail)
        if _constant(half) == 0.5 and tail.owner and _is_elementwise(tail.owner, scalar.Erfc):
            return _unscaled(tail.owner.inputs[0])
    return None


def _unscaled(argument: Any) -> Variable:
    """Argument times -sqrt(2): as it stood, for ``pm.math.invprobit``, or else as a product."""
    node = argument.owner
    if node and _is_elementwise(node, scalar.TrueDiv) and _constant(node.inputs[1]) == np.sqrt(2):
        above = node.inputs[0].owner
        if above and _is_elementwise(above, scalar.Neg):
            return above.inputs[0]
    return -np.sqrt(2.0) * argument


def _is_elementwise(node: Any, kind: type) -> bool:
    return isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, kind)


def _uncopied(variable: Any) -> Any:
    """The variable itself, without the copies that name it."""
    while variable.owner and (
        isinstance(variable.owner.op, ViewOp) or _is_elementwise(variable.owner, scalar.Identity)
    ):
        variable = variable.owner.inputs[0]
    return variable


def _constant(variable: Any) -> float | None:
    """Value of a constant that all entries share, else None."""
    while variable.owner and isinstance(variable.owner.op, DimShuffle):
        variable = variable.owner.inputs[0]
    if isinstance(variable, Constant) and np.size(variable.data) == 1:
        return float(np.asarray(variable.data).item())
    if variable.owner and _is_elementwise(variable.owner, scalar.Sqrt):
        value = _constant(variable.owner.inputs[0])
        return None if value is None else float(np.sqrt(value))
    return None


PROBIT = Likelihood(
    "probit",
    "BernoulliProbit or pm.Bernoulli with p=pm.math.invprobit(...)",
    _rows,
    _check,
)
