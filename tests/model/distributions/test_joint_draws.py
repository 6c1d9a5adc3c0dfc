"""Rows that share parameters are drawn together, and numba runs the same draws without a word."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

from pymc_skewgp._model.distributions.unified_skew_normal import JointDrawsRV, ObjectModeDraws

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


@pytest.mark.parametrize("size", [None, (2, 3)])
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
