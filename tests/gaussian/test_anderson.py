"""Anderson's acceleration, on problems whose fixed point is known."""

import numpy as np
import pytest

from pymc_skewgp._gaussian.linalg import AndersonMixing


def linear_problem(seed):
    """g(x) = A x + b: A has eigenvalues -1.8, -1.3 and .9, and 27 of .3."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(30, 30)))[0]
    values = np.array([-1.8, -1.3, 0.9] + 27 * [0.3])
    return basis @ (values[:, None] * basis.T), rng.normal(size=30)


@pytest.mark.parametrize("seed", range(3))
def test_a_linear_iteration_ends_where_a_solver_does(seed):
    """Four different eigenvalues: in exact arithmetic the fifth mixed point is the fixed point.
    The plain iteration runs away, as |-1.8| > 1."""
    matrix, shift = linear_problem(seed)
    mixing, x = AndersonMixing(), np.zeros(30)
    for _ in range(6):
        x = mixing(x, matrix @ x + shift, np.ones(30))
    # Least squares in differences that shrink: some digits of 16 are lost.
    np.testing.assert_allclose(x, np.linalg.solve(np.eye(30) - matrix, shift), rtol=0, atol=1e-6)


def test_the_first_point_is_the_value_itself():
    mixing, value = AndersonMixing(), np.array([2.0, 3.0])
    assert mixing(np.zeros(2), value, np.ones(2)) is value
    assert mixing(value, np.ones(2), np.ones(2)) is not value
    mixing.forget()
    assert mixing(np.zeros(2), value, np.ones(2)) is value


def test_a_coordinate_that_stays_is_left_where_it_is():
    mixing, x = AndersonMixing(), np.array([1.0, 5.0])
    for _ in range(5):
        x = mixing(x, np.array([np.cos(x[0]), 5.0]), np.ones(2))
    assert x[1] == 5.0


def test_only_so_many_differences_are_kept():
    """With one difference it is the secant method: superlinear in one variable."""
    mixing, x, errors = AndersonMixing(depth=1), np.array([1.0]), []
    root = 0.7390851332151607
    for _ in range(7):
        x = mixing(x, np.cos(x), np.ones(1))
        errors.append(abs(x[0] - root))
    assert errors[-1] < 1e-14
    mixing = AndersonMixing(depth=1)
    matrix, shift = linear_problem(0)
    y = np.zeros(30)
    for _ in range(6):
        y = mixing(y, matrix @ y + shift, np.ones(30))
    assert np.abs(matrix @ y + shift - y).max() > 1e-3  # one difference is too few here
