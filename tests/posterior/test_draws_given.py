"""f elsewhere given draws or observations: signs at pseudo-points, what features leave."""

import numpy as np
import pytest
from approximation_oracles import rbf
from scipy.stats import kstest, norm

import pymc_skewgp as sg
from pymc_skewgp._gaussian.blocks.functions import NoiseRule
from pymc_skewgp._posterior.gaussian_posterior import continue_draws
from pymc_skewgp._posterior.prior import DataSet, Prior
from pymc_skewgp._posterior.row_groups import residual_draws

JITTER = 1e-6  # what pm.gp adds to the variances at the data


def slope(X):
    return 0.4 - 0.3 * X[:, 0]


X = np.array([[-1.0], [0.2], [0.9], [3.0]])


@pytest.mark.parametrize("s", [1, 2])
def test_pseudo_points_against_rejection(s):
    """The same f for all draws. False alarms: 1e-4 each time."""
    kernel, size, points = rbf(4.0), 600, np.array([[-0.3], [2.0]])[:s]
    given = Prior(kernel, slope, points, np.array([1.0, -1.0])[:s], np.full(s, 0.3))
    f, rng = np.array([0.2, 0.1, 0.0, -1.0]), np.random.default_rng(1)
    found = continue_draws(given, X, np.tile(f, (size, 1)), np.vstack([points, X]), rng)
    values = found.mu
    np.testing.assert_allclose(values[:, s:], np.tile(f, (size, 1)), atol=1e-4)
    np.testing.assert_allclose(found.scale, 0.0, atol=1e-5)
    gain = np.linalg.solve(kernel(X) + JITTER * np.eye(4), kernel(X, points))
    centre = slope(points) + (f - slope(X)) @ gain
    cov = kernel(points) - kernel(points, X) @ gain
    at = np.random.default_rng(2).multivariate_normal(centre, cov, 100_000)
    keep = (given.phase * (at - slope(points)) / 2.0 + 0.3 > 0).all(axis=1)
    assert 0.1 < keep.mean() < 0.95  # the signs say something
    for i in range(s):
        assert kstest(values[:, i], at[keep, i]).pvalue > 1e-4 / 3
    if s == 2:
        ours, theirs = values[:, 0] * values[:, 1], at[keep, 0] * at[keep, 1]
        error = theirs.std() * np.hypot(size**-0.5, theirs.size**-0.5)
        assert abs(ours.mean() - theirs.mean()) < norm.isf(1e-4 / 6) * error


@pytest.mark.parametrize(("variance", "off"), [(0.01, 0.08), (0.25, 0.3), (0.5, 5.0)])
def test_residuals_under_counts_that_say_more_of_f_than_the_features(variance, off):
    """A count of 10,000 leaves f a deviation of .01; 5 is seven deviations of e away."""
    y, size = np.array([10_000, 100, 3]), 20_000
    part = DataSet("f", np.zeros((3, 1)), y, sg.likelihoods.Poisson())
    signal = np.tile(np.log(y) + off, (size, 1))
    e = residual_draws(part, signal, np.full(3, variance), np.random.default_rng(1))
    grid = np.sqrt(variance) * np.linspace(-12.0, 12.0, 400_001)[:, None]
    f = grid + signal[0]
    logs = y * f - np.exp(f) - 0.5 * grid**2 / variance
    weights = np.exp(logs - logs.max(axis=0))
    weights /= weights.sum(axis=0)
    mean = (weights * grid).sum(axis=0)
    sd = np.sqrt((weights * (grid - mean) ** 2).sum(axis=0))
    # Five standard errors of 20,000 draws: a false alarm in 10^5 runs; of the table .002.
    assert (np.abs(e.mean(axis=0) - mean) < 5.0 * sd / np.sqrt(size)).all()
    np.testing.assert_allclose(e.std(axis=0), sd, rtol=5.0 / np.sqrt(2 * size) + 0.002)


def test_mean_over_noise_of_a_site_that_is_0_somewhere():
    """N(eta; 0, 1/6) but for 0 below -5, where it is exp(-75): the closed form holds."""

    def log_prob(eta):
        return np.where(eta > -5.0, -3.0 * eta**2, -np.inf)

    variance = np.array([0.01, 0.02])
    rule = NoiseRule.of(log_prob, variance, np.zeros(2), np.array([2.0, 2.0]))
    eta = np.array([[0.0, 0.5], [1.0, -1.0]])
    scale = 1.0 + 6.0 * variance
    wanted = -3.0 * eta**2 / scale - 0.5 * np.log(scale)
    np.testing.assert_allclose(rule.log_mean(log_prob, eta), wanted, atol=1e-8)
