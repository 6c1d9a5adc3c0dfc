"""The oracles against each other and against closed forms."""

import numpy as np
import pytest
import rectangle_oracles as ro
from likelihood_oracles import function_grid, one_sign
from oracles import (
    brute_log_prob,
    equicorrelated_cov,
    equicorrelated_log_prob,
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


def test_brute_three_against_the_orthant_formula():
    cov = np.array([[1.0, 0.3, -0.4], [0.3, 1.0, 0.5], [-0.4, 0.5, 1.0]])
    exact = 0.125 + np.arcsin([0.3, -0.4, 0.5]).sum() / (4 * np.pi)
    assert brute_log_prob(np.zeros(3), INF, cov) == pytest.approx(np.log(exact), abs=1e-12)


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


COV3, LOW, HIGH = np.array([[1, 0.7, -0.35], [0.7, 1, -0.5], [-0.35, -0.5, 1]]), -0.4, 1.1
LOADINGS, SD = np.array([[0.8, 0.1], [-0.5, 0.7], [0.3, 0.9]]), np.array([0.6, 0.9, 0.5])
RECTANGLES = {
    "factors": (
        lambda low, high: ro.factor_log_prob(low, high, LOADINGS, SD),
        LOADINGS @ LOADINGS.T + np.diag(SD**2),
    ),
    "chain": (lambda low, high: ro.chain_log_prob(np.array([0.7, -0.5]), low, high), COV3),
    "negative": (
        lambda low, high: ro.negative_equicorrelated_log_prob(low, high, 0.4),
        1.4 * np.eye(3) - 0.4,
    ),
    "plane": (
        lambda low, high: ro.plane_log_prob(low[:2], high[:2], LOADINGS[:2]),
        LOADINGS[:2] @ LOADINGS[:2].T,
    ),
    "duplicates": (
        lambda low, high: ro.duplicated_factor_log_prob(high[:1], [0.9], [0.8], [0.6], 0.3),
        np.array([[1.0, 1.0], [1.0, 1.09]]),
    ),
}


@pytest.mark.parametrize("name", RECTANGLES)
def test_rectangles_of_few_dimensions(name):
    found, cov = RECTANGLES[name]
    low, high = np.array([-INF, LOW, -INF]), np.array([HIGH, INF, 0.6])
    limits = (low[: len(cov)], high[: len(cov)])
    if name == "duplicates":
        limits = np.full(2, -INF), np.array([HIGH, 0.9])
    # Their rules stop at agreement to 1e-9.
    assert found(low, high) == pytest.approx(brute_log_prob(*limits, cov), abs=2e-8)
