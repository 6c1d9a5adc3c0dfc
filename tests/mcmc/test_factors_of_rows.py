"""Trials that repeat in a chain: f at two places against a grid over its two values.

The first place has a label besides the trials, the second a value; x0, of a pseudo-point, is
positive.
"""

import numpy as np
import pytest
from scipy import stats
from scipy.special import log_ndtr, logsumexp

from pymc_skewgp._mcmc import site_chain as conjugate
from pymc_skewgp._mcmc.model import ConjugateModel
from pymc_skewgp._mcmc.site_chain import SiteChain
from pymc_skewgp._observations.observations import Observations, each_row
from pymc_skewgp._observations.sites import factors_of
from pymc_skewgp._sun.parameters import SunParameters

INF = np.inf
MU, SCALE = np.array([0.2, -0.1]), np.array([[1.2, 0.7], [0.7, 0.9]])
CROSS, TRUNCATION = np.array([[0.5], [-0.1]]), np.array([0.1])
# Successes and failures at each place, a label at the first one, and a value of noise .6 at the
# second; a kind without rows among them.
A = np.array([[1.0, 0], [1, 0], [0, 1], [0, 1], [1, 0], [0, 1]])
LOWER = np.array([0, -INF, 0, -INF, -INF, 0])
UPPER = np.array([INF, 0, INF, 0, 0.3, 0])
VALUE = np.array([np.nan] * 5 + [0.4])
NOISE = np.array([1, 1, 1, 1, 1, 0.36])
COUNTS = np.array([150.0, 90.0, 0.0, 40.0, 1.0, 1.0])


def observations(kinds):
    return Observations(
        A[kinds], np.zeros(len(kinds)), *(x[kinds] for x in (NOISE, LOWER, UPPER, VALUE))
    )


def prior(mixed):
    if mixed:
        return SunParameters(MU, SCALE, CROSS, TRUNCATION, np.eye(1))
    return SunParameters(MU, SCALE, np.zeros((2, 0)), np.zeros(0), np.zeros((0, 0)))


def model_of(mixed):
    """Trials and label as factors of f at their place, the value as it is."""
    kinds = np.array([0, 1, 3, 4] if mixed else [0, 1, 3])
    unit = np.where(A[kinds, 0] > 0, 0, 1)
    first = np.array([0, 2])
    sites = factors_of(observations(kinds), COUNTS[kinds], unit, first)
    value = observations(np.array([5] if mixed else [], dtype=int))
    return ConjugateModel(prior(mixed), value, sites=sites)


def exact(mixed):
    """Mean and covariance of f."""
    step = np.linspace(-3.0, 3.0, 801)
    f = np.stack(np.meshgrid(step, step, indexing="ij"), -1).reshape(-1, 2)
    log_p = stats.multivariate_normal(MU, SCALE).logpdf(f)
    log_p += 150 * log_ndtr(f[:, 0]) + 90 * log_ndtr(-f[:, 0]) + 40 * log_ndtr(-f[:, 1])
    if mixed:
        log_p += log_ndtr(0.3 - f[:, 0]) + stats.norm(f[:, 1], 0.6).logpdf(0.4)
        slope = np.linalg.solve(SCALE, CROSS[:, 0])
        sd = np.sqrt(1.0 - slope @ CROSS[:, 0])
        log_p += log_ndtr((TRUNCATION[0] + (f - MU) @ slope) / sd)
    p = np.exp(log_p - logsumexp(log_p))
    mean = p @ f
    return mean, (f - mean).T @ ((f - mean) * p[:, None])


def draws(mixed, refreshed, n=6000):
    """A chain: parameters that are fixed, or new ones, equal to the old, at every step."""
    rng = np.random.default_rng(5)
    sampler = SiteChain(8)
    model, state = model_of(mixed), conjugate.init(np.zeros(2))
    found, accepted = [], []
    for _ in range(n):
        now = model._replace() if refreshed else model
        state, info = sampler.step(state, now, rng)
        found.append(state.f)
        accepted.append(info.stats["accept"])
    return np.array(found), np.mean(accepted)


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("refreshed", [False, True])
def test_posterior(mixed, refreshed):
    n = 700 if refreshed else 6000
    f, accept = draws(mixed, refreshed, n)
    mean, cov = exact(mixed)
    sd = np.sqrt(cov.diagonal())
    # Draws are all but independent. Six numbers within four standard errors: a false alarm once in
    # 2500 seeds; the error of a variance is sqrt(2 / n) of it, up to the skewness.
    np.testing.assert_allclose((f.mean(axis=0) - mean) / sd, 0.0, atol=4.5 / np.sqrt(n))
    np.testing.assert_allclose(
        (np.cov(f.T) - cov) / np.outer(sd, sd), 0.0, atol=5.0 * np.sqrt(2.0 / n)
    )
    assert accept > 0.9


def test_each_row():
    """What samplers without means are given."""
    rows = each_row(observations(np.arange(6)), COUNTS)
    assert rows.n_rows == 282
    np.testing.assert_array_equal(
        rows.of(np.array([5.0, 7.0]))[[0, 239, 240, 279, 280, 281]], [5, 5, 7, 7, 5, 7]
    )
    assert np.isneginf(rows.lower).sum() == 90 + 40 + 1
