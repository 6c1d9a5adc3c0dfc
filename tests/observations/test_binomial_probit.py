"""Successes of trials: against quadrature over f, probit, and what users get."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
from likelihood_oracles import function_grid, kernel, one_sign
from numpy.testing import assert_allclose
from scipy.special import ndtr
from scipy.stats import binom, norm

import pymc_skewgp as sg
from pymc_skewgp.likelihoods import BernoulliProbit, BinomialProbit

X = np.array([[0.0], [0.6], [1.5], [2.2]])
TRIALS = np.array([5, 3, 8, 0])
Y = np.array([1, 3, 5, 0])
XNEW = np.array([[0.3], [5.0]])
DRAWS = 2**14


def log_p(f, y=Y, trials=TRIALS):
    return binom.logpmf(y, trials, norm.cdf(f))


def check(posterior, grid, K, n):
    evidence = posterior.log_marginal_likelihood
    assert abs(evidence.value - grid.log_evidence) < max(1e-5, 4 * evidence.std_error)
    at = posterior.marginals()
    assert np.all(np.abs(at.moments.mean - grid.mean) < 1e-6 + 5 * at.moment_errors.mean)
    sd = np.sqrt(grid.cov.diagonal())
    assert np.all(np.abs(at.moments.sd - sd) < 1e-6 + 5 * at.moment_errors.sd)
    gain = np.linalg.solve(K, kernel(X[:n], XNEW))
    sd = np.sqrt(3.0 - np.einsum("ij,ij->j", kernel(X[:n], XNEW), gain))
    p = grid.average(norm.cdf((gain.T @ grid.f) / sd[:, None]))
    found = posterior.predict(XNEW, draws=0)["predictions_summary"].dataset
    assert np.all(np.abs(found["p_mean"] - p) < 1e-6 + 5 * found["p_mean_se"])


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_by_quadrature(n):
    K = kernel(X[:n])
    grid = function_grid(np.zeros(n), K, lambda f: log_p(f, Y[:n], TRIALS[:n]).sum(axis=1))
    posterior = sg.SkewGPPosterior(
        X[:n], Y[:n], cov_func=kernel, likelihood=BinomialProbit(TRIALS[:n]), n_draws=DRAWS
    )
    check(posterior, grid, K, n)


@pytest.mark.parametrize("scale", [20, 400])
def test_many_trials_by_quadrature(scale):
    """Hundreds and thousands of rows at three places, and one place of ten trials."""
    trials, y = scale * np.array([5, 3, 8]), scale * np.array([1, 2, 5])
    trials, y = np.append(trials, 10)[:3], np.append(y, 10)[:3]
    K = kernel(X[:3])
    centre = norm.ppf(y / trials)
    # The posterior is narrow: the grid is laid about where the likelihood is, by a Gaussian whose
    # density over the prior's joins the likelihood.
    spread = 4.0 * np.diag(3.0 / trials)
    prior = np.linalg.inv(K)

    def log_likelihood(f):
        off = f - centre
        quadratic = -0.5 * np.einsum("ni,ij,nj->n", f, prior, f)
        quadratic += 0.5 * (off**2 / spread.diagonal()).sum(axis=1)
        constant = -0.5 * np.linalg.slogdet(K)[1] + 0.5 * np.log(spread.diagonal()).sum()
        return log_p(f, y, trials).sum(axis=1) + quadratic + constant

    grid = function_grid(centre, spread, log_likelihood)
    posterior = sg.SkewGPPosterior(
        X[:3], y, cov_func=kernel, likelihood=BinomialProbit(trials), n_draws=2**12
    )
    check(posterior, grid, K, 3)


def test_skew_gp_prior():
    r = np.array([[1.0]])
    K, row = kernel(X[:3]), kernel(X[:3], r)[:, 0]
    sign = one_sign(K, row, 2.0, -1.0, 0.3)
    grid = function_grid(
        np.zeros(3), K, lambda f: log_p(f, Y[:3], TRIALS[:3]).sum(axis=1) + sign(f)
    )
    posterior = sg.SkewGPPosterior(
        X[:3],
        Y[:3],
        cov_func=kernel,
        likelihood=BinomialProbit(TRIALS[:3]),
        pseudo_points=r,
        phase=[-1.0],
        truncation=0.3,
        n_draws=DRAWS,
    )
    evidence = posterior.log_marginal_likelihood
    assert abs(evidence.value - grid.log_evidence) < max(1e-5, 4 * evidence.std_error)
    at = posterior.marginals()
    assert np.all(np.abs(at.moments.mean - grid.mean) < 1e-6 + 5 * at.moment_errors.mean)


def test_one_trial_is_probit():
    labels = np.array([0, 1, 1, 0])
    one = sg.SkewGPPosterior(X, labels, cov_func=kernel, likelihood=BinomialProbit(1))
    probit = sg.SkewGPPosterior(X, labels, cov_func=kernel, likelihood=BernoulliProbit())
    assert one.log_marginal_likelihood.value == pytest.approx(
        probit.log_marginal_likelihood.value, abs=1e-12
    )
    found = one.predict(XNEW, draws=0)["predictions_summary"]["p_mean"]
    expected = probit.predict(XNEW, draws=0)["predictions_summary"]["p_mean"]
    assert_allclose(found, expected, atol=1e-12)


def test_draws_of_the_tree():
    posterior = sg.SkewGPPosterior(X, Y, cov_func=kernel, likelihood=BinomialProbit(8))
    dt = posterior.sample(500, 4, random_seed=2)
    f = dt["posterior"]["f"].values
    expected = pm.logp(pm.Binomial.dist(8, ndtr(f)), np.broadcast_to(Y, f.shape)).eval()
    assert_allclose(dt["log_likelihood"]["y"], expected, atol=1e-10)
    again = dt["posterior_predictive"]["y"].values
    # Means of 2000 counts, each with a deviation below 4: five errors.
    off = np.abs(again.mean(axis=(0, 1)) - 8 * ndtr(f).mean(axis=(0, 1)))
    assert np.all(off < 5 * 4 / np.sqrt(2000))
    new = posterior.predict(XNEW, draws=500, random_seed=3)
    drawn, summary = new["predictions"].dataset, new["predictions_summary"].dataset
    assert_allclose(drawn["p"].mean(("chain", "draw")), summary["p_mean"], atol=0.04)
    off = np.abs(drawn["y"].mean(("chain", "draw")) - 8 * summary["p_mean"])
    assert np.all(off < 5 * 4 / np.sqrt(2000))
    assert drawn["y"].max() <= 8


def test_loo():
    """Of 20 rows that hardly depend on any of them, so that importance sampling works."""
    x = np.linspace(0.0, 5.0, 20)[:, None]
    y = np.random.default_rng(0).binomial(3, ndtr(np.sin(x[:, 0])))
    posterior = sg.SkewGP(cov_func=0.5 * pm.gp.cov.ExpQuad(1, ls=2.0)).posterior(
        x, y, likelihood=BinomialProbit(3)
    )
    dt = posterior.sample(500, 2, random_seed=1)
    assert np.isfinite(az.loo(dt).elpd)


def test_trials_of_each_row_are_not_known_at_new_points():
    posterior = sg.SkewGPPosterior(X, Y, cov_func=kernel, likelihood=BinomialProbit(TRIALS))
    assert "y" not in posterior.predict(XNEW, draws=10)["predictions"]


@pytest.mark.parametrize(
    ("y", "n", "message"),
    [
        (Y, 4, r"row 2 has 5 successes in 4 trials \(1 such row"),
        ([-1, 0, 0, 0], 4, "counts of 0 and more; row 0 has -1"),
        ([0.5, 0, 0, 0], 4, "y must hold integers, one number of successes"),
        (Y, [5, 3, 8.5, 0], "n must hold integers, one number of trials"),
        (Y, [5, 3, 8], r"n must have shape \(4,\)"),
        (Y, [5, 3, 8, -1], "n must hold numbers of trials, 0 or more; got -1"),
        (Y, np.nan, "n must be finite"),
    ],
)
def test_bad_input(y, n, message):
    with pytest.raises(ValueError, match=message):
        sg.SkewGPPosterior(X, y, cov_func=kernel, likelihood=BinomialProbit(n))
