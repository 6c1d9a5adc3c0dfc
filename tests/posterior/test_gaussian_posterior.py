"""EP and Laplace against dense implementations of their own, quadrature and general optimisers."""

import numpy as np
import pytest
from approximation_oracles import continued, numerical_laplace, rbf, sequential_ep, slope
from likelihood_oracles import function_grid
from oracles import brute_log_prob
from scipy.optimize import brentq
from scipy.stats import multivariate_normal, norm
from site_oracles import Counts, Student

import pymc_skewgp as sg
from pymc_skewgp import likelihoods as of
from pymc_skewgp._diagnostics import approximations
from pymc_skewgp._posterior.prior import Prior

# EP stops at a residual of 1e-6; its fixed point is attracting, so sites are off by a few times it.
EP = {"rtol": 1e-5, "atol": 1e-5}
NOTHING = np.zeros((0, 1))


def zero(X):
    return np.zeros(len(X))


def gp(kernel, mean=zero, points=(), phase=(), truncation=()):
    arrays = (np.asarray(a, dtype=float) for a in (phase, truncation))
    return Prior(kernel, mean, np.asarray(points, dtype=float).reshape(-1, 1), *arrays)


def problem(seed, n=7, t=3):
    rng = np.random.default_rng(seed)
    X, new = rng.normal(size=(n, 1)) * 2.0, rng.normal(size=(t, 1)) * 4.0
    return X, np.where(rng.random(n) < 0.6, 1.0, -1.0), new


def assert_same(found, wanted, first=0, **tolerance):
    np.testing.assert_allclose(found.mean, wanted.mean[first:], **tolerance)
    np.testing.assert_allclose(found.cov, wanted.cov[first:, first:], **tolerance)


def test_ep_where_the_covariance_is_of_low_rank():
    """Many points on a smooth kernel take another way through the linear algebra."""
    X = np.linspace(-1.0, 1.0, 24)[:, None]
    sign = np.where(np.sin(5.0 * X[:, 0]) > 0, 1.0, -1.0)
    kernel = rbf(2.0, 1.5)
    found = approximations.ep_posterior(gp(kernel), X, sign, np.array([[0.3], [2.0]]))
    everywhere = np.vstack([X, [[0.3], [2.0]]])
    # The dense way needs a matrix that it can invert: f and f + noise of 1e-7 are the same to 1e-5.
    K = kernel(everywhere) + 1e-7 * np.eye(26)
    there = sequential_ep(np.zeros(24), K[:24, :24], sign, np.zeros(24), np.ones(24), sweeps=40)
    wanted = continued(there, np.zeros(26), K, 24)
    assert_same(found, wanted, atol=1e-4)


@pytest.mark.parametrize("phase", [(), (1.0,), (1.0, -1.0)])
def test_ep_is_that_on_f_with_probit_sites(phase):
    """A pseudo-point is a site without noise; the evidence is over that of the prior's signs."""
    s = len(phase)
    points, truncation = np.array([[-0.5], [1.2]])[:s], np.array([0.3, -0.2])[:s]
    X, sign, new = problem(1, n=5)
    kernel = rbf(2.0)
    found = approximations.ep_posterior(gp(kernel, slope, points, phase, truncation), X, sign, new)
    everywhere = np.vstack([points, X, new])
    K = kernel(everywhere)
    # The sign that the prior is told is that of f less its mean.
    m = np.concatenate([np.zeros(s), slope(everywhere[s:])])
    a = np.concatenate([np.array(phase) / np.sqrt(2.0), sign])
    b = np.concatenate([truncation, np.zeros(5)])
    noise = np.repeat([0.0, 1.0], [s, 5])
    there = sequential_ep(m[: s + 5], K[: s + 5, : s + 5], a, b, noise)
    wanted = continued(there, m, K, s + 5)
    assert_same(found, wanted, s, **EP)
    gamma = np.outer(phase, phase) * K[:s, :s] / 2.0
    signs = brute_log_prob(-truncation, np.inf, gamma) if s else 0.0  # 1e-12
    assert found.log_evidence == pytest.approx(there.log_evidence - signs, abs=1e-6)


