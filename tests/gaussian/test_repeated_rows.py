"""Rows that repeat: against quadrature over the one coordinate that they share.

Equicorrelated rows of variance 1 are c rho^.5 + e (1 - rho)^.5 with one c: kinds of rows of one
group, whose probability and moments `oracles` has for any number of them.
"""

import numpy as np
import pytest
from oracles import equicorrelated_log_prob, equicorrelated_moments
from scipy.stats import norm

from pymc_skewgp._gaussian.coordinates import RepeatedRowsSampler, RowKinds
from pymc_skewgp._gaussian.covariance import LowRankCovariance, RepeatedCovariance
from pymc_skewgp._gaussian.ep import fit_ep

INF = np.inf
# Above, below and between: limits and how many.
MIXED = [(-0.2, INF, 120), (-INF, -0.2, 60), (-0.5, 0.7, 20)]
ONE_SIDED = [(-INF, -0.3, 300)]


def kinds_of(limits, rho):
    low, high, count = (np.array(x, dtype=float) for x in zip(*limits, strict=True))
    factor, noise = np.full((low.size, 1), np.sqrt(rho)), np.full(low.size, 1.0 - rho)
    return RowKinds(factor, noise, low, high, count, np.zeros(low.size, dtype=np.intp))


def sampler_of(limits, rho):
    return RepeatedRowsSampler(kinds_of(limits, rho))


def each(limits):
    low = np.concatenate([np.full(n, low) for low, _, n in limits])
    return low, np.concatenate([np.full(n, high) for _, high, n in limits])


def test_ep_is_that_of_all_rows():
    kinds = kinds_of(MIXED, 0.6)
    cov = RepeatedCovariance(kinds.noise, kinds.factor, kinds.count)
    found = fit_ep(cov, kinds.lower, kinds.upper, tol=1e-9, count=kinds.count)
    low, high = each(MIXED)
    whole = LowRankCovariance(np.full(200, 0.4), np.full((200, 1), np.sqrt(0.6)))
    expected = fit_ep(whole, low, high, tol=1e-9)
    first = [0, 120, 180]
    np.testing.assert_allclose(found.tau, expected.tau[first], rtol=1e-7)
    np.testing.assert_allclose(found.nu, expected.nu[first], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.mean, expected.mean[first], rtol=1e-6, atol=1e-9)
    assert found.log_prob == pytest.approx(expected.log_prob, abs=1e-7)


@pytest.mark.parametrize("limits", [MIXED, ONE_SIDED], ids=["mixed", "one-sided"])
@pytest.mark.parametrize("rho", [0.3, 0.9])
def test_probability_and_its_error(limits, rho):
    """20 runs: an error over its standard error is beyond 4 once in a thousand or less often."""
    exact = equicorrelated_log_prob(*each(limits), rho)
    sampler = sampler_of(limits, rho)
    for seed in range(20):
        estimate = sampler.coordinates(512, np.random.default_rng(seed), goal="draws").log_prob
        assert abs(estimate.value - exact) < 4.5 * estimate.std_error
        assert estimate.std_error < 0.1


@pytest.mark.parametrize("rho", [0.3, 0.9])
def test_moments_of_the_coordinate(rho):
    """Two of them, from those of the mean of all rows, which c is Gaussian given.

    4096 weighted draws, errors of their own spread, five of them.
    """
    limits = MIXED
    result = sampler_of(limits, rho).coordinates(4096, np.random.default_rng(1), goal="draws")
    weights = np.exp(result.log_weights - result.log_weights.max())
    weights /= weights.sum()
    c, n = result.u[0], 200
    moments = equicorrelated_moments(*each(limits), rho)
    gain = np.sqrt(rho) * n / (1.0 - rho + n * rho)
    first = gain * moments.first.mean()
    second = gain**2 * moments.second.mean() + (1.0 - rho) / (1.0 - rho + n * rho)
    for drawn, exact in ((c, first), (c**2, second)):
        error = np.sqrt(weights**2 @ (drawn - exact) ** 2)
        assert abs(weights @ drawn - exact) < 5 * error


def test_rows_without_noise():
    """Two coordinates; a third row, their difference, is above -.3: by a rule over both of them."""
    factor = np.array([[1.2, 0.0], [1.2, 0.0], [0.5, 0.9], [1.0, -1.0]])
    kinds = RowKinds(
        factor,
        np.array([1.0, 1.0, 1.0, 0.0]),
        np.array([0.0, -INF, 0.4, -0.3]),
        np.array([INF, 0.0, INF, INF]),
        np.array([70.0, 30.0, 150.0, 1.0]),
        np.array([0, 0, 1, 2]),
    )
    sampler = RepeatedRowsSampler(kinds)
    # By c_1 = z and the difference d = z - c_2 > -.3: smooth in both.
    z, d = np.linspace(-4, 4, 601), -0.3 + np.linspace(0, 8, 601)
    z, d = np.meshgrid(z, d, indexing="ij")
    log_density = norm.logpdf(z) + norm.logpdf(z - d)
    log_density += 70 * norm.logcdf(1.2 * z) + 30 * norm.logcdf(-1.2 * z)
    log_density += 150 * norm.logcdf(0.5 * z + 0.9 * (z - d) - 0.4)
    rule = np.full(601, 8 / 600)
    edge = rule.copy()  # Simpson's rule where the edge cuts
    edge[::2], edge[1::2] = 2 / 3 * edge[0], 4 / 3 * edge[1]
    edge[[0, -1]] /= 2
    mass = np.exp(log_density) * rule[:, None] * edge
    exact = np.log(mass.sum())
    mean = np.array([1.2 * z, 1.4 * z - 0.9 * d, d])
    mean = (mean * mass).sum(axis=(1, 2)) / mass.sum()
    for seed in range(10):
        result = sampler.coordinates(1024, np.random.default_rng(seed), goal="draws")
        assert abs(result.log_prob.value - exact) < 4.5 * result.log_prob.std_error
        assert result.log_prob.std_error < 0.01
    weights = np.exp(result.log_weights - result.log_weights.max())
    weights /= weights.sum()
    difference = factor[3] @ result.u
    assert difference.min() > -0.3
    off = difference - mean[2]
    assert abs(weights @ off) < 5 * np.sqrt(weights**2 @ off**2)


def test_tempering_where_the_target_is_cut_off():
    """A prior of variance 100 and 300 rows all below their limit: half of a Gaussian."""
    factor, n = np.full((1, 1), 10.0), 300.0
    kinds = RowKinds(
        np.vstack([factor, factor]),
        np.ones(2),
        np.full(2, -INF),
        np.zeros(2),
        np.full(2, n / 2),
        np.array([0, 0]),
    )
    sampler = RepeatedRowsSampler(kinds)
    exact = equicorrelated_log_prob(np.full(300, -INF), np.zeros(300), 100 / 101)
    for goal in ("draws", "probability"):
        estimate = sampler.coordinates(1024, np.random.default_rng(3), goal=goal).log_prob
        assert abs(estimate.value - exact) < 4.5 * estimate.std_error
