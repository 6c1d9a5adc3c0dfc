"""The transform of a rectangle: inverse, Jacobian and gradients for every mixture of limits."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from oracles import finite_difference

from pymc_skewgp._model.distributions.truncated_mvnormal import RectangleTransform

pytestmark = pytest.mark.usefixtures("in_python")

INF = np.inf
LOWER = np.array([-INF, 0.5, -INF, -1.0, 0.0])
UPPER = np.array([INF, INF, 2.0, 3.0, 1e-3])


@pytest.fixture(scope="module")
def functions():
    x, lower, upper = pt.dvector(), pt.dvector(), pt.dvector()
    transform = RectangleTransform()
    inputs = (None, None, lower, upper)  # what comes before the limits is not looked at
    y = transform.backward(x, *inputs)
    log_det = transform.log_jac_det(x, *inputs)
    log_density = -0.5 * (((y - 1.0) / 3.0) ** 2).sum() + log_det
    f = pytensor.function(
        [x, lower, upper],
        [y, log_det, transform.forward(y, *inputs), pytensor.grad(log_density, x), log_density],
    )
    return f


@pytest.mark.parametrize("seed", range(3))
def test_forward_undoes_backward(functions, seed):
    x = np.random.default_rng(seed).normal(scale=3.0, size=5)
    y, _, again, _, _ = functions(x, LOWER, UPPER)
    assert ((y > LOWER) & (y < UPPER)).all()
    # Where y is near a limit of size one, the distance to it has lost digits: e^-9 of them.
    np.testing.assert_allclose(again, x, atol=1e-10)


def test_log_determinant(functions):
    x = np.array([0.3, -0.4, 1.2, 0.7, -2.0])
    derivative = finite_difference(lambda x: functions(x, LOWER, UPPER)[0], x)
    np.testing.assert_allclose(derivative, np.diag(derivative.diagonal()), atol=1e-12)
    # Fourth-order differences, h = 1e-3: 1e-11 relative.
    exact = np.log(np.abs(derivative.diagonal())).sum()
    assert functions(x, LOWER, UPPER)[1] == pytest.approx(exact, abs=1e-9)


def test_gradient(functions):
    x = np.array([0.3, -0.4, 1.2, 0.7, -2.0])
    expected = finite_difference(lambda x: functions(x, LOWER, UPPER)[4], x)
    np.testing.assert_allclose(functions(x, LOWER, UPPER)[3], expected, atol=1e-9)


def test_far_out_nothing_is_nan(functions):
    """Branches that are not taken overflow there: PyMC's Interval has a gradient of NaN."""
    for scale in (30.0, 1000.0):
        for sign in (1.0, -1.0):
            x = scale * sign * np.array([1.0, -1.0, -1.0, 1.0, -1.0])
            y, log_det, _, gradient, _ = functions(x, LOWER, UPPER)
            assert ((y >= LOWER) & (y <= UPPER)).all()
            assert not np.isnan(log_det)
            if sign > 0:  # the other way, one-sided coordinates are at infinity
                assert np.isfinite(gradient).all()
            else:
                assert np.isfinite(gradient[[0, 3, 4]]).all()


def test_near_the_upper_limit_digits_are_kept(functions):
    y = functions(np.full(1, 50.0), np.array([-1.0]), np.array([0.0]))[0]
    # The distance to a limit at zero is e^-50, to full precision.
    np.testing.assert_allclose(y, -np.exp(-50.0), rtol=1e-14)
