"""Factors averaged over an effect of their own row."""

import numpy as np
from numpy.testing import assert_allclose
from scipy import stats

from pymc_skewgp._gaussian.blocks.functions import FunctionSites
from pymc_skewgp._gaussian.blocks.own_effects import AveragedSites

Y = np.array([0, 1, 4, 30])
CENTRE, VARIANCE = np.array([0.2, -0.3, 0.0, 0.0]), np.array([0.5, 1.0, 0.3, 0.0])


def averaged():
    """Counts, the last without an effect, and sites as near to them as EP's are."""
    none = np.zeros(4)

    def log_prob(eta):
        return stats.poisson.logpmf(Y, np.exp(eta))

    def slopes(eta):
        return Y - np.exp(eta), -np.exp(eta)

    whole = FunctionSites(log_prob, slopes, none, none, none + 1.0)
    tau = Y + 0.5
    return AveragedSites(whole, tau, tau * np.log(tau), CENTRE, VARIANCE)


def by_many_nodes(eta):
    """Log of the mean over the prior of the effect, and the effect's mean."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    effect = CENTRE + np.sqrt(VARIANCE) * nodes[:, None]
    p = stats.poisson.pmf(Y, np.exp(eta[:, None] + effect)) * weights[:, None]
    total = p.sum(axis=1)
    return np.log(total / weights.sum()), (p * effect).sum(axis=1) / total


ETA = np.stack([np.log(Y + 0.5) + off for off in (-0.5, 0.0, 0.6)])


def test_the_average_and_its_slopes():
    sites, every = averaged(), slice(None)
    # Eleven nodes of a ratio that is nearly constant.
    assert_allclose(sites.log_prob(every, ETA), by_many_nodes(ETA)[0], atol=2e-5)
    some = np.array([0, 2])
    assert_allclose(
        sites.some_log_prob(some, ETA[:, some]), by_many_nodes(ETA)[0][:, some], atol=2e-5
    )
    first, second = sites.slopes(every, ETA)
    ahead, behind = (by_many_nodes(ETA + step)[0] for step in (1e-3, -1e-3))
    # Central differences of 1e-3 are right to 1e-6, second ones to 1e-5.
    assert_allclose(first, (ahead - behind) / 2e-3, atol=3e-4)
    middle = by_many_nodes(ETA)[0]
    assert_allclose(second, (ahead - 2.0 * middle + behind) / 1e-6, atol=2e-3)


def test_effects_given_the_rest():
    eta = np.repeat(ETA[:, None], 4000, axis=1).reshape(-1, 4)
    drawn = averaged().drawn(eta, np.random.default_rng(0)).reshape(3, 4000, 4)
    off = drawn.mean(axis=1) - by_many_nodes(ETA)[1]
    # 12 means of 4000 independent draws: 1e-3 false alarms.
    assert (np.abs(off) <= 4.0 * drawn.std(axis=1) / np.sqrt(4000) + 1e-12).all()
