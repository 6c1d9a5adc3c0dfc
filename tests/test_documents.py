"""What the README and the quickstart promise runs."""

import re
import runpy
import sys
import tomllib
import warnings
from pathlib import Path

import matplotlib.image
import numpy as np
import pymc as pm
import pytest
import yaml

import pymc_skewgp

ROOT = Path(__file__).resolve().parents[1]


def blocks_of(name, language="python"):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / name).read_text(), re.S)


@pytest.mark.slow(ci=True)
def test_readme_code_runs(monkeypatch):
    sample = pm.sample
    # A chain of the usual length says nothing more of whether the block runs.
    monkeypatch.setattr(
        pm, "sample", lambda *a, **k: sample(*a, **{**k, "draws": 50, "tune": 100, "chains": 1})
    )
    blocks = blocks_of("README.md")
    assert len(blocks) >= 3
    names: dict = {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The number of samples is too small")
        exec("\n".join(blocks), names)
    assert names["about"]["log_evidence_se"] < 0.05
    # f at 0.4 is seen, at 3.5 it is beyond the labels: sin(0.8) > 0, and wider there.
    assert names["new"]["p_mean"].values[0] > 0.8
    assert names["new"]["f_sd"].values[0] < names["new"]["f_sd"].values[1]
    assert names["fit"].converged
    assert names["idata"]["posterior"]["f"].shape == (1, 50, 80)


def test_readme_is_short():
    text = (ROOT / "README.md").read_text()
    words = re.findall(r"\S*\w\S*", re.sub(r"```.*?```", "", text, flags=re.S))
    assert len(words) <= 900
    assert "with pm.Model()" in "\n".join(text.splitlines()[:59])


@pytest.mark.slow(ci=True)
def test_code_beside_peers_runs():
    names: dict = {}
    exec("\n".join(blocks_of("docs/comparisons.md")), names)
    assert set(names["comparison"].trees) == {"exact", "ep", "laplace"}


def test_the_conda_recipe_asks_for_what_the_package_asks_for():
    recipe = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [f"python{project['requires-python']}", *project["dependencies"]]
    assert [line.replace(" ", "") for line in recipe["requirements"]["run"]] == wanted
    assert recipe["context"]["version"] == pymc_skewgp.__version__
    assert recipe["about"]["summary"] == project["description"]


@pytest.mark.slow(ci=True)
def test_code_about_hyperparameters_runs():
    names: dict = {}
    exec("\n".join(blocks_of("docs/hyperparameters.md")), names)
    assert names["fit"].converged
    assert "positive" in names["skew"].point
    assert np.ptp(names["skew"].point["r"]) > 1.0  # the text says that its priors keep them apart


def test_readme_names_files_that_exist():
    text = (ROOT / "README.md").read_text()
    for target in re.findall(r"\]\(((?!http)[^)]+)\)", text):
        assert (ROOT / target).exists(), target


def test_the_home_page_is_the_readme():
    text = (ROOT / "README.md").read_text()
    home = text[text.index("<!-- home -->") : text.index("<!-- /home -->")]
    assert "with pm.Model()" in home
    assert "{include} ../README.md" in (ROOT / "docs" / "index.md").read_text()


@pytest.mark.slow(ci=True)
def test_quickstart_runs_and_draws(tmp_path, monkeypatch, capsys):
    figure = tmp_path / "figure.png"
    monkeypatch.setattr(sys, "argv", ["quickstart.py", "--figure", str(figure)])
    # In this process, which has imported the package.
    runpy.run_path(str(ROOT / "examples" / "quickstart.py"), run_name="__main__")
    evidence = {
        name: (float(value), float(error))
        for name, value, error in re.findall(
            r"^(GP|SkewGP)\s+log evidence\s+([-\d.]+) \+- ([\d.]+)", capsys.readouterr().out, re.M
        )
    }
    # The two points are where the data say so as well: up to log 4 is to be gained.
    gain = evidence["SkewGP"][0] - evidence["GP"][0]
    assert 0.0 < gain < 2.5
    assert all(error < 0.05 for _, error in evidence.values())
    image = matplotlib.image.imread(figure)
    assert image.shape[0] > 400
    assert np.std(image) > 0.05  # not blank
