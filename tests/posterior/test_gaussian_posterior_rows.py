"""EP and Laplace under likelihoods of rows: against quadrature and a general optimiser."""

import numpy as np
import pytest
from approximation_oracles import continued, rbf
from likelihood_oracles import function_grid
from scipy.optimize import minimize
from scipy.stats import binom, multivariate_normal, norm

import pymc_skewgp as sg
from pymc_skewgp._posterior.gaussian_posterior import ep_posterior, laplace_posterior
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp.likelihoods import (
    BinomialProbit,
    CensoredGaussian,
    Choice,
    Gaussian,
    MultinomialProbit,
    OrderedProbit,
    Preference,
    Ranking,
)

KERNEL = rbf(2.0, 0.8)
X = np.array([[0.0], [0.5], [1.3], [2.1], [3.0]])
NEW = np.array([[0.2], [4.0]])
CUTS, SIGMA = np.array([-0.5, 0.9]), 0.7
ENDS = np.array([-np.inf, -0.5, 0.9, np.inf])


E = np.zeros(0)


def flat(X):
    return np.zeros(len(X))


def slope(X):
    return 0.4 - 0.3 * X[:, 0]


def gp(points=(), phase=(), truncation=()):
    arrays = (np.asarray(a, dtype=float) for a in (phase, truncation))
    return Prior(KERNEL, slope, np.asarray(points, dtype=float).reshape(-1, 1), *arrays)


def ordered(y, f):
    p = norm.cdf((ENDS[y + 1] - f) / SIGMA) - norm.cdf((ENDS[y] - f) / SIGMA)
    return np.log(np.maximum(p, 1e-300))


def tobit(y, f):
    return np.where(y == 0.0, norm.logcdf(-f / SIGMA), norm.logpdf(y, f, SIGMA))


def binomial(y, f):
    return binom.logpmf(y, 6, norm.cdf(f))


KINDS = {
    "ordered": (np.array([1, 2, 0, 1, 0]), OrderedProbit(CUTS, SIGMA), ordered),
    "tobit": (np.array([0.0, 0.8, 0.0, 1.2, 0.0]), CensoredGaussian(SIGMA, 0.0), tobit),
    "binomial": (np.array([2, 6, 0, 3, 1]), BinomialProbit(6), binomial),
}


@pytest.mark.parametrize("kind", ["ordered", "tobit"])
def test_ep_of_one_row_has_the_exact_moments(kind):
    y, likelihood, log_p = KINDS[kind]
    found = ep_posterior(gp(), X[:1], y[:1], NEW[:0], likelihood)
    exact = function_grid(slope(X[:1]), KERNEL(X[:1]), lambda f: log_p(y[:1], f).sum(axis=1))
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=1e-6)
    np.testing.assert_allclose(found.mean, exact.mean, atol=1e-5)
    np.testing.assert_allclose(found.cov, exact.cov, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_ep_is_nearly_right(kind):
    """Three rows: evidences are off by .0093 nats at most, means by .0033; half is to spare."""
    y, likelihood, log_p = KINDS[kind]
    found = ep_posterior(gp(), X[:3], y[:3], NEW[:0], likelihood)
    exact = function_grid(slope(X[:3]), KERNEL(X[:3]), lambda f: log_p(y[:3], f).sum(axis=1))
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=0.014)
    np.testing.assert_allclose(found.mean, exact.mean, atol=0.005)


@pytest.mark.parametrize("kind", KINDS)
def test_laplace_by_a_general_optimiser(kind):
    y, likelihood, log_p = KINDS[kind]
    found = laplace_posterior(gp(), X, y, NEW, likelihood)
    everywhere = np.vstack([X, NEW])
    K, m = KERNEL(everywhere), slope(everywhere)
    prior = multivariate_normal(m[:5], K[:5, :5])

    def log_joint(f):
        return log_p(y, f).sum() + prior.logpdf(f)

    mode = minimize(lambda f: -log_joint(f), m[:5], tol=1e-12).x
    # Central second differences with h = 1e-3: error of h^2 and of 1e-15 / h^2.
    h = 1e-3
    up, here, down = (log_p(y, mode + side * h) for side in (1, 0, -1))
    W = -(up - 2 * here + down) / h**2
    precision = np.linalg.inv(K[:5, :5]) + np.diag(W)
    evidence = log_joint(mode) + 2.5 * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(precision)[1]
    there = type("", (), {"mean": mode, "cov": np.linalg.inv(precision), "log_evidence": 0.0})
    wanted = continued(there, m, K, 5)
    # BFGS with differences for slopes stops about 1e-6 from the mode.
    np.testing.assert_allclose(found.mean, wanted.mean, atol=2e-5)
    np.testing.assert_allclose(found.cov, wanted.cov, atol=2e-5)
    assert found.log_evidence == pytest.approx(evidence, abs=1e-5)


