"""SkewGPPreference: the posterior behind it, weights, its errors."""

import numpy as np
import pymc as pm
import pytest

import pymc_skewgp as sg
from pymc_skewgp import SkewGPPreference

RNG = np.random.default_rng(1)
ITEMS = RNG.uniform(-2.0, 2.0, (12, 1))
UTILITY = -3.0 * (ITEMS[:, 0] - 0.5) ** 2
PAIRS = np.array([RNG.choice(12, 2, replace=False) for _ in range(40)])
NOISY = UTILITY[PAIRS] + RNG.normal(size=PAIRS.shape)
DUELS = np.where((NOISY[:, 0] > NOISY[:, 1])[:, None], PAIRS, PAIRS[:, ::-1])
NEW = np.linspace(-2.0, 2.0, 9)[:, None]


def fast(**options):
    return SkewGPPreference(**{"n_restarts": 0, "random_state": 0, **options})


@pytest.fixture(scope="module")
def fitted():
    return fast().fit(ITEMS, DUELS)


def test_forecasts_are_those_of_the_posterior(fitted):
    point = fitted.hyperparameters_.point
    gp = sg.SkewGP(cov_func=point["eta"] ** 2 * pm.gp.cov.ExpQuad(1, ls=point["ls"]))
    likelihood = sg.likelihoods.Preference()
    direct = gp.posterior(ITEMS, DUELS, likelihood=likelihood, n_draws=4096)
    new = direct.predict(NEW, draws=0)["predictions_summary"]
    # Means of 1024 and of 4096 draws, nine numbers each.
    error = 5 * 2.5 * new["f_mean_se"] + 1e-6
    assert (np.abs(fitted.predict(NEW) - new["f_mean"]) < error).all()
    expected = direct.preference_probability(NEW, NEW[::-1])
    found = fitted.probability(NEW, NEW[::-1])
    assert (np.abs(found.value - expected.value) < 5 * 2.5 * expected.std_error + 1e-6).all()
    # One of two items wins.
    back = fitted.probability(NEW[::-1], NEW)
    np.testing.assert_allclose(found.value + back.value, 1.0, atol=1e-9)


@pytest.mark.parametrize(
    ("options", "duels", "message"),
    [
        ({}, [[0, 0]], "a comparison compares different items"),
        ({}, [[0, 12]], "12"),
        ({}, [[0, 1, 1]], "ties"),
        ({"noise": "none"}, DUELS, "noise must be"),
    ],
)
def test_bad_input(options, duels, message):
    with pytest.raises(ValueError, match=message):
        fast(**options).fit(ITEMS, duels)


def test_weights_are_repeated_comparisons():
    items = np.linspace(0.0, 3.0, 4)[:, None]
    duels = np.array([[1, 0], [2, 1], [2, 3], [0, 1]])
    weights = np.array([4, 3, 2, 0])
    weighted = SkewGPPreference(n_restarts=0, random_state=0).fit(items, duels, weights)
    repeated = SkewGPPreference(n_restarts=0, random_state=0)
    repeated.fit(items, duels[np.repeat(np.arange(4), weights)])
    # One evidence, maximised to its last hundredth of a nat; and the Monte Carlo error of each.
    one, other = (x.log_marginal_likelihood_.value for x in (weighted, repeated))
    assert one == pytest.approx(other, abs=0.03)
    np.testing.assert_allclose(weighted.predict(items), repeated.predict(items), atol=0.1)


def test_weights_that_mean_nothing():
    """Of an item that keeps its noise; and parts of a comparison."""
    items, duels = [[0.0], [1.0]], [[0, 1]]
    with pytest.raises(ValueError, match="comes out the same"):
        SkewGPPreference(noise="item").fit(items, duels, [2])
    with pytest.raises(ValueError, match="sample_weight must be whole numbers"):
        SkewGPPreference().fit(items, duels, [0.5])
