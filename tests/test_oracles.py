"""The oracles against each other and against closed forms."""

import numpy as np
import pytest
from likelihood_oracles import function_grid, one_sign
from observation_oracles import grid_posterior
from oracles import (
    brute_log_prob,
    equicorrelated_cov,
    equicorrelated_log_prob,
    equicorrelated_moments,
    finite_difference,
    ou_cov,
    ou_probit_log_evidence,
    ou_probit_marginals,
    probit_posterior_quadrature,
)
from scipy.stats import multivariate_normal, norm

INF = np.inf


@pytest.mark.parametrize("rho", [0.0, 0.2, 0.8, 0.95])
def test_equicorrelated_against_brute(rho):
    low, high = np.array([-0.5, 1.0, -INF]), np.array([1.5, INF, 0.3])
    # Brute quadrature has 480 points a coordinate: 1e-12 at these correlations.
    assert equicorrelated_log_prob(low, high, rho) == pytest.approx(
        brute_log_prob(low, high, equicorrelated_cov(3, rho)), abs=1e-11
    )


@pytest.mark.parametrize("rho", [0.0, 0.6])
def test_equicorrelated_moments_against_derivatives(rho):
    n = 5
    low = np.linspace(-1.0, 1.5, n)
    cov = equicorrelated_cov(n, rho)
    moments = equicorrelated_moments(low, INF, rho)
    # Stein's lemma with s_i = -d log P / d low_i:
    # E u = cov s, and sum_j precision_ij E[u_i u_j] = 1 + low_i s_i.
    s = -finite_difference(lambda a: equicorrelated_log_prob(a, INF, rho), low)
    # Fourth order differences with h = 1e-3: truncation 1e-13, round-off 1e-12.
    np.testing.assert_allclose(moments.first, cov @ s, atol=1e-10)
    stein = (np.linalg.inv(cov) * moments.second).sum(axis=1)
    np.testing.assert_allclose(stein, 1.0 + low * s, atol=1e-10)
    assert np.linalg.eigvalsh(moments.second - np.outer(moments.first, moments.first)).min() > 0


def test_brute_three_against_the_orthant_formula():
    cov = np.array([[1.0, 0.3, -0.4], [0.3, 1.0, 0.5], [-0.4, 0.5, 1.0]])
    exact = 0.125 + np.arcsin([0.3, -0.4, 0.5]).sum() / (4 * np.pi)
    assert brute_log_prob(np.zeros(3), INF, cov) == pytest.approx(np.log(exact), abs=1e-12)


def test_quadrature_posterior_evidence_is_an_orthant():
    K, y, mean = np.array([[2.0, 1.1], [1.1, 1.5]]), np.array([1, 0]), np.array([0.4, -0.2])
    W = np.diag(2.0 * y - 1.0)
    exact = brute_log_prob(-W @ mean, INF, W @ K @ W + np.eye(2))
    posterior = probit_posterior_quadrature(K, y, mean)
    assert posterior.log_evidence == pytest.approx(exact, abs=1e-11)
    # dlogZ/dmean = K^-1 (E f - mean): differences as above.
    gradient = finite_difference(lambda m: probit_posterior_quadrature(K, y, m).log_evidence, mean)
    np.testing.assert_allclose(K @ gradient, posterior.mean - mean, atol=1e-9)


@pytest.mark.parametrize("gap", [0.0, 1e-6, 0.5, 50.0])
@pytest.mark.parametrize("variance", [20.0])
def test_ou_filter_against_quadrature(gap, variance):
    x, y, mean = [1.0 + gap, 1.0], [0, 1], 0.3
    if gap < 1e-9:  # one f with both labels; quadrature over K = v 11' with a hair of jitter
        K = ou_cov(x, 1.3, variance) + 1e-9 * np.eye(2)
        tolerance = 1e-7
    else:
        K = ou_cov(x, 1.3, variance)
        tolerance = 1e-9
    exact = probit_posterior_quadrature(K, y, [mean, mean])
    log_evidence = ou_probit_log_evidence(x, y, 1.3, variance, mean)
    assert log_evidence == pytest.approx(exact.log_evidence, abs=tolerance)
    marginals = ou_probit_marginals(x, y, 1.3, variance, mean)
    np.testing.assert_allclose(marginals.mean, exact.mean, atol=10 * tolerance)
    np.testing.assert_allclose(marginals.variance, np.diag(exact.cov), atol=100 * tolerance)
    skewness = marginals.third / marginals.variance**1.5
    np.testing.assert_allclose(skewness, exact.skewness, atol=100 * tolerance)


