"""The methods of the paper's tables against what others make of the same; planted effects."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from approximation_oracles import rbf
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import pymc_skewgp as sg
from pymc_skewgp._diagnostics.approximations import ep_posterior

ROOT = Path(__file__).resolve().parents[1]
RNG = np.random.default_rng(5)
X = RNG.normal(size=(40, 2))
Y = (np.sin(2.0 * X[:, 0]) + 0.3 * RNG.normal(size=40) > 0).astype(int)
NEW = RNG.normal(size=(12, 2))


@pytest.fixture(scope="module")
def modules():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import paper_image_tables
    import paper_laplace
    import paper_methods
    import paper_summary

    yield paper_methods, paper_laplace, paper_summary, paper_image_tables
    sys.path.remove(str(ROOT / "benchmarks"))


def test_eps_forecast_without_a_joint_covariance(modules):
    prior = sg.SkewGPPosterior(X, Y, cov_func=rbf(4.0)).prior
    found = modules[0]._ep_forecast(prior, X, Y, NEW, 0.0)
    joint = ep_posterior(prior, X, 2.0 * Y - 1.0, NEW)
    # The one stops at a residual of 1e-4 deviations, the other at 1e-6.
    expected = joint.marginals().probability().value[len(X) :]
    np.testing.assert_allclose(found.p, expected, atol=1e-4)
    assert found.log_evidence == pytest.approx(joint.log_evidence, abs=1e-3)


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


N_SETS = 24
GAIN = 0.05


@pytest.fixture(scope="module")
def results(tmp_path_factory, modules):
    """Sets on which skewness above 1 gains .05 bits over EP, half of them; and one not whole."""
    summary = modules[2]
    folder = tmp_path_factory.mktemp("results")
    rng = np.random.default_rng(0)
    rows = []
    for i in range(N_SETS + 1):
        level, skewness = rng.uniform(0.2, 0.8), 0.5 + (i % 2) + rng.uniform(0.0, 0.2)
        for fold in range(5 if i < N_SETS else 4):
            noise = 0.1 * rng.normal()  # of the fold, the same for all methods
            for method in summary.METHODS:
                gain = {"GP-L": -0.2, "SkewGP0": GAIN * (i % 2), "SkewGP2": GAIN * (i % 2)}
                information = level + noise + gain.get(method, 0.0)
                known = f"set {i:02}", fold, method, 100 + 7 * i, 2 + i % 5, information
                rows.append((*known, 0.5 + 0.5 * level, -10.0, skewness, 1.0, ""))
    names = "set fold method n d information accuracy log_evidence skewness seconds failure"
    pd.DataFrame(rows, columns=names.split()).to_csv(folder / "paper_pmlb.csv", index=False)
    return folder


def test_differences_are_those_that_were_planted(modules, results):
    summary = modules[2]
    asked = ("SkewGP0 less GP-EP", "of it, the hyperparameters", "SkewGP0 less GP-L")
    pairs = tuple(pair for pair in summary.PAIRS if pair[2] in asked)
    found = summary.differences(summary.by_set(results), pairs)
    half = found.loc["SkewGP0 less GP-EP"]
    assert half["mean"] == pytest.approx(GAIN / 2)
    # Deviations of GAIN / 2 about the mean, with 23 degrees of freedom.
    assert half["std. error"] == pytest.approx(GAIN / 2 / np.sqrt(N_SETS - 1))
    assert half["P(better)"] > 0.5 > half["P(worse)"]
    assert found.loc["of it, the hyperparameters", "P(equal)"] == 1.0
    assert found.loc["SkewGP0 less GP-L", "P(better)"] > 0.999


def test_sets_of_one_family_count_as_one(modules):
    """Doubled, each set by a sister with the same gain, they tell no more than once."""
    summary = modules[2]
    pairs = [members[:2] for members in summary.FAMILIES]
    gains = np.random.default_rng(4).normal(size=len(pairs))
    once = pd.Series(gains, index=[first for first, _ in pairs])
    twice = pd.concat([once, pd.Series(gains, index=[second for _, second in pairs])])
    assert summary.std_error(once) == pytest.approx(gains.std(ddof=1) / np.sqrt(len(pairs)))
    assert summary.std_error(twice) == pytest.approx(summary.std_error(once))


def test_calibrated_forecasts_lie_on_the_diagonal(modules):
    rng = np.random.default_rng(3)
    p = rng.uniform(size=20_000)
    rows = modules[3].reliability(rng.uniform(size=p.size) < p, p)
    assert [row["low"] for row in rows] == pytest.approx(np.linspace(0, 0.9, 10))
    assert sum(row["count"] for row in rows) == p.size
    for row in rows:  # 5 standard errors: false alarms 6e-6 for ten bins
        error = np.sqrt(row["p"] * (1.0 - row["p"]) / row["count"])
        assert abs(row["share"] - row["p"]) < 5 * error
