"""Noise that rows share, as blocks or not; `test_conditioning` has what follows from it."""

import numpy as np
import pytest
from scipy import sparse

from pymc_skewgp._observations.observations import block_noise, noise_factor, noise_part

BLOCK = np.array([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 0.5]])


@pytest.mark.parametrize("S", [BLOCK, sparse.csr_array(BLOCK)], ids=["dense", "sparse"])
def test_noise_in_small_blocks(S):
    noise = block_noise(S, largest=2)
    matrix = np.zeros((3, 3))
    noise.add_to(matrix)
    np.testing.assert_array_equal(matrix, BLOCK)
    assert block_noise(S, largest=1) is None


def test_no_blocks_where_they_are_singular():
    assert block_noise(sparse.csr_array(np.ones((2, 2))), largest=2) is None


def test_independent_rows_of_a_sparse_covariance_are_variances():
    assert noise_part(sparse.csr_array(BLOCK), np.array([True, False, True])).ndim == 1


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_factor_of_blocks_whose_rows_are_apart_and_singular(form):
    B = np.zeros((5, 3))
    B[[0, 3], 0], B[[1, 4], 1], B[2, 2] = [1.0, -2.0], [0.5, 0.5], 3.0
    factor = noise_factor(form(B @ B.T))
    assert factor.shape == (5, 3)
    np.testing.assert_allclose(form(factor @ factor.T) @ np.eye(5), B @ B.T, atol=1e-14)
