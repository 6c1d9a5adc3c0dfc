"""Independent draws of the unified skew-normal distribution."""

import numpy as np
import pytest

from pymc_skewgp import SUN
from pymc_skewgp._sun.parameters import independent_sun_draws

SUNS = {
    "normal": SUN([1.0, -1.0], [[1.0, 0.5], [0.5, 2.0]], np.zeros((2, 0)), [], np.zeros((0, 0))),
    "one": SUN([1.0, -1.0], [[1.0, 0.5], [0.5, 2.0]], [[0.9], [0.6]], [-0.5], [[2.0]]),
    "two": SUN(
        [0.0, 3.0],
        [[1.0, -0.3], [-0.3, 0.5]],
        [[0.5, -0.4], [0.2, 0.7]],
        [-1.0, 0.5],
        [[1.0, 0.3], [0.3, 1.0]],
    ),
}


@pytest.mark.parametrize("name", SUNS)
def test_moments(name):
    sun, n = SUNS[name], 60_000
    z = independent_sun_draws(sun.parameters, n, np.random.default_rng(1))
    sd = np.sqrt(sun.cov().diagonal())  # exact for s <= 2
    # Five standard errors, nine numbers: 5e-6. Fourth moments are within a third of the normal's.
    assert (np.abs(z.mean(axis=0) - sun.mean()) < 5 * sd / np.sqrt(n)).all()
    error = np.sqrt(1.3 * (np.outer(sd, sd) ** 2 + sun.cov() ** 2) / n)
    assert (np.abs(np.cov(z.T) - sun.cov()) < 5 * error).all()
    third = (((z - sun.mean()) / sd) ** 3).mean(axis=0)
    assert (np.abs(third - sun.skew()) < 5 * np.sqrt(25.0 / n)).all()


def test_draws_are_independent_of_each_other():
    sun, k = SUNS["two"], 16
    rng = np.random.default_rng(2)
    means = np.array(
        [independent_sun_draws(sun.parameters, k, rng).mean(axis=0) for _ in range(800)]
    )
    exact = sun.cov().diagonal() / k
    # The relative standard error of a variance of 800 is .05: 4.5 of them, 7e-6 each.
    assert (np.abs(means.var(axis=0, ddof=1) / exact - 1.0) < 4.5 * 0.05 * 1.05).all()
