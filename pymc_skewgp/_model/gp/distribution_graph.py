"""A function from predictors to a PyMC distribution, as a checked graph of log p(y_i | eta_i)."""

from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from functools import singledispatch
from inspect import Parameter, signature
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions import continuous, discrete
from pymc.distributions.distribution import DiracDeltaRV
from pymc.distributions.mixture import MixtureRV
from pymc.distributions.moments.means import mean as known_mean
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random import basic
from pytensor.tensor.random.basic import CategoricalRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_skewgp._errors import NotSitesError
from pymc_skewgp._model.gp.functions import is_random
from pymc_skewgp._model.graph.entrywise import Coupling, checked_by_entry, coupling
from pymc_skewgp._model.graph.members import first_quadratic
from pymc_skewgp._model.graph.sites import distribution_name
from pymc_skewgp._model.ops.plain_mode import PLAIN_LOOPS, doubles, in_double

# From one vector of predictors, or several, to an unnamed distribution of as many values.
Distribution = Callable[..., Any]
_EXAMPLE = "lambda eta: pm.Poisson.dist(pm.math.exp(eta))"
_SEVERAL = (
    "write them as arguments, a function each: "
    "lambda f, g, h: pm.Categorical.dist(logit_p=pm.math.stack([f, g, h], axis=-1))."
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
    width : int
        Number K of predictors of each value; `eta` has the shape (n K,) then.
    gaussian_in : int or None
        Which of them the log probability is quadratic in, given the others.
    """

    eta: Any
    y: Any
    variable: Any
    log_prob: Any
    doubt: Coupling | None
    random: tuple[Any, ...] = ()
    parameters: tuple[Any, ...] = ()
    width: int = 1
    gaussian_in: int | None = None

    @property
    def name(self) -> str:
        """What PyMC calls the distribution."""
        return distribution_name(self.variable)


def distribution_graph(
    distribution: Distribution, n: int, known: Container[str] = ()
) -> DistributionGraph:
    """The distribution of `n` values, with inputs in place of what has values.

    These are random hyperparameters, and whatever has one of the names that are `known`.

    Raises
    ------
    TypeError
        For what is no unnamed PyMC distribution.
    ValueError
        For another shape.
    NotSitesError
        Where the log probability is not a sum of functions of one predictor each.
    """
    k = len(predictor_names(distribution))
    etas: list[Any] = [pt.tensor("eta", dtype="float64", shape=(n,)) for _ in range(k)]
    with doubles():
        variable = _called(distribution, etas)
        # A hyperparameter may have their names.
        above = set(ancestors([variable])) - {variable, *etas}
        named = {v for v in above if v.name and (v.name in known or is_random(v))}
        nearest = set(ancestors([variable], blockers=named))
        random = tuple(sorted(named & nearest, key=lambda v: v.name))
        parameters = tuple(v.type(name=v.name) for v in random)
        if random:
            replace = dict(zip(random, parameters, strict=True))
            variable = graph_replace([variable], replace, strict=False)[0]
        y, log_prob, doubt = _checked(variable, etas, n)
        eta, place = etas[0], None
        if k > 1:
            place = first_quadratic(log_prob, etas)
            eta = pt.tensor("eta", dtype="float64", shape=(n * k,))
            each = {x: eta[i::k] for i, x in enumerate(etas)}
            variable, log_prob = graph_replace([variable, log_prob], each)
    return DistributionGraph(eta, y, variable, log_prob, doubt, random, parameters, k, place)


def _checked(variable: Any, etas: list[Any], n: int) -> tuple[Any, Any, Coupling | None]:
    """Values, their log probability, and a doubt whether it keeps entries apart."""
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
    if not set(etas).issubset(ancestors([log_prob])):
        which = "the predictor" if len(etas) == 1 else f"each of the {len(etas)} predictors"
        raise NotSitesError(
            f"the distribution {name} does not depend on {which} that the function was called with."
        )
    for eta in etas:
        log_prob = checked_by_entry(log_prob, eta)
    doubts = [found for eta in etas if (found := coupling(log_prob, eta)) is not None]
    for found in doubts:
        if found.certain:
            raise coupled(name, found.operation)
    return y, log_prob, next(iter(doubts), None)


def coupled(name: str, operation: str) -> NotSitesError:
    """That entries of the predictor are not apart."""
    return NotSitesError(
        f"the likelihood {name} does not factorise over the entries of the predictor: {operation} "
        "couples them.",
        "Each observation may depend on its own entry of the predictor alone.",
    )


def _called(distribution: Distribution, etas: list[Any]) -> Any:
    """What the function returns, a random variable without a name."""
    with pm.Model(model=None) as apart:  # named variables must not end in the user's model
        try:
            variable = distribution(*etas)
        except Exception as error:
            several = "" if len(etas) == 1 else f"{len(etas)} predictors, each "
            raise ValueError(
                f"the likelihood failed for {several or 'a predictor '}of shape "
                f"{etas[0].type.shape}, one entry for each row of X: {error}"
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


def predictor_names(distribution: Distribution) -> list[str]:
    """Names of the predictors that the function takes, an argument without a default each.

    Raises
    ------
    TypeError
        Where it takes any number of them.
    """
    try:
        known = signature(distribution).parameters.values()
    except (TypeError, ValueError):  # it does not say what it takes
        return ["eta"]
    if any(x.kind is Parameter.VAR_POSITIONAL for x in known):
        raise TypeError(f"the likelihood takes any number of predictors: {_SEVERAL}")
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    taken = [x for x in known if x.kind in positional]
    return [x.name for x in taken if x.default is Parameter.empty] or [x.name for x in taken[:1]]


def _refuse_other_shapes(variable: Any, n: int) -> None:
    shape = variable.type.shape
    if isinstance(getattr(variable.owner, "op", None), CategoricalRV) and variable.type.ndim != 1:
        raise ValueError(
            f"Categorical needs the probabilities of all classes in each of {n} rows, which are "
            "not a function of one predictor: use sg.likelihoods.MultinomialProbit() for classes, "
            f"OrderedLogit or OrderedProbit for ordered ones. For several predictors {_SEVERAL}"
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


def drawing(eta: Any, variable: Any, parameters: Sequence[Any], width: int = 1) -> tuple[Any, int]:
    """Draws of a random variable as a function of predictors and generators.

    One draw for each `width` of the last dimension of `eta`.
    """
    known = list(ancestors([variable]))
    sources = [v for v in known if isinstance(v.type, RandomType) and v.owner is None]
    generators = [source.type() for source in sources]
    # SciPy's random variables write to their parameters, which constants of PyTensor refuse.
    plain = [v.owner for v in known if v.owner and isinstance(v.owner.op, RandomVariable)]
    drawn_from = set(ancestors([x for node in plain for x in node.op.dist_params(node)]))
    constants = [
        v
        for v in known
        if isinstance(v, TensorConstant) and (v in drawn_from or v.dtype.startswith("float"))
    ]
    shared = [pytensor.shared(np.array(v.data), shape=v.type.shape) for v in constants]
    replace = dict(zip([*sources, *constants], [*generators, *shared], strict=True))
    (drawn,) = graph_replace([variable], replace, strict=False)
    output = pt.broadcast_to(drawn, (*tuple(eta.shape)[:-1], eta.shape[-1] // width))
    inputs = [eta, *parameters, *generators]
    options = {"mode": PLAIN_LOOPS, "on_unused_input": "ignore"}
    return pytensor.function(inputs, output, **options), len(sources)


# Mean and standard deviation of PyMC's distributions, as graphs of their parameters.

# From a mean and the parameters to a standard deviation, shapes that broadcast.
Deviation = Callable[..., Any]


class UnknownMomentError(Exception):
    """Neither PyMC nor this table has it."""


def moments(variable: Any) -> tuple[Any, Any]:
    """Mean and standard deviation of a random variable.

    Infinite where the integrals are, and NaN where there is no mean.

    Raises
    ------
    UnknownMomentError
        Where they are not known.
    pymc.exceptions.UndefinedMomentException
        Where there is no mean, whatever the parameters are.
    """
    if variable.owner is None:
        raise UnknownMomentError
    return _moments(variable.owner.op, variable)


@singledispatch
def _moments(op: Any, variable: Any) -> tuple[Any, Any]:
    deviation = next((_DEVIATIONS[x] for x in type(op).__mro__ if x in _DEVIATIONS), None)
    if deviation is None:
        with suppress(NotImplementedError):
            known_mean(variable)  # refuses what has none
        raise UnknownMomentError
    parameters = op.dist_params(variable.owner)
    mean = _mean(op, variable, parameters)
    sd = deviation(mean, *parameters)
    return mean, sd + pt.zeros_like(mean)


def _mean(op: Any, variable: Any, parameters: Any) -> Any:
    if isinstance(op, basic.StudentTRV):
        nu = parameters[0]
        return pt.switch(nu > 1, known_mean(variable), np.nan)
    if isinstance(op, basic.InvGammaRV | basic.ParetoRV | continuous.HalfStudentTRV):
        return pt.switch(parameters[0] > 1, known_mean(variable), np.inf)
    return known_mean(variable)


@_moments.register
def _(op: DiracDeltaRV, variable: Any) -> tuple[Any, Any]:
    mean = known_mean(variable).astype("float64")
    return mean, pt.zeros_like(mean)


@_moments.register
def _(op: MixtureRV, variable: Any) -> tuple[Any, Any]:
    """Parts are those of one variable, along its last axis, or variables of their own."""
    if variable.owner.inputs[-1].owner.op.ndim_supp:
        raise UnknownMomentError
    _, weights, *parts = variable.owner.inputs
    found = [moments(part) for part in parts]
    means, sds = (
        x[0] if len(parts) == 1 else pt.stack(x, axis=-1) for x in zip(*found, strict=True)
    )
    mean = (weights * means).sum(axis=-1)
    away = pt.sqr(sds) + pt.sqr(means - mean[..., None])
    return mean, pt.sqrt((weights * away).sum(axis=-1))


@_moments.register
def _(op: basic.CategoricalRV, variable: Any) -> tuple[Any, Any]:
    (p,) = op.dist_params(variable.owner)
    k = pt.arange(p.shape[-1])
    mean = (p * k).sum(axis=-1)
    return mean, pt.sqrt((p * pt.sqr(k - mean[..., None])).sum(axis=-1))


def _above(least: float, x: Any, sd: Any) -> Any:
    """Infinite unless a parameter is above its least."""
    return pt.switch(x > least, sd, np.inf)


def _gamma_ratio(x: Any, y: Any) -> Any:
    return pt.exp(pt.gammaln(x) - pt.gammaln(y))


def _of_square(square: Any, mean: Any) -> Any:
    return pt.sqrt(pt.maximum(square - pt.sqr(mean), 0.0))


def _half_student_t(mean: Any, nu: Any, sigma: Any) -> Any:
    return _above(2, nu, _of_square(pt.sqr(sigma) * nu / (nu - 2), mean))


def _kumaraswamy(mean: Any, a: Any, b: Any) -> Any:
    return _of_square(b * pt.exp(pt.gammaln(1 + 2 / a)) * _gamma_ratio(b, 1 + 2 / a + b), mean)


def _weibull(mean: Any, alpha: Any, beta: Any) -> Any:
    ratio = pt.exp(pt.gammaln(1 + 2 / alpha) - 2 * pt.gammaln(1 + 1 / alpha))
    return mean * pt.sqrt(pt.maximum(ratio - 1, 0.0))


def _skew_normal(mean: Any, mu: Any, sigma: Any, alpha: Any) -> Any:
    return sigma * pt.sqrt(1 - 2 / np.pi * pt.sqr(alpha) / (1 + pt.sqr(alpha)))


def _triangular(mean: Any, lower: Any, c: Any, upper: Any) -> Any:
    return pt.sqrt((pt.sqr(upper - lower) + pt.sqr(c - lower) + pt.sqr(upper - c)) / 36)


def _beta_binomial(mean: Any, n: Any, a: Any, b: Any) -> Any:
    total = a + b
    return pt.sqrt(n * (a / total) * (b / total) * ((total + n) / (total + 1)))


def _hypergeometric(mean: Any, good: Any, bad: Any, n: Any) -> Any:
    total = good + bad
    return pt.sqrt(mean * (bad / total) * (total - n) / pt.maximum(total - 1, 1))


# By class, of the mean and the parameters in PyMC's order.
_DEVIATIONS: dict[type, Deviation] = {
    basic.NormalRV: lambda mean, mu, sigma: sigma,
    basic.LogNormalRV: lambda mean, mu, sigma: mean * pt.sqrt(pt.expm1(pt.sqr(sigma))),
    basic.HalfNormalRV: lambda mean, loc, sigma: sigma * np.sqrt(1 - 2 / np.pi),
    basic.StudentTRV: lambda mean, nu, mu, sigma: _above(2, nu, sigma * pt.sqrt(nu / (nu - 2))),
    continuous.HalfStudentTRV: _half_student_t,
    basic.LaplaceRV: lambda mean, mu, b: np.sqrt(2) * b,
    continuous.AsymmetricLaplaceRV: lambda mean, b, kappa, mu: (
        pt.sqrt(pt.sqr(kappa) + 1 / pt.sqr(kappa)) / b
    ),
    basic.LogisticRV: lambda mean, mu, s: s * np.pi / np.sqrt(3),
    basic.GumbelRV: lambda mean, mu, beta: beta * np.pi / np.sqrt(6),
    continuous.MoyalRV: lambda mean, mu, sigma: sigma * np.pi / np.sqrt(2),
    basic.ExponentialRV: lambda mean, scale: scale,
    basic.GammaRV: lambda mean, alpha, scale: pt.sqrt(alpha) * scale,
    basic.InvGammaRV: lambda mean, a, b: _above(2, a, mean / pt.sqrt(pt.maximum(a - 2, 0))),
    continuous.WeibullBetaRV: _weibull,
    basic.ParetoRV: lambda mean, a, m: _above(2, a, mean / pt.sqrt(pt.maximum(a * (a - 2), 0))),
    basic.BetaRV: lambda mean, a, b: pt.sqrt(mean * (b / (a + b)) / (a + b + 1)),
    continuous.KumaraswamyRV: _kumaraswamy,
    basic.UniformRV: lambda mean, lower, upper: (upper - lower) / np.sqrt(12),
    basic.TriangularRV: _triangular,
    continuous.WaldRV: lambda mean, mu, lam, alpha: mu * pt.sqrt(mu / lam),
    continuous.ExGaussianRV: lambda mean, mu, sigma, nu: pt.sqrt(pt.sqr(sigma) + pt.sqr(nu)),
    continuous.SkewNormalRV: _skew_normal,
    continuous.RiceRV: lambda mean, b, sigma: _of_square(pt.sqr(sigma) * (2 + pt.sqr(b)), mean),
    basic.PoissonRV: lambda mean, mu: pt.sqrt(mu),
    basic.NegBinomialRV: lambda mean, n, p: pt.sqrt(mean) / pt.sqrt(p),
    basic.BinomialRV: lambda mean, n, p: pt.sqrt(mean * (1 - p)),
    basic.BernoulliRV: lambda mean, p: pt.sqrt(p * (1 - p)),
    basic.BetaBinomialRV: _beta_binomial,
    basic.GeometricRV: lambda mean, p: pt.sqrt(1 - p) / p,
    discrete.DiscreteUniformRV: lambda mean, lower, upper: pt.sqrt(
        (pt.sqr(upper - lower + 1.0) - 1) / 12
    ),
    basic.HyperGeometricRV: _hypergeometric,
}
