"""EP and Laplace against dense implementations of their own, and closed forms for one label."""

import numpy as np
import pytest
from approximation_oracles import (
    continued,
    exact_marginals,
    numerical_laplace,
    rbf,
    sequential_ep,
)
from oracles import brute_log_prob, probit_posterior_quadrature
from scipy.optimize import brentq
from scipy.stats import norm

from pymc_skewgp._posterior.gaussian_posterior import (
    GaussianPosterior,
    ep_posterior,
    laplace_posterior,
)
from pymc_skewgp._posterior.prior import Prior

# EP stops at a residual of 1e-6; its fixed point is attracting, so sites are off by a few times it.
EP = {"rtol": 1e-5, "atol": 1e-5}
NOTHING = np.zeros((0, 1))


def slope(X):
    return 0.4 - 0.3 * X[:, 0]


def zero(X):
    return np.zeros(len(X))


def gp(kernel, mean=zero, points=(), phase=(), truncation=()):
    arrays = (np.asarray(a, dtype=float) for a in (phase, truncation))
    return Prior(kernel, mean, np.asarray(points, dtype=float).reshape(-1, 1), *arrays)


def problem(seed, n=7, t=3):
    rng = np.random.default_rng(seed)
    X, new = rng.normal(size=(n, 1)) * 2.0, rng.normal(size=(t, 1)) * 4.0
    return X, np.where(rng.random(n) < 0.6, 1.0, -1.0), new


@pytest.mark.parametrize("variance", [0.5, 9.0])
@pytest.mark.parametrize("mean", [zero, slope])
def test_ep_is_that_on_f_with_probit_sites(variance, mean):
    X, sign, new = problem(0)
    kernel = rbf(variance, 0.8)
    found = ep_posterior(gp(kernel, mean), X, sign, new)
    everywhere = np.vstack([X, new])
    K, m = kernel(everywhere), mean(everywhere)
    there = sequential_ep(m[:7], K[:7, :7], sign, np.zeros(7), np.ones(7))
    wanted = continued(there, m, K, 7)
    np.testing.assert_allclose(found.mean, wanted.mean, **EP)
    np.testing.assert_allclose(found.cov, wanted.cov, **EP)
    assert found.log_evidence == pytest.approx(wanted.log_evidence, abs=1e-6)


def test_ep_where_the_covariance_is_of_low_rank():
    """Many points on a smooth kernel take another way through the linear algebra."""
    X = np.linspace(-1.0, 1.0, 24)[:, None]
    sign = np.where(np.sin(5.0 * X[:, 0]) > 0, 1.0, -1.0)
    kernel = rbf(2.0, 1.5)
    found = ep_posterior(gp(kernel), X, sign, np.array([[0.3], [2.0]]))
    everywhere = np.vstack([X, [[0.3], [2.0]]])
    # The dense way needs a matrix that it can invert: f and f + noise of 1e-7 are the same to 1e-5.
    K = kernel(everywhere) + 1e-7 * np.eye(26)
    there = sequential_ep(np.zeros(24), K[:24, :24], sign, np.zeros(24), np.ones(24), sweeps=40)
    wanted = continued(there, np.zeros(26), K, 24)
    np.testing.assert_allclose(found.mean, wanted.mean, atol=1e-4)
    np.testing.assert_allclose(found.cov, wanted.cov, atol=1e-4)


@pytest.mark.parametrize("mean", [0.0, -1.3])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_ep_of_one_label_has_the_exact_moments(mean, sign):
    v = 3.0
    found = ep_posterior(
        gp(rbf(v), lambda X: np.full(len(X), mean)), np.zeros((1, 1)), np.array([sign]), NOTHING
    )
    exact = probit_posterior_quadrature([[v]], [(sign + 1) / 2], [mean])
    np.testing.assert_allclose(found.mean, exact.mean, **EP)
    np.testing.assert_allclose(found.cov, exact.cov, **EP)
    assert found.log_evidence == pytest.approx(norm.logcdf(sign * mean / 2.0), abs=1e-6)


