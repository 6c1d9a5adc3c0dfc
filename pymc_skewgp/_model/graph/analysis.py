"""What a PyMC model's graph says of a SkewGP variable, for steps and for learning alike.

Its parameters and its observations as graphs of value variables, the hyperparameters that they
depend on, and which other variables the density of the model has.
"""

from typing import Any, NamedTuple

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.random.basic import BernoulliRV
from pytensor.tensor.random.op import RNGConsumerOp

from pymc_skewgp._errors import NotConjugateError
from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormalRV
from pymc_skewgp._model.graph.affine import affine_coefficients, uses_values, why_not_affine
from pymc_skewgp._model.graph.likelihoods import LIKELIHOODS
from pymc_skewgp._model.graph.likelihoods.likelihood import Likelihood, RowGraphs
from pymc_skewgp._sun.parameters import SunParameters

_CORE_NDIMS = (1, 2, 2, 1, 2)  # of the parameters of one unified skew-normal vector
_REPARAMETERIZE = "Make {} with SkewGP.prior(..., reparameterize=True), which NUTS samples well."


class NoObservationsError(NotConjugateError):
    """A variable stands alone: a distribution to sample, whose posterior nothing shapes."""


class Observed(NamedTuple):
    """One observed variable, as it stands in the model.

    Attributes
    ----------
    name : str
    likelihood : Likelihood
    rows : RowGraphs
        Graphs of the model's random variables.
    values : TensorVariable
        The data.
    """

    name: str
    likelihood: Likelihood
    rows: RowGraphs
    values: Any


class ObservedRows(NamedTuple):
    """One observed variable as rows v = A f + a + e, e ~ N(0, S), graphs of value variables.

    Attributes
    ----------
    name : str
    likelihood : Likelihood
    values : TensorVariable
        The data.
    A : TensorVariable, shape (m, p), or None
        None where eta is f plus the offset, entry by entry.
    a, lower, upper : TensorVariable, shape (m,)
    S : TensorVariable, shape (m,) or (m, m)
    value : TensorVariable, shape (m,), or None
    log_constant : TensorVariable, shape (), or None
        See `RowGraphs`.
    """

    name: str
    likelihood: Likelihood
    values: Any
    A: Any
    a: Any
    lower: Any
    upper: Any
    S: Any
    value: Any
    log_constant: Any

    @property
    def graphs(self) -> list[Any]:
        """What the rows are computed from, but for the data."""
        found = (self.A, self.a, self.lower, self.upper, self.S, self.value)
        return [graph for graph in found if graph is not None]


class LatentGraph(NamedTuple):
    """A SkewGP variable f in its model, as graphs of value variables.

    Attributes
    ----------
    name : str
    prior : SunParameters
    n_latent : int or None
        Latent dimensions of the prior, where they are known before any evaluation.
    observed : list of ObservedRows
    hyperparameters : list of TensorVariable
        Values of the continuous free variables that the prior depends on. Other SkewGP variables
        are not among them: they have steps of their own.
    rest : list of TensorVariable
        All variables and potentials of the model but f and its observations: with f integrated
        out, what the density has besides the evidence.
    """

    name: str
    prior: SunParameters
    n_latent: int | None
    observed: list[ObservedRows]
    hyperparameters: list[Any]
    rest: list[Any]


def find_observed(model: pm.Model, rv: Any) -> list[Observed]:
    """Observations of a unified skew-normal variable, where it has no other children.

    Parameters
    ----------
    model : pymc.Model
    rv : TensorVariable
        A free random variable of it.

    Returns
    -------
    list of Observed
        Each has one of the `LIKELIHOODS`, and its `predictor` is affine in `rv`.

    Raises
    ------
    NotConjugateError
        The message names the first thing that is in the way, and the way out.
    """
    name = getattr(rv, "name", None)
    if rv not in model.free_RVs:
        raise NotConjugateError(f"{name} is not a free random variable of the model.")
    _refuse_other_functions(model, rv)
    found = []
    for other in [*model.basic_RVs, *model.potentials]:
        if other is not rv and _depends_directly(other, rv, model):
            found.append(_as_observed(model, rv, other))
    if not found:
        raise NoObservationsError(
            f"{name} has no observations.",
            "Its prior is drawn by pm.sample_prior_predictive; data belong into BernoulliProbit.",
        )
    return found


def analyse(model: pm.Model, rv: Any) -> LatentGraph:
    """All that the model says of a unified skew-normal variable.

    Raises
    ------
    NotConjugateError
        See `find_observed`.
    """
    found = find_observed(model, rv)
    # Values first: what follows copies graphs, and a copy of a random variable is another one.
    parameters = model.replace_rvs_by_values(list(rv.owner.op.dist_params(rv.owner)))
    origin = pt.zeros_like(parameters[0], dtype=rv.dtype)
    f = model.rvs_to_values[rv]
    rows = [_observed_rows(model, y, f, origin) for y in found]
    graphs = [graph for y in rows for graph in y.graphs]
    _refuse_randomness(rv.name, [*parameters, *graphs])
    own = {rv.name, *(y.name for y in rows)}
    return LatentGraph(
        rv.name,
        SunParameters(*parameters),
        latent_dimensions(parameters),
        rows,
        _hyperparameters(model, parameters),
        [other for other in [*model.basic_RVs, *model.potentials] if other.name not in own],
    )


