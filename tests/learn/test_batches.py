"""Random batches: a partition, equal in size, with both classes in proportion."""

import numpy as np
import pytest

from pymc_skewgp._learn.search import random_batches


@pytest.mark.parametrize(("n", "size"), [(100, 30), (101, 10), (20, 20), (7, 3), (5, 9)])
def test_partition(n, size):
    rng = np.random.default_rng(n)
    sign = np.where(rng.random(n) < 0.3, 1.0, -1.0)
    batches = random_batches(sign, size, rng)
    np.testing.assert_array_equal(np.sort(np.concatenate(batches)), np.arange(n))
    sizes = [batch.size for batch in batches]
    assert max(sizes) <= size
    assert max(sizes) - min(sizes) <= 1
    positives = [int((sign[batch] > 0).sum()) for batch in batches]
    assert max(positives) - min(positives) <= 1


def test_different_seeds_give_different_batches():
    sign = np.tile([1.0, -1.0], 50)
    a, b = (random_batches(sign, 10, np.random.default_rng(seed))[0] for seed in (0, 1))
    assert not np.array_equal(a, b)
