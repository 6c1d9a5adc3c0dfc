"""Log probabilities and draws for checked arguments: both limits pass through, in any form."""

import numpy as np
import pytest
from oracles import brute_log_prob, equicorrelated_cov, equicorrelated_log_prob

from pymc_skewgp._errors import LowEffectiveSampleWarning
from pymc_skewgp._gaussian.covariance import DenseCovariance
from pymc_skewgp._gaussian.escalation import GoalSettings, RectangleSampler, SamplerSettings
from pymc_skewgp._gaussian.linalg import row_limits
from pymc_skewgp._gaussian.truncated import (
    draws_by,
    lin_ess_draws_by,
    log_orthant,
    log_prob_rectangle,
    twisted_draws,
)

INF = np.inf


def test_a_number_stands_for_all_rows():
    lower, upper = row_limits(-1, np.array([1.0, INF]), 2)
    np.testing.assert_array_equal(lower, [-1.0, -1.0])
    np.testing.assert_array_equal(upper, [1.0, INF])


def test_both_limits_count():
    n, rho = 8, 0.4
    lower, upper = np.full(n, -0.7), np.full(n, 1.1)
    exact = equicorrelated_log_prob(lower, upper, rho)
    estimate = log_prob_rectangle(equicorrelated_cov(n, rho), -0.7, 1.1, 1024, None, 0)
    # Student's t with 15 degrees of freedom: beyond 5 of them in 2e-4 of all seeds.
    assert abs(estimate.value - exact) < 5 * estimate.std_error


def test_rows_without_limits_are_dropped():
    cov = np.array([[1.5, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 0.8]])
    lower, upper = np.array([-INF, -INF, 0.1]), np.array([INF, 0.4, 2.0])
    estimate = log_prob_rectangle(cov, lower, upper, 64, None, 0)
    assert estimate.std_error == 0.0  # two rows are left: exact
    exact = brute_log_prob(lower[1:], upper[1:], cov[1:, 1:])
    assert estimate.value == pytest.approx(exact, abs=1e-11)  # the oracle is good to 1e-12


@pytest.mark.parametrize("n", [0, 3])
def test_without_limits_it_is_certain(n):
    estimate = log_prob_rectangle(np.eye(n), -INF, INF, 64, None, 0)
    assert estimate == (0.0, 0.0, 1.0, -INF)


def test_an_orthant_is_a_rectangle():
    cov, limits = equicorrelated_cov(5, 0.5), np.array([0.0, 0.3, INF, -0.2, 1.0])
    both = log_prob_rectangle(cov, np.full(5, -INF), limits, 256, None, 7)
    assert log_orthant(limits, cov, 256, 7) == both


def test_settings_are_handed_on():
    cov = equicorrelated_cov(6, 0.5)
    settings = SamplerSettings(draws=GoalSettings(2.0, 2.0))  # which no run reaches
    rng = np.random.default_rng(0)
    assert twisted_draws(DenseCovariance(cov), 0.0, INF, 256, rng).method == "twisted"
    drawn = twisted_draws(DenseCovariance(cov), 0.0, INF, 256, rng, settings=settings)
    assert drawn.method == "tempered"
    demanding = SamplerSettings(largest_se=1e-9, max_doubled=1)
    with pytest.warns(LowEffectiveSampleWarning, match="1e-09 wanted"):
        log_prob_rectangle(cov, 0.0, INF, 64, None, 0, demanding)


def test_one_sampler_serves_draws_and_chains():
    sampler = RectangleSampler(DenseCovariance(equicorrelated_cov(4, 0.5)), -0.2, 0.9)
    assert not sampler.fitted
    drawn = draws_by(sampler, 128, np.random.default_rng(1))
    first = sampler.first
    chains = lin_ess_draws_by(sampler, 60, np.random.default_rng(2), n_chains=7)
    assert sampler.first is first
    assert chains.n_chains == 6  # the largest number up to 7 that divides 60
    for draws in (drawn.draws, chains.draws):
        assert draws.min() >= -0.2
        assert draws.max() <= 0.9
