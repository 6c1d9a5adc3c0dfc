"""Two forms of one covariance against each other and against plain inverses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pymc_skewgp._errors import JitterWarning, NotPositiveDefiniteError
from pymc_skewgp._gaussian.covariance import DenseCovariance, LowRankCovariance


def problem(seed, n, r):
    """Noise, factor and the matrix they make; every variance within [.3, 10] or so."""
    rng = np.random.default_rng(seed)
    noise, factor = rng.uniform(0.3, 2.0, n), rng.normal(size=(n, r))
    return noise, factor, np.diag(noise) + factor @ factor.T


def direct(matrix, tau, nu):
    """Mean, covariance and log constant with the inverse of G (well conditioned here)."""
    covariance = np.linalg.inv(np.linalg.inv(matrix) + np.diag(tau))
    mean = covariance @ nu
    log_det = np.linalg.slogdet(np.eye(len(matrix)) + matrix * tau)[1]
    return mean, covariance, 0.5 * nu @ mean - 0.5 * log_det


def both_forms(noise, factor, matrix):
    return DenseCovariance(matrix), LowRankCovariance(noise, factor)


# Scales from "no site" over the weak-site branch of DenseCovariance to sites of precision 1e6.
SITE_SCALES = st.sampled_from([0.0, 1e-14, 1e-9, 1e-5, 1e-2, 1.0, 1e2, 1e6])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 4), st.data())
def test_site_product_and_covariance_agree_with_the_inverse(seed, n, r, data):
    noise, factor, matrix = problem(seed, n, r)
    rng = np.random.default_rng(seed)
    scales = np.array(data.draw(st.lists(SITE_SCALES, min_size=n, max_size=n)))
    tau = scales * rng.uniform(0.5, 2.0, n)
    nu = np.sqrt(tau) * rng.normal(size=n)
    mean, covariance, log_constant = direct(matrix, tau, nu)
    sd = np.sqrt(np.diag(covariance))
    for form in both_forms(noise, factor, matrix):
        product = form.site_product(tau, nu)
        # Condition numbers up to 1e7 (tau 1e6): the reference itself keeps nine digits.
        np.testing.assert_allclose(product.mean / sd, mean / sd, atol=1e-7)
        np.testing.assert_allclose(product.variance, sd**2, rtol=1e-8)
        np.testing.assert_allclose(
            form.site_covariance(tau) / np.outer(sd, sd), covariance / np.outer(sd, sd), atol=1e-8
        )
        assert product.log_constant == pytest.approx(log_constant, abs=1e-8)
        # (G + T^-1)^-1 = T - T S T, entries up to the size of T; T S T cancels at strong sites.
        precision = np.diag(tau) - covariance * np.outer(tau, tau)
        np.testing.assert_allclose(
            form.site_precision(tau), precision, atol=1e-8 * max(tau.max(), 1.0)
        )


def test_log_constant_is_the_gaussian_integral():
    """Against quadrature over u in two dimensions, not against another formula."""
    matrix = np.array([[1.5, 0.6], [0.6, 0.8]])
    tau, nu = np.array([0.7, 2.0]), np.array([0.4, -1.1])
    nodes, weights = np.polynomial.legendre.leggauss(80)
    u = 9.0 * np.stack(np.meshgrid(nodes, nodes, indexing="ij"), -1).reshape(-1, 2)
    w = 81.0 * np.outer(weights, weights).ravel()
    density = np.exp(-0.5 * np.einsum("ij,jk,ik->i", u, np.linalg.inv(matrix), u))
    density /= 2.0 * np.pi * np.sqrt(np.linalg.det(matrix))
    integral = w @ (density * np.exp(-0.5 * u**2 @ tau + u @ nu))
    product = DenseCovariance(matrix).site_product(tau, nu)
    assert product.log_constant == pytest.approx(np.log(integral), abs=1e-10)


@pytest.mark.parametrize("weak", [0.0, 1e-14])
def test_rows_without_a_site_keep_full_accuracy(weak):
    """The variance of a weak row comes from its own branch: 1 - (B^-1)_ii would be round-off."""
    noise, factor, matrix = problem(1, 6, 2)
    tau, nu = np.array([weak, 2.0, weak, 0.5, 1e4, weak]), np.zeros(6)
    _, covariance, _ = direct(matrix, tau, nu)
    for form in both_forms(noise, factor, matrix):
        variance = form.site_product(tau, nu).variance
        np.testing.assert_allclose(variance, np.diag(covariance), rtol=1e-12)


def test_no_sites_give_the_prior_back():
    noise, factor, matrix = problem(2, 7, 3)
    for form in both_forms(noise, factor, matrix):
        product = form.site_product(np.zeros(7), np.zeros(7))
        np.testing.assert_allclose(product.variance, np.diag(matrix), rtol=1e-14)
        assert np.all(product.mean == 0.0)
        assert product.log_constant == 0.0
        np.testing.assert_allclose(form.site_covariance(np.zeros(7)), matrix, rtol=1e-12)


@pytest.mark.parametrize("huge", [1e8, 1e12])
def test_huge_sites(huge):
    """A row with a huge site is known: S_ii -> 1/tau, and the others are conditioned on it."""
    noise, factor, matrix = problem(3, 5, 2)
    tau = np.array([huge, 0.0, 1.0, 0.0, 0.0])
    nu = np.array([huge * 0.7, 0.0, 0.0, 0.0, 0.0])
    rest = np.arange(1, 5)
    gain = matrix[rest, 0] / matrix[0, 0]
    left = matrix[np.ix_(rest, rest)] - np.outer(gain, matrix[0, rest])
    covariance = direct(left, tau[1:], np.zeros(4))[1]
    # u_rest | u_0 = .7 is N(gain .7, left); the unit site on row 2 then shrinks it.
    mean = covariance @ np.linalg.solve(left, gain * 0.7)
    for form in both_forms(noise, factor, matrix):
        product = form.site_product(tau, nu)
        # The limit is reached up to 1/(huge * variance).
        assert product.variance[0] * huge == pytest.approx(1.0, abs=10.0 / huge + 1e-10)
        assert product.mean[0] == pytest.approx(0.7, abs=10.0 / huge + 1e-10)
        np.testing.assert_allclose(product.mean[1:], mean, atol=1e2 / huge + 1e-10)
        np.testing.assert_allclose(product.variance[1:], np.diag(covariance), rtol=1e-6)
        assert np.isfinite(product.log_constant)


def test_low_rank_with_noise_free_rows():
    """Rows without noise (latent rows of a Skew GP) make G singular in `noise`, not in itself."""
    _, factor, _ = problem(4, 6, 3)
    noise = np.array([0.0, 1.0, 0.5, 0.0, 1.0, 1.0])
    matrix = np.diag(noise) + factor @ factor.T
    tau, nu = np.array([3.0, 0.0, 1e-14, 2.0, 50.0, 0.1]), np.array([1.0, 0.0, 0.0, -2.0, 3.0, 0.1])
    dense, low_rank = DenseCovariance(matrix), LowRankCovariance(noise, factor)
    expected, product = dense.site_product(tau, nu), low_rank.site_product(tau, nu)
    np.testing.assert_allclose(product.mean, expected.mean, atol=1e-11)
    np.testing.assert_allclose(product.variance, expected.variance, rtol=1e-10)
    assert product.log_constant == pytest.approx(expected.log_constant, abs=1e-11)
    np.testing.assert_allclose(
        low_rank.site_covariance(tau), dense.site_covariance(tau), atol=1e-11
    )


def test_plain_views_agree():
    noise, factor, matrix = problem(5, 8, 2)
    x = np.random.default_rng(0).normal(size=(8, 3))
    for form in both_forms(noise, factor, matrix):
        assert form.size == 8
        np.testing.assert_allclose(form.dense(), matrix, rtol=1e-14)
        np.testing.assert_allclose(form.diagonal(), np.diag(matrix), rtol=1e-14)
        np.testing.assert_allclose(form.multiply(x), matrix @ x, atol=1e-12)
        np.testing.assert_allclose(form.multiply(x[:, 0]), matrix @ x[:, 0], atol=1e-12)


def test_conditional_variances():
    noise, factor, matrix = problem(6, 8, 2)
    exact = 1.0 / np.diag(np.linalg.inv(matrix))
    dense, low_rank = both_forms(noise, factor, matrix)
    np.testing.assert_allclose(dense.conditional_variances(), exact, rtol=1e-10)
    assert (low_rank.conditional_variances() <= exact * (1 + 1e-12)).all()  # a lower bound


def test_site_covariance_of_a_nearly_singular_prior_does_not_cancel():
    """S = G - G(...)G would lose S_ii = 1e-8 G_ii to round-off; the product form does not."""
    n = 5
    matrix = 1e6 * np.ones((n, n)) + 1e-2 * np.eye(n)
    tau = np.full(n, 100.0)
    # In the eigenbasis: the common direction has prior n 1e6 + .01, all the others .01.
    common, other = 1.0 / (1.0 / (n * 1e6 + 1e-2) + 100.0), 1.0 / (1.0 / 1e-2 + 100.0)
    expected = other * np.eye(n) + (common - other) / n
    # Cholesky of G itself carries cond(G) eps = 1e-7.
    np.testing.assert_allclose(
        DenseCovariance(matrix).site_covariance(tau), expected, atol=1e-7 * common
    )


def test_the_input_is_not_changed():
    _, _, matrix = problem(7, 5, 2)
    before = matrix.copy()
    form = DenseCovariance(matrix)
    tau = np.array([0.0, 1.0, 2.0, 1e-12, 5.0])
    form.site_product(tau, tau)
    form.site_covariance(tau)
    assert np.array_equal(matrix, before)


def test_jitter_goes_into_every_view():
    matrix = np.ones((3, 3))
    with pytest.warns(JitterWarning, match="prior"):
        form = DenseCovariance(matrix, "prior")
    assert form.jitter > 0
    np.testing.assert_array_equal(form.diagonal(), 1.0 + form.jitter)
    np.testing.assert_allclose(form.chol @ form.chol.T, form.dense(), atol=1e-15)
    assert np.array_equal(matrix, np.ones((3, 3)))


def test_indefinite_matrix_is_refused_by_name():
    with pytest.raises(NotPositiveDefiniteError, match=r"prior.*eigenvalue is -1"):
        DenseCovariance(np.array([[1.0, 2.0], [2.0, 1.0]]), "prior")
