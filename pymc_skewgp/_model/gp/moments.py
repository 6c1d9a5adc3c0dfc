"""Mean and standard deviation of PyMC's distributions, as graphs of their parameters."""

from collections.abc import Callable
from contextlib import suppress
from functools import singledispatch
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions import continuous, discrete
from pymc.distributions.distribution import DiracDeltaRV
from pymc.distributions.mixture import MixtureRV
from pymc.distributions.moments.means import mean as known_mean
from pytensor.tensor.random import basic

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
        _refuse_undefined(variable)
        raise UnknownMomentError
    parameters = op.dist_params(variable.owner)
    mean = _mean(op, variable, parameters)
    sd = deviation(mean, *parameters)
    return mean, sd + pt.zeros_like(mean)


def _refuse_undefined(variable: Any) -> None:
    with suppress(NotImplementedError):
        known_mean(variable)


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


def _inverse_gamma(mean: Any, alpha: Any, beta: Any) -> Any:
    return _above(2, alpha, mean / pt.sqrt(pt.maximum(alpha - 2, 0)))


def _pareto(mean: Any, alpha: Any, m: Any) -> Any:
    return _above(2, alpha, mean / pt.sqrt(pt.maximum(alpha * (alpha - 2), 0)))


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
    basic.InvGammaRV: _inverse_gamma,
    continuous.WeibullBetaRV: _weibull,
    basic.ParetoRV: _pareto,
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
