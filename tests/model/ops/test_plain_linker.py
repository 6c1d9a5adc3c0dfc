"""Functions by `PlainLinker` against PyTensor's own linker of that kind."""

import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor import config
from pytensor.compile.mode import Mode
from pytensor.conditional.op import ifelse
from pytensor.graph.replace import vectorize_graph
from pytensor.link.c.basic import CLinker
from pytensor.scalar.basic import autocast_float
from scipy.special import log_expit

import pymc_skewgp as sg
from pymc_skewgp._model.ops import plain_mode as known_functions
from pymc_skewgp._model.ops.plain_mode import (
    PLAIN,
    PLAIN_LOOPS,
    PlainLinker,
    inlined,
    plain_function,
    simplified,
)

# Graphs as they are written: rewrites would leave little of them.
OWN, PEER = Mode(PlainLinker(), optimizer=None), Mode("py", optimizer=None)
RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(2, 4, 3))
ROW = RNG.normal(size=3)
WHOLE = np.arange(12).reshape(4, 3) - 5


def x_of(value):
    return pt.tensor("x", dtype=value.dtype, shape=(None,) * value.ndim)


CASES = {
    "sum of three": lambda x, y: x + y * 2.0 + pt.exp(x),
    "four factors": lambda x, y: pt.mul(x, y, x, y),
    "powers, signs": lambda x, y: pt.abs(x) ** y,
    "log of 0": lambda x, y: pt.log(x * 0.0) + y,
    "switch": lambda x, y: pt.switch(x > y, x, 0.0),
    "and": lambda x, y: (x > 0) & (y < 0),
    "cast": lambda x, y: x.astype("int32") + (y > 0),
    "sums": lambda x, y: x.sum(axis=1) + y.sum(),
    "largest": lambda x, y: x.max(axis=0) - y.min(),
    "how many": lambda x, y: (x > y).sum(axis=0),
    "transposed": lambda x, y: x.T[:, None, :] + y.T[None, :, :],
    "product": lambda x, y: pt.dot(x, y.T),
}


@pytest.mark.parametrize("case", CASES)
def test_values_and_types_of_two_arrays(case):
    x, y = x_of(A), x_of(B)
    own, peer = (pytensor.function([x, y], CASES[case](x, y), mode=mode) for mode in (OWN, PEER))
    found = own(A, B)
    with np.errstate(all="ignore"):
        expected = peer(A, B)
    np.testing.assert_allclose(found, expected, rtol=1e-14, equal_nan=True)
    assert isinstance(found, np.ndarray)
    assert found.dtype == expected.dtype
    # A later call leaves what an earlier one has returned as it was.
    kept = found.copy()
    own(B, A)
    np.testing.assert_array_equal(found, kept)


@pytest.mark.parametrize(
    "graph",
    [
        lambda x: pt.sqrt(x),
        lambda x: x / 2,
        lambda x: x // 2,
        lambda x: x % 4,
        lambda x: pt.exp(x.sum()),
        lambda x: x.prod(axis=1),
        lambda x: pt.mean(x, axis=0),
        lambda x: pt.gammaln(x),
        lambda x: pt.erf(x),
        lambda x: x.flatten()[2:].reshape((2, 5)),
        lambda x: x[0, 0] + x[1],
        lambda x: x.squeeze() if x.ndim < 2 else x[:1].squeeze(axis=0),
    ],
)
@pytest.mark.parametrize("dtype", ["int64", "float32", "float64", "int8"])
def test_values_and_types_are_those_of_pytensor(graph, dtype):
    value = WHOLE.astype(dtype)
    x = x_of(value)
    own, peer = (pytensor.function([x], graph(x), mode=mode)(value) for mode in (OWN, PEER))
    np.testing.assert_array_equal(own, peer)
    assert own.dtype == peer.dtype


