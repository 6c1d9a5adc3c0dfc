"""GP regression on draws, against the precision matrix of all points, and the exact posterior."""

import numpy as np

from pymc_skewgp._posterior.gaussian_posterior import Continuation, continue_draws
from pymc_skewgp._posterior.prior import Prior

JITTER = 1e-6  # what pm.gp adds to the variances at the data


def ou(X, Xs=None, diag=False):
    """Ornstein-Uhlenbeck: rough, so that its matrices are well conditioned."""
    if diag:
        return np.full(len(X), 2.0)
    Xs = X if Xs is None else Xs
    return 2.0 * np.exp(-np.abs(X - Xs.T) / 0.8)


def slope(X):
    return 0.4 - 0.3 * X[:, 0]


PRIOR = Prior(ou, slope, np.zeros((0, 1)), np.zeros(0), np.zeros(0))
X = np.array([[-1.0], [0.2], [0.9], [3.0]])
NEW = np.array([[-2.0], [0.5], [2.0]])


def test_by_the_precision_matrix():
    """A Gaussian's rows given others have the inverse of their block of the precision."""
    f = np.random.default_rng(0).normal(size=(5, 4))
    found = continue_draws(PRIOR, X, f, NEW)
    everywhere = np.vstack([X, NEW])
    K = ou(everywhere)
    K[np.diag_indices(4)] += JITTER
    P = np.linalg.inv(K)
    cov = np.linalg.inv(P[4:, 4:])
    means = slope(NEW)[:, None] - cov @ P[4:, :4] @ (f - slope(X)).T
    # Condition numbers below 100.
    np.testing.assert_allclose(found.cov, cov, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(found.means, means, rtol=1e-11, atol=1e-12)
    np.testing.assert_array_equal(found.cov, found.cov.T)


def test_draws():
    """40000 draws given one f: means to 5 standard errors, covariances to 6; alarms below 1e-5."""
    one = continue_draws(PRIOR, X, np.zeros((1, 4)), NEW)
    many = Continuation(np.repeat(one.means, 40_000, axis=1), one.cov)
    draws = many.sample(np.random.default_rng(0))
    assert draws.shape == (40_000, 3)
    variance = one.cov.diagonal()
    gap = np.abs(draws.mean(axis=0) - one.means[:, 0])
    assert (gap < 5 * np.sqrt(variance / 40_000)).all()
    spread = np.sqrt((np.outer(variance, variance) + one.cov**2) / 40_000)
    assert (np.abs(np.cov(draws.T) - one.cov) < 6 * spread).all()
