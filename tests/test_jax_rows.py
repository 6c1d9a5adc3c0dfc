"""Sums over rows in JAX against the block of NumPy, in a process of its own as in test_jax.

Some 5 CPU seconds.
"""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("jax") is None, reason="the extra jax is not installed"
    ),
    pytest.mark.slow(ci=True),
]

SCRIPT = """
import json, warnings
warnings.simplefilter("error")
import numpy as np
import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr
from pymc_skewgp._gaussian.blocks.rows import RowSites
from pymc_skewgp._gaussian.blocks.ep import LocalBlocks
from pymc_skewgp._gaussian.blocks.ep import fit_blocks, gaussian_of
from pymc_skewgp._gaussian.blocks.rows import RowBlock
from pymc_skewgp.jax_rows import pair_log_probs, site_sums

rng = np.random.default_rng(3)
n, r, n_pairs = 100_000, 20, 16
F = rng.standard_normal((n, r)) * np.sqrt(2.0 / r)
noise, limit = rng.uniform(0.5, 2.0, n), rng.normal(0.0, 0.3, n)
positive = F @ rng.standard_normal(r) + np.sqrt(noise) * rng.standard_normal(n) > limit
lower, upper = np.where(positive, limit, -np.inf), np.where(positive, np.inf, limit)
block = RowBlock(F, RowSites(lower, upper, np.full(n, np.nan), noise))
ep = fit_blocks(LocalBlocks([block]))
slope = np.where(positive, 1.0, -1.0) / np.sqrt(noise)

result = {}
off = ep.gaussian.spread @ rng.standard_normal((r, n_pairs))
wanted = block.pair_log_probs(ep.gaussian.mean, off)
found = pair_log_probs(F, slope, limit, ep.gaussian.mean, off)
result["types"] = [str(x.dtype) for x in (found, *site_sums(F, block.tau, block.nu))]
result["pairs"] = np.abs(found - wanted).max()

# The same in float32 throughout, row after row as a loop of a device's kernel adds them up.
z = (slope[:, None] * (F @ (ep.gaussian.mean[:, None] + off) - limit[:, None])).astype("f4")
logs = log_ndtr(jnp.asarray(z))
total = jax.lax.scan(lambda a, row: (a + row, None), jnp.zeros(n_pairs, "f4"), logs)[0]
result["in float32"] = float(np.abs(np.asarray(total, dtype=float) - wanted[0]).max())
result["sum in float64"] = float(np.abs(np.asarray(logs, dtype=float).sum(0) - wanted[0]).max())

gram, pull = block.sums()
by_jax = site_sums(F, block.tau, block.nu)
chol = np.linalg.cholesky(gram + np.eye(r))
white = np.linalg.solve(chol, np.linalg.solve(chol, by_jax[0] - gram).T)
result["gram"] = float(np.abs(white).max())
mean = np.linalg.solve(by_jax[0] + np.eye(r), by_jax[1])
result["mean"] = float(np.abs(chol.T @ (mean - gaussian_of(block.sums()).mean)).max())
few = pair_log_probs(F[:7], slope[:7], limit[:7], ep.gaussian.mean, off)
small = RowBlock(F[:7], RowSites(lower[:7], upper[:7], np.full(7, np.nan), noise[:7]))
result["few"] = float(np.abs(few - small.pair_log_probs(ep.gaussian.mean, off)).max())
result["x64 of others"] = bool(jax.config.jax_enable_x64)
print(json.dumps(result))
"""


@pytest.fixture(scope="module")
def found():
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "0"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_log_weights(found):
    # A row is wrong by 6e-8 times some 2 of z, and of log Phi, at random: times the root of n.
    assert found["pairs"] < 1e-4
    assert found["few"] < 1e-6
    assert found["types"] == ["float64"] * 3


def test_a_sum_in_float32_is_wrong(found):
    assert found["sum in float64"] < 1e-4
    assert found["in float32"] > 0.1  # and all pairs would have to agree to some 0.02


def test_site_sums(found):
    # Float32 within 1024 rows: 6e-8 times the root of 1024. Weights mend what is left of it.
    assert found["gram"] < 1e-6
    # In standard deviations of the coordinates, of which the sum of nu has hundreds.
    assert found["mean"] < 1e-4


def test_the_setting_of_others_stays(found):
    assert not found["x64 of others"]
