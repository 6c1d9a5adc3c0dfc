"""The probit observations of a unified skew-normal variable, found in a PyMC model."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.pytensorf import compile
from pytensor import scalar
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.basic import BernoulliRV
from pytensor.tensor.random.op import RNGConsumerOp
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_skewgp._mcmc.augmentation import ProbitSUN
from pymc_skewgp._model.distributions.bernoulli_probit import BernoulliProbitRV
from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormalRV
from pymc_skewgp._model.graph.affine import affine_coefficients, uses_values, why_not_affine
from pymc_skewgp._validation import FloatArray

_CORE_NDIMS = (1, 2, 2, 1, 2)  # of the parameters of one unified skew-normal vector
# What may stand between a probability and the variable it belongs to: entries are only rearranged.
_REARRANGING = (AdvancedSubtensor, DimShuffle, Reshape, Subtensor, ViewOp)


class NotConjugateError(ValueError):
    """A variable is not a unified skew-normal one whose only children are probit observations."""


class Observations(NamedTuple):
    """One observed variable, y = 1 with probability Phi(eta).

    Attributes
    ----------
    name : str
    predictor : TensorVariable
        eta, a graph of the model's random variables.
    values : TensorVariable
        The data.
    """

    name: str
    predictor: Any
    values: Any


def probit_observations(model: pm.Model, rv: Any) -> list[Observations]:
    """Observations of a unified skew-normal variable, where it has no other children.

    Parameters
    ----------
    model : pymc.Model
    rv : TensorVariable
        A free random variable of it.

    Returns
    -------
    list of Observations
        Each is a ``BernoulliProbit`` or a ``pm.Bernoulli`` with ``p=pm.math.invprobit(eta)``,
        and its `predictor` is affine in `rv`.

    Raises
    ------
    NotConjugateError
        The message names the first thing that is in the way.
    """
    name = getattr(rv, "name", None)
    if rv not in model.free_RVs:
        raise NotConjugateError(f"{name} is not a free random variable of the model.")
    if not isinstance(rv.owner.op, UnifiedSkewNormalRV):
        raise NotConjugateError(f"{name} is not a UnifiedSkewNormal variable.")
    parameters = rv.owner.op.dist_params(rv.owner)
    if rv.type.ndim != 1 or tuple(p.type.ndim for p in parameters) != _CORE_NDIMS:
        raise NotConjugateError(f"{name} has batch dimensions: its {rv.type.ndim} are too many.")
    if model.rvs_to_transforms[rv] is not None:
        raise NotConjugateError(f"{name} has a transform: leave transform out.")
    found = []
    for other in [*model.basic_RVs, *model.potentials]:
        if other is rv or not _depends_directly(other, rv, model):
            continue
        if other in model.potentials:
            raise NotConjugateError(f"the potential {other.name} depends on {name}.")
        if other in model.free_RVs:
            raise NotConjugateError(f"{other.name}, which depends on {name}, is not observed.")
        predictor = _predictor(other)
        if predictor is None:
            raise NotConjugateError(
                f"{other.name}, which depends on {name}, is neither a BernoulliProbit variable "
                "nor a pm.Bernoulli one with p=pm.math.invprobit(...)."
            )
        operation = why_not_affine(predictor, rv)
        if operation is not None:
            raise NotConjugateError(
                f"the probit predictor of {other.name} is not known to be affine in {name}: "
                f"{operation} is in between."
            )
        found.append(Observations(other.name, predictor, model.rvs_to_values[other]))
    if not found:
        raise NotConjugateError(f"{name} has no observations.")
    return found


class ObservationGraph(NamedTuple):
    """One observed variable, y = 1 with probability Phi(design f + offset), of value variables.

    Attributes
    ----------
    name : str
    offset : TensorVariable, shape (m,)
    values : TensorVariable
        The data, 0 and 1; raveled they have the order of `offset`.
    design : TensorVariable or None
        (m, p); None where eta is f plus the offset, entry by entry.
    """

    name: str
    offset: Any
    values: Any
    design: Any


def probit_graphs(model: pm.Model, rv: Any) -> tuple[list[Any], list[ObservationGraph]]:
    """Parameters of a unified skew-normal variable and its observations, of value variables.

    Raises
    ------
    NotConjugateError
        See `probit_observations`.
    """
    observations = probit_observations(model, rv)
    # Values first: what follows copies graphs, and a copy of a random variable is another one.
    parameters = list(model.replace_rvs_by_values(rv.owner.op.dist_params(rv.owner)))
    predictors = model.replace_rvs_by_values([y.predictor for y in observations])
    origin = pt.zeros_like(parameters[0], dtype=rv.dtype)
    graphs = []
    for y, predictor in zip(observations, predictors, strict=True):
        shape = pt.stack(list(y.values.shape)) if y.values.type.ndim else pt.zeros(0, "int64")
        value = model.rvs_to_values[rv]
        design, offset = affine_coefficients(predictor, value, origin, shape)
        graphs.append(ObservationGraph(y.name, offset, y.values, design))
    outputs = [x for y in graphs for x in (y.offset, y.values, y.design) if x is not None]
    _refuse_randomness(rv.name, [*parameters, *outputs])
    return parameters, graphs


class ProbitModel:
    """Parameters of a unified skew-normal variable and of its probit observations, at a point.

    Parameters
    ----------
    model : pymc.Model
    rv : TensorVariable
        The variable.
    compile_kwargs : dict, optional
        Of ``pymc.pytensorf.compile``.

    Raises
    ------
    NotConjugateError
        See `probit_observations`.

    Attributes
    ----------
    observed : list of str
        Names of the observed variables.
    fixed : bool
        Whether no free variable of the model has a say in the parameters.
    """

    def __init__(
        self, model: pm.Model, rv: Any, compile_kwargs: Mapping[str, Any] | None = None
    ) -> None:
        outputs, observations = probit_graphs(model, rv)
        self._with_design = [y.design is not None for y in observations]
        for y in observations:
            outputs += [y.offset, y.values] if y.design is None else [y.offset, y.values, y.design]
        self.observed = [y.name for y in observations]
        used = set(graph_inputs(outputs))
        inputs = [value for value in model.value_vars if value in used]
        self._inputs = [value.name for value in inputs]
        self.fixed = not inputs
        self._function = compile(inputs, outputs, **(compile_kwargs or {}))
        self.forget()

    def forget(self) -> None:
        """Evaluate anew at the next call: data may have changed."""
        self._values: list[NDArray[Any]] | None = None
        self._last: ProbitSUN | None = None

    def parameters(self, point: Mapping[str, NDArray[Any]]) -> ProbitSUN:
        """Parameters at a point; the very object of the last call while they have not changed.

        Parameters
        ----------
        point : mapping
            Values of the model's value variables, by name.

        Returns
        -------
        ProbitSUN

        Raises
        ------
        ValueError
            Data other than 0 and 1; the message names the variable.
        """
        values = [point[name] for name in self._inputs]
        if (
            self._last is None
            or self._values is None
            or not all(map(np.array_equal, values, self._values))
        ):
            self._last = self._evaluate(values)
            # Copies: the caller may write the next point where this one was.
            self._values = [np.array(value) for value in values]
        return self._last

    def _evaluate(self, values: list[NDArray[Any]]) -> ProbitSUN:
        results = iter(np.asarray(x, dtype=np.float64) for x in self._function(*values))
        mu, scale, cross_cov, truncation, latent_cov = (next(results) for _ in _CORE_NDIMS)
        blocks = list(self._observed(results, mu.size))
        offset = np.concatenate([block[0] for block in blocks])
        sign = np.concatenate([block[1] for block in blocks])
        designs = [block[2] for block in blocks]
        design = designs[0]
        if len(designs) > 1:
            design = np.vstack([np.eye(mu.size) if d is None else d for d in designs])
        elif design is not None and np.array_equal(design, np.eye(mu.size)):
            design = None
        return ProbitSUN(
            mu,
            scale,
            cross_cov,
            truncation,
            latent_cov,
            design,
            offset,
            sign,
        )

    def _observed(
        self, results: Iterator[FloatArray], size: int
    ) -> Iterator[tuple[FloatArray, FloatArray, FloatArray | None]]:
        """Offset, signs and design of one observed variable after the other."""
        for name, with_design in zip(self.observed, self._with_design, strict=True):
            offset, y = next(results), next(results).ravel()
            if not np.isin(y, (0.0, 1.0)).all():
                raise ValueError(f"the observations of {name} must be 0 or 1, got {np.unique(y)}.")
            design = next(results) if with_design else None
            if design is None and y.size != size:  # one entry of f for all observations
                design = np.ones((y.size, 1))
            yield offset, 2.0 * y - 1.0, design


def _refuse_randomness(name: str, outputs: list[Any]) -> None:
    if any(isinstance(getattr(v.owner, "op", None), RNGConsumerOp) for v in ancestors(outputs)):
        raise NotConjugateError(
            f"a parameter or predictor of {name} holds a random variable that the model does not "
            "know: give it a name in the model, or leave the step to NUTS."
        )


def _depends_directly(other: Variable, rv: Variable, model: pm.Model) -> bool:
    """Whether a path leads from `rv` to `other` that meets no other variable of the model."""
    if other.owner is None:
        return False
    return uses_values(other.owner.inputs, rv, [v for v in model.basic_RVs if v is not other])


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
