"""`SkewGP.sample_latent` after `prior`: f at new inputs given draws of it, whatever made them.

The draws of f are made up: what is tested is the process given f, draw by draw.
"""

import numpy as np
import pymc as pm
import pytest
from arviz_base import from_dict
from scipy.stats import kstest, norm

from pymc_skewgp import SkewGP

X = np.array([[-1.0], [0.2], [1.1]])
XNEW = np.array([[-0.4], [0.6], [3.0]])
CHAINS, DRAWS = 2, 250
S = CHAINS * DRAWS
# `test_workflow` has the same compiled for numba.
pytestmark = pytest.mark.usefixtures("in_python")
JITTER = 1e-6


def matern12(a, b, ls, eta):
    return eta**2 * np.exp(-np.abs(a - b.T) / ls)


def model_of(s=0, reparameterize=False, X=X, **kwargs):
    """A SkewGP with random hyperparameters and its prior in a model."""
    pseudo = {"pseudo_points": [[0.5], [2.0]][:s], "phase": [1.0, -1.0][:s]} if s else {}
    with pm.Model() as model:
        ls, eta = pm.Gamma("ls", 2, 1), pm.HalfNormal("eta")
        if s == 2:
            pseudo["truncation"] = pm.Normal("t")
        gp = SkewGP(cov_func=eta**2 * pm.gp.cov.Matern12(1, ls=ls), **pseudo)
        gp.prior("f", X, reparameterize=reparameterize, **kwargs)
    return model, gp


def trace(f=None, chains=CHAINS, draws=DRAWS, dims=None, coords=None, **variables):
    """Each variable repeated, or as it is given with chain and draw."""
    values = {"ls": 0.8, "eta": 1.5, "f": np.array([0.3, 1.0, -0.5]) if f is None else f}
    values |= variables
    if np.ndim(values["f"]) == 3:
        chains, draws = values["f"].shape[:2]
    repeated = {
        name: value
        if np.ndim(value) >= 2
        else np.broadcast_to(value, (chains, draws, *np.shape(value))).copy()
        for name, value in values.items()
    }
    return from_dict({"posterior": repeated}, dims=dims, coords=coords)


def continued(gp, idata, Xnew=XNEW, **options):
    return gp.sample_latent(idata, Xnew=Xnew, **{"progressbar": False, "random_seed": 1, **options})


def draws_of(tree, name="f"):
    values = tree["predictions"][name].to_numpy()
    return values.reshape(-1, values.shape[-1])


def regression(f, ls=0.8, eta=1.5):
    """Mean and covariance of f* given f, without signs."""
    K = matern12(X, X, ls, eta) + JITTER * np.eye(3)
    gain = np.linalg.solve(K, matern12(X, XNEW, ls, eta))
    cov = matern12(XNEW, XNEW, ls, eta) - matern12(XNEW, X, ls, eta) @ gain
    return f @ gain, cov + JITTER * np.eye(3)


class TestDistribution:
    """False alarms: Bonferroni, 1e-4 for each test of the class."""

    def test_without_pseudo_points_it_is_gp_regression(self):
        f = np.random.default_rng(0).normal(size=(CHAINS, DRAWS, 3))
        new = draws_of(continued(model_of()[1], trace(f)))
        mean, cov = regression(f.reshape(S, 3))
        white = np.linalg.solve(np.linalg.cholesky(cov), (new - mean).T).T
        for i in range(3):
            assert kstest(white[:, i], norm.cdf).pvalue > 1e-4 / 6
            other = np.sum(white[:, i] * white[:, i - 1]) / np.sqrt(S)  # a standard normal
            assert abs(other) < norm.isf(1e-4 / 12)

    @pytest.mark.parametrize(("s", "truncation"), [(1, 0.0), (2, 0.4)])
    def test_signs_at_pseudo_points_count(self, s, truncation):
        """Against plain rejection: f at pseudo-points and new inputs given f, signs checked."""
        f = np.array([0.3, 0.4, -0.5])
        variables = {"t": truncation} if s == 2 else {}
        new = draws_of(continued(model_of(s)[1], trace(f, **variables)))
        points, phase = np.array([[0.5], [2.0]])[:s], np.array([1.0, -1.0])[:s]
        wanted = np.vstack([points, XNEW])
        K = matern12(X, X, 0.8, 1.5) + JITTER * np.eye(3)
        gain = np.linalg.solve(K, matern12(X, wanted, 0.8, 1.5))
        cov = matern12(wanted, wanted, 0.8, 1.5) - matern12(wanted, X, 0.8, 1.5) @ gain
        joint = np.random.default_rng(3).multivariate_normal(f @ gain, cov, 200_000)
        keep = (phase * joint[:, :s] / 1.5 + truncation > 0).all(axis=1)
        assert 0.1 < keep.mean() < 0.9  # the signs say something
        expected = joint[keep, s:]
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


class TestOutput:
    def test_groups_and_dimensions(self):
        idata = trace(chains=2, draws=3, other=np.zeros(5))
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
