"""`correct` against closed forms: draws under EP's evidence, weighted by the exact one."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from xarray import Dataset, DataTree

import pymc_skewgp as sg
from pymc_skewgp._learn.averaging import model_functions as module
from pymc_skewgp._learn.averaging.model_functions import LogLikelihoods
from pymc_skewgp._model.ops.plain_mode import PLAIN

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


# Log likelihoods of many draws in one call: PyMC's, draw by draw.


@pytest.fixture(scope="module")
def drawn():
    rng = np.random.default_rng(0)
    with pm.Model(coords={"row": range(4)}) as model:
        s, b = pm.HalfNormal("s"), pm.Normal("b", shape=2)
        gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=s))
        f = gp.prior("f", rng.normal(size=(4, 1)), dims="row")
        pm.Normal("y", f + b[[0, 1, 0, 1]], s, observed=rng.normal(size=4), dims="row")
        pm.MvNormal("vector", f[:2], np.eye(2) * s, observed=[0.1, 0.2])
        pm.Normal("apart", 0.0, 1.0, observed=[1.0, 2.0])
        # By Python: numba warns of a product of PyMC's own with an array that is not contiguous.
        kwargs = {"mode": "FAST_COMPILE"}
        tree = pm.sample_prior_predictive(70, random_seed=1, compile_kwargs=kwargs)
    return model, tree["prior"].to_dataset()


@pytest.mark.parametrize("n_values", [70, 3])
def test_those_of_pymc(drawn, n_values, monkeypatch):
    # Of few values of s, what depends on it alone is computed once for each.
    model, trace = drawn
    trace = trace.assign(s=trace.s[:, np.arange(70) % n_values].assign_coords(draw=trace.draw))
    tree = DataTree.from_dict({"posterior": trace})
    options = {"model": model, "progressbar": False, "compile_kwargs": {"mode": PLAIN}}
    expected = pm.compute_log_likelihood(tree, extend_inferencedata=False, **options)
    found = LogLikelihoods(model)(trace)
    assert set(found.coords) == set(expected.coords)
    for name in ("y", "vector", "apart"):
        assert found[name].dims == expected[name].dims
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-10)

    def refuse(*_):
        raise NotImplementedError

    monkeypatch.setattr(module, "many_at_once", refuse)
    # One by one where there is no other way: sums in another order.
    np.testing.assert_allclose(LogLikelihoods(model)(trace)["y"], expected["y"], rtol=1e-12)


def test_constants_in_single_precision():
    """Of NegativeBinomial PyTensor keeps an infinity in single precision; SciPy's numbers."""
    rng, y = np.random.default_rng(1), np.array([0, 3, 1])
    with pm.Model() as model:
        f, alpha = pm.Normal("f", shape=3), pm.Gamma("alpha", 2, 0.5)
        pm.NegativeBinomial("y", mu=pm.math.exp(f), alpha=alpha, observed=y)
    values = np.repeat([0.5, 2.0], 20)[:, None]  # many draws share the few values of alpha
    draws = {"f": rng.normal(size=(40, 3)), "alpha": values[:, 0]}
    mean = np.exp(draws["f"])
    expected = stats.nbinom.logpmf(y, values, values / (values + mean))
    found = LogLikelihoods(model)(module.as_dataset(model, {k: x[None] for k, x in draws.items()}))
    np.testing.assert_allclose(found["y"].values[0], expected, rtol=1e-10)
