"""The oracles against each other and against closed forms."""

import numpy as np
import pytest
from oracles import (
    SUN_EXAMPLE_COV,
    SUN_EXAMPLE_LOGPDF,
    SUN_EXAMPLE_MEAN,
    SUN_EXAMPLE_PARAMETERS,
    SUN_EXAMPLE_POINT,
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
from scipy.special import log_ndtr, logsumexp
from scipy.stats import multivariate_normal, truncnorm

INF = np.inf


@pytest.mark.parametrize("n", [1, 2, 10, 100, 1000])
def test_equicorrelated_half_is_one_over_n_plus_one(n):
    # A sum of n logs near the mode: round-off, at most n eps of each.
    value = equicorrelated_log_prob(np.zeros(n), INF, 0.5)
    assert value == pytest.approx(-np.log(n + 1), abs=1e-12)


@pytest.mark.parametrize("rho", [0.0, 0.2, 0.8, 0.95])
def test_equicorrelated_against_brute(rho):
    low, high = np.array([-0.5, 1.0, -INF]), np.array([1.5, INF, 0.3])
    # Brute quadrature has 480 points a coordinate: 1e-12 at these correlations.
    assert equicorrelated_log_prob(low, high, rho) == pytest.approx(
        brute_log_prob(low, high, equicorrelated_cov(3, rho)), abs=1e-11
    )


def test_equicorrelated_independent_limit():
    low, high = np.full(50, 0.3), np.full(50, 2.0)
    zero = equicorrelated_log_prob(low, high, 0.0)
    # d log P / d rho is about n^2/2 = 1e3 here: rho = 1e-14 moves log P by 1e-11.
    assert equicorrelated_log_prob(low, high, 1e-14) == pytest.approx(zero, abs=1e-10)


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


def test_equicorrelated_moments_independent():
    moments = equicorrelated_moments([-1.0, 0.5], [2.0, 1.0], 0.0)
    marginals = truncnorm([-1.0, 0.5], [2.0, 1.0])
    np.testing.assert_allclose(moments.first, marginals.mean(), rtol=1e-10)
    np.testing.assert_allclose(np.diag(moments.second), marginals.moment(2), rtol=1e-10)
    assert moments.second[0, 1] == pytest.approx(moments.first.prod(), rel=1e-12)


def test_brute_one_and_two():
    assert brute_log_prob([-1.0], [INF], [[4.0]], [3.0]) == pytest.approx(log_ndtr(2.0), abs=1e-14)
    rho = -0.7
    value = brute_log_prob([0.0, 0.0], [INF, INF], [[4.0, 2 * rho], [2 * rho, 1.0]])
    assert value == pytest.approx(np.log(0.25 + np.arcsin(rho) / (2 * np.pi)), abs=1e-12)


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


def test_quadrature_posterior_of_one_point_is_extended_skew_normal():
    v = 3.0
    posterior = probit_posterior_quadrature([[v]], [1])
    # f | y is skew-normal with delta = sqrt(v/(1+v)) when the mean is zero.
    t = np.sqrt(v / (1 + v)) * np.sqrt(2 / np.pi)
    assert posterior.mean[0] == pytest.approx(np.sqrt(v) * t, abs=1e-12)
    assert posterior.cov[0, 0] == pytest.approx(v * (1 - t**2), abs=1e-12)
    skewness = (4 - np.pi) / 2 * (t / np.sqrt(1 - t**2)) ** 3
    assert posterior.skewness[0] == pytest.approx(skewness, abs=1e-11)


@pytest.mark.parametrize("gap", [0.0, 1e-12, 1e-6, 1e-3, 0.5, 50.0])
@pytest.mark.parametrize("variance", [0.5, 20.0])
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


def test_ou_filter_of_three_against_brute():
    x, y, mean = np.array([0.2, -1.0, 0.25]), np.array([1, 1, 0]), -0.4
    W = np.diag(2.0 * y - 1.0)
    cov = W @ ou_cov(x, 0.8, 2.0) @ W + np.eye(3)
    exact = brute_log_prob(-W @ np.full(3, mean), INF, cov)
    assert ou_probit_log_evidence(x, y, 0.8, 2.0, mean) == pytest.approx(exact, abs=1e-10)


def test_ou_filter_independent_limit():
    y = np.tile([1, 1, 0], 30)
    exact = log_ndtr((2 * y - 1) * 0.7 / np.sqrt(3.0)).sum()
    x = 1e3 * np.arange(90)
    # Round-off of 90 sums over the grid.
    assert ou_probit_log_evidence(x, y, 1.0, 2.0, 0.7) == pytest.approx(exact, abs=1e-11)


def test_ou_filter_infinite_lengthscale_is_equicorrelated():
    # All labels 1 and f constant: u = f + e is equicorrelated with rho = v/(1+v).
    n, v = 100, 2.0
    exact = equicorrelated_log_prob(np.zeros(n), INF, v / (1 + v))
    x = np.linspace(0.0, 1.0, n)
    value = ou_probit_log_evidence(x, np.ones(n), 1e14, v)
    assert value == pytest.approx(exact, abs=1e-8)
    moments = equicorrelated_moments(np.zeros(n), INF, v / (1 + v))
    # E f = v 1'(vJ + I)^-1 E[sqrt(1 + v) u].
    mean = v * np.sqrt(1 + v) * moments.first.sum() / (1 + n * v)
    marginals = ou_probit_marginals(x, np.ones(n), 1e14, v)
    np.testing.assert_allclose(marginals.mean, mean, atol=1e-8)


def test_ou_filter_runs_of_labels_with_constant_f():
    # The filtered density at the final posterior lies 2^-150 under its peak halfway.
    y = np.repeat([1, 0], 150)
    x = np.linspace(0.0, 1.0, 300)
    f = np.linspace(-12.0, 12.0, 40001)
    exact = logsumexp(-0.5 * f**2 + 150 * (log_ndtr(f) + log_ndtr(-f)))
    exact += np.log(f[1] - f[0]) - 0.5 * np.log(2 * np.pi)
    assert ou_probit_log_evidence(x, y, 1e14, 1.0) == pytest.approx(exact, abs=1e-8)


@pytest.mark.parametrize(("lengthscale", "variance"), [(1.0, 4.0), (0.01, 100.0), (100.0, 25.0)])
def test_ou_filter_has_converged(lengthscale, variance):
    rng = np.random.default_rng(3)
    x = rng.normal(size=120)
    x[1::2] = x[::2] + 1e-9 * rng.random(60)  # neighbours far closer than the grid resolves
    y = rng.random(120) < 0.5 + 0.4 * np.sin(3 * x)
    coarse = ou_probit_log_evidence(x, y, lengthscale, variance)
    fine = ou_probit_log_evidence(x, y, lengthscale, variance, points=800)
    # Measured up to n = 1000: 2e-10; the requirement is 1e-6.
    assert coarse == pytest.approx(fine, abs=1e-8)


def test_ou_marginals_are_derivatives_of_the_evidence():
    rng = np.random.default_rng(4)
    x = rng.normal(size=40)
    y = rng.random(40) < 0.5 + 0.4 * np.sin(3 * x)
    # d log Z / d mean = 1' K^-1 (E f - mean).
    gradient = finite_difference(
        lambda m: ou_probit_log_evidence(x, y, 0.7, 3.0, float(m)), 0.2, h=1e-2
    )
    marginals = ou_probit_marginals(x, y, 0.7, 3.0, 0.2)
    implied = np.linalg.solve(ou_cov(x, 0.7, 3.0), marginals.mean - 0.2).sum()
    # h = 1e-2: truncation h^4 = 1e-8 times a fifth derivative of order 1.
    assert implied == pytest.approx(float(gradient), abs=1e-6)


def test_finite_difference():
    x = np.array([[0.3, 1.0], [-0.5, 2.0]])
    derivative = finite_difference(lambda a: np.sin(a).sum(axis=0), x)
    expected = np.zeros((2, 2, 2))
    expected[0, :, 0], expected[1, :, 1] = np.cos(x[:, 0]), np.cos(x[:, 1])
    # h^4/30 = 3e-14, round-off eps/h = 2e-13.
    np.testing.assert_allclose(derivative, expected, atol=1e-11)
    assert finite_difference(lambda a: a**2, 3.0).shape == ()


def test_sun_example_log_density():
    p = SUN_EXAMPLE_PARAMETERS
    C = np.sqrt(np.diag(p["scale"]))[:, None] * p["skewness"]
    z = SUN_EXAMPLE_POINT - p["mu"]
    solve = np.linalg.solve(p["scale"], np.column_stack([z, C]))
    shift, gram = C.T @ solve[:, 0], C.T @ solve[:, 1:]
    value = (
        multivariate_normal(np.zeros(3), p["scale"]).logpdf(z)
        + brute_log_prob([-INF] * 2, p["truncation"] + shift, p["latent_cov"] - gram)
        - brute_log_prob([-INF] * 2, p["truncation"], p["latent_cov"])
    )
    # The R value rests on a bivariate normal good to some 1e-10 of a small probability.
    assert value == pytest.approx(SUN_EXAMPLE_LOGPDF, abs=1e-8)


def test_sun_example_moments():
    p = SUN_EXAMPLE_PARAMETERS
    C = np.sqrt(np.diag(p["scale"]))[:, None] * p["skewness"]
    moments = equicorrelated_moments(-p["truncation"], [INF, INF], p["latent_cov"][0, 1])
    regression = C @ np.linalg.inv(p["latent_cov"])
    mean = p["mu"] + regression @ moments.first
    cov_u = moments.second - np.outer(moments.first, moments.first)
    cov = p["scale"] - regression @ C.T + regression @ cov_u @ regression.T
    np.testing.assert_allclose(mean, SUN_EXAMPLE_MEAN, atol=1e-9)
    np.testing.assert_allclose(cov, SUN_EXAMPLE_COV, atol=1e-9)
