"""A function from a predictor to a PyMC distribution, as a checked graph of log p(y_i | eta_i)."""

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any, NamedTuple

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import CategoricalRV
from pytensor.tensor.variable import TensorVariable

from pymc_skewgp._errors import NotSitesError
from pymc_skewgp._model.gp.functions import Point, as_value, is_random
from pymc_skewgp._model.graph.entrywise import Coupling, coupling
from pymc_skewgp._model.graph.observed import distribution_name
from pymc_skewgp._model.graph.parameter_checks import checked_by_entry
from pymc_skewgp._model.ops.double_precision import doubles, in_double

# From a vector of predictors to an unnamed distribution of as many values.
Distribution = Callable[[TensorVariable], Any]
_EXAMPLE = "lambda eta: pm.Poisson.dist(pm.math.exp(eta))"
_SEVERAL = (
    "write several functions as a model, each by gp.prior(name, X, reparameterize=True), which "
    "pm.sample draws by NUTS, or as one with pm.gp.cov.Coregion where a row is about one of them."
)


class DistributionGraph(NamedTuple):
    """A distribution of n values given n predictors.

    Attributes
    ----------
    eta : TensorVariable, shape (n,)
        Predictors.
    y : TensorVariable, shape (n,)
        Values.
    variable : TensorVariable, shape (n,)
        The random variable.
    log_prob : TensorVariable, shape (n,)
        Entry i depends on entries i of `eta` and `y`.
    doubt : Coupling or None
        An operation of which it is not known whether it keeps entries apart.
    random, parameters : tuple of TensorVariable
        Random variables that it depends on, and the inputs in their place.
    """

    eta: Any
    y: Any
    variable: Any
    log_prob: Any
    doubt: Coupling | None
    random: tuple[Any, ...] = ()
    parameters: tuple[Any, ...] = ()

    @property
    def name(self) -> str:
        """What PyMC calls the distribution."""
        return distribution_name(self.variable)


def distribution_graph(distribution: Distribution, n: int, point: Point) -> DistributionGraph:
    """The distribution of `n` values, its random hyperparameters replaced by values in `point`.

    Raises
    ------
    TypeError
        For what is no unnamed PyMC distribution.
    ValueError
        For another shape, or a hyperparameter without a value.
    NotSitesError
        Where the log probability is not a sum of functions of one predictor each.
    """
    eta: Any = pt.tensor("eta", dtype="float64", shape=(n,))
    with doubles():
        variable = _without_hyperparameters(_called(distribution, eta), point, eta)
        return _checked(variable, eta, n)


def parametric_graph(distribution: Distribution, n: int) -> DistributionGraph:
    """The same with inputs in place of random hyperparameters.

    Raises
    ------
    TypeError, ValueError, NotSitesError
        As `distribution_graph`.
    """
    eta: Any = pt.tensor("eta", dtype="float64", shape=(n,))
    with doubles():
        variable = _called(distribution, eta)
        named = {v for v in ancestors([variable]) if is_random(v) and v.name} - {variable}
        nearest = set(ancestors([variable], blockers=named))
        random = tuple(sorted(named & nearest, key=lambda v: v.name))
        parameters = tuple(v.type(name=v.name) for v in random)
        if random:
            replace = dict(zip(random, parameters, strict=True))
            variable = graph_replace([variable], replace, strict=False)[0]
        found = _checked(variable, eta, n)
    return found._replace(random=random, parameters=parameters)


def _checked(variable: Any, eta: Any, n: int) -> DistributionGraph:
    _refuse_other_shapes(variable, n)
    y = pt.tensor("y", dtype=variable.dtype, shape=(n,))
    log_prob = _log_prob(variable, y)
    name = distribution_name(variable)
    if log_prob.type.ndim != 1:
        raise NotSitesError(
            f"{name} is one joint distribution of all {n} values: its log probability has shape "
            f"{log_prob.type.shape}, not one number for each.",
            "Sites are for values that are independent given their predictors.",
        )
    if eta not in ancestors([log_prob]):
        raise NotSitesError(
            f"the distribution {name} does not depend on the predictor that the function was "
            "called with."
        )
    log_prob = checked_by_entry(log_prob, eta)
    found = coupling(log_prob, eta)
    if found is not None and found.certain:
        raise coupled(name, found.operation)
    return DistributionGraph(eta, y, variable, log_prob, found)


