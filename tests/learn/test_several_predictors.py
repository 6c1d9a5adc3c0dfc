"""Factors of several predictors in models: mean and log sd, zero inflation, softmax.

Pairs of effects that one observation each has leave integrals over two numbers.
"""

import numpy as np
import pymc as pm
import pytest
from quick_search import averaged
from scipy.special import expit, log_softmax, logsumexp
from scipy.stats import halfnorm, norm, poisson

import pymc_skewgp as sg
from pymc_skewgp._gaussian.blocks.several import SeveralSites, fit_several, sites_together
from pymc_skewgp._learn.averaging.problem import integration_problem
from pymc_skewgp._learn.factor_rows import rows_of
from pymc_skewgp._learn.problem import TrainingData

NODES, MASS = np.polynomial.hermite_e.hermegauss(80)
MASS = MASS / MASS.sum()
VALUES = np.array([0.3, -2.0, 1.1, 0.0, 4.0, -0.4, 0.7, 0.2, -1.5, 0.9])
COUNTS = np.array([0, 3, 0, 1, 7, 0, 2, 0, 4, 1])
LABELS = np.array([0, 1, 1, 2, 1, 0, 1, 1])
X = np.column_stack([np.ones(8), np.linspace(-1.0, 1.0, 8)])


def mean_and_log_sd(scale):
    """f is integrated out by the formula of a normal mean."""
    g = -0.5 + 0.8 * NODES
    total = scale**2 + np.exp(2.0 * g)
    joint = norm(0.2, np.sqrt(total)).pdf(VALUES[:, None]) * MASS
    shares = joint / joint.sum(axis=1, keepdims=True)
    f = 0.2 + (shares * scale**2 / total * (VALUES[:, None] - 0.2)).sum(axis=1)
    return np.log(joint.sum(axis=1)).sum(), f, shares @ g


def zeros_and_counts(scale):
    f, g = 0.5 + scale * NODES[:, None], 0.4 + 0.8 * NODES
    share, rate = expit(g), np.exp(f)
    found = [], [], []
    for count in COUNTS:
        p = share * poisson(rate).pmf(count) + (count == 0) * (1.0 - share)
        joint = p * MASS[:, None] * MASS
        z = joint.sum()
        each = np.log(z), (joint * f).sum() / z, (joint * g).sum() / z
        for own, value in zip(found, each, strict=True):
            own.append(value)
    return np.sum(found[0]), np.array(found[1]), np.array(found[2])


def normal(f, g):
    pm.Normal("y", f, pm.math.exp(g), observed=VALUES)


def inflated(f, g):
    psi, mu = pm.math.sigmoid(g), pm.math.exp(f)
    pm.ZeroInflatedPoisson("y", psi=psi, mu=mu, observed=COUNTS)


CASES = {
    "mean and log sd": (normal, 0.2, -0.5, mean_and_log_sd),
    "zeros and counts": (inflated, 0.5, 0.4, zeros_and_counts),
}


def effects(name, scale=None):
    observed, mean, other, _ = CASES[name]
    with pm.Model() as model:
        s = pm.HalfNormal("s", 1.0) if scale is None else scale
        f = pm.Normal("f", mean, s, shape=10)
        g = other + 0.8 * pm.Normal("u", 0.0, 1.0, shape=10)
        observed(f, pm.Deterministic("g", g))
    return model


@pytest.mark.parametrize("name", list(CASES))
def test_pairs_of_effects_are_their_quadrature(name):
    """Evidence, and means of both predictors, at one scale."""
    true, f, g = CASES[name][-1](0.9)
    # Of ten predictors twice, and once the evidence: 4.5 errors are a false alarm in 7,000 seeds.
    posterior = averaged(effects(name, 0.9), true, 4.5, largest=0.05, draws=1000)
    for own, expected in (("f", f), ("g", g)):
        draws = posterior[own].to_numpy().reshape(-1, 10)
        # Draws are picked from weighted ones: at least a tenth of them count.
        error = draws.std(axis=0) / np.sqrt(len(draws) * 0.1)
        np.testing.assert_array_less(np.abs(draws.mean(axis=0) - expected), 4.5 * error)


