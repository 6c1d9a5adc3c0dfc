"""What observes a block: rows where recognised, else factors log p(y_i | eta_i).

What is found is proven by the graph of the log probability: the last expression that is affine in
the latent variables, that all their ways to the log probability lead through, and whose entries
are kept apart from there on.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.distribution import PartialObservedRV
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import MergeOptimizer
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.graph.utils import MethodNotDefined
from pytensor.tensor.random.basic import BernoulliRV

from pymc_skewgp._errors import NotConjugateError, NotSitesError
from pymc_skewgp._model.gp.functions import is_random
from pymc_skewgp._model.graph import affine, entrywise, likelihoods
from pymc_skewgp._model.graph.initial_point import inputs_at_start
from pymc_skewgp._model.graph.members import first_quadratic, known_shape, log_density_of
from pymc_skewgp._model.ops.plain_mode import in_double, plain_function

# Observations of a SkewGP variable, and what in a model is in the way of an exact step.

_REPARAMETERIZE = "Make {} with SkewGP.prior(..., reparameterize=True), which NUTS samples well."


class NoObservationsError(NotConjugateError, NotSitesError):
    """A variable stands alone: a distribution to sample, whose posterior nothing shapes."""


class NoRowsError(NotConjugateError):
    """An observed variable is of no kind that is rows."""


class Observed(NamedTuple):
    """One observed variable as rows.

    Attributes
    ----------
    name : str
    likelihood : Likelihood
    rows : RowGraphs
        Graphs of the model's random variables; in a `BlockGraph` of value variables.
    values : TensorVariable
        The data.
    A, a : TensorVariable, shape (m, p) and (m,)
        The predictor is A f + a, f being the vector of a block; None without one.
    predictor : TensorVariable, shape (m,)
        That, of the values of a block; None without one.
    """

    name: str
    likelihood: likelihoods.Likelihood
    rows: likelihoods.RowGraphs
    values: Any
    A: Any = None
    a: Any = None
    predictor: Any = None

    def why_not_rows(self, used: Sequence[Any]) -> str | None:
        """What keeps it from being rows that are affine in variables; None where it is."""
        rest = [x for x in self.rows.graphs if x is not self.rows.predictor]
        for rv in used:
            if affine.uses_values(rest, rv, []):
                what = "noise, lapses" if self.rows.mixture else "noise"
                return f"the {what} or the limits of {self.name} depend on {rv.name}."
        operation = affine.why_not_affine(self.rows.predictor, used)
        if operation is None:
            return None
        return (
            f"the {self.likelihood.name} predictor of {self.name} is not known to be affine in "
            f"{' and '.join(rv.name for rv in used)}: {operation} is in between."
        )


def distribution_name(variable: Any) -> str:
    """What PyMC calls the distribution of a random variable."""
    op = variable.owner.op
    if isinstance(op, PartialObservedRV):
        return f"{distribution_name(variable.owner.inputs[0])} with masked entries"
    name: str = getattr(op, "_print_name", (type(op).__name__.removesuffix("RV"),))[0]
    return name


def as_rows(model: pm.Model, other: Any, used: Sequence[Any]) -> Observed:
    """A variable, or potential, that depends on `used` as an observed one that is rows of them.

    Raises
    ------
    NotConjugateError
        The message names what is in the way, and the way out.
    """
    name = " and ".join(rv.name for rv in used)
    otherwise = _REPARAMETERIZE.format(name)
    if other in model.potentials:
        raise NotConjugateError(f"the potential {other.name} depends on {name}.", otherwise)
    if other in model.free_RVs:
        raise not_observed(used[0], other)
    found = recognised(model, other)
    if found is not None:
        reason = found.why_not_rows(used)
        if reason is not None:
            raise NotConjugateError(reason, otherwise)
        return found
    remedy = f"For labels 0 and 1 use BernoulliProbit. For other data: {otherwise}"
    if isinstance(other.owner.op, PartialObservedRV):
        remedy = "Leave them out: the mean and the covariance of those seen."
    link = " without the probit link" if isinstance(other.owner.op, BernoulliRV) else ""
    known = ", ".join(x.variables for x in likelihoods.LIKELIHOODS)
    raise NoRowsError(
        f"{other.name}, which depends on {name}, is {distribution_name(other)}{link}; the "
        f"exact step is for predictors affine in {name} under one of these: {known}.",
        remedy,
    )


def not_observed(rv: Any, other: Any) -> NotConjugateError:
    """That a variable which depends on `rv` is in the way of rows."""
    return NotConjugateError(
        f"{other.name}, which depends on {rv.name}, is not observed.",
        "Where it is a prediction, add it to the model after pm.sample, for "
        f"pm.sample_posterior_predictive. Otherwise: {_REPARAMETERIZE.format(rv.name)}",
    )


def is_prediction(model: pm.Model, rv: Any) -> bool:
    """Whether a variable is free and nothing observed depends on it: masked data, or a prediction.

    It says nothing of what it depends on, and is drawn from its distribution given that.
    """
    below = children(model, rv) if rv in model.free_RVs else [rv]
    return all(x is not rv and is_prediction(model, x) for x in below)


def predictions_of(model: pm.Model, members: Sequence[Any]) -> list[Any]:
    """Predictions that depend on `members`, at any depth, and variables of them alone."""
    found: list[Any] = []
    below = [x for rv in members for x in children(model, rv)]
    while below:
        rv = below.pop()
        if rv not in found and rv not in members and is_prediction(model, rv):
            found.append(rv)
            below += children(model, rv)
    grows = bool(found)
    while grows:
        others = [x for x in model.free_RVs if x not in found and x not in members]
        own = [x for x in others if (kids := children(model, x)) and set(kids) <= set(found)]
        found, grows = found + own, bool(own)
    return [x for x in model.free_RVs if x in found]


def children(model: pm.Model, rv: Any) -> list[Any]:
    """Variables and potentials of the model that depend on `rv`, with no other in between."""
    found = []
    for other in [*model.basic_RVs, *model.potentials]:
        blockers = [v for v in model.basic_RVs if v is not other]
        inputs = [] if other is rv or other.owner is None else other.owner.inputs
        if affine.uses_values(inputs, rv, blockers):
            found.append(other)
    return found


def recognised(model: pm.Model, other: Any) -> Observed | None:
    """An observed variable with a known likelihood, None for any other."""
    if other not in model.observed_RVs:
        return None
    values = model.rvs_to_values[other]
    found = likelihoods.rows_of(other, values)
    if found is None:
        return None
    likelihood, rows = found
    return Observed(other.name, likelihood, rows.mapped(in_double), values)


_REMEDY = "Leave it to NUTS, with SkewGP.prior(..., reparameterize=True)."


class ObservedSites(NamedTuple):
    """One observed variable as m sites log p(y_i | eta_i), graphs of value variables.

    Of K predictors those of one observation come after those of another: eta, A and a have m K
    entries then.

    Attributes
    ----------
    name : str
        Of the observed variable.
    predictor : TensorVariable
        What eta is, affine in members of a block.
    shape : TensorVariable, shape (d,)
        What the predictor is broadcast to, d known.
    eta : TensorVariable, shape (m,)
        The input of `log_prob`.
    log_prob : TensorVariable, shape (m,)
        Entry i depends on entry i of `eta`, on the data, and on hyperparameters.
    values : TensorVariable
        The data.
    hyperparameters : list of TensorVariable
        Value variables of other free variables that the predictor or `log_prob` depend on.
    width : int
        Number K of predictors of each.
    gaussian_in : int or None
        Which of several the log probability is quadratic in, given the others.
    is_coupled : bool
        Whether it is one log density of all observations, or a potential, m being 1.
    A, a : TensorVariable, shape (m, p) and (m,)
        As of `Observed`.
    """

    name: str
    predictor: Any
    shape: Any
    eta: Any
    log_prob: Any
    values: Any
    hyperparameters: list[Any]
    width: int = 1
    gaussian_in: int | None = None
    is_coupled: bool = False
    A: Any = None
    a: Any = None

    @property
    def parameters(self) -> tuple[Any, ...]:
        """Those of `hyperparameters` that the log probability depends on."""
        used = set(graph_inputs([self.log_prob]))
        return tuple(x for x in self.hyperparameters if x in used)


class _Split(NamedTuple):
    """A log probability as a function of its predictors, and the inputs in their places."""

    predictors: list[Any]
    etas: list[Any]
    log_prob: Any


def sites_of(
    model: pm.Model, rv: Any, members: Sequence[Any], *, several: bool = False
) -> ObservedSites:
    """An observed variable of a model as sites.

    Parameters
    ----------
    model : pymc.Model
    rv : TensorVariable
        An observed variable; one with missing values is the part that is observed.
    members : sequence of TensorVariable
        Latent variables that the predictor is to be affine in.
    several : bool
        Whether an observation may have several predictors, where one is not enough.

    Raises
    ------
    NotSitesError
        The message names what is in the way.
    """
    chosen = [x for x in model.free_RVs if x in members]
    split = _split(model, rv, _log_prob(model, rv), chosen, several)
    values = model.rvs_to_values[rv]
    shape = pt.stack(list(values.shape)[: split.log_prob.type.ndim] or [1])
    predictor, k, whole = split.predictors[0], len(split.predictors), shape
    if k > 1:
        predictor = pt.stack([pt.broadcast_to(x, shape) for x in split.predictors], axis=-1)
        whole = pt.concatenate([shape, [k]])
    eta = pt.tensor("eta", dtype="float64", shape=(None,))
    each = {x: eta if k == 1 else eta[i::k] for i, x in enumerate(split.etas)}
    ndim = split.log_prob.type.ndim
    if ndim != 1:
        each = {x: own.reshape(shape, ndim=ndim) if ndim else own[0] for x, own in each.items()}
    log_prob = entrywise.rebuilt(split.log_prob, each)
    log_prob = pt.broadcast_to(log_prob, shape).ravel()
    own = [model.rvs_to_values[x] for x in chosen]
    others = _hyperparameters(model, [predictor, log_prob], own)
    place = first_quadratic(split.log_prob, split.etas) if k > 1 else None
    return ObservedSites(rv.name, predictor, whole, eta, log_prob, values, others, k, place)


# Entries of members that one log density may see: it has a matrix of second derivatives in them.
MOST_COUPLED = 300


def coupled_sites_of(model: pm.Model, variable: Any, members: Sequence[Any]) -> ObservedSites:
    """An observed variable, or a potential, as one function of all entries of members.

    Raises
    ------
    NotSitesError
        Where there are too many of these, or PyTensor cannot differentiate the log density.
    """
    chosen = [x for x in model.free_RVs if x in members]
    shapes = [known_shape(x) for x in chosen]
    sizes = [prod(shape) for shape in shapes]
    size = sum(sizes)
    if size > MOST_COUPLED:
        raise NotSitesError(
            f"{variable.name} couples {size} entries of {' and '.join(x.name for x in chosen)}; "
            f"one log density of at most {MOST_COUPLED} is integrated.",
            "Use pm.sample.",
        )
    if variable in model.potentials:
        (log_prob,) = in_double(model.replace_rvs_by_values([variable]))
    else:
        log_prob = _log_prob(model, variable)
    total = log_prob.sum()
    values = [model.rvs_to_values[x] for x in chosen]
    try:
        pytensor.grad(total, values)
    except (NotImplementedError, TypeError, ValueError, MethodNotDefined) as error:
        raise NotSitesError(
            f"PyTensor cannot differentiate the log density of {variable.name}: {error}",
            "Use pm.sample.",
        ) from error
    predictor = pt.concatenate([x.ravel() for x in values])
    eta = pt.tensor("eta", dtype="float64", shape=(size,))
    ends = pairwise(accumulate(sizes, initial=0))
    pieces = [eta[i:j].reshape(own) for (i, j), own in zip(ends, shapes, strict=True)]
    log_prob = entrywise.rebuilt(total, dict(zip(values, pieces, strict=True)))[None]
    others, nothing = _hyperparameters(model, [log_prob], values), pt.constant(np.zeros(1))
    own = predictor, pt.stack([predictor.shape[0]]), eta, log_prob, nothing, others, size
    return ObservedSites(variable.name, *own, is_coupled=True)


def _hyperparameters(model: pm.Model, graphs: list[Any], own: list[Any]) -> list[Any]:
    """Value variables of free variables that graphs depend on, but for `own`."""
    used = set(graph_inputs(graphs))
    return [
        v
        for x, v in model.rvs_to_values.items()
        if x in model.free_RVs and v in used and v not in own
    ]


def _log_prob(model: pm.Model, rv: Any) -> Any:
    """Log probability of the data, a graph of value variables."""
    if isinstance(rv.owner.op, PartialObservedRV):
        raise NotSitesError(
            f"{rv.name} is {distribution_name(rv)}, of which the log probability is not known "
            "entry by entry.",
            "Leave out the rows whose data are masked.",
        )
    try:
        log_prob = log_density_of(model, rv)
    except Exception as error:  # NotImplementedError, and what its many rules raise
        raise NotSitesError(
            f"PyMC has no log probability for {rv.name}, a {distribution_name(rv)} variable: "
            f"{error}"
        ) from error
    if any(is_random(v) for v in ancestors([log_prob])):
        raise NotSitesError(
            f"the log probability of {rv.name} depends on a random variable that the model does "
            "not know.",
            "Give it a name in the model.",
        )
    (found,) = in_double([log_prob])
    return _once(found)


def _once(graph: Any) -> Any:
    """The same graph with equal expressions computed once, as one predictor of two components."""
    inputs = [x for x in graph_inputs([graph]) if not isinstance(x, Constant)]
    whole = FunctionGraph(inputs, [graph], clone=True, copy_inputs=False)
    MergeOptimizer().rewrite(whole)
    return whole.outputs[0]


def _split(model: pm.Model, rv: Any, log_prob: Any, members: list[Any], several: bool) -> _Split:
    """The log probability at its predictor, which is affine in `members`."""
    xs = [model.rvs_to_values[x] for x in members]
    data = model.rvs_to_values[rv]
    name = f"{rv.name}, a {distribution_name(rv)} variable,"
    names = " and ".join(x.name for x in members)
    if log_prob.type.ndim < data.type.ndim:
        some = "several" if log_prob.type.ndim else "all"
        wrong = f"is one number for {some} observations, so they are not independent given"
        raise NotSitesError(f"the log probability of {name} {wrong} {names}.", _REMEDY)
    found = _at_predictor(log_prob, xs, data)
    if isinstance(found, _Split):
        return found
    lifted = affine.lifted_layout(log_prob, xs)
    later = _at_predictor(lifted, xs, data)
    if isinstance(later, _Split):
        return later
    for graph in (log_prob, lifted) if several else ():
        split = _at_predictors(model, graph, xs, data)
        if split is not None:
            return split
    reason = found or later
    if reason is None:
        raise NotSitesError(
            f"the log probability of {name} depends on {names} by no one predictor that is affine "
            f"in {names} and has an entry for each observation: "
            f"{affine.why_not_affine(log_prob, xs)} is in between, or observations see several "
            "predictors, as means of a mixture's parts.",
            _REMEDY,
        )
    how = "couples them" if reason.certain else "is not known to keep them apart"
    raise NotSitesError(
        f"the log probability of {name} does not factorise over the entries of a predictor affine "
        f"in {names}: {reason.operation} {how}.",
        _REMEDY,
    )


def _at_predictor(log_prob: Any, xs: list[Any], data: Any) -> _Split | entrywise.Coupling | None:
    """The split at the best predictor, or what is in the way."""
    reason, best = None, None
    for predictor in _narrows(log_prob, xs, data):
        if not _stretches(predictor, log_prob) or data in ancestors([predictor]):
            continue
        eta = pt.tensor("eta", dtype="float64", shape=log_prob.type.shape)
        try:
            own = entrywise.checked_by_entry(entrywise.rebuilt(log_prob, {predictor: eta}), eta)
        # Of another length, which its type may not say, or of length 1 and dropped: not of rows.
        except (TypeError, ValueError, IndexError):
            continue
        found = entrywise.coupling(own, eta)
        if found is not None:
            reason = reason or found
            continue
        split = _Split([predictor], [eta], own)
        # Where the predictor is the variable itself no design matrix is needed.
        if len(xs) == 1 and affine.stays_in_place(predictor, xs[0]):
            return split
        best = best or split
    return best or reason


# Predictors of one observation at most.
_MOST = 32


def _at_predictors(model: pm.Model, log_prob: Any, xs: list[Any], data: Any) -> _Split | None:
    """The split at several predictors, the last expressions that are affine; None without any."""
    found = _last_affine(log_prob, xs, data)
    ndim = log_prob.type.ndim
    for axis in (-1, 0):  # that of a matrix of predictors along which one observation has several
        predictors: list[Any] = []
        others = {}
        for own in found:
            columns = [own] if own.type.ndim <= ndim else _columns(model, own, axis)
            etas = [pt.tensor("eta", dtype="float64", shape=log_prob.type.shape) for _ in columns]
            others[own] = pt.stack(etas, axis) if own.type.ndim > ndim else etas[0]
            predictors += zip(columns, etas, strict=True)
        if not 1 < len(predictors) <= _MOST:
            return None
        columns, etas = (list(x) for x in zip(*predictors, strict=True))
        try:
            whole = entrywise.rebuilt(log_prob, others)
            for eta in etas:
                whole = entrywise.checked_by_entry(whole, eta)
        except (ValueError, TypeError):  # of lengths that do not fit
            continue
        if not any(affine.uses_values([whole], x, []) for x in xs) and all(
            entrywise.coupling(whole, eta) is None for eta in etas
        ):
            return _Split(columns, etas, whole)
    return None


def _columns(model: pm.Model, matrix: Any, axis: int) -> list[Any]:
    """Along an axis of the length that it has where the model begins."""
    n = matrix.type.shape[axis]
    if n is None:
        inputs, start = inputs_at_start(model, [matrix.shape[axis]])
        n = int(plain_function(inputs, matrix.shape[axis])(*start))
    return [matrix[..., i] if axis == -1 else matrix[i] for i in range(n)]


def _affine_expressions(graph: Any, xs: Sequence[Any], data: Any) -> dict[Any, bool]:
    """Expressions on the way from `xs` to a graph, and which are affine in these, without data."""
    beside = {v for node, _ in affine.followed([graph], [data]) for v in node.outputs}
    found = dict.fromkeys(xs, True)
    for node, places in affine.followed([graph], xs):
        kept = all(found[node.inputs[i]] for i in places) and affine.keeps_affine(node, places)
        found |= dict.fromkeys(node.outputs, kept and beside.isdisjoint(node.outputs))
    return found


def _last_affine(graph: Any, xs: list[Any], data: Any) -> list[Any]:
    """Affine expressions beyond which no way from `xs` to a graph is."""
    is_affine = _affine_expressions(graph, xs, data)
    found: list[Any] = []
    for node, places in affine.followed([graph], xs):
        if not is_affine[node.outputs[0]]:
            own = [node.inputs[i] for i in places]
            found += [v for v in own if is_affine[v] and v not in found]
    # What the others determine is computed from them, as 3 f + g or inf - f.
    for v in list(found):
        others = [x for x in found if x is not v]
        free = [x for x in xs if x not in others]
        if others and not any(affine.uses_values([v], x, others) for x in free):
            found = others
    return found


def _stretches(predictor: Any, log_prob: Any) -> bool:
    """Whether the predictor may have, or be broadcast to, an entry for each observation."""
    if predictor.type.ndim != log_prob.type.ndim:
        return False
    lengths = zip(predictor.type.shape, log_prob.type.shape, strict=True)
    return all(own == 1 or whole in (None, own) or own is None for own, whole in lengths)


def _narrows(graph: Any, xs: Sequence[Any], data: Any) -> list[Any]:
    """Affine expressions that all ways from `xs` to `graph` lead through, the last one first."""
    expressions = [v for v, kept in _affine_expressions(graph, xs, data).items() if kept]
    return [
        v
        for v in reversed(expressions)
        if not affine.followed([graph], [x for x in xs if x is not v], [v])
    ]