@pytest.mark.parametrize("method", [ep_posterior, laplace_posterior])
def test_points_alone_are_regression(method):
    y = np.array([0.3, -0.2, 1.0, 0.4, 0.0])
    found = method(gp(), X, y, NEW, Gaussian(SIGMA))
    K, m = KERNEL(np.vstack([X, NEW])), slope(np.vstack([X, NEW]))
    G = K[:5, :5] + SIGMA**2 * np.eye(5)
    gain = np.linalg.solve(G, K[:5])
    np.testing.assert_allclose(found.mean, m + gain.T @ (y - m[:5]), atol=1e-10)
    np.testing.assert_allclose(found.cov, K - K[:, :5] @ gain, atol=1e-10)
    expected = multivariate_normal(m[:5], G).logpdf(y)
    assert found.log_evidence == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("method", [ep_posterior, laplace_posterior])
def test_a_thousand_trials_are_nearly_gaussian(method):
    """At two places, by quadrature on a grid about the likelihood's own centre.

    A likelihood of 2000 trials has a skewness of .02 or so: means are off by less than .01
    deviations, log evidences by 1e-3.
    """
    trials, y = np.array([1000, 1000]), np.array([300, 650])
    found = method(gp(), X[:2], y, NEW[:0], BinomialProbit(trials))
    centre, spread = norm.ppf(y / trials), np.full(2, 10.0 / 1000)
    K, m = KERNEL(X[:2]), slope(X[:2])
    prior = multivariate_normal(m, K)

    def log_likelihood(f):
        away = norm.logpdf(f, centre, np.sqrt(spread)).sum(axis=1)
        return binom.logpmf(y, trials, norm.cdf(f)).sum(axis=1) + prior.logpdf(f) - away

    exact = function_grid(centre, np.diag(spread), log_likelihood)
    sd = np.sqrt(exact.cov.diagonal())
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=1e-3)
    assert np.all(np.abs(found.mean - exact.mean) < 0.02 * sd)
    np.testing.assert_allclose(found.cov, exact.cov, atol=0.01 * sd.max() ** 2)


def test_ep_with_pseudo_points():
    """Against the exact posterior, to EP's own accuracy; draws' errors are below .005."""
    y, likelihood, _ = KINDS["ordered"]
    prior = gp([0.7], [1.0], [0.2])
    found = ep_posterior(prior, X, y, NEW, likelihood)
    exact = sg.SkewGPPosterior(
        X, y, cov_func=KERNEL, mean_func=slope, likelihood=likelihood, n_draws=4096,
        pseudo_points=[[0.7]], phase=[1.0], truncation=0.2,
    )  # fmt: skip
    assert found.log_evidence == pytest.approx(exact.log_marginal_likelihood.value, abs=0.02)
    at = exact.marginals(NEW).moments
    np.testing.assert_allclose(found.mean[5:], at.mean, atol=0.03)
    np.testing.assert_allclose(np.sqrt(found.cov.diagonal())[5:], at.sd, atol=0.03)


def test_several_kinds_of_data():
    kinds = {
        "ratings": (X[:3], np.array([1, 2, 0]), OrderedProbit(CUTS, SIGMA)),
        "values": (X[3:], np.array([0.5, -0.1]), Gaussian(SIGMA)),
    }
    found = ep_posterior(gp(), kinds, None, NEW)
    exact = sg.SkewGPPosterior(kinds, cov_func=KERNEL, mean_func=slope, n_draws=4096)
    assert found.log_evidence == pytest.approx(exact.log_marginal_likelihood.value, abs=0.02)
    np.testing.assert_allclose(found.mean[:5], exact.marginals().moments.mean, atol=0.03)


DUELS = np.array([[0, 1], [2, 1], [2, 3], [4, 0]])


def duels(y, f):
    return norm.logcdf((f[..., y[:, 0]] - f[..., y[:, 1]]) / np.sqrt(2 * SIGMA**2))


def test_ep_of_duels_is_nearly_right():
    """Two duels of three items; both errors were found to be below .001."""
    y = DUELS[:2]
    found = ep_posterior(gp(), X[:3], y, NEW[:0], Preference(SIGMA))
    exact = function_grid(slope(X[:3]), KERNEL(X[:3]), lambda f: duels(y, f).sum(axis=1))
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=0.002)
    np.testing.assert_allclose(found.mean, exact.mean, atol=0.002)


