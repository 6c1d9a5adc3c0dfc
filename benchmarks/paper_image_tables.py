"""What the saved probabilities of the images say: ten classes at once, calibration, uncertainty.

    python benchmarks/paper_image_tables.py --data DIR

reads ``OUT/paper_images/*.npz``, which `paper.py images` leaves, and writes

* ``paper_one_vs_rest.csv``: accuracy of the most probable of ten classes;
* ``paper_calibration.csv``: forecasts in ten bins, and how many of them came true;
* ``paper_second_order.csv``: mean and standard deviation of p at each test image of the two-class
  problems.
"""

import argparse
import functools
import itertools
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from core import ROOT
from datasets import add_data_option
from paper_images import CLASSES, KERNELS, PAIRS, N, load

METHODS = ("GP-EP", "EP@0", "SkewGP0", "SkewGP2")
EDGES = np.linspace(0.0, 1.0, 11)


class Saved(NamedTuple):
    """Forecasts of one problem by one kernel and method, a column a class."""

    y: np.ndarray
    p: np.ndarray
    p_sd: np.ndarray | None


@functools.cache  # the images take longer to read than all else here
def labels(problem: str, data: Path | None, n: int) -> np.ndarray:
    """Of the test images, a column a class."""
    return np.transpose([load(problem, k, data, n).y_new for k in range(CLASSES[problem])])


def saved(
    problem: str, kernel: str, method: str, data: Path | None, out: Path, n: int
) -> Saved | None:
    """None while a class is missing."""
    names = [f"{problem}_{kernel}_{k}_{method}.npz" for k in range(CLASSES[problem])]
    paths = [out / "paper_images" / name for name in names]
    if not all(path.exists() for path in paths):
        return None
    p, p_sd = [], []
    for path in paths:
        with np.load(path) as arrays:
            p.append(arrays["p"])
            p_sd.append(arrays.get("p_sd"))
    known = all(sd is not None for sd in p_sd)
    y = labels(problem, data, n)
    return Saved(y, np.transpose(p), np.transpose(p_sd) if known else None)


def collect(data: Path | None, out: Path, n: int = N) -> None:
    """Write the three tables from what is complete."""
    one_vs_rest, calibration, second_order = [], [], []
    for problem, kernel, method in itertools.product(CLASSES, KERNELS, METHODS):
        found = saved(problem, kernel, method, data, out, n)
        if found is None:
            continue
        which = {"problem": problem, "kernel": kernel, "method": method}
        if problem == "fashion":
            right = found.p.argmax(axis=1) == found.y.argmax(axis=1)
            error = right.std() / np.sqrt(right.size)
            one_vs_rest.append(
                {**which, "n": right.size, "accuracy": right.mean(), "std_error": error}
            )
        calibration += [{**which, **row} for row in reliability(found.y.ravel(), found.p.ravel())]
        if problem in PAIRS and found.p_sd is not None:
            columns = {"y": found.y.ravel(), "p": found.p.ravel(), "p_sd": found.p_sd.ravel()}
            second_order.append(pd.DataFrame({**which, **columns}))
    tables = {
        "one_vs_rest": pd.DataFrame(one_vs_rest),
        "calibration": pd.DataFrame(calibration),
        "second_order": pd.concat(second_order) if second_order else pd.DataFrame(),
    }
    for name, table in tables.items():
        if not table.empty:
            path = out / f"paper_{name}.csv"
            which = ["problem", "kernel", "method"]
            if path.exists():  # other forecasts, whose files are on another machine
                old = pd.read_csv(path)
                known = old.set_index(which).index.isin(table.set_index(which).index)
                table = pd.concat([old[~known], table])
            table.to_csv(path, index=False, float_format="%.4f")


def reliability(y: np.ndarray, p: np.ndarray) -> list[dict[str, float]]:
    """Bins of the forecast: how many, their mean, and the share of labels 1 among them."""
    rows = []
    for i, low in enumerate(EDGES[:-1]):
        # The last bin has both of its ends.
        inside = (p >= low) & ((p < EDGES[i + 1]) | (i == len(EDGES) - 2))
        if inside.any():
            row = {"low": low, "count": int(inside.sum()), "p": p[inside].mean()}
            rows.append({**row, "share": y[inside].mean()})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--images", type=int, default=N)
    arguments = parser.parse_args()
    collect(arguments.data, arguments.out, arguments.images)


if __name__ == "__main__":
    main()
