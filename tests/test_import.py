"""What importing the package costs, and what it offers."""

import json
import subprocess
import sys

import pytest

import pymc_skewgp

HEAVY = ("pymc", "pytensor", "matplotlib", "jax", "torch", "arviz", "sklearn")


def run(code: str) -> str:
    """Standard output of a fresh interpreter."""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_import_loads_nothing_heavy():
    code = "import sys, json, pymc_skewgp; print(json.dumps(sorted(sys.modules)))"
    loaded = set(json.loads(run(code)))
    assert not loaded & set(HEAVY)


def test_skew_gp_is_imported_when_asked_for():
    code = (
        "import sys, pymc_skewgp as p; assert 'pymc' not in sys.modules; gp = p.SkewGP; "
        "assert 'pymc' in sys.modules; assert 'matplotlib.pyplot' not in sys.modules; "
        "print(gp.__module__)"
    )
    assert run(code).strip() == "pymc_skewgp.gp.skewgp"


@pytest.mark.parametrize("name", pymc_skewgp.__all__)
def test_every_promised_name_exists(name):
    assert getattr(pymc_skewgp, name) is not None


def test_all_is_sorted_and_without_repeats():
    names = pymc_skewgp.__all__
    assert len(set(names)) == len(names)
    assert "SkewGP" in names


def test_every_promised_name_is_documented():
    for name in pymc_skewgp.__all__:
        value = getattr(pymc_skewgp, name)
        assert isinstance(value, str) or (value.__doc__ or "").strip(), name


def test_dir_lists_every_promised_name():
    assert set(pymc_skewgp.__all__) <= set(dir(pymc_skewgp))


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no attribute 'Skewgp'"):
        _ = pymc_skewgp.Skewgp
