"""Errors of averages over draws that depend on each other: as large as what they are off by.

Of each kind there are 200 sets of four chains, each entry a set. A root mean square of 200 numbers
is known to 5 %; what it is compared with, the mean of claimed errors, is biased by some per cent.
So ratios between .75 and 1.3 have false alarms below 1e-6.
"""

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import norm

from pymc_skewgp._posterior.output import (
    averages,
    averages_by_batches,
    batch_numbers,
    deviation,
    highest_density,
    summary_of_draws,
)

SETS, CHAINS, DRAWS, RHO = 200, 4, 500, 0.6


@pytest.fixture(scope="module")
def draws():
    """Standard normal, each .6 times the one before and noise: (chain, draw, set)."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((CHAINS, DRAWS + 100, SETS)) * np.sqrt(1.0 - RHO**2)
    return lfilter([1.0], [1.0, -RHO], noise, axis=1)[:, 100:]


def ratio(value, error, exact):
    return np.sqrt(np.mean((value - exact) ** 2) / np.mean(error**2))


def test_moments_and_quantiles(draws):
    found = summary_of_draws("x", draws, np.array([0.1, 0.5]), skewness=True)
    exact = {"x_mean": 0.0, "x_sd": 1.0, "x_skewness": 0.0}
    exact["x_quantile"] = norm.ppf([[0.1], [0.5]])
    for name, value in exact.items():
        assert 0.75 < ratio(found[name], found[f"{name}_se"], value) < 1.3, name
    # The error of a mean has a closed form.
    n = CHAINS * DRAWS
    known = np.sqrt((1.0 + RHO) / (1.0 - RHO) / n)
    np.testing.assert_allclose(found["x_mean_se"].mean(), known, rtol=0.1)


def test_a_mixture_has_the_variance_within_and_between(draws):
    rng = np.random.default_rng(1)
    inside = rng.uniform(0.5, 1.5, draws.shape)
    found = deviation("y", inside, draws) | averages("y_mean", draws)
    exact = np.sqrt(1.0 + 1.0 + 1.0 / 12.0)  # of the means, and E s^2
    assert 0.75 < ratio(found["y_sd"], found["y_sd_se"], exact) < 1.3


def test_parts_of_chains(draws):
    batch = batch_numbers(CHAINS, DRAWS).ravel()
    flat = draws.reshape(-1, SETS) > 0.5
    order = np.random.default_rng(2).permutation(flat.shape[0])
    groups = [order[order % 3 == i] for i in range(3)]

    def parts():
        for group in groups:
            for b in np.unique(batch[group]):
                own = group[batch[group] == b]
                yield own, {"p": flat[own].mean(axis=0)}

    found = averages_by_batches(batch, parts())
    np.testing.assert_allclose(found["p"], flat.mean(axis=0), rtol=1e-12)
    # Parts of 31 draws: what they have in common with their neighbours is left out, some 5 %.
    assert 0.75 < ratio(found["p"], found["p_se"], norm.sf(0.5)) < 1.3


def test_shortest_intervals(draws):
    value, error = highest_density(draws, 0.8)
    # The error is rough, and rather too large than too small; it includes no bias.
    assert 0.3 < ratio(value, error, norm.ppf([[0.1], [0.9]])) < 1.5


def test_what_does_not_move_has_no_error():
    found = summary_of_draws("x", np.ones((2, 50, 3)), np.array([0.5]), skewness=True)
    for name in ("x_mean_se", "x_sd", "x_sd_se", "x_skewness_se", "x_quantile_se"):
        np.testing.assert_array_equal(found[name], 0.0)
