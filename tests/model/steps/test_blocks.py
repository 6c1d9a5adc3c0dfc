"""One step for all that is jointly Gaussian: against closed forms, quadrature and grids.

Monte Carlo means may be off by 4.5 of their standard errors: false-alarm rate 7e-6 a statistic.
"""

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from arviz_stats.base import array_stats
from pymc.sampling.mcmc import assign_step_methods
from scipy.special import log_ndtr
from scipy.stats import multivariate_normal, norm
from step_models import X, Y, prior, rbf, sample, sun_arguments

from pymc_skewgp._errors import NotConjugateError
from pymc_skewgp._model.distributions.probit import BernoulliProbit
from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormal
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._model.steps.sun_step import ConjugateStep, LinESS

pytestmark = pytest.mark.usefixtures("in_python")

SIGMAS = 4.5
GROUP = np.array([0, 1, 2, 0, 1, 2, 0, 0])
Z = np.random.default_rng(3).normal(size=(8, 2))
VALUES = np.random.default_rng(4).normal(size=8)
NONE = np.zeros(0), np.zeros((0, 0))
COORDS = {"group": list("abc")}


def gaussian_process(name, cov, mean=0.0):
    cov = pt.as_tensor(cov)
    return UnifiedSkewNormal(name, mean, cov, pt.zeros((cov.shape[0], 0)), *NONE)


def values(trace, *names):
    """Draws (chain, draw, entries) of several variables, one after the other."""
    parts = [trace["posterior"][name].values for name in names]
    return np.concatenate([x.reshape(*x.shape[:2], -1) for x in parts], axis=2)


def steps_of(model, step=None):
    _, selected = assign_step_methods(model, step)
    return {step.__name__: [x.name for x in found] for step, found in selected.items()}


def assert_mean(draws, mean, sd):
    """Means of draws (chain, draw, n), by their own effective sample size."""
    ess = array_stats.ess(draws, chain_axis=0, draw_axis=1, method="mean")
    z = (draws.mean(axis=(0, 1)) - mean) / (sd / np.sqrt(ess))
    assert np.abs(z).max() < SIGMAS, z.round(1)


def additive(observe, **sizes):
    """Two functions, effects of groups, effects that sum to zero, and slopes."""
    K1, K2 = rbf(X[:8], X[:8], 0.5, 2.0) + 1e-6 * np.eye(8), rbf(X[:8], X[:8], 2.0, 1.0)
    K2 = K2 + 1e-6 * np.eye(8)
    with pm.Model(coords=COORDS) as model:
        f1, f2 = gaussian_process("f1", K1, 0.3), gaussian_process("f2", K2)
        b = pm.Normal("b", 0.0, 0.7, dims="group")
        z = pm.ZeroSumNormal("z", 1.5, dims="group")
        slope = pm.MvNormal("slope", np.zeros(2), 2.0 * np.eye(2) + 0.5)
        observe(f1 + f2 + b[GROUP] + z[GROUP] + pm.math.dot(Z, slope) - 0.2)
    plane = np.eye(3) - 1.0 / 3.0
    design = np.hstack([np.eye(8), np.eye(8), np.eye(3)[GROUP], np.eye(3)[GROUP], Z])
    cov = np.zeros((24, 24))
    blocks = [K1, K2, 0.49 * np.eye(3), 2.25 * plane, 2.0 * np.eye(2) + 0.5]
    start = 0
    for block in blocks:
        stop = start + len(block)
        cov[start:stop, start:stop] = block
        start = stop
    return model, design, np.repeat([0.3, 0.0], [8, 16]), cov


NAMES = ("f1", "f2", "b", "z", "slope")


def test_everything_at_once_under_normal_data():
    """Independent draws of the joint normal posterior: mean and covariance in closed form."""
    sd = np.linspace(0.2, 1.0, 8)
    model, A, mean, cov = additive(lambda eta: pm.Normal("y", eta, sd, observed=VALUES))
    assert steps_of(model) == {"ConjugateStep": ["f1", "f2", "b", "z_zerosum__", "slope"]}
    draws = values(sample(model, 4000, chains=1), *NAMES)[0]
    gain = cov @ A.T @ np.linalg.inv(A @ cov @ A.T + np.diag(sd**2))
    centre = mean + gain @ (VALUES + 0.2 - A @ mean)
    left = cov - gain @ A @ cov
    assert np.abs(draws[:, 19:22].sum(axis=1)).max() < 1e-10
    root = np.sqrt(left.diagonal() / len(draws))
    assert np.abs((draws.mean(axis=0) - centre) / root).max() < SIGMAS
    # Of products of two normals: (v_i v_j + c_ij^2) / n.
    variances = np.outer(left.diagonal(), left.diagonal()) + left**2
    z = ((draws - centre).T @ (draws - centre) / len(draws) - left) / np.sqrt(
        variances / len(draws)
    )
    assert np.abs(z).max() < SIGMAS
    ess = array_stats.ess(draws[None], chain_axis=0, draw_axis=1)
    assert ess.min() > 3000  # independent: all but Monte Carlo error of the estimate


