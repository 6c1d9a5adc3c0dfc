"""The JAX evaluation, in a process of its own: once imported, JAX warns of every later fork."""

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from oracles import (
    brute_log_prob,
    equicorrelated_cov,
    equicorrelated_log_prob,
    finite_difference,
)
from scipy.special import log_ndtr

from pymc_skewgp._gaussian.log_prob_gradient import log_prob_and_gradient

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("jax") is None, reason="the extra jax is not installed"
    ),
    pytest.mark.slow(ci=True),  # JAX compiles for each number of dimensions
]

INF = np.inf
COV2 = [[2.0, -0.9], [-0.9, 1.0]]
COV3 = [[1.5, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 0.8]]
CASES = {
    "one": ([-0.4], [1.1], [[1.7]]),
    "one, below": ([-INF], [0.7], [[1.7]]),
    "one, tail": ([30.0], [INF], [[1.0]]),
    "one, left tail": ([-INF], [-50.0], [[1.0]]),
    "one, narrow in a tail": ([20.0], [20.001], [[1.0]]),
    "two": ([-0.5, -1.0], [1.0, 0.3], COV2),
    "two, orthant": ([0.0, 0.0], [INF, INF], COV2),
    "two, tail": ([8.0, -INF], [INF, -6.0], COV2),
    "three": ([-INF, 0.2, -0.4], [0.5, INF, 0.6], COV3),
    "three, orthant": ([0.0, 0.0, 0.0], [INF, INF, INF], COV3),
    "unbounded": ([-INF, -0.4, -INF], [INF, 0.7, INF], COV3),
    "certain": ([-INF, -INF], [INF, INF], COV2),
    "twenty": ([0.0] * 20, [INF] * 20, equicorrelated_cov(20, 0.5).tolist()),
}
BAD = {
    "empty": ([0.0, 1.0], [1.0, 1.0], COV2),
    "lower is nan": ([np.nan, 0.0], [1.0, 1.0], COV2),
    "upper is nan": ([0.0, 0.0], [1.0, np.nan], COV2),
    "indefinite": ([0.0, 0.0], [1.0, 1.0], [[1.0, 2.0], [2.0, 1.0]]),
    "cov is nan": ([0.0, 0.0], [1.0, 1.0], [[np.nan, 0.0], [0.0, 1.0]]),
    "negative": ([0.0], [1.0], [[-1.0]]),
}
SCRIPT = """
import json, sys, warnings
warnings.simplefilter("error")
import numpy as np, pytensor, pytensor.tensor as pt
from pymc_skewgp._model.ops.densities import pt_mvn_logcdf
lower, upper, cov = pt.dvector("lower"), pt.dvector("upper"), pt.dmatrix("cov")
value = pt_mvn_logcdf(upper, cov, lower=lower)
inputs = [lower, upper, cov]
outputs = [value, *pytensor.grad(value, inputs)]
result = {}
result["jax before"] = "jax" in sys.modules
# Nothing of the package's own is imported for it: PyTensor finds the implementation.
f = pytensor.function(inputs, outputs, mode="JAX")
import jax
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.graph.fg import FunctionGraph
plain = jax_funcify(FunctionGraph(inputs, [value], clone=True))
by_jax = jax.jit(jax.grad(lambda *a: plain(*a)[0], (0, 1, 2)))
for name, case in json.loads(sys.stdin.read()).items():
    case = [np.array(x, dtype=float) for x in case]
    # Compiled once for each length: of the long ones only once.
    by_grad = by_jax(*case) if case[0].size <= 3 else ()
    result[name] = [np.asarray(x).tolist() for x in (*f(*case), *by_grad)]
x = pt.dmatrix("x")
batch = pt_mvn_logcdf(x, cov)
f_batch = pytensor.function([x, cov], [batch, pytensor.grad(batch.sum(), cov)], mode="JAX")
at = np.array([[0.3, -0.2], [0.0, 0.5], [np.nan, 1.0]]), np.array([[1.0, 0.4], [0.4, 1.0]])
result["batch"] = [np.asarray(out).tolist() for out in f_batch(*at)]
result["empty value"] = float(f(np.zeros(0), np.zeros(0), np.zeros((0, 0)))[0])
try:
    f(np.zeros(21), np.ones(21), np.eye(21))
except NotImplementedError as error:
    result["large"] = str(error)
print(json.dumps(result))
"""


