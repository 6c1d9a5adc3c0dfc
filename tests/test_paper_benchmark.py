"""The commands that reproduce the paper's tables, on made-up data of a minute."""

import csv
import gzip
import os
import subprocess
import sys
from pathlib import Path

import matplotlib.image
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
    with out.open("a") as file:
        file.write("made_up,1,GP-EP,60,2,0.5")  # a run that was killed as it wrote
    run("pmlb", "--data", data, "--out", tmp_path, "--folds", 2, "--jobs", 2)
    assert out.read_text().startswith(first)  # what is there is not computed again
    found = rows(out)
    assert sorted((row["fold"], row["method"]) for row in found) == [
        (fold, method)
        for fold in "01"
        for method in ("EP-1", "EP@0", "GP-EP", "GP-L", "SkewGP0", "SkewGP2")
    ]
    assert not any(row["failure"] for row in found)
    for row in found:
        # A sign with noise of .3 gains some .7 bits; 12 test rows of it leave a wide margin.
        assert 0.2 < float(row["information"]) <= 1.0
        assert float(row["accuracy"]) >= 0.75
    again = tmp_path / "again"
    run("pmlb", "--data", data, "--out", again, "--folds", 2, "--jobs", 1)
    assert figures(rows(again / "paper_pmlb.csv")) == figures(found)

    run("draws", "--data", data, "--out", tmp_path)
    drawn = rows(tmp_path / "paper_draws.csv")
    by_draws = {(row["fold"], row["draws"], row["seed"]): row["information"] for row in drawn}
    assert len(by_draws) == len(drawn) == 2 * (1 + 6 + 2)
    for row in found:  # the same fit, and at first the same draws
        if row["method"] in ("SkewGP0", "EP@0"):
            draws = "0" if row["method"] == "EP@0" else "8192"
            assert by_draws[row["fold"], draws, "0"] == row["information"]


@pytest.fixture
def benchmarks_on_path(monkeypatch):
    """Where processes started from here on find the commands' modules."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


@pytest.mark.slow(ci=True)
def test_a_dask_cluster_does_the_same_work(data, tmp_path, benchmarks_on_path, dask_cluster):
    common = ("pmlb", "--data", data, "--folds", 1, "--methods", "EP-1", "SkewGP2")
    run(*common, "--out", tmp_path / "here", "--jobs", 1)
    run(*common, "--out", tmp_path / "there", "--dask", dask_cluster.scheduler_address)
    here, there = (figures(rows(tmp_path / at / "paper_pmlb.csv")) for at in ("here", "there"))
    assert len(here) == 5
    assert there == here


@pytest.mark.slow(ci=True)
def test_timing_has_a_row_for_each_sampler(tmp_path):
    run("timing", "--out", tmp_path, "--sizes", 50)
    found = {row["sampler"]: float(row["ess"]) for row in rows(tmp_path / "paper_timing.csv")}
    assert set(found) == {"ess", "lin_ess", "twisted"}
    # Independent draws against chains that creep: the paper calls the latter independent.
    assert found["twisted"] > 10 * max(found["ess"], found["lin_ess"])


N_IMAGES = 80


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Noise of 4 by 4 pixels; of class k the k-th is bright. Digits: 3 is class 0, 5 class 1."""
    folder = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(1)
    drawn = {}
    for part in ("train", "t10k"):
        labels = (np.arange(N_IMAGES) % 10).astype(np.uint8)
        pixels = rng.integers(0, 90, (N_IMAGES, 16), dtype=np.uint8)
        pixels[np.arange(N_IMAGES), labels] = 220
        drawn[part] = pixels.reshape(-1, 4, 4), labels
        (folder / "fashion_mnist").mkdir(exist_ok=True)
        kinds = ("images-idx3", "labels-idx1")
        for array, kind in zip(drawn[part], kinds, strict=True):
            head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
            path = folder / "fashion_mnist" / f"{part}-{kind}-ubyte.gz"
            path.write_bytes(gzip.compress(head + array.tobytes()))
    X, labels = (np.concatenate(arrays) for arrays in zip(*drawn.values(), strict=True))
    (folder / "mnist").mkdir()
    np.savez(
        folder / "mnist" / "mnist_3_vs_5.npz",
        X=X,
        y=labels % 2,  # bright odd pixels
        split=np.repeat([0, 1], N_IMAGES).astype(np.uint8),
    )
    return folder


