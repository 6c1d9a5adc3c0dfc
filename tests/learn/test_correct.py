"""`correct` against closed forms: draws under EP's evidence, weighted by the exact one."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from xarray import Dataset, DataTree

import pymc_skewgp as sg

X, Y, VARIANCE = np.array([-0.5, 0.1]), np.array([1, 0]), 400.0


def log_evidence(ls):
    """P(y) of two labels, an orthant in closed form."""
    covariance = -VARIANCE * np.exp(-0.5 * ((X[0] - X[1]) / ls) ** 2)
    return np.log(0.25 + np.arcsin(covariance / (VARIANCE + 1.0)) / (2.0 * np.pi))


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        ls = pm.LogNormal("ls", 0.0, 1.5)
        gp = sg.SkewGP(cov_func=VARIANCE * pm.gp.cov.ExpQuad(1, ls=ls))
        gp.marginal_likelihood("y", X[:, None], Y, method="ep", jitter=0.0)
        pm.Deterministic("twice", 2.0 * ls)
    return model


def trace(chains, draws, seed):
    """Quantiles of the prior: their weights are all that the evidence does."""
    rng = np.random.default_rng(seed)
    p = (rng.permuted(np.tile(np.arange(draws), (chains, 1)), axis=1) + 0.5) / draws
    ls = stats.lognorm(1.5).ppf(p)
    data = Dataset(
        {"ls": (("chain", "draw"), ls), "twice": (("chain", "draw"), 2 * ls)},
        coords={"chain": range(chains), "draw": range(draws)},
    )
    stat = Dataset({"lp": (("chain", "draw"), ls)}, coords=data.coords)
    return DataTree.from_dict({"posterior": data, "sample_stats": stat})


@pytest.mark.slow(ci=True)
def test_weights_are_exact(model):
    """The ratio of the evidences, whose mean over draws is the ratio that is reported."""
    idata = trace(1, 100, 1)
    ls = idata["posterior"]["ls"].values[0]
    with model:
        options = {"progressbar": False, "compile_kwargs": {"mode": "FAST_COMPILE"}}
        by_ep = pm.compute_log_likelihood(idata, extend_inferencedata=False, **options)
        dt = sg.correct(idata, n_evidences=100, random_seed=1, progressbar=False)
    ratio = np.exp(log_evidence(ls) - by_ep["y"].values[0].ravel())
    found = dt["posterior"].attrs
    # Two dimensions are computed exactly: no Monte Carlo error.
    assert found["log_evidence_ratio"] == pytest.approx(np.log(ratio.mean()), abs=1e-4)
    assert found["relative_ess_exact"] == pytest.approx(
        ratio.sum() ** 2 / (ratio @ ratio) / 100, abs=1e-4
    )
    # Draw i comes floor or ceiling of n w_i times.
    drawn = dt["posterior"]["ls"].values[0]
    counts = np.array([(drawn == value).sum() for value in ls])
    assert (np.abs(counts - ratio / ratio.mean()) < 1.0).all()
    np.testing.assert_array_equal(dt["posterior"]["twice"], 2 * dt["posterior"]["ls"])
    np.testing.assert_array_equal(dt["sample_stats"]["lp"], dt["posterior"]["ls"])


def test_draws_are_thinned(model):
    dt = sg.correct(trace(2, 50, 2), model=model, n_evidences=20, random_seed=1, progressbar=False)
    assert dict(dt["posterior"].sizes) == {"chain": 2, "draw": 10}
    assert set(dt["posterior"]["ls"].values[0]) <= set(
        trace(2, 50, 2)["posterior"]["ls"].values[0, 4::5]
    )
