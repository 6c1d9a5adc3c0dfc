"""`SkewGP.posterior` is `SkewGPPosterior` with PyMC's kernels and means."""

import numpy as np
import pymc as pm
import pytensor
import pytest
import xarray as xr

from pymc_skewgp import SkewGP, SkewGPPosterior
from pymc_skewgp._model.ops.plain_mode import PLAIN

cov = pm.gp.cov
X = np.array([[-1.0], [0.2], [0.9], [2.0]])
Y = [0, 1, 1, 0]


def matern(X, Xs=None, diag=False):
    if diag:
        return np.full(len(X), 4.0)
    r = np.sqrt(5.0) * np.abs(X - (X if Xs is None else Xs).T) / 0.8
    return 4.0 * (1.0 + r + r**2 / 3.0) * np.exp(-r)


def test_equal_to_the_array_form():
    pseudo = {"pseudo_points": [[0.5], [3.0]], "phase": [-1, 1], "truncation": [0.3, 0.0]}
    gp = SkewGP(
        mean_func=pm.gp.mean.Linear([0.5], 0.1), cov_func=2.0**2 * cov.Matern52(1, ls=0.8), **pseudo
    )
    found = gp.posterior(X, Y, random_seed=3)
    expected = SkewGPPosterior(
        X, Y, cov_func=matern, mean_func=lambda X: 0.5 * X[:, 0] + 0.1, random_seed=3, **pseudo
    )
    # The same draws under matrices equal to round-off.
    assert found.log_marginal_likelihood.value == pytest.approx(
        expected.log_marginal_likelihood.value, abs=1e-8
    )
    summary, other = (
        p.predict([[0.0], [5.0]], random_seed=1)["predictions_summary"] for p in (found, expected)
    )
    for name in ("f_mean", "f_sd", "f_skewness", "p_mean", "f_quantile"):
        np.testing.assert_allclose(summary[name], other[name], atol=1e-7)
    drawn = [p.sample(20, random_seed=2)["posterior"]["f"] for p in (found, expected)]
    np.testing.assert_allclose(*drawn, atol=1e-6)


def test_nan_hyperparameter_is_refused():
    with pm.Model():
        ls = pm.Gamma("ls", 2, 1)
    posterior = SkewGP(cov_func=cov.ExpQuad(1, ls=ls)).posterior(X, Y, point={"ls": np.nan})
    with pytest.raises(ValueError, match=r"cov_func gave NaN .* check its hyperparameters"):
        _ = posterior.log_marginal_likelihood


def test_arguments_reach_the_posterior():
    gp = SkewGP(cov_func=cov.ExpQuad(1, ls=1.0), pseudo_points=[[0.0], [1.0]])
    posterior = gp.posterior(X, Y, n_draws=64, random_seed=1)
    assert repr(posterior) == (
        "SkewGPPosterior(n=4, n_features=1, likelihood=BernoulliProbit(), n_pseudo_points=2, "
        "fitted=False)"
    )
    assert posterior.latent.draws.shape == (64, 6)
    other = gp.posterior(X, Y, n_draws=64, random_seed=2)
    assert not np.isin(posterior.latent.draws, other.latent.draws).any()


# Random pseudo-points, phases and truncation: at a point the process is the fixed one.


INPUTS = np.linspace(-2.0, 2.0, 6)[:, None]
LABELS = np.array([0, 1, 1, 0, 1, 1])
POINTS = np.array([[-0.6], [1.1]])
KERNEL = 2.0 * pm.gp.cov.ExpQuad(1, ls=0.8)


@pytest.fixture(scope="module")
def learnt():
    with pm.Model() as model:
        r = pm.Normal("r", 0.0, 2.0, shape=(2, 1))
        positive = pm.Bernoulli("positive", 0.5, shape=2)
        t = pm.Normal("t", 0.0, 1.0)
        gp = SkewGP(cov_func=KERNEL, pseudo_points=r, phase=2 * positive - 1, truncation=t)
        gp.marginal_likelihood("y", INPUTS, LABELS)
    return gp, model


@pytest.fixture(scope="module")
def log_p(learnt):
    _, model = learnt
    return model.compile_logp(vars=[model["y"]], mode=PLAIN)


def fixed(phase, truncation):
    return SkewGP(
        cov_func=KERNEL, pseudo_points=POINTS, phase=phase, truncation=truncation
    ).posterior(INPUTS, LABELS)


@pytest.mark.parametrize("positive", [(1, 1), (0, 1), (0, 0)])
def test_marginal_likelihood(log_p, positive):
    found = log_p({"r": POINTS, "positive": positive, "t": 0.3})
    estimate = fixed(2 * np.array(positive) - 1, 0.3).log_marginal_likelihood
    # Two quasi-random estimates of one number, 256 and 1024 draws in 8 dimensions: errors of some
    # 1e-3 nat at most (the standard error of the second is below 1e-3).
    assert estimate.std_error < 2e-3
    assert abs(found - estimate.value) < 0.01


def test_posterior_at_a_point(learnt):
    gp, _ = learnt
    posterior = gp.posterior(INPUTS, LABELS, point={"r": POINTS, "positive": [1, 0], "t": 0.3})
    expected = fixed([1, -1], 0.3)
    # Same problem, same seed: the same draws.
    assert posterior.log_marginal_likelihood == expected.log_marginal_likelihood
    assert gp.n_pseudo_points == 2
    with pytest.raises(ValueError, match="depends on positive: give their values"):
        gp.posterior(INPUTS, LABELS, point={"r": POINTS, "t": 0.3})


def test_latent_draws_follow_each_draw_of_the_phase(learnt):
    gp, _ = learnt
    truth = xr.Dataset(
        {
            "r": (("chain", "draw", "s", "d"), np.broadcast_to(POINTS, (1, 200, 2, 1))),
            "positive": (("chain", "draw", "s"), np.tile([[1, 1], [0, 0]], (100, 1))[None]),
            "t": (("chain", "draw"), np.full((1, 200), 0.3)),
        }
    )
    idata = xr.DataTree.from_dict({"posterior": truth})
    with pytensor.config.change_flags(linker="py"):  # compiling for numba would take longer
        tree = gp.sample_latent(idata, progressbar=False, random_seed=1)
    f = tree["posterior"]["f"].to_numpy()[0]
    for start, phase in ((0, [1, 1]), (1, [-1, -1])):
        summary = fixed(phase, 0.3).predict(INPUTS, draws=0)["predictions_summary"]
        error = summary["f_sd"].to_numpy() / np.sqrt(100)
        # 12 means of 100 independent draws at 4.5 standard errors: a false alarm in 12000 seeds.
        assert (np.abs(f[start::2].mean(0) - summary["f_mean"].to_numpy()) < 4.5 * error).all()