@pytest.mark.parametrize(("lengthscale", "variance"), [(0.01, 100.0), (100.0, 25.0)])
def test_ou_filter_has_converged(lengthscale, variance):
    rng = np.random.default_rng(3)
    x = rng.normal(size=80)
    x[1::2] = x[::2] + 1e-9 * rng.random(40)  # neighbours far closer than the grid resolves
    y = rng.random(80) < 0.5 + 0.4 * np.sin(3 * x)
    coarse = ou_probit_log_evidence(x, y, lengthscale, variance)
    fine = ou_probit_log_evidence(x, y, lengthscale, variance, points=800)
    # Measured up to n = 1000: 2e-10; the requirement is 1e-6.
    assert coarse == pytest.approx(fine, abs=1e-8)


K4 = np.array(
    [[1.0, 0.5, 0.2, 0.3], [0.5, 1.5, 0.6, 0.1], [0.2, 0.6, 0.8, 0.0], [0.3, 0.1, 0, 1.2]]
)
M4 = np.array([0.3, -0.2, 0.1, 0.5])


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_gaussian_likelihood(d):
    """Noise of .5 and a prior deviation of 1.2: the narrowest that the oracle is used for."""
    y, S, k, m = np.array([0.5, -0.4, 0.9, 1.0])[:d], 0.25, K4[:d, :d], M4[:d]
    found = function_grid(m, k, lambda f: norm.logpdf(y, f, np.sqrt(S)).sum(axis=1))
    G, tol = k + S * np.eye(d), 1e-7 if d == 4 else 1e-8
    assert found.log_evidence == pytest.approx(multivariate_normal(m, G).logpdf(y), abs=tol)
    np.testing.assert_allclose(found.mean, m + k @ np.linalg.solve(G, y - m), atol=tol)
    np.testing.assert_allclose(found.cov, k - k @ np.linalg.solve(G, k), atol=tol)
    first = found.average(norm.cdf(found.f[0]))
    mean, variance = found.mean[0], found.cov[0, 0]
    assert first == pytest.approx(norm.cdf(mean / np.sqrt(1 + variance)), abs=tol)


def test_a_sign():
    """P(f_1 > 0 and f_0 > -.3 sd) over P(f_0 > -.3 sd), with f_1 seen by a label."""
    sign = one_sign(K4[1:2, 1:2], K4[0, 1:2], K4[0, 0], 1.0, 0.3)
    found = function_grid([0.0], K4[1:2, 1:2], lambda f: norm.logcdf(f[:, 0]) + sign(f))
    cov = K4[:2, :2] + np.diag([0.0, 1.0])
    both = brute_log_prob(np.array([-0.3, 0.0]), np.inf, cov)  # to 1e-12
    assert found.log_evidence == pytest.approx(both - norm.logcdf(0.3), abs=1e-9)


K, M = K4[:3, :3], M4[:3]


def test_one_interval_is_a_normal_mass():
    A = np.array([[1.0, -1.0, 0.5]])
    sd = np.sqrt(A[0] @ K @ A[0] + 0.4)
    centre = A[0] @ M + 0.2
    found = grid_posterior(M, K, A, [0.2], [0.4], [-0.3], [0.7], [np.nan])
    mass = norm.cdf(0.7, centre, sd) - norm.cdf(-0.3, centre, sd)
    assert found.log_evidence == pytest.approx(np.log(mass), abs=1e-9)


def test_a_point_and_an_interval_with_noise_in_common():
    """The pair (v_1, v_2) is normal: density of the one, mass of the other given it."""
    A, S = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]), np.array([[0.5, 0.3], [0.3, 0.6]])
    G, mu = A @ K @ A.T + S, A @ M
    found = grid_posterior(M, K, A, np.zeros(2), S, [np.nan, 0.1], [np.nan, np.inf], [0.8, np.nan])
    slope = G[0, 1] / G[0, 0]
    centre, sd = mu[1] + slope * (0.8 - mu[0]), np.sqrt(G[1, 1] - slope * G[0, 1])
    expected = norm.logpdf(0.8, mu[0], np.sqrt(G[0, 0])) + norm.logsf(0.1, centre, sd)
    assert found.log_evidence == pytest.approx(expected, abs=1e-9)