def test_a_row_is_not_repeated_unless_its_type_says_so():
    x, y = x_of(A), x_of(A)
    function = pytensor.function([x, y], x + y, mode=OWN)
    with pytest.raises(ValueError, match="Runtime broadcasting not allowed"):
        function(A, ROW[None])
    row = pt.tensor("row", dtype="float64", shape=(1, None))
    function = pytensor.function([x, row], x + row, mode=OWN)
    np.testing.assert_array_equal(function(A, ROW[None]), A + ROW)


def test_errors_are_those_of_pytensor():
    x, y = x_of(A), x_of(A)
    function = pytensor.function([x, y], pt.exp(pt.dot(x, y)), mode=OWN)
    with pytest.raises(ValueError, match=r"(?s)mismatch in its core dimension.*PyTensor"):
        function(A, B)


def test_shared_variables_are_updated_and_draws_move_on():
    count = pytensor.shared(0.0)
    function = pytensor.function([], count * 2.0, updates={count: count + 1.0}, mode=OWN)
    assert [float(function()) for _ in range(3)] == [0.0, 2.0, 4.0]
    rng = pytensor.shared(np.random.default_rng(1))
    new_rng, draw = pt.random.normal(rng=rng, size=2, return_next_rng=True)
    function = pytensor.function([], draw + 1.0, updates={rng: new_rng}, mode=OWN)
    assert not np.array_equal(function(), function())


@pytest.mark.parametrize("mode", [OWN, PLAIN, PLAIN_LOOPS])
def test_shared_variables_change_places(mode):
    first, second = pytensor.shared(np.zeros(2)), pytensor.shared(np.ones(2))
    updates = {first: second, second: first}
    function = pytensor.function([], first.sum(), updates=updates, mode=mode)
    assert [float(function()) for _ in range(3)] == [0.0, 2.0, 0.0]
    np.testing.assert_array_equal(first.get_value(), np.ones(2))
    same = pytensor.function([], pt.exp(first), updates={first: first}, mode=mode)
    np.testing.assert_array_equal(same(), same())


@pytest.mark.parametrize("mode", [OWN, PLAIN, PLAIN_LOOPS])
def test_choices_between_branches(mode):
    x = x_of(ROW)
    function = pytensor.function([x], ifelse(x.sum() > 0, 2.0 * x, pt.exp(x)), mode=mode)
    for value in (np.ones(3), -np.ones(3), np.ones(3)):
        expected = 2.0 * value if value.sum() > 0 else np.exp(value)
        np.testing.assert_allclose(function(value), expected, rtol=1e-15)


def test_sums_of_numbers():
    # As in PyMC's CAR with tau=1.0.
    x = pt.scalar("x")
    graphs = [pt.log(x).sum(axis=-1), pt.log(pt.constant(np.float64(2.0))).sum(axis=-1)]
    found = pytensor.function([x], graphs, mode=PLAIN)(2.0)
    np.testing.assert_allclose(found, np.log(2.0), rtol=1e-15)


def test_functions_can_be_pickled():
    # As pickle does that of a step method, or a user.
    x = x_of(ROW)
    function = pytensor.function([x], pt.softplus(pt.clip(x, 0.0, np.inf)), mode=PLAIN)
    again = pickle.loads(pickle.dumps(function))
    np.testing.assert_array_equal(again(ROW), function(ROW))
    number = pt.scalar("number")
    one = pytensor.function([number], number.sum(axis=-1), mode=again.maker.mode)
    assert one(2.0) == 2.0  # its rewriter is there too


def test_clips_with_one_bound_and_their_derivatives():
    x = x_of(ROW)
    for low, high in ((0.0, np.inf), (-np.inf, 0.5), (-0.5, 0.5)):
        clipped = pt.clip(x, low, high)
        slope = pytensor.grad((clipped * [1.0, 2.0, 3.0]).sum(), x)
        value = np.array([-0.7, np.nan, 2.0])
        found, found_slope = pytensor.function([x], [clipped, slope], mode=PLAIN)(value)
        np.testing.assert_array_equal(found, np.clip(value, low, high))
        inside = (value >= low) & (value <= high)
        np.testing.assert_array_equal(found_slope, np.where(inside, [1.0, 2.0, 3.0], 0.0))


