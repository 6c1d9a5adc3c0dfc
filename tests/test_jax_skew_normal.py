"""Skew-normal densities and evidences in JAX, in a process of its own: JAX warns of forks."""

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from pymc_skewgp._gaussian.log_prob_gradient import density_and_orthant
from pymc_skewgp._model.ops.log_evidence import log_evidence

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="the extra jax is not installed"
)

SCRIPT = """
import json, sys, warnings
warnings.simplefilter("error")
import numpy as np, pytensor, pytensor.tensor as pt
import pymc_skewgp.jax
from pymc_skewgp._model.ops.log_evidence import pt_log_evidence
from pymc_skewgp._model.ops.densities import pt_log_density_and_orthant
def compiled(ndims, graph):
    inputs = [pt.tensor(dtype="float64", shape=(None,) * n) for n in ndims]
    value = graph(*inputs)
    return pytensor.function(inputs, [value, *pytensor.grad(value, inputs)], mode="JAX")
def evidence(lower, upper, value, noise, *sun):
    return pt_log_evidence(lower, upper, sun, value=value, noise=noise)
functions = {
    "density": compiled((1, 2, 2, 1, 2), pt_log_density_and_orthant),
    "evidence": compiled((1, 1, 1, 2, 1, 2, 2, 1, 2), evidence),
}
results = {name: [] for name in functions}
for name, cases in json.load(sys.stdin).items():
    for case in cases:
        arrays = [np.array(x, dtype=float).reshape(shape) for x, shape in case]
        results[name].append([np.asarray(x).tolist() for x in functions[name](*arrays)])
print(json.dumps(results))
"""


def problem(p, s):
    rng = np.random.default_rng(p + 10 * s)
    factor = rng.normal(size=(p + s, 2 * (p + s)))
    joint = factor @ factor.T / (p + s) + 0.2 * np.eye(p + s)
    return [rng.normal(size=p), joint[s:, s:], joint[s:, :s], rng.normal(size=s), joint[:s, :s]]


def data(p, s, values=()):
    """The same with limits of intervals, two-sided and one-sided, before the parameters.

    The last rows have values, and the noise of the first and the last is shared.
    """
    mu, *rest = problem(p, s)
    lower = np.array([-0.5, -np.inf, 0.0])[:p]
    value = np.append(np.full(p - len(values), np.nan), values)
    noise = np.eye(p)
    noise[0, -1] = noise[-1, 0] = 0.4
    return [lower, np.array([0.7, 0.0, np.inf])[:p], value, noise, mu, *rest]


DENSITIES = [problem(3, 0), problem(2, 1), problem(2, 3)]
EVIDENCES = [data(2, 0), data(2, 1), data(2, 2), data(3, 1, [0.4]), data(3, 0, [0.4, 1.0, -0.3])]


def invalid(case, at):
    """A covariance replaced by what is none."""
    return [*case[:at], -case[at], *case[at + 1 :]]


@pytest.fixture(scope="module")
def found():
    cases = {
        "density": [*DENSITIES, invalid(problem(2, 1), 1)],
        "evidence": [*EVIDENCES, invalid(data(2, 1), 5)],
    }
    given = {
        name: [[(x.ravel().tolist(), x.shape) for x in case] for case in several]
        for name, several in cases.items()
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow(ci=True)
def test_density(found):
    for case, result in zip(DENSITIES, found["density"], strict=False):
        expected = density_and_orthant(*case, n_draws=2**14)
        # 1024 points without a twist, in JAX, from two dimensions on.
        tolerance = 1e-10 if case[3].size < 2 else 2e-3
        for x, y in zip(result, expected, strict=True):
            np.testing.assert_allclose(np.reshape(x, np.shape(y)), y, atol=tolerance)


@pytest.mark.slow(ci=True)
def test_evidence(found):
    """Against the NumPy code, which its own tests compare with exact integrals."""
    for case, result in zip(EVIDENCES, found["evidence"], strict=False):
        expected = log_evidence("twisted", 2**14, *case)
        # 1024 points without a twist, in two to four dimensions: as above.
        for x, y in zip(result, expected, strict=True):
            np.testing.assert_allclose(np.reshape(x, np.shape(y)), y, atol=2e-3)


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("name", ["density", "evidence"])
def test_what_is_no_covariance(found, name):
    value, *gradients = found[name][-1]
    assert value == -np.inf
    assert not any(np.any(gradient) for gradient in gradients)