def test_laplace_of_duels_by_a_general_optimiser():
    """Second derivatives of each duel in its difference, with h = 1e-3: errors of 1e-6 or so."""
    found = laplace_posterior(gp(), X, DUELS, NEW, Preference(SIGMA))
    everywhere = np.vstack([X, NEW])
    K, m = KERNEL(everywhere), slope(everywhere)
    prior = multivariate_normal(m[:5], K[:5, :5])
    mode = minimize(lambda f: -duels(DUELS, f).sum() - prior.logpdf(f), m[:5], tol=1e-12).x
    A = np.zeros((4, 5))
    A[np.arange(4), DUELS[:, 0]], A[np.arange(4), DUELS[:, 1]] = 1.0, -1.0
    h, eta, sd = 1e-3, A @ mode, np.sqrt(2.0) * SIGMA
    up, here, down = (norm.logcdf((eta + side * h) / sd) for side in (1, 0, -1))
    precision = np.linalg.inv(K[:5, :5]) + A.T @ np.diag(-(up - 2 * here + down) / h**2) @ A
    there = type("", (), {"mean": mode, "cov": np.linalg.inv(precision), "log_evidence": 0.0})
    wanted = continued(there, m, K, 5)
    np.testing.assert_allclose(found.mean, wanted.mean, atol=2e-5)
    np.testing.assert_allclose(found.cov, wanted.cov, atol=2e-5)


SHARED = {
    "choices": (X, np.array([[0, 1, 2], [3, 0, 4], [2, 3, 1]]), Choice(SIGMA)),
    "rankings": (X, np.array([[0, 1, 2], [3, 0, 4]]), Ranking(SIGMA)),
    "classes": (X[:3], np.array([0, 2, 1]), MultinomialProbit()),
}


@pytest.mark.parametrize("kind", SHARED)
def test_laplace_of_rows_that_share_noise(kind):
    """From the likelihood's own log p, which is tested against quadrature, by differences.

    Second differences with h = 1e-2 have errors of h^2 times fourth derivatives, 1e-4 or so.
    """
    inputs, y, likelihood = SHARED[kind]
    found = laplace_posterior(
        Prior(KERNEL, flat, np.zeros((0, 1)), E, E), inputs, y, NEW[:0], likelihood
    )
    k = likelihood.n_functions(y)
    n = len(inputs) * k
    K = np.kron(KERNEL(inputs), np.eye(k))
    prior = multivariate_normal(np.zeros(n), K)

    def log_joint(f):
        shaped = f if k == 1 else f.reshape(-1, k)
        return likelihood.log_likelihood(y, shaped).sum() + prior.logpdf(f)

    mode = minimize(lambda f: -log_joint(f), np.zeros(n), tol=1e-10).x
    h, one = 1e-2, np.eye(n)
    hessian = np.array([
        [
            (log_joint(mode + h * (one[i] + one[j])) - log_joint(mode + h * (one[i] - one[j]))
             - log_joint(mode - h * (one[i] - one[j])) + log_joint(mode - h * (one[i] + one[j])))
            / (4 * h**2)
            for j in range(n)
        ]
        for i in range(n)
    ])  # fmt: skip
    evidence = log_joint(mode) + 0.5 * n * np.log(2 * np.pi)
    evidence -= 0.5 * np.linalg.slogdet(-hessian)[1]
    np.testing.assert_allclose(found.mean, mode, atol=1e-4)
    np.testing.assert_allclose(found.cov, np.linalg.inv(-hessian), atol=1e-3)
    assert found.log_evidence == pytest.approx(evidence, abs=1e-3)


def test_laplace_refuses_rows_that_all_share_noise():
    y = np.array([[0, 1], [1, 2], [2, 3], [3, 4], [0, 4], [0, 2], [1, 3]])
    likelihood = Preference(SIGMA, noise="item")
    with pytest.raises(ValueError, match="use EP"):
        laplace_posterior(gp(), X, y, NEW, likelihood)
    assert np.isfinite(ep_posterior(gp(), X, y, NEW, likelihood).log_evidence)


def test_laplace_refuses_rows_without_noise():
    class Exact(OrderedProbit):
        def observations(self, y, n):
            rows = super().observations(y, n)
            return type(rows)(rows.A, rows.a, np.zeros(n), rows.lower, rows.upper, rows.value)

    with pytest.raises(ValueError, match="have none: use EP"):
        laplace_posterior(gp(), X, KINDS["ordered"][0], NEW, Exact(CUTS))