@pytest.fixture(scope="module")
def found():
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps(CASES | BAD),
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def parts(result):
    """Value; gradients as outputs of the Op; gradients by jax.grad through the value."""
    return result[0], [np.array(x) for x in result[1:4]], [np.array(x) for x in result[4:]]


@pytest.mark.parametrize("name", [name for name in CASES if len(CASES[name][0]) <= 3])
def test_both_gradients_are_one(found, name):
    _, by_graph, by_grad = parts(found[name])
    assert len(by_grad) == 3
    for one, other in zip(by_graph, by_grad, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "name", [n for n in CASES if n.startswith(("one", "unbounded", "certain"))]
)
def test_one_dimension_is_exact(found, name):
    lower, upper, cov = CASES[name]
    value, gradients, _ = parts(found[name])
    exact = log_prob_and_gradient(lower, upper, cov)
    # In a tail JAX's log_ndtr is an asymptotic series: 1e-11 relative at 20 deviations.
    assert value == pytest.approx(exact.value, rel=1e-10, abs=1e-12)
    # Rows without limits are integrated over like the others, which rounds; a narrow interval
    # loses 1e-16 over its width.
    tolerance = {"rtol": 1e-8, "atol": 1e-9}
    for one, other in zip(gradients, exact[1:4], strict=True):
        np.testing.assert_allclose(one, other, **tolerance)


def test_tail_is_that_of_scipy(found):
    assert parts(found["one, left tail"])[0] == pytest.approx(log_ndtr(-50.0), rel=1e-12)


@pytest.mark.parametrize(
    # Five standard deviations over 20 seeds of the 1024 points.
    ("name", "tolerance"),
    [
        ("two", 1e-5),
        ("two, orthant", 2e-4),
        ("two, tail", 7e-3),
        ("three", 4e-4),
        ("three, orthant", 1.2e-3),
    ],
)
def test_two_and_three_dimensions(found, name, tolerance):
    lower, upper, cov = CASES[name]
    value, gradients, _ = parts(found[name])
    assert value == pytest.approx(brute_log_prob(lower, upper, cov), abs=tolerance)
    exact = log_prob_and_gradient(lower, upper, cov, n_draws=4096)
    for one, other in zip(gradients, exact[1:4], strict=True):
        np.testing.assert_allclose(one, other, atol=tolerance * max(1.0, np.abs(other).max()))


def test_twenty_dimensions(found):
    value, (by_lower, _, by_cov), _ = parts(found["twenty"])

    def exact(t):
        return equicorrelated_log_prob(np.full(20, t[1]), np.full(20, INF), t[0])

    at = np.array([0.5, 0.0])
    # Five standard deviations over 20 seeds: .003 and .7%.
    assert value == pytest.approx(exact(at), abs=0.015)
    off = by_cov.sum() - np.trace(by_cov)
    np.testing.assert_allclose([off, by_lower.sum()], finite_difference(exact, at), rtol=0.035)


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_minus_infinity_without_gradient(found, name):
    value, by_graph, by_grad = parts(found[name])
    assert value == -INF
    for gradient in (*by_graph, *by_grad):
        assert not gradient.any()


def test_batch(found):
    values, by_cov = found["batch"]
    cov = np.array([[1.0, 0.4], [0.4, 1.0]])
    rows = [log_prob_and_gradient([-INF, -INF], x, cov) for x in ([0.3, -0.2], [0.0, 0.5])]
    np.testing.assert_allclose(values[:2], [row.value for row in rows], atol=1e-3)
    assert values[2] == -INF
    np.testing.assert_allclose(by_cov, sum(row.cov for row in rows), atol=2e-3)


def test_limits_of_the_path(found):
    assert found["empty value"] == 0.0
    assert not found["jax before"]
    assert "in 21 dimensions is not available in JAX, only up to 20" in found["large"]
    assert "nutpie" in found["large"]
