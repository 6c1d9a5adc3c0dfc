"""What PyMC and ArviZ do with models, on a small one: the marginal likelihood of a SkewGP.

Most of the time is compilation, so that one model, its trace and its latent functions serve all.
"""

import arviz as az
import cloudpickle
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from arviz_base import from_dict
from pytensor.compile.mode import Mode
from scipy import stats

from pymc_skewgp import SkewGP

PLAIN = Mode("py", "fast_run").excluding("fusion", "inplace")
RNG = np.random.default_rng(5)
X = np.linspace(-2.0, 2.0, 8)[:, None]
Y = (X[:, 0] + RNG.normal(size=8) > 0).astype(int)
XNEW = np.array([[-0.7], [0.6], [2.5]])
# Few draws and short chains are in the log, which is not what is tested here.
pytestmark = pytest.mark.filterwarnings("error")


def process(eta):
    kernel = eta**2 * pm.gp.cov.Matern12(1, ls=0.8)
    return SkewGP(cov_func=kernel, pseudo_points=[[0.5]], phase=[1.0])


@pytest.fixture(scope="module")
def model_and_process():
    with pm.Model(coords={"obs": list("abcdefgh")}) as model:
        eta = pm.LogNormal("eta", 0.0, 0.5)
        gp = process(eta)
        inputs = pm.Data("X", X, dims=("obs", "feature"))
        gp.marginal_likelihood("y", inputs, pm.Data("labels", Y, dims="obs"), dims="obs")
    return model, gp


@pytest.fixture(scope="module")
def model(model_and_process):
    return model_and_process[0]


@pytest.fixture(scope="module")
def gp(model_and_process):
    return model_and_process[1]


@pytest.fixture(scope="module")
def trace():
    """Made up, for what only reads it: eta near its posterior."""
    eta = np.exp(np.random.default_rng(1).normal(0.1, 0.4, (2, 50)))
    return from_dict({"posterior": {"eta": eta}, "constant_data": {"X": X, "labels": Y}})


@pytest.fixture(scope="module")
def tree(gp, trace):
    """The trace with its latent functions: the one test that compiles them for numba."""
    return gp.sample_latent(trace, Xnew=XNEW, random_seed=2, progressbar=False)


def evidence(gp, eta, inputs=X, labels=Y, n_draws=2048):
    return gp.posterior(inputs, labels, point={"eta": eta}, n_draws=n_draws).log_marginal_likelihood


@pytest.mark.slow(ci=True)
def test_nutpie(model, gp):
    """Mean and standard deviation of log eta, by the trapezoidal rule."""
    grid = np.linspace(-2.5, 2.5, 41)
    log_p = [evidence(gp, eta).value for eta in np.exp(grid)]
    weights = np.exp(np.array(log_p) - max(log_p) + stats.norm.logpdf(grid, 0.0, 0.5))
    weights /= weights.sum()
    mean = weights @ grid
    sd = np.sqrt(weights @ (grid - mean) ** 2)
    quiet = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}
    with model:
        trace = pm.sample(150, tune=100, nuts_sampler="nutpie", chains=2, cores=1, **quiet)
    draws = np.log(trace["posterior"]["eta"])
    size = float(az.ess(draws))
    assert size > 50
    # Five standard errors: a false alarm in 6e-7 of all seeds.
    assert abs(float(draws.mean()) - mean) < 5 * sd / np.sqrt(size)
    assert abs(float(draws.std()) / sd - 1) < 5 / np.sqrt(2 * size)
    assert int(trace["sample_stats"]["diverging"].sum()) == 0


@pytest.mark.usefixtures("in_python")
def test_at_other_inputs(model, trace):
    """As many labels as inputs; what they were set to is of no consequence."""
    other = cloudpickle.loads(cloudpickle.dumps(model))
    changed = {"X": XNEW, "labels": np.zeros(3, dtype=int)}
    with other:
        pm.set_data(changed, coords={"obs": np.arange(3)})
        tree = pm.sample_posterior_predictive(
            trace.isel(draw=slice(3)), random_seed=1, progressbar=False, predictions=True
        )
    assert tree["predictions"]["y"].shape == (2, 3, 3)


