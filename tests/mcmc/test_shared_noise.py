"""Noise within limits, in blocks, against plain rejection.

4.5 standard errors of both samples: false-alarm rate 7e-6 a statistic.
"""

import numpy as np
import pytest

from pymc_skewgp._mcmc import augmentation as noise
from pymc_skewgp._mcmc.augmentation import RowNoise

SIGMAS = 4.5


def choices(k):
    """Noise of a choice among k + 1: differences that have the winner's noise in common."""
    return np.eye(k) + 1.0


def repeated(block, n):
    return np.kron(np.eye(n), block)


@pytest.mark.parametrize("k", [2, 3])
def test_blocks_are_drawn_independently_and_exactly(k):
    """A thousand equal blocks in one call, one of them interleaved with the others."""
    n = 1000
    lower, upper = np.full(k, 0.4), np.full(k, np.inf)
    upper[0] = 1.9
    order = np.random.default_rng(0).permutation(n * k)
    S = repeated(choices(k), n)[np.ix_(order, order)]
    rng = np.random.default_rng(1)
    e, exact = RowNoise(S).within(np.tile(lower, n)[order], np.tile(upper, n)[order], rng)
    assert exact
    found = np.empty(n * k)
    found[order] = e
    found = found.reshape(n, k)
    plain = rng.multivariate_normal(np.zeros(k), choices(k), size=400_000)
    plain = plain[((plain > lower) & (plain < upper)).all(axis=1)]
    error = plain.std(axis=0) * np.sqrt(1 / n + 1 / len(plain))
    assert (np.abs(found.mean(axis=0) - plain.mean(axis=0)) < SIGMAS * error).all()
    assert np.abs(np.corrcoef(found.T) - np.corrcoef(plain.T)).max() < SIGMAS / np.sqrt(n)


def test_sizes_that_differ_and_rows_alone():
    S = np.zeros((6, 6))
    S[:2, :2], S[2:5, 2:5], S[5, 5] = choices(2), choices(3), 4.0
    rng = np.random.default_rng(2)
    lower = np.array([0.1, -np.inf, -np.inf, 0.0, 0.5, 3.0])
    upper = np.array([np.inf, -0.2, 0.3, np.inf, np.inf, 3.1])
    drawn = [RowNoise(S).within(lower, upper, rng) for _ in range(50)]
    assert all(exact for _, exact in drawn)
    e = np.array([e for e, _ in drawn])
    assert ((e > lower) & (e < upper)).all()
    free = RowNoise(S).free(40_000, rng)
    np.testing.assert_allclose(np.cov(free), S, atol=4.5 * 4.0 * np.sqrt(2 / 40_000))


def test_rare_blocks_are_drawn_one_by_one():
    """Probability 1e-5: none of the batch is accepted, and the draw is exact all the same."""
    rng = np.random.default_rng(3)
    limits = np.array([3.0, -np.inf]), np.array([np.inf, -2.0])
    e, exact = RowNoise(choices(2)).within(*limits, rng)
    assert exact
    assert e[0] > 3.0
    assert e[1] < -2.0


def test_large_blocks_are_drawn_by_weight():
    m = noise._LARGEST_REJECTION + 1
    rng = np.random.default_rng(4)
    S = 0.5 * np.eye(m) + 0.5
    e, exact = RowNoise(S).within(np.zeros(m), np.full(m, np.inf), rng)
    assert not exact
    assert (e > 0).all()