@pytest.mark.parametrize(("mean", "variance"), [(0.0, 2.0), (-50.0, 1e4), (-8.0, 0.1), (30.0, 1.0)])
def test_laplace_of_one_label(mean, variance):
    """The mode solves f = m + v phi(f)/Phi(f), found here by bisection; tails included."""

    def score(f):
        return float(np.exp(norm.logpdf(f) - norm.logcdf(f)))

    mode = brentq(
        lambda f: f - mean - variance * score(f), mean - 1.0, mean + 60 * variance, xtol=1e-13
    )
    found = approximations.laplace_posterior(
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
        approximations.laplace_posterior(
            gp(rbf(), zero, [0.0], [1.0], [0.0]), np.ones((1, 1)), np.ones(1), NOTHING
        )


def test_a_function_that_is_known_somewhere():
    """A linear kernel has no variance at 0: neither have the approximations, nor any warning."""

    def linear(X, Xs=None, diag=False):
        return (X**2).sum(axis=1) if diag else X @ (X if Xs is None else Xs).T

    X, sign = np.array([[-1.0], [0.5], [2.0]]), np.array([-1.0, 1.0, 1.0])
    for method in (approximations.ep_posterior, approximations.laplace_posterior):
        at = method(gp(linear), X, sign, np.zeros((1, 1))).marginals()
        assert at.moments.mean[-1] == 0.0
        assert at.moments.sd[-1] == 0.0


# Under likelihoods of rows, and of sites.

KERNEL = rbf(2.0, 0.8)
X = np.array([[0.0], [0.5], [1.3], [2.1], [3.0]])
NEW = np.array([[0.2], [4.0]])
SIGMA = 0.7


def under(*signs):
    return gp(KERNEL, slope, *signs)


KINDS = {
    "ordered": (np.array([1, 2, 0, 1, 0]), of.OrderedProbit([-0.5, 0.9], SIGMA)),
    "tobit": (np.array([0.0, 0.8, 0.0, 1.2, 0.0]), of.CensoredGaussian(SIGMA, 0.0)),
    "binomial": (np.array([2, 6, 0, 3, 1]), of.BinomialProbit(6)),
    "duels": (np.array([[0, 1], [2, 1], [2, 3], [4, 0]]), of.Preference(SIGMA)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_ep_of_rows_is_nearly_right(kind):
    """Three rows, or two duels: half of the errors that were found is to spare.

    Evidences are off by .0093 nats at most, means by .0033; of duels by less than .001.
    """
    y, likelihood = KINDS[kind]
    y, tolerances = (y[:2], (0.002, 0.002)) if kind == "duels" else (y[:3], (0.014, 0.005))
    found = approximations.ep_posterior(under(), X[:3], y, NEW[:0], likelihood)
    exact = function_grid(
        slope(X[:3]), KERNEL(X[:3]), lambda f: likelihood.log_likelihood(y, f).sum(axis=1)
    )
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=tolerances[0])
    np.testing.assert_allclose(found.mean, exact.mean, atol=tolerances[1])


@pytest.mark.parametrize("method", [approximations.ep_posterior, approximations.laplace_posterior])
def test_points_alone_are_regression(method):
    y = np.array([0.3, -0.2, 1.0, 0.4, 0.0])
    found = method(under(), X, y, NEW, of.Gaussian(SIGMA))
    K, m = KERNEL(np.vstack([X, NEW])), slope(np.vstack([X, NEW]))
    G = K[:5, :5] + SIGMA**2 * np.eye(5)
    gain = np.linalg.solve(G, K[:5])
    np.testing.assert_allclose(found.mean, m + gain.T @ (y - m[:5]), atol=1e-10)
    np.testing.assert_allclose(found.cov, K - K[:, :5] @ gain, atol=1e-10)
    expected = multivariate_normal(m[:5], G).logpdf(y)
    assert found.log_evidence == pytest.approx(expected, abs=1e-10)


def test_several_kinds_of_data():
    kinds = {
        "ratings": (X[:3], np.array([1, 2, 0]), KINDS["ordered"][1]),
        "values": (X[3:], np.array([0.5, -0.1]), of.Gaussian(SIGMA)),
    }
    found = approximations.ep_posterior(under(), kinds, None, NEW)
    exact = sg.SkewGPPosterior(kinds, cov_func=KERNEL, mean_func=slope, n_draws=4096)
    assert found.log_evidence == pytest.approx(exact.log_marginal_likelihood.value, abs=0.02)
    np.testing.assert_allclose(found.mean[:5], exact.marginals().moments.mean, atol=0.03)


# Inputs, data, likelihood, and what of mean, covariance and evidence may be off: second differences
# have errors of h^2 times fourth derivatives.
OTHERS = {kind: (X, *KINDS[kind], 1e-5) for kind in ("ordered", "tobit")} | {
    "choices": (X, np.array([[0, 1, 2], [3, 0, -1], [2, 3, 1]]), of.Choice(SIGMA), 1e-3),
    "classes": (X[:3], np.array([0, 2, 1]), of.MultinomialProbit(), 1e-3),
    "counts": (X, np.array([0.0, 2.0, 7.0, 4.0, 0.0]), Counts(), 1e-4),
    # The last value is far out: log p is convex there.
    "student": (X, np.array([0.3, -0.9, 0.4, 0.8, 9.0]), Student(0.5), 1e-4),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_laplace_by_the_likelihoods_own_log_p(kind):
    """Which is tested against quadrature; of rows, of rows that share noise, and of sites."""
    inputs, y, likelihood, tolerance = OTHERS[kind]
    k = likelihood.n_functions(y)
    n = len(inputs) * k
    everywhere = np.vstack([inputs, NEW])
    K = np.kron(KERNEL(everywhere), np.eye(k))
    m = np.repeat(slope(everywhere), k)

    def log_p(f):
        return likelihood.log_likelihood(y, f if k == 1 else f.reshape(-1, k)).sum()

    wanted = continued(numerical_laplace(m[:n], K[:n, :n], log_p), m, K, n)
    found = approximations.laplace_posterior(under(), inputs, y, NEW, likelihood)
    np.testing.assert_allclose(found.mean, wanted.mean, atol=min(tolerance, 1e-4))
    np.testing.assert_allclose(found.cov, wanted.cov, atol=tolerance)
    assert found.log_evidence == pytest.approx(wanted.log_evidence, abs=tolerance)


def test_laplace_refuses_rows_that_all_share_noise():
    y = np.array([[0, 1], [1, 2], [2, 3], [3, 4], [0, 4], [0, 2], [1, 3]])
    likelihood = of.Preference(SIGMA, noise="item")
    with pytest.raises(ValueError, match="use EP"):
        approximations.laplace_posterior(under(), X, y, NEW, likelihood)
    assert np.isfinite(approximations.ep_posterior(under(), X, y, NEW, likelihood).log_evidence)


def test_laplace_refuses_rows_without_noise():
    class Exact(of.OrderedProbit):
        def observations(self, y, n):
            rows = super().observations(y, n)
            return type(rows)(rows.A, rows.a, np.zeros(n), rows.lower, rows.upper, rows.value)

    with pytest.raises(ValueError, match="have none: use EP"):
        approximations.laplace_posterior(under(), X, KINDS["ordered"][0], NEW, Exact([-0.5, 0.9]))
