"""The search from a part of the data to all of them, on functions whose optima are known."""

import numpy as np
import pytest

from pymc_skewgp._learn.coordinates import Point, Value
from pymc_skewgp._learn.optimizers import EvaluationLog, SearchSettings
from pymc_skewgp._learn.search import Part, search

OPTIMA = np.array([[-3.0, 0.0], [3.0, 1.0]])
BOUNDS = [(-7.0, 7.0), (-7.0, 7.0)]
SETTINGS = SearchSettings(method="ep", hessian=False)


class TwoOptima:
    """Log of a mixture of two Gaussians, so far apart that each has its own optimum."""

    def __init__(self, heights, noise=0.0):
        self.heights, self.noise = np.array(heights), noise
        self.draws = []

    def by_ep(self, point):
        away = point.x - OPTIMA
        logs = self.heights - (away**2).sum(axis=1)
        value = np.logaddexp.reduce(logs)
        return Value(value, value, -2.0 * np.exp(logs - value) @ away)

    def by_twisting(self, point, n_draws, seed):
        self.draws.append(n_draws)
        return self.by_ep(point)._replace(noise=self.noise)


def searched(objective, part, starts, settings):
    with EvaluationLog(["a", "b"], progressbar=False) as log:
        return search(objective, part, starts, BOUNDS, settings, log), log


@pytest.mark.parametrize("heights", [(0.0, 1.0), (1.0, 0.0)])
@pytest.mark.parametrize("patterns", [[()], [(0,), (1,)]])
def test_the_second_best_of_a_part_may_be_the_best_of_all(heights, patterns):
    part = Part(TwoOptima([0.5, 0.0]), 0.5)
    vectors = [np.array([-1.0, 0.5]), np.array([1.5, 0.5])]
    starts = [Point(x, pattern) for pattern in patterns for x in vectors]
    found, _ = searched(TwoOptima(heights), part, starts, SETTINGS)
    higher = int(np.argmax(heights))
    # Ascents end at gains of 2e-4 nats: half the second derivative of 2 times .014 squared.
    assert np.abs(found.optimum.point.x - OPTIMA[higher]).max() < 0.02
    assert abs(found.optimum.value.total - heights[higher]) < 1e-3
    assert found.hessian is None


@pytest.mark.parametrize(("noise", "draws"), [(0.01, [100]), (0.3, [100, 800])])
def test_noisy_values_ask_for_more_draws(noise, draws):
    objective = TwoOptima([0.0, -9.0], noise)
    settings = SearchSettings(n_draws=100)
    found, log = searched(objective, None, [Point(OPTIMA[0] + 0.1)], settings)
    assert list(dict.fromkeys(objective.draws)) == draws
    assert found.optimum.value.noise == noise
    assert log.runs()["method"].values.tolist() == ["ep"] + ["twisted"] * len(draws)
    # Central differences of a quadratic are exact.
    np.testing.assert_allclose(found.hessian, 2.0 * np.eye(2), atol=1e-6)
