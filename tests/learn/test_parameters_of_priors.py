"""Priors of latent variables with parameters that are random, against grids and closed forms.

A coefficient inside the density of a walk or an autoregression is a hyperparameter, be it Gaussian
itself or not; a standard deviation is positive, whatever its prior says.
"""

import numpy as np
import pymc as pm
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

import pymc_skewgp as sg

Y = np.array([0.3, 1.0, 0.4, 2.0, 1.1, 1.7])
LINE = np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0.0]])


def _attributes(model):
    found = sg.integrate(model, draws=200, chains=2, random_seed=0, progressbar=False)
    return found, found["posterior"].attrs


def _right(attrs, true):
    # Five standard errors: a false alarm in 2e6 seeds; and a floor for what is exact.
    return abs(attrs["log_evidence"] - true) < 5 * attrs["log_evidence_se"] + 1e-4


def _on_grid(model, r, low, high):
    """Log evidence and mean of r: f by its Gaussian integral, from PyMC's own derivatives at 0."""
    log_density = model.compile_logp(jacobian=False)
    slope = model.compile_dlogp([model["f"]], jacobian=False)
    bend = model.compile_d2logp([model["f"]], jacobian=False, negate_output=False)
    grid, step = np.linspace(low, high, 401, retstep=True)
    logs = []
    for value in grid:
        point = model.initial_point() | {r: value}
        point["f"] = np.zeros_like(point["f"])
        Q, b = -bend(point), slope(point)
        gain = 0.5 * b @ np.linalg.solve(Q, b) - 0.5 * np.linalg.slogdet(Q)[1]
        logs.append(log_density(point) + gain + 0.5 * b.size * np.log(2 * np.pi))
    weights = np.exp(logs - logsumexp(logs))
    return logsumexp(logs) + np.log(step), weights @ grid


def _start():
    return pm.Normal.dist(0.0, 1.0)


def _autoregression(r):
    return pm.AR("f", rho=r, sigma=0.5, init_dist=_start(), shape=6)


def _walk(r):
    return pm.GaussianRandomWalk("f", sigma=pm.math.exp(r), init_dist=_start(), shape=6)


def _of_its_own(r):
    """Of which the integral depends on r."""
    return pm.CustomDist("f", r, logp=lambda v, r: -0.5 * (v - r) ** 2 - 0.1 * r**2, shape=6)


@pytest.mark.parametrize(
    "form",
    [
        # PyTensor rewrites the graphs of an autoregression for a quarter of a minute.
        pytest.param(_autoregression, marks=pytest.mark.slow(ci=True)),
        _walk,
        _of_its_own,
    ],
)
def test_a_normal_parameter_inside_the_density(form):
    with pm.Model() as model:
        r = pm.Normal("r", 0.2, 0.6)
        pm.Normal("y", form(r), 0.5, observed=Y)
    true, mean = _on_grid(model, "r", -3.5, 4.0)
    found, attrs = _attributes(model)
    assert _right(attrs, true)
    # Of 200 points or more with equal weights, of sd below .6: five standard errors.
    assert abs(float(found["posterior"]["r"].mean()) - mean) < 5 * 0.6 / np.sqrt(200)


def test_a_normal_alpha_of_car():
    with pm.Model() as model:
        r = pm.Normal("r", 0.2, 0.6)
        f = pm.CAR("f", mu=np.zeros(4), W=LINE, alpha=r, tau=2.0)
        pm.Normal("y", f, 0.5, observed=Y[:4])
    # PyMC's density is 0 beyond 1.
    true, _ = _on_grid(model, "r", -0.999, 0.999)
    assert _right(_attributes(model)[1], true)


