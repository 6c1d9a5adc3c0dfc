"""Mixtures of Gaussians against direct integration and root finding."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import ndtr

from pymc_skewgp._gaussian.weights import mixture_moments, mixture_quantiles

PROBS = np.array([0.001, 0.025, 0.25, 0.5, 0.9, 0.999])


def mixture(seed, n_components, n=3):
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(n_components))
    return rng.normal(size=(n, n_components)), rng.uniform(0.01, 4.0, n), weights


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 30),
    st.sampled_from([1e-6, 1e-2, 1.0, 100.0]),
    st.sampled_from([1e-3, 1.0, 1e3]),
)
def test_quantiles_against_brentq(seed, n_components, variance, scale):
    means, _, weights = mixture(seed, n_components, n=2)
    means = means * scale
    got = mixture_quantiles(means, np.full(2, variance), weights, PROBS)
    sd = np.sqrt(variance)
    _, spread, _ = mixture_moments(means, np.full(2, variance), weights)
    for i in range(2):

        def surplus(x, prob, row=i):
            return ndtr((x - means[row]) / sd) @ weights - prob

        for j, prob in enumerate(PROBS):
            low, high = means[i].min() - 10 * sd, means[i].max() + 10 * sd
            root = brentq(surplus, low, high, args=(prob,), xtol=1e-13 * spread[i], rtol=1e-14)
            # The documented accuracy, but where the distribution function is flat to round-off
            # (between far components) any point there has the right probability.
            near = abs(got[j, i] - root) <= 2e-10 * spread[i] + 1e-13 * abs(root)
            assert near or abs(surplus(got[j, i], prob)) < 1e-13


def test_point_masses():
    """Zero variance: the quantile is one of the points, up to the invisible width."""
    means, weights = np.array([[1.0, 2.0, 5.0]]), np.array([0.2, 0.5, 0.3])
    got = mixture_quantiles(means, np.zeros(1), weights, np.array([0.1, 0.45, 0.9]))
    np.testing.assert_allclose(got[:, 0], [1.0, 2.0, 5.0], atol=1e-10)
    mean, sd, skewness = mixture_moments(np.full((1, 3), 0.7), np.zeros(1), weights)
    assert mean[0] == pytest.approx(0.7)
    assert sd[0] < 1e-15
    assert skewness[0] == 0.0 or not np.isnan(skewness[0])
