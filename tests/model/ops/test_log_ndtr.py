"""The normal's log distribution function, its gradient and its curvature, in both tails."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from mpmath import mp
from oracles import finite_difference
from scipy.special import log_ndtr

from pymc_skewgp._model.ops.densities import pt_log_ndtr

# Around the switch, in the bulk and where one of the two forms would overflow.
POINTS = np.array([-400.0, -40.0, -5.0, -1.0 - 1e-9, -1.0, -1.0 + 1e-9, 0.0, 3.0, 8.0, 40.0, 400.0])


@pytest.fixture(scope="module")
def value_and_derivatives():
    z = pt.dvector("z")
    value = pt_log_ndtr(z)
    first = pytensor.grad(value.sum(), z)
    return pytensor.function([z], [value, first, pytensor.grad(first.sum(), z)])


def test_value(value_and_derivatives):
    # scipy's is good to a few units of the last place; the sum of two terms here adds as many.
    np.testing.assert_allclose(value_and_derivatives(POINTS)[0], log_ndtr(POINTS), rtol=1e-14)


def test_gradient_is_the_inverse_mills_ratio(value_and_derivatives):
    with mp.workdps(40):
        exact = [float(mp.npdf(z) / mp.ncdf(z)) for z in POINTS]
    # Relative, down to 1e-17 at z = 8; density and mass are each exact to a few units, but for the
    # rounding of z^2 / 2 in the exponent: 1e-14 at z = 8. Beyond they are both zero.
    np.testing.assert_allclose(value_and_derivatives(POINTS)[1], exact, rtol=1e-13, atol=1e-300)


def test_curvature_agrees_with_differences(value_and_derivatives):
    points = np.array([-6.0, -1.5, -0.5, 0.0, 1.0, 4.0])
    found = value_and_derivatives(points)[2]
    slopes = finite_difference(lambda z: value_and_derivatives(z)[1], points)
    # h^4 f'''''/30 with h = 1e-3 and derivatives of order one, and 1e-13 of round-off over h.
    np.testing.assert_allclose(found, slopes.diagonal(), atol=1e-9)


def test_infinities(value_and_derivatives):
    value, gradient, _ = value_and_derivatives(np.array([np.inf]))
    assert (value[0], gradient[0]) == (0.0, 0.0)
    assert value_and_derivatives(np.array([-np.inf]))[0][0] == -np.inf
