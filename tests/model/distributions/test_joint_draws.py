"""Rows that share parameters are drawn together, and numba runs the same draws without a word."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

from pymc_skewgp._model.distributions.unified_skew_normal import (
    JointDrawsRV,
    ObjectModeDraws,
    batch_shape_of,
    draw_groups,
)

pytestmark = pytest.mark.usefixtures("in_python")

IN_PYTHON = Mode("py", None)


class Shifted(JointDrawsRV):
    """A location and standard normal noise."""

    name = "shifted"
    signature = "(p)->(p)"

    @classmethod
    def rng_fn(cls, rng, mu, size):
        return mu + rng.standard_normal((*(mu.shape[:-1] if size is None else size), mu.shape[-1]))


shifted = Shifted()


def draw(seed, mode, size=None, mu=(0.0, 10.0, 20.0)):
    rng = pytensor.shared(np.random.default_rng(seed))
    next_rng, x = shifted(np.array(mu), size=size, rng=rng, return_next_rng=True)
    f = pytensor.function([], x, updates={rng: next_rng}, mode=mode)
    return f, rng


@pytest.mark.parametrize("size", [None, (4,), (2, 3)])
def test_numba_draws_the_stream_of_python(size):
    found, expected = (draw(1, mode, size)[0] for mode in ("NUMBA", IN_PYTHON))
    for _ in range(3):  # the generator moves on
        np.testing.assert_array_equal(found(), expected())
    ops = [node.op for node in found.maker.fgraph.apply_nodes]
    assert any(isinstance(op, ObjectModeDraws) for op in ops)


def test_without_an_update_the_generator_stays():
    rng = pytensor.shared(np.random.default_rng(1))
    _, x = shifted(np.zeros(2), rng=rng, return_next_rng=True)
    f = pytensor.function([], x, mode="NUMBA")
    np.testing.assert_array_equal(f(), f())
    assert rng.get_value().random() == np.random.default_rng(1).random()


@pytest.mark.slow(ci=True)
def test_inside_a_loop():
    """An inner graph is rewritten as the outer one is."""
    rng = pytensor.shared(np.random.default_rng(1))

    def step(rng):
        next_rng, x = shifted(np.zeros(2), rng=rng, return_next_rng=True)
        return next_rng, x

    (_, xs) = pytensor.scan(step, outputs_info=[rng, None], n_steps=3, return_updates=False)
    found = pytensor.function([], xs, mode="NUMBA")()
    np.testing.assert_array_equal(found, np.random.default_rng(1).standard_normal((3, 2)))


def test_an_error_in_a_draw_reaches_the_caller():
    class Failing(Shifted):
        name = "failing"

        @classmethod
        def rng_fn(cls, rng, mu, size):
            raise ValueError("no such draw")

    mu = pt.dvector()
    _, x = Failing()(mu, rng=pytensor.shared(np.random.default_rng(1)), return_next_rng=True)
    with pytest.raises(ValueError, match="no such draw"):
        pytensor.function([mu], x, mode="NUMBA")(np.zeros(2))


def test_draws_in_a_model_are_reproducible():
    x = shifted(np.zeros(2), rng=pytensor.shared(np.random.default_rng()), return_next_rng=True)[1]
    first, again, other = (pm.draw(x, 4, random_seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not (first == other).any()
    assert np.unique(first).size == 8


# Groups


def count_rows(calls):
    def draw_rows(n, a, b):
        calls.append((n, float(a), b.tolist()))
        return np.full((n, 2), float(a)) + np.arange(n)[:, None]

    return draw_rows


def test_groups_of_rows():
    calls = []
    a = np.array([1.0, 2.0, 3.0])  # along the second of two batch dimensions
    b = np.zeros((1, 1, 2))
    found = draw_groups(count_rows(calls), (4, 3), 2, [(a, 0), (b, 1)])
    assert calls == [(4, 1.0, [0.0, 0.0]), (4, 2.0, [0.0, 0.0]), (4, 3.0, [0.0, 0.0])]
    expected = a[None, :, None] + np.arange(4.0)[:, None, None]
    np.testing.assert_array_equal(found, np.broadcast_to(expected, (4, 3, 2)))


@pytest.mark.parametrize(("shape", "asked"), [((), [1]), ((5,), [5]), ((2, 3), [6]), ((0,), [])])
def test_one_group(shape, asked):
    calls = []
    found = draw_groups(count_rows(calls), shape, 2, [(np.array(1.0), 0), (np.zeros(2), 1)])
    assert found.shape == (*shape, 2)
    assert [n for n, _, _ in calls] == asked


def test_common_batch_shape():
    parameters = [(np.zeros((4, 1, 3)), 1), (np.zeros((5, 3, 3)), 2), (np.zeros(()), 0)]
    assert batch_shape_of(parameters) == (4, 5)
