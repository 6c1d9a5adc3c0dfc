"""Where the search for the hyperparameters of a classifier starts."""

import numpy as np
import pymc as pm
import pytest

from pymc_skewgp._learn.estimator import lengthscale, log_volume, spread_rows


def test_lengthscale():
    # A pair of standard normal rows is sqrt(2 d) apart: sqrt(d) lengthscales of one.
    assert lengthscale(np.ones(9), False) == pytest.approx(3.0)
    sd = np.array([1.0, 10.0])
    np.testing.assert_allclose(lengthscale(sd, True), np.sqrt(2) * sd)


def test_lengthscale_of_constant_columns():
    np.testing.assert_allclose(lengthscale(np.array([2.0, 0.0]), True), [2.0, 1.0])
    assert lengthscale(np.zeros(3), False) == 1.0
    np.testing.assert_array_equal(lengthscale(np.zeros(3), True), np.ones(3))


def test_rows_are_spread():
    rng = np.random.default_rng(0)
    clusters = np.repeat([[0.0, 0.0], [100.0, 0.0], [0.0, 100.0]], 50, axis=0)
    X = clusters + rng.normal(size=clusters.shape)
    for seed in range(20):
        rows = spread_rows(X, 3, np.random.default_rng(seed))
        # One of each: within a cluster squared distances are a thousandth of those between.
        assert sorted(rows // 50) == [0, 1, 2]


def test_volume():
    points = np.array([[0.0], [1.0], [3.0]])
    kernel = 4.0 * pm.gp.cov.ExpQuad(1, ls=1.0)
    correlation = np.exp(-0.5 * (points - points.T) ** 2)
    expected = 0.5 * np.linalg.slogdet(correlation)[1]
    assert log_volume(kernel, points).eval() == pytest.approx(expected, abs=1e-7)
