"""The correction of EP's evidence by exact ones at points, some of them several times."""

import numpy as np
import pytest

from pymc_skewgp._learn.averaging.exact_points import ExactPoints
from pymc_skewgp._learn.point import Point
from pymc_skewgp._posterior.draws_with_evidence import DrawsWithEvidence


def corrections(copies, sd, own, runs=400, seed=0):
    """Of points as often as `copies` says, with log-normal ratios of mean one."""
    rng = np.random.default_rng(seed)
    n = len(copies)
    points = [Point(np.array([float(u)])) for u in range(n)]
    found = [DrawsWithEvidence(0.0, own, 1.0, np.zeros((1, 1)))] * n
    entries = np.repeat(np.arange(n), copies)
    ratios = sd * rng.standard_normal((runs, n)) - 0.5 * sd**2
    made = [ExactPoints(entries, points, log_ratio, found).correction() for log_ratio in ratios]
    return np.array([[c.value, c.std_error] for c in made]).T


@pytest.mark.parametrize(
    "copies",
    [[1] * 256, [16] * 16, [64] * 4, [100] + [4] * 39],
    ids=["none", "sixteen", "sixty-four", "unequal"],
)
def test_copies_of_a_point_share_one_error(copies):
    """The root mean square of the standard errors is the standard deviation over 400 runs."""
    values, errors = corrections(copies, 0.3, 0.0)
    # The standard deviation of 400 runs has a relative error of 4 %, the errors one of 3 % at four
    # points: five of these together. The error that counts copies is wrong by a factor of four.
    assert np.sqrt(np.mean(errors**2)) / values.std() == pytest.approx(1.0, abs=0.25)


def test_no_error_is_less_than_that_of_the_single_points():
    """Two points whose ratios agree by chance."""
    values, errors = corrections([8, 8], 0.1, 0.1)
    assert errors.min() > 0.97 * 0.1 / np.sqrt(2.0)
    assert values.std() == pytest.approx(0.1 / np.sqrt(2.0), rel=0.15)
