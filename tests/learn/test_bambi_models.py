"""`integrate` of models of Bambi, as they are built; and what follows from the results."""

import bambi as bmb
import numpy as np
import pandas as pd
import pytest
from model_density import density_of
from scipy.optimize import minimize
from scipy.stats import multivariate_t

import pymc_skewgp as sg

# Bambi's own selection of text columns, under pandas 3.
pytestmark = pytest.mark.filterwarnings("ignore:For backward compatibility, 'str' dtypes")


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(4)
    n = 30
    x, g = rng.normal(3.0, 1.0, size=n), rng.integers(0, 4, n)
    t = np.linspace(-1, 1, n)
    return pd.DataFrame(
        {
            "x": x,
            "g": g.astype(str),
            "t": t,
            "y": 1.0 + 0.5 * x + 0.3 * rng.normal(size=n),
            "count": rng.poisson(np.exp(0.3 * np.sin(3 * t) + 0.5)),
        }
    )


def _integrated(model):
    return sg.integrate(model, draws=200, chains=2, random_seed=0, progressbar=False)


def test_the_result_is_as_that_of_fit_built_or_not(data):
    model = bmb.Model("y ~ x + (1|g)", data)
    found = _integrated(model)
    assert model.built
    posterior = found["posterior"]
    assert set(posterior.data_vars) == {"Intercept", "x", "sigma", "1|g", "1|g_sigma"}
    assert posterior.attrs["modeling_interface"] == "bambi"
    inside = _integrated(model.backend.model)["posterior"]
    # Bambi centres x, and its intercept is that without centring.
    moved = inside["Intercept"] - inside["x"] * data["x"].mean()
    np.testing.assert_allclose(posterior["Intercept"], moved, atol=1e-12)
    assert posterior.attrs["log_evidence"] == inside.attrs["log_evidence"]


def test_find_hyperparameters_takes_it(data):
    model = bmb.Model("y ~ x", data)
    fit = sg.find_hyperparameters(model, random_seed=0, progressbar=False)
    # Of 28 degrees of freedom: the prior of sigma is wide, and coefficients are integrated out.
    X = np.c_[np.ones(30), data["x"]]
    rest = data["y"] - X @ np.linalg.lstsq(X, data["y"], rcond=None)[0]
    assert fit.point["sigma"] == pytest.approx(np.sqrt(rest @ rest / 28), rel=0.05)


def test_explain_takes_it(data):
    """With a basis, whose length no type says, and which is found to be no row."""
    model = bmb.Model("count ~ x + bs(t, df=4) + (1|g)", data, family="poisson")
    found = sg.explain(model)
    assert found.is_taken
    assert model.built
    assert found.to_dataframe()["role"].to_dict() == {
        **dict.fromkeys(("Intercept", "x", "bs(t, df=4)", "1|g_offset"), "block 1"),
        "count": "factors",
        "1|g_sigma": "hyperparameter",
    }


def test_categories_are_a_softmax(data):
    """Against importance sampling about the mode, with PyMC's own density."""
    kind = pd.Categorical(np.random.default_rng(1).permutation(np.arange(30) % 3))
    model = bmb.Model("kind ~ t", data.assign(kind=kind), family="categorical")
    found = _integrated(model)
    inside = model.backend.model
    names = [x.name for x in inside.value_vars]
    log_density, _ = density_of(inside)
    optimum = minimize(lambda b: [-x for x in log_density(b)], np.zeros(4), jac=True)
    proposal = multivariate_t(optimum.x, optimum.hess_inv, df=6)
    draws = proposal.rvs(4000, random_state=0)
    logs = log_density(draws)[0] - proposal.logpdf(draws)
    weights = np.exp(logs - logs.max())
    error = weights.std() / weights.mean() / np.sqrt(4000)
    attrs = found["posterior"].attrs
    # Both have errors; five of these together are a false alarm in 2e6 seeds.
    both = 5.0 * np.hypot(error, attrs["log_evidence_se"])
    assert abs(attrs["log_evidence"] - logs.max() - np.log(weights.mean())) < both < 0.2
    own = np.concatenate([found["posterior"][x].mean(("chain", "draw")) for x in names])
    expected = weights @ draws / weights.sum()
    sd = np.sqrt(weights @ (draws - expected) ** 2 / weights.sum())
    # Of 400 draws and some 2000 effective ones: 5 errors.
    np.testing.assert_array_less(np.abs(own - expected), 5.0 * sd * np.sqrt(1 / 400 + 1 / 2000))


def test_an_intercept_alone(data):
    # Bambi's mean of all rows then has one entry.
    model = bmb.Model("y ~ 1", data)
    found = _integrated(model)["posterior"]
    assert set(found.data_vars) == {"Intercept", "sigma"}
    assert _integrated(model.backend.model)["posterior"]["mu"].shape == (2, 200, 1)
    # The prior is about the mean of y. Four standard errors of 400 draws that are equally weighted
    # ones of at least half as many.
    mean, sd = data["y"].mean(), float(found["Intercept"].std())
    assert abs(found["Intercept"].mean() - mean) < 4.0 * sd / np.sqrt(200.0)
