"""`SkewGP.sample_latent` after `prior`: f at new inputs given draws of it, whatever made them.

The draws of f are made up: what is tested is the process given f, draw by draw.
"""

import numpy as np
import pymc as pm
import pytest
from arviz_base import from_dict
from scipy.stats import kstest, norm

from pymc_skewgp import SkewGP, correct

X = np.array([[-1.0], [0.2], [1.1]])
XNEW = np.array([[-0.4], [0.6], [3.0]])
CHAINS, DRAWS = 2, 250
S = CHAINS * DRAWS
# `test_workflow` has the same compiled for numba.
pytestmark = pytest.mark.usefixtures("in_python")
JITTER = 1e-6


def matern12(a, b, ls, eta):
    return eta**2 * np.exp(-np.abs(a - b.T) / ls)


def model_of(s=0, reparameterize=False):
    """A SkewGP with random hyperparameters and its prior in a model."""
    pseudo = {"pseudo_points": [[0.5], [2.0]][:s], "phase": [1.0, -1.0][:s]} if s else {}
    with pm.Model() as model:
        ls, eta = pm.Gamma("ls", 2, 1), pm.HalfNormal("eta")
        if s == 2:
            pseudo["truncation"] = pm.Normal("t")
        gp = SkewGP(cov_func=eta**2 * pm.gp.cov.Matern12(1, ls=ls), **pseudo)
        gp.prior("f", X, reparameterize=reparameterize)
    return model, gp


def trace(f=(0.3, 1.0, -0.5), draws=DRAWS, **variables):
    """Each variable repeated, or as it is given with chain and draw."""
    values = {"ls": 0.8, "eta": 1.5, "f": np.asarray(f), **variables}
    shape = np.shape(f)[:2] if np.ndim(f) == 3 else (CHAINS, draws)
    repeated = {
        name: value
        if np.ndim(value) >= 2
        else np.broadcast_to(value, (*shape, *np.shape(value))).copy()
        for name, value in values.items()
    }
    return from_dict({"posterior": repeated})


def continued(gp, idata, Xnew=XNEW, **options):
    return gp.sample_latent(idata, Xnew=Xnew, **{"progressbar": False, "random_seed": 1, **options})


def draws_of(tree, name="f"):
    values = tree["predictions"][name].to_numpy()
    return values.reshape(-1, values.shape[-1])


def test_signs_at_pseudo_points_count():
    """Against plain rejection: f at pseudo-points and new inputs given f, signs checked.

    False alarms: Bonferroni, 1e-4.
    """
    f, points, phase = np.array([0.3, 0.4, -0.5]), [[0.5], [2.0]], np.array([1.0, -1.0])
    new = draws_of(continued(model_of(2)[1], trace(f, t=0.4)))
    wanted = np.vstack([points, XNEW])
    K = matern12(X, X, 0.8, 1.5) + JITTER * np.eye(3)
    gain = np.linalg.solve(K, matern12(X, wanted, 0.8, 1.5))
    cov = matern12(wanted, wanted, 0.8, 1.5) - matern12(wanted, X, 0.8, 1.5) @ gain
    joint = np.random.default_rng(3).multivariate_normal(f @ gain, cov, 200_000)
    keep = (phase * joint[:, :2] / 1.5 + 0.4 > 0).all(axis=1)
    assert 0.1 < keep.mean() < 0.9  # the signs say something
    expected = joint[keep, 2:]
    for i in range(3):
        assert kstest(new[:, i], expected[:, i]).pvalue > 1e-4 / 5
    # And together: products of two, whose mean over S draws is normal to a good degree.
    for i, j in ((0, 1), (1, 2)):
        ours, theirs = new[:, i] * new[:, j], expected[:, i] * expected[:, j]
        error = np.hypot(theirs.std() / np.sqrt(S), theirs.std() / np.sqrt(len(theirs)))
        assert abs(ours.mean() - theirs.mean()) < norm.isf(1e-4 / 10) * error


class TestDrawByDraw:
    def test_each_draw_has_its_own_hyperparameters(self):
        """Tiny variances around known means: each draw shows what it was given."""
        with pm.Model():
            c, eta = pm.Normal("c"), pm.HalfNormal("eta")
            gp = SkewGP(
                mean_func=pm.gp.mean.Constant(c), cov_func=eta**2 * pm.gp.cov.Matern12(1, ls=1.0)
            )
            gp.prior("f", X, jitter=1e-10)
        centre = 10.0 * np.arange(3)[:, None] + np.arange(4)
        variance = np.full((3, 4), 1e-3)
        variance[1, 2] = 3.0
        f = np.repeat(centre[..., None], 3, axis=2)
        tree = continued(gp, trace(f, c=centre, eta=variance))
        gap = np.abs(tree["predictions"]["f"].to_numpy() - centre[..., None]).max(axis=-1)
        assert (gap[variance < 1] < 6e-3).all()  # six standard deviations
        assert gap[1, 2] > 0.05

    def test_new_inputs_that_are_old_ones(self):
        """Equal but for the jitter of both, 2e-6; white noise of the kernel is drawn afresh."""
        f = np.random.default_rng(0).normal(size=(2, 3, 3))
        new = continued(model_of(1)[1], trace(f), Xnew=X)["predictions"]["f"].to_numpy()
        np.testing.assert_allclose(new, f, atol=6 * np.sqrt(2e-6))
        with pm.Model():
            noisy = SkewGP(cov_func=pm.gp.cov.Matern12(1, ls=1.0) + pm.gp.cov.WhiteNoise(2.0))
            noisy.prior("f", X)
        assert (np.abs(continued(noisy, trace(f), Xnew=X)["predictions"]["f"] - f) > 1e-3).all()


