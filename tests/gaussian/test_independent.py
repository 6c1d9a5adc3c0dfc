"""Draws of truncated Gaussians that are independent of each other, and right."""

import numpy as np
import pytest
from oracles import equicorrelated_cov, equicorrelated_moments

from pymc_skewgp._gaussian import independent
from pymc_skewgp._gaussian.covariance import DenseCovariance
from pymc_skewgp._gaussian.escalation import SamplerSettings
from pymc_skewgp._gaussian.independent import independent_draws

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
        (2, 0.8, 0.0, INF),
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
