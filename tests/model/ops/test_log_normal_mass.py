"""Log probability of an interval under the standard normal, in both tails and with its gradient."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr

from pymc_skewgp._model.ops.densities import pt_log_normal_mass

pytestmark = pytest.mark.usefixtures("in_python")

LIMITS = [
    (-1.0, 0.5),
    (-0.2, 3.0),
    (2.0, 2.5),
    (-9.0, -8.0),
    (30.0, 31.0),
    (-31.0, -30.9),
    (0.0, 1e-6),
    (-40.0, 40.0),
]


def by_quadrature(a, b):
    """Log of the integral of the density, scaled by its greatest value in the interval."""
    top = 0.0 if a < 0 < b else min(abs(a), abs(b))
    inside = quad(lambda x: np.exp(0.5 * (top**2 - x**2)), a, b, points=[0.0], epsabs=0)[0]
    return np.log(inside) - 0.5 * top**2 - 0.5 * np.log(2 * np.pi)


@pytest.mark.parametrize("limits", LIMITS)
def test_against_quadrature(limits):
    # Quadrature's own error is 1e-10 or less; a narrow interval leaves a relative 1e-16 / 1e-6.
    assert pt_log_normal_mass(*limits).eval() == pytest.approx(by_quadrature(*limits), abs=2e-10)


def test_infinite_limits_are_those_of_the_distribution_function():
    z = np.array([-40.0, -1.0, 0.0, 2.0, 9.0])
    np.testing.assert_allclose(pt_log_normal_mass(-np.inf, z).eval(), log_ndtr(z), rtol=1e-14)
    np.testing.assert_allclose(pt_log_normal_mass(z, np.inf).eval(), log_ndtr(-z), rtol=1e-14)
    assert pt_log_normal_mass(-np.inf, np.inf).eval() == 0.0


def test_equal_limits_have_no_probability():
    assert pt_log_normal_mass(0.3, 0.3).eval() == -np.inf


def test_gradient():
    """The densities at the limits over the mass; nothing at infinite ones."""
    a, b = pt.dvector("a"), pt.dvector("b")
    gradient = pytensor.grad(pt_log_normal_mass(a, b).sum(), [a, b])
    lower = np.array([-1.0, 2.0, -9.0, 30.0, -np.inf, 0.4])
    upper = np.array([0.5, 2.5, -8.0, 31.0, 1.0, np.inf])
    of_lower, of_upper = pytensor.function([a, b], gradient)(lower, upper)
    finite = np.clip(lower, -40, 40), np.clip(upper, -40, 40)
    mass = np.array([by_quadrature(*limits) for limits in zip(*finite, strict=True)])
    density = [np.exp(-0.5 * x**2 - 0.5 * np.log(2 * np.pi) - mass) for x in (lower, upper)]
    # As accurate as the mass by quadrature.
    np.testing.assert_allclose(of_lower, -density[0], rtol=1e-9)
    np.testing.assert_allclose(of_upper, density[1], rtol=1e-9)
