"""The log evidence at many points from few of them."""

from types import SimpleNamespace

import numpy as np
import pytest

from pymc_skewgp._learn.averaging.kriging import KrigedEvidence
from pymc_skewgp._learn.averaging.modes import Mode
from pymc_skewgp._learn.coordinates import Point


class Counted:
    """Evaluations of a function of rows."""

    def __init__(self, function):
        self.function, self.count = function, 0

    def values(self, points):
        self.count += len(points)
        found = self.function(np.array([point.x for point in points]))
        return found, found


def smooth(x):
    """With a bend in each coordinate, a wave, and a steep side."""
    bends = -1.5 * x**2 - 0.7 * np.logaddexp(0.0, 2.0 * x) + 0.3 * np.sin(1.5 * x)
    return bends.sum(axis=1) - np.exp(0.8 * x[:, 0])


def asked(function, n_coordinates, count=160):
    """Evaluations, values at points about a mode and far out, right ones, and the log prior."""
    rng, start = np.random.default_rng(n_coordinates), np.full(n_coordinates, -0.3)
    x = rng.normal(-0.3, 0.6, (count, n_coordinates))
    x[::10] = rng.normal(0.0, 3.0, x[::10].shape)
    log_prior = -0.1 * np.square(x).sum(axis=1)
    points, evaluate = [Point(row, ()) for row in x], Counted(function)
    mode = Mode(Point(start, ()), 0.25 * np.eye(n_coordinates), 0.0)
    kriged = KrigedEvidence(evaluate, SimpleNamespace(at=lambda _: log_prior), mode)
    total, value = kriged(points)
    np.testing.assert_array_equal(total, value + log_prior)
    return evaluate.count, value, function(x), log_prior


@pytest.mark.parametrize(("n_coordinates", "most"), [(1, 20), (2, 32), (3, 48)])
def test_few_are_computed_of_a_smooth_one(n_coordinates, most):
    count, value, right, log_prior = asked(smooth, n_coordinates)
    assert count <= most
    below = (right + log_prior).max() - right - log_prior
    high = below < 4.0
    # The standard error that will do is .05 at the top, .37 four nats below: four of these.
    assert (np.abs(value - right)[high] < 0.2 * np.exp(0.5 * below[high])).all()
    assert (value + log_prior)[~high].max() < (right + log_prior).max() - 3.0


def test_all_are_computed_of_a_rough_one():
    def rough(x):
        return smooth(x) + np.sin(40.0 * x[:, 0])

    count, value, right, _ = asked(rough, 2)
    assert count > 150
    np.testing.assert_allclose(value, right, atol=0.2)


def test_all_are_computed_where_there_is_an_edge():
    def ends(x):
        return np.where(x[:, 0] > 0.5, -np.inf, smooth(x))

    count, value, right, _ = asked(ends, 1)
    assert count == 160
    np.testing.assert_array_equal(value, right)
