"""Images, one class against the rest: Fashion-MNIST, MNIST 3 against 5, speed limits 30 against 50.

As in the paper: 5000 images to learn from and 5000 to forecast of Fashion-MNIST, the first of each
file, and each of the ten classes against the rest, by an RBF and by an arcsine kernel. The digits
and the signs keep the split that comes with the data (for the signs by track: frames of one sign
are nearly equal, and never on both sides), 5000 of each side at most.
"""

import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from datasets import (
    DataUnavailableError,
    fashion_mnist,
    information_score,
    mnist_3_vs_5,
    speed_limits,
)
from paper_methods import forecasts
from threadpoolctl import threadpool_limits

N = 5000
KERNELS = ("rbf", "nn")
METHODS = ("GP-EP", "SkewGP0", "SkewGP2")  # EP@0 comes with SkewGP0
SEED = 8927


class Images(NamedTuple):
    """Pixels in [0, 1], a row an image, and labels 0 and 1."""

    X: np.ndarray
    y: np.ndarray
    new: np.ndarray
    y_new: np.ndarray


def load(problem: str, target: int, data: Path | None, n: int = N) -> Images:
    """`problem` "fashion" (class `target` against the rest), "mnist" or "gtsrb"."""
    if problem == "fashion":
        (X, y), (new, y_new) = (fashion_mnist(data, part) for part in ("train", "test"))
        return Images(X[:n], (y[:n] == target) * 1, new[:n], (y_new[:n] == target) * 1)
    if problem not in PAIRS:
        raise DataUnavailableError(f"No images {problem!r}: there are {', '.join(CLASSES)}.")
    X, y, split = PAIRS[problem](data)
    # Spread over the file, which may have one class after the other.
    train, test = (spread(np.flatnonzero(split == side), n) for side in (0, 1))
    return Images(X[train], y[train], X[test], y[test])


def spread(rows: np.ndarray, n: int) -> np.ndarray:
    """All of `rows`, or `n` of them at equal distances."""
    return rows if len(rows) <= n else rows[np.arange(n) * len(rows) // n]


PAIRS = {"mnist": mnist_3_vs_5, "gtsrb": speed_limits}
CLASSES = {"fashion": 10} | dict.fromkeys(PAIRS, 1)  # each of ten against the rest


def available(data: Path | None, wanted: list[str] | None) -> list[str]:
    """The problems whose images are there or can be fetched: here, and not by each job for itself.

    Others are warned of; an error if there are no images at all, or not those that are `wanted`.
    """
    found, failures = [], []
    for problem in wanted or CLASSES:
        try:
            load(problem, 0, data, 1)
            found.append(problem)
        except DataUnavailableError as error:
            failures.append(error)
    if failures and (wanted or not found):
        raise failures[0]
    for error in failures:
        warnings.warn(f"Left out: {error}", stacklevel=2)
    return found


def image_tasks(
    data: Path | None, out: Path, n: int, wanted: list[str] | None = None
) -> list[tuple[str, str, int, str, Path | None, Path, int]]:
    """Problem, kernel, class and method of each row, and where from and to."""
    problems = [(name, k) for name in available(data, wanted) for k in range(CLASSES[name])]
    # What takes longest comes last.
    return [
        (problem, kernel, k, method, data, out, n)
        for method in METHODS
        for kernel in KERNELS
        for problem, k in problems
    ]


def image_row(
    problem: str, kernel: str, target: int, method: str, data: Path | None, out: Path, n: int
) -> list[dict[str, object]]:
    """Accuracy and bits of one method, two for SkewGP0; probabilities go to a file of their own."""
    images = load(problem, target, data, n)
    names = ("EP@0", "SkewGP0") if method == "SkewGP0" else (method,)
    with threadpool_limits(1):
        found = forecasts(
            names, images.X, images.y, images.new, kernel=kernel, ard=False, seed=SEED
        )
    rows = []
    for name, forecast in found.items():
        p = forecast.p
        folder = out / "paper_images"
        folder.mkdir(parents=True, exist_ok=True)
        kept = {"p": p} if forecast.p_sd is None else {"p": p, "p_sd": forecast.p_sd}
        np.savez_compressed(
            folder / f"{problem}_{kernel}_{target}_{name}.npz",
            **{key: value.astype(np.float32) for key, value in kept.items()},
        )
        base = images.y.mean()
        rows.append(
            {
                "problem": problem,
                "kernel": kernel,
                "class": target,
                "method": name,
                "n": len(images.y),
                "accuracy": f"{np.mean((p > 0.5) == images.y_new):.4f}",
                "information": f"{information_score(images.y_new, p, base):.4f}",
                "log_evidence": f"{forecast.log_evidence:.2f}",
                "skewness": f"{forecast.skewness:.3f}",
                "seconds": f"{forecast.seconds:.1f}",
            }
        )
    return rows
