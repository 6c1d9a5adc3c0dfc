"""Log likelihoods of many draws in one call: PyMC's, draw by draw."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from xarray import DataTree

import pymc_skewgp as sg
from pymc_skewgp._learn.averaging import model_functions as module
from pymc_skewgp._learn.averaging.model_functions import LogLikelihoods
from pymc_skewgp._model.ops.plain_mode import PLAIN


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