def importance_moments(A, mean, cov, n=400_000):
    """Moments of the components under labels, from prior draws of the components themselves."""
    rng = np.random.default_rng(0)
    z = rng.multivariate_normal(mean, cov, size=n, check_valid="ignore")
    log_weights = log_ndtr((2 * Y[:8] - 1) * (z @ A.T - 0.2)).sum(axis=1)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    centre = weights @ z
    spread = np.sqrt(weights @ (z - centre) ** 2)
    return centre, spread, 1.0 / (weights**2).sum()


def test_components_under_labels():
    """Near-independent draws of every component, where one at a time would hardly move."""
    model, A, mean, cov = additive(lambda eta: BernoulliProbit("y", eta, observed=Y[:8]))
    draws = values(sample(model, 1000), *NAMES)
    ess = array_stats.ess(draws, chain_axis=0, draw_axis=1)
    assert ess.min() > 1300  # of 2000
    centre, spread, size = importance_moments(A, mean, cov)
    assert size > 2000
    error = spread * np.sqrt(1.0 / np.minimum(ess, 2000) + 1.0 / size)
    assert np.abs((draws.mean(axis=(0, 1)) - centre) / error).max() < SIGMAS
    ratio = draws.var(axis=(0, 1)) / spread**2
    assert np.abs(ratio - 1.0).max() < SIGMAS * np.sqrt(3.0 / 1300 + 3.0 / size)


def on_grid(log_p):
    p = np.exp(log_p - log_p.max())
    return p / p.sum()


@pytest.mark.slow(ci=True)
def test_noise_and_scale_of_normal_data_by_their_exact_evidence():
    """Both moved with f and b integrated out: a grid of the evidence in closed form."""
    n = 8
    K = rbf(X[:n], X[:n], 0.8, 1.0) + 1e-6 * np.eye(n)
    with pm.Model(coords=COORDS) as model:
        sigma, eta = pm.LogNormal("sigma", -0.5, 0.5), pm.LogNormal("eta", 0.0, 0.5)
        f, b = gaussian_process("f", eta**2 * K), pm.Normal("b", 0.0, 0.5, dims="group")
        pm.Normal("y", f + b[GROUP], sigma, observed=VALUES)
    assert steps_of(model) == {"ConjugateStep": ["sigma_log__", "eta_log__", "f", "b"]}
    draws = np.log(values(sample(model, 700, tune=200), "sigma", "eta"))
    s, e = np.meshgrid(np.linspace(-2.5, 1.5, 41), np.linspace(-2.2, 2.2, 41), indexing="ij")
    effects = 0.25 * (GROUP[:, None] == GROUP)
    log_p = [
        multivariate_normal.logpdf(
            VALUES, cov=np.exp(2 * y) * K + effects + np.exp(2 * x) * np.eye(n)
        )
        for x, y in zip(s.ravel(), e.ravel(), strict=True)
    ]
    log_p = log_p + norm.logpdf(s, -0.5, 0.5).ravel() + norm.logpdf(e, 0.0, 0.5).ravel()
    p, both = on_grid(log_p), np.stack([s.ravel(), e.ravel()])
    mean = both @ p
    sd = np.sqrt((both**2) @ p - mean**2)
    ess = array_stats.ess(draws, chain_axis=0, draw_axis=1)
    assert ess.min() > 300  # of 1400
    assert_mean(draws, mean, sd)


def grouped(**more):
    with pm.Model(coords=COORDS) as model:
        tau = pm.HalfNormal("tau")
        level = pm.Normal("level")
        b = pm.Normal("b", level, tau, dims="group")
        f = prior(X[:8], 1)
        BernoulliProbit("y", f + b[pm.Data("g", GROUP)], observed=pm.Data("labels", Y[:8]))
    return model


def test_a_centred_hierarchy_is_one_block_with_its_level():
    model = grouped()
    assert steps_of(model) == {"ConjugateStep": ["tau_log__", "level", "b", "f"]}
    trace = sample(model, 300)
    ess = array_stats.ess(values(trace, "level", "b"), chain_axis=0, draw_axis=1)
    assert ess.min() > 200  # of 600


def test_what_the_user_chose_is_left_to_the_user():
    """Steps of f alone: its companions and hyperparameters are for others, as they were."""
    model = grouped()
    with model:
        alone, lin_ess = ConjugateStep([model["f"]]), LinESS([model["f"]])
        whole = ConjugateStep([model[name] for name in ("f", "b", "level", "tau")])
    for step in (alone, lin_ess):
        assert steps_of(model, step) == {"NUTS": ["tau_log__", "level", "b"]}
    assert steps_of(model, whole) == {}
    assert repr(alone) == "ConjugateStep(f, hyperparameters=[], n_proposals=16)"
    assert repr(whole) == "ConjugateStep(level, b, f, hyperparameters=[tau], n_proposals=16)"
    with model, pytest.raises(NotConjugateError, match="the mean of b depends on level"):
        ConjugateStep([model["f"], model["level"]])


