"""Equal rows against `np.unique`."""

import numpy as np
import pytest

from pymc_skewgp._observations import observations as module
from pymc_skewgp._observations.observations import distinct_rows


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 3))[rng.integers(0, 50, 400)]
    y = rng.integers(0, 2, 400).astype(float)
    value = np.where(rng.uniform(size=400) < 0.5, np.nan, 0.0)
    return X, y, value


def test_kinds(table):
    X, y, value = table
    found = distinct_rows(table)
    whole = np.column_stack([X, y, np.isnan(value)])
    _, kind, counts = np.unique(whole, axis=0, return_inverse=True, return_counts=True)
    assert found.first.size == counts.size
    # The same partition, whatever the order of its parts.
    assert len(set(zip(found.kind, kind, strict=True))) == counts.size
    np.testing.assert_array_equal(np.sort(found.counts), np.sort(counts))
    np.testing.assert_array_equal(found.kind[found.first], np.arange(counts.size))
    assert found.first[found.kind[0]] == 0


def test_zero_has_one_sign():
    assert distinct_rows([np.tile([0.0, -0.0], 5)]).first.size == 1


def test_few_equal_rows_are_none(table):
    X, _, _ = table
    assert distinct_rows([X, np.arange(400.0) // 1.5]) is None


def test_rows_with_one_key_are_compared(table, monkeypatch):
    monkeypatch.setattr(module, "_mixed", lambda key, column, i: key)
    assert distinct_rows(table) is None
