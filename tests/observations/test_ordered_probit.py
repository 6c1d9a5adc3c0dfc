"""Ordered categories: against quadrature over f, probit, and what users get."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
from likelihood_oracles import function_grid, kernel, one_sign
from numpy.testing import assert_allclose
from scipy.stats import norm

import pymc_skewgp as sg
from pymc_skewgp.likelihoods import BernoulliProbit, OrderedProbit

CUTS, SIGMA = np.array([-0.5, 0.9]), 0.7
X = np.array([[0.0], [0.6], [1.5], [2.2]])
Y = np.array([0, 1, 2, 1])
XNEW = np.array([[0.3], [5.0]])
# Draws behind predictions: quasi-random, with Monte Carlo errors that are stated.
DRAWS = 2**14


def log_p(f, y, cuts=CUTS, sigma=SIGMA):
    ends = np.concatenate([[-np.inf], cuts, [np.inf]])
    p = norm.cdf((ends[y + 1] - f) / sigma) - norm.cdf((ends[y] - f) / sigma)
    return np.log(np.maximum(p, 1e-300))


def posterior_of(n=4, **kwargs):
    likelihood = OrderedProbit(CUTS, SIGMA)
    return sg.SkewGPPosterior(
        X[:n], Y[:n], cov_func=kernel, likelihood=likelihood, n_draws=DRAWS, **kwargs
    )


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_by_quadrature(n):
    K = kernel(X[:n])
    grid = function_grid(np.zeros(n), K, lambda f: log_p(f, Y[:n]).sum(axis=1))
    posterior = posterior_of(n)
    evidence = posterior.log_marginal_likelihood
    assert abs(evidence.value - grid.log_evidence) < max(1e-5, 4 * evidence.std_error)
    at = posterior.marginals()
    assert np.all(np.abs(at.moments.mean - grid.mean) < 1e-6 + 5 * at.moment_errors.mean)
    sd = np.sqrt(grid.cov.diagonal())
    assert np.all(np.abs(at.moments.sd - sd) < 1e-6 + 5 * at.moment_errors.sd)
    # At a new point: f there given f at the data is normal.
    gain = np.linalg.solve(K, kernel(X[:n], XNEW))
    mean = gain.T @ grid.f
    sd = np.sqrt(2.0 - np.einsum("ij,ij->j", kernel(X[:n], XNEW), gain) + SIGMA**2)
    found = posterior.predict(XNEW, draws=0)["predictions_summary"].dataset
    ends = np.concatenate([[-np.inf], CUTS, [np.inf]])
    for c in range(3):
        p = norm.cdf((ends[c + 1] - mean) / sd[:, None]) - norm.cdf((ends[c] - mean) / sd[:, None])
        off = np.abs(found["p_mean"].values[:, c] - grid.average(p))
        assert np.all(off < 1e-6 + 5 * found["p_mean_se"].values[:, c])
    assert_allclose(found["p_mean"].sum("category"), 1.0, atol=1e-12)


def test_joint_draws_have_the_covariance():
    """4000 near-independent draws: an entry is off by 1.4 variances / sqrt(4000), 5 allowed."""
    grid = function_grid(np.zeros(3), kernel(X[:3]), lambda f: log_p(f, Y[:3]).sum(axis=1))
    f = posterior_of(3).sample(random_seed=1)["posterior"]["f"].values.reshape(-1, 3)
    sd = np.sqrt(grid.cov.diagonal())
    assert np.all(np.abs(f.mean(axis=0) - grid.mean) < 5 * sd / np.sqrt(4000))
    assert np.all(np.abs(np.cov(f.T) - grid.cov) < 5 * 1.4 * np.outer(sd, sd) / np.sqrt(4000))


def test_skew_gp_prior():
    """The sign at one pseudo-point, phase -1, by the normal probability of it given f."""
    r = np.array([[1.0]])
    K, row = kernel(X[:3]), kernel(X[:3], r)[:, 0]
    sign = one_sign(K, row, 2.0, -1.0, 0.2)
    grid = function_grid(np.zeros(3), K, lambda f: log_p(f, Y[:3]).sum(axis=1) + sign(f))
    posterior = posterior_of(3, pseudo_points=r, phase=[-1.0], truncation=0.2)
    evidence = posterior.log_marginal_likelihood
    assert abs(evidence.value - grid.log_evidence) < max(1e-5, 4 * evidence.std_error)
    at = posterior.marginals()
    assert np.all(np.abs(at.moments.mean - grid.mean) < 1e-6 + 5 * at.moment_errors.mean)


def test_two_categories_are_probit():
    """P(y = 1) = Phi(f - b): labels with the mean of f lower by b; both of one seed."""
    labels = np.array([0, 1, 1, 0])
    ordered = sg.SkewGPPosterior(X, labels, cov_func=kernel, likelihood=OrderedProbit([0.4]))
    probit = sg.SkewGPPosterior(
        X,
        labels,
        cov_func=kernel,
        likelihood=BernoulliProbit(),
        mean_func=lambda X: np.full(len(X), -0.4),
    )
    assert ordered.log_marginal_likelihood.value == pytest.approx(
        probit.log_marginal_likelihood.value, abs=1e-12
    )
    found = ordered.predict(XNEW, draws=0)["predictions_summary"]["p_mean"].values[:, 1]
    expected = probit.predict(XNEW, draws=0)["predictions_summary"]["p_mean"].values
    assert_allclose(found, expected, atol=1e-12)


def test_draws_of_the_tree():
    likelihood = OrderedProbit(CUTS, SIGMA, categories=["bad", "fair", "good"])
    posterior = sg.SkewGPPosterior(
        X, np.array(["bad", "fair", "good", "fair"]), cov_func=kernel, likelihood=likelihood
    )
    dt = posterior.sample(500, 4, random_seed=2)
    f = dt["posterior"]["f"].values
    assert_allclose(dt["log_likelihood"]["y"], log_p(f, Y), atol=1e-12)
    assert dt["observed_data"]["y"].values.tolist() == Y.tolist()
    again = dt["posterior_predictive"]["y"].values
    assert set(np.unique(again)) <= {0, 1, 2}
    # Shares of 2000 draws given f: binomial errors of .011 at most, 5 of them.
    shares = np.stack([(again == c).mean(axis=(0, 1)) for c in range(3)])
    p = np.stack([np.exp(log_p(f, np.full(4, c))).mean(axis=(0, 1)) for c in range(3)])
    assert_allclose(shares, p, atol=0.056)
    new = posterior.predict(XNEW, draws=500, random_seed=3)
    drawn = new["predictions"].dataset
    assert drawn["p"].dims == ("chain", "draw", "pred_id", "category")
    assert drawn["p"]["category"].values.tolist() == ["bad", "fair", "good"]
    assert_allclose(drawn["p"].sum("category"), 1.0, atol=1e-12)
    summary = new["predictions_summary"].dataset
    assert summary["p_mean"].dims == ("pred_id", "category")
    assert_allclose(drawn["p"].mean(("chain", "draw")), summary["p_mean"], atol=0.03)
    shares = np.stack([(drawn["y"] == c).mean(("chain", "draw")) for c in range(3)], axis=-1)
    assert_allclose(shares, summary["p_mean"], atol=0.056)


def test_loo():
    """Of 20 rows that hardly depend on any of them, so that importance sampling works."""
    x = np.linspace(0.0, 5.0, 20)[:, None]
    y = np.searchsorted(CUTS, np.sin(x[:, 0]) + SIGMA * np.random.default_rng(0).normal(size=20))
    posterior = sg.SkewGP(cov_func=0.5 * pm.gp.cov.ExpQuad(1, ls=2.0)).posterior(
        x, y, likelihood=OrderedProbit(CUTS, SIGMA)
    )
    assert np.isfinite(az.loo(posterior.sample(500, 2, random_seed=1)).elpd)


def test_two_kinds_of_ratings_have_categories_of_their_own():
    kinds = {
        "stars": (X, Y, OrderedProbit(CUTS)),
        "votes": (X, Y % 2, OrderedProbit([0.0], categories=["no", "yes"])),
    }
    posterior = sg.SkewGPPosterior(kinds, cov_func=kernel)
    summary = posterior.predict(XNEW, draws=10)["predictions_summary"].dataset
    assert summary["p_mean_stars"].dims == ("pred_id", "category_stars")
    assert summary["category_votes"].values.tolist() == ["no", "yes"]


def test_probabilities_in_tails_are_not_zero():
    """A category that no draw reaches: its probability is not 0, and the error covers the truth."""
    likelihood = OrderedProbit([-0.5, 0.5, 9.0, 9.5], 0.1)
    posterior = sg.SkewGPPosterior(
        X[:1], [0], cov_func=lambda *a, **k: 4.0 * kernel(*a, **k), likelihood=likelihood
    )
    grid = function_grid([0.0], [[8.0]], lambda f: norm.logcdf((-0.5 - f[:, 0]) / 0.1))
    new = np.array([[1.0]])
    gain = kernel(X[:1], new)[0, 0] / 2.0
    sd = np.sqrt(8.0 * (1.0 - gain**2) + 0.01)
    found = posterior.predict(new, draws=0)["predictions_summary"].dataset
    exact = grid.average(
        norm.sf((9.0 - gain * grid.f[0]) / sd) - norm.sf((9.5 - gain * grid.f[0]) / sd)
    )
    value, error = found["p_mean"].values[0, 3], found["p_mean_se"].values[0, 3]
    assert value > 0
    assert abs(value - exact) < 4 * error


def test_cut_points_may_be_random_variables():
    with pm.Model():
        cuts = pm.Normal("cuts", shape=2, transform=pm.distributions.transforms.ordered)
        sigma = pm.HalfNormal("sigma")
        gp = sg.SkewGP(cov_func=2.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
        found = gp.posterior(
            X, Y, point={"cuts": CUTS, "sigma": SIGMA}, likelihood=OrderedProbit(cuts, sigma)
        )
    expected = gp.posterior(X, Y, likelihood=OrderedProbit(CUTS, SIGMA))
    assert found.log_marginal_likelihood.value == pytest.approx(
        expected.log_marginal_likelihood.value, abs=1e-12
    )


def test_it_does_not_follow_the_callers_array():
    cuts = CUTS.copy()
    likelihood = OrderedProbit(cuts)
    cuts[:] = 0.0
    assert_allclose(likelihood.cutpoints, CUTS)
    assert isinstance(hash(likelihood), int)


@pytest.mark.parametrize(
    ("y", "likelihood", "message"),
    [
        ([0, 1, 3, 1], OrderedProbit(CUTS), r"categories 0 to 2.*found \[3\] in 1 row"),
        ([0, -1, 2, 1], OrderedProbit(CUTS), r"categories 0 to 2.*found \[-1\]"),
        ([0, 1.5, 2, 1], OrderedProbit(CUTS), "one category for each row of X; row 1 has 1.5"),
        ([0, 1], OrderedProbit(CUTS), r"y must have shape \(4,\)"),
        ([0, np.nan, 1, 2], OrderedProbit(CUTS), "y must be finite, found 1 NaN"),
        (Y, OrderedProbit([0.5, 0.5]), "must increase: cut-point 0 is 0.5 and cut-point 1 is 0.5"),
        (Y, OrderedProbit([0.5, np.inf]), "cutpoints holds 1 infinite value"),
        (Y, OrderedProbit([]), "cutpoints is empty"),
        (Y, OrderedProbit(CUTS, 0.0), "sigma must be positive"),
        (Y, OrderedProbit(CUTS, categories=["a", "b"]), "must be 3 names.*got 2"),
        (Y, OrderedProbit(CUTS, categories=["a", "b", "a"]), "must differ from each other"),
        (list("abcx"), OrderedProbit(CUTS, categories=list("abc")), r"found 'x' in 1 row"),
        ([0, 1, 2, 3], OrderedProbit(CUTS, categories=list("abc")), r"found 3 in 1 row"),
        ([1, 2, 3, 0], OrderedProbit(CUTS, categories=[1, 2, 3]), r"found 0 in 1 row"),
    ],
)
def test_bad_input(y, likelihood, message):
    with pytest.raises(ValueError, match=message):
        sg.SkewGPPosterior(X, y, cov_func=kernel, likelihood=likelihood)
