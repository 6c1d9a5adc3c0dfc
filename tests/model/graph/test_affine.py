"""Which graphs pass as affine, and that their coefficients give the graph back."""

import re
import tracemalloc

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.gradient import disconnected_grad, grad_clip

from pymc_skewgp._model.graph.affine import affine_coefficients, is_analytic, why_not_affine

pytestmark = pytest.mark.usefixtures("in_python")

MATRIX = np.random.default_rng(0).normal(size=(2, 3))

# Python alone: fifty compilations would take minutes.
PLAIN = Mode(linker="py", optimizer=None)
AFFINE = {
    "itself": lambda x, b: x,
    "copy": lambda x, b: x.copy(),
    "vector offset": lambda x, b: pt.exp(b) * pt.arange(3.0) + x - 1.0,
    "minus": lambda x, b: 2.0 - x,
    "scaled": lambda x, b: b * x / 3.0 - 0.5 * x,
    "index": lambda x, b: x[1],
    "advanced index": lambda x, b: x[np.array([2, 0, 2, 1])],
    "mask": lambda x, b: x[np.array([True, False, True])],
    "matrix": lambda x, b: pt.as_tensor(MATRIX) @ x,
    "dot": lambda x, b: pt.dot(x, MATRIX.T) * b,
    "einsum": lambda x, b: pt.einsum("ij,j->i", MATRIX, x),
    "sum": lambda x, b: (MATRIX * x).sum(axis=1),
    "mean": lambda x, b: x - x.mean(),
    "cumsum": lambda x, b: x.cumsum(),
    "differences": lambda x, b: pt.diff(x),
    "put together": lambda x, b: pt.concatenate([x[1:], pt.stack([b, x[0]])]),
    "two dimensions": lambda x, b: x[:, None] + pt.arange(2.0),
    "set": lambda x, b: pt.set_subtensor(x[0], b),
    "increased": lambda x, b: pt.inc_subtensor(pt.zeros(4)[:3], x),
    "repeated": lambda x, b: pt.repeat(x, 2),
    "chosen by data": lambda x, b: pt.switch(np.array([True, False, True]), x, b),
    "its shape": lambda x, b: x + pt.ones(x.shape[0]) * x.shape[0],
    "cast": lambda x, b: x.astype("float64") + b,
}
NOT_AFFINE = {
    "square": (lambda x, b: x**2, "Pow"),
    "product": (lambda x, b: x * x[::-1], "Mul"),
    "outer": (lambda x, b: pt.dot(x, x), "Dot"),
    "divisor": (lambda x, b: b / x, "True_div"),
    "exp": (lambda x, b: pt.exp(x), "Exp"),
    "maximum": (lambda x, b: pt.maximum(x, 0.0), "Maximum"),
    "condition": (lambda x, b: pt.switch(x > 0, x, b), "GT|Gt"),
    "own mask": (lambda x, b: x[x > 0], "GT|Gt"),
    "rounded": (lambda x, b: x.astype("int64"), "Cast"),
    "product of all": (lambda x, b: x.prod(), "Prod"),
    "cumulated product": (lambda x, b: x.cumprod(), "Cumprod"),
    "noise": (
        lambda x, b: pt.random.normal(
            x, 1.0, rng=pt.random.shared_rng(seed=1), return_next_rng=True
        )[1],
        "normal_rv",
    ),
    "sorted": (lambda x, b: pt.sort(x), "Sort"),
    # The identity, with another Jacobian.
    "disconnected": (lambda x, b: x + disconnected_grad(x), "[Dd]isconnected"),
    "clipped gradient": (lambda x, b: grad_clip(3 * x, -0.1, 0.1), "GradClip"),
}


