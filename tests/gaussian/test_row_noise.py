"""Noise in small blocks plus low rank: against plain inverses, and as the dense covariance."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import block_diag

from pymc_skewgp._gaussian.covariance import BlockNoise, DenseCovariance, LowRankCovariance
from pymc_skewgp._gaussian.ep import fit_ep

SIZES = (1, 2, 2, 3, 1, 3)  # 12 rows


def blocks(seed):
    """Noise of blocks whose rows lie apart, as `BlockNoise` and as a matrix."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(sum(SIZES))
    parts = np.split(order, np.cumsum(SIZES)[:-1])
    made = []
    for size in SIZES:
        root = rng.normal(size=(size, size))
        made.append(root @ root.T + 0.5 * np.eye(size))
    S = np.zeros((order.size, order.size))
    S[np.ix_(order, order)] = block_diag(*made)
    rows, covariances = [], []
    for size in sorted(set(SIZES)):
        chosen = [i for i, s in enumerate(SIZES) if s == size]
        rows.append(np.array([parts[i] for i in chosen]))
        covariances.append(np.array([made[i] for i in chosen]))
    return BlockNoise(rows, covariances), S


def problem(seed, r=2):
    noise, S = blocks(seed)
    factor = np.random.default_rng(seed + 1).normal(size=(len(S), r))
    return LowRankCovariance(noise, factor), S, S + factor @ factor.T


SCALES = st.sampled_from([0.0, 1e-14, 1e-9, 1e-5, 1e-2, 1.0, 1e2, 1e6])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.data())
def test_sites_agree_with_the_inverse(seed, data):
    form, _, matrix = problem(seed)
    n = len(matrix)
    rng = np.random.default_rng(seed)
    tau = np.array(data.draw(st.lists(SCALES, min_size=n, max_size=n))) * rng.uniform(0.5, 2.0, n)
    nu = np.sqrt(tau) * rng.normal(size=n)
    covariance = np.linalg.inv(np.linalg.inv(matrix) + np.diag(tau))
    sd = np.sqrt(covariance.diagonal())
    product = form.site_product(tau, nu)
    # Condition numbers up to 1e7 (tau 1e6): the reference itself keeps nine digits.
    np.testing.assert_allclose(product.mean / sd, covariance @ nu / sd, atol=1e-7)
    np.testing.assert_allclose(product.variance, sd**2, rtol=1e-8)
    scale = np.outer(sd, sd)
    np.testing.assert_allclose(form.site_covariance(tau) / scale, covariance / scale, atol=1e-8)
    log_det = np.linalg.slogdet(np.eye(n) + matrix * tau)[1]
    assert product.log_det == pytest.approx(log_det, abs=1e-8)
    constant = 0.5 * nu @ covariance @ nu - 0.5 * log_det
    assert product.log_constant == pytest.approx(constant, abs=1e-8)
    np.testing.assert_allclose(
        product.weights, np.linalg.solve(matrix, covariance @ nu), atol=1e-7 * (1 + tau.max())
    )
    # T - T S T cancels at strong sites: entries up to the size of T.
    precision = np.diag(tau) - covariance * np.outer(tau, tau)
    np.testing.assert_allclose(form.site_precision(tau), precision, atol=1e-8 * max(tau.max(), 1))


@pytest.mark.parametrize("huge", [1e8, 1e12])
def test_huge_sites(huge):
    """A row with a huge site is known: the others are conditioned on it."""
    form, _, matrix = problem(3)
    n = len(matrix)
    tau = np.zeros(n)
    tau[0] = huge
    product = form.site_product(tau, 0.7 * tau)
    gain = matrix[:, 0] / matrix[0, 0]
    left = matrix.diagonal() - gain * matrix[0]
    # The limit is reached up to 1/(huge * variance).
    np.testing.assert_allclose(product.mean, 0.7 * gain, atol=1e2 / huge + 1e-10)
    np.testing.assert_allclose(product.variance[1:], left[1:], rtol=1e-6)
    assert product.variance[0] * huge == pytest.approx(1.0, abs=10.0 / huge + 1e-10)


def test_rows_without_noise():
    """Signs at pseudo-points: G is regular, S is not."""
    noise = BlockNoise(
        [np.array([[0], [3]]), np.array([[1, 2]])],
        [np.zeros((2, 1, 1)), np.array([[[1.0, 0.5], [0.5, 2.0]]])],
    )
    factor = np.random.default_rng(0).normal(size=(4, 3))
    form = LowRankCovariance(noise, factor)
    dense = DenseCovariance(form.dense())
    tau, nu = np.array([3.0, 0.5, 0.0, 2.0]), np.array([1.0, 0.3, 0.0, -2.0])
    expected, product = dense.site_product(tau, nu), form.site_product(tau, nu)
    np.testing.assert_allclose(product.mean, expected.mean, atol=1e-12)
    np.testing.assert_allclose(product.variance, expected.variance, rtol=1e-11)
    np.testing.assert_allclose(form.site_covariance(tau), dense.site_covariance(tau), atol=1e-12)
    x = np.array([5.0, 1.0, -1.0, 2.0])
    inner = np.linalg.solve([[1.0, 0.5], [0.5, 2.0]], x[1:3])
    np.testing.assert_allclose(noise.solve(x), [0.0, *inner, 0.0], atol=1e-14)
    np.testing.assert_allclose(form.conditional_variances(), [0.0, 0.875, 1.75, 0.0])


def test_plain_views_agree():
    form, S, matrix = problem(5)
    x = np.random.default_rng(0).normal(size=(len(S), 3))
    assert form.size == len(S)
    np.testing.assert_allclose(form.dense(), matrix, atol=1e-14)
    np.testing.assert_allclose(form.diagonal(), matrix.diagonal(), rtol=1e-14)
    for y in (x, x[:, 0]):
        np.testing.assert_allclose(form.multiply(y), matrix @ y, atol=1e-12)
        np.testing.assert_allclose(form.noise.multiply(y), S @ y, atol=1e-12)
        np.testing.assert_allclose(form.noise.solve(y), np.linalg.solve(S, y), atol=1e-12)
    own = 1.0 / np.linalg.inv(S).diagonal()
    np.testing.assert_allclose(form.conditional_variances(), own, rtol=1e-12)
    assert (own <= 1.0 / np.linalg.inv(matrix).diagonal() * (1 + 1e-12)).all()


def test_ep_is_that_of_the_dense_form():
    form, _, matrix = problem(7)
    lower = np.where(np.arange(len(matrix)) % 3 == 0, -np.inf, 0.0)
    upper = np.where(np.arange(len(matrix)) % 3 == 2, 1.0, np.inf)
    ours = fit_ep(form, lower, upper, tol=1e-10)
    theirs = fit_ep(DenseCovariance(matrix), lower, upper, tol=1e-10)
    assert ours.log_prob == pytest.approx(theirs.log_prob, abs=1e-10)
    np.testing.assert_allclose(ours.mean, theirs.mean, atol=1e-9)


def test_blocks_near_to_singular_are_found():
    near = np.array([[1.0, 1.0 - 1e-8], [1.0 - 1e-8, 1.0]])
    for S, good in ((near, False), (np.ones((2, 2)), False), (near * 0.5 + np.eye(2), True)):
        assert BlockNoise([np.array([[0, 1]])], [S[None]]).well_conditioned is good
