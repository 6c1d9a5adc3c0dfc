"""Chains through indicators go from mode to mode, as often as they should.

Those under factors that are not log-concave are in `test_several_modes`.
"""

import numpy as np
import pytest
from mcmc_models import NO_ROWS, normal_prior
from site_oracles import Logit

from pymc_skewgp._mcmc import site_chain as conjugate
from pymc_skewgp._mcmc.augmentation import ConjugateModel, Placed, StudentTNoise
from pymc_skewgp._mcmc.site_chain import ConjugateSampler
from pymc_skewgp._mcmc.site_target import ModeJumps, SiteTarget
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._observations.sites import Sites


def test_a_chain_through_indicators():
    """Student-t noise is normal given a variance for each value: these alone keep f at one line."""
    x = np.concatenate([np.linspace(-1.0, 1.0, 20)] * 2)
    y = np.repeat([1.0, -1.0], 20) + 0.0 * x
    cov = 4.0 * np.exp(-0.5 * ((x[:, None] - x) / 3.0) ** 2) + 1e-6 * np.eye(40)
    prior = normal_prior(np.zeros(40), cov)
    nowhere = np.full(40, np.inf)
    data = Observations(None, np.zeros(40), np.full(40, 0.01), -nowhere, nowhere, y)
    model = ConjugateModel(prior, data, (Placed(StudentTNoise(np.full(40, 2.0)), slice(0, 40)),))
    rng, path = np.random.default_rng(4), []
    chain = ConjugateSampler(lambda target: None, 1)
    state = conjugate.init(np.ones(40))
    for _ in range(400):
        state, _ = chain.step(state, model, rng)
        path.append(state.f[0])
    above = np.array(path) > 0
    assert np.count_nonzero(np.diff(above)) > 40  # without jumps there is none
    # y -> -y maps the data to themselves. Some 80 independent draws: an error of .056; five of it.
    assert above.mean() == pytest.approx(0.5, abs=0.28)


def test_log_concave_factors_pay_nothing():
    y, known = np.array([0.0, 1.0, 1.0]), Logit()
    log_prob, slopes = (lambda eta: known.log_likelihood(y, eta), lambda eta: known.slopes(y, eta))
    sites = Sites(np.eye(2)[[0, 0, 1]], np.zeros(3), log_prob, slopes)
    model = ConjugateModel(normal_prior(np.zeros(2), np.eye(2)), NO_ROWS, sites=sites)
    target = SiteTarget(model, np.zeros(0))
    jumps, rng = ModeJumps(), np.random.default_rng(3)
    c = np.zeros(2)
    jumps.learn(c, target)
    before = rng.bit_generator.state
    assert jumps.step(c, target, 8, rng) is c
    assert rng.bit_generator.state == before