@pytest.mark.slow(ci=True)
def test_images_and_what_their_probabilities_say(images, tmp_path):
    common = ("images", "--data", images, "--out", tmp_path, "--jobs", 2)
    run(*common, "--sets", "mnist")
    run(*common, "--sets", "fashion", "--methods", "GP-EP")
    found = rows(tmp_path / "paper_images.csv")
    pairs = {(row["kernel"], row["method"]) for row in found if row["problem"] == "mnist"}
    assert pairs == {(k, m) for k in ("rbf", "nn") for m in ("GP-EP", "EP@0", "SkewGP0", "SkewGP2")}
    assert sum(row["problem"] == "fashion" for row in found) == 20
    # Half of the labels, or nine tenths, are what one guesses without looking.
    assert all(float(row["accuracy"]) >= 0.85 for row in found)

    ten = rows(tmp_path / "paper_one_vs_rest.csv")
    assert [row["method"] for row in ten] == ["GP-EP", "GP-EP"]
    for row in ten:
        path = tmp_path / "paper_images" / f"fashion_{row['kernel']}_{{}}_GP-EP.npz"
        p = [np.load(str(path).format(k))["p"] for k in range(10)]
        right = np.mean(np.argmax(p, axis=0) == np.arange(N_IMAGES) % 10)
        assert float(row["accuracy"]) == pytest.approx(right, abs=1e-4)  # as it is written
    bins = rows(tmp_path / "paper_calibration.csv")
    for kernel in ("rbf", "nn"):
        own = [row for row in bins if (row["problem"], row["kernel"]) == ("fashion", kernel)]
        assert sum(int(row["count"]) for row in own) == 10 * N_IMAGES
        ones = sum(int(row["count"]) * float(row["share"]) for row in own)
        assert ones == pytest.approx(N_IMAGES, abs=0.1)  # each image is of one class
    spread = rows(tmp_path / "paper_second_order.csv")
    assert len(spread) == 2 * 2 * N_IMAGES  # kernels, exact posteriors
    for row in spread:  # no distribution on [0, 1] has more
        p, sd = float(row["p"]), float(row["p_sd"])
        assert sd <= np.sqrt(p * (1.0 - p)) + 0.01


def draw_figures(*arguments):
    """What the command for figures prints; a warning ends it."""
    script = str(ROOT / "benchmarks" / "paper_figures.py")
    command = [sys.executable, "-W", "error", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=500)


@pytest.mark.slow(ci=True)
def test_figures_that_need_no_data_are_drawn(tmp_path):
    names = ("densities", "prior_draws", "posterior")
    done = draw_figures(*names, "--small", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    paths = [tmp_path / f"paper_{name}.png" for name in names]
    assert done.stdout.split() == [str(path) for path in paths]
    for path in paths:
        assert path.stat().st_size > 10_000
        image = matplotlib.image.imread(path)
        assert min(image.shape[:2]) > 400
        assert np.std(image[..., :3]) > 0.05  # not blank


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no --data DIR was given, and the package pmlb"),
        (["--data", "not_there"], "not_there is not a directory"),
        (["--data", "data", "--sets", "iriss"], "iriss.npz is not there (but iris)"),
    ],
)
def test_data_that_cannot_be_had_are_reported(arguments, message, tmp_path):
    # Where the package pmlb is installed, it would fetch them.
    (tmp_path / "pmlb.py").write_text("raise ImportError('not installed')")
    (tmp_path / "data" / "pmlb").mkdir(parents=True)
    (tmp_path / "data" / "pmlb" / "iris.npz").touch()
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    command = [sys.executable, str(ROOT / "benchmarks" / "paper.py"), "pmlb", *arguments]
    done = subprocess.run(
        [*command, "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
