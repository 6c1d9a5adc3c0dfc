"""What is made of the paper's result files: averages, tests, tree, figures; planted effects."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[1]
N_SETS = 24
GAIN = 0.05


@pytest.fixture(scope="module")
def modules():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import paper_image_tables
    import paper_results_figures
    import paper_summary

    yield paper_summary, paper_results_figures, paper_image_tables
    sys.path.remove(str(ROOT / "benchmarks"))


@pytest.fixture(scope="module")
def results(tmp_path_factory, modules):
    """Sets on which skewness above 1 gains .05 bits over EP, half of them; and one not whole."""
    summary = modules[0]
    folder = tmp_path_factory.mktemp("results")
    rng = np.random.default_rng(0)
    rows = []
    for i in range(N_SETS + 1):
        level, skewness = rng.uniform(0.2, 0.8), 0.5 + (i % 2) + rng.uniform(0.0, 0.2)
        for fold in range(5 if i < N_SETS else 4):
            noise = 0.1 * rng.normal()  # of the fold, the same for all methods
            for method in summary.METHODS:
                gain = {"GP-L": -0.2, "SkewGP0": GAIN * (i % 2), "SkewGP2": GAIN * (i % 2)}
                rows.append(
                    {
                        "set": f"set {i:02}",
                        "fold": fold,
                        "method": method,
                        "n": 100 + 7 * i,
                        "d": 2 + i % 5,
                        "information": level + noise + gain.get(method, 0.0),
                        "accuracy": 0.5 + 0.5 * level,
                        "log_evidence": -10.0,
                        "skewness": skewness,
                        "seconds": 1.0,
                        "failure": "",
                    }
                )
    pd.DataFrame(rows).to_csv(folder / "paper_pmlb.csv", index=False)
    return folder


def test_differences_are_those_that_were_planted(modules, results):
    summary = modules[0]
    asked = ("SkewGP0 less GP-EP", "of it, the hyperparameters", "SkewGP0 less GP-L")
    pairs = tuple(pair for pair in summary.PAIRS if pair[2] in asked)
    found = summary.differences(summary.by_set(results), pairs)
    half = found.loc["SkewGP0 less GP-EP"]
    assert half["mean"] == pytest.approx(GAIN / 2)
    # Deviations of GAIN / 2 about the mean, with 23 degrees of freedom.
    assert half["std. error"] == pytest.approx(GAIN / 2 / np.sqrt(N_SETS - 1))
    assert half["P(better)"] > 0.5 > half["P(worse)"]
    assert found.loc["of it, the hyperparameters", "P(equal)"] == 1.0
    assert found.loc["SkewGP0 less GP-L", "P(better)"] > 0.999


def test_sets_of_one_family_count_as_one(modules):
    """Doubled, each set by a sister with the same gain, they tell no more than once."""
    summary = modules[0]
    pairs = [members[:2] for members in summary.FAMILIES]
    gains = np.random.default_rng(4).normal(size=len(pairs))
    once = pd.Series(gains, index=[first for first, _ in pairs])
    twice = pd.concat([once, pd.Series(gains, index=[second for _, second in pairs])])
    assert summary.std_error(once) == pytest.approx(gains.std(ddof=1) / np.sqrt(len(pairs)))
    assert summary.std_error(twice) == pytest.approx(summary.std_error(once))


@pytest.fixture
def command(modules, monkeypatch):
    """Runs the command on a folder."""

    def run(folder):
        monkeypatch.setattr(sys, "argv", ["paper_summary.py", "--results", str(folder)])
        modules[0].main()

    return run


def test_the_command_does_without_the_test_where_baycomp_is_not(
    modules, results, command, monkeypatch, capsys
):
    monkeypatch.setattr(modules[0], "find_spec", lambda name: None)
    command(results)
    without = capsys.readouterr().out
    assert "P(equal)" not in without
    assert "pip install baycomp" in without
    assert f"{GAIN / 2:.4f}" in without  # the planted mean


def test_the_tree_finds_where_the_gain_is(modules, results):
    figures = modules[1]
    tree, explained = figures.fitted_tree(figures.gain_and_skewness(results))
    assert figures.FEATURES[tree.tree_.feature[0]] == "skewness"
    assert 0.7 < tree.tree_.threshold[0] < 1.5
    assert explained > 0.99


def test_calibrated_forecasts_lie_on_the_diagonal(modules):
    rng = np.random.default_rng(3)
    p = rng.uniform(size=20_000)
    rows = modules[2].reliability(rng.uniform(size=p.size) < p, p)
    assert [row["low"] for row in rows] == pytest.approx(np.linspace(0, 0.9, 10))
    assert sum(row["count"] for row in rows) == p.size
    for row in rows:  # 5 standard errors: false alarms 6e-6 for ten bins
        error = np.sqrt(row["p"] * (1.0 - row["p"]) / row["count"])
        assert abs(row["share"] - row["p"]) < 5 * error
