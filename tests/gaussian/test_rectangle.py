"""Log probabilities and draws for checked arguments: both limits pass through, in any form."""

import numpy as np
import pytest
from oracles import equicorrelated_cov

from pymc_skewgp._errors import LowEffectiveSampleWarning
from pymc_skewgp._gaussian.covariance import DenseCovariance
from pymc_skewgp._gaussian.escalation import GoalSettings, RectangleSampler, SamplerSettings
from pymc_skewgp._gaussian.truncated import (
    draws_by,
    lin_ess_draws_by,
    log_prob_rectangle,
    twisted_draws,
)

INF = np.inf


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
