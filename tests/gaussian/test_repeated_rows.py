"""Rows that repeat: against quadrature over the one coordinate that they share.

Equicorrelated rows of variance 1 are c rho^.5 + e (1 - rho)^.5 with one c: kinds of rows of one
group, whose probability and moments `oracles` has for any number of them.
"""

import numpy as np
import pytest
from oracles import equicorrelated_log_prob

from pymc_skewgp._gaussian.coordinates import RepeatedRowsSampler, RowKinds

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
