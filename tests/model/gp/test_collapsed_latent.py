"""Exact functions after a model without them, under every likelihood, by quadrature."""

import numpy as np
import pymc as pm
import pytest
from arviz_base import from_dict
from collapsed_cases import CASES, ETA, LS, PSEUDO, X, rbf
from comparison_oracles import latent_posterior
from scipy import stats
from scipy.special import ndtr

import pymc_skewgp as sg
from pymc_skewgp import likelihoods as of

CHAINS, DRAWS = 2, 125


def trace(draws=DRAWS, **variables):
    """A made-up trace with these values in each draw."""
    shape = (CHAINS, draws)
    return from_dict(
        {"posterior": {k: np.broadcast_to(x, (*shape, *np.shape(x))) for k, x in variables.items()}}
    )


def natural(theta):
    """Values of the random variables of a case, by their names."""
    found = {}
    for name, value in theta.items():
        if name.endswith("_log__"):
            found[name.removesuffix("_log__")] = np.exp(value)
        elif name == "rho_interval__":
            found["rho"] = np.tanh(value / 2.0)
        elif name not in ("eta", "ls"):
            found[name] = np.asarray(value)
    return found


def process(case, eta=ETA, ls=LS):
    signs = {"pseudo_points": PSEUDO} if case.signed else {}
    return sg.SkewGP(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=ls), **signs)


@pytest.mark.usefixtures("in_python")
@pytest.mark.parametrize("name", ["selection", "several"])
def test_function_given_data_by_quadrature(name):
    """Means, squares and products of f: five standard errors, at most 14 numbers each time.

    False alarms in 1e-5 of all seeds. Of 64 weighted candidates nearly equal ones.
    """
    case = CASES[name]
    with pm.Model():
        gp = process(case)
        x, y, likelihood, coregion = case.make()
        gp.marginal_likelihood("y", x, y, likelihood=likelihood, coregion=coregion)
    theta = dict(case.theta)
    tree = gp.sample_latent(trace(**natural(theta)), random_seed=3, progressbar=False)
    names = [n for n in tree["posterior"].data_vars if n == "f" or n.startswith("f_")]
    found = [tree["posterior"][n].to_numpy().reshape(CHAINS * DRAWS, -1) for n in names]
    f = np.concatenate(found, axis=1)
    truth = case.truth(ETA, LS, theta)
    q = f.shape[1]
    pairs = [(i, j) for i in range(q) for j in range(i, q)]
    off = f - truth.mean
    statistics = np.column_stack([f, *(off[:, i] * off[:, j] for i, j in pairs)])
    expected = np.concatenate([truth.mean, [truth.cov[i, j] for i, j in pairs]])
    error = statistics.std(axis=0) / np.sqrt(len(f))
    assert (np.abs(statistics.mean(axis=0) - expected) < 5 * error).all()
    assert tree["sample_stats"]["relative_ess"].min() > 0.8


@pytest.mark.usefixtures("in_python")
class TestDrawByDraw:
    def test_noise_is_that_of_the_draw(self):
        """With hardly any noise f is the data, with much noise it is the prior."""
        with pm.Model():
            gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=0.1))
            likelihood = of.Gaussian(pm.HalfNormal("sigma"))
            gp.marginal_likelihood("y", X, [5.0, -5.0, 4.0], likelihood=likelihood)
        sigma = np.where(np.arange(DRAWS) % 2, 1e-3, 1e3) * np.ones((CHAINS, 1))
        idata = from_dict({"posterior": {"sigma": sigma}})
        tree = gp.sample_latent(idata, Xnew=[[7.0]], random_seed=1, progressbar=False)
        gap = np.abs(tree["posterior"]["f"].to_numpy() - [5.0, -5.0, 4.0]).max(axis=-1)
        assert gap[:, 1::2].max() < 6e-3
        assert gap[:, ::2].min() > 0.5
        # New values have the noise of the draw, and so has the log likelihood.
        new = np.abs(tree["predictions"]["y"].to_numpy()[..., 0])
        assert new[:, 1::2].max() < 6.0
        assert np.median(new[:, ::2]) > 100.0
        log_p = tree["log_likelihood"]["y"].to_numpy()
        expected = stats.norm(tree["posterior"]["f"].to_numpy(), sigma[..., None]).logpdf(
            [5.0, -5.0, 4.0]
        )
        np.testing.assert_allclose(log_p, expected, atol=1e-9)

    def test_new_points_with_the_data(self):
        """f at the data and at a new point is a joint draw: their covariance, by quadrature."""
        new = np.array([[0.4]])
        both = np.vstack([X[:2], new])
        with pm.Model():
            gp = process(CASES["ordered"])
            known = of.OrderedProbit(pm.Normal("cuts", shape=2))
            gp.marginal_likelihood("y", X[:2], [0, 1], likelihood=known)
        theta = CASES["ordered"].theta
        tree = gp.sample_latent(trace(**theta), Xnew=new, random_seed=5, progressbar=False)
        f, star = (tree[group]["f"].to_numpy() for group in ("posterior", "predictions"))
        truth = latent_posterior(
            rbf(both, both, ETA, LS), lambda f: CASES["ordered"].probability(f, theta), step=0.4
        )
        off = f - truth.mean[:2]
        products = (off * (star - truth.mean[2])).reshape(-1, 2)
        error = products.std(axis=0) / np.sqrt(len(products))
        # Five standard errors of two means: false alarm 1e-6.
        assert (np.abs(products.mean(axis=0) - truth.cov[2, :2]) < 5 * error).all()
        p = tree["predictions"]["p"]
        assert p.dims == ("chain", "draw", "pred_id", "category")
        np.testing.assert_allclose(p[..., 0, 0], ndtr(theta["cuts"][0] - star[..., 0]), atol=1e-12)

    def test_names_of_several_kinds(self):
        with pm.Model(coords={"obs_id_a": list("xyz")}):
            gp = process(CASES["ordered"])
            kinds = {
                "a": (X, [0, 2, 1], of.MultinomialProbit(categories=["u", "v", "w"])),
                "b": (X[:2], [0, 1], None),
            }
            gp.marginal_likelihood("y", kinds)
        idata = trace(3, eta=1.0)
        tree = gp.sample_latent(idata, Xnew=X[:2] + 9, random_seed=1, progressbar=False)
        assert tree["posterior"]["f_a"].dims == ("chain", "draw", "obs_id_a", "category")
        assert tree["posterior"]["f_b"].dims == ("chain", "draw", "obs_id_b")
        assert tree["predictions"]["f"].dims == ("chain", "draw", "pred_id", "category")
        assert tree["predictions"]["p_a"].dims == ("chain", "draw", "pred_id", "category")
        assert tree["predictions"]["p_b"].dims == ("chain", "draw", "pred_id")
        assert list(tree["predictions"]["p_a"]["category"].to_numpy()) == ["u", "v", "w"]

    def test_data_given_now(self):
        """Without `marginal_likelihood`: data, and their likelihood, as arguments."""
        gp = process(CASES["ordered"])
        how = {"random_seed": 1, "progressbar": False}
        y, known = [0.1, 0, 1], of.Gaussian(0.5)
        one = gp.sample_latent(trace(3, a=1.0), X=X, y=y, likelihood=known, **how)
        kinds = [(X, y, known)]
        other = gp.sample_latent(trace(3, a=1.0), X=kinds, **how)
        # The same numbers.
        np.testing.assert_array_equal(one["posterior"]["f"], other["posterior"]["f_0"])
