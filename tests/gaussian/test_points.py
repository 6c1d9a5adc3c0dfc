"""Points: uniform, inside the cube, and independent from replicate to replicate."""

import numpy as np
import pytest

from pymc_skewgp._gaussian.weights import N_SOBOL, uniform_points


@pytest.mark.parametrize(
    ("n_dims", "n_points", "n_replicates"), [(1, 1, 1), (3, 5, 2), (N_SOBOL + 6, 16, 3)]
)
def test_shape_and_range(n_dims, n_points, n_replicates):
    points = uniform_points(n_dims, n_points, n_replicates, np.random.default_rng(0))
    assert points.shape == (n_dims, n_replicates * n_points)
    assert points.min() > 0.0
    assert points.max() < 1.0


@pytest.mark.parametrize("n_points", [64, 128])
def test_every_coordinate_is_stratified(n_points):
    """A power of two of Sobol points, or a Latin hypercube, has one point in each stratum.

    This is what makes the points better than independent ones, in every replicate alone.
    """
    points = uniform_points(N_SOBOL + 5, n_points, 2, np.random.default_rng(1))
    strata = np.sort((points.reshape(-1, 2, n_points) * n_points).astype(int), axis=-1)
    assert (strata == np.arange(n_points)).all()


def test_replicates_are_independent():
    """Means of two replicates are uncorrelated: |r| of 400 pairs is below 5/sqrt(400) = .25
    but for a false-alarm rate of 6e-7 a coordinate."""
    rng = np.random.default_rng(2)
    means = np.array([uniform_points(3, 7, 2, rng).reshape(3, 2, 7).mean(-1) for _ in range(400)])
    for dim in range(3):
        assert abs(np.corrcoef(means[:, dim, 0], means[:, dim, 1])[0, 1]) < 0.25


def test_order_within_a_replicate_is_random():
    """The first half alone is a fair sample: Sobol points in their own order are not.

    The mean of 64 of 128 points without replacement has standard error .29 sqrt(1/128) = .0255;
    5 of them, over 10 coordinates: false-alarm rate 6e-6.
    """
    points = uniform_points(10, 128, 1, np.random.default_rng(3))
    assert np.abs(points[:, :64].mean(axis=1) - 0.5).max() < 5 * 0.0255
    # In Sobol order neighbours fall in opposite halves; shuffled, half of them do.
    # 127 pairs a row: 64 +- 5.6, five of them.
    opposite = ((points[:, 1:] > 0.5) != (points[:, :-1] > 0.5)).sum(axis=1)
    assert (np.abs(opposite - 63.5) < 5 * 5.7).all()


def test_seeded():
    a = uniform_points(70, 8, 2, np.random.default_rng(5))
    assert np.array_equal(a, uniform_points(70, 8, 2, np.random.default_rng(5)))
    assert not np.array_equal(a, uniform_points(70, 8, 2, np.random.default_rng(6)))