def _observed_rows(model: pm.Model, y: Observed, f: Any, origin: Any) -> ObservedRows:
    """Rows of the value variable `f`; `origin` are zeros that take its place."""
    rows = y.rows
    known = [graph for graph in rows if graph is not None]
    replaced = iter(model.replace_rvs_by_values(known))
    rows = RowGraphs(*(None if graph is None else next(replaced) for graph in rows))
    A, a = affine_coefficients(rows.predictor, f, origin, rows.shape)
    limits = rows.lower, rows.upper, rows.noise, rows.value, rows.log_constant
    return ObservedRows(y.name, y.likelihood, y.values, A, a, *limits)


def latent_dimensions(parameters: Any) -> int | None:
    """Number of latent dimensions, where one of the parameters says it."""
    *_, cross_cov, truncation, latent_cov = parameters
    sizes = [x.type.shape[-1] for x in (latent_cov, truncation, cross_cov)]
    return next((size for size in sizes if size is not None), None)


def distribution_name(variable: Any) -> str:
    """What PyMC calls the distribution of a random variable."""
    op = variable.owner.op
    name: str = getattr(op, "_print_name", (type(op).__name__.removesuffix("RV"),))[0]
    return name


def _hyperparameters(model: pm.Model, parameters: list[Any]) -> list[Any]:
    upstream = set(graph_inputs(parameters))
    return [
        value
        for other, value in model.rvs_to_values.items()
        if value in upstream
        and other in model.free_RVs
        and value.dtype.startswith("float")
        and not isinstance(other.owner.op, UnifiedSkewNormalRV)
    ]


def _refuse_other_functions(model: pm.Model, rv: Any) -> None:
    if not isinstance(rv.owner.op, UnifiedSkewNormalRV):
        raise NotConjugateError(
            f"{rv.name} is a {distribution_name(rv)} variable; ConjugateStep and LinESS sample "
            "latent functions made by SkewGP.prior or UnifiedSkewNormal."
        )
    parameters = rv.owner.op.dist_params(rv.owner)
    if rv.type.ndim != 1 or tuple(p.type.ndim for p in parameters) != _CORE_NDIMS:
        raise NotConjugateError(
            f"{rv.name} has batch dimensions: its {rv.type.ndim} are too many.",
            "Make a variable of each vector.",
        )
    if model.rvs_to_transforms[rv] is not None:
        raise NotConjugateError(f"{rv.name} has a transform.", "Leave transform out.")


def _as_observed(model: pm.Model, rv: Any, other: Any) -> Observed:
    """A variable that depends on `rv` as an observed one with a known likelihood."""
    otherwise = _REPARAMETERIZE.format(rv.name)
    if other in model.potentials:
        raise NotConjugateError(f"the potential {other.name} depends on {rv.name}.", otherwise)
    if other in model.free_RVs:
        raise _not_observed(model, rv, other)
    values = model.rvs_to_values[other]
    for likelihood in LIKELIHOODS:
        rows = likelihood.rows(other, values)
        if rows is None:
            continue
        _refuse_other_places(other, rows, rv)
        operation = why_not_affine(rows.predictor, rv)
        if operation is not None:
            raise NotConjugateError(
                f"the {likelihood.name} predictor of {other.name} is not known to be affine in "
                f"{rv.name}: {operation} is in between.",
                otherwise,
            )
        return Observed(other.name, likelihood, rows, values)
    link = " without the probit link" if isinstance(other.owner.op, BernoulliRV) else ""
    known = ", ".join(x.variables for x in LIKELIHOODS)
    raise NotConjugateError(
        f"{other.name}, which depends on {rv.name}, is {distribution_name(other)}{link}; the "
        f"exact step is for predictors affine in {rv.name} under one of these: {known}.",
        f"For labels 0 and 1 use BernoulliProbit. For other data: {otherwise}",
    )


def _refuse_other_places(other: Any, rows: RowGraphs, rv: Any) -> None:
    """The function may enter the predictor alone."""
    rest = [x for x in rows if x is not None and x is not rows.predictor]
    if uses_values(rest, rv, []):
        raise NotConjugateError(
            f"the noise or the limits of {other.name} depend on {rv.name}.",
            _REPARAMETERIZE.format(rv.name),
        )


def _not_observed(model: pm.Model, rv: Any, other: Any) -> NotConjugateError:
    whole, _, ending = other.name.rpartition("_")
    if ending == "unobserved" and f"{whole}_observed" in model.named_vars:
        return NotConjugateError(
            f"{whole}, which depends on {rv.name}, has masked values, sampled as {other.name}.",
            f"Leave them out, as in BernoulliProbit({whole!r}, {rv.name}[seen], "
            "observed=y[seen]); pm.sample_posterior_predictive predicts them afterwards.",
        )
    return NotConjugateError(
        f"{other.name}, which depends on {rv.name}, is not observed.",
        "Where it is a prediction, add it to the model after pm.sample, for "
        f"pm.sample_posterior_predictive. Otherwise: {_REPARAMETERIZE.format(rv.name)}",
    )


def _refuse_randomness(name: str, outputs: list[Any]) -> None:
    if any(isinstance(getattr(v.owner, "op", None), RNGConsumerOp) for v in ancestors(outputs)):
        raise NotConjugateError(
            f"a parameter or predictor of {name} holds a random variable that the model does not "
            "know.",
            "Give it a name in the model, or leave the step to NUTS.",
        )


def _depends_directly(other: Variable, rv: Variable, model: pm.Model) -> bool:
    """Whether a path leads from `rv` to `other` that meets no other variable of the model."""
    if other.owner is None:
        return False
    return uses_values(other.owner.inputs, rv, [v for v in model.basic_RVs if v is not other])
