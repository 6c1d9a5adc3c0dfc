"""Mixtures of Gaussians against direct integration and root finding."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import norm

from pymc_skewgp._gaussian.weights import (
    mixture_cdf,
    mixture_cdf_errors,
    mixture_density,
    mixture_moments,
    mixture_quantiles,
)

PROBS = np.array([0.001, 0.025, 0.25, 0.5, 0.9, 0.999])


def mixture(seed, n_components, n=3):
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(n_components))
    return rng.normal(size=(n, n_components)), rng.uniform(0.01, 4.0, n), weights


@pytest.mark.parametrize("seed", range(4))
def test_moments_against_quadrature(seed):
    means, variance, weights = mixture(seed, 5)
    mean, sd, skewness = mixture_moments(means, variance, weights)
    for i in range(3):
        points = np.sort(means[i])

        def density(x, row=i):
            return weights @ norm.pdf(x, means[row], np.sqrt(variance[row]))

        def moment(f, row=i, points=points):
            reach = 12 * np.sqrt(variance[row])
            return quad(
                lambda x: f(x) * density(x, row),
                points[0] - reach,
                points[-1] + reach,
                points=points,
                limit=200,
                epsabs=1e-12,
            )[0]

        m = moment(lambda x: x)
        v = moment(lambda x, m=m: (x - m) ** 2)
        third = moment(lambda x, m=m: (x - m) ** 3)
        # quad asks for 1e-12 of each integral; the skewness divides by sd^3 > .01.
        assert mean[i] == pytest.approx(m, abs=1e-10)
        assert sd[i] == pytest.approx(np.sqrt(v), abs=1e-10)
        assert skewness[i] == pytest.approx(third / v**1.5, abs=1e-8)


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


def test_quantiles_increase_and_blocks_agree(monkeypatch):
    means, variance, weights = mixture(9, 7, n=11)
    whole = mixture_quantiles(means, variance, weights, PROBS)
    assert (np.diff(whole, axis=0) > 0).all()
    monkeypatch.setattr("pymc_skewgp._gaussian.weights._CHUNK", 20)
    np.testing.assert_allclose(mixture_quantiles(means, variance, weights, PROBS), whole, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_distribution_function_and_density_against_scipy(seed, monkeypatch):
    monkeypatch.setattr("pymc_skewgp._gaussian.weights._CHUNK", 10)  # two rows a block
    means, variance, weights = mixture(seed, 5)
    values = np.random.default_rng(seed + 10).normal(size=(4, 3))
    sd = np.sqrt(variance)[:, None]
    cdf = mixture_cdf(means, variance, weights, values)
    each = norm.cdf(values[:, :, None], means, sd) @ weights
    np.testing.assert_allclose(cdf, each, atol=1e-14)  # sums of five terms of size 1
    density = mixture_density(means, variance, weights, values)
    np.testing.assert_allclose(density, norm.pdf(values[:, :, None], means, sd) @ weights, 1e-12)


def test_the_error_of_the_distribution_function_is_honest():
    """Components are 100 draws of N(0, 1): over 400 sets the errors' mean square is as stated.

    The ratio of mean squares has a relative error of sqrt(2 / 400) = .07; .3 is four of those.
    """
    rng = np.random.default_rng(0)
    means = rng.normal(size=(400, 100))
    at, weights = 0.7, np.full(100, 0.01)
    mixtures = (means, np.full(400, 0.5), weights, np.full((1, 400), at))
    cdf, error = mixture_cdf(*mixtures), mixture_cdf_errors(*mixtures)
    truth = norm.cdf(at / np.sqrt(1.5))
    assert np.mean((cdf - truth) ** 2) / np.mean(error**2) == pytest.approx(1.0, abs=0.3)