@pytest.mark.parametrize("name", list(CASES))
def test_with_a_scale_integrated_out(name):
    scales = np.linspace(0.01, 5.0, 150)
    logs = np.array([CASES[name][-1](x)[0] for x in scales]) + halfnorm.logpdf(scales)
    weights = np.exp(logs - logs.max())
    true = logs.max() + np.log(np.trapezoid(weights, scales))
    mean = (weights * scales).sum() / weights.sum()
    sd = np.sqrt((weights * (scales - mean) ** 2).sum() / weights.sum())
    options = {"n_evidences": 60, "draws": 500, "random_seed": 1}
    found = averaged(effects(name), true, largest=0.05, **options)
    # Five errors, of 60 evidences.
    assert abs(found["s"].mean().item() - mean) < 5.0 * sd / np.sqrt(60 * 0.5)


def test_the_optimum_is_that_of_the_evidence():
    scales = np.linspace(0.3, 3.0, 271)
    logs = [mean_and_log_sd(x)[0] + halfnorm.logpdf(x) for x in scales]
    fit = sg.find_hyperparameters(effects("mean and log sd"), random_seed=0)
    # Where the log evidence is less than .01 below its maximum, ten times the error of its draws.
    near = scales[np.array(logs) > max(logs) - 0.01]
    assert near[0] <= fit.point["s"] <= near[-1]


def logits(b):
    return pm.Categorical("y", logit_p=X @ b, observed=LABELS)


def probabilities(b):
    f = pm.math.stack([X @ b[:, k] for k in range(3)], axis=1)
    return pm.Categorical("y", p=pm.math.softmax(f, axis=1), observed=LABELS)


def classes_first(b):
    return pm.Categorical("y", p=pm.math.softmax(b.T @ X.T, axis=0).T, observed=LABELS)


def sliced(b):
    """Rows are taken of all logits, as where some of the classes are missing."""
    wide = np.vstack([X, X[::-1]])
    f = pm.math.stack([pm.math.dot(wide, b[:, k]) for k in range(3)], axis=1)[:8]
    return pm.Categorical("y", logit_p=f, observed=LABELS)


@pytest.fixture(scope="module")
def softmax_by_quadrature():
    """Log evidence and means of three classes' intercepts and slopes: right to 1e-4."""
    x, mass = np.polynomial.hermite_e.hermegauss(9)
    b = np.stack([own.ravel() for own in np.meshgrid(*[x] * 6, indexing="ij")], axis=1)
    w = np.prod(np.meshgrid(*[mass / mass.sum()] * 6, indexing="ij"), axis=0).ravel()
    joint = w.copy()
    for row, label in zip(X, LABELS, strict=True):
        joint *= np.exp(log_softmax(np.einsum("j,njk->nk", row, b.reshape(-1, 2, 3)), axis=1))[
            :, label
        ]
    return np.log(joint.sum()), joint @ b / joint.sum()


@pytest.mark.parametrize("observed", [logits, probabilities, classes_first, sliced])
def test_softmax_is_its_quadrature(observed, softmax_by_quadrature):
    """Of three classes, each with intercept and slope, as regressions have them."""
    with pm.Model() as model:
        observed(pm.Normal("b", 0.0, 1.0, shape=(2, 3)))
    true, expected = softmax_by_quadrature
    # Of seven numbers one is off by 4.5 errors in 20,000 seeds.
    posterior = averaged(model, true, 4.5, 1e-4, 0.01, draws=500, random_seed=2)
    draws = posterior["b"].to_numpy().reshape(-1, 6)
    error = draws.std(axis=0) / np.sqrt(500)
    np.testing.assert_array_less(np.abs(draws.mean(axis=0) - expected), 4.5 * error)


