"""Noise of rows in its three forms: the same results as of the dense covariance."""

import numpy as np
import pytest
from scipy import sparse

from pymc_skewgp._observations.observations import (
    add_noise,
    block_noise,
    noise_factor,
    noise_part,
    shared_noise,
    stacked_noise,
)

BLOCK = np.array([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 0.5]])
FORMS = {
    "variances": np.array([2.0, 2.0, 0.5]),
    "dense": BLOCK,
    "sparse": sparse.csr_array(BLOCK),
}


def dense(S):
    if S.ndim == 1:
        return np.diag(S)
    return S if isinstance(S, np.ndarray) else S.toarray()


@pytest.mark.parametrize("form", FORMS)
def test_parts_and_sums(form):
    S = FORMS[form]
    chosen = np.array([True, False, True])
    np.testing.assert_array_equal(dense(noise_part(S, chosen)), dense(S)[np.ix_(chosen, chosen)])
    matrix = np.arange(9.0).reshape(3, 3)
    add_noise(matrix, S)
    np.testing.assert_array_equal(matrix, np.arange(9.0).reshape(3, 3) + dense(S))
    factor = noise_factor(S)
    product = factor @ factor.T
    np.testing.assert_allclose(dense(product), dense(S), atol=1e-15)


@pytest.mark.parametrize("form", FORMS)
def test_shared(form):
    a, b = np.array([True, False, False]), np.array([False, True, False])
    found = shared_noise(FORMS[form], a, b)
    if form == "variances":
        assert found is None
    else:
        np.testing.assert_array_equal(found, [[1.0]])
        assert shared_noise(FORMS[form], a, ~(a | b)) is None


@pytest.mark.parametrize("first", FORMS)
@pytest.mark.parametrize("second", FORMS)
def test_stacked(first, second):
    whole = stacked_noise([FORMS[first], FORMS[second]])
    want = np.zeros((6, 6))
    want[:3, :3], want[3:, 3:] = dense(FORMS[first]), dense(FORMS[second])
    np.testing.assert_array_equal(dense(whole), want)


def test_independent_rows_of_a_sparse_covariance_are_variances():
    S = sparse.csr_array(BLOCK)
    assert noise_part(S, np.array([True, False, True])).ndim == 1


def test_factor_of_blocks_whose_rows_are_apart_and_singular():
    B = np.zeros((5, 3))
    B[[0, 3], 0], B[[1, 4], 1], B[2, 2] = [1.0, -2.0], [0.5, 0.5], 3.0
    S = sparse.csr_array(B @ B.T)
    factor = noise_factor(S)
    assert factor.shape == (5, 3)
    np.testing.assert_allclose((factor @ factor.T).toarray(), B @ B.T, atol=1e-14)


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_noise_in_small_blocks(form):
    noise = block_noise(FORMS[form], largest=2)
    matrix = np.zeros((3, 3))
    noise.add_to(matrix)
    np.testing.assert_array_equal(matrix, BLOCK)
    assert block_noise(FORMS[form], largest=1) is None


def test_no_blocks_where_they_are_singular():
    assert block_noise(sparse.csr_array(np.ones((2, 2))), largest=2) is None
