"""Which graphs are taken for analytic: equal at random points, such are equal everywhere."""

import pytensor.tensor as pt
import pytest

from pymc_skewgp._model.graph.affine import is_analytic

X = pt.vector("x")
SD = pt.exp(X)
GRAPHS = {
    "products and exponentials": (3.0 * X**2 - pt.exp(-X) / (1.0 + pt.exp(X)), True),
    "a whole power": (X**-3.0, True),
    "the root of a variance": (pt.sqrt(SD**2 + 0.5 * SD[:1] ** 2 + X**2), True),
    "a power of a deviation": (SD**1.5, True),
    "the root of a square": (pt.sqrt(X**2), False),
    "the root of what may be zero": (pt.sqrt(X - 1.0), False),
    "a power of a square": ((X**2) ** 0.5, False),
    "the root of a square by logarithms": (pt.exp(0.5 * pt.log(X**2)), False),
    "the logarithm of a square of what is positive": (pt.log(SD**2), True),
    "an inverse of an even function": (pt.arccosh(pt.cosh(X)), False),
    "an unknown power": (X**X, False),
    "a switch": (pt.switch(X > 0.0, X, 1.0), False),
    "absolute values": (pt.abs(X), False),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_is_analytic(name):
    graph, expected = GRAPHS[name]
    assert is_analytic([graph], [X]) is expected