def test_stopping_ratios_are_their_quadrature():
    """Probabilities are products along an axis, which PyTensor differentiates once alone."""
    x = X[:, 1]
    with pm.Model() as model:
        thresholds, slope = pm.Normal("t", 0.0, 1.0, shape=2), pm.Normal("b", 0.0, 1.0)
        p = pm.math.sigmoid(thresholds - (slope * x)[:, None])
        left = pm.math.prod(1.0 - p, axis=1)
        found = pm.math.stack([p[:, 0], p[:, 1] * (1.0 - p[:, 0]), left], axis=1)
        pm.Categorical("y", p=found, observed=LABELS)
    nodes, mass = np.polynomial.hermite_e.hermegauss(40)
    t, u, b = (z[..., None] for z in np.meshgrid(nodes, nodes, nodes, indexing="ij"))
    first, second = expit(t - b * x), expit(u - b * x)
    each = np.choose(LABELS, [first, second * (1.0 - first), (1.0 - second) * (1.0 - first)])
    joint = each.prod(axis=-1) * np.einsum("i,j,k->ijk", *[mass / mass.sum()] * 3)
    posterior = averaged(model, np.log(joint.sum()), 4.5, largest=0.01, draws=1000)
    mean = (joint * b[..., 0]).sum() / joint.sum()
    draws = posterior["b"].to_numpy().ravel()
    # 4.5 errors are a false alarm in 100,000 seeds.
    assert abs(draws.mean() - mean) < 4.5 * draws.std() / np.sqrt(0.5 * draws.size)


def test_short_coefficients_of_the_noise_stay_hyperparameters():
    """Two numbers are integrated out with exact evidences of values with noise."""
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 1.0, shape=2)
        c = pm.Normal("c", 0.0, 1.0, shape=2)
        pm.Normal("y", X @ b, pm.math.exp(X @ c), observed=VALUES[:8])
    roles = {x.name: x.role for x in sg.explain(model).variables}
    assert roles == {"b": "block 1", "c": "hyperparameter", "y": "points"}


def test_explain_says_how_many_predictors():
    notes = {x.name: x.note for x in sg.explain(effects("zeros and counts")).variables}
    assert notes["y"] == "of block 1: log p(y | 2 predictors)"


def test_an_intercept_of_the_noise_goes_with_its_effects():
    """It adds no predictor: one block, and no hyperparameter but the scale."""
    with pm.Model() as model:
        s = pm.HalfNormal("s", 1.0)
        level = pm.Normal("level", 0.0, 1.0)
        f = pm.Normal("f", 0.0, s, shape=10)
        g = level + pm.Normal("g", 0.0, 1.0, shape=10)
        pm.Normal("y", f, pm.math.exp(g), observed=VALUES)
    roles = {x.name: x.role for x in sg.explain(model).variables}
    assert roles["level"] == roles["g"] == roles["f"] == "block 1"
    assert roles["s"] == "hyperparameter"


def test_coupled_observations_are_one_factor():
    """The mean over all observations in each of them: one log density of all."""
    with pm.Model() as model:
        f = pm.Normal("f", 0.0, 1.0, shape=10)
        g = pm.Normal("g", 0.0, 1.0, shape=10)
        pm.Normal("y", f, pm.math.exp(g - pm.math.log(pm.math.exp(g).sum())), observed=VALUES)
    variables = {x.name: x for x in sg.explain(model).variables}
    assert variables["g"].role == variables["f"].role == "block 1"
    assert variables["y"].note == "of block 1: one log density of all 20 predictors (Newton)"


def test_evidence_adds_up_over_parts():
    """Rows, factors of one predictor and of two in one block, that share nothing."""
    with pm.Model() as model:
        f = pm.Normal("f", 0.2, 0.9, shape=10)
        g = -0.5 + 0.8 * pm.Normal("u", 0.0, 1.0, shape=10)
        normal(f, g)
        pm.Poisson("z", pm.math.exp(f), observed=COUNTS)
    f, w = 0.2 + 0.9 * NODES[:, None], MASS[:, None] * MASS
    sd = np.exp(-0.5 + 0.8 * NODES)
    true = 0.0
    for value, count in zip(VALUES, COUNTS, strict=True):
        logs = norm(f, sd).logpdf(value) + poisson(np.exp(f)).logpmf(count)
        true += logsumexp(logs, b=w)
    # Eighty nodes for the spike of small sds: right to 1e-3.
    averaged(model, true, floor=1e-3, largest=0.05, draws=500, random_seed=3)


