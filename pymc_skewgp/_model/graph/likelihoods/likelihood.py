"""What the analysis has to know of a likelihood: rows as graphs, probit links, lapses."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.logprob.utils import CheckParameterValue
from pytensor import scalar
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Constant, Variable, equal_computations
from pytensor.graph.traversal import ancestors, walk
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.op import RNGConsumerOp
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_skewgp._mcmc.model import Lapses


class MixtureGraphs(NamedTuple):
    """Rows that are such given indicators only.

    Attributes
    ----------
    kind : type
        A `Mixture`.
    parameters : tuple of TensorVariable, shape (m,)
        Its arguments.
    """

    kind: type[Any]
    parameters: tuple[Any, ...]


class RowGraphs(NamedTuple):
    """Rows v = eta + e, e ~ N(0, S), as graphs of the model's random variables.

    Attributes
    ----------
    predictor : TensorVariable
        eta, of any shape that broadcasts to `shape`; raveled it has an entry for each row.
    shape : TensorVariable, shape (d,)
        What the predictor is broadcast to, d known.
    lower, upper : TensorVariable, shape (m,)
        Limits of v; what they are at points has no meaning.
    noise : TensorVariable, shape (m,) or (m, m)
        Variances of e, or S itself.
    value : TensorVariable, shape (m,), or None
        v at points, NaN at intervals; None where all rows are intervals.
    log_constant : TensorVariable, shape (), or None
        Log p(y | f) less the log density of the rows given f, a function of the data alone: a
        binomial coefficient, say. None for 0.
    mixture : MixtureGraphs, or None
        What makes rows of these. None where they are rows as they stand.
    counts : TensorVariable, shape (m,), or None
        How many intervals each row stands for, 0 or more, each with noise of its own. None for one.
    """

    predictor: Any
    shape: Any
    lower: Any
    upper: Any
    noise: Any
    value: Any = None
    log_constant: Any = None
    mixture: MixtureGraphs | None = None
    counts: Any = None

    @property
    def graphs(self) -> list[Any]:
        """All of them."""
        own = [x for x in self if x is not None and x is not self.mixture]
        return [*own, *self.parameters]

    @property
    def parameters(self) -> tuple[Any, ...]:
        """Those of the mixture."""
        return () if self.mixture is None else self.mixture.parameters

    def replaced(self, by: dict[Any, Any]) -> "RowGraphs":
        """Other graphs in the place of these."""
        mixture = self.mixture
        if mixture is not None:
            mixture = mixture._replace(parameters=tuple(by[x] for x in mixture.parameters))
        fields = {
            name: x if x is None else by[x]
            for name, x in self._asdict().items()
            if name != "mixture"
        }
        return RowGraphs(**fields, mixture=mixture)


@dataclass(frozen=True)
class Likelihood:
    """An observed variable whose distribution given f is that of rows of f.

    Attributes
    ----------
    name : str
        What messages call it.
    variables : str
        How a user writes it, for messages.
    rows : callable
        From a random variable and the graph of its data to `RowGraphs`; None where the variable
        has another distribution.
    check : callable
        From the name of the variable and its data to nothing; raises ValueError for impossible
        data.
    """

    name: str
    variables: str
    rows: Callable[[Any, Any], RowGraphs | None]
    check: Callable[[str, NDArray[Any]], None]


def point_rows(predictor: Any, shape: Any, noise: Any, values: Any) -> RowGraphs:
    """Rows that are all points, one for each of the data `values`."""
    value = pt.cast(values.ravel(), "float64")
    nowhere = pt.full_like(value, np.inf)
    return RowGraphs(predictor, shape, -nowhere, nowhere, noise, value)


def spread(x: Any, shape: Any) -> Any:
    """`x`, broadcast to `shape` and raveled, in double precision."""
    return pt.cast(pt.broadcast_to(x, shape).ravel(), "float64")


def required(x: Any, message: str, *conditions: Any) -> Any:
    """`x`; ValueError with `message`, when it is evaluated, unless all `conditions` hold."""
    # As one condition: PyTensor cannot vectorise several, which the design of rows may need.
    together = pt.all(pt.stack([pt.all(c) for c in conditions]))
    return CheckAndRaise(ValueError, message)(x, together)


def required_of(name: str, x: Any, what: str, *conditions: Any) -> Any:
    """`x`, a parameter of the variable `name`, where `conditions` hold.

    Elsewhere an error says `what` it must be, where `x` is data; NaN, which is nowhere, for values
    of random variables.
    """
    if not is_random(x):
        return required(x, f"{what.format(name)}.", *conditions)
    holds = pt.all(pt.stack([pt.all(c) for c in conditions]))
    return pt.switch(holds, x, pt.constant(float("nan"), dtype="float64"))


def variances(rv: Any, sigma: Any, shape: Any) -> Any:
    """Of noise of standard deviation `sigma`, which must be positive, for each of the data."""
    sd = spread(sigma, shape)
    return pt.sqr(required_of(rv.name, sd, "the noise of {} must be positive", pt.gt(sd, 0.0)))


def is_random(*graphs: Any) -> bool:
    """Whether anything random is in the graphs: a variable of the model, or one without a name."""
    return any(isinstance(getattr(v.owner, "op", None), RNGConsumerOp) for v in ancestors(graphs))


def refuse_non_finite(name: str, data: NDArray[Any]) -> None:
    """Refuse data that are NaN or infinite."""
    if not np.isfinite(data).all():
        count = int((~np.isfinite(data)).sum())
        raise ValueError(
            f"the observations of {name} must be finite, found {count} NaN or infinite value(s): "
            "leave them out."
        )


def refuse_nan(name: str, data: NDArray[Any]) -> None:
    """Refuse data that are NaN."""
    if np.isnan(data).any():
        count = int(np.isnan(data).sum())
        raise ValueError(f"the observations of {name} hold {count} NaN value(s): leave them out.")


def refuse_other_than_counts(name: str, data: NDArray[Any]) -> None:
    """Refuse data that are not whole numbers from 0."""
    wrong = data[(data < 0) | (data != np.floor(data))]
    if wrong.size or np.isnan(data).any():
        raise ValueError(
            f"the observations of {name} must be whole numbers from 0, got "
            f"{np.unique(wrong)[:5] if wrong.size else 'NaN'}."
        )


def data_shape(values: Any) -> Any:
    """Shape of the data, as a vector of known length."""
    return pt.stack(list(values.shape)) if values.type.ndim else pt.zeros(0, "int64")


# Noise that rows share in blocks: the covariance of all rows, as a graph.


def block_diagonal(blocks: Any) -> Any:
    """Covariance of shape (n k, n k) with `blocks`, shape (n, k, k), on its diagonal."""
    n, k = blocks.shape[0], blocks.shape[1]
    apart = pt.eye(n, dtype="float64")[:, None, :, None] * blocks[:, :, None, :]
    return apart.reshape((n * k, n * k))


# Probabilities in a graph that are Phi(eta), however they are written.

# What may stand between a probability and the variable it belongs to: entries are only rearranged.
REARRANGING = (AdvancedSubtensor, DimShuffle, Reshape, Subtensor, ViewOp)


def probit_predictor(p: Any) -> Variable | None:
    """Predictor eta where the graph `p` is Phi(eta), else None.

    Recognised are ``pm.math.invprobit(eta)`` = 0.5 erfc(-eta / sqrt(2)), 0.5 (1 + erf(eta /
    sqrt(2))), the exponential of PyMC's log distribution function of ``pm.Normal.dist()``, 1 less
    any of these, and their entries rearranged.
    """
    node = p.owner
    if node is None:
        return None
    if isinstance(node.op, REARRANGING) or is_elementwise(node, scalar.Identity):
        inner = probit_predictor(node.inputs[0])
        return None if inner is None else node.op(inner, *node.inputs[1:])
    if is_elementwise(node, scalar.Exp):
        return of_log_cdf(node.inputs[0])
    if is_elementwise(node, scalar.Sub) and constant_value(node.inputs[0]) == 1.0:
        inner = probit_predictor(node.inputs[1])
        return None if inner is None else -inner
    return _of_error_function(node)


def is_elementwise(node: Any, kind: Any) -> bool:
    """Whether a node computes the scalar function `kind` of each entry."""
    return isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, kind)


def uncopied(variable: Any) -> Any:
    """The variable itself, without the copies that name it."""
    while variable.owner and (
        isinstance(variable.owner.op, ViewOp) or is_elementwise(variable.owner, scalar.Identity)
    ):
        variable = variable.owner.inputs[0]
    return variable


def constant_value(variable: Any) -> float | None:
    """Value of a constant that all entries share, else None."""
    while variable.owner and isinstance(variable.owner.op, DimShuffle):
        variable = variable.owner.inputs[0]
    if isinstance(variable, Constant) and np.size(variable.data) == 1:
        return float(np.asarray(variable.data).item())
    if variable.owner and is_elementwise(variable.owner, scalar.Sqrt):
        value = constant_value(variable.owner.inputs[0])
        return None if value is None else float(np.sqrt(value))
    return None


def first_above(graph: Any, wanted: Callable[[Any], bool]) -> Any:
    """Node nearest to `graph`, among those that it is computed by, that is `wanted`; or None."""
    found = walk([graph], lambda v: v.owner.inputs if v.owner else [])
    return next((v.owner for v in found if v.owner is not None and wanted(v.owner)), None)


def _of_error_function(node: Any) -> Variable | None:
    """0.5 erfc(-eta / sqrt(2)) or 0.5 (1 + erf(eta / sqrt(2)))."""
    if not is_elementwise(node, scalar.Mul) or len(node.inputs) != 2:
        return None
    for half, rest in (node.inputs, node.inputs[::-1]):
        inner = uncopied(rest).owner
        if inner is None or constant_value(half) != 0.5:
            continue
        if is_elementwise(inner, scalar.Erfc):
            return unscaled(inner.inputs[0], negative=True)
        if is_elementwise(inner, scalar.Add) and len(inner.inputs) == 2:
            for one, erf in (inner.inputs, inner.inputs[::-1]):
                above = uncopied(erf).owner
                if constant_value(one) == 1.0 and above and is_elementwise(above, scalar.Erf):
                    return unscaled(above.inputs[0], negative=False)
    return None


def unscaled(argument: Any, negative: bool) -> Variable:
    """Argument times sqrt(2), or minus it: as it stood, where that can be seen."""
    sign = -1.0 if negative else 1.0
    node = argument.owner
    if (
        node
        and is_elementwise(node, scalar.TrueDiv)
        and constant_value(node.inputs[1]) == np.sqrt(2)
    ):
        above = node.inputs[0].owner
        if not negative:
            return node.inputs[0]
        if above and is_elementwise(above, scalar.Neg):
            return above.inputs[0]
    return sign * np.sqrt(2.0) * argument


def of_log_cdf(log_p: Any) -> Variable | None:
    """(x - mu) / sigma where `log_p` is PyMC's log distribution function of a normal, else None.

    That function is a page of operations: what is looked for is the place of x, mu and sigma, and
    then whether PyMC makes the same of them.
    """
    if not isinstance(getattr(log_p.owner, "op", None), CheckParameterValue):
        return None

    def is_standardised(node: Any) -> bool:
        above = node.inputs[0].owner if is_elementwise(node, scalar.TrueDiv) else None
        return above is not None and is_elementwise(above, scalar.Sub)

    node = first_above(log_p.owner.inputs[0], is_standardised)
    if node is None:
        return None
    difference, sigma = node.inputs
    x, mu = difference.owner.inputs
    for s in without_expansion(sigma):
        for m in without_expansion(mu):
            rebuilt = pm.logcdf(pm.Normal.dist(m, s), x)
            if equal_computations([log_p], [rebuilt]):
                return node.outputs[0]
    return None


def without_expansion(variable: Any) -> list[Any]:
    """The variable, then what it was before dimensions were added to it."""
    found = [variable]
    while variable.owner and isinstance(variable.owner.op, DimShuffle):
        variable = variable.owner.inputs[0]
        found.append(variable)
    return found


# Probabilities in a graph that are a + b Phi(eta): labels that are flipped or given as guesses.

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