def coupled(name: str, operation: str) -> NotSitesError:
    """That entries of the predictor are not apart."""
    return NotSitesError(
        f"the likelihood {name} does not factorise over the entries of the predictor: {operation} "
        "couples them.",
        "Each observation may depend on its own entry of the predictor alone.",
    )


def _called(distribution: Distribution, eta: Any) -> Any:
    """What the function returns, a random variable without a name."""
    _refuse_several_functions(distribution)
    with pm.Model(model=None) as apart:  # named variables must not end in the user's model
        try:
            variable = distribution(eta)
        except Exception as error:
            raise ValueError(
                f"the likelihood failed for a predictor of shape {eta.type.shape}, one entry for "
                f"each row of X: {error}"
            ) from error
    if apart.basic_RVs or apart.potentials:
        named = ", ".join(v.name for v in [*apart.basic_RVs, *apart.potentials])
        raise TypeError(
            f"the likelihood must return a distribution without a name, found {named}: write "
            f"{_EXAMPLE}."
        )
    if isinstance(variable, TensorVariable) and any(is_random(v) for v in ancestors([variable])):
        return variable
    found = f"an object of type {type(variable).__name__}"
    if isinstance(variable, TensorVariable):
        found = f"the result of {variable.owner.op if variable.owner else variable}, not random"
    raise TypeError(
        f"the likelihood must return a PyMC distribution, got {found}: write {_EXAMPLE}."
    )


def _refuse_several_functions(distribution: Distribution) -> None:
    try:
        known = signature(distribution).parameters.values()
    except (TypeError, ValueError):  # it does not say what it takes
        return
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    needed = [x.name for x in known if x.default is Parameter.empty and x.kind in positional]
    if len(needed) > 1:
        raise TypeError(
            f"the likelihood takes {len(needed)} predictors, {', '.join(needed)}, and is called "
            f"with one, of one function: {_SEVERAL}"
        )


def _without_hyperparameters(variable: Any, point: Point, eta: Any) -> Any:
    """The variable with values for those of a model that it depends on."""
    own = (variable, eta)  # a hyperparameter may have their names
    given = [v for v in ancestors([variable]) if v.name in point and v not in own]
    values = {v: as_value(v, point[v.name]) for v in given if isinstance(v, TensorVariable)}
    if values:
        variable = graph_replace([variable], values, strict=False)[0]
    missing = sorted({v.name for v in ancestors([variable]) if is_random(v) and v.name})
    if missing:
        raise ValueError(
            f"the likelihood depends on the random variable(s) {', '.join(missing)} of a model: "
            f"give values, as in point={{{missing[0]!r}: 1.0}}, or write the likelihood as an "
            "observed variable of that model, with f from gp.prior, and use pm.sample."
        )
    return variable


def _refuse_other_shapes(variable: Any, n: int) -> None:
    shape = variable.type.shape
    if isinstance(getattr(variable.owner, "op", None), CategoricalRV) and variable.type.ndim != 1:
        raise ValueError(
            f"Categorical needs the probabilities of all classes in each of {n} rows, which are "
            "not a function of one predictor: use sg.likelihoods.MultinomialProbit() for classes, "
            f"OrderedLogit or OrderedProbit for ordered ones. Or else: {_SEVERAL}"
        )
    if variable.type.ndim != 1 or shape[0] not in (None, n):
        raise ValueError(
            f"the likelihood must be a distribution of shape ({n},), one value for each row of X; "
            f"{distribution_name(variable)} has {variable.type.ndim} dimension(s), shape {shape}."
        )


def _log_prob(variable: Any, y: Variable) -> Any:
    name = distribution_name(variable)
    try:
        log_prob = pm.logp(variable, y, warn_rvs=False)
    except Exception as error:  # NotImplementedError, and what its many rules raise
        raise NotSitesError(
            f"PyMC has no log probability for the distribution {name}: {error}",
            "Give one, as in pm.CustomDist.dist(eta, logp=...).",
        ) from error
    if any(is_random(v) for v in ancestors([log_prob])):
        raise NotSitesError(
            f"the log probability of {name} depends on another random variable.",
            "Every parameter must be a number, or a function of the predictor.",
        )
    return in_double([log_prob])[0]
