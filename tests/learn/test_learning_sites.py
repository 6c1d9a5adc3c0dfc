"""Hyperparameters under sites: against Gaussian regression, a linear model, and differences."""

import numpy as np
import pymc as pm
import pytest
from oracles import finite_difference
from pymc.distributions.transforms import ordered
from scipy import stats
from scipy.special import expit

import pymc_skewgp as sg
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.problem import TrainingData, process_objective

lk = sg.likelihoods
RNG = np.random.default_rng(5)
N = 20
X = np.linspace(-2.0, 2.0, N)[:, None]
F = np.sin(2.0 * X[:, 0])
COUNTS = RNG.negative_binomial(3.0, 3.0 / (3.0 + np.exp(F + 1.0)))
VALUES = F + 0.3 * RNG.normal(size=N)
HEAVY = F + 0.2 * RNG.standard_t(4, size=N)


def matern():
    ls, eta = pm.InverseGamma("ls", alpha=3, beta=2), half_normal("eta")
    return eta**2 * pm.gp.cov.Matern52(1, ls=ls)


def half_normal(name):
    return pm.HalfNormal(name, sigma=2)


def objective_of(y, likelihood, kernel=matern, **signs):
    """The objective under a likelihood, or kinds of data, made in a model, and its origin."""
    with pm.Model():
        signs = {name: make() for name, make in signs.items()}
        gp = sg.SkewGP(cov_func=kernel(), **signs)
        data = (X, y, likelihood()) if y is not None else (likelihood(),)
    found = process_objective(TrainingData(gp, *data), None, np.random.default_rng(0), None)
    return found.objective, found.origin


def gradients_agree(objective, point):
    """EP stops at a residual of 1e-4, from where the last one ended: 1e-4 of the value is left."""
    value = objective.by_ep(point)
    slopes = finite_difference(lambda x: objective.by_ep(Point(x)).total, point.x, 1e-3)
    np.testing.assert_allclose(value.gradient, slopes, rtol=2e-3, atol=2e-3)
    return value


def normal():
    sigma = half_normal("sigma")
    return lambda eta: pm.Normal.dist(eta, sigma)


def dispersed():
    return lk.NegativeBinomial(half_normal("alpha"))


def dispersed_pymc():
    alpha = half_normal("alpha")
    return lambda eta: pm.NegativeBinomial.dist(mu=pm.math.exp(eta), alpha=alpha)


def test_gaussian_sites_are_regression():
    """The density of pm.Normal as sites is Gaussian regression; all is exact there."""
    sites, origin = objective_of(VALUES, normal)
    rows, _ = objective_of(VALUES, lambda: lk.Gaussian(half_normal("sigma")))
    assert sites.coordinates.labels == rows.coordinates.labels
    for shift in (0.0, -0.7):
        point = Point(origin + shift)
        ours, theirs = sites.by_ep(point), rows.by_ep(point)
        assert ours.total == pytest.approx(theirs.total, abs=1e-6)
        np.testing.assert_allclose(ours.gradient, theirs.gradient, rtol=1e-5, atol=1e-6)
        exact = sites.by_twisting(point, 256, 0)
        # Of Gaussian sites EP is the posterior, and all weights are equal.
        assert exact.total == pytest.approx(theirs.total, abs=1e-6)
        np.testing.assert_allclose(exact.gradient, theirs.gradient, rtol=1e-5, atol=1e-5)


def test_a_distribution_is_its_likelihood():
    own, origin = objective_of(COUNTS, dispersed)
    any_pymc, _ = objective_of(COUNTS, dispersed_pymc)
    point = Point(origin + 0.3)
    found, other = gradients_agree(own, point), gradients_agree(any_pymc, point)
    ours, theirs = own.by_twisting(point, 512, 1), any_pymc.by_twisting(point, 512, 1)
    for one, same in ((found, other), (ours, theirs)):
        assert same.total == pytest.approx(one.total, abs=1e-5)
        np.testing.assert_allclose(same.gradient, one.gradient, rtol=1e-4, atol=1e-5)
    # EP's evidence is off by hundredths, and so are its slopes.
    np.testing.assert_allclose(ours.gradient, found.gradient, atol=0.1)


