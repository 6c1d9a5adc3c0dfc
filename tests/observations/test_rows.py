"""Rows: noise that they share, as blocks or not, equal ones, and probabilities by SciPy."""

import numpy as np
import pytest
from oracles import finite_difference
from scipy import sparse
from scipy.special import log_ndtr, logsumexp
from scipy.stats import multivariate_normal

from pymc_skewgp._observations import observations
from pymc_skewgp._observations import observations as module

BLOCK = np.array([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 0.5]])


@pytest.mark.parametrize("S", [BLOCK, sparse.csr_array(BLOCK)], ids=["dense", "sparse"])
def test_noise_in_small_blocks(S):
    noise = observations.block_noise(S, largest=2)
    matrix = np.zeros((3, 3))
    noise.add_to(matrix)
    np.testing.assert_array_equal(matrix, BLOCK)
    assert observations.block_noise(S, largest=1) is None


def test_no_blocks_where_they_are_singular():
    assert observations.block_noise(sparse.csr_array(np.ones((2, 2))), largest=2) is None


def test_independent_rows_of_a_sparse_covariance_are_variances():
    assert observations.noise_part(sparse.csr_array(BLOCK), np.array([True, False, True])).ndim == 1


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_factor_of_blocks_whose_rows_are_apart_and_singular(form):
    B = np.zeros((5, 3))
    B[[0, 3], 0], B[[1, 4], 1], B[2, 2] = [1.0, -2.0], [0.5, 0.5], 3.0
    factor = observations.noise_factor(form(B @ B.T))
    assert factor.shape == (5, 3)
    np.testing.assert_allclose(form(factor @ factor.T) @ np.eye(5), B @ B.T, atol=1e-14)


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 3))[rng.integers(0, 50, 400)]
    y = rng.integers(0, 2, 400).astype(float)
    value = np.where(rng.uniform(size=400) < 0.5, np.nan, 0.0)
    return X, y, value


def test_kinds(table):
    X, y, value = table
    found = observations.distinct_rows(table)
    whole = np.column_stack([X, y, np.isnan(value)])
    _, kind, counts = np.unique(whole, axis=0, return_inverse=True, return_counts=True)
    assert found.first.size == counts.size
    # The same partition, whatever the order of its parts.
    assert len(set(zip(found.kind, kind, strict=True))) == counts.size
    np.testing.assert_array_equal(np.sort(found.counts), np.sort(counts))
    np.testing.assert_array_equal(found.kind[found.first], np.arange(counts.size))
    assert found.first[found.kind[0]] == 0


def test_zero_has_one_sign():
    assert observations.distinct_rows([np.tile([0.0, -0.0], 5)]).first.size == 1


def test_few_equal_rows_are_none(table):
    X, _, _ = table
    assert observations.distinct_rows([X, np.arange(400.0) // 1.5]) is None


def test_rows_with_one_key_are_compared(table, monkeypatch):
    monkeypatch.setattr(module, "_mixed", lambda key, column, i: key)
    assert observations.distinct_rows(table) is None


def differences(k):
    """Covariance of the noise of k successive differences: those of a ranking."""
    W = np.eye(k, k + 1) - np.eye(k, k + 1, 1)
    return 0.7 * W @ W.T


def log_probability(eta, lower, upper, S):
    whole = multivariate_normal(np.zeros(len(eta)), S, abseps=1e-10, releps=1e-10, seed=1)
    return np.log(whole.cdf(upper - eta, lower_limit=lower - eta))


SHAPES = {
    "choice of 3": (np.eye(2) + 1, [0.3, -0.8], [0, 0], [np.inf, np.inf]),
    "ranking of 3": (differences(2), [-0.5, 0.9], [0, 0], [np.inf, np.inf]),
    "two limits": (differences(2), [-0.5, 0.9], [-1, -np.inf], [0.2, 1.5]),
    "three, unequal": (
        np.array([[2.0, 0.5, 0.1], [0.5, 1.0, -0.3], [0.1, -0.3, 1.5]]),
        [0.4, -0.7, 0.2], [0, -np.inf, -1], [np.inf, 0, 0.5],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_one_block(name):
    """SciPy's integral is right to 1e-9 or so for two and three rows (Genz's closed forms)."""
    S, eta, lower, upper = (np.asarray(x, dtype=float) for x in SHAPES[name])

    def at(eta):
        return observations.RowsInBlocks(lower, upper, S).slopes(eta)

    found = at(eta)
    assert found.value == pytest.approx(log_probability(eta, lower, upper, S), abs=1e-7)
    in_value = finite_difference(lambda x: at(x).value, eta)
    np.testing.assert_allclose(found.gradient, in_value, atol=1e-5)
    in_slopes = finite_difference(lambda x: at(x).gradient, eta)
    np.testing.assert_allclose(-found.curvature.toarray(), in_slopes, atol=1e-5)


def test_far_out_of_reach():
    """A choice 20 deviations against f: nodes follow the integrand. By a grid over z."""
    eta = np.array([-20.0, -20.0])
    found = observations.RowsInBlocks(np.zeros(2), np.full(2, np.inf), np.eye(2) + 1).slopes(eta)
    z = np.linspace(-40, 40, 200001)
    expected = logsumexp(-0.5 * z**2 + 2 * log_ndtr(-20 + z)) + np.log(z[1] - z[0])
    assert found.value == pytest.approx(expected - 0.5 * np.log(2 * np.pi), abs=1e-7)


def test_blocks_of_several_sizes_in_any_order():
    """Rows 0 and 3 share noise, 1, 2 and 5 do, 4 has its own: the sum over blocks."""
    rng = np.random.default_rng(0)
    eta = rng.normal(size=6)
    groups = [([0, 3], np.eye(2) + 1), ([1, 2, 5], differences(3)), ([4], np.eye(1))]
    S = np.zeros((6, 6))
    for rows, block in groups:
        S[np.ix_(rows, rows)] = block
    lower, upper = np.zeros(6), np.full(6, np.inf)
    found = observations.RowsInBlocks(lower, upper, S).slopes(eta)
    parts = [observations.RowsInBlocks(lower[r], upper[r], b).slopes(eta[r]) for r, b in groups]
    assert found.value == pytest.approx(sum(part.value for part in parts), abs=1e-12)
    for (rows, _), part in zip(groups, parts, strict=True):
        np.testing.assert_allclose(found.gradient[rows], part.gradient, atol=1e-12)
        block = found.curvature.toarray()[np.ix_(rows, rows)]
        np.testing.assert_allclose(block, part.curvature.toarray(), atol=1e-12)
    assert found.curvature.nnz <= 4 + 9 + 1


def test_refusals():
    lower, upper = np.zeros(8), np.full(8, np.inf)
    with pytest.raises(ValueError, match="8 of these observations share theirs: use EP"):
        observations.RowsInBlocks(lower, upper, np.eye(8) + 1)
    with pytest.raises(ValueError, match="have none: use EP"):
        observations.RowsInBlocks(lower, upper, np.zeros(8))
    with pytest.raises(ValueError, match="have none: use EP"):
        observations.RowsInBlocks(lower[:2], upper[:2], np.ones((2, 2)))
