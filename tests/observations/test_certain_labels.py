"""Probabilities of labels that are certain: no round-off lifts them above one."""

from types import SimpleNamespace

import numpy as np

from pymc_skewgp._gaussian.weights import normalized_weights
from pymc_skewgp._learn.averaging.average_process import AveragedPosterior
from pymc_skewgp._observations.probability import Probability, interval_probability

# Weights whose sum is above one, by a digit or two of the last place.
SEEDS = range(40)


def mixture(seed):
    """Components far above zero."""
    weights = normalized_weights(np.random.default_rng(seed).standard_normal(1000))
    means = np.full((3, weights.size), 60.0)
    moments = np.full(3, 60.0), np.ones(3), np.zeros(3)
    return SimpleNamespace(
        weights=weights,
        means=means,
        variance=np.ones(3),
        moments=moments,
        replicate=np.arange(weights.size) % 16,
        exact=False,
    )


def test_sums_of_weights_are_above_one():
    """So that the other tests can fail."""
    ones = np.ones((3, 1000))
    assert max((ones @ mixture(seed).weights).max() for seed in SEEDS) > 1.0


def test_labels():
    for seed in SEEDS:
        found = interval_probability(mixture(seed), 0.0, np.inf)
        assert (found.value <= 1.0).all()
        np.testing.assert_allclose(found.value, 1.0, rtol=1e-15)


def test_averages():
    certain = Probability(np.ones(3), np.zeros(3))
    for seed in SEEDS:
        parts = [SimpleNamespace(probability=lambda _: certain)] * 1000
        average = AveragedPosterior(parts, mixture(seed).weights, None)
        assert (average.probability(np.zeros((3, 1))).value <= 1.0).all()
