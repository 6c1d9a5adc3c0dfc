"""Functions of graphs that are alike are made once, and those of others are not."""

import threading
from concurrent.futures import ThreadPoolExecutor

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor import config

import pymc_skewgp as sg
from pymc_skewgp._model.ops import plain_mode as known_functions
from pymc_skewgp._model.ops.plain_mode import plain_function, simplified


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setattr(known_functions, "_kept", threading.local())


def scaled(factor=2.0, shape=(None,)):
    x = pt.tensor("x", shape=shape, dtype="float64")
    return plain_function([x], factor * pt.exp(x))


def test_equal_graphs_have_one_function():
    assert scaled() is scaled()
    np.testing.assert_allclose(scaled()(np.array([0.0, 1.0])), [2.0, 2.0 * np.e])


@pytest.mark.parametrize(
    "other", [{"factor": 3.0}, {"shape": (4,)}, {"factor": np.array([2.0, 1.0])}]
)
def test_other_constants_and_types_have_their_own(other):
    first = scaled()
    second = scaled(**other)
    assert first is not second
    at = np.zeros(other.get("shape", (2,)))
    np.testing.assert_array_equal(second(at), np.ones(at.size) * other.get("factor", 2.0))


def test_order_of_inputs_counts():
    def difference(swapped):
        a, b = pt.dvector("a"), pt.dvector("b")
        return plain_function([b, a] if swapped else [a, b], a - b)

    one, two = np.ones(1), np.full(1, 3.0)
    assert difference(False)(one, two) == -2.0
    assert difference(True)(one, two) == 2.0


def test_random_variables_are_replaced():
    with pm.Model():
        values = [pm.Normal(name) for name in ("a", "b")]
    x = pt.dscalar("x")
    first, second = (plain_function([x], 2.0 * value, {value: x}) for value in values)
    assert first is second
    assert first(1.5) == 3.0


def test_the_oldest_are_forgotten(monkeypatch):
    monkeypatch.setattr(known_functions, "_MOST", 2)
    first = scaled(1.0)
    assert scaled(1.0) is first
    scaled(2.0)
    scaled(3.0)
    assert scaled(1.0) is not first


def test_large_constants_are_not_kept(monkeypatch):
    monkeypatch.setattr(known_functions, "_LARGEST", 10)
    assert scaled(np.ones(20)) is not scaled(np.ones(20))


def test_simpler_graphs_have_the_same_values_and_slopes():
    """Also where shared values have changed since."""

    def of(factor):
        x = pt.dvector("x")
        (graph,) = simplified([x], [(factor * x[x > 0.0] * pt.ones_like(x[x > 0.0])).sum()])
        return plain_function([x], [graph, pt.grad(graph, x)])

    factor, at = pytensor.shared(3.0), np.array([-1.0, 2.0])
    function, other = of(factor), of(pytensor.shared(5.0))
    factor.set_value(4.0)
    for found, truth in ((function(at), 4.0), (other(at), 5.0)):
        assert found[0] == 2.0 * truth
        np.testing.assert_array_equal(found[1], [0.0, truth])


def in_threads(call, n_threads):
    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(call, range(n_threads)))


def test_threads_wait_for_each_other():
    """Two threads in one function would overwrite each other's arrays."""
    x, y = pt.dmatrix("x"), pt.dmatrix("y")
    function = plain_function([x, y], pt.exp(-((x[:, None, :] - y) ** 2).sum(-1)))

    def right(k):
        a, b = np.full((60, 2), 0.3 * k), np.zeros((60, 2))
        return all(np.allclose(function(a, b), np.exp(-0.18 * k**2)) for _ in range(40))

    assert all(in_threads(right, 4))


def test_threads_that_compile_leave_the_settings_as_they_were():
    """PyTensor changes them for all threads while it compiles; so EP in threads did."""
    before = config.mode, config.traceback__limit

    def compiled(k):
        x = pt.dvector("x")
        return plain_function([x], pt.exp(-(k + 1.5) * x).sum())(np.ones(2))

    assert in_threads(compiled, 8) == pytest.approx(2.0 * np.exp(-1.5 - np.arange(8)))
    assert (config.mode, config.traceback__limit) == before


def test_values_of_shared_variables_are_arguments():
    """Of two graphs that are alike but for these there is one function, with two results."""
    found = []
    for value in (2.0, 3.0):
        x, z = pt.dvector("x"), pytensor.shared(value)
        found.append((plain_function([x], [x * z, z]), z))
    (double, z), (triple, _) = found
    assert double._function is triple._function
    np.testing.assert_equal(double(np.ones(2)), [[2.0, 2.0], 2.0])
    np.testing.assert_equal(triple(np.ones(2)), [[3.0, 3.0], 3.0])
    z.set_value(5.0)
    kept = cloudpickle.loads(cloudpickle.dumps(double))
    np.testing.assert_equal([own(np.ones(2))[1] for own in (double, triple, kept)], [5.0, 3.0, 5.0])


def test_pickled_after_a_reduction_was_called():
    x, y = pt.matrix("x"), pt.vector("y")
    function = plain_function([x, y], pt.grad(pt.prod(x * y, axis=1).sum(), x))
    arrays = np.array([[2.0, 3.0], [4.0, 0.0]]), np.array([1.0, 2.0])
    wanted = [[6.0, 4.0], [0.0, 8.0]]
    np.testing.assert_allclose(function(*arrays), wanted)
    np.testing.assert_allclose(cloudpickle.loads(cloudpickle.dumps(function))(*arrays), wanted)


def test_a_second_fit_compiles_nothing(monkeypatch):
    """Another class, of another share, fold or data set with the same kernel."""
    rng = np.random.default_rng(0)

    def fit(seed):
        X = rng.normal(size=(12, 3))
        y = X[:, 0] > np.quantile(X[:, 0], 0.5 + 0.2 * seed)
        return sg.SkewGPClassifier(n_restarts=0, random_state=seed).fit(X, y)

    fit(0).predict_proba(np.zeros((1, 3)))

    def refuse(*args, **kwargs):
        raise AssertionError("compiled once more")

    monkeypatch.setattr(known_functions.pytensor, "function", refuse)
    fit(1).predict_proba(np.zeros((1, 3)))
