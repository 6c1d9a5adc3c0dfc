"""What follows from results of `integrate`: trees as after NUTS, and what others make of them."""

import arviz as az
import bambi as bmb
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import pymc_skewgp as sg
from pymc_skewgp._model.ops.plain_mode import PLAIN

# Bambi's own way with text columns under pandas 3, and its argument for new groups.
pytestmark = [
    pytest.mark.filterwarnings("ignore:For backward compatibility, 'str' dtypes"),
    pytest.mark.filterwarnings("ignore:'sample_new_groups' is deprecated"),
    pytest.mark.filterwarnings("ignore:Constructing a Categorical with a dtype"),
]
GROUP = np.arange(24) % 4
X = np.linspace(-1.0, 1.0, 24)
COUNTS = np.random.default_rng(3).poisson(np.exp(0.5 + 0.6 * X + 0.4 * (GROUP - 1.5)))


FAST = {"progressbar": False, "compile_kwargs": {"mode": PLAIN}}
NUTS = {"draws": 250, "tune": 400, "chains": 2, "cores": 1, "target_accept": 0.95, "random_seed": 1}


def _gap(ours, theirs):
    """Largest difference of means in joint Monte Carlo errors."""
    both = [np.asarray(x).reshape(*x.shape[:2], -1) for x in (ours, theirs)]
    means = [x.mean(axis=(0, 1)) for x in both]
    errors = [[float(az.mcse(x[..., i])) for i in range(x.shape[-1])] for x in both]
    return np.max(np.abs(means[0] - means[1]) / np.hypot(*errors))


@pytest.fixture(scope="module")
def model():
    coords = {"row": np.arange(24), "group": list("abcd")}
    with pm.Model(coords=coords) as model:
        x = pm.Data("x", X, dims="row")
        slope = pm.Normal("slope", 0.0, 1.0)
        tau = pm.HalfNormal("tau", 1.0)
        level = pm.Normal("level", 0.5, tau, dims="group")
        mean = pm.Deterministic("mean", pm.math.exp(level[GROUP] + slope * x), dims="row")
        pm.Deterministic("spread", level - level.mean(), dims="group")
        pm.Poisson("y", mean, observed=COUNTS, dims="row")
    return model


@pytest.fixture(scope="module")
def trees(model):
    ours = sg.integrate(model, draws=500, chains=2, random_seed=0, progressbar=False)
    with model:
        theirs = pm.sample(nuts_sampler="pymc", **NUTS, **FAST)
        pm.compute_log_likelihood(theirs, **FAST)
    return ours, theirs


@pytest.mark.filterwarnings("ignore::UserWarning")  # of NUTS, with two chains
def test_the_tree_is_that_of_pymc(trees):
    ours, theirs = trees
    assert set(ours.children) == set(theirs.children)
    for group in ("posterior", "log_likelihood", "observed_data", "constant_data"):
        one, other = ours[group].to_dataset(), theirs[group].to_dataset()
        assert set(one.data_vars) == set(other.data_vars)
        for name in other.data_vars:
            assert one[name].dims == other[name].dims
            assert one[name].dtype == other[name].dtype
        for name in set(other.coords) - {"chain", "draw"}:
            np.testing.assert_array_equal(one[name], other[name])
    for name in theirs["posterior"].data_vars:
        one, other = (tree["posterior"][name].to_numpy() for tree in trees)
        # 54 means: five errors are a false alarm in 3e4 seeds.
        assert _gap(one, other) < 5