@pytest.mark.parametrize("phase", [(1.0,), (1.0, -1.0)])
def test_ep_with_pseudo_points(phase):
    """A pseudo-point is a site without noise; the evidence is over that of the prior's signs."""
    s = len(phase)
    points, truncation = np.array([[-0.5], [1.2]])[:s], np.array([0.3, -0.2])[:s]
    X, sign, new = problem(1, n=5)
    kernel = rbf(2.0)
    found = ep_posterior(gp(kernel, slope, points, phase, truncation), X, sign, new)
    everywhere = np.vstack([points, X, new])
    K = kernel(everywhere)
    # The sign that the prior is told is that of f less its mean.
    m = np.concatenate([np.zeros(s), slope(everywhere[s:])])
    a = np.concatenate([np.array(phase) / np.sqrt(2.0), sign])
    b = np.concatenate([truncation, np.zeros(5)])
    noise = np.repeat([0.0, 1.0], [s, 5])
    there = sequential_ep(m[: s + 5], K[: s + 5, : s + 5], a, b, noise)
    wanted = continued(there, m, K, s + 5)
    np.testing.assert_allclose(found.mean, wanted.mean[s:], **EP)
    np.testing.assert_allclose(found.cov, wanted.cov[s:, s:], **EP)
    gamma = np.outer(phase, phase) * K[:s, :s] / 2.0
    signs = brute_log_prob(-truncation, np.inf, gamma)  # 1e-12
    assert found.log_evidence == pytest.approx(there.log_evidence - signs, abs=1e-6)


def test_ep_is_nearly_right_and_laplace_less_so():
    """Two labels: EP's mean is .002 deviations off quadrature, Laplace's .34; half is to spare."""
    kernel, X = rbf(4.0), np.array([[0.0], [0.7]])
    exact = probit_posterior_quadrature(kernel(X), [1, 1])
    sd = np.sqrt(exact.cov.diagonal())
    off = [
        np.abs(method(gp(kernel), X, np.ones(2), NOTHING).mean - exact.mean).max() / sd.max()
        for method in (ep_posterior, laplace_posterior)
    ]
    assert off[0] < 0.004
    assert off[1] > 0.17


@pytest.mark.parametrize("variance", [0.5, 25.0])
@pytest.mark.parametrize("mean", [zero, slope])
def test_laplace_by_a_general_optimiser(variance, mean):
    X, sign, new = problem(2)
    kernel = rbf(variance, 0.8)
    found = laplace_posterior(gp(kernel, mean), X, sign, new)
    everywhere = np.vstack([X, new])
    K, m = kernel(everywhere), mean(everywhere)
    wanted = continued(numerical_laplace(m[:7], K[:7, :7], sign), m, K, 7)
    # BFGS stops at a slope of 1e-10 or where it sees no more descent, about 1e-8 of f; the
    # differences of slopes are good to 1e-9.
    np.testing.assert_allclose(found.mean, wanted.mean, atol=2e-6)
    np.testing.assert_allclose(found.cov, wanted.cov, rtol=1e-5, atol=1e-5)
    assert found.log_evidence == pytest.approx(wanted.log_evidence, abs=1e-7)


@pytest.mark.parametrize(("mean", "variance"), [(0.0, 2.0), (-50.0, 1e4), (-8.0, 0.1), (30.0, 1.0)])
def test_laplace_of_one_label(mean, variance):
    """The mode solves f = m + v phi(f)/Phi(f), found here by bisection; tails included."""

    def score(f):
        return float(np.exp(norm.logpdf(f) - norm.logcdf(f)))

    mode = brentq(
        lambda f: f - mean - variance * score(f), mean - 1.0, mean + 60 * variance, xtol=1e-13
    )
    found = laplace_posterior(
        gp(rbf(variance), lambda X: np.full(len(X), mean)), np.zeros((1, 1)), np.ones(1), NOTHING
    )
    curvature = score(mode) * (mode + score(mode))
    # Newton stops when it gains less than 1e-10 of the log density: f within 1e-5 deviations.
    assert found.mean[0] == pytest.approx(mode, abs=1e-5 * np.sqrt(variance))
    assert found.cov[0, 0] == pytest.approx(1.0 / (1.0 / variance + curvature), rel=1e-4)
    evidence = (
        norm.logcdf(mode)
        - 0.5 * (mode - mean) ** 2 / variance
        - 0.5 * np.log1p(variance * curvature)
    )
    assert found.log_evidence == pytest.approx(evidence, abs=1e-8 * (1.0 + abs(evidence)))


