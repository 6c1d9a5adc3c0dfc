"""Draws of truncated Gaussians that are independent of each other, and exact ones of small ones.

Monte Carlo means of exact draws are within 4.5 of their standard errors: false-alarm rate 7e-6 a
statistic.
"""

import numpy as np
import pytest
from oracles import equicorrelated_cov, equicorrelated_moments
from scipy.stats import kstest, norm, truncnorm

from pymc_skewgp._gaussian import independent
from pymc_skewgp._gaussian.covariance import DenseCovariance
from pymc_skewgp._gaussian.escalation import SamplerSettings
from pymc_skewgp._gaussian.independent import draw_by_rejection, independent_draws

INF = np.inf


def check_moments(draws, low, high, rho, z):
    """First and second moments within z standard errors of independent draws."""
    first, second = equicorrelated_moments(low, high, rho)
    error = draws.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - first) < z * error).all()
    products = draws[:, :, None] * draws[:, None, :]
    error = products.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(products.mean(axis=0) - second) < z * error).all()


@pytest.mark.parametrize(
    ("n", "rho", "low", "high"),
    [
        (3, 0.5, -1.0, 0.5),
        (10, 0.9, 1.0, INF),
        (40, 0.5, 0.0, INF),
        (4, 0.3, -INF, INF),
    ],
)
def test_moments(n, rho, low, high):
    low, high = np.full(n, low), np.full(n, high)
    rng = np.random.default_rng(n)
    draws = independent_draws(DenseCovariance(equicorrelated_cov(n, rho)), low, high, 10_000, rng)
    assert draws.shape == (10_000, n)
    assert ((draws >= low) & (draws <= high)).all()
    # Up to 1640 dependent numbers: 5.5 standard errors are a false alarm in 6e-5 of all seeds.
    # What the chains remember of their start, 1e-3, is a tenth of a standard error.
    check_moments(draws, low, high, rho, 5.5)


def test_draws_are_independent_of_each_other():
    """The variance of a mean of k draws is a k-th of one draw's: evenly spread points have less."""
    low, high, k = np.zeros(3), np.full(3, INF), 16
    cov = DenseCovariance(equicorrelated_cov(3, 0.5))
    rng = np.random.default_rng(6)
    means = np.array([independent_draws(cov, low, high, k, rng).mean() for _ in range(300)])
    first, second = equicorrelated_moments(low, high, 0.5)
    exact = (second.sum() / 9 - first.mean() ** 2) / k
    # A sample variance of 300 has a relative standard error of .082: 4.5 of them, 7e-6.
    assert abs(means.var(ddof=1) / exact - 1.0) < 0.37
    assert means.mean() == pytest.approx(first.mean(), abs=4.5 * np.sqrt(exact / 300))


def test_where_rejection_gives_up_chains_take_over(monkeypatch):
    answers = iter([np.full(2, 0.5), None, np.full(2, 0.5)])
    monkeypatch.setattr(independent, "draw_by_rejection", lambda *_: next(answers))
    cov = DenseCovariance(equicorrelated_cov(2, 0.5))
    draws = independent_draws(cov, np.zeros(2), np.full(2, INF), 3, np.random.default_rng(9))
    assert draws.shape == (3, 2)
    assert np.unique(draws).size == 6


def test_where_chains_would_be_long_draws_are_picked_from_weighted_ones():
    settings = SamplerSettings(max_chain_steps=0)
    low, high = np.zeros(4), np.full(4, INF)
    cov = DenseCovariance(equicorrelated_cov(4, 0.5))
    draws = independent_draws(cov, low, high, 4000, np.random.default_rng(8), settings)
    assert draws.shape == (4000, 4)
    # Picked with replacement from 16 000 evenly spread draws: their error is that of picking.
    check_moments(draws, low, high, 0.5, 5)


SIGMAS = 4.5


def draws(n, mean, cov, lower, upper, seed=0):
    rng = np.random.default_rng(seed)
    x = [draw_by_rejection(mean, cov, lower, upper, rng) for _ in range(n)]
    assert all(row is not None for row in x)
    return np.array(x)


def assert_moments(x, first, second):
    """`first` and `second` moments, the diagonal of the latter left out where it is None."""
    for value, exact in ((x, first), (x * x[:, :1], second)):
        error = value.std(axis=0) / np.sqrt(len(x))
        assert (np.abs(value.mean(axis=0) - exact) < SIGMAS * error).all()


@pytest.mark.parametrize(("lower", "upper"), [(0.0, np.inf), (12.0, np.inf), (-0.3, 0.2)])
def test_one_dimension_is_the_truncated_normal(lower, upper):
    """Kolmogorov-Smirnov at p = 1e-4."""
    x = draws(2000, np.array([0.5]), np.array([[4.0]]), np.array([lower]), np.array([upper]))
    reference = truncnorm((lower - 0.5) / 2, (upper - 0.5) / 2, loc=0.5, scale=2)
    assert kstest(x[:, 0], reference.cdf).pvalue > 1e-4


@pytest.mark.parametrize(("size", "rho", "limit"), [(3, 0.9, -1.0), (12, 0.6, 2.0)])
def test_moments_of_equicorrelated_variables(size, rho, limit):
    """Plain and tilted proposals: 12 rows above 2 have probability 1e-7."""
    lower, upper = np.full(size, limit), np.full(size, np.inf)
    x = draws(800, np.zeros(size), equicorrelated_cov(size, rho), lower, upper)
    exact = equicorrelated_moments(lower, upper, rho)
    assert_moments(x, exact.first, exact.second[0])


def test_the_bound_is_a_bound():
    """No weight of tilted draws exceeds it, and it is close: the largest is within a factor 3."""
    size = 8
    chol = np.linalg.cholesky(equicorrelated_cov(size, 0.5))
    scale = chol.diagonal()
    low, high = np.full(size, 1.0) / scale, np.full(size, np.inf)
    mixing = np.tril(chol, -1) / scale[:, None]
    tilt, bound = independent._saddle_point(mixing, low, high)
    rng = np.random.default_rng(0)
    z, log_weight = np.empty((size, 20_000)), np.zeros(20_000)
    for k in range(size):
        shift = mixing[k, :k] @ z[:k] + tilt[k]
        # By scipy's truncated normal, apart from the package's own.
        z[k] = truncnorm.rvs(low[k] - shift, np.inf, size=20_000, random_state=rng) + tilt[k]
        log_weight += norm.logsf(low[k] - shift) - tilt[k] * (z[k] - 0.5 * tilt[k])
    assert log_weight.max() <= bound


def test_rows_that_nearly_contradict_each_other():
    """40 of correlation .999, every other one above 0 and the rest below."""
    signs = np.where(np.arange(40) % 2, 1.0, -1.0)
    cov = equicorrelated_cov(40, 0.999) * signs * signs[:, None]
    x = draws(3, np.zeros(40), cov, np.zeros(40), np.full(40, np.inf))
    assert (x > 0).all()


@pytest.mark.parametrize("gives_up", ["_PLAIN", "_NEWTON_STEPS"])
def test_none_when_all_is_rejected(monkeypatch, gives_up):
    monkeypatch.setattr(independent, "_PLAIN", ())
    monkeypatch.setattr(independent, "_TILTED", ())
    if gives_up == "_NEWTON_STEPS":
        monkeypatch.setattr(independent, "_NEWTON_STEPS", 0)
    args = np.zeros(3), equicorrelated_cov(3, 0.5), np.full(3, 1.0), np.full(3, np.inf)
    assert draw_by_rejection(*args, np.random.default_rng(0)) is None
