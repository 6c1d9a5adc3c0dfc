"""The correction of EP's evidence by exact ones at points, some of them several times."""

import warnings

import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy.special import ndtri

from pymc_skewgp import IntegrationWarning
from pymc_skewgp._gaussian.weights import Estimate
from pymc_skewgp._learn.averaging.average_process import warn_of
from pymc_skewgp._learn.averaging.integration import IMPORTANCE, Integral
from pymc_skewgp._learn.averaging.points import ExactPoints, WeightedPoints
from pymc_skewgp._learn.coordinates import Point
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


def test_each_draw_has_f_of_its_own():
    """A point that takes nearly all draws: those that lack are made there."""
    points = [Point(np.array([float(u)])) for u in range(4)]
    found = [
        DrawsWithEvidence(0.0, 0.0, 1.0, np.array([[10.0 * u], [10.0 * u + 1e-3]]))
        for u in range(4)
    ]
    exact = ExactPoints(np.arange(4), points, np.array([0.0, 5.0, 0.0, 0.0]), found)
    asked = {}

    def more(points, counts):
        asked.update({int(p.x[0]): n for p, n in zip(points, counts, strict=True)})
        return [
            10.0 * p.x[0] + 1.0 + np.arange(n)[:, None] / n
            for p, n in zip(points, counts, strict=True)
        ]

    equal = exact.equal_draws(2, 50, more, np.random.default_rng(0))
    assert np.unique(equal.f).size == 100
    np.testing.assert_array_equal(equal.f[..., 0] // 10, equal.point)
    wanted = np.bincount(equal.point.ravel(), minlength=4)
    assert asked == {u: n - 2 for u, n in enumerate(wanted) if n > 2}


def test_chains_of_few_points_look_alike_and_count_them():
    """R-hat is that of independent draws, and the error of a mean that of the different points."""
    means, errors, r_hats = [], [], []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        x = np.sort(rng.standard_normal(256))
        points = [Point(np.array([value])) for value in x]
        found = [DrawsWithEvidence(0.0, 0.0, 1.0, np.zeros((16, 1)))] * 256
        exact = ExactPoints(np.arange(256), points, np.zeros(256), found)
        equal = exact.equal_draws(4, 1000, lambda points, counts: [], rng)
        drawn = x[equal.point]
        r_hats.append(float(array_stats.rhat(drawn, chain_axis=0, draw_axis=1)))
        errors.append(float(array_stats.mcse(drawn, chain_axis=0, draw_axis=1, method="mean")))
        means.append(drawn.mean())
    # Chains by chance alone: 1.015 to 1.05.
    assert max(r_hats) < 1.01
    # A relative error of 5 % of the deviation of 200 means, and errors that vary by 10 %.
    assert np.sqrt(np.mean(np.square(errors))) / np.std(means) == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize(("sd", "said"), [(0.3, False), (1.3, True)])
def test_exact_evidences_that_are_poor_are_said_to_be(sd, said):
    """Log-normal ratios have a relative ESS of exp(-sd^2): .91, and .18 with a warning."""
    ratios = sd * ndtri((np.arange(400) + 0.5) / 400)
    points = [Point(np.array([float(u)])) for u in range(400)]
    found = [DrawsWithEvidence(0.0, 0.0, 1.0, np.zeros((1, 1)))] * 400
    exact = ExactPoints(np.arange(400), points, ratios, found)
    # The weights by EP's evidence are good.
    known = Estimate(0.0, 0.01, 0.9, 0.1)
    equal = WeightedPoints(np.zeros((1, 1)), *[np.zeros(1, int), [()], *[np.zeros(1)] * 3, [0]])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of(Integral(equal, known, IMPORTANCE, True, 1), exact, stacklevel=1)
    assert [x.category for x in caught] == [IntegrationWarning] * said
    assert all("far from the exact one" in str(x.message) for x in caught)