@pytest.mark.parametrize(("units", "spread"), [(1e-4, 2.0), (1.0, 6.0)])
def test_a_flat_level_and_wide_log_sds(units, spread):
    """Precisions over many orders: by one grid over the level and one over each log sd."""
    with pm.Model() as model:
        level = pm.Flat("level")
        f = level + units * pm.Normal("f", 0.0, 0.5, shape=10)
        g = np.log(units) - 0.5 + spread * pm.Normal("g", 0.0, 1.0, shape=10)
        pm.Normal("y", f, pm.math.exp(g), observed=units * VALUES)
    g, levels = np.linspace(-45.0, 45.0, 1501), np.linspace(-12.0, 14.0, 261)
    sd = np.sqrt(0.25 + np.exp(2.0 * g))
    prior = norm.logpdf(g, -0.5, spread) + np.log(g[1] - g[0])
    off = VALUES[:, None, None] - levels[:, None]
    each = logsumexp(norm.logpdf(off, 0.0, sd) + prior, axis=2)
    # In these units; densities of ten values are 1 / units each, of the level's grid once less.
    true = logsumexp(each.sum(axis=0)) + np.log(levels[1] - levels[0]) - 9.0 * np.log(units)
    averaged(model, true, largest=0.1)


def test_expressions_of_one_predictor_are_no_more():
    """Truncated at one end: infinity less the mean is no predictor of its own."""
    with pm.Model() as model:
        f, g = pm.Normal("f", 0.0, 1.0, shape=10), pm.Normal("g", 0.0, 1.0, shape=10)
        normal = pm.Normal.dist(f, pm.math.exp(0.5 * g))
        pm.Truncated("y", normal, lower=-3.0, observed=VALUES)
    f, sd = NODES[:, None], np.exp(0.5 * NODES)
    logs = norm.logpdf(VALUES[:, None, None], f, sd) - norm.logsf(-3.0, f, sd)
    true = logsumexp(logs, axis=(1, 2), b=MASS[:, None] * MASS).sum()
    notes = {x.name: x.note for x in sg.explain(model).variables}
    assert notes["y"].endswith("2 predictors)")
    # Eighty nodes for the spike of small sds: right to 1e-3.
    averaged(model, true, floor=1e-3, largest=0.05)


def test_pairs_stay_as_they_are_where_a_mixture_is_worse():
    """Zero inflation bends, but the posterior has one mode, which EP's pairs are about."""
    rng, x = np.random.default_rng(6), np.linspace(-2.0, 2.0, 40)[:, None]
    kernel = pm.gp.cov.ExpQuad(1, ls=0.5)
    root = np.linalg.cholesky(kernel(x).eval(mode="FAST_COMPILE") + 1e-8 * np.eye(40))
    counts = rng.poisson(np.exp(1.0 + root @ rng.standard_normal(40)))
    counts *= rng.uniform(size=40) < expit(1.0 + root @ rng.standard_normal(40))
    with pm.Model() as model:
        f, g = (pm.gp.Latent(cov_func=kernel).prior(name, x) for name in "fg")
        psi, mu = pm.math.sigmoid(1.0 + g), pm.math.exp(1.0 + f)
        pm.ZeroInflatedPoisson("y", psi=psi, mu=mu, observed=counts)
    found = sg.integrate(model, draws=200, chains=1, random_seed=0, progressbar=False)
    # .77 of a mixture made of the few draws which weigh more than others.
    assert found["posterior"].attrs["relative_ess_exact"] > 0.85


def test_a_flat_level_of_the_rate():
    """A grid of levels; effects of the rate and of the share are of one observation each."""
    with pm.Model() as model:
        f = pm.Flat("level") + 0.9 * pm.Normal("u", 0.0, 1.0, shape=10)
        inflated(f, 0.4 + 0.8 * pm.Normal("v", 0.0, 1.0, shape=10))
    levels, share = np.linspace(-25.0, 25.0, 1001), MASS @ expit(0.4 + 0.8 * NODES)
    rates = np.exp(levels[:, None] + 0.9 * NODES)
    p = [share * poisson(rates).pmf(y) @ MASS + (y == 0) * (1.0 - share) for y in COUNTS]
    true = np.log(np.prod(p, axis=0).sum() * (levels[1] - levels[0]))
    averaged(model, true, largest=0.02, chains=1)


