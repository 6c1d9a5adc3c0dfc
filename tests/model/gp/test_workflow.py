"""What PyMC and ArviZ do with models, on a small one: the marginal likelihood of a SkewGP.

Most of the time is compilation, so that one model, its trace and its latent functions serve all.
"""

from contextlib import contextmanager

import arviz as az
import cloudpickle
import numpy as np
import pymc as pm
import pytest
import simuk
import xarray as xr
from arviz_base import from_dict
from pytensor.compile.mode import Mode
from scipy import stats

from pymc_skewgp import BernoulliProbit, SkewGP

PLAIN = Mode("py", "fast_run").excluding("fusion", "inplace")
RNG = np.random.default_rng(5)
X = np.linspace(-2.0, 2.0, 8)[:, None]
Y = (X[:, 0] + RNG.normal(size=8) > 0).astype(int)
XNEW = np.array([[-0.7], [0.6], [2.5]])
TUNE, DRAWS = 100, 150
SETTINGS = {
    "chains": 2,
    "cores": 1,
    "progressbar": False,
    "random_seed": 1,
    "compute_convergence_checks": False,  # short chains, on purpose
}
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
def sampled(model):
    with model:
        return pm.sample(tune=TUNE, draws=DRAWS, nuts_sampler="pymc", **SETTINGS)


@pytest.fixture(scope="module")
def trace():
    """Made up, for what only reads it: eta near its posterior."""
    eta = np.exp(np.random.default_rng(1).normal(0.1, 0.4, (2, 50)))
    return from_dict({"posterior": {"eta": eta}, "constant_data": {"X": X, "labels": Y}})


@pytest.fixture(scope="module")
def tree(gp, trace):
    """The trace with its latent functions: the one test that compiles them for numba."""
    return gp.sample_latent(trace, Xnew=XNEW, random_seed=2, progressbar=False)


@contextmanager
def data(model, **values):
    """Other data in a model that all tests share."""
    before = {name: model[name].get_value() for name in values}
    coords = {"obs": np.arange(len(values.get("labels", values.get("X"))))}
    with model:
        pm.set_data(values, coords=coords)
    try:
        yield
    finally:
        with model:
            pm.set_data(before, coords={"obs": list("abcdefgh")})


def evidence(gp, eta, inputs=X, labels=Y, n_draws=2048):
    return gp.posterior(inputs, labels, point={"eta": eta}, n_draws=n_draws).log_marginal_likelihood


@pytest.fixture(scope="module")
def exact(gp):
    """Mean and standard deviation of log eta, by the trapezoidal rule."""
    grid = np.linspace(-2.5, 2.5, 41)
    log_p = [evidence(gp, eta).value for eta in np.exp(grid)]
    weights = np.exp(np.array(log_p) - max(log_p) + stats.norm.logpdf(grid, 0.0, 0.5))
    weights /= weights.sum()
    mean = weights @ grid
    return mean, np.sqrt(weights @ (grid - mean) ** 2)


@pytest.mark.slow(ci=True)
class TestSampling:
    def check(self, trace, exact):
        mean, sd = exact
        draws = np.log(trace["posterior"]["eta"].to_numpy())
        size = float(az.ess(np.log(trace["posterior"]["eta"])))
        assert size > 50
        # Five standard errors: a false alarm in 6e-7 of all seeds.
        assert abs(draws.mean() - mean) < 5 * sd / np.sqrt(size)
        assert abs(draws.std() / sd - 1) < 5 / np.sqrt(2 * size)
        assert int(trace["sample_stats"]["diverging"].sum()) == 0

    def test_nutpie(self, model, exact):
        with model:
            trace = pm.sample(tune=TUNE, draws=DRAWS, nuts_sampler="nutpie", **SETTINGS)
        self.check(trace, exact)

    @pytest.mark.filterwarnings(
        # nutpie and OpenBLAS have threads of their own by then; PyMC forks all the same.
        "ignore:.*multi-threaded, use of fork:DeprecationWarning"
    )
    @pytest.mark.parametrize("mp_ctx", ["fork", "spawn"])
    def test_chains_in_processes_of_their_own(self, model, sampled, mp_ctx):
        settings = {**SETTINGS, "cores": 2, "mp_ctx": mp_ctx}
        with model:
            other = pm.sample(tune=TUNE, draws=DRAWS, nuts_sampler="pymc", **settings)
        # A forked chain has its parent's machine code. Others compile it again, and the last bit
        # of a sum may differ: 1e-16 at first, 1e-12 after 250 steps. Other seeds: of order 1.
        exact = {"rtol": 0.0} if mp_ctx == "fork" else {"rtol": 1e-6}
        np.testing.assert_allclose(other["posterior"]["eta"], sampled["posterior"]["eta"], **exact)


