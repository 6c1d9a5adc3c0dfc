"""Observed variables whose distribution given f is that of rows of f: a table of recognisers."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.censored import CensoredRV
from pymc.distributions.continuous import AsymmetricLaplaceRV
from pymc.distributions.distribution import PartialObservedRV
from pymc.logprob.utils import CheckParameterValue
from pytensor import scalar
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Constant, Variable, equal_computations
from pytensor.graph.traversal import ancestors, walk
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Join
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random import basic
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_skewgp._errors import NotConjugateError
from pymc_skewgp._mcmc.augmentation import LaplaceNoise, Lapses, StudentTNoise
from pymc_skewgp._model.distributions import probit
from pymc_skewgp._model.distributions.unified_skew_normal import known_value
from pymc_skewgp._model.ops.densities import label_intervals
from pymc_skewgp._model.ops.plain_mode import is_drawn
from pymc_skewgp._validation import SYMMETRY_RTOL

# Probabilities in a graph that are a + b Phi(eta), however written, or of ``pm.OrderedProbit``.

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


# Rows that variables are.


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

    def mapped(self, function: Callable[[list[Any]], list[Any]]) -> "RowGraphs":
        """With what a function makes of all graphs in the place of these."""
        by = dict(zip(self.graphs, function(self.graphs), strict=True))
        found = {name: by.get(x) for name, x in self._asdict().items() if name != "mixture"}
        mixture = self.mixture
        if mixture is not None:
            mixture = mixture._replace(parameters=tuple(by[x] for x in mixture.parameters))
        return RowGraphs(**found, mixture=mixture)


Check = Callable[[str, NDArray[Any]], None]


class Likelihood(NamedTuple):
    """An observed variable whose distribution given f is that of rows of f.

    Attributes
    ----------
    name : str
        What messages call it.
    variables : str
        How a user writes it, for messages.
    ops : tuple of type
        Operations that make such variables.
    rows : callable
        From a random variable, the graph of its data and their shape to `RowGraphs`; None where the
        variable has another distribution.
    check : callable
        From the name of the variable and its data to nothing; raises ValueError for impossible
        data.
    """

    name: str
    variables: str
    ops: tuple[type, ...]
    rows: Callable[[Any, Any, Any], Any]
    check: Check


# What the rows are made with.


def parameters_of(rv: Any) -> Any:
    """Graphs of the parameters of a random variable."""
    return rv.owner.op.dist_params(rv.owner)


def point_rows(predictor: Any, shape: Any, noise: Any, values: Any) -> RowGraphs:
    """Rows that are all points, one for each of the data `values`."""
    value = pt.cast(values.ravel(), "float64")
    nowhere = pt.full_like(value, np.inf)
    return RowGraphs(predictor, shape, -nowhere, nowhere, noise, value)


def spread(x: Any, shape: Any) -> Any:
    """`x`, broadcast to `shape` and raveled, in double precision."""
    return pt.cast(pt.broadcast_to(x, shape).ravel(), "float64")


def is_random(*graphs: Any) -> bool:
    """Whether anything random is in the graphs: a variable of the model, or one without a name."""
    return any(map(is_drawn, ancestors(graphs)))


def required(x: Any, message: str, *conditions: Any) -> Any:
    """`x`; ValueError with `message`, when it is evaluated, unless all `conditions` hold."""
    # As one condition: PyTensor cannot vectorise several, which the design of rows may need.
    together = pt.all(pt.stack([pt.all(c) for c in conditions]))
    return CheckAndRaise(ValueError, message)(x, together)


def required_of(rv: Any, x: Any, what: str, condition: Any) -> Any:
    """`x`, a parameter of the variable `rv`, where the condition holds.

    Elsewhere an error says `what` it must be, where `x` is data; NaN, which is nowhere, for values
    of random variables.
    """
    if not is_random(x):
        return required(x, f"{what.format(rv.name)}.", condition)
    return pt.switch(pt.all(condition), x, _NAN)


def symmetric(rv: Any, cov: Any) -> Any:
    """A covariance; of another matrix PyMC reads the lower triangle, and draws by all of it."""
    what = "the covariance of {} must be symmetric: check cov, or tau, of pm.MvNormal"
    variance = pt.diagonal(cov, axis1=-2, axis2=-1)
    # Squares: a root or an absolute value in a graph is no analytic function.
    close = (cov - cov.mT) ** 2 <= SYMMETRY_RTOL**2 * variance[..., None] * variance[..., None, :]
    return required_of(rv, cov, what, close)


def positive(rv: Any, x: Any, shape: Any, what: str = "the noise of {} must be positive") -> Any:
    """A parameter for each of the data."""
    x = spread(x, shape)
    return required_of(rv, x, what, pt.gt(x, 0.0))


def block_diagonal(blocks: Any) -> Any:
    """Covariance of shape (n k, n k) with `blocks`, shape (n, k, k), on its diagonal."""
    n, k = blocks.shape[0], blocks.shape[1]
    apart = pt.eye(n, dtype="float64")[:, None, :, None] * blocks[:, :, None, :]
    return apart.reshape((n * k, n * k))


# Double precision: PyTensor would take Python's numbers for single.
_INFINITY, _NAN = (pt.constant(x, dtype="float64") for x in (float("inf"), float("nan")))


# Data that cannot be.


def _such(what: str, allowed: Callable[[Any], Any]) -> Check:
    """A check that data are `what`."""

    def check(name: str, data: NDArray[Any]) -> None:
        wrong = data[~allowed(data)]
        if wrong.size:
            raise ValueError(
                f"the observations of {name} must be {what}, got {np.unique(wrong)[:5]}."
            )

    return check


_finite = _such("finite: leave others out", np.isfinite)
_counts = _such("whole numbers from 0", lambda y: (y >= 0) & (y == np.floor(y)))
_positive = _such("finite and positive", lambda y: (y > 0) & np.isfinite(y))
_labels = _such("0 or 1", lambda y: np.isin(y, (0, 1)))
_known = _such("no NaN: leave these out", lambda y: ~np.isnan(y))
_outcomes = _such(
    "1 where the first item of a pair won, -1 where the second did, 0 for ties",
    lambda y: np.isin(y, (-1, 0, 1)),
)


# Labels, trials and ordered categories under a probit link.

_FEW = 2.0  # trials of a unit, on average
_ROUND_OFF = 1e-9


LIKELIHOODS: list[Likelihood] = []


def _recognised(name: str, variables: str, check: Check, *ops: type) -> Callable[[Any], Likelihood]:
    """Make of a function from a variable, its values and their shape to rows a `Likelihood`."""

    def made(rows: Callable[[Any, Any, Any], RowGraphs | None]) -> Likelihood:
        LIKELIHOODS.append(Likelihood(name, variables, ops, rows, check))
        return LIKELIHOODS[-1]

    return made


@_recognised(
    "probit",
    "BernoulliProbit or pm.Bernoulli with p=pm.math.invprobit(...)",
    _labels,
    probit.BernoulliProbitRV,
    basic.BernoulliRV,
)
def labels(rv: Any, labels: Any, shape: Any) -> RowGraphs | None:
    """A label 1 is (0, inf), a label 0 is (-inf, 0), with noise of variance 1.

    Labels that are flipped, or that are guesses, with a probability of their own are a mixture.
    """
    (eta,) = parameters_of(rv)
    link = link_of(eta) if isinstance(rv.owner.op, basic.BernoulliRV) else Link(eta)
    return None if link is None else _label_rows(rv.name, link, labels.ravel(), shape)


def _label_rows(name: str, link: Link, label: Any, shape: Any) -> RowGraphs:
    if link.probit is not None:
        return RowGraphs(link.probit, shape, *label_intervals(label))
    a, b = spread(link.a, shape), spread(link.b, shape)
    lowest, highest = pt.minimum(a, a + b), pt.maximum(a, a + b)
    lapse = required(
        pt.switch(pt.gt(label, 0), lowest, np.float64(1.0) - highest),
        f"the probability of {name} must lie between 0 and 1 wherever f is: in a + b Phi(f) both a "
        "and a + b must. Give rates of lapses and flips a prior from 0 to 1, such as pm.Beta.",
        pt.ge(lowest, -_ROUND_OFF),
        pt.le(highest, 1.0 + _ROUND_OFF),
    )
    mixture = MixtureGraphs(Lapses, (pt.maximum(lapse, np.float64(0.0)), b))
    return RowGraphs(link.eta, shape, *label_intervals(label), mixture=mixture)


@_recognised(
    "binomial probit", "pm.Binomial with p=pm.math.invprobit(...)", _counts, basic.BinomialRV
)
def binomial(rv: Any, values: Any, shape: Any) -> RowGraphs | None:
    """A probit row for the successes of a unit and one for its failures, each so many times.

    Of few trials, and of those that may be lapses, a row each.
    """
    n, p = parameters_of(rv)
    link = link_of(p)
    if link is None:
        return None
    if is_random(n):
        raise NotConjugateError(
            f"the numbers of trials of {rv.name} are random.", "Observe them: n must be data."
        )
    successes = pt.cast(values.ravel(), "int64")
    trials = pt.cast(pt.broadcast_to(n, shape).ravel(), "int64")
    successes = required(
        successes,
        f"the observations of {rv.name} must be numbers of successes from 0 to n, the trials.",
        pt.ge(successes, 0),
        pt.le(successes, trials),
    )
    orders = (pt.gammaln(k + 1.0) for k in (trials, successes, trials - successes))
    coefficient, of_successes, of_failures = orders
    log_constant = pt.sum(coefficient - of_successes - of_failures)
    trials = pt.maximum(trials, 0)  # fewer are refused above; graphs are made all the same
    known, counts = known_value(n), None
    if link.probit is None or (known is not None and np.mean(known) <= _FEW):
        unit = pt.repeat(pt.arange(trials.shape[0]), trials)
        number = pt.arange(unit.shape[0]) - (pt.cumsum(trials) - trials)[unit]
        is_success = pt.lt(number, successes[unit])
    else:
        unit = pt.repeat(pt.arange(trials.shape[0]), 2)
        is_success = pt.eq(pt.arange(unit.shape[0]) % 2, 0)
        counts = pt.stack([successes, trials - successes], axis=1).ravel()
    if link.probit is None:
        link = Link(link.eta, *(spread(x, shape)[unit] for x in (link.a, link.b)))
    else:
        link = Link(link.probit)
    link = link._replace(eta=pt.broadcast_to(link.eta, shape).ravel()[unit])
    rows = _label_rows(rv.name, link, is_success, pt.stack([unit.shape[0]]))
    return rows._replace(log_constant=log_constant, counts=counts)


@_recognised("ordered probit", "pm.OrderedProbit", _counts, basic.CategoricalRV)
def ordered(rv: Any, values: Any, shape: Any) -> RowGraphs | None:
    """Category c is the interval from cut-point c - 1 to cut-point c."""
    found = ordered_arguments(*parameters_of(rv))
    if found is None:
        return None
    eta, cutpoints, sigma = found
    category = pt.cast(values.ravel(), "int64")
    category = required(
        category,
        f"the observations of {rv.name} must be categories from 0 to the number of cut-points.",
        pt.ge(category, 0),
        pt.le(category, cutpoints.shape[-1]),
    )
    rising = pt.lt(cutpoints[..., :-1], cutpoints[..., 1:])
    if not is_random(cutpoints):  # of others intervals without inside have probability 0
        cutpoints = required(cutpoints, f"the cut-points of {rv.name} must increase.", rising)
    cuts = pt.cast(cutpoints, "float64")
    row: tuple[Any, ...] = ()
    if cuts.type.ndim > 1:  # else one set for all rows: fewer operations
        n_cuts = cuts.shape[-1]
        cuts = pt.broadcast_to(cuts, pt.concatenate([shape, pt.stack([n_cuts])]))
        cuts, row = cuts.reshape((-1, n_cuts)), (pt.arange(category.shape[0]),)
    end = pt.full_like(cuts[..., :1], np.inf)
    edges = pt.concatenate([-end, cuts, end], axis=-1)
    lower, upper = edges[(*row, category)], edges[(*row, category + 1)]
    return RowGraphs(eta, shape, lower, upper, positive(rv, sigma, shape) ** 2)


# Values with normal, Student-t or Laplace noise, some of them not seen.


@_recognised("normal", "pm.Normal", _finite, basic.NormalRV)
def normal(rv: Any, values: Any, shape: Any) -> RowGraphs:
    """A point for each value."""
    mu, sigma = parameters_of(rv)
    return point_rows(mu, shape, positive(rv, sigma, shape) ** 2, values)


@_recognised("lognormal", "pm.LogNormal", _positive, basic.LogNormalRV)
def lognormal(rv: Any, values: Any, shape: Any) -> RowGraphs:
    """A point for the logarithm of each value, whose density has the factor 1 / y."""
    logs = pt.log(pt.cast(values, "float64"))
    return normal.rows(rv, logs, shape)._replace(log_constant=-pt.sum(logs))


@_recognised("multivariate normal", "pm.MvNormal", _finite, basic.MvNormalRV)
def mvnormal(rv: Any, values: Any, shape: Any) -> RowGraphs:
    """A point for each entry; vectors are independent of each other."""
    mu, cov = parameters_of(rv)
    cov = symmetric(rv, cov)
    k = values.shape[-1]
    cov = pt.cast(pt.broadcast_to(cov, pt.concatenate([shape, pt.stack([k])])), "float64")
    regular = pt.all(pt.isfinite(pt.linalg.cholesky(cov)))
    cov = required_of(rv, cov, "the covariance of {} must be positive definite", regular)
    noise = cov if values.type.ndim == 1 else block_diagonal(cov.reshape((-1, k, k)))
    return point_rows(mu, shape, noise, values)


@_recognised(
    "censored",
    "pm.Censored of pm.Normal.dist or pm.StudentT.dist",
    _finite,
    CensoredRV,
    PartialObservedRV,
)
def censored(rv: Any, values: Any, shape: Any) -> RowGraphs | None:
    """A point for each value between the limits, an interval for each at one: data decide."""
    seen, whole = None, rv
    if isinstance(rv.owner.op, PartialObservedRV):  # those that are not masked
        whole, mask = rv.owner.inputs
        seen = ~mask
    if not isinstance(whole.owner.op, CensoredRV):
        return None
    base, lower, upper = whole.owner.inputs
    if not isinstance(base.owner.op, basic.NormalRV | basic.StudentTRV):
        return None
    if is_random(lower, upper):
        raise NotConjugateError(
            f"the limits of {rv.name} are random: which values are censored is not known.",
            "Give pm.Censored numbers, or data, as limits.",
        )
    given = [*parameters_of(base), lower, upper]
    if seen is not None:
        given = [pt.broadcast_to(x, list(seen.shape))[seen] for x in given]
    *nu, mu, sigma, lower, upper = given
    mixture = MixtureGraphs(StudentTNoise, (spread(nu[0], shape),)) if nu else None
    y, low, high = (spread(x, shape) for x in (values, lower, upper))
    low = required(low, f"lower of {rv.name} must be below upper.", pt.lt(low, high))
    y = required(
        y,
        f"the observations of {rv.name} must lie between lower and upper of pm.Censored, which "
        "censored ones equal.",
        pt.ge(y, low),
        pt.le(y, high),
    )
    below, above = pt.le(y, low), pt.ge(y, high)
    return RowGraphs(
        mu,
        shape,
        pt.switch(above, high, -_INFINITY),
        pt.switch(below, low, _INFINITY),
        positive(rv, sigma, shape) ** 2,
        pt.switch(pt.or_(below, above), _NAN, y),
        mixture=mixture,
    )


@_recognised("interval normal", "IntervalNormal", _known, probit.IntervalNormalRV)
def interval_normal(rv: Any, values: Any, shape: Any) -> RowGraphs:
    """An interval for each value that stands for one, a point for any other: data decide."""
    mu, sigma, *limits = parameters_of(rv)
    y, low, high = (spread(x, shape) for x in (values, *limits))
    value = pt.switch(probit.within(y, low, high), _NAN, y)
    return RowGraphs(mu, shape, low, high, positive(rv, sigma, shape) ** 2, value)


@_recognised("Student-t", "pm.StudentT", _finite, basic.StudentTRV)
def student_t(rv: Any, values: Any, shape: Any) -> RowGraphs:
    """A point for each value: normal ones whose variances are unknown."""
    nu, mu, sigma = parameters_of(rv)
    rows = point_rows(mu, shape, positive(rv, sigma, shape) ** 2, values)
    nu = positive(rv, nu, shape, "the degrees of freedom of {} must be positive")
    return rows._replace(mixture=MixtureGraphs(StudentTNoise, (nu,)))


@_recognised(
    "Laplace", "pm.Laplace, pm.AsymmetricLaplace", _finite, basic.LaplaceRV, AsymmetricLaplaceRV
)
def laplace(rv: Any, values: Any, shape: Any) -> RowGraphs:
    """A point for each value: errors are of two exponential variables the difference."""
    if isinstance(rv.owner.op, basic.LaplaceRV):
        mu, mean = parameters_of(rv)
        above = below = positive(rv, mean, shape)
    else:
        b, kappa, mu = parameters_of(rv)
        b, kappa = positive(rv, b, shape), positive(rv, kappa, shape)
        above, below = 1.0 / (b * kappa), kappa / b
    rows = point_rows(mu, shape, 2.0 * above * below, values)
    return rows._replace(mixture=MixtureGraphs(LaplaceNoise, (above - below,)))


# Comparisons: duels between items, choices among alternatives, classes with a function each.


@_recognised("preference", "PreferenceProbit", _outcomes, probit.PreferenceProbitRV)
def preference(rv: Any, values: Any, shape: Any) -> RowGraphs:
    """A row f_i - f_j for each duel: above the threshold, below minus it, or between for a tie."""
    difference, noise, threshold = parameters_of(rv)
    d, y = spread(threshold, shape), values.ravel()
    d = required_of(rv, d, "the threshold of {} must not be negative", pt.ge(d, 0.0))
    if not is_random(d):
        y = required(
            y,
            f"the observations of {rv.name} hold 0, a tie, which needs threshold > 0: -1 says that "
            "the second item of a pair won.",
            pt.or_(pt.neq(y, 0), pt.gt(d, 0.0)),
        )
    end = pt.full_like(d, np.inf)
    first, second = pt.gt(y, 0), pt.lt(y, 0)
    lower = pt.switch(first, d, pt.switch(second, -end, -d))
    upper = pt.switch(first, end, pt.switch(second, -d, d))
    return RowGraphs(difference, shape, lower, upper, positive(rv, noise, shape) ** 2)


@_recognised("choice", "ChoiceProbit or MultinomialProbit", _counts, probit.ChoiceProbitRV)
def choice(rv: Any, values: Any, shape: Any) -> RowGraphs:
    """Rows eta_c - eta_j > 0, one for each alternative j that was not chosen.

    The noise of c is in all of a choice: its rows have the covariance sigma^2 (I + 11').
    """
    eta, sigma = parameters_of(rv)
    k = eta.shape[-1]
    chosen = pt.cast(values.ravel(), "int64")
    chosen = required(
        chosen,
        f"the observations of {rv.name} must be indices of alternatives, from 0 to their number "
        "less 1.",
        pt.ge(chosen, 0),
        pt.lt(chosen, k),
    )[:, None]
    eta = pt.broadcast_to(eta, pt.concatenate([shape, pt.stack([k])])).reshape((-1, k))
    choice, other = pt.arange(chosen.shape[0])[:, None], pt.arange(k - 1)[None, :]
    other = other + pt.ge(other, chosen)
    predictor = eta[choice, chosen] - eta[choice, other]
    variance = positive(rv, sigma, shape) ** 2
    noise = block_diagonal(variance[:, None, None] * (pt.eye(k - 1, dtype="float64") + 1.0))
    zero = pt.zeros(noise.shape[0], dtype="float64")
    rows = pt.stack([chosen.shape[0], k - 1])
    return RowGraphs(predictor, rows, zero, pt.full_like(zero, np.inf), noise)


def rows_of(rv: Any, values: Any) -> tuple[Likelihood, RowGraphs] | None:
    """A variable's likelihood and rows, where it is one of these."""
    shape = pt.stack(list(values.shape)) if values.type.ndim else pt.zeros(0, "int64")
    for likelihood in LIKELIHOODS:
        if isinstance(rv.owner.op, likelihood.ops):
            rows = likelihood.rows(rv, values, shape)
            return None if rows is None else (likelihood, rows)
    return None