@pytest.mark.parametrize("name", list(CASES))
def test_a_flat_level_that_the_data_do_not_bound(name):
    """Means may be the values themselves, without noise; all zeros may be those of counts."""
    observed, mean, *_ = CASES[name]
    with pm.Model() as model:
        f = mean + 0.9 * pm.Normal("u", 0.0, 1.0, shape=10)
        observed(f, pm.Flat("level") + 0.8 * pm.Normal("v", 0.0, 1.0, shape=10))
    with pytest.raises(sg.ImproperPriorError, match="do not bound level"):
        sg.integrate(model, draws=200, chains=1, random_seed=0, progressbar=False)


def derivatives(eta):
    f, g = eta[..., ::2], eta[..., 1::2]
    precision, off = np.exp(-2.0 * g), VALUES - f
    first = np.stack([off * precision, off**2 * precision - 1.0], axis=-1)
    both = -2.0 * off * precision
    rows = [[-precision, both], [both, -2.0 * off**2 * precision]]
    second = np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)
    return first.reshape(eta.shape), second


@pytest.mark.parametrize("alike", [True, False])
def test_evidences_of_many_scales_side_by_side(alike):
    """Observations with effects of their own are independent: EP has no error but its nodes'."""
    scales = np.array([0.3, 0.9, 2.0])
    factor = np.zeros((3, 20, 20))
    factor[:, ::2, :10] = scales[:, None, None] * np.eye(10)
    factor[:, 1::2, 10:] = 0.8 * np.eye(10)
    sites = SeveralSites(
        lambda eta: norm.logpdf(VALUES, eta[..., ::2], np.exp(eta[..., 1::2])),
        derivatives,
        lambda eta: derivatives(eta)[0],
        np.tile([0.2, -0.5], 10),
        2,
        gaussian_in=0,
    )
    begun = np.zeros((3, 40)), np.zeros((3, 20))
    found = fit_several(factor, sites_together([sites] * 3, alike), begun, tol=1e-4, max_sweeps=20)
    assert (found.residual < 1e-4).all()
    true = [mean_and_log_sd(scale)[0] for scale in scales]
    # Nine nodes about the moments of ten factors: a hundredth of the error of draws.
    np.testing.assert_allclose(found.log_prob, true, atol=2e-3)


def test_ep_after_an_attempt_that_has_failed():
    """Steps beyond all numbers were kept: the evidence was Laplace's, 5 too small."""
    data = TrainingData(effects("mean and log sd"), None, None, None, None)
    problem = integration_problem(data, None, None)
    (origin,) = problem.origins
    ((terms, sites),) = problem.objective.known_at(origin)
    rows = rows_of(terms, sites)
    (block,) = rows._of_ep
    block._values = block._steps = [np.zeros(60), np.full(60, 1e200)]
    found = rows.fit(1e-4).log_prob + terms.log_constant
    # As side by side: nine nodes about the moments.
    true = mean_and_log_sd(problem.objective.named(origin)["s"])[0]
    assert found == pytest.approx(true, abs=2e-3)


def test_one_number_of_two_predictors():
    # Observed without an axis: the sum of two rates.
    with pm.Model() as model:
        f = pm.Normal("f", 0.0, 1.0, shape=2)
        pm.Poisson("y", pm.math.exp(f[0]) + pm.math.exp(f[1]), observed=3)
    found = sg.integrate(model, random_seed=1)["posterior"].attrs
    rate = np.exp(NODES[:, None]) + np.exp(NODES)
    evidence = np.log(MASS @ poisson(rate).pmf(3) @ MASS)
    assert abs(found["log_evidence"] - evidence) < 4.0 * found["log_evidence_se"] < 0.01