def test_hyperparameters_that_something_else_depends_on_go_to_nuts_too():
    with pm.Model() as model:
        ls, eta = pm.LogNormal("ls"), pm.HalfNormal("eta")
        scale = pm.HalfNormal("scale")
        many = pm.HalfNormal("many", scale, shape=3)
        cov = eta**2 * pt.exp(-0.5 * ((X[:6, None] - X[:6]) / ls) ** 2) + 0.1 * pt.eye(6)
        f = gaussian_process("f", cov)
        BernoulliProbit("y", many.sum() * f, observed=Y[:6])
        pm.Normal("seen", ls, observed=0.7)
    assert steps_of(model) == {
        "NUTS": ["ls_log__", "scale_log__"],
        "ConjugateStep": ["eta_log__", "many_log__", "f"],
    }


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({}, set()),
        ({"target_accept": 0.9}, {"tau"}),
        ({"nuts": {"max_treedepth": 3}}, {"tau"}),
        ({"conjugate": {"collapse": False}}, {"tau"}),
    ],
)
def test_options_for_nuts_leave_it_the_hyperparameters(options, left, monkeypatch):
    """And no variable is left to a step method that got no options."""
    found = {}

    def instantiate(model, selected_steps, **kwargs):
        for step, chosen in selected_steps.items():
            found[step] = [model.values_to_rvs[x].name for x in chosen]
        raise KeyboardInterrupt

    monkeypatch.setattr("pymc.sampling.mcmc.instantiate_steppers", instantiate)
    with pytest.raises(KeyboardInterrupt):
        sample(grouped(), 2, nuts_sampler="pymc", **options)
    assert set(found.get(pm.NUTS, [])) == left
    with pm.Model() as model:
        BernoulliProbit("y", prior(X[:8]) + pm.Normal("b"), observed=Y[:8])
    found.clear()
    with pytest.raises(KeyboardInterrupt):
        sample(model, 2, nuts_sampler="pymc", **options)
    assert found.get(pm.NUTS, []) == ([] if options.keys() <= {"conjugate"} else ["b"])


def test_two_blocks_in_one_step():
    with pm.Model() as model:
        f = prior(X[:6])
        BernoulliProbit("y", f, observed=Y[:6])
        g = UnifiedSkewNormal("g", **sun_arguments(X[:4], 1))
        pm.Normal("x", g, 0.5, observed=VALUES[:4])
    trace = sample(model, 50)
    assert trace["sample_stats"]["accept"].shape == (2, 50)
    assert trace["posterior"]["f"].shape == (2, 50, 6)
    alone = sample(pm.do(model, {"g": np.zeros(4)}), 50)
    assert alone["posterior"].data_vars.keys() == {"f"}


def shared_scale():
    """Labels of one function, values of another one, and the scale that both have."""
    x = np.array([[0.0], [0.7]])
    with pm.Model() as model:
        log_eta = pm.Normal("log_eta", 0.0, 0.7)
        gp = SkewGP(cov_func=pm.math.exp(2 * log_eta) * pm.gp.cov.ExpQuad(1, ls=1.0))
        BernoulliProbit("y", gp.prior("f", x), observed=[1, 1])
        pm.Normal("z", gp.prior("g", x), 0.5, observed=[1.4, -0.9])
    return model


@pytest.mark.slow(ci=True)
def test_blocks_that_share_a_hyperparameter():
    """Its posterior against a grid: the evidence is a product, each factor in closed form."""
    model = shared_scale()
    assert steps_of(model) == {"ConjugateStep": ["log_eta", "f", "g"]}
    draws = sample(model, 600)["posterior"]["log_eta"]
    r = np.exp(-0.5 * 0.7**2)
    k = np.array([[1.0, r], [r, 1.0]])
    t = np.linspace(-4.0, 4.0, 401)
    eta2 = np.exp(2 * t)
    log_p = norm(0.0, 0.7).logpdf(t)
    log_p += np.log(0.25 + np.arcsin(eta2 * r / (eta2 + 1.0)) / (2 * np.pi))
    of_values = [multivariate_normal(cov=s * k + 0.25 * np.eye(2)) for s in eta2]
    log_p += [normal.logpdf([1.4, -0.9]) for normal in of_values]
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = p @ t
    sd = np.sqrt(p @ (t - mean) ** 2)
    found = az.summary(draws, round_to="none").iloc[0]
    # Each within four standard errors: a false alarm once in 8000 seeds.
    assert abs(found["mean"] - mean) < 4 * found["mcse_mean"]
    assert abs(found["sd"] - sd) < 4 * found["mcse_sd"]
    assert found["ess_bulk"] > 250
