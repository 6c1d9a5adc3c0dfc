"""Which of several normal variables is the greatest: the integral and its gradient."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.special import log_ndtr

from pymc_skewgp._model.ops.densities import pt_log_greatest

pytestmark = pytest.mark.usefixtures("in_python")


def on_a_fine_grid(mean, c):
    """The same integral over 400 units by 40 000 nodes: exact to round-off."""
    lead = np.delete(mean[c] - mean, c)
    z = np.linspace(-100.0, 300.0, 40_001)
    log_terms = -0.5 * z**2 - 0.5 * np.log(2 * np.pi) + sum(log_ndtr(x + z) for x in lead)
    top = log_terms.max()
    return top + np.log(np.exp(log_terms - top).sum() * (z[1] - z[0]))


@pytest.mark.parametrize("k", [2, 3, 6, 20])
@pytest.mark.parametrize("scale", [0.3, 3.0, 30.0])
def test_accuracy(k, scale):
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
def test_gradient_against_differences(mean):
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
