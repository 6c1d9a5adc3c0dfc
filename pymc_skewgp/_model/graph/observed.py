"""Observations of a SkewGP variable, and what in a model is in the way of an exact step."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pymc as pm
from pymc.distributions.distribution import PartialObservedRV
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import BernoulliRV

from pymc_skewgp._errors import NotConjugateError
from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormalRV
from pymc_skewgp._model.graph.affine import uses_values, why_not_affine
from pymc_skewgp._model.graph.likelihoods import LIKELIHOODS
from pymc_skewgp._model.graph.likelihoods.likelihood import Likelihood, RowGraphs
from pymc_skewgp._model.ops.double_precision import in_double

_CORE_NDIMS = (1, 2, 2, 1, 2)  # of the parameters of one unified skew-normal vector
_REPARAMETERIZE = "Make {} with SkewGP.prior(..., reparameterize=True), which NUTS samples well."


class NoObservationsError(NotConjugateError):
    """A variable stands alone: a distribution to sample, whose posterior nothing shapes."""


class NoRowsError(NotConjugateError):
    """An observed variable is of no kind that is rows."""


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
        Each has one of the `LIKELIHOODS`, and its `predictor` is affine in `rv`. Predictions are
        left out.

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
    below = children(model, rv)
    for other in below:
        if not is_prediction(model, other):
            found.append(_as_observed(model, rv, other))
    if not found and below:
        raise _not_observed(rv, below[0])
    if not found:
        raise NoObservationsError(
            f"{name} has no observations.",
            "Its prior is drawn by pm.sample_prior_predictive; data belong into BernoulliProbit.",
        )
    return found


def distribution_name(variable: Any) -> str:
    """What PyMC calls the distribution of a random variable."""
    op = variable.owner.op
    if isinstance(op, PartialObservedRV):
        return f"{distribution_name(variable.owner.inputs[0])} with masked entries"
    name: str = getattr(op, "_print_name", (type(op).__name__.removesuffix("RV"),))[0]
    return name


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
        raise _not_observed(rv, other)
    found = recognised(model, other)
    if found is not None:
        if outside_predictor(found.rows, rv):
            what = "noise, lapses" if found.rows.mixture else "noise"
            raise NotConjugateError(
                f"the {what} or the limits of {other.name} depend on {rv.name}.", otherwise
            )
        operation = why_not_affine(found.rows.predictor, [rv])
        if operation is not None:
            raise NotConjugateError(
                f"the {found.likelihood.name} predictor of {other.name} is not known to be affine "
                f"in {rv.name}: {operation} is in between.",
                otherwise,
            )
        return found
    remedy = f"For labels 0 and 1 use BernoulliProbit. For other data: {otherwise}"
    if isinstance(other.owner.op, PartialObservedRV):
        remedy = "Leave them out: the mean and the covariance of those seen."
    link = " without the probit link" if isinstance(other.owner.op, BernoulliRV) else ""
    known = ", ".join(x.variables for x in LIKELIHOODS)
    raise NoRowsError(
        f"{other.name}, which depends on {rv.name}, is {distribution_name(other)}{link}; the "
        f"exact step is for predictors affine in {rv.name} under one of these: {known}.",
        remedy,
    )


def _not_observed(rv: Any, other: Any) -> NotConjugateError:
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
    others = [other for other in [*model.basic_RVs, *model.potentials] if other is not rv]
    return [other for other in others if _depends_directly(other, rv, model)]


def recognised(model: pm.Model, other: Any) -> Observed | None:
    """An observed variable with a known likelihood, None for any other."""
    if other not in model.observed_RVs:
        return None
    values = model.rvs_to_values[other]
    for likelihood in LIKELIHOODS:
        rows = likelihood.rows(other, values)
        if rows is not None:
            rows = rows.replaced(dict(zip(rows.graphs, in_double(rows.graphs), strict=True)))
            return Observed(other.name, likelihood, rows, values)
    return None


def outside_predictor(rows: RowGraphs, rv: Any) -> bool:
    """Whether a variable enters the noise or the limits of rows."""
    rest = [x for x in rows.graphs if x is not rows.predictor]
    return uses_values(rest, rv, [])


def _depends_directly(other: Variable, rv: Variable, model: pm.Model) -> bool:
    """Whether a path leads from `rv` to `other` that meets no other variable of the model."""
    if other.owner is None:
        return False
    return uses_values(other.owner.inputs, rv, [v for v in model.basic_RVs if v is not other])
