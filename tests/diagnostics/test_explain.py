"""`explain`: roles of the variables of ordinary forms, and of models that are refused."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pymc as pm
import pytest

import pymc_skewgp as sg

_FILE = Path(__file__).parents[2] / "benchmarks" / "latent_gaussian_forms.py"
_SPEC = importlib.util.spec_from_file_location("latent_gaussian_forms", _FILE)
forms = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(forms)

# Likelihood, block and hyperparameters; other forms are integrated in tests of `integrate`.
ROLES = {
    "latent": ("poisson", ["f_rotated_"], ["ls", "scale"]),
    "noncentred_effects": ("bernoulli_probit", ["mu", "slope", "z"], ["tau"]),
    "glm": ("poisson", ["intercept", "beta"], []),
}


@pytest.mark.parametrize("name", ROLES)
def test_ordinary_forms(name):
    likelihood, block, hyperparameters = ROLES[name]
    model = forms.FORMS[name](likelihood)
    found = sg.explain(model)
    assert isinstance(found, sg.Explanation)
    assert found.is_taken, found.obstacle
    assert found.with_role("block") == block
    assert found.with_role("hyperparameter") == hyperparameters
    # Labels under a probit link are intervals of a normal predictor.
    role = "intervals" if likelihood == "bernoulli_probit" else "factors"
    assert found.with_role(role) == ["y"]
    table = found.to_dataframe()
    assert table.loc["y", "size"] == model.rvs_to_values[model["y"]].data.size
    assert set(table.index) == {x.name for x in model.basic_RVs}
    assert found.seconds > 0


def _values(mean, **kwargs):
    return pm.Normal("y", mean, 0.5, observed=np.linspace(-1.0, 1.0, 6), **kwargs)


def _separated():
    x = np.linspace(-1.0, 1.0, 6)
    pm.Bernoulli("y", logit_p=pm.Flat("b") * x, observed=(x > 0).astype(int))


def _two_groups():
    u = pm.Normal("u", pm.Flat("mu"), pm.HalfFlat("s"), shape=2)
    _values(u[[0, 0, 0, 1, 1, 1]])


REFUSED = {
    "discrete": lambda: _values(pm.Normal("b") + pm.Poisson("k", 3.0)),
    "collinear": lambda: _values(pm.Flat("b", shape=2).sum() * np.ones(6)),
    "separated": _separated,
    "improper scale": _two_groups,
    "missing": lambda: _values(pm.Normal("b") * np.array([1, np.nan, 1, 1, 1, 1])),
    "no predictor": lambda: pm.Categorical("y", logit_p=pm.Normal("u", shape=400), observed=[1]),
    "not Gaussian": lambda: _values(pm.StudentT("u", nu=4.0, shape=6)),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_refusals_are_those_of_integrate(name):
    with pm.Model() as model:
        REFUSED[name]()
    found = sg.explain(model)
    assert found.obstacle
    with pytest.raises(ValueError, match=f"^{re.escape(found.obstacle)}$"):
        sg.integrate(model, draws=10, chains=2, random_seed=0, progressbar=False)
    assert not found.is_taken
    assert np.isnan(found.seconds)
    # Each variable of the model has its row all the same.
    assert {x.name for x in found.variables} == {x.name for x in model.basic_RVs}


def test_what_is_in_the_way():
    with pm.Model() as model:
        REFUSED["discrete"]()
    found = sg.explain(model)
    assert found.with_role("in the way") == ["k"]
    assert found.with_role("block") == ["b"]
    with pm.Model() as model:
        REFUSED["no predictor"]()
    assert "Softmax" in sg.explain(model).to_dataframe().loc["u", "note"]


def test_all_roles_of_one_model():
    x = np.linspace(-1.0, 1.0, 5)
    with pm.Model() as model:
        tau = pm.HalfFlat("tau")
        slope = pm.Normal("slope", 0.0, 1.0)
        f = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=0.5)).prior("f", x[:, None])
        pm.Normal("values", f + slope * x, tau, observed=[0.1, 0.3, -0.2, 0.4, 0.0])
        sg.BernoulliProbit("labels", f, observed=[0, 1, 1, 0, 1])
        rate = pm.Normal("rate", 0.0, 1.0)
        pm.Poisson("counts", pm.math.exp(rate), observed=[3, 4])
        pm.Poisson("new", pm.math.exp(rate))
        pm.Potential("known", -0.5 * rate**2)
        pm.Potential("of tau", -tau)
    found = sg.explain(model)
    roles = found.to_dataframe()["role"].to_dict()
    assert roles == {
        "f": "block 1",
        "slope": "block 1",
        "values": "points",
        "labels": "intervals",
        "rate": "block 2",
        "counts": "factors",
        "new": "prediction",
        "known": "potential",
        "tau": "hyperparameter",
        "of tau": "potential",
    }
    assert "flat" in found.to_dataframe().loc["tau", "note"]
    text = repr(found)
    assert text.splitlines()[0].split() == ["name", "distribution", "role", "size", "note"]
    assert text.splitlines()[-1].startswith("integrate takes this model: ")
    html = found._repr_html_()
    assert html.count("<tr") == 1 + len(roles)


def test_what_is_no_model():
    with pytest.raises(TypeError, match="got str"):
        sg.explain("model")
