"""Kernels' derivatives: against the same formulas differentiated by mpmath, in 30 digits."""

from functools import partial

import mpmath
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_skewgp as sg
from pymc_skewgp._model.gp.functions import ArrayCovariance, ArrayMean
from pymc_skewgp._observations.likelihood import Derivative

cov = pm.gp.cov
LS, ALPHA = (0.7, 1.3), 1.5
X = np.array([[0.3, -0.2], [10.0, 3.0]])
# At zero distance, next to it, and away from it.
XS = np.array([[0.3, -0.2], [0.3 + 1e-5, -0.2], [9.5, 3.2]])
# Where no kernel has a kink.
APART = np.array([[False, False, True], [True, True, True]])
NOTHING = Derivative(0, 0)


def square(x, t, dims=(0, 1)):
    return sum(((x[i] - t[i]) / LS[i]) ** 2 for i in dims)


def rbf(x, t, dims=(0, 1)):
    return mpmath.exp(-square(x, t, dims) / 2)


def matern(x, t, nu):
    r = mpmath.sqrt(2 * nu * square(x, t))
    series = {0.5: 1, 1.5: 1 + r, 2.5: 1 + r + r**2 / 3}[nu]
    return series * mpmath.exp(-r)


def linear(x, t):
    return sum((x[i] - 0.3) * (t[i] - 0.3) for i in range(2))


def stretch(x):
    return 1 + x[0] ** 2


KERNELS = {
    "ExpQuad": (cov.ExpQuad(2, ls=LS), rbf),
    "RatQuad": (
        cov.RatQuad(2, alpha=ALPHA, ls=LS),
        lambda x, t: (1 + square(x, t) / (2 * ALPHA)) ** (-ALPHA),
    ),
    "Matern52": (cov.Matern52(2, ls=LS), partial(matern, nu=mpmath.mpf("2.5"))),
    "one feature": (cov.ExpQuad(2, ls=LS[1], active_dims=[1]), partial(rbf, dims=(1,))),
    "sum and product": (
        1.0 + 2.0 * cov.ExpQuad(2, ls=LS) * cov.Linear(2, c=0.3),
        lambda x, t: 1 + 2 * rbf(x, t) * linear(x, t),
    ),
    "Polynomial": (cov.Polynomial(2, c=0.3, d=3, offset=1.0), lambda x, t: (linear(x, t) + 1) ** 3),
    "ScaledCov": (
        cov.ScaledCov(2, cov.ExpQuad(2, ls=LS), lambda x: 1 + x[:, 0] ** 2),
        lambda x, t: stretch(x) * rbf(x, t) * stretch(t),
    ),
    "Periodic": (
        cov.Periodic(2, period=2.0, ls=LS),
        lambda x, t: mpmath.exp(
            -sum((mpmath.sin(mpmath.pi * (x[i] - t[i]) / 2) / LS[i]) ** 2 for i in range(2)) / 2
        ),
    ),
    "Cosine": (
        cov.Cosine(2, ls=LS[0], active_dims=[0]),
        lambda x, t: mpmath.cos(2 * mpmath.pi * (x[0] - t[0]) / LS[0]),
    ),
    "NeuralNetwork": (
        sg.cov.NeuralNetwork(2, ls=LS, bias=0.5),
        lambda x, t: (2 / mpmath.pi) * mpmath.asin(2 * a(x, t) / mpmath.sqrt(norm(x) * norm(t))),
    ),
}
PAIRS = [
    (Derivative(0, 1), NOTHING),
    (Derivative(0, 1), Derivative(0, 1)),
    (Derivative(0, 1), Derivative(1, 1)),
    (Derivative(1, 2), Derivative(0, 1)),
    (Derivative(1, 2), Derivative(1, 2)),
]
# All pairs of these; of the others two, and of ExpQuad, which is within two of them.
ALL_PAIRS = ("RatQuad", "sum and product")


def a(x, t):
    return mpmath.mpf("0.25") + sum(x[i] * t[i] / LS[i] ** 2 for i in range(2))


def norm(x):
    return 1 + 2 * a(x, x)


def exact(function, left, right):
    def entry(x, t):
        def along(u, v):
            moved, other = list(x), list(t)
            moved[left.feature] = x[left.feature] + u
            other[right.feature] = t[right.feature] + v
            return function(moved, other)

        return mpmath.diff(along, (0, 0), (left.order, right.order))

    with mpmath.workdps(30):
        rows = [[mpmath.mpf(float(v)) for v in row] for row in X]
        columns = [[mpmath.mpf(float(v)) for v in row] for row in XS]
        return np.array([[float(entry(x, t)) for t in columns] for x in rows])


