"""The climb on functions whose tops are known."""

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der, rosen_hess

from pymc_skewgp._learn.climb import climb, curvature, finish

FREE = [(-np.inf, np.inf)] * 2


def rosenbrock(x):
    return -rosen(x), -rosen_der(x)


def quadratic(top, curved):
    def function(x):
        return -0.5 * (x - top) @ curved @ (x - top), -curved @ (x - top)

    return function


def counted(function):
    calls = []

    def wrapped(x):
        calls.append(x)
        return function(x)

    return wrapped, calls


class TestClimb:
    def test_curved_ridge(self):
        top = climb(rosenbrock, np.array([-1.0, 1.0]), FREE, 200)
        assert top.settled
        # It stops at gains of 2e-4, on a ridge where that is a hundredth of the way.
        assert top.value > -2e-3
        np.testing.assert_allclose(top.x, [1.0, 1.0], atol=0.1)

    def test_bound(self):
        function = quadratic(np.array([3.0, 0.0]), np.diag([1.0, 2.0]))
        top = climb(function, np.zeros(2), [(-1.0, 1.0)] * 2, 200)
        np.testing.assert_allclose(top.x, [1.0, 0.0], atol=1e-3)

    def test_walls_are_walked_around(self):
        inner = quadratic(np.array([0.5, 0.5]), np.diag([1.0, 40.0]))

        def function(x):  # no value beyond 0.8, where a first long step would land
            return inner(x) if x.max() < 0.8 else (-np.inf, np.zeros(2))

        top = climb(function, np.array([-5.0, -1.0]), FREE, 200)
        np.testing.assert_allclose(top.x, [0.5, 0.5], atol=0.05)

    def test_no_value_at_the_start(self):
        top = climb(lambda x: (-np.inf, np.zeros(2)), np.zeros(2), FREE, 200)
        assert top.value == -np.inf
        assert not top.settled

    def test_too_few_iterations_are_told(self):
        assert not climb(rosenbrock, np.array([-1.0, 1.0]), FREE, 3).settled

    def test_nothing_to_climb(self):
        assert climb(lambda x: (-3.0, np.zeros(0)), np.zeros(0), [], 10).value == -3.0


@pytest.mark.parametrize("bounds", [FREE, [(0.3, 2.0), (-1.0, 0.7)]], ids=["free", "at bounds"])
def test_curvature(bounds):
    x = np.array([0.3, 0.7])
    # Central differences of a cubic gradient over .03: error of a third derivative of some 2400
    # times .03^2 / 6 = .4; one-sided at the bounds, .03 / 2 times that derivative's order: 10.
    # Of curvatures of 70 and 200.
    atol = 0.5 if bounds is FREE else 15.0
    np.testing.assert_allclose(curvature(rosenbrock, x, bounds), rosen_hess(x), atol=atol)


class TestFinish:
    def test_known_curvature_needs_one_step(self):
        curved = np.array([[3.0, 1.0], [1.0, 2.0]])
        function, calls = counted(quadratic(np.array([0.4, -0.3]), curved))
        top = finish(function, np.zeros(2), FREE, curved)
        assert top.settled
        np.testing.assert_allclose(top.x, [0.4, -0.3], atol=1e-12)
        assert len(calls) == 2

    def test_nothing_to_gain_needs_one_value(self):
        function, calls = counted(quadratic(np.array([0.01, 0.0]), np.eye(2)))
        assert finish(function, np.zeros(2), FREE, np.eye(2)).settled
        assert len(calls) == 1

    def test_steps_end_in_the_noise_that_is_told(self):
        """Values off by .3, gradients by .1: told so, it settles after a few evaluations."""
        rng = np.random.default_rng(4)
        exact = quadratic(np.array([3.0, -2.0]), np.eye(2))

        def noisy(x):
            value, gradient = exact(x)
            return value + 0.3 * rng.normal(), gradient + 0.1 * rng.normal(size=2)

        function, calls = counted(noisy)
        top = finish(function, np.zeros(2), FREE, np.eye(2), lambda: 0.3)
        assert top.settled
        # Steps of length 1 at most: three to get there, one or two more that cannot tell.
        assert len(calls) <= 7
        assert exact(top.x)[0] > -0.3

    def test_wrong_curvature_is_learnt(self):
        curved = np.array([[30.0, 10.0], [10.0, 5.0]])
        top = finish(quadratic(np.array([0.4, -0.3]), curved), np.zeros(2), FREE, np.eye(2))
        assert top.value > -0.05

    def test_bounds(self):
        function = quadratic(np.array([3.0, 0.5]), np.eye(2))
        top = finish(function, np.zeros(2), [(-1.0, 1.0)] * 2, np.eye(2))
        np.testing.assert_allclose(top.x, [1.0, 0.5], atol=1e-6)
        assert top.settled

    def test_a_function_that_cannot_be_climbed(self):
        def function(x):  # a gradient that lies
            return -np.abs(x).sum(), np.ones(2)

        top = finish(function, np.zeros(2), FREE, np.eye(2))
        assert not top.settled
        np.testing.assert_array_equal(top.x, np.zeros(2))
