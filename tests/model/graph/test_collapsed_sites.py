"""Models whose observations are sites, functions integrated out: against quadrature, and rows."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from site_oracles import site_posterior

import pymc_skewgp as sg
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.objective import compile_objective
from pymc_skewgp._model.graph.collapsed import collapse_model

X = np.array([[-0.4], [0.5]])


def kernel(x, variance=1.3, ls=0.8):
    x = np.ravel(x)
    return variance * np.exp(-0.5 * ((x[:, None] - x) / ls) ** 2)


def process(ls):
    return sg.SkewGP(cov_func=1.3 * pm.gp.cov.ExpQuad(1, ls=ls))


def objective_of(model):
    collapsed = collapse_model(model)
    return compile_objective(model, collapsed), [x.name for x in collapsed.rest]


def agrees(model, exact, rest):
    """Evidence and gradient at the initial point, against a number and differences."""
    (objective, origin), names = objective_of(model)
    assert names == rest
    point = Point(origin)
    estimate = objective.estimate(point, 2048, 1)
    assert abs(estimate.value - exact) < 4 * estimate.std_error + 1e-6
    assert estimate.std_error < 0.005
    assert abs(objective.by_ep(point).log_evidence - exact) < 0.05  # EP's own error
    return objective, point


def test_counts_with_an_offset_and_group_effects():
    """Group effects and an intercept join f in what is integrated out."""
    exposure, y = np.array([2.0, 0.5]), np.array([5, 1])
    with pm.Model() as model:
        ls = pm.HalfNormal("ls", initval=0.8)
        tau = pm.HalfNormal("tau", initval=0.6)
        f = process(ls).prior("f", X)
        group = pm.Normal("group", 0.0, tau, shape=2)
        level = pm.Normal("level", 0.5, 2.0)
        pm.Poisson("y", exposure * pm.math.exp(level + f + group), observed=y)
    # The sum of all three is Gaussian.
    cov = kernel(X) + 0.6**2 * np.eye(2) + 4.0

    def log_likelihood(eta):
        return stats.poisson.logpmf(y[:, None], exposure[:, None] * np.exp(eta)).sum(axis=0)

    exact = site_posterior(np.full(2, 0.5), cov, log_likelihood, nodes=301).log_evidence
    agrees(model, exact, ["ls", "tau"])


def test_rows_and_sites_of_one_function():
    """A value, a label and a count; noise that is a hyperparameter."""
    x = np.array([[-0.4], [0.1], [0.5]])
    with pm.Model() as model:
        f = process(0.8).prior("f", x)
        sigma = pm.HalfNormal("sigma", initval=0.4)
        pm.Normal("value", 2.0 * f[0], sigma, observed=0.7)
        pm.Bernoulli("label", p=pm.math.invprobit(f[1]), observed=1)
        pm.NegativeBinomial("count", mu=pm.math.exp(f[2:]), alpha=2.0, observed=[3])

    def log_likelihood(f):
        p = 2.0 / (2.0 + np.exp(f[2]))
        return (
            stats.norm.logpdf(0.7, 2.0 * f[0], 0.4)
            + stats.norm.logcdf(f[1])
            + stats.nbinom.logpmf(3, 2.0, p)
        )

    exact = site_posterior(np.zeros(3), kernel(x), log_likelihood, nodes=61).log_evidence
    agrees(model, exact, ["sigma"])


def test_student_noise_is_sites_when_learnt():
    """The step knows it as a mixture of rows, which has no evidence in closed form."""
    y = np.array([0.3, 1.9])
    with pm.Model() as model:
        nu = pm.Gamma("nu", 2, 0.1, initval=4.0)
        f = process(0.8).prior("f", X)
        pm.StudentT("y", nu=nu, mu=f, sigma=0.5, observed=y)

    def log_likelihood(f):
        return stats.t.logpdf(y[:, None], 4.0, f, 0.5).sum(axis=0)

    exact = site_posterior(np.zeros(2), kernel(X), log_likelihood, nodes=301).log_evidence
    objective, point = agrees(model, exact, ["nu"])
    found = objective.by_twisting(point, 1024, 0)

    def other(nu):
        def log_likelihood(f):
            return stats.t.logpdf(y[:, None], nu, f, 0.5).sum(axis=0)

        found = site_posterior(np.zeros(2), kernel(X), log_likelihood, nodes=301).log_evidence
        return found + stats.gamma(2, scale=10).logpdf(nu)

    slope = (other(4.0 * np.exp(1e-4)) - other(4.0 * np.exp(-1e-4))) / 2e-4
    # 1024 pairs: a few thousandths.
    np.testing.assert_allclose(found.gradient, slope, atol=0.01)


def test_reasons():
    with pm.Model() as coupled:
        f = process(0.8).prior("f", X)
        pm.Poisson("y", pm.math.exp(f - pm.math.max(f)), observed=[1, 2])
    with pytest.raises(ValueError, match=r"Max|max"):
        collapse_model(coupled)
    with pm.Model() as potential:
        f = process(0.8).prior("f", X)
        pm.Poisson("y", pm.math.exp(f), observed=[1, 2])
        pm.Potential("p", -(f**2).sum())
    with pytest.raises(ValueError, match=r"p, which depends on f, is not observed"):
        collapse_model(potential)
    with pm.Model() as product:
        f = process(0.8).prior("f", X)
        g = process(2.0).prior("g", X)
        pm.Poisson("y", pm.math.exp(f * g), observed=[1, 2])
    with pytest.raises(ValueError, match="neither can be integrated out without the other"):
        collapse_model(product)
