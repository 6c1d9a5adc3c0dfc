"""Factorisations: the jitter policy says what it does, and the low-rank factor reproduces."""

import numpy as np
import pytest

from pymc_skewgp._errors import JitterWarning, NotPositiveDefiniteError
from pymc_skewgp._gaussian.linalg import JITTER_LADDER, cholesky, low_rank_factor


def with_eigenvalues(values, seed=0):
    basis = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(values), len(values))))[0]
    matrix = basis @ np.diag(values) @ basis.T
    return (matrix + matrix.T) / 2


def test_definite_matrix_needs_no_jitter():
    matrix = with_eigenvalues([1e-6, 0.5, 1.0, 3.0])
    factor, jitter = cholesky("G", matrix)
    assert jitter == 0.0
    np.testing.assert_allclose(factor @ factor.T, matrix, atol=1e-15)
    assert np.array_equal(factor, np.tril(factor))


def test_singular_matrix_gets_the_smallest_jitter_that_works():
    matrix = np.full((4, 4), 2.0)
    with pytest.warns(JitterWarning, match="^G is numerically singular: jitter, 1e-12 of its"):
        factor, jitter = cholesky("G", matrix)
    assert jitter == JITTER_LADDER[0]
    np.testing.assert_allclose(factor @ factor.T, matrix + 2.0 * jitter * np.eye(4), atol=1e-14)
    assert np.array_equal(matrix, np.full((4, 4), 2.0))


@pytest.mark.parametrize(("smallest", "rung"), [(-5e-12, 1e-10), (-1e-9, 1e-8), (-1e-7, 1e-6)])
def test_the_ladder_climbs_only_as_far_as_needed(smallest, rung):
    # Variances of .17 to 1.8: each rung is a share of them.
    matrix = with_eigenvalues([smallest, 1.0, 1.0, 2.0])
    with pytest.warns(JitterWarning, match=f"{rung:.0e} of its variances"):
        _, jitter = cholesky("G", matrix)
    assert jitter == pytest.approx(rung)


def test_jitter_does_not_mind_the_units_of_the_rows():
    """The factor of D M D is D times that of M; powers of two, so that nothing rounds."""
    scale = 2.0 ** np.array([-40.0, 40.0, 0.0, -7.0])
    matrix = np.full((4, 4), 2.0)
    with pytest.warns(JitterWarning):
        plain, jitter = cholesky("G", matrix)
    with pytest.warns(JitterWarning):
        scaled, same = cholesky("G", scale[:, None] * matrix * scale)
    assert same == jitter
    assert np.array_equal(scaled, scale[:, None] * plain)


@pytest.mark.parametrize("smallest", [-1e-5, -0.25, -1.0])
def test_indefinite_matrix_is_refused_with_its_eigenvalue_and_a_remedy(smallest):
    matrix = with_eigenvalues([smallest, 1.0, 1.0, 2.0])
    with pytest.raises(NotPositiveDefiniteError) as caught:
        cholesky("G", matrix)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, np.linalg.LinAlgError)
    message = str(caught.value)
    assert message.startswith("G is not positive definite")
    assert f"{smallest:.3g}" in message
    # The remedy in the message must work.
    remedy = float(message.split("add at least ")[1].split(" ")[0])
    cholesky("G", matrix + remedy * np.eye(4))


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_low_rank_factor_reproduces_a_smooth_kernel(scale):
    x = np.linspace(0, 1, 80)
    matrix = scale * np.exp(-0.5 * ((x[:, None] - x) / 0.5) ** 2)
    factor = low_rank_factor(matrix)
    assert factor.shape[1] < 25
    # The pivot rule leaves at most rtol = 1e-13 on a diagonal, and round-off some eps sqrt(n).
    np.testing.assert_allclose(factor @ factor.T, matrix, atol=1e-12 * scale)


@pytest.mark.parametrize("rank", [0, 1, 3, 6])
def test_low_rank_factor_finds_the_rank(rank):
    root = np.random.default_rng(1).normal(size=(6, rank))
    matrix = root @ root.T
    factor = low_rank_factor(matrix)
    assert factor.shape == (6, rank)
    np.testing.assert_allclose(factor @ factor.T, matrix, atol=1e-13)
