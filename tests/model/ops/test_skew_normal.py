"""Density and parameters of the unified skew-normal in graphs: gradients, shapes, other backends.

What they compute is tested with the variables and processes made of them.
"""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

from pymc_skewgp._gaussian.log_prob_gradient import density_and_orthant
from pymc_skewgp._model.ops.densities import (
    interval_limits,
    pt_log_density_and_orthant,
    sun_given,
    sun_of_process,
)
from pymc_skewgp._sun.parameters import SunParameters

pytestmark = pytest.mark.usefixtures("in_python")

IN_PYTHON = Mode("py", None)
INPUTS = {
    "offset": np.array([0.4, -0.9]),
    "scale": np.array([[1.0, 0.3], [0.3, 2.0]]),
    "cross_cov": np.array([[0.5, 0.1], [-0.2, 0.6]]),
    "limits": np.array([0.3, -0.4]),
    "latent_cov": np.array([[1.0, 0.2], [0.2, 0.8]]),
}

ROWS = np.array([[-3.0, -2.0], [1.0, 2.0], [0.1, 2.0]])  # lower and upper limits, variances


def variables():
    return [pt.tensor(dtype="float64", shape=(None,) * x.ndim) for x in INPUTS.values()]


@pytest.mark.parametrize("mode", ["NUMBA", IN_PYTHON])
def test_the_op_has_the_value_and_the_gradient_of_the_kernel(mode):
    x = variables()
    value = pt_log_density_and_orthant(*x)
    f = pytensor.function(x, [value, *pytensor.grad(3.0 * value, x)], mode=mode)
    expected = density_and_orthant(**INPUTS)
    found = f(*INPUTS.values())
    assert found[0] == expected.value
    for name, gradient in zip(INPUTS, found[1:], strict=True):
        np.testing.assert_array_equal(gradient, 3.0 * getattr(expected, name))
    value, *gradient = f(*(INPUTS | {"scale": -INPUTS["scale"]}).values())  # no covariance
    assert value == -np.inf
    assert not any(g.any() for g in gradient)


def test_gradient_of_a_conditional_in_the_hyperparameters():
    """Through two Cholesky factors and the triangular solves, against finite differences."""
    factor = np.random.default_rng(7).normal(size=(7, 14))
    phase, truncation = np.array([1.0, -1.0]), np.array([0.3, -0.4])

    def parts(scale, shift):
        cov = pt.as_tensor_variable(factor @ factor.T / 7) * scale + 0.5 * pt.eye(7)
        mean = np.linspace(-1.0, 1.0, 5) + shift
        sun = sun_given(
            sun_of_process(mean, cov, phase, truncation + shift, 2), np.array([0.8, -0.3])
        )
        return sum((pt.cos(x) * (1.0 + pt.arange(x.shape[-1]))).sum() for x in sun)

    # The default step and tolerance of verify_grad, relative 1e-4.
    pytensor.gradient.verify_grad(parts, [0.8, 0.2], rng=np.random.default_rng(3), mode=IN_PYTHON)


def test_interval_limits_with_noise_of_each_row():
    """Rows of the latent variables, above minus the truncation, and of f + e less its mean."""
    mu, scale, cross, truncation, latent_cov = map(pt.as_tensor_variable, INPUTS.values())
    sun = SunParameters(mu, scale, cross, truncation, latent_cov)
    low, high, cov = interval_limits(sun, *(pt.as_tensor_variable(x) for x in ROWS))
    np.testing.assert_allclose(low.eval(), [-0.3, 0.4, -3.4, -1.1])
    np.testing.assert_allclose(high.eval(), [np.inf, np.inf, 0.6, 2.9])
    C = INPUTS["cross_cov"]
    noisy = INPUTS["scale"] + np.diag(ROWS[2])
    np.testing.assert_allclose(cov.eval(), np.block([[INPUTS["latent_cov"], C.T], [C, noisy]]))
