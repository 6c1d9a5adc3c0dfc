"""GP regression on draws, against the precision matrix of all points, and the exact posterior."""

import numpy as np
from approximation_oracles import exact_marginals
from oracles import ou_cov
from scipy.special import ndtr

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


def test_between_its_neighbours_alone():
    """The process is Markov: at .5 only the draws at .2 and .9 count."""
    f = np.zeros((2, 4))
    f[1, [0, 3]] = 5.0
    found = continue_draws(PRIOR, X, f, NEW)
    # The jitter lets some 1e-6 of the 5 through.
    before, after = found.means.T
    assert abs(after[1] - before[1]) < 1e-5
    assert abs(after[2] - before[2]) > 1.0


def test_at_the_data_themselves():
    """The draws come back but for the jitter: 1e-6 of the variance left, 1e-6 of the draws lost."""
    f = np.random.default_rng(1).normal(size=(3, 4))
    found = continue_draws(PRIOR, X, f, X)
    np.testing.assert_allclose(found.means.T, f, atol=1e-5)
    np.testing.assert_allclose(found.cov, 0.0, atol=2 * JITTER)


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


def test_marginals():
    found = continue_draws(PRIOR, X, np.random.default_rng(0).normal(size=(5, 4)), NEW)
    replicate = np.array([0, 0, 1, 1, 1])
    at = found.marginals(replicate)
    np.testing.assert_array_equal(at.weights, 0.2)
    np.testing.assert_array_equal(at.replicate, replicate)
    cdf = ndtr((0.3 - found.means) / np.sqrt(found.cov.diagonal())[:, None]).mean(axis=1)
    np.testing.assert_allclose(at.cdf(np.full((1, 3), 0.3)).value[0], cdf, rtol=1e-12)


def test_exact_draws_give_the_exact_posterior_at_new_points():
    """Weighted draws from the prior at two labels, continued: moments by quadrature.

    200000 draws whose effective sample size is over a third of that: 1/sqrt(70000) = .004 of a
    deviation; five of these, and for the skewness five times sqrt(15) of these: false alarms 1e-6
    each.
    """
    x, sign = np.array([[0.0], [0.7]]), np.array([1.0, -1.0])
    everywhere = np.vstack([x, NEW])
    mean = slope(everywhere)
    rng = np.random.default_rng(3)
    f = rng.multivariate_normal(mean[:2], ou(x), 200_000)
    p = ndtr(sign * f).prod(axis=1)
    chosen = rng.choice(len(f), 200_000, p=p / p.sum())
    found = continue_draws(PRIOR, x, f[chosen], NEW).marginals(None)
    wanted = exact_marginals(ou(everywhere), sign, mean)
    for got, want, size in zip(found.moments, wanted.moments(), (1.0, 1.0, 4.0), strict=True):
        np.testing.assert_allclose(got, want[2:], atol=0.02 * 1.5 * size)
    np.testing.assert_allclose(
        ou(everywhere), ou_cov(everywhere[:, 0], 0.8, 2.0), rtol=1e-15
    )  # the kernel is what it is called
