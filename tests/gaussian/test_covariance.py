"""All forms of one covariance against each other and against plain inverses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import block_diag

from pymc_skewgp._errors import JitterWarning, NotPositiveDefiniteError
from pymc_skewgp._gaussian.covariance import BlockNoise, DenseCovariance, LowRankCovariance

SIZES = (1, 2, 2, 3, 1, 3)  # of blocks of noise, 12 rows
N = sum(SIZES)


def block_noise(rng):
    """Noise of blocks whose rows lie apart, as `BlockNoise` and as a matrix."""
    parts = np.split(rng.permutation(N), np.cumsum(SIZES)[:-1])
    roots = [rng.normal(size=(size, size)) for size in SIZES]
    made = [root @ root.T + 0.5 * np.eye(len(root)) for root in roots]
    order = np.concatenate(parts)
    S = np.zeros((N, N))
    S[np.ix_(order, order)] = block_diag(*made)
    chosen = [[i for i, s in enumerate(SIZES) if s == size] for size in sorted(set(SIZES))]
    rows = [np.array([parts[i] for i in of]) for of in chosen]
    return BlockNoise(rows, [np.array([made[i] for i in of]) for of in chosen]), S


def problem(seed, r=2):
    """Forms of two matrices of 12 rows, with each form its matrix."""
    rng = np.random.default_rng(seed)
    noise, factor = rng.uniform(0.3, 2.0, N), rng.normal(size=(N, r))
    matrix = np.diag(noise) + factor @ factor.T
    blocks, S = block_noise(rng)
    return [
        (DenseCovariance(matrix), matrix),
        (LowRankCovariance(noise, factor), matrix),
        (LowRankCovariance(blocks, factor), S + factor @ factor.T),
    ]


# Scales from "no site" over the weak-site branch of DenseCovariance to sites of precision 1e6.
SCALES = st.sampled_from([0.0, 1e-14, 1e-9, 1e-5, 1e-2, 1.0, 1e2, 1e6])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.lists(SCALES, min_size=N, max_size=N))
def test_sites_agree_with_the_inverse(seed, r, scales):
    rng = np.random.default_rng(seed)
    tau = np.array(scales) * rng.uniform(0.5, 2.0, N)
    nu = np.sqrt(tau) * rng.normal(size=N)
    for form, matrix in problem(seed, r):
        covariance = np.linalg.inv(np.linalg.inv(matrix) + np.diag(tau))
        mean, sd = covariance @ nu, np.sqrt(covariance.diagonal())
        log_det = np.linalg.slogdet(np.eye(N) + matrix * tau)[1]
        product = form.site_product(tau, nu)
        # Condition numbers up to 1e7 (tau 1e6): the reference itself keeps nine digits.
        np.testing.assert_allclose(product.mean / sd, mean / sd, atol=1e-7)
        np.testing.assert_allclose(product.variance, sd**2, rtol=1e-8)
        scale = np.outer(sd, sd)
        np.testing.assert_allclose(form.site_covariance(tau) / scale, covariance / scale, atol=1e-8)
        assert product.log_det == pytest.approx(log_det, abs=1e-8)
        assert product.log_constant == pytest.approx(0.5 * nu @ mean - 0.5 * log_det, abs=1e-8)
        largest = max(tau.max(), 1.0)
        weights = np.linalg.solve(matrix, mean)
        np.testing.assert_allclose(product.weights, weights, atol=1e-7 * (1.0 + tau.max()))
        # (G + T^-1)^-1 = T - T S T, entries up to the size of T; T S T cancels at strong sites.
        precision = np.diag(tau) - covariance * np.outer(tau, tau)
        np.testing.assert_allclose(form.site_precision(tau), precision, atol=1e-8 * largest)


@pytest.mark.parametrize("weak", [0.0, 1e-14])
def test_rows_without_a_site_keep_full_accuracy(weak):
    """The variance of a weak row comes from its own branch: 1 - (B^-1)_ii would be round-off."""
    tau = np.tile([weak, 2.0, weak, 0.5, 1e4, weak], 2)
    for form, matrix in problem(1):
        covariance = np.linalg.inv(np.linalg.inv(matrix) + np.diag(tau))
        variance = form.site_product(tau, np.zeros(N)).variance
        np.testing.assert_allclose(variance, covariance.diagonal(), rtol=1e-12)


@pytest.mark.parametrize("huge", [1e8, 1e12])
def test_huge_sites(huge):
    """A row with a huge site is known: S_ii -> 1/tau, and the others are conditioned on it."""
    tau = np.zeros(N)
    tau[0], tau[2] = huge, 1.0
    nu = np.zeros(N)
    nu[0] = huge * 0.7
    rest = np.arange(1, N)
    for form, matrix in problem(3):
        gain = matrix[rest, 0] / matrix[0, 0]
        left = matrix[np.ix_(rest, rest)] - np.outer(gain, matrix[0, rest])
        covariance = np.linalg.inv(np.linalg.inv(left) + np.diag(tau[1:]))
        # u_rest | u_0 = .7 is N(gain .7, left); the unit site on row 2 then shrinks it.
        mean = covariance @ np.linalg.solve(left, gain * 0.7)
        product = form.site_product(tau, nu)
        # The limit is reached up to 1/(huge * variance).
        assert product.variance[0] * huge == pytest.approx(1.0, abs=10.0 / huge + 1e-10)
        assert product.mean[0] == pytest.approx(0.7, abs=10.0 / huge + 1e-10)
        np.testing.assert_allclose(product.mean[1:], mean, atol=1e2 / huge + 1e-10)
        np.testing.assert_allclose(product.variance[1:], covariance.diagonal(), rtol=1e-6)
        assert np.isfinite(product.log_constant)


INNER = np.array([[1.0, 0.5], [0.5, 2.0]])
NOISE_FREE = {
    "rows": np.array([0.0, 1.0, 2.0, 0.0]),
    "blocks": BlockNoise(
        [np.array([[0], [3]]), np.array([[1, 2]])], [np.zeros((2, 1, 1)), INNER[None]]
    ),
}


@pytest.mark.parametrize("noise", NOISE_FREE.values(), ids=NOISE_FREE)
def test_rows_without_noise(noise):
    """Signs at pseudo-points: G is regular, its noise is not."""
    form = LowRankCovariance(noise, np.random.default_rng(0).normal(size=(4, 3)))
    dense = DenseCovariance(form.dense())
    tau, nu = np.array([3.0, 1e-14, 0.0, 2.0]), np.array([1.0, 0.0, 0.0, -2.0])
    expected, product = dense.site_product(tau, nu), form.site_product(tau, nu)
    np.testing.assert_allclose(product.mean, expected.mean, atol=1e-11)
    np.testing.assert_allclose(product.variance, expected.variance, rtol=1e-10)
    assert product.log_constant == pytest.approx(expected.log_constant, abs=1e-11)
    np.testing.assert_allclose(form.site_covariance(tau), dense.site_covariance(tau), atol=1e-11)


def test_noise_in_blocks_of_which_some_are_zero():
    noise, x = NOISE_FREE["blocks"], np.array([5.0, 1.0, -1.0, 2.0])
    inner = np.linalg.solve(INNER, x[1:3])
    np.testing.assert_allclose(noise.solve(x), [0.0, *inner, 0.0], atol=1e-14)
    form = LowRankCovariance(noise, np.random.default_rng(0).normal(size=(4, 3)))
    np.testing.assert_allclose(form.conditional_variances(), [0.0, 0.875, 1.75, 0.0])


def test_plain_views_agree():
    x = np.random.default_rng(0).normal(size=(N, 3))
    for form, matrix in problem(5):
        assert form.size == N
        np.testing.assert_allclose(form.dense(), matrix, atol=1e-14)
        np.testing.assert_allclose(form.diagonal(), matrix.diagonal(), rtol=1e-14)
        for y in (x, x[:, 0]):
            np.testing.assert_allclose(form.multiply(y), matrix @ y, atol=1e-12)
        exact = 1.0 / np.linalg.inv(matrix).diagonal()
        if isinstance(form, DenseCovariance):
            np.testing.assert_allclose(form.conditional_variances(), exact, rtol=1e-10)
        else:  # a lower bound
            assert (form.conditional_variances() <= exact * (1 + 1e-12)).all()
    noise, S = block_noise(np.random.default_rng(1))
    np.testing.assert_allclose(noise.multiply(x), S @ x, atol=1e-12)
    np.testing.assert_allclose(noise.solve(x), np.linalg.solve(S, x), atol=1e-12)


def test_site_covariance_of_a_nearly_singular_prior_does_not_cancel():
    """S = G - G(...)G would lose S_ii = 1e-8 G_ii to round-off; the product form does not."""
    n = 5
    matrix = 1e6 * np.ones((n, n)) + 1e-2 * np.eye(n)
    # In the eigenbasis: the common direction has prior n 1e6 + .01, all the others .01.
    common, other = 1.0 / (1.0 / (n * 1e6 + 1e-2) + 100.0), 1.0 / (1.0 / 1e-2 + 100.0)
    expected = other * np.eye(n) + (common - other) / n
    found = DenseCovariance(matrix).site_covariance(np.full(n, 100.0))
    # Cholesky of G itself carries cond(G) eps = 1e-7.
    np.testing.assert_allclose(found, expected, atol=1e-7 * common)


def test_jitter_goes_into_every_view():
    matrix = np.ones((3, 3))
    with pytest.warns(JitterWarning, match="prior"):
        form = DenseCovariance(matrix, "prior")
    assert form.jitter > 0
    np.testing.assert_array_equal(form.diagonal(), 1.0 + form.jitter)
    np.testing.assert_allclose(form.chol @ form.chol.T, form.dense(), atol=1e-15)
    assert np.array_equal(matrix, np.ones((3, 3)))
    with pytest.raises(NotPositiveDefiniteError, match=r"prior.*eigenvalue is -1"):
        DenseCovariance(np.array([[1.0, 2.0], [2.0, 1.0]]), "prior")


def test_blocks_near_to_singular_are_found():
    near = np.array([[1.0, 1.0 - 1e-8], [1.0 - 1e-8, 1.0]])
    for S, good in ((near, False), (np.ones((2, 2)), False), (near * 0.5 + np.eye(2), True)):
        assert BlockNoise([np.array([[0, 1]])], [S[None]]).well_conditioned is good