@pytest.mark.parametrize(
    ("name", "pair"),
    [
        (name, pair)
        for name in KERNELS
        for pair in (PAIRS if name in ALL_PAIRS else PAIRS[2::2])
        # The graph of its fourth derivatives takes ten seconds to compile.
        if name != "NeuralNetwork" or pair[1].order == 1
    ],
    ids=str,
)
def test_against_high_precision(name, pair):
    """Relative to the largest entry: 1e-12 in closed form; cancellation in PyMC's expansion of
    squared distances of inputs of size 10 leaves 1e-14 (10 / ls)^2, times the order's factor, where
    PyTensor differentiates its graph.
    """
    kernel, function = KERNELS[name]
    found = ArrayCovariance(kernel).derivative(X, XS, *pair)
    expected = exact(function, *pair)
    if name == "Matern52":
        found, expected = found[APART], expected[APART]
    scale = max(np.abs(expected).max(), 1.0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11 * scale)


def test_matern32():
    """First derivatives, and 3 / ls^2 where points coincide."""
    pair = Derivative(0, 1), Derivative(0, 1)
    found = ArrayCovariance(cov.Matern32(2, ls=LS)).derivative(X, XS, *pair)
    expected = exact(partial(matern, nu=mpmath.mpf("1.5")), *pair)
    np.testing.assert_allclose(found[APART], expected[APART], rtol=1e-9, atol=1e-12)
    assert found[0, 0] == pytest.approx(3.0 / LS[0] ** 2, rel=1e-13)


AT_ZERO = [0.0, 5.0 / 3.0 / LS[0] ** 2, 0.0, 0.0, 25.0 / LS[1] ** 4]


@pytest.mark.parametrize(("pair", "expected"), list(zip(PAIRS, AT_ZERO, strict=True)), ids=str)
def test_matern52_at_zero_distance_and_next_to_it(pair, expected):
    """By its series 1 - 5 d^2 / 6 + 25 d^4 / 24 - ..., whose next term is d^5."""
    found = ArrayCovariance(cov.Matern52(2, ls=LS)).derivative(X[:1], XS[:2], *pair)[0]
    assert found[0] == pytest.approx(expected, rel=1e-13)
    # A distance of 1e-5, times derivatives of order one hundred.
    assert found[1] == pytest.approx(expected, abs=2e-3)


# What is said, the kernel of one column or two, and the orders.
RBF, MATERN52 = cov.ExpQuad(1, ls=1.0), cov.Matern52(1, ls=1.0)
REFUSED = {
    "Matern32 has functions that are .* once only, and not 2": (cov.Matern32(1, ls=1.0), 2, 2),
    "Exponential .* at no point.*use ExpQuad": (cov.Exponential(1, ls=1.0), 1, 0),
    "WhiteNoise is noise": (2.0 * RBF + cov.WhiteNoise(0.1), 1, 0),
    "Matern52 inside of ScaledCov": (cov.ScaledCov(1, MATERN52, pt.exp), 1, 1),
    "Coregion is a function of labels": (cov.Coregion(1, B=np.eye(2)), 1, 1),
    "Cosine of several features": (cov.Cosine(2, ls=1.0), 1, 1),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_has_no_derivative_is_refused(message):
    kernel, *orders = REFUSED[message]
    left, right = (Derivative(0, order) for order in orders)
    x = np.ones((2, kernel.input_dim))
    with pytest.raises(sg.NotDifferentiableError, match=message):
        ArrayCovariance(kernel).derivative(x, x, left, right)


class Laplacian(cov.Covariance):
    def full(self, X, Xs=None):
        X, Xs = self._slice(X, X if Xs is None else Xs)
        return pt.exp(-pt.abs(X - Xs.T))


class Smooth(Laplacian):
    def full(self, X, Xs=None):
        X, Xs = self._slice(X, X if Xs is None else Xs)
        return pt.exp(-0.5 * (X - Xs.T) ** 2)


def test_kernels_of_ones_own():
    pair = (Derivative(0, 2), Derivative(0, 2))
    found = ArrayCovariance(Smooth(1)).derivative(X[:, :1], XS[:, :1], *pair)
    expected = ArrayCovariance(cov.ExpQuad(1, ls=1.0)).derivative(X[:, :1], XS[:, :1], *pair)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    with pytest.raises(sg.NotDifferentiableError, match="Laplacian has a root or an absolute"):
        ArrayCovariance(Laplacian(1)).derivative(X[:, :1], XS[:, :1], *pair)


def test_means():
    mean = ArrayMean(pm.gp.mean.Linear([2.0, 3.0], 1.0))
    np.testing.assert_array_equal(mean.derivative(X, Derivative(1, 1)), [3.0, 3.0])
    np.testing.assert_array_equal(mean.derivative(X, Derivative(1, 2)), 0.0)
    constant = ArrayMean(pm.gp.mean.Constant(2.0))
    np.testing.assert_array_equal(constant.derivative(X, Derivative(0, 1)), 0.0)

    class Sine(pm.gp.mean.Mean):
        def __call__(self, X):
            return pt.sin(X[:, 0])

    np.testing.assert_allclose(ArrayMean(Sine()).derivative(X, Derivative(0, 2)), -np.sin(X[:, 0]))
