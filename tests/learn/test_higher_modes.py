"""Importance sampling that begins in a minor mode of the posterior finds the one with the mass."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from pymc_skewgp._learn.averaging.integration import Run, _by_importance, _from_every_mode
from pymc_skewgp._learn.averaging.problem import Mode
from pymc_skewgp._learn.averaging.settings import ImportanceSettings, IntegrationSettings, Stages
from pymc_skewgp._learn.coordinates import Point, Value

# Twelve nats higher, as narrow as the minor mode, and four of its standard deviations away.
MINOR, MAJOR = np.zeros(3), np.array([4.0, 0.0, 0.0])
LOG_INTEGRAL = np.log(1.0 + np.exp(12.0))


class TwoModes:
    """Log density of the two, with its gradient; counted as `Evaluations` does."""

    count = 0

    def __call__(self, point):
        distances = np.array([point.x - MINOR, point.x - MAJOR])
        logs = -0.5 * (distances**2).sum(axis=1) + [0.0, 12.0] - 1.5 * np.log(2.0 * np.pi)
        total = np.logaddexp(*logs)
        return Value(total, total, -np.exp(logs - total) @ distances)

    def values(self, points):
        found = np.array([self(point).total for point in points])
        return found, found


def test_the_mode_with_the_mass():
    bounds = SimpleNamespace(bounds=lambda x, half_width: [(-20.0, 20.0)] * x.size)
    problem = SimpleNamespace(
        objective=SimpleNamespace(coordinates=bounds), prior_draws=lambda pattern, rng: None
    )
    # Its own height, and Laplace's integral of it.
    minor = Mode(Point(MINOR), np.eye(3), 0.0, stats.multivariate_normal(np.zeros(3)).logpdf(MINOR))
    settings = IntegrationSettings(importance=ImportanceSettings(n_points=96, enough=64))
    rng = np.random.default_rng(0)
    run = Run(problem, TwoModes(), settings, rng, Stages(progressbar=False))
    found, modes = _from_every_mode(_by_importance, run, [minor])
    assert found.accepted
    # The ascent stops within a hundredth of a nat of the mode.
    np.testing.assert_allclose(modes[0].point.x, MAJOR, atol=0.2)
    assert modes[0].log_mass == pytest.approx(12.0, abs=0.05)
    # Beyond five: 6 in 10 million.
    error = found.log_integral.std_error
    assert error < 0.1
    assert abs(found.log_integral.value - LOG_INTEGRAL) < 5.0 * error
