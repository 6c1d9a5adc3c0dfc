"""Searches: where they start, ascents of functions whose optima are known, parts of the data."""

import numpy as np
import pymc as pm
import pytest
from scipy.optimize import rosen, rosen_der

from pymc_skewgp._learn.coordinates import Point, Value
from pymc_skewgp._learn.estimator import log_volume
from pymc_skewgp._learn.optimizers import (
    EvaluationLog,
    OptimizerSettings,
    SearchSettings,
    maximize,
    newton,
)
from pymc_skewgp._learn.search import Part, random_batches, search
from pymc_skewgp._posterior.features import spread_rows

FREE = [(-np.inf, np.inf)] * 2
SETTINGS = OptimizerSettings()
ORIGIN, TWO = Point(np.zeros(2)), np.eye(2)


def quadratic(optimum, hessian):
    def function(point):
        slope = -hessian @ (point.x - optimum)
        value = 0.5 * (point.x - optimum) @ slope
        return Value(value, value, slope)

    return function


def counted(function):
    calls = []

    def wrapped(point):
        calls.append(point)
        return function(point)

    return wrapped, calls


def test_an_ascent_along_a_narrow_ridge():
    def rosenbrock(point):
        return Value(-rosen(point.x), -rosen(point.x), -rosen_der(point.x))

    found = maximize(rosenbrock, Point(np.array([-1.0, 1.0])), FREE, SETTINGS)
    assert found.converged
    # It stops at gains of 2e-4, on a ridge where that is a hundredth of the way.
    assert found.value.total > -2e-3
    np.testing.assert_allclose(found.point.x, [1.0, 1.0], atol=0.1)


@pytest.mark.parametrize("ascend", [maximize, lambda *x: newton(*x[:3], TWO, 5e-3)])
def test_an_ascent_to_a_bound(ascend):
    function = quadratic(np.array([3.0, 0.5]), TWO)
    found = ascend(function, ORIGIN, [(-1.0, 1.0)] * 2, SETTINGS)
    assert found.converged
    np.testing.assert_allclose(found.point.x, [1.0, 0.5], atol=1e-6)


def test_it_turns_back_where_there_is_no_value():
    inner = quadratic(np.array([0.5, 0.5]), np.diag([1.0, 40.0]))
    nothing = Value(-np.inf, -np.inf, np.zeros(2))

    def function(point):  # no value beyond 0.8, where a first long step would land
        return inner(point) if point.x.max() < 0.8 else nothing

    found = maximize(function, Point(np.array([-5.0, -1.0])), FREE, SETTINGS)
    np.testing.assert_allclose(found.point.x, [0.5, 0.5], atol=0.05)


def test_first_step_is_no_longer_than_asked_for():
    # A steep function in a wide box, where SciPy's own first step is the whole gradient.
    steep, seen = counted(quadratic(np.zeros(2), 1000.0 * TWO))
    start = Point(np.array([1.0, 0.5]))
    found = maximize(steep, start, [(-7.0, 7.0)] * 2, OptimizerSettings(first_step=0.25))
    assert np.linalg.norm(seen[2].x - start.x) == pytest.approx(0.25)  # after the start, twice
    np.testing.assert_allclose(found.point.x, 0.0, atol=1e-3)
    assert found.converged


def test_newton_ends_in_the_noise_of_the_values():
    """Values off by .3, gradients by .1, and known to be: a few evaluations are enough."""
    rng = np.random.default_rng(4)
    exact = quadratic(np.array([3.0, -2.0]), TWO)

    def noisy(point):
        found = exact(point)
        total = found.total + 0.3 * rng.normal()
        return Value(total, total, found.gradient + 0.1 * rng.normal(size=2), noise=0.3)

    function, calls = counted(noisy)
    found = newton(function, ORIGIN, FREE, TWO, 5e-3)
    assert found.converged
    # Steps of length 1 at most: three to get there, one or two more in the noise.
    assert len(calls) <= 7
    assert exact(found.point).total > -0.3


def test_newton_with_a_wrong_gradient():
    def function(point):
        value = -np.abs(point.x).sum()
        return Value(value, value, np.ones(2))

    found = newton(function, ORIGIN, FREE, TWO, 5e-3)
    assert not found.converged
    np.testing.assert_array_equal(found.point.x, np.zeros(2))


OPTIMA = np.array([[-3.0, 0.0], [3.0, 1.0]])


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
    log = EvaluationLog(["a", "b"])
    return search(objective, part, starts, [(-7.0, 7.0)] * 2, settings, log), log


@pytest.mark.parametrize("heights", [(0.0, 1.0), (1.0, 0.0)])
@pytest.mark.parametrize("patterns", [[()], [(0,), (1,)]])
def test_the_second_best_of_a_part_may_be_the_best_of_all(heights, patterns):
    part = Part(TwoOptima([0.5, 0.0]), 0.5)
    vectors = [np.array([-1.0, 0.5]), np.array([1.5, 0.5])]
    starts = [Point(x, pattern) for pattern in patterns for x in vectors]
    settings = SearchSettings(method="ep", hessian=False)
    found, _ = searched(TwoOptima(heights), part, starts, settings)
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
    np.testing.assert_allclose(found.hessian, 2.0 * TWO, atol=1e-6)


def test_what_draws_do_not_confirm_is_no_optimum():
    """EP's evidence is 50 too high at one end: the search goes back, and on by draws."""

    class Led(TwoOptima):
        def by_twisting(self, point, n_draws, seed):
            return TwoOptima([0.0, -50.0]).by_ep(point)

    found, _ = searched(Led([0.0, 50.0]), None, [ORIGIN], SearchSettings())
    assert found.optimum.converged
    assert np.abs(found.optimum.point.x - OPTIMA[0]).max() < 0.02
    np.testing.assert_allclose(found.hessian, 2.0 * TWO, atol=1e-6)


@pytest.mark.parametrize(("n", "size"), [(101, 10), (20, 20), (5, 9)])
def test_random_batches_are_equal_in_size_and_classes(n, size):
    rng = np.random.default_rng(n)
    sign = np.where(rng.random(n) < 0.3, 1.0, -1.0)
    batches = random_batches(sign, size, rng)
    np.testing.assert_array_equal(np.sort(np.concatenate(batches)), np.arange(n))
    sizes = [batch.size for batch in batches]
    assert max(sizes) <= size
    assert max(sizes) - min(sizes) <= 1
    positives = [int((sign[batch] > 0).sum()) for batch in batches]
    assert max(positives) - min(positives) <= 1


def test_pseudo_points_start_at_rows_that_are_spread():
    rng = np.random.default_rng(0)
    clusters = np.repeat([[0.0, 0.0], [100.0, 0.0], [0.0, 100.0]], 50, axis=0)
    X = clusters + rng.normal(size=clusters.shape)
    for seed in range(20):
        rows = spread_rows(X, 3, np.random.default_rng(seed))
        # One of each: within a cluster squared distances are a thousandth of those between.
        assert sorted(rows // 50) == [0, 1, 2]


def test_volume_that_keeps_pseudo_points_apart():
    points = np.array([[0.0], [1.0], [3.0]])
    correlation = np.exp(-0.5 * (points - points.T) ** 2)
    expected = 0.5 * np.linalg.slogdet(correlation)[1]
    found = log_volume(4.0 * pm.gp.cov.ExpQuad(1, ls=1.0), points).eval(mode="FAST_COMPILE")
    assert found == pytest.approx(expected, abs=1e-7)
