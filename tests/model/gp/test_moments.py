"""Means and deviations of PyMC's distributions, against sums and integrals of their densities."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad

from pymc_skewgp._model.gp.distribution_graph import _DEVIATIONS, moments

# Distributions with the ends of their support, and places where integrals are split.
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
    "Triangular": (pm.Triangular.dist(lower=-0.3, c=0.4, upper=1.7), (-0.3, 1.7)),
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


def _values(variable):
    return [float(x.eval(mode="FAST_COMPILE")) for x in moments(variable)]


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name):
    variable, (low, high) = CONTINUOUS[name]
    y = pt.scalar("y")
    p = pytensor.function([y], pm.logp(variable, y).exp(), mode="FAST_COMPILE")

    def integral(g):
        middle = min(max(0.5, low), high)
        parts = ((low, middle), (middle, high))
        return sum(quad(lambda t: g(t) * p(t), *ends, epsabs=1e-8)[0] for ends in parts)

    mean = integral(lambda t: t)
    sd = np.sqrt(integral(lambda t: (t - mean) ** 2))
    assert_allclose(_values(variable), [mean, sd], rtol=1e-5, atol=1e-7)  # quad's in heavy tails


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete(name):
    variable = DISCRETE[name]
    y = np.arange(-2, 400) if name == "DiscreteUniform" else np.arange(400)
    if name == "Categorical":
        y = np.arange(3)
    p = np.exp(pm.logp(variable, y).eval(mode="FAST_COMPILE"))
    mean = p @ y
    assert_allclose(p.sum(), 1.0, rtol=1e-6)  # some are single precision
    assert_allclose(_values(variable), [mean, np.sqrt(p @ (y - mean) ** 2)], rtol=1e-7)


def test_no_class_is_missing():
    tested = {type(v.owner.op) for v, _ in CONTINUOUS.values()}
    tested |= {type(v.owner.op) for v in DISCRETE.values()}
    assert all(any(issubclass(op, known) for op in tested) for known in _DEVIATIONS)


def test_moments_that_do_not_exist():
    assert _values(pm.Pareto.dist(0.7, 1.0)) == [np.inf, np.inf]
    assert _values(pm.InverseGamma.dist(1.5, 1.0)) == [2.0, np.inf]
    assert np.isnan(_values(pm.StudentT.dist(1.0, mu=0.0, sigma=1.0))[0])
    with pytest.raises(Exception, match="mean of the Cauchy"):
        moments(pm.Cauchy.dist(0.0, 1.0))
