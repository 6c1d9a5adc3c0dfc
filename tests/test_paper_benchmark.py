"""The commands that reproduce the paper's tables, on made-up data of a minute."""

import csv
import gzip
import runpy
import sys
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

pytestmark = pytest.mark.slow(ci=True)
BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
N_IMAGES = 80


@pytest.fixture
def run(monkeypatch, capsys):
    """What a command prints that runs in this process, which has imported the package."""
    monkeypatch.syspath_prepend(BENCHMARKS)

    def command(script, *arguments):
        monkeypatch.setattr(sys, "argv", [script, *map(str, arguments)])
        runpy.run_path(str(BENCHMARKS / script), run_name="__main__")
        return capsys.readouterr().out

    with matplotlib.rc_context():
        yield command


def rows(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def test_pmlb_goes_on_where_it_was_and_draws_are_those_of_its_fits(run, tmp_path):
    """A set whose label is the sign of its first input, but for noise; the second is idle."""
    (tmp_path / "pmlb").mkdir()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = (X[:, 0] + 0.3 * rng.normal(size=60) > 0).astype(int)
    np.savez(tmp_path / "pmlb" / "made_up.npz", X=X, y=y)
    out, common = tmp_path / "paper_pmlb.csv", ("--data", tmp_path, "--out", tmp_path, "--folds", 1)
    run("paper.py", "pmlb", *common, "--methods", "EP-1", "GP-L")
    first = out.read_text()
    with out.open("a") as file:
        file.write("made_up,0,GP-EP,60,2,0.5")  # a run that was killed as it wrote
    run("paper.py", "pmlb", *common, "--jobs", 2)
    assert out.read_text().startswith(first)  # what is there is not computed again
    found = rows(out)
    methods = ["EP-1", "EP@0", "GP-EP", "GP-L", "SkewGP0", "SkewGP2"]
    assert sorted(row["method"] for row in found) == methods
    assert not any(row["failure"] for row in found)
    for row in found:
        # A sign with noise of .3 gains some .7 bits; 12 test rows of it leave a wide margin.
        assert 0.2 < float(row["information"]) <= 1.0
        assert float(row["accuracy"]) >= 0.75
    run("paper.py", "draws", *common)
    drawn = rows(tmp_path / "paper_draws.csv")
    by_draws = {(row["fold"], row["draws"], row["seed"]): row["information"] for row in drawn}
    assert len(by_draws) == len(drawn) == 1 + 6 + 2
    for row in found:  # the same fit, and at first the same draws
        if row["method"] in ("SkewGP0", "EP@0"):
            draws = "0" if row["method"] == "EP@0" else "8192"
            assert by_draws[row["fold"], draws, "0"] == row["information"]


def test_timing_has_a_row_for_each_sampler(run, tmp_path):
    run("paper.py", "timing", "--out", tmp_path, "--sizes", 50)
    found = {row["sampler"]: float(row["ess"]) for row in rows(tmp_path / "paper_timing.csv")}
    # Independent draws against chains that creep: the paper calls the latter independent.
    assert found["twisted"] > 10 * max(found["ess"], found["lin_ess"])


def write_images(folder):
    """Noise of 4 by 4 pixels; of class k the k-th is bright."""
    rng = np.random.default_rng(1)
    (folder / "fashion_mnist").mkdir()
    for part in ("train", "t10k"):
        labels = (np.arange(N_IMAGES) % 10).astype(np.uint8)
        pixels = rng.integers(0, 90, (N_IMAGES, 16), dtype=np.uint8)
        pixels[np.arange(N_IMAGES), labels] = 220
        for array, kind in ((pixels.reshape(-1, 4, 4), "images-idx3"), (labels, "labels-idx1")):
            head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
            path = folder / "fashion_mnist" / f"{part}-{kind}-ubyte.gz"
            path.write_bytes(gzip.compress(head + array.tobytes()))


def test_images_and_what_their_probabilities_say(run, tmp_path):
    write_images(tmp_path)
    common = ("--data", tmp_path, "--out", tmp_path, "--sets", "fashion", "--methods", "GP-EP")
    run("paper.py", "images", *common)
    found = rows(tmp_path / "paper_images.csv")
    assert len(found) == 20  # ten classes, two kernels
    # Nine tenths of the labels are what one guesses without looking.
    assert all(float(row["accuracy"]) >= 0.85 for row in found)
    for row in rows(tmp_path / "paper_one_vs_rest.csv"):
        path = tmp_path / "paper_images" / f"fashion_{row['kernel']}_{{}}_GP-EP.npz"
        p = [np.load(str(path).format(k))["p"] for k in range(10)]
        right = np.mean(np.argmax(p, axis=0) == np.arange(N_IMAGES) % 10)
        assert float(row["accuracy"]) == pytest.approx(right, abs=1e-4)  # as it is written
    bins = rows(tmp_path / "paper_calibration.csv")
    ones = sum(int(row["count"]) * float(row["share"]) for row in bins)
    assert ones == pytest.approx(2 * N_IMAGES, abs=0.2)  # each image is of one class


def test_figures_that_need_no_data_are_drawn(run, tmp_path):
    names = ("densities", "prior_draws", "posterior")
    paths = [tmp_path / f"paper_{name}.png" for name in names]
    shown = run("paper_figures.py", *names, "--small", "--out", tmp_path).split()
    assert shown == [str(path) for path in paths]
    for path in paths:
        image = matplotlib.image.imread(path)
        assert min(image.shape[:2]) > 400
        assert np.std(image[..., :3]) > 0.05  # not blank
