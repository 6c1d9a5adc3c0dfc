"""Logs of normal probabilities: of half-lines, of intervals, and of which of several is greatest.

Values and slopes in both tails are also tested with `BernoulliProbit`.
"""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from oracles import finite_difference
from scipy.integrate import quad
from scipy.special import log_ndtr

from pymc_skewgp._model.ops.densities import pt_log_greatest, pt_log_ndtr, pt_log_normal_mass

pytestmark = pytest.mark.usefixtures("in_python")


def test_curvature_and_infinities_of_half_lines():
    z = pt.dvector("z")
    value = pt_log_ndtr(z)
    first = pytensor.grad(value.sum(), z)
    f = pytensor.function([z], [value, first, pytensor.grad(first.sum(), z)])
    # Around the switch, and in the bulk.
    points = np.array([-6.0, -1.5, -1.0 - 1e-9, -1.0, -1.0 + 1e-9, -0.5, 0.0, 1.0, 4.0])
    slopes = finite_difference(lambda z: f(z)[1], points)
    # h^4 f'''''/30 with h = 1e-3 and derivatives of order one, and 1e-13 of round-off over h.
    np.testing.assert_allclose(f(points)[2], slopes.diagonal(), atol=1e-9)
    value, gradient, _ = f(np.array([np.inf, -np.inf]))
    assert (value[0], gradient[0], value[1]) == (0.0, 0.0, -np.inf)


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


def test_gradient_of_intervals():
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


def on_a_fine_grid(mean, c):
    """The same integral over 400 units by 40 000 nodes: exact to round-off."""
    lead = np.delete(mean[c] - mean, c)
    z = np.linspace(-100.0, 300.0, 40_001)
    log_terms = -0.5 * z**2 - 0.5 * np.log(2 * np.pi) + sum(log_ndtr(x + z) for x in lead)
    top = log_terms.max()
    return top + np.log(np.exp(log_terms - top).sum() * (z[1] - z[0]))


@pytest.mark.parametrize(("k", "scale"), [(2, 3.0), (3, 30.0), (20, 0.3)])
def test_accuracy_of_the_greatest(k, scale):
    """As the docstring states it, for probable variables and for improbable ones."""
    means = scale * np.random.default_rng(k).standard_normal((4, k))
    means[0] = np.r_[-2 * scale, np.full(k - 1, scale)]
    log_p = pt_log_greatest(pt.constant(means), pt.zeros(4, dtype="int64")).eval()
    expected = [on_a_fine_grid(mean, 0) for mean in means]
    np.testing.assert_allclose(log_p, expected, rtol=1e-14, atol=1e-10)


def test_a_number_of_variables_that_is_not_known_before():
    mean, index = pt.dvector("mean"), pt.lscalar("index")
    f = pytensor.function([mean, index], pt_log_greatest(mean, index))
    for k in (2, 5, 32):
        value = 0.5 * np.random.default_rng(k).standard_normal(k)
        assert f(value, 1) == pytest.approx(on_a_fine_grid(value, 1), abs=1e-10)


@pytest.mark.parametrize(
    "mean", [[0.4, -0.3, 1.1, 0.0], [-30.0, 20.0, 25.0, 24.0], [9.0, -9, 0, 0]]
)
def test_gradient_of_the_greatest(mean):
    x = pt.vector("x", shape=(4,))
    log_p = pt_log_greatest(x, pt.constant(0))
    f = pytensor.function([x], [log_p, pytensor.grad(log_p, x)])
    mean = np.asarray(mean, dtype=float)
    gradient = f(mean)[1]
    steps = 1e-5 * np.eye(4)
    differences = [(f(mean + h)[0] - f(mean - h)[0]) / 2e-5 for h in steps]
    # Round-off of values up to 2000 over the step.
    np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-7)
    assert gradient.sum() == pytest.approx(0.0, abs=1e-8)  # only differences matter
