"""`SkewGP.sample_latent` takes the function that is named, and the data that the draws were given.

The draws are made up: near the inputs of `prior`, f at new inputs is f there.
"""

import numpy as np
import pymc as pm
import pytest
from arviz_base import from_dict

import pymc_skewgp as sg

X = np.array([[-1.0], [0.2], [1.1]])
LABELS = np.array([1, 1, 0])
BOTH = {"boys": [1.0, 2.0, 3.0], "girls": [-1.0, -2.0]}
pytestmark = pytest.mark.usefixtures("in_python")
# Of f at an input of `prior`: jitter 1e-6 on both, six standard deviations, 1e-9 a number.
NEAR = 6 * np.sqrt(2e-6)


def _gp():
    return sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0))


def _drawn(constant_data=None, draws=20, **values):
    groups = {
        "posterior": {
            name: np.broadcast_to(x, (1, draws, *np.shape(x))).copy() for name, x in values.items()
        }
    }
    if constant_data:
        groups["constant_data"] = constant_data
    return from_dict(groups)


def _latent(gp, idata, **options):
    return gp.sample_latent(idata, progressbar=False, random_seed=1, **options)


class TestSeveralFunctions:
    @pytest.fixture
    def gp(self):
        with pm.Model() as self.model:
            gp = _gp()
            gp.prior("boys", X)
            gp.prior("girls", X[:2])
        return gp

    @pytest.mark.parametrize("name", ["boys", "girls"])
    def test_the_one_that_is_named(self, gp, name):
        found = _latent(gp, _drawn(**BOTH), Xnew=X[:2], name=name)["predictions"]
        assert set(found.data_vars) == {name}
        np.testing.assert_allclose(found[name][0, 0], BOTH[name][:2], atol=NEAR)

    @pytest.mark.parametrize("name", [None, "boy"])
    def test_others_are_refused(self, gp, name):
        with pytest.raises(ValueError, match="name must be one of 'boys', 'girls'"):
            _latent(gp, _drawn(**BOTH), Xnew=X, name=name)

    def test_the_only_one_that_was_drawn(self, gp):
        found = _latent(gp, _drawn(boys=BOTH["boys"]), Xnew=X, name="new")["predictions"]
        np.testing.assert_allclose(found["new"][0, 0], BOTH["boys"], atol=NEAR)

    def test_conditional_asks_which(self, gp):
        with (
            self.model,
            pytest.raises(ValueError, match=r"'boys', 'girls': say which one by given"),
        ):
            gp.conditional("new", X)
        with self.model:
            boys = {"X": X, "f": self.model["boys"]}
            assert gp.conditional("new", X, given=boys).name == "new"
        with pm.Model() as other:
            gp.prior("boys", X)
            gp.conditional("new", X)
        assert set(other.named_vars) == {"boys", "new"}

    def test_several_sets_of_data(self):
        gp = _gp()
        with pm.Model():
            pm.Normal("a")
            gp.marginal_likelihood("low", X, [0, 0, 0])
            gp.marginal_likelihood("high", X, [1, 1, 1])
        idata = _drawn(a=0.0, draws=100)
        with pytest.raises(ValueError, match="several data in the model: name must be one of"):
            _latent(gp, idata)
        means = [
            float(_latent(gp, idata, name=name)["posterior"][name].mean())
            for name in ("low", "high")
        ]
        # f is some 1 away from 0 given three equal labels, with an error of .1.
        assert means[0] < -0.5
        assert means[1] > 0.5


class TestChangedData:
    """`pm.set_data` after `pm.sample`: the draws are those given the old data."""

    f = np.array([2.0, 1.0, -1.5])

    @pytest.mark.parametrize("new", [X[::-1], X + 7.0, X[:2]])
    def test_after_prior(self, new):
        with pm.Model() as model:
            gp = _gp()
            gp.prior("f", pm.Data("X", X))
        model.set_data("X", new)
        found = _latent(gp, _drawn({"X": X}, f=self.f), Xnew=X)["predictions"]["f"]
        np.testing.assert_allclose(found[0, 0], self.f, atol=NEAR)
        np.testing.assert_array_equal(model["X"].get_value(), new)

    def test_after_marginal_likelihood(self):
        with pm.Model() as model:
            gp = _gp()
            gp.marginal_likelihood("y", pm.Data("X", X), pm.Data("labels", LABELS))
        idata = _drawn({"X": X, "labels": LABELS}, a=0.0, draws=300)
        expected = _latent(gp, idata, Xnew=X)
        model.set_data("X", X[::-1] * 2.0)
        model.set_data("labels", 1 - LABELS)
        found = _latent(gp, idata, Xnew=X)
        for group, name in (("posterior", "f"), ("predictions", "p"), ("observed_data", "y")):
            np.testing.assert_array_equal(found[group][name], expected[group][name])
        # Without what is beside the draws, the model's data count.
        other = _latent(gp, _drawn(a=0.0), Xnew=X)
        np.testing.assert_array_equal(other["observed_data"]["y"], 1 - LABELS)

    def test_correct(self):
        """Exact evidences are those of the data that the draws were given."""
        with pm.Model() as model:
            ls = pm.InverseGamma("ls", 3, 2)
            gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=ls))
            gp.marginal_likelihood("y", pm.Data("X", X), LABELS, method="ep")
        idata = _drawn({"X": X}, ls=0.5)
        idata["posterior"]["ls"][:] = np.linspace(0.3, 2.0, 20)
        options = {"model": model, "random_seed": 1, "progressbar": False}
        expected = sg.correct(idata, **options)
        model.set_data("X", X[::-1] * 2.0)
        found = sg.correct(idata, **options)
        ratio = "log_evidence_ratio"
        assert found["posterior"].attrs[ratio] == expected["posterior"].attrs[ratio]