@pytest.mark.parametrize("name", AFFINE)
@pytest.mark.parametrize("known", [True, False], ids=["static shape", "unknown shape"])
def test_coefficients_give_the_graph_back(name, known):
    x, b = pt.tensor("x", shape=(3 if known else None,), dtype="float64"), pt.dscalar("b")
    graph = AFFINE[name](x, b)
    assert why_not_affine(graph, [x]) is None
    shape = pt.stack(list(graph.shape)) if graph.ndim else pt.zeros(0, dtype="int64")
    design, offset = affine_coefficients(graph, [x], [pt.zeros(3)], shape)
    outputs = [graph.ravel(), offset, design]
    function = pytensor.function([x, b], outputs, mode=PLAIN, on_unused_input="ignore")
    point = np.array([0.3, -1.2, 2.5])
    value, z, w = function(point, 0.7)
    np.testing.assert_allclose(w @ point + z, value, atol=1e-13)
    # Another point, the same coefficients.
    value = function(-2.0 * point, 0.7)[0]
    np.testing.assert_allclose(w @ (-2.0 * point) + z, value, atol=1e-13)


@pytest.mark.parametrize("name", NOT_AFFINE)
def test_what_is_not_affine_is_named(name):
    make, operation = NOT_AFFINE[name]
    x, b = pt.dvector("x"), pt.dscalar("b")
    assert re.search(operation, why_not_affine(make(x, b), [x]))


def test_broadcasting_to_the_shape_of_the_data():
    """Two rows of observations of the same three entries."""
    x = pt.tensor("x", shape=(3,), dtype="float64")
    design, offset = affine_coefficients(x + 1.0, [x], [pt.zeros(3)], pt.as_tensor([2, 3]))
    np.testing.assert_array_equal(design.eval(), np.vstack([np.eye(3)] * 2))
    np.testing.assert_array_equal(offset.eval(), np.ones(6))


def test_one_entry_that_an_offset_stretches_is_no_identity():
    x = pt.tensor("x", shape=(1,), dtype="float64")
    design, offset = affine_coefficients(x + np.arange(3.0), [x], [pt.zeros(1)], pt.as_tensor([3]))
    np.testing.assert_array_equal(design.eval(), np.ones((3, 1)))
    np.testing.assert_array_equal(offset.eval(), np.arange(3.0))


JOINTLY = {
    "sum": lambda x, b: x + pt.as_tensor(MATRIX).T @ b,
    "groups": lambda x, b: x[np.array([2, 0, 2, 1])] - b[np.array([0, 0, 1, 1])],
    "one of them": lambda x, b: 2.0 * b,
    "rows": lambda x, b: pt.stack([x.sum() * pt.ones(2), b]),
}


@pytest.mark.parametrize("name", JOINTLY)
def test_several_variables_at_once(name):
    """Columns of one variable after those of the other, whatever their shapes."""
    x, b = pt.tensor("x", shape=(3,), dtype="float64"), pt.dvector("b")
    graph = JOINTLY[name](x, b)
    assert why_not_affine(graph, [x, b]) is None
    shape = pt.stack(list(graph.shape))
    design, offset = affine_coefficients(graph, [x, b], [pt.zeros(3), pt.zeros(2)], shape)
    point, other = np.array([0.3, -1.2, 2.5]), np.array([0.7, 1.1])
    function = pytensor.function(
        [x, b], [graph.ravel(), design, offset], mode=PLAIN, on_unused_input="ignore"
    )
    value, W, z = function(point, other)
    np.testing.assert_allclose(W @ np.concatenate([point, other]) + z, value, atol=1e-13)


@pytest.mark.parametrize("make", [lambda x, b: x * b, lambda x, b: pt.dot(x, b)])
def test_products_are_not_jointly_affine(make):
    x, b = pt.dvector("x"), pt.dvector("b")
    assert why_not_affine(make(x, b), [x]) is None
    assert why_not_affine(make(x, b), [x, b]) is not None


def test_an_index_of_many_rows_is_no_matrix_of_rows_by_rows():
    n = 20_000
    x, b = pt.vector("x", shape=(3,)), pt.scalar("b")
    kind = np.arange(n) % 3
    graph = b * x[kind] + 1.0
    design, _ = affine_coefficients(graph, [x], [pt.zeros(3)], pt.as_tensor([n]))
    function = pytensor.function([b], design, mode=Mode(linker="py", optimizer="fast_run"))
    tracemalloc.start()
    design = function(2.0)
    largest = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(design, 2.0 * np.eye(3)[kind])
    assert largest < 2e7  # twenty such designs; rows by rows are 3.2e9


# Which graphs are taken for analytic: equal at random points, such are equal everywhere.


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
