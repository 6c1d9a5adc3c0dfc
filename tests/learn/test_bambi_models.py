"""`integrate` of models of Bambi, as they are built; and what follows from the results."""

import bambi as bmb
import numpy as np
import pandas as pd
import pytest

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


def _flat(*names):
    return {"priors": {name: bmb.Prior("Flat") for name in names}}


REFUSED = {
    "several predictors": (
        "kind ~ x",
        {"family": "categorical"},
        "kind, a Categorical variable, .*in Intercept: .*in x: ",
    ),
    "collinear": ("y ~ x + twice", _flat("x", "twice"), "bound x and twice, which have flat"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_term(data, name):
    formula, options, message = REFUSED[name]
    kind = pd.Categorical(np.arange(30) % 3)
    more = data.assign(kind=kind, twice=2 * data["x"])
    model = bmb.Model(formula, more, **options)
    with pytest.raises(ValueError, match=message):
        _integrated(model)
    assert not sg.explain(model).is_taken