# Near the limit of 1000 draws, and over it by chance.
@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto:UserWarning")
def test_scores_are_those_after_nuts_and_the_tree_is_written(trees, tmp_path):
    loos = [az.loo(tree) for tree in trees]
    # Over seeds ours vary by .05, those of NUTS by .12: four and a half of both together.
    assert loos[0].elpd == pytest.approx(loos[1].elpd, abs=0.6)
    assert set(az.compare(dict(zip("ab", trees, strict=True))).index) == {"a", "b"}
    trees[0].to_netcdf(tmp_path / "tree.nc")
    with xr.open_datatree(tmp_path / "tree.nc") as again:
        assert set(again.children) == set(trees[0].children)
        for group in again.children:
            xr.testing.assert_equal(again[group].to_dataset(), trees[0][group].to_dataset())
            assert again[group].attrs.keys() == trees[0][group].attrs.keys()


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_predictions_of_a_model(model, trees, shift):
    """At the data and at new ones: counts with the means of each draw."""
    drawn = trees[0]["posterior"]
    new = {"var_names": ["y"], "predictions": True} if shift else {}
    with model.copy():
        pm.set_data({"x": X + shift})
        found = pm.sample_posterior_predictive(trees[0], random_seed=2, **FAST, **new)
    counts = found["predictions" if shift else "posterior_predictive"]["y"].to_numpy()
    level = drawn["level"].to_numpy()[..., GROUP]
    rates = np.exp(level + drawn["slope"].to_numpy()[..., None] * (X + shift))
    # Of Poisson counts, whose variances are their means. 24 means: five errors.
    error = np.sqrt(rates.sum(axis=(0, 1)))
    assert (np.abs((counts - rates).sum(axis=(0, 1))) < 5 * error).all()


@pytest.fixture(scope="module")
def fitted():
    data = pd.DataFrame({"x": X, "g": np.array(list("abcd"))[GROUP], "y": COUNTS})
    model = bmb.Model("y ~ x + (1|g)", data, family="poisson")
    return model, sg.integrate(model, draws=500, chains=2, random_seed=0, progressbar=False)


def rates(tree, x, g):
    """Means of counts for each draw, by the formula."""
    drawn = tree["posterior"]
    u = np.stack([drawn["1|g"].sel(g__factor_dim=name) for name in g], axis=-1)
    return np.exp(drawn["Intercept"].values[..., None] + drawn["x"].values[..., None] * x + u)


def test_bambi_predicts(fitted):
    model, ours = fitted
    new = pd.DataFrame({"x": [0.3, -0.4, 0.1], "g": ["a", "c", "new"]})
    options = {"data": new, "sample_new_groups": True, "inplace": False, "random_seed": 5}
    mu = model.predict(ours, kind="response_params", **options)["posterior"]["mu"].values
    np.testing.assert_allclose(mu[..., :2], rates(ours, new["x"][:2].values, "ac"), rtol=1e-10)
    # A new group has the effect of one of the four, in each draw.
    one_of = rates(ours, 0.1, "abcd")
    assert np.isclose(mu[..., 2:], one_of).any(axis=-1).all()
    counts = model.predict(ours, kind="response", **options)["posterior_predictive"]["y"].values
    # Three means, of counts given those above: five errors.
    assert (np.abs((counts - mu).sum(axis=(0, 1))) < 5 * np.sqrt(mu.sum(axis=(0, 1)))).all()


def test_bambi_interprets(fitted):
    model, ours = fitted
    low, high = (rates(ours, x, "abcd").mean(axis=(0, 1)) for x in (-0.5, 0.5))
    found = bmb.interpret.comparisons(model, ours, {"x": [-0.5, 0.5]}).summary
    np.testing.assert_allclose(found["estimate"][:4], high - low, rtol=1e-8)
    slopes = bmb.interpret.slopes(model, ours, "x").summary  # at the mean of x, which is 0
    wanted = (rates(ours, 0.0, "abcd") * ours["posterior"]["x"].values[..., None]).mean(axis=(0, 1))
    np.testing.assert_allclose(slopes["estimate"][:4], wanted, rtol=1e-3)  # by differences
    seen = bmb.interpret.predictions(model, ours, "x").summary
    wanted = rates(ours, seen["x"].values, seen["g"]).mean(axis=(0, 1))
    np.testing.assert_allclose(seen["estimate"], wanted, rtol=1e-8)
