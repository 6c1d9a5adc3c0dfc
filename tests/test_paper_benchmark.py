"""The commands that reproduce the paper's tables, on a minute's worth of made-up data."""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ("information", "accuracy", "log_evidence", "skewness")


def run(*arguments):
    command = [sys.executable, str(ROOT / "benchmarks" / "paper.py"), *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True, timeout=500)


def rows(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def figures(found):
    """What does not depend on the machine; rows come as they are done."""
    return sorted([row[name] for name in ("fold", "method", *FIGURES)] for row in found)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A set whose label is the sign of its first input, but for noise; the second is idle."""
    folder = tmp_path_factory.mktemp("data") / "pmlb"
    folder.mkdir()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = (X[:, 0] + 0.3 * rng.normal(size=60) > 0).astype(int)
    np.savez(folder / "made_up.npz", X=X, y=y)
    return folder.parent


@pytest.mark.slow(ci=True)
def test_pmlb_goes_on_where_it_was_and_does_not_depend_on_the_jobs(data, tmp_path):
    out = tmp_path / "paper_pmlb.csv"
    run("pmlb", "--data", data, "--out", tmp_path, "--folds", 1, "--jobs", 1)
    first = out.read_text()
    run("pmlb", "--data", data, "--out", tmp_path, "--folds", 2, "--jobs", 2)
    assert out.read_text().startswith(first)  # what is there is not computed again
    found = rows(out)
    assert sorted((row["fold"], row["method"]) for row in found) == [
        (fold, method)
        for fold in "01"
        for method in ("EP@0", "GP-EP", "GP-L", "SkewGP0", "SkewGP2")
    ]
    assert not any(row["failure"] for row in found)
    for row in found:
        # A sign with noise of .3 is worth some .7 bits; 12 test rows of it leave a wide margin.
        assert 0.2 < float(row["information"]) <= 1.0
        assert float(row["accuracy"]) >= 0.75
    again = tmp_path / "again"
    run("pmlb", "--data", data, "--out", again, "--folds", 2, "--jobs", 2)
    assert figures(rows(again / "paper_pmlb.csv")) == figures(found)


@pytest.mark.slow(ci=True)
def test_timing_has_a_row_for_each_sampler(tmp_path):
    run("timing", "--out", tmp_path, "--sizes", 50)
    found = {row["sampler"]: float(row["ess"]) for row in rows(tmp_path / "paper_timing.csv")}
    assert set(found) == {"ess", "lin_ess", "twisted"}
    # Independent draws against chains that creep: the paper calls the latter independent.
    assert found["twisted"] > 10 * max(found["ess"], found["lin_ess"])


def test_a_missing_data_directory_is_told_of():
    command = [sys.executable, str(ROOT / "benchmarks" / "paper.py"), "pmlb"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    assert "pmlb needs --data DIR" in done.stderr