def test_logistic_regression():
    """Sites under a linear kernel are a logistic regression, its evidence a double integral."""
    y = RNG.binomial(1, expit(1.5 * X[:, 0]))

    def kernel():
        s, b = half_normal("s"), pm.Gamma("b", 2, 2)
        return s**2 * pm.gp.cov.Linear(1, c=0.0) + pm.gp.cov.Constant(b**2)

    def exact(x):
        slope_sd, intercept_sd = np.exp(x)
        w = np.linspace(-8.0, 8.0, 201)
        eta = slope_sd * w[:, None, None] * X[:, 0] + intercept_sd * w[:, None]
        log_p = (-np.logaddexp(0.0, (1.0 - 2.0 * y) * eta)).sum(axis=-1)
        density = np.exp(log_p) * stats.norm.pdf(w)[:, None] * stats.norm.pdf(w)
        return np.log(density.sum()) + 2 * np.log(w[1] - w[0])

    def total(x):
        s, b = np.exp(x)
        prior = stats.halfnorm(scale=2).logpdf(s) + stats.gamma(2, scale=0.5).logpdf(b)
        return exact(x) + prior

    objective, origin = objective_of(y, lk.BernoulliLogit, kernel)
    point = Point(origin - 0.2)
    assert objective.coordinates.labels == ["s", "b"]
    estimate = objective.estimate(point, 2048, 1)
    assert abs(estimate.value - exact(point.x)) < 4 * estimate.std_error + 1e-5
    # 2048 pairs in two dimensions: errors of the gradient of some thousandths.
    found, slopes = objective.by_twisting(point, 2048, 0), finite_difference(total, point.x, 1e-4)
    np.testing.assert_allclose(found.gradient, slopes, atol=0.01)


def ordered_logit():
    cuts = pm.Normal("cuts", [-0.5, 0.5], 1.0, shape=2, initval=[-0.5, 0.5], transform=ordered)
    return lk.OrderedLogit(cuts)


def kinds():
    half, twice = [0, 4, 9, 14, 17], [0, 4, 4, 9, 14, 14, 17]
    return {
        "counts": (X, COUNTS, dispersed()),
        "values": (X[half], HEAVY[half], lk.Gaussian(half_normal("sigma"))),
        "labels": (X[twice], (HEAVY[twice] > 0).astype(int), lk.BernoulliProbit()),
    }


SIGN = {
    "pseudo_points": lambda: [[0.3]],
    "phase": lambda: [1.0],
    "truncation": lambda: pm.Normal("skew", 0, 1, shape=1),
}
# Of which the limits of rows are functions; not Gaussian, which would be integrated out.
CENTRE = {"mean_func": lambda: pm.gp.mean.Constant(pm.Logistic("centre", 0.0, 0.6))}
CASES = {
    "cutpoints": (np.digitize(HEAVY, [-0.4, 0.4]), ordered_logit, {}),
    "weights": (COUNTS, lambda: lk.Weighted(dispersed(), np.linspace(0.2, 2.0, N)), {}),
    "several kinds": (None, kinds, CENTRE),
    "skewed": (COUNTS, lk.Poisson, SIGN),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients_of_parameters(case):
    y, likelihood, signs = CASES[case]
    objective, origin = objective_of(y, likelihood, **signs)
    point = Point(origin + 0.1)
    by_ep = gradients_agree(objective, point)
    exact = objective.by_twisting(point, 512, 0)
    estimate = objective.estimate(point, 1024, 1)
    assert abs(exact.log_evidence - estimate.value) < 0.02
    assert abs(by_ep.log_evidence - estimate.value) < 0.1
    np.testing.assert_allclose(exact.gradient, by_ep.gradient, atol=0.05)
