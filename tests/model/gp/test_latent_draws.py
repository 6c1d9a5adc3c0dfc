"""`SkewGP.sample_latent`: exact functions for made-up traces whose posterior is known."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from arviz_base import from_dict
from scipy.special import log_ndtr, ndtr

from pymc_skewgp import LowEffectiveSampleWarning, SkewGP
from pymc_skewgp._model.gp import latent_draws

RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(-2.0, 2.0, 8))[:, None]
Y = (X[:, 0] + 0.7 * RNG.normal(size=8) > 0).astype(int)
XNEW = np.array([[-1.3], [0.1], [3.0]])
CHAINS, DRAWS = 4, 75
# `test_workflow` has the same compiled for numba.
pytestmark = pytest.mark.usefixtures("in_python")


def trace(dims=None, coords=None, **variables):
    return from_dict({"posterior": variables}, dims=dims, coords=coords)


def constant(value, chains=CHAINS, draws=DRAWS):
    return np.broadcast_to(value, (chains, draws, *np.shape(value))).copy()


def process(s=0):
    """A SkewGP with random hyperparameters, and the same with numbers: ls 0.8, eta 1.5."""
    pseudo = {"pseudo_points": [[0.5], [2.0]][:s], "phase": [1.0, -1.0][:s]} if s else {}
    with pm.Model():
        ls, eta = pm.Gamma("ls", 2, 1), pm.HalfNormal("eta")
        if s == 2:
            pseudo["truncation"] = pm.Normal("t")
    return SkewGP(cov_func=eta**2 * pm.gp.cov.Matern12(1, ls=ls), **pseudo)


POINT = {"ls": 0.8, "eta": 1.5}
SHORT = {"ls": constant(0.8, 2, 3), "eta": constant(1.5, 2, 3)}


def assert_mean(draws, expected, errors=5.0, extra=0.0):
    """Means over independent draws; five standard errors, for at most a dozen numbers each time.

    A false alarm in 1e-5 of all seeds. `extra` is the error of what is expected.
    """
    flat = draws.reshape(CHAINS * DRAWS, -1)
    error = np.hypot(flat.std(axis=0) / np.sqrt(len(flat)), extra)
    assert (np.abs(flat.mean(axis=0) - expected) < errors * error).all()


def test_constant_hyperparameters_give_their_posterior():
    gp = process(2)
    variables = {name: constant(value) for name, value in {**POINT, "t": 0.4}.items()}
    tree = gp.sample_latent(
        trace(**variables), X=X, y=Y, Xnew=XNEW, random_seed=1, progressbar=False
    )
    posterior = gp.posterior(X, Y, point={**POINT, "t": 0.4}, n_draws=4096)
    f, new = (tree[group]["f"].to_numpy() for group in ("posterior", "predictions"))
    assert f.shape == (CHAINS, DRAWS, 8)
    for inputs, draws in ((X, f), (XNEW, new)):
        exact = posterior.predict(inputs, draws=0)["predictions_summary"].dataset
        assert_mean(draws, exact["f_mean"], extra=exact["f_mean_se"])
        square = exact["f_sd"] ** 2 + exact["f_mean"] ** 2
        assert_mean(draws**2, square, extra=4 * exact["f_sd"] * exact["f_sd_se"])
        assert_mean(ndtr(draws), exact["p_mean"], extra=exact["p_mean_se"])
    p, y = (tree["predictions"][name].to_numpy() for name in ("p", "y"))
    np.testing.assert_allclose(p, ndtr(new), rtol=1e-14)
    assert_mean(y - p, 0.0)
    # Nearly equal weights, or a draw picked from 64 would not be exact.
    assert tree["sample_stats"]["relative_ess"].min() > 0.8


def test_same_inputs_give_the_same_values():
    """At an old input f* is f, up to the numerical rank at which the kernel is factored."""
    tree = process(1).sample_latent(
        trace(**SHORT), X=X, y=Y, Xnew=X[2:5], random_seed=4, progressbar=False
    )
    f, new = tree["posterior"]["f"][..., 2:5], tree["predictions"]["f"]
    # PyMC's distance of a point to itself is 1e-6: a variance of 2 * 2.25 * 1e-6 / 0.8 is lost.
    np.testing.assert_allclose(f.to_numpy(), new.to_numpy(), atol=5 * np.sqrt(6e-6))


def test_each_draw_has_its_own_hyperparameters():
    """Tiny variances around known means show which; names of functions of variables will do."""
    with pm.Model():
        b, eta = pm.Normal("b", shape=2), pm.HalfNormal("eta")
        twice = pm.Deterministic("twice", 2.0 * b)
    inputs = np.random.default_rng(1).normal(size=(5, 2))
    kernel = eta**2 * pm.gp.cov.Matern32(2, ls=1.0)
    gp = SkewGP(mean_func=pm.gp.mean.Linear(twice), cov_func=kernel)
    values = np.random.default_rng(2).normal(size=(2, 3, 2))
    scale = np.full((2, 3), 1e-3)
    scale[1, 2] = 1.0
    for given in ({"b": values}, {"twice": 2.0 * values}, {"b": values, "twice": 2.0 * values}):
        idata = trace(**given, eta=scale)
        # The order of dimensions does not matter.
        turned = idata["posterior"].dataset.transpose(..., "chain", "draw")
        idata["posterior"] = xr.DataTree(turned)
        tree = gp.sample_latent(idata, X=inputs, y=[0, 1, 0, 1, 1], progressbar=False)
        gap = np.abs(tree["posterior"]["f"].transpose("chain", ...) - 2.0 * values @ inputs.T)
        assert (gap.max(axis=-1).to_numpy()[scale < 1] < 6e-3).all()  # six standard deviations
        assert gap[1, 2].max() > 0.05
        assert set(tree["posterior"].data_vars) == {*given, "eta", "f"}


class TestOutput:
    def test_groups_and_dimensions(self):
        variables = {**SHORT, "other": np.zeros((2, 3, 5))}
        idata = trace(**variables)
        tree = process().sample_latent(idata, X=X, y=Y, Xnew=XNEW, random_seed=1, progressbar=False)
        assert set(idata.children) == {"posterior"}
        assert set(idata["posterior"].data_vars) == set(variables)
        groups = "posterior sample_stats log_likelihood observed_data constant_data "
        groups += "posterior_predictive predictions predictions_constant_data"
        assert set(tree.children) == set(groups.split())
        # What the trace holds besides is kept.
        assert set(tree["posterior"].data_vars) == {"ls", "eta", "other", "f"}
        assert tree["posterior"]["f"].dims == ("chain", "draw", "obs_id")
        for name in ("f", "p", "y"):
            assert tree["predictions"][name].dims == ("chain", "draw", "pred_id")
        assert tree["predictions"]["y"].dtype == np.int64
        np.testing.assert_array_equal(tree["observed_data"]["y"], Y)
        np.testing.assert_array_equal(tree["constant_data"]["X"], X)
        np.testing.assert_array_equal(tree["predictions_constant_data"]["X"], XNEW)
        expected = log_ndtr((2 * Y - 1) * tree["posterior"]["f"].to_numpy())
        # Log Phi by a table with derivatives, right to 1e-13.
        np.testing.assert_allclose(tree["log_likelihood"]["y"], expected, rtol=1e-13)
        assert tree["sample_stats"].attrs["method"] == "twisted"

    def test_coordinates_are_those_of_the_trace(self):
        """Of chains and draws, and labels of the observations."""
        names = list("abcdefgh")
        variables = {n: constant(v, 3, 10) for n, v in POINT.items()}
        variables["weight"] = np.zeros((3, 10, 8))
        idata = trace(dims={"weight": ["obs_id"]}, coords={"obs_id": names}, **variables)
        part = idata.isel(chain=[2, 0], draw=slice(4, None, 3))
        tree = process().sample_latent(part, X=X, y=Y, Xnew=XNEW, progressbar=False)
        for group in ("posterior", "sample_stats", "log_likelihood", "predictions"):
            np.testing.assert_array_equal(tree[group]["chain"], [2, 0])
            np.testing.assert_array_equal(tree[group]["draw"], [4, 7])
        for group in ("posterior", "log_likelihood", "observed_data"):
            np.testing.assert_array_equal(tree[group]["obs_id"], names)
        assert not np.isnan(tree["posterior"]["f"]).any()


def test_equal_seeds_give_equal_draws():
    def draw(seed):
        tree = process(1).sample_latent(
            trace(**SHORT), X=X, y=Y, Xnew=XNEW, random_seed=seed, progressbar=False
        )
        return np.concatenate([tree["posterior"]["f"], tree["predictions"]["y"]], axis=-1)

    np.testing.assert_array_equal(draw(7), draw(np.random.default_rng(7)))


class TestPlainErrors:
    def refuse(self, error, message, idata=None, **changes):
        options = {"X": X, "y": Y, "progressbar": False, **changes}
        with pytest.raises(error, match=message):
            process().sample_latent(trace(**SHORT) if idata is None else idata, **options)

    def test_data(self):
        self.refuse(ValueError, "say given which data f is wanted", X=None, y=None)
        self.refuse(ValueError, "give both X and y, or neither", X=None)
        self.refuse(ValueError, "give both X and y, or neither", y=None)
        self.refuse(ValueError, r"y must have shape \(3,\)", X=X[:3])
        self.refuse(ValueError, r"Xnew has 2 column\(s\)", Xnew=np.zeros((3, 2)))
        self.refuse(ValueError, "n_candidates must be at least 1", n_candidates=0)

    def test_names(self):
        for name in ("ls", "eta"):
            message = f"has draws of .{name}., and the data y ask for others"
            self.refuse(ValueError, message, name=name)
        for name in ("p", "y", "X", "obs_id"):
            self.refuse(ValueError, "choose another name", name=name, Xnew=XNEW)

    def test_idata(self):
        given, prior = trace(**SHORT), from_dict({"prior": SHORT})
        self.refuse(ValueError, r"no group 'posterior'; found \['prior'\]", prior)
        message = "idata must be a DataTree, got Dataset"
        self.refuse(TypeError, message, given["posterior"].dataset)
        self.refuse(ValueError, "must have dimensions chain and draw", given.isel(chain=0))
        message = r"depends on ls: give their values in idata\.posterior\.$"
        self.refuse(ValueError, message, trace(eta=SHORT["eta"]))
        given = trace(dims={"w": ["obs_id"]}, **SHORT, w=np.zeros((2, 3, 5)))
        self.refuse(ValueError, "dimension 'obs_id' of length 5, but there are 8 rows of X", given)


def test_few_effective_candidates_are_warned_of_once(monkeypatch):
    original = latent_draws.draws_of_many

    def poor(*args, **kwargs):
        return (found._replace(relative_ess=0.05) for found in original(*args, **kwargs))

    monkeypatch.setattr(latent_draws, "draws_of_many", poor)
    message = r"for 6 of 6 hyperparameter draws the 32 candidates .* relative ESS is 0.050\)"
    with pytest.warns(LowEffectiveSampleWarning, match=message) as caught:
        process().sample_latent(trace(**SHORT), X=X, y=Y, n_candidates=32, progressbar=False)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_progress_is_told(monkeypatch):
    said = []
    monkeypatch.setattr(
        "rich.progress.Progress.update", lambda *_, description, **__: said.append(description)
    )
    process().sample_latent(trace(**SHORT), X=X, y=Y, progressbar=False)
    assert not said
    process().sample_latent(trace(**SHORT), X=X, y=Y)
    assert "Drawing f" in said
