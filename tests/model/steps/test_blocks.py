"""One step for all that is jointly Gaussian: against closed forms, quadrature and grids.

Monte Carlo means may be off by 4.5 of their standard errors: false-alarm rate 7e-6 a statistic.
"""

import logging

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from arviz_stats.base import array_stats
from pymc.sampling.mcmc import assign_step_methods
from pymc.stats.convergence import SamplerWarning, WarningType
from scipy.linalg import block_diag
from scipy.special import softmax
from scipy.stats import multivariate_normal, norm
from step_models import X, Y, prior, probit_model, rbf, sample, sun_arguments
from step_models import sample as sample_by

from pymc_skewgp._errors import NotConjugateError
from pymc_skewgp._gaussian.weights import chain_relative_ess
from pymc_skewgp._model.distributions.probit import BernoulliProbit
from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormal
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


def test_everything_at_once_under_normal_data():
    """Two functions, effects of groups, effects that sum to zero, and slopes, independently drawn.

    Mean and covariance of the joint normal posterior in closed form.
    """
    K1, K2 = rbf(X[:8], X[:8], 0.5, 2.0) + 1e-6 * np.eye(8), rbf(X[:8], X[:8], 2.0, 1.0)
    K2, sd, K3 = K2 + 1e-6 * np.eye(8), np.linspace(0.2, 1.0, 8), 2.0 * np.eye(2) + 0.5
    with pm.Model(coords=COORDS) as model:
        f1, f2 = gaussian_process("f1", K1, 0.3), gaussian_process("f2", K2)
        b = pm.Normal("b", 0.0, 0.7, dims="group")
        z = pm.ZeroSumNormal("z", 1.5, dims="group")
        slope = pm.MvNormal("slope", np.zeros(2), K3)
        eta = f1 + f2 + b[GROUP] + z[GROUP] + pm.math.dot(Z, slope) - 0.2
        pm.Normal("y", eta, sd, observed=VALUES)
    A = np.hstack([np.eye(8), np.eye(8), np.eye(3)[GROUP], np.eye(3)[GROUP], Z])
    cov = block_diag(K1, K2, 0.49 * np.eye(3), 2.25 * (np.eye(3) - 1.0 / 3.0), K3)
    mean = np.repeat([0.3, 0.0], [8, 16])
    assert steps_of(model) == {"ConjugateStep": ["f1", "f2", "b", "z_zerosum__", "slope"]}
    draws = values(sample(model, 4000, chains=1), "f1", "f2", "b", "z", "slope")[0]
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
    draws = np.log(values(sample(model, 400, tune=150), "sigma", "eta"))
    s, e = np.meshgrid(np.linspace(-2.5, 1.5, 41), np.linspace(-2.2, 2.2, 41), indexing="ij")
    effects = 0.25 * (GROUP[:, None] == GROUP)
    log_p = [
        multivariate_normal.logpdf(
            VALUES, cov=np.exp(2 * y) * K + effects + np.exp(2 * x) * np.eye(n)
        )
        for x, y in zip(s.ravel(), e.ravel(), strict=True)
    ]
    log_p = log_p + norm.logpdf(s, -0.5, 0.5).ravel() + norm.logpdf(e, 0.0, 0.5).ravel()
    p, both = softmax(log_p), np.stack([s.ravel(), e.ravel()])
    mean = both @ p
    sd = np.sqrt((both**2) @ p - mean**2)
    ess = array_stats.ess(draws, chain_axis=0, draw_axis=1)
    assert ess.min() > 170  # of 800
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
    [({"target_accept": 0.9}, {"tau"}), ({"conjugate": {"collapse": False}}, {"tau"})],
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


# `LinESS`: the paper's sampler as a step method, and the warning drawn from its own draws.


def sample_lin_ess(model, draws=200, n_steps=1, thin=1, **kwargs):
    with model:
        step = LinESS([model["f"]], n_steps=n_steps, thin=thin)
    return sample_by(model, draws, step=step, **kwargs)


