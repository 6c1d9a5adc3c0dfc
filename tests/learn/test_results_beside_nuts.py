"""What follows from results of `integrate`: the same as after NUTS, within Monte Carlo error."""

import arviz as az
import bambi as bmb
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import pymc_skewgp as sg

# Bambi's own way with text columns under pandas 3, and its argument for new groups.
pytestmark = [
    pytest.mark.filterwarnings("ignore:For backward compatibility, 'str' dtypes"),
    pytest.mark.filterwarnings("ignore:'sample_new_groups' is deprecated"),
    pytest.mark.filterwarnings("ignore:Constructing a Categorical with a dtype"),
]
GROUP = np.arange(24) % 4
X = np.linspace(-1.0, 1.0, 24)
COUNTS = np.random.default_rng(3).poisson(np.exp(0.5 + 0.6 * X + 0.4 * (GROUP - 1.5)))


# As many draws as ours: more would make the errors of differences a fifth smaller, at most.
FAST = {"compile_kwargs": {"mode": "FAST_COMPILE"}}
NUTS = {
    "draws": 800, "tune": 800, "chains": 2, "cores": 1, "target_accept": 0.95, "random_seed": 1,
    "progressbar": False,
}  # fmt: skip


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
        theirs = pm.sample(nuts_sampler="pymc", **NUTS)
        pm.compute_log_likelihood(theirs, progressbar=False, **FAST)
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
def test_predictions_and_scores_are_those_after_nuts(model, trees, tmp_path):
    new = []
    for tree in trees:
        with model:
            found = pm.sample_posterior_predictive(tree, random_seed=2, progressbar=False, **FAST)
        new.append(found["posterior_predictive"]["y"].to_numpy())
    # 24 means: five errors.
    assert _gap(*new) < 5
    loos = [az.loo(tree) for tree in trees]
    # Over seeds ours vary by .05, those of NUTS by .07 (as for Bambi's below).
    assert loos[0].elpd == pytest.approx(loos[1].elpd, abs=0.4)
    assert set(az.compare(dict(zip("ab", trees, strict=True))).index) == {"a", "b"}
    trees[0].to_netcdf(tmp_path / "tree.nc")
    with xr.open_datatree(tmp_path / "tree.nc") as again:
        assert set(again.children) == set(trees[0].children)
        for group in again.children:
            xr.testing.assert_equal(again[group].to_dataset(), trees[0][group].to_dataset())
            assert again[group].attrs.keys() == trees[0][group].attrs.keys()


def test_new_data_of_a_model_are_those_after_nuts(model, trees):
    new = []
    for tree in trees:
        with model.copy():
            pm.set_data({"x": X + 0.5})
            found = pm.sample_posterior_predictive(
                tree, var_names=["y"], predictions=True, random_seed=2, progressbar=False, **FAST
            )
        new.append(found["predictions"]["y"].to_numpy())
    # 24 means: five errors.
    assert _gap(*new) < 5


@pytest.fixture(scope="module")
def fitted():
    data = pd.DataFrame({"x": X, "g": np.array(list("abcd"))[GROUP], "y": COUNTS})
    model = bmb.Model("y ~ x + (1|g)", data, family="poisson")
    ours = sg.integrate(model, draws=500, chains=2, random_seed=0, progressbar=False)
    return model, ours, model.fit(**NUTS)


def test_bambi_predicts_the_same(fitted):
    model, *trees = fitted
    assert set(trees[0]["posterior"].data_vars) == set(trees[1]["posterior"].data_vars)
    new = pd.DataFrame({"x": [0.3, -0.4, 0.1], "g": ["a", "c", "new"]})
    for kind, group, name in (
        ("response_params", "posterior", "mu"),
        ("response", "posterior_predictive", "y"),
    ):
        found = [
            model.predict(
                x, kind=kind, data=new, sample_new_groups=True, inplace=False, random_seed=5
            )[group][name].to_numpy()
            for x in trees
        ]
        # Three means: five errors.
        assert _gap(*found) < 5
    at_data = [model.predict(x, inplace=False)["posterior"]["mu"].to_numpy() for x in trees]
    assert _gap(*at_data) < 5


def test_bambi_interprets_the_same(fitted):
    model, *trees = fitted
    for what in (bmb.interpret.comparisons, bmb.interpret.slopes):
        effects = [what(model, x, {"x": [-0.5, 0.5]} if what is bmb.interpret.comparisons else "x")
                   .draws["posterior"]["mu"].to_numpy() for x in trees]  # fmt: skip
        # One mean or a few: five errors.
        assert _gap(*effects) < 5
    seen = [bmb.interpret.predictions(model, x, "x").draws["posterior"]["mu"] for x in trees]
    assert _gap(*(x.to_numpy() for x in seen)) < 5
