"""`ConjugateStep(model=model)`: Gaussian variables without a SkewGP, against quadrature."""

import numpy as np
import pymc as pm
import pytest
from pymc.sampling.mcmc import assign_step_methods
from scipy.stats import multivariate_normal, norm, poisson
from step_models import sample

import pymc_skewgp as sg
from pymc_skewgp._model.ops.plain_mode import PLAIN

COUNTS = np.array([3, 0, 7, 2])


def _sampled(model, draws=300, tune=60):
    plainly = {"compile_kwargs": {"mode": PLAIN}}  # numba takes seconds for each function
    with model:
        step = sg.ConjugateStep(model=model, **plainly)
    options = {"tune": tune, "chains": 1, "step": step, "random_seed": 3}
    return sample(model, draws, **options, **plainly)["posterior"]


def _close_to(draws, mean, sd):
    """Within five errors of an ESS of a third of the draws, at least: seen are half and more."""
    return abs(float(np.mean(draws)) - mean) < 5 * sd / np.sqrt(draws.size / 3)


def _moments(x, density):
    weights = density / density.sum()
    mean = weights @ x
    return mean, np.sqrt(weights @ (x - mean) ** 2)


@pytest.mark.parametrize("centred", [True, False])
def test_effects_and_their_scale_beside_a_variable_of_another_step(centred):
    with pm.Model() as model:
        s = pm.HalfNormal("s", 1.0)
        effects = pm.Normal("effects", 0.0, s if centred else 1.0, shape=4)
        u = pm.Deterministic("u", effects if centred else s * effects)
        shifted = pm.Bernoulli("shifted", 0.4)
        pm.Poisson("y", pm.math.exp(1.0 + u - shifted), observed=COUNTS)
    found = _sampled(model)
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    grid = np.linspace(1e-4, 6, 1501)
    u = grid[:, None] * nodes
    joint, first = [], []
    for shift, prior in ((0.0, 0.6), (1.0, 0.4)):
        rate = np.exp(1.0 - shift + u)
        terms = [poisson(rate).pmf(k) * weights for k in COUNTS]
        each = np.array([x.sum(axis=1) for x in terms])
        joint.append(prior * each.prod(axis=0) * norm.pdf(grid))
        first.append((terms[2] * u).sum(axis=1) / each[2])
    mean, sd = _moments(grid, sum(joint))
    assert _close_to(found["s"].values, mean, sd)
    share = joint[1].sum() / sum(joint).sum()
    assert _close_to(found["shifted"].values, share, np.sqrt(share * (1 - share)))
    third = sum((own * x).sum() for own, x in zip(joint, first, strict=True)) / sum(joint).sum()
    assert _close_to(found["u"].values[..., 2], third, found["u"].values[..., 2].std())


@pytest.mark.parametrize("kind", ["potential", "walk"])
def test_what_is_known_by_its_density_moves_its_scale_rightly(kind):
    y = np.array([0.3, 1.9, 1.2])
    with pm.Model() as model:
        s = pm.HalfNormal("s", 2.0)
        if kind == "walk":
            u = pm.GaussianRandomWalk("u", sigma=s, init_dist=pm.Normal.dist(0.0, 1.0), shape=3)
        else:
            u = pm.Normal("u", 0.0, s, shape=3)
            pm.Potential("sum", pm.logp(pm.Normal.dist(0.0, 0.2), u.sum()))
        pm.Normal("y", u, 0.5, observed=y)
    found = _sampled(model, 500)
    grid = np.linspace(1e-3, 12, 1200)
    density, at_data = [], []
    for scale in grid:
        if kind == "walk":
            i = np.arange(3)
            cov, log_constant = 1.0 + scale**2 * np.minimum(i[:, None], i), 0.0
        else:
            cov = np.linalg.inv(np.eye(3) / scale**2 + 1 / 0.04)
            log_constant = norm(0.0, np.sqrt(3 * scale**2 + 0.04)).logpdf(0.0)
        seen = cov + 0.25 * np.eye(3)
        log_density = multivariate_normal(np.zeros(3), seen).logpdf(y) + log_constant
        density.append(np.exp(log_density) * norm(0, 2).pdf(scale))
        at_data.append(cov @ np.linalg.solve(seen, y))
    mean, sd = _moments(grid, np.array(density))
    assert _close_to(found["s"].values, mean, sd)
    means = np.array(density) @ np.array(at_data) / np.sum(density)
    for i in range(3):
        own = found["u"].values[..., i]
        assert _close_to(own, means[i], own.std())


def test_a_flat_level_moves_beside_the_block():
    y = np.array([0.3, 1.9, 1.2, -0.4])
    with pm.Model() as model:
        b = pm.Flat("b")
        u = pm.Normal("u", 0.0, 0.5, shape=4)
        pm.Normal("y", b + u, 0.5, observed=y)
    found = _sampled(model)
    assert _close_to(found["b"].values, y.mean(), np.sqrt(0.5 / 4))


def test_nothing_changes_for_models_that_do_not_ask():
    with pm.Model() as model:
        u = pm.Normal("u", 0.0, 1.0, shape=4)
        pm.Poisson("y", pm.math.exp(u), observed=COUNTS)
        _, methods = assign_step_methods(model)
    assert list(methods) == [pm.NUTS]


def test_a_model_without_gaussian_variables_is_refused():
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2.0, 1.0)
        pm.Poisson("y", rate, observed=COUNTS)
    with model, pytest.raises(sg.NotConjugateError, match="no variable of the model is Gaussian"):
        sg.ConjugateStep(model=model)


def test_a_predictor_beside_another_one_is_left_to_other_steps():
    """Given log deviations the mean is conjugate; moved together they would never be accepted."""
    with pm.Model() as model:
        f, g = pm.Normal("f", shape=12), pm.Normal("g", -1.0, 1.0, shape=12)
        pm.Normal("y", f, pm.math.exp(g), observed=np.arange(12.0))
        step = sg.ConjugateStep(model=model, compile_kwargs={"mode": PLAIN})
    assert [v.name for v in step.vars] == ["f"]
