"""Means and deviations of PyMC's distributions, against sums and integrals of their densities."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose

from pymc_skewgp._model.gp.distribution_graph import _DEVIATIONS, moments

# Distributions with the ends of their support; kinks are at .3, where integrals are split.
REAL = (-np.inf, np.inf)
POSITIVE = (0.0, np.inf)
CONTINUOUS = {
    "Normal": (pm.Normal.dist(0.3, 1.2), REAL),
    "LogNormal": (pm.LogNormal.dist(0.3, 0.5), POSITIVE),
    "HalfNormal": (pm.HalfNormal.dist(1.3), POSITIVE),
    "StudentT": (pm.StudentT.dist(5.0, mu=0.3, sigma=1.2), REAL),
    "HalfStudentT": (pm.HalfStudentT.dist(5.0, sigma=1.2), POSITIVE),
    "Laplace": (pm.Laplace.dist(0.3, 1.2), REAL),
    "AsymmetricLaplace": (pm.AsymmetricLaplace.dist(kappa=1.7, mu=0.3, b=1.2), REAL),
    "Logistic": (pm.Logistic.dist(0.3, 1.2), REAL),
    "Gumbel": (pm.Gumbel.dist(0.3, 1.2), REAL),
    "Moyal": (pm.Moyal.dist(0.3, 1.2), REAL),
    "Exponential": (pm.Exponential.dist(1.3), POSITIVE),
    "Gamma": (pm.Gamma.dist(2.3, 1.7), POSITIVE),
    "ChiSquared": (pm.ChiSquared.dist(3.0), POSITIVE),
    "InverseGamma": (pm.InverseGamma.dist(5.3, 1.7), POSITIVE),
    "Weibull": (pm.Weibull.dist(1.4, 1.7), POSITIVE),
    "Pareto": (pm.Pareto.dist(5.4, 1.7), (1.7, np.inf)),
    "Beta": (pm.Beta.dist(2.3, 1.7), (0.0, 1.0)),
    "Kumaraswamy": (pm.Kumaraswamy.dist(2.3, 1.7), (0.0, 1.0)),
    "Uniform": (pm.Uniform.dist(-0.3, 1.7), (-0.3, 1.7)),
    "Triangular": (pm.Triangular.dist(lower=-0.3, c=0.3, upper=1.7), (-0.3, 1.7)),
    "Wald": (pm.Wald.dist(mu=1.3, lam=2.0, alpha=0.2), (0.2, np.inf)),
    "ExGaussian": (pm.ExGaussian.dist(mu=0.3, sigma=0.5, nu=1.2), REAL),
    "SkewNormal": (pm.SkewNormal.dist(mu=0.3, sigma=1.2, alpha=3.0), REAL),
    "Rice": (pm.Rice.dist(nu=1.3, sigma=0.7), POSITIVE),
    "Mixture": (
        pm.Mixture.dist([0.3, 0.7], [pm.Normal.dist(-1.0, 0.5), pm.Gumbel.dist(1.0, 0.7)]),
        REAL,
    ),
    "NormalMixture": (pm.NormalMixture.dist([0.3, 0.7], mu=[-1.0, 2.0], sigma=[0.5, 1.0]), REAL),
}
DISCRETE = {
    "Poisson": pm.Poisson.dist(2.3),
    "NegativeBinomial": pm.NegativeBinomial.dist(mu=2.3, alpha=1.7),
    "Binomial": pm.Binomial.dist(9, 0.3),
    "Bernoulli": pm.Bernoulli.dist(0.3),
    "BetaBinomial": pm.BetaBinomial.dist(alpha=1.3, beta=2.1, n=9),
    "Geometric": pm.Geometric.dist(0.3),
    "DiscreteUniform": pm.DiscreteUniform.dist(-2, 6),
    "HyperGeometric": pm.HyperGeometric.dist(N=20, k=7, n=5),
    "Categorical": pm.Categorical.dist(p=[0.2, 0.5, 0.3]),
    "ZeroInflatedPoisson": pm.ZeroInflatedPoisson.dist(0.4, 2.3),
    "ZeroInflatedNegativeBinomial": pm.ZeroInflatedNegativeBinomial.dist(0.4, mu=2.3, alpha=1.7),
}


def _values(*variables):
    """Mean and deviation of each, by one function."""
    graphs = [x for variable in variables for x in moments(variable)]
    found = pytensor.function([], graphs, mode="FAST_COMPILE")()
    return np.reshape(found, (len(variables), 2))


def _nodes(low, high):
    """Of the double exponential rule, and its weights: ends of any kind are at infinity."""
    t = np.linspace(-3.5, 3.5, 281)
    s, slope = 0.5 * np.pi * np.sinh(t), 0.5 * np.pi * np.cosh(t) * (t[1] - t[0])
    if np.isfinite(low) and np.isfinite(high):
        half = 0.5 * (high - low)
        return low + half * (1.0 + np.tanh(s)), half * slope / np.cosh(s) ** 2
    x = np.exp(s)
    return (high - x if np.isinf(low) else low + x), slope * x


def test_continuous():
    ys = pt.dvectors(len(CONTINUOUS))
    variables = [variable for variable, _ in CONTINUOUS.values()]
    densities = [pm.logp(v, y).exp() for v, y in zip(variables, ys, strict=True)]
    rules = []
    for _, (low, high) in CONTINUOUS.values():
        middle = min(max(0.3, low), high)
        parts = [_nodes(*ends) for ends in ((low, middle), (middle, high)) if ends[0] < ends[1]]
        rules.append([np.concatenate(each) for each in zip(*parts, strict=True)])
    with np.errstate(all="ignore"):
        at_nodes = pytensor.function(ys, densities, mode="FAST_COMPILE")(*[x for x, _ in rules])
    found = _values(*variables)
    for i, (name, (x, weight)) in enumerate(zip(CONTINUOUS, rules, strict=True)):
        p = weight * np.nan_to_num(at_nodes[i])  # far out, where it is 0
        mean = p @ x
        sd = np.sqrt(p @ (x - mean) ** 2)
        assert_allclose([p.sum(), *found[i]], [1.0, mean, sd], rtol=1e-7, err_msg=name)


def test_discrete():
    found = _values(*DISCRETE.values())
    for (name, variable), own in zip(DISCRETE.items(), found, strict=True):
        y = np.arange(3) if name == "Categorical" else np.arange(-2, 400)
        p = np.exp(pm.logp(variable, y).eval(mode="FAST_COMPILE"))
        mean = p @ y
        expected = [mean, np.sqrt(p @ (y - mean) ** 2)]
        assert_allclose(p.sum(), 1.0, rtol=1e-6, err_msg=name)  # some are single precision
        assert_allclose(own, expected, rtol=1e-7, err_msg=name)


def test_no_class_is_missing():
    tested = {type(v.owner.op) for v, _ in CONTINUOUS.values()}
    tested |= {type(v.owner.op) for v in DISCRETE.values()}
    assert all(any(issubclass(op, known) for op in tested) for known in _DEVIATIONS)


def test_moments_that_do_not_exist():
    none = pm.Pareto.dist(0.7, 1.0), pm.InverseGamma.dist(1.5, 1.0), pm.StudentT.dist(1.0)
    found = _values(*none)
    np.testing.assert_array_equal(found[:2], [[np.inf, np.inf], [2.0, np.inf]])
    assert np.isnan(found[2, 0])
    with pytest.raises(Exception, match="mean of the Cauchy"):
        moments(pm.Cauchy.dist(0.0, 1.0))
