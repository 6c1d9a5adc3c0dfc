"""f at pseudo-points given draws of f at the data, against plain rejection."""

import numpy as np
import pytest
from scipy.stats import kstest, norm

from pymc_skewgp._posterior.gaussian_posterior import with_pseudo_points
from pymc_skewgp._posterior.prior import Prior

X = np.array([[-1.0], [0.3], [1.2]])
POINTS = np.array([[-0.3], [2.0]])
S = 600


def kernel(a, b=None, diag=False):
    if diag:
        return np.full(len(a), 4.0)
    return 4.0 * np.exp(-0.5 * (a - (a if b is None else b).T) ** 2)


def mean(a):
    return 0.5 * a[:, 0]


def prior(s, truncation=0.3):
    phase = np.array([1.0, -1.0])[:s]
    return Prior(kernel, mean, POINTS[:s], phase, np.full(s, truncation))


@pytest.mark.parametrize("s", [1, 2])
def test_against_rejection(s):
    """The same f for all draws. False alarms: 1e-4 each time."""
    f, given = np.array([0.3, -0.4, 0.2]), prior(s)
    rng = np.random.default_rng(1)
    points, values = with_pseudo_points(given, X, np.tile(f, (S, 1)), rng)
    np.testing.assert_array_equal(points, np.vstack([POINTS[:s], X]))
    np.testing.assert_array_equal(values[:, s:], np.tile(f, (S, 1)))
    gain = np.linalg.solve(kernel(X) + 1e-6 * np.eye(3), kernel(X, POINTS[:s]))
    centre = mean(POINTS[:s]) + (f - mean(X)) @ gain
    cov = kernel(POINTS[:s]) - kernel(POINTS[:s], X) @ gain
    at = np.random.default_rng(2).multivariate_normal(centre, cov, 100_000)
    keep = (given.phase * (at - mean(POINTS[:s])) / 2.0 + 0.3 > 0).all(axis=1)
    assert 0.1 < keep.mean() < 0.95  # the signs say something
    for i in range(s):
        assert kstest(values[:, i], at[keep, i]).pvalue > 1e-4 / 3
    if s == 2:
        ours, theirs = values[:, 0] * values[:, 1], at[keep, 0] * at[keep, 1]
        error = theirs.std() * np.hypot(S**-0.5, theirs.size**-0.5)
        assert abs(ours.mean() - theirs.mean()) < norm.isf(1e-4 / 6) * error


def test_each_draw_has_its_own():
    """Far from the signs' reach f at the pseudo-point follows f beside it."""
    f = np.linspace(1.0, 3.0, 5)[:, None]
    given = Prior(kernel, mean, np.array([[0.01]]), np.ones(1), np.zeros(1))
    _, values = with_pseudo_points(given, np.zeros((1, 1)), f, np.random.default_rng(0))
    np.testing.assert_allclose(values[:, 0], f[:, 0], atol=6 * 2.0 * 0.01)


def test_without_pseudo_points():
    f = np.zeros((2, 3))
    points, values = with_pseudo_points(prior(0), X, f, np.random.default_rng(0))
    assert points is X
    assert values is f