def test_the_drift_of_a_walk_is_drawn_with_it():
    """Its density has the same integral whatever the drift."""
    with pm.Model() as model:
        r = pm.Normal("r", 0.2, 0.6)
        f = pm.GaussianRandomWalk("f", mu=r, sigma=0.7, init_dist=_start(), shape=6)
        pm.Normal("y", f, 0.5, observed=Y)
    steps = np.tri(6) @ np.diag([1.0, *[0.7] * 5])
    cov = steps @ steps.T + 0.36 * np.outer(np.arange(6), np.arange(6)) + 0.25 * np.eye(6)
    # Gaussian throughout: round-off.
    true = multivariate_normal(0.2 * np.arange(6), cov).logpdf(Y)
    assert _attributes(model)[1]["log_evidence"] == pytest.approx(true, abs=1e-8)


GROUP = np.arange(6) % 3
DEVIATIONS = {
    "of effects": lambda s: pm.Normal("y", pm.Normal("u", 0.0, s, shape=3)[GROUP], 0.5, observed=Y),
    "by tau": lambda s: pm.Normal("y", pm.Normal("u", 0.0, tau=s, shape=3)[GROUP], 0.5, observed=Y),
    "of noise": lambda s: pm.Normal("y", pm.Normal("u", 0.0, 1.0, shape=3)[GROUP], s, observed=Y),
}


@pytest.mark.parametrize("kind", DEVIATIONS)
def test_a_standard_deviation_is_positive(kind):
    """As PyMC has it: the prior's other half counts for nothing."""
    with pm.Model() as model:
        DEVIATIONS[kind](pm.Normal("s", 0.0, 1.0))
    grid, step = np.linspace(1e-3, 6.0, 3000, retstep=True)
    same = (GROUP[:, None] == GROUP).astype(float)
    logs = []
    for s in grid:
        sd = {"of effects": (s, 0.5), "by tau": (s**-0.5, 0.5), "of noise": (1.0, s)}[kind]
        cov = sd[0] ** 2 * same + sd[1] ** 2 * np.eye(6)
        logs.append(multivariate_normal(cov=cov).logpdf(Y) + norm.logpdf(s))
    found, attrs = _attributes(model)
    assert _right(attrs, logsumexp(logs) + np.log(step))
    assert float(found["posterior"]["s"].min()) > 0.0


def test_counts_that_say_more_than_quadrature_of_a_flat_prior_sees():
    """A level with density 1 and effects with a flat scale under large, all but exact counts."""
    rng, alpha = np.random.default_rng(0), 1e4
    y = rng.negative_binomial(5, 5 / (5 + np.exp(10 + 0.3 * rng.normal(size=20))))
    with pm.Model() as model:
        level, s = pm.Flat("level"), pm.HalfFlat("s")
        u = pm.Normal("u", 0.0, s, shape=20)
        pm.NegativeBinomial("y", mu=pm.math.exp(level + u), alpha=alpha, observed=y)
    # Predictors are N(level, s^2), each under its count alone, all but Gaussian in log(y).
    nodes, weights = np.polynomial.hermite_e.hermegauss(30)
    sd = np.sqrt(1 / alpha + 1 / y)[:, None]
    eta = np.log(y)[:, None] + sd * nodes
    p = alpha / (alpha + np.exp(eta))
    known = pm.logp(pm.NegativeBinomial.dist(n=alpha, p=p), y[:, None]).eval()
    known = known + np.log(weights) + 0.5 * nodes**2 + np.log(sd)
    levels, log_s = np.linspace(8.5, 11.5, 41), np.linspace(-2.5, 1.5, 61)
    logs = [
        logsumexp(known + norm(level, np.exp(x)).logpdf(eta), axis=1).sum() + x
        for level in levels
        for x in log_s
    ]
    true = logsumexp(logs) + np.log((levels[1] - levels[0]) * (log_s[1] - log_s[0]))
    _, attrs = _attributes(model)
    # The grid's own error is below 1e-3.
    assert abs(attrs["log_evidence"] - true) < 5 * attrs["log_evidence_se"] + 1e-3
    assert attrs["relative_ess_exact"] > 0.9
