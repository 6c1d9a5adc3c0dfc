"""What importing the package costs, and what it offers."""

import json
import subprocess
import sys

import pymc_skewgp

# PyMC itself is loaded: `pm.logcdf` and `pm.sample` are to know of the package once it is imported.
NEVER = ("jax", "torch", "sklearn", "matplotlib.pyplot", "distributed")
# Half a second and a fifth: those wait for whom needs them.
LATER = ("scipy.stats", "scipy.interpolate", "arviz_base")


def run(code: str) -> str:
    """Standard output of a fresh interpreter."""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_import_loads_nothing_that_pymc_does_not_need():
    code = (
        "import sys, json, pymc_skewgp, pymc_skewgp._plots; print(json.dumps(sorted(sys.modules)))"
    )
    loaded = set(json.loads(run(code)))
    assert not loaded & {*NEVER, *LATER}


def test_all_is_sorted_and_without_repeats():
    names = pymc_skewgp.__all__
    assert len(set(names)) == len(names)
    assert "SkewGP" in names


def test_every_promised_name_is_documented():
    for name in pymc_skewgp.__all__:
        value = getattr(pymc_skewgp, name)
        assert isinstance(value, str) or (value.__doc__ or "").strip(), name
