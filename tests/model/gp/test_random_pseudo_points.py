"""Random pseudo-points, phases and truncation: at a point the process is the fixed one."""

import numpy as np
import pymc as pm
import pytensor
import pytest
import xarray as xr

from pymc_skewgp import SkewGP
from pymc_skewgp._model.ops.plain_mode import PLAIN

X = np.linspace(-2.0, 2.0, 6)[:, None]
Y = np.array([0, 1, 1, 0, 1, 1])
POINTS = np.array([[-0.6], [1.1]])
KERNEL = 2.0 * pm.gp.cov.ExpQuad(1, ls=0.8)


@pytest.fixture(scope="module")
def learnt():
    with pm.Model() as model:
        r = pm.Normal("r", 0.0, 2.0, shape=(2, 1))
        positive = pm.Bernoulli("positive", 0.5, shape=2)
        t = pm.Normal("t", 0.0, 1.0)
        gp = SkewGP(cov_func=KERNEL, pseudo_points=r, phase=2 * positive - 1, truncation=t)
        gp.marginal_likelihood("y", X, Y)
    return gp, model


@pytest.fixture(scope="module")
def log_p(learnt):
    _, model = learnt
    return model.compile_logp(vars=[model["y"]], mode=PLAIN)


def fixed(phase, truncation):
    return SkewGP(
        cov_func=KERNEL, pseudo_points=POINTS, phase=phase, truncation=truncation
    ).posterior(X, Y)


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
    posterior = gp.posterior(X, Y, point={"r": POINTS, "positive": [1, 0], "t": 0.3})
    expected = fixed([1, -1], 0.3)
    # Same problem, same seed: the same draws.
    assert posterior.log_marginal_likelihood == expected.log_marginal_likelihood
    assert gp.n_pseudo_points == 2
    with pytest.raises(ValueError, match="depends on positive: give their values"):
        gp.posterior(X, Y, point={"r": POINTS, "t": 0.3})


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
        summary = fixed(phase, 0.3).predict(X, draws=0)["predictions_summary"]
        error = summary["f_sd"].to_numpy() / np.sqrt(100)
        # 12 means of 100 independent draws at 4.5 standard errors: a false alarm in 12000 seeds.
        assert (np.abs(f[start::2].mean(0) - summary["f_mean"].to_numpy()) < 4.5 * error).all()