@pytest.mark.usefixtures("in_python")
class TestPredictive:
    def test_at_other_inputs(self, model, trace):
        """As many labels as inputs; what they were set to is of no consequence."""
        with data(model, X=XNEW, labels=np.zeros(3, dtype=int)), model:
            tree = pm.sample_posterior_predictive(
                trace.isel(draw=slice(3)), random_seed=1, progressbar=False, predictions=True
            )
        assert tree["predictions"]["y"].shape == (2, 3, 3)


class TestInterventions:
    def test_do(self, model, gp):
        changed = pm.do(model, {"eta": 1.4})
        assert changed.free_RVs == []
        expected = evidence(gp, 1.4)
        # The model has 256 points, the other 2048: its error is at most eight times as large.
        found = changed.compile_logp(mode=PLAIN)({})
        assert found == pytest.approx(expected.value, abs=40 * expected.std_error)

    def test_observe_labels_anew(self, model, gp):
        other = 1 - Y
        observed = pm.observe(model, {"y": other})
        value = observed.compile_logp(vars=[observed["y"]], mode=PLAIN)({"eta_log__": np.log(1.4)})
        expected = evidence(gp, 1.4, labels=other)
        assert value == pytest.approx(expected.value, abs=40 * expected.std_error)


@pytest.mark.usefixtures("in_python")
class TestSetData:
    labels = np.array([1, 0, 1])

    def test_sampling(self, model, gp):
        how = {"nuts_sampler": "pymc", "compile_kwargs": {"mode": PLAIN}, **SETTINGS}
        with data(model, X=XNEW, labels=self.labels), model:
            trace = pm.sample(tune=5, draws=5, **how)
            tree = gp.sample_latent(trace, progressbar=False)
            prior = pm.sample_prior_predictive(5, random_seed=1)
        assert trace["observed_data"]["y"].dims == ("obs",)
        np.testing.assert_array_equal(trace["observed_data"]["y"], self.labels)
        np.testing.assert_array_equal(trace["constant_data"]["X"], XNEW)
        assert tree["posterior"]["f"].shape == (2, 5, 3)
        assert prior["prior_predictive"]["y"].shape == (1, 5, 3)


class TestLogLikelihood:
    def test_one_value_for_each_draw(self, model, gp, trace):
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

    def test_loo_needs_the_function(self, tree):
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
class TestFiles:
    def test_a_trace_from_a_file_will_do(self, gp, trace, tmp_path):
        part = trace.isel(draw=slice(4))
        part.to_netcdf(tmp_path / "trace.nc")
        with xr.open_datatree(tmp_path / "trace.nc") as loaded:
            found = gp.sample_latent(loaded, random_seed=1, progressbar=False)
        expected = gp.sample_latent(part, random_seed=1, progressbar=False)
        np.testing.assert_array_equal(found["posterior"]["f"], expected["posterior"]["f"])


@pytest.mark.usefixtures("in_python")
class TestPickling:
    def test_process_with_its_model(self, model, gp, trace):
        """Together, so that the copy's data are those of the copied model."""
        again, copy = cloudpickle.loads(cloudpickle.dumps((model, gp)))
        point = {"eta_log__": np.array(0.3)}
        assert again.compile_logp(mode=PLAIN)(point) == model.compile_logp(mode=PLAIN)(point)
        part = trace.isel(draw=slice(3))
        a, b = (g.sample_latent(part, random_seed=1, progressbar=False) for g in (gp, copy))
        np.testing.assert_array_equal(a["posterior"]["f"], b["posterior"]["f"])


class TestPictures:
    def test_graph(self, model):
        graph = pm.model_graph.ModelGraph(model).make_compute_graph()
        assert graph["y"] == {"eta", "X"}
        assert graph["labels"] == {"y"}

    def test_text(self, model):
        text = model.str_repr()
        assert "y ~ MarginalProbit(" in text
        assert "MarginalProbit" in model.str_repr(formatting="latex")

    def test_latent_model(self):
        with pm.Model() as model:
            gp = process(1.4)
            BernoulliProbit("y", gp.prior("f", X, reparameterize=True), observed=Y)
            gp.conditional("new", XNEW)
        graph = pm.model_graph.ModelGraph(model).make_compute_graph()
        assert graph["f"] == {"f_rotated_", "f_latent_"}
        assert graph["new"] == {"f"}
        assert "new ~ UnifiedSkewNormal(" in model.str_repr()


@pytest.mark.slow(ci=True)
def test_simulation_based_calibration(model):
    """simuk as it is: it draws labels, observes them in the model, and samples."""
    calibration = simuk.SBC(
        model,
        num_simulations=3,
        seed=1,
        sample_kwargs={
            **{name: value for name, value in SETTINGS.items() if name != "random_seed"},
            **{"tune": 20, "draws": 10, "nuts_sampler": "pymc"},
        },
        progress_bar=False,
    )
    calibration.run_simulations()
    ranks = calibration.simulations["prior_sbc"]["eta"]
    assert ranks.shape == (1, 3)
    assert ((ranks >= 0) & (ranks <= 20)).all()
