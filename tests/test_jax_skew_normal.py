"""The skew-normal density in JAX, in a process of its own: once imported, JAX warns of forks."""

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from pymc_skewgp._gaussian.density_and_orthant import density_and_orthant

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="the extra jax is not installed"
)

SCRIPT = """
import json, sys, warnings
warnings.simplefilter("error")
import numpy as np, pytensor, pytensor.tensor as pt
import pymc_skewgp.jax
from pymc_skewgp._model.ops.skew_normal_density import pt_log_density_and_orthant
inputs = [pt.tensor(dtype="float64", shape=(None,) * n) for n in (1, 2, 2, 1, 2)]
value = pt_log_density_and_orthant(*inputs)
f = pytensor.function(inputs, [value, *pytensor.grad(value, inputs)], mode="JAX")
results = []
for case in json.load(sys.stdin):
    arrays = [np.array(x, dtype=float).reshape(shape) for x, shape in case]
    results.append([np.asarray(x).tolist() for x in f(*arrays)])
print(json.dumps(results))
"""


def problem(p, s):
    rng = np.random.default_rng(p + 10 * s)
    factor = rng.normal(size=(p + s, 2 * (p + s)))
    joint = factor @ factor.T / (p + s) + 0.2 * np.eye(p + s)
    return [rng.normal(size=p), joint[s:, s:], joint[s:, :s], rng.normal(size=s), joint[:s, :s]]


@pytest.mark.slow(ci=True)
def test_value_and_gradient():
    cases = [problem(3, 0), problem(2, 1), problem(2, 3)]
    invalid = problem(2, 1)
    cases.append([invalid[0], -invalid[1], *invalid[2:]])
    told = json.dumps([[(x.ravel().tolist(), x.shape) for x in case] for case in cases])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=told,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr
    for case, found in zip(cases[:-1], json.loads(done.stdout), strict=False):
        expected = density_and_orthant(*case, n_draws=2**14)
        # 1024 points without a twist, in JAX, from two dimensions on.
        tolerance = 1e-10 if case[3].size < 2 else 2e-3
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(np.reshape(x, np.shape(y)), y, atol=tolerance)
    value, *gradients = json.loads(done.stdout)[-1]
    assert value == -np.inf
    assert not any(np.any(gradient) for gradient in gradients)
