"""The Op and its batches are the kernel, with its gradient."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.gradient import NullTypeGradError

from pymc_skewgp._gaussian.log_prob_gradient import density_and_orthant
from pymc_skewgp._model.ops.densities import LogDensityAndOrthant, pt_log_density_and_orthant

pytestmark = pytest.mark.usefixtures("in_python")

IN_PYTHON = Mode("py", None)
OFFSET = np.array([0.4, -0.9])
SCALE = np.array([[1.0, 0.3], [0.3, 2.0]])
CROSS = np.array([[0.5, 0.1], [-0.2, 0.6]])
LIMITS = np.array([0.3, -0.4])
LATENT = np.array([[1.0, 0.2], [0.2, 0.8]])
INPUTS = (OFFSET, SCALE, CROSS, LIMITS, LATENT)
GRADIENTS = ("offset", "scale", "cross_cov", "limits", "latent_cov")


def variables(batch=0):
    return [pt.tensor(dtype="float64", shape=(None,) * (x.ndim + batch)) for x in INPUTS]


@pytest.mark.parametrize("mode", ["NUMBA", IN_PYTHON])
def test_the_op_has_the_value_and_the_gradient_of_the_kernel(mode):
    x = variables()
    value = pt_log_density_and_orthant(*x)
    assert isinstance(value.owner.op, LogDensityAndOrthant)
    found = pytensor.function(x, [value, *pytensor.grad(3.0 * value, x)], mode=mode)(*INPUTS)
    expected = density_and_orthant(*INPUTS)
    assert found[0] == expected.value
    for name, gradient in zip(GRADIENTS, found[1:], strict=True):
        np.testing.assert_array_equal(gradient, 3.0 * getattr(expected, name))


def test_batches_have_the_value_and_the_gradient_of_their_members():
    x = [pt.dmatrix(), *variables()[1:]]
    value = pt_log_density_and_orthant(*x)
    f = pytensor.function(x, [value, *pytensor.grad(value.sum(), [x[0], x[2]])], mode="NUMBA")
    rows = np.array([OFFSET, OFFSET + 1.0, -OFFSET])
    found, by_offset, by_cross = f(rows, *INPUTS[1:])
    members = [density_and_orthant(row, *INPUTS[1:]) for row in rows]
    np.testing.assert_array_equal(found, [m.value for m in members])
    np.testing.assert_array_equal(by_offset, [m.offset for m in members])
    # Round-off of a sum.
    np.testing.assert_allclose(by_cross, sum(m.cross_cov for m in members), atol=1e-13)


def test_shapes_are_inferred():
    x = variables()
    outputs = LogDensityAndOrthant()(*x)
    shapes = pytensor.function(x, [out.shape for out in outputs])
    assert "LogDensityAndOrthant" not in str(shapes.maker.fgraph)
    for shape, value in zip(shapes(*INPUTS), (np.zeros(()), *INPUTS), strict=True):
        assert tuple(shape) == value.shape


def test_what_is_invalid_has_gradient_zero():
    x = variables()
    value = pt_log_density_and_orthant(*x)
    f = pytensor.function(x, [value, *pytensor.grad(value, x)])
    value, *gradient = f(OFFSET, -SCALE, *INPUTS[2:])
    assert value == -np.inf
    assert not any(g.any() for g in gradient)


def test_second_derivatives_are_refused():
    x = variables()
    first = pytensor.grad(pt_log_density_and_orthant(*x), x[0])
    with pytest.raises(NullTypeGradError, match="Second derivatives"):
        pytensor.grad(first.sum(), x[0])
