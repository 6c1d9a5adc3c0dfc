"""The search from a part of the data to all of them, on hills whose tops are known."""

import numpy as np
import pytest

from pymc_skewgp._learn.fit_report import Journal
from pymc_skewgp._learn.objective import Value
from pymc_skewgp._learn.search import search

TOPS = np.array([[-3.0, 0.0], [3.0, 1.0]])
BOUNDS = [(-7.0, 7.0), (-7.0, 7.0)]


class Hills:
    """Two hills, log of a mixture of Gaussians, that stand so far apart that their tops stay."""

    def __init__(self, heights):
        self.heights = np.array(heights)

    def by_ep(self, x, pattern):
        away = x - TOPS
        logs = self.heights - (away**2).sum(axis=1)
        value = np.logaddexp.reduce(logs)
        return Value(value, value, -2.0 * np.exp(logs - value) @ away)

    def by_twisting(self, x, pattern, n_draws, seed):
        raise AssertionError("not asked for")


@pytest.mark.parametrize("heights", [(0.0, 1.0), (1.0, 0.0)])
@pytest.mark.parametrize("patterns", [[()], [(0,), (1,)]])
def test_the_runner_up_of_a_part_may_be_the_best_of_all(heights, patterns):
    objective, part = Hills(heights), Hills([0.5, 0.0])
    starts = [np.array([-1.0, 0.5]), np.array([1.5, 0.5])]
    with Journal(objective, progressbar=False) as journal:
        found = search(
            objective,
            (part, 0.5),
            patterns,
            starts,
            BOUNDS,
            journal,
            method="ep",
            n_draws=1,
            seed=0,
            curved=False,
        )
    higher = int(np.argmax(heights))
    # Climbs end at gains of 2e-4 nats: half the curvature of 2 times .014 squared.
    assert np.abs(found.top.x - TOPS[higher]).max() < 0.02
    assert abs(found.top.value - heights[higher]) < 1e-3