def test_laplace_refuses_pseudo_points():
    with pytest.raises(ValueError, match="Laplace's approximation needs a Gaussian prior"):
        laplace_posterior(
            gp(rbf(), zero, [0.0], [1.0], [0.0]), np.ones((1, 1)), np.ones(1), NOTHING
        )


@pytest.mark.parametrize("method", [ep_posterior, laplace_posterior])
def test_far_from_the_data_is_the_prior(method):
    X, sign, _ = problem(3)
    found = method(gp(rbf(3.0), slope), X, sign, np.array([[1e3]]))
    assert found.mean[-1] == pytest.approx(slope(np.array([[1e3]]))[0], rel=1e-12)
    assert found.cov[-1, -1] == pytest.approx(3.0, rel=1e-12)


def test_marginals_and_draws_are_those_of_the_gaussian():
    """20000 draws: means to 5 standard errors, covariances to 6 (false alarms below 1e-5)."""
    cov = np.array([[2.0, 0.9, 0.0], [0.9, 1.0, 0.3], [0.0, 0.3, 0.5]])
    posterior = GaussianPosterior(np.array([1.0, -2.0, 0.0]), cov, 0.0)
    at = posterior.marginals()
    np.testing.assert_allclose(at.moments.sd, np.sqrt(cov.diagonal()), rtol=1e-15)
    np.testing.assert_array_equal(at.moments.skewness, 0.0)
    np.testing.assert_allclose(
        at.cdf(np.full((1, 3), 0.3)).value,
        norm.cdf(0.3, posterior.mean, np.sqrt(cov.diagonal()))[None],
        rtol=1e-12,
    )
    draws = posterior.sample(20_000, np.random.default_rng(0))
    error = np.sqrt(cov.diagonal() / 20_000)
    assert (np.abs(draws.mean(axis=0) - posterior.mean) < 5 * error).all()
    spread = np.sqrt((np.outer(cov.diagonal(), cov.diagonal()) + cov**2) / 20_000)
    assert (np.abs(np.cov(draws.T) - cov) < 6 * spread).all()


def test_a_function_that_is_known_somewhere():
    """A linear kernel has no variance at 0: neither have the approximations, nor any warning."""

    def linear(X, Xs=None, diag=False):
        return (X**2).sum(axis=1) if diag else X @ (X if Xs is None else Xs).T

    X, sign = np.array([[-1.0], [0.5], [2.0]]), np.array([-1.0, 1.0, 1.0])
    for method in (ep_posterior, laplace_posterior):
        at = method(gp(linear), X, sign, np.zeros((1, 1))).marginals()
        assert at.moments.mean[-1] == 0.0
        assert at.moments.sd[-1] == 0.0


def test_the_oracle_of_exact_marginals():
    """Its rule over u against the one over f, at two labels, and by regression at a third point."""
    kernel, X = rbf(4.0), np.array([[0.0], [0.7], [2.0]])
    K, sign, mean = kernel(X), np.array([1.0, -1.0]), np.array([0.3, -0.2, 0.5])
    found = exact_marginals(K, sign, mean).moments()
    exact = probit_posterior_quadrature(K[:2, :2], [1, 0], mean[:2])
    wanted = continued(exact, mean, K, 2)
    np.testing.assert_allclose(found[0], wanted.mean, atol=1e-9)
    np.testing.assert_allclose(found[1] ** 2, wanted.cov.diagonal(), atol=1e-9)
    np.testing.assert_allclose(found[2][:2], exact.skewness, atol=1e-8)