def test_groups_and_dimensions():
    idata = trace(draws=3, other=np.zeros(5))
    tree = continued(model_of()[1], idata)
    # The likelihood may be any: no labels, no probabilities of them.
    assert set(tree.children) == {"posterior", "predictions", "predictions_constant_data"}
    assert set(tree["predictions"].data_vars) == {"f"}
    assert tree["predictions"]["f"].dims == ("chain", "draw", "pred_id")
    assert set(tree["posterior"].data_vars) == {"ls", "eta", "other", "f"}
    np.testing.assert_array_equal(tree["posterior"]["f"], idata["posterior"]["f"])
    np.testing.assert_array_equal(tree["predictions_constant_data"]["X"], XNEW)
    assert set(idata.children) == {"posterior"}


class TestModels:
    """What `prior` may have made."""

    def test_a_function_of_white_noise(self):
        idata = trace(draws=3)
        one, other = (continued(model_of(1, r)[1], idata) for r in (False, True))
        np.testing.assert_array_equal(draws_of(one), draws_of(other))

    def test_a_model_with_a_name(self):
        with pm.Model(name="outer"):
            gp = SkewGP(cov_func=pm.gp.cov.Matern12(1, ls=0.8))
            gp.prior("f", X)
        idata = from_dict({"posterior": {"outer::f": np.zeros((2, 3, 3))}})
        assert set(continued(gp, idata)["predictions"].data_vars) == {"outer::f"}

    def test_present_inputs_count(self):
        with pm.Model() as model:
            gp = SkewGP(cov_func=pm.gp.cov.Matern12(1, ls=0.8))
            gp.prior("f", pm.Data("X", X))
        idata = from_dict({"posterior": {"f": np.ones((2, 3, 3))}})
        far = continued(gp, idata, Xnew=[[8.0]])
        model.set_data("X", X + 7.0)
        near = continued(gp, idata, Xnew=[[8.1]])["predictions"]["f"].to_numpy()
        assert far["predictions"]["f"].std() > 0.1
        np.testing.assert_allclose(near, 1.0, atol=6 * np.sqrt(2e-6))
        model.set_data("X", X[:2])
        with pytest.raises(ValueError, match=r"shape \(3,\).* prior have 2 row\(s\): set X back"):
            continued(gp, idata)

    def test_labels_given_as_well(self):
        """They ask for other draws, under a name of their own."""
        gp = model_of()[1]
        options = {"X": X, "y": [0, 1, 1]}
        with pytest.raises(ValueError, match="leave out X and y to continue those of prior"):
            continued(gp, trace(draws=3), **options)
        tree = continued(gp, trace(draws=3), name="g", **options)
        assert {"f", "g"} <= set(tree["posterior"].data_vars)
        assert set(tree["predictions"].data_vars) == {"g", "p", "y"}

    def test_both_kinds_in_one_process(self):
        """The trace decides: f from there where it has f, from the labels where not."""
        model, gp = model_of()
        with model:
            gp.marginal_likelihood("labels", X, [0, 1, 1])
        assert "p" not in continued(gp, trace(draws=3))["predictions"]
        without = from_dict({"posterior": {"ls": np.ones((2, 3)), "eta": np.ones((2, 3))}})
        assert "p" in continued(gp, without)["predictions"]


class TestPlainErrors:
    def test_nothing_new(self):
        with pytest.raises(ValueError, match=r"has 'f' at the inputs of prior already: give Xnew"):
            continued(model_of()[1], trace(draws=3), Xnew=None)

    def test_a_trace_of_another_model(self):
        with pytest.raises(ValueError, match=r"no variable 'f', the latent function that prior"):
            continued(model_of()[1], from_dict({"posterior": {"ls": np.ones((2, 3))}}))


# The function that is named, and the data that the draws were given: near the inputs of `prior` f
# at new inputs is f there.


LABELS = np.array([1, 1, 0])
BOTH = {"boys": [1.0, 2.0, 3.0], "girls": [-1.0, -2.0]}
# Of f at an input of `prior`: jitter 1e-6 on both, six standard deviations, 1e-9 a number.
NEAR = 6 * np.sqrt(2e-6)


def _gp():
    return SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0))


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
            gp = SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=ls))
            gp.marginal_likelihood("y", pm.Data("X", X), LABELS, method="ep")
        idata = _drawn({"X": X}, ls=0.5)
        idata["posterior"]["ls"][:] = np.linspace(0.3, 2.0, 20)
        options = {"model": model, "random_seed": 1, "progressbar": False}
        expected = correct(idata, **options)
        model.set_data("X", X[::-1] * 2.0)
        found = correct(idata, **options)
        ratio = "log_evidence_ratio"
        assert found["posterior"].attrs[ratio] == expected["posterior"].attrs[ratio]