def test_do(model, gp):
    changed = pm.do(model, {"eta": 1.4})
    assert changed.free_RVs == []
    expected = evidence(gp, 1.4)
    # The model has 256 points, the other 2048: its error is at most eight times as large.
    found = changed.compile_logp(mode=PLAIN)({})
    assert found == pytest.approx(expected.value, abs=40 * expected.std_error)


def test_observe_labels_anew(model, gp):
    other = 1 - Y
    observed = pm.observe(model, {"y": other})
    value = observed.compile_logp(vars=[observed["y"]], mode=PLAIN)({"eta_log__": np.log(1.4)})
    expected = evidence(gp, 1.4, labels=other)
    assert value == pytest.approx(expected.value, abs=40 * expected.std_error)


def test_one_value_for_each_draw(model, gp, trace):
    """All labels together, as they are dependent once f is gone."""
    part = trace.isel(draw=slice(2))
    how = {"extend_inferencedata": False, "compile_kwargs": {"mode": PLAIN}}
    with model:
        found = pm.compute_log_likelihood(part, progressbar=False, **how)
    assert found["y"].dims == ("chain", "draw")
    for index in ((0, 0), (1, 1)):
        eta = float(part["posterior"]["eta"][index])
        expected = evidence(gp, eta)
        tolerance = 40 * expected.std_error
        assert float(found["y"][index]) == pytest.approx(expected.value, abs=tolerance)


def test_loo_needs_the_function(tree):
    """Given f the labels are independent, and cross-validation goes label by label."""
    # One label of eight matters much, and a hundred draws are few.
    with pytest.warns(UserWarning, match="shape parameter of Pareto"):
        result = az.loo(tree, var_name="y", pointwise=True)
    assert result.elpd_i.dims == ("obs_id",)
    assert result.elpd_i.shape == (8,)
    assert (result.elpd_i < 0).all()
    # Better than tossing coins, and no label counts for more than the likelihood gives it.
    in_sample = np.log(np.exp(tree["log_likelihood"]["y"]).mean(("chain", "draw"))).sum()
    assert result.elpd < float(in_sample)
    assert np.isfinite(result.p)


@pytest.mark.usefixtures("in_python")
def test_a_trace_from_a_file_will_do(gp, trace, tmp_path):
    part = trace.isel(draw=slice(4))
    part.to_netcdf(tmp_path / "trace.nc")
    with xr.open_datatree(tmp_path / "trace.nc") as loaded:
        found = gp.sample_latent(loaded, random_seed=1, progressbar=False)
    expected = gp.sample_latent(part, random_seed=1, progressbar=False)
    np.testing.assert_array_equal(found["posterior"]["f"], expected["posterior"]["f"])


@pytest.mark.usefixtures("in_python")
def test_process_with_its_model(model, gp, trace):
    """Together, so that the copy's data are those of the copied model."""
    again, copy = cloudpickle.loads(cloudpickle.dumps((model, gp)))
    point = {"eta_log__": np.array(0.3)}
    assert again.compile_logp(mode=PLAIN)(point) == model.compile_logp(mode=PLAIN)(point)
    part = trace.isel(draw=slice(3))
    a, b = (g.sample_latent(part, random_seed=1, progressbar=False) for g in (gp, copy))
    np.testing.assert_array_equal(a["posterior"]["f"], b["posterior"]["f"])


def test_graph(model):
    graph = pm.model_graph.ModelGraph(model).make_compute_graph()
    assert graph["y"] == {"eta", "X"}
    assert graph["labels"] == {"y"}


def test_text(model):
    assert "y ~ MarginalProbit(" in model.str_repr()