@pytest.mark.parametrize("x", [-1.5, 0.0, 800.0])
def test_softplus_of_a_number(x):
    value = pt.dscalar("x")
    function = pytensor.function([value], pt.softplus(value), mode=PLAIN)
    assert function(x) == pytest.approx(np.logaddexp(0.0, x), rel=1e-15)  # round-off


@pytest.mark.parametrize("size", [None, (2, 3)])
def test_half_normal_draws_are_those_of_scipy(size):
    drawn = pm.HalfNormal.dist(sigma=np.array([0.5, 1.0, 2.0]), shape=size)
    found, expected = (pm.draw(drawn, 4, random_seed=3, mode=mode) for mode in (PLAIN, PEER))
    np.testing.assert_array_equal(found, expected)


def test_inputs_of_one_graph_in_another_order():
    """A kept function of the same graph may not stand in for it."""
    a, b = pt.dscalar("a"), pt.dscalar("b")
    difference = a - b
    assert plain_function([a, b], difference)(3.0, 1.0) == 2.0
    assert plain_function([b, a], difference)(3.0, 1.0) == -2.0


def test_a_small_probability_under_a_name_is_stable():
    """As pm.Deterministic names it: 1 - p of numbers in double precision would err by 1e-3."""
    with pm.Model():
        eta = pm.Flat("eta", shape=3)
        p = pm.Deterministic("p", pm.math.invlogit(eta))
    graph = pm.logp(pm.Bernoulli.dist(p), np.array([0, 0, 1]))
    block, values = pt.dmatrix("block"), np.array([[24.1, 30.0, 1.0], [-2.0, 35.0, -40.0]])
    found = plain_function([block], vectorize_graph(inlined(graph), {eta: block}))(values)
    np.testing.assert_allclose(found, log_expit(values * [-1, -1, 1]), rtol=1e-13)  # round-off


@pytest.mark.parametrize("known", [False, True])
def test_graphs_within_operations_are_not_compiled(monkeypatch, known):
    """Diagonal matrices side by side: PyTensor has a graph within an operation for each.

    So too where they are constants, which are computed while the graph is rewritten.
    """

    def compiled(*_, **__):
        raise AssertionError("by the C compiler")

    monkeypatch.setattr(CLinker, "make_thunk", compiled)
    v, x = pt.vector(shape=(3,)), pt.matrix(shape=(4, 3))
    matrices = vectorize_graph(pt.diag(v), {v: pt.constant(A) if known else x})
    found = plain_function([x], matrices)(A)
    np.testing.assert_array_equal(found, A[:, :, None] * np.eye(3))


# Functions of graphs that are alike are made once, and those of others are not.


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


def test_equal_graphs_are_made_simpler_once(monkeypatch):
    made = []
    rewrite = known_functions.rewrite_graph
    monkeypatch.setattr(
        known_functions, "rewrite_graph", lambda *x, **k: made.append(rewrite(*x, **k)) or made[-1]
    )
    for _ in range(2):
        x = pt.dvector("x")
        simplified([x], [(7.25 * x[x > 0.0] * pt.ones_like(x[x > 0.0])).sum()])
    assert len(made) == 1


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


def test_two_threads_leave_numbers_as_they_were():
    """Each puts PyTensor's types of Python's numbers back as it found them: not side by side."""
    before, inside = autocast_float.dtypes, threading.Event()

    def first():
        with known_functions.doubles():
            inside.set()
            time.sleep(0.2)  # long enough for the other one to begin, if it can

    def second():
        inside.wait(10)
        with known_functions.doubles():
            time.sleep(0.4)  # ends after the first one

    threads = [threading.Thread(target=f) for f in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert autocast_float.dtypes == before
