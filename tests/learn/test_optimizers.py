"""Ascents of functions whose optima are known."""

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der, rosen_hess

from pymc_skewgp._learn.coordinates import Point, Value
from pymc_skewgp._learn.optimizers import OptimizerSettings, maximize, negative_hessian, newton

FREE = [(-np.inf, np.inf)] * 2
SETTINGS = OptimizerSettings()
ORIGIN = Point(np.zeros(2))
FAR = Point(np.array([-1.0, 1.0]))


def function_of(value_and_gradient, noise=0.0):
    def function(point):
        value, gradient = value_and_gradient(point.x)
        return Value(value, value, gradient, noise)

    return function


@function_of
def rosenbrock(x):
    return -rosen(x), -rosen_der(x)


def quadratic(optimum, hessian):
    return function_of(
        lambda x: (
            -0.5 * (x - optimum) @ hessian @ (x - optimum),
            -hessian @ (x - optimum),
        )
    )


def counted(function):
    calls = []

    def wrapped(point):
        calls.append(point)
        return function(point)

    return wrapped, calls


class TestMaximize:
    def test_narrow_ridge(self):
        found = maximize(rosenbrock, FAR, FREE, SETTINGS)
        assert found.converged
        # It stops at gains of 2e-4, on a ridge where that is a hundredth of the way.
        assert found.value.total > -2e-3
        np.testing.assert_allclose(found.point.x, [1.0, 1.0], atol=0.1)

    def test_bound(self):
        function = quadratic(np.array([3.0, 0.0]), np.diag([1.0, 2.0]))
        found = maximize(function, ORIGIN, [(-1.0, 1.0)] * 2, SETTINGS)
        np.testing.assert_allclose(found.point.x, [1.0, 0.0], atol=1e-3)

    def test_it_turns_back_where_there_is_no_value(self):
        inner = quadratic(np.array([0.5, 0.5]), np.diag([1.0, 40.0]))
        nothing = Value(-np.inf, -np.inf, np.zeros(2))

        def function(point):  # no value beyond 0.8, where a first long step would land
            return inner(point) if point.x.max() < 0.8 else nothing

        found = maximize(function, Point(np.array([-5.0, -1.0])), FREE, SETTINGS)
        np.testing.assert_allclose(found.point.x, [0.5, 0.5], atol=0.05)

    def test_no_value_at_the_start(self):
        function = function_of(lambda x: (-np.inf, np.zeros(2)))
        found = maximize(function, ORIGIN, FREE, SETTINGS)
        assert found.value.total == -np.inf
        assert not found.converged

    def test_too_few_iterations(self):
        assert not maximize(rosenbrock, FAR, FREE, OptimizerSettings(max_iterations=3)).converged

    def test_no_coordinates(self):
        function = function_of(lambda x: (-3.0, np.zeros(0)))
        start = Point(np.zeros(0), (1, 0))
        found = maximize(function, start, [], SETTINGS)
        assert found.value.total == -3.0
        assert found.point.pattern == (1, 0)


@pytest.mark.parametrize("bounds", [FREE, [(0.3, 2.0), (-1.0, 0.7)]], ids=["free", "at bounds"])
def test_negative_hessian(bounds):
    x = np.array([0.3, 0.7])
    # Central differences of a cubic gradient over .03: error of a third derivative of some 2400
    # times .03^2 / 6 = .4; one-sided at the bounds, .03 / 2 times that derivative's order: 10.
    # Of second derivatives of 70 and 200.
    atol = 0.5 if bounds is FREE else 15.0
    found = negative_hessian(rosenbrock, Point(x), bounds, SETTINGS)
    np.testing.assert_allclose(found, rosen_hess(x), atol=atol)


class TestNewton:
    def test_a_known_hessian_needs_one_step(self):
        hessian = np.array([[3.0, 1.0], [1.0, 2.0]])
        function, calls = counted(quadratic(np.array([0.4, -0.3]), hessian))
        found = newton(function, ORIGIN, FREE, hessian, SETTINGS)
        assert found.converged
        np.testing.assert_allclose(found.point.x, [0.4, -0.3], atol=1e-12)
        assert len(calls) == 2

    def test_nothing_to_gain_needs_one_value(self):
        function, calls = counted(quadratic(np.array([0.01, 0.0]), np.eye(2)))
        assert newton(function, ORIGIN, FREE, np.eye(2), SETTINGS).converged
        assert len(calls) == 1

    def test_steps_end_in_the_noise_of_the_values(self):
        """Values off by .3, gradients by .1, and known to be: a few evaluations are enough."""
        rng = np.random.default_rng(4)
        exact = quadratic(np.array([3.0, -2.0]), np.eye(2))

        def noisy(point):
            found = exact(point)
            total, gradient = (
                found.total + 0.3 * rng.normal(),
                found.gradient + 0.1 * rng.normal(size=2),
            )
            return Value(total, total, gradient, noise=0.3)

        function, calls = counted(noisy)
        found = newton(function, ORIGIN, FREE, np.eye(2), SETTINGS)
        assert found.converged
        # Steps of length 1 at most: three to get there, one or two more in the noise.
        assert len(calls) <= 7
        assert exact(found.point).total > -0.3

    def test_a_wrong_hessian_is_corrected(self):
        hessian = np.array([[30.0, 10.0], [10.0, 5.0]])
        function = quadratic(np.array([0.4, -0.3]), hessian)
        assert newton(function, ORIGIN, FREE, np.eye(2), SETTINGS).value.total > -0.05

    def test_bounds(self):
        function = quadratic(np.array([3.0, 0.5]), np.eye(2))
        found = newton(function, ORIGIN, [(-1.0, 1.0)] * 2, np.eye(2), SETTINGS)
        np.testing.assert_allclose(found.point.x, [1.0, 0.5], atol=1e-6)
        assert found.converged

    def test_a_wrong_gradient(self):
        function = function_of(lambda x: (-np.abs(x).sum(), np.ones(2)))
        found = newton(function, ORIGIN, FREE, np.eye(2), SETTINGS)
        assert not found.converged
        np.testing.assert_array_equal(found.point.x, np.zeros(2))


def test_first_step_is_no_longer_than_asked_for():
    # A steep function in a wide box, where SciPy's own first step is the whole gradient.
    seen = []

    def steep(point):
        seen.append(point.x.copy())
        return Value(-500.0 * float(point.x @ point.x), 0.0, -1000.0 * point.x)

    start = Point(np.array([1.0, 0.5]))
    settings = OptimizerSettings(first_step=0.25)
    found = maximize(steep, start, [(-7.0, 7.0)] * 2, settings)
    assert np.linalg.norm(seen[2] - start.x) == pytest.approx(0.25)  # after the start, twice
    np.testing.assert_allclose(found.point.x, 0.0, atol=1e-3)
    assert found.converged
