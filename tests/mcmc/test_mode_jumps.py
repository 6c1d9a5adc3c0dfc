"""Chains under factors that are not log-concave go from mode to mode, as often as they should.

Those that move hyperparameters too are in `test_several_modes`.
"""

import numpy as np
import pytest
from mcmc_models import NO_ROWS, normal_prior
from site_oracles import Logit, TwoNormals, posterior_of_coordinates

from pymc_skewgp._mcmc import site_chain as conjugate
from pymc_skewgp._mcmc.augmentation import ConjugateModel, Placed, StudentTNoise
from pymc_skewgp._mcmc.site_chain import ConjugateSampler, SiteChain
from pymc_skewgp._mcmc.site_target import ModeJumps, SiteTarget
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._observations.sites import Sites

Y = np.array([1.4, 1.6, 1.5, 1.45, 1.7, 1.3])
MIXTURE = TwoNormals()
AT = np.array([0, 0, 0, 1, 1, 1])


def model_of(sd, likelihood=MIXTURE, y=Y):
    """Two values of f, far from independent, each seen by three sites."""
    cov = sd**2 * np.array([[1.0, 0.8], [0.8, 1.0]])
    design = np.eye(2)[AT]
    sites = Sites(
        design,
        np.zeros(y.size),
        lambda eta: likelihood.log_likelihood(y, eta),
        lambda eta: likelihood.slopes(y, eta),
    )
    return ConjugateModel(normal_prior(np.zeros(2), cov), NO_ROWS, sites=sites)


def exact(sd):
    features = sd * np.linalg.cholesky([[1.0, 0.8], [0.8, 1.0]])[AT]
    return posterior_of_coordinates(features, lambda f: MIXTURE.log_likelihood(Y, f.T).sum(axis=-1))


def test_a_chain_at_given_hyperparameters():
    state, model = conjugate.init(np.zeros(2)), model_of(1.5)
    rng, chain, path = np.random.default_rng(1), SiteChain(8), []
    for _ in range(500):
        state, _ = chain.step(state, model, rng)
        path.append(state.f)
    path = np.array(path)
    known = exact(1.5)
    above = path[:, 0] > 1.5  # between the modes at 0 and 3
    assert np.count_nonzero(np.diff(above)) > 37  # without jumps there are eight
    # Some 95 independent draws: errors of .1 and 7.5 % of the deviation; four of them.
    assert path[:, 0].mean() == pytest.approx(known.mean[0], abs=0.4)
    assert path[:, 0].std() == pytest.approx(known.sd[0], rel=0.3)


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
    target = SiteTarget(model_of(1.5, Logit(), (Y > 1.45).astype(float)), np.zeros(0))
    jumps, rng = ModeJumps(), np.random.default_rng(3)
    c = np.zeros(2)
    jumps.learn(c, target)
    before = rng.bit_generator.state
    assert jumps.step(c, target, 8, rng) is c
    assert rng.bit_generator.state == before
