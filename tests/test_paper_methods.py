"""The methods of the paper's tables, each against what others make of the same."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from approximation_oracles import rbf
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import pymc_skewgp as sg
from pymc_skewgp._posterior.gaussian_posterior import ep_posterior

ROOT = Path(__file__).resolve().parents[1]
RNG = np.random.default_rng(5)
X = RNG.normal(size=(40, 2))
Y = (np.sin(2.0 * X[:, 0]) + 0.3 * RNG.normal(size=40) > 0).astype(int)
NEW = RNG.normal(size=(12, 2))


@pytest.fixture(scope="module")
def modules():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import paper_laplace
    import paper_methods

    yield paper_methods, paper_laplace
    sys.path.remove(str(ROOT / "benchmarks"))


def test_eps_forecast_without_a_joint_covariance(modules):
    prior = sg.SkewGPPosterior(X, Y, cov_func=rbf(4.0)).prior
    found = modules[0]._ep_forecast(prior, X, Y, NEW, 0.0)
    joint = ep_posterior(prior, X, 2.0 * Y - 1.0, NEW)
    # The one stops at a residual of 1e-4 deviations, the other at 1e-6.
    expected = joint.marginals().probability().value[len(X) :]
    np.testing.assert_allclose(found.p, expected, atol=1e-4)
    assert found.log_evidence == pytest.approx(joint.log_evidence, abs=1e-3)


def test_more_draws_of_the_same_posterior(modules):
    few = sg.SkewGPPosterior(
        X, Y, cov_func=rbf(4.0), pseudo_points=[[0.0, 0.0], [1.0, 0.0]], phase=[1, -1]
    )
    many = modules[0]._drawn(few.prior, X, Y, seed=1)
    assert many.latent.draws.shape[0] == modules[0].DRAWS
    a, b = few.probability(NEW), many.probability(NEW)
    # 5 standard errors at 12 points: false alarms 7e-6.
    assert (np.abs(a.value - b.value) < 5 * np.hypot(a.std_error, b.std_error)).all()


def test_gp_ep_is_a_part_of_the_search_of_skewgp0(modules):
    """In batches."""
    methods = modules[0]
    sizes = {"coarse_above": 10, "coarse_size": 15, "batch_above": 30, "auto_batch_size": 20}
    search = replace(methods.SEARCH, **sizes)
    both = ("GP-EP", "SkewGP0")
    together = methods.forecasts(both, X, Y, NEW, seed=3, search=search)
    alone = methods.forecasts(("GP-EP",), X, Y, NEW, seed=3, search=search)["GP-EP"]
    # One search and its repetition: what is left is round-off.
    np.testing.assert_allclose(together["GP-EP"].p, alone.p, rtol=1e-6)
    assert together["GP-EP"].log_evidence == pytest.approx(alone.log_evidence, abs=1e-6)


@pytest.mark.parametrize("d", [1, 2])
def test_the_gradient_of_gp_l_is_scikit_learns(modules, d):
    kernel = ConstantKernel(2.5) * RBF(np.array([1.5, 0.4])[:d])
    model = GaussianProcessClassifier(kernel, optimizer=None).fit(X[:, :d], Y)
    theta = model.kernel_.theta + 0.3
    expected, slopes = model.log_marginal_likelihood(theta, eval_gradient=True)
    value, gradient = modules[1].value_and_gradient(model, theta)
    assert value == expected
    # scikit-learn stops Newton's iterations, and takes the last but one, within 1e-5 of the mode.
    np.testing.assert_allclose(gradient, slopes, rtol=1e-4, atol=1e-5)


def test_methods_that_share_a_search_do_not_share_a_failure(modules, monkeypatch, tmp_path):
    import paper

    def fail(names, *_, **__):
        if "SkewGP2" in names:
            raise ArithmeticError("no")
        return {name: modules[0].Forecast(np.full(8, 0.5), -1.0, 2.0) for name in names}

    monkeypatch.setattr(paper, "forecasts", fail)
    (tmp_path / "pmlb").mkdir()
    np.savez(tmp_path / "pmlb" / "made_up.npz", X=X, y=Y)
    rows = {row["method"]: row for row in paper.pmlb_fold("made_up", 0, "SkewGP2", tmp_path)}
    assert set(rows) == set(modules[0].TOGETHER)
    assert [name for name, row in rows.items() if "failure" in row] == ["SkewGP2"]
    assert rows["SkewGP2"]["failure"] == "ArithmeticError: no"


def test_gp_l_is_at_least_where_scikit_learn_ends(modules):
    search = replace(modules[0].SEARCH, coarse_above=20, coarse_size=20)
    start = {"eta": 2.0, "ls": np.array([1.5, 1.5])}
    p, evidence = modules[1].laplace_forecast(X, Y, NEW, start, search, seed=0)
    wide = modules[1].WIDE
    kernel = ConstantKernel(4.0, wide) * RBF(start["ls"], wide)
    own = GaussianProcessClassifier(kernel).fit(X, Y)
    # L-BFGS stops within a thousandth of a nat of its optimum.
    assert evidence > own.log_marginal_likelihood_value_ - 1e-3
    assert np.mean((p > 0.5) == (np.sin(2.0 * NEW[:, 0]) > 0)) > 0.7