def test_it_agrees_with_the_exact_step():
    """n = 4: 4.5 standard errors of the difference of the means, by the effective sample sizes."""
    model = probit_model(4, 2)
    draws = sample_lin_ess(model, draws=1500, n_steps=5).posterior["f"].values
    exact = sample_by(model, 1500).posterior["f"].values
    variance = 0.0
    for sampled in (draws, exact):
        ess = array_stats.ess(sampled, chain_axis=0, draw_axis=1, method="mean")
        variance = variance + sampled.var(axis=(0, 1)) / ess
    difference = draws.mean(axis=(0, 1)) - exact.mean(axis=(0, 1))
    assert (np.abs(difference) < 4.5 * np.sqrt(variance)).all()


def test_statistics():
    stats = sample_lin_ess(probit_model(6, 2)).sample_stats
    arcs = stats["arc_length"].values
    assert ((arcs > 0) & (arcs <= 2 * np.pi)).all()
    assert (stats["n_active"].values == 8).all()  # zero thresholds: every row always cuts
    assert not stats["refreshed"].any()
    assert "warning" not in stats


def test_more_steps_mix_better():
    """20 inner steps against 1: the effective sample size grows at least fivefold."""
    ess = [
        chain_relative_ess(
            sample_lin_ess(probit_model(20), n_steps=k, draws=500).posterior["f"].values
        )
        for k in (1, 20)
    ]
    assert ess[1] > 5 * ess[0]


def test_a_chain_that_hardly_moved_says_so(caplog):
    """Effective sample sizes below 100 a chain: a warning of PyMC's kind, logged once a chain."""
    with caplog.at_level(logging.WARNING, "pymc"):
        idata = sample_lin_ess(probit_model(20), keep_warning_stat=True, quiet=False)
    warnings = [w for w in idata.sample_stats["warning"].values.ravel() if w is not None]
    assert len(warnings) == 2
    assert all(isinstance(w, SamplerWarning) for w in warnings)
    assert warnings[0].kind is WarningType.CONVERGENCE
    draws = idata.posterior["f"].values
    for chain, warning in enumerate(warnings):
        assert warning.extra == pytest.approx(200 * chain_relative_ess(draws[[chain]]))
    logged = [
        r.message for r in caplog.records if "by lin-ess have an effective sample" in r.message
    ]
    assert len(logged) == 2
    assert logged[0].startswith("The 200 draws of f by lin-ess have an effective sample size")
    assert "raise n_steps (now 1), or let pm.sample pick ConjugateStep" in logged[0]


def test_short_chains_and_steps_by_hand_are_not_judged(caplog):
    model = probit_model(20)
    with caplog.at_level(logging.WARNING, "pymc"):
        sample_lin_ess(model, draws=50, quiet=False)
        sample_lin_ess(probit_model(2), draws=500, n_steps=20, quiet=False)  # one that moved
    assert not [r for r in caplog.records if "lin-ess" in r.message]
    with model:
        step = LinESS([model["f"]])
    point, [stats] = step.step(model.initial_point())  # no chain was set up
    assert stats["warning"] is None
    assert stats["refreshed"]
    assert point["f"].shape == (20,)


def test_wrong_use_is_refused():
    model = probit_model(6, 1)
    assert LinESS.competence(model["f"], True) == 0  # it is never picked by itself
    with pm.Model():
        f = prior(X[:3])
        pm.Bernoulli("y", logit_p=f, observed=Y[:3])
        with pytest.raises(NotConjugateError, match="y, which depends on f, is Bernoulli without"):
            LinESS([f])
        with pytest.raises(ValueError, match="n_steps must be at least 1"):
            LinESS([f], n_steps=0)
        with pytest.raises(ValueError, match="thin must be at least 1"):
            LinESS([f], thin=0)
