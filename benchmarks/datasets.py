"""Data sets of the classification benchmarks: loaders, scaling, folds and the score of a forecast.

    python benchmarks/datasets.py --data DIR

lists the sets in ``DIR/pmlb`` with n, d and the share of y = 1; a star marks those of `SETS_20`.
Everywhere `data` is that directory: it holds ``pmlb/NAME.npz`` (arrays X and y) and
``fashion_mnist/*.gz`` (the four IDX files).
"""

import argparse
import gzip
from pathlib import Path

import numpy as np

from pymc_skewgp.workflow import scores

# Chosen by a rule, before any model was fitted, all features kept as numbers:
# 1. sets of at most 400 rows, those of more than two classes cut to their first two;
# 2. of sets that hold the same records (Cleveland: cleve, cleveland, cleveland-nominal, heart-c;
#    Hungary: heart-h, hungarian; colic, horse-colic; the mfeat-*) the first by name;
# 3. sets that have two classes at the source first, then the others, both by name; the first 20.
SETS_20 = (
    # two classes at the source: all there are
    "analcatdata_boxing1",
    "analcatdata_creditscore",
    "analcatdata_lawsuit",
    "breast-cancer",
    "cleve",
    "colic",
    "haberman",
    "heart-h",
    "ionosphere",
    "mux6",
    "prnn_synth",
    "promoters",
    "sonar",
    "spect",
    # cut to two
    "allbp",
    "analcatdata_dmft",
    "analcatdata_germangss",
    "balance-scale",
    "calendarDOW",
    "cars",
)
FASHION_MNIST_PARTS = {"train": "train", "test": "t10k"}


def pmlb(data: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """X (n, d) float64 and y (n,) in {0, 1} of one set of the Penn Machine Learning Benchmarks."""
    path = Path(data) / "pmlb" / f"{name}.npz"
    if not path.exists():
        raise FileNotFoundError(f"No data set {name!r}: {path} is not there.")
    with np.load(path) as arrays:
        X, y = arrays["X"].astype(np.float64), arrays["y"].astype(np.int64)
    if not (np.isfinite(X).all() and np.array_equal(np.unique(y), [0, 1])):
        raise ValueError(f"{path}: X has to be finite and y to hold 0 and 1.")
    return X, y


def pmlb_sizes(data: Path) -> list[tuple[str, int, int]]:
    """Name, n and d of every set, by name."""
    names = sorted(path.stem for path in (Path(data) / "pmlb").glob("*.npz"))
    return [(name, *pmlb(data, name)[0].shape) for name in names]


def fashion_mnist(data: Path, part: str = "train") -> tuple[np.ndarray, np.ndarray]:
    """X (n, 784) float64 in [0, 1] and labels (n,) in 0..9, of the part "train" or "test"."""
    if part not in FASHION_MNIST_PARTS:
        raise ValueError(f'part has to be "train" or "test", not {part!r}.')
    stem = Path(data) / "fashion_mnist" / FASHION_MNIST_PARTS[part]
    X = read_idx(stem.with_name(f"{stem.name}-images-idx3-ubyte.gz"))
    y = read_idx(stem.with_name(f"{stem.name}-labels-idx1-ubyte.gz"))
    if len(X) != len(y):
        raise ValueError(f"{len(X)} images, but {len(y)} labels.")
    return X.reshape(len(X), -1) / 255.0, y.astype(np.int64)


def read_idx(path: Path) -> np.ndarray:
    """Array of bytes in a gzipped IDX file."""
    content = gzip.decompress(Path(path).read_bytes())
    # Two zeros, the type (8: unsigned byte), the number of axes; then the axes, big-endian.
    if content[:3] != b"\x00\x00\x08":
        raise ValueError(f"{path} is not an IDX file of unsigned bytes.")
    shape = np.frombuffer(content, ">u4", count=content[3], offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)


def draw_probit_gp(
    n: int, d: int = 2, lengthscale: float = 1.0, variance: float = 4.0, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """x ~ N(0, I_d), f from the GP with an isotropic RBF kernel, P(y = 1) = Phi(f)."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    squared = np.sum((X[:, None] - X) ** 2, axis=-1)
    # Eigenvalues rather than a Cholesky factor: no jitter has to be chosen.
    values, vectors = np.linalg.eigh(variance * np.exp(-0.5 * squared / lengthscale**2))
    f = vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.standard_normal(n))
    return X, (f + rng.standard_normal(n) > 0).astype(np.int64)


def standardise(train: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """Columns of mean 0 and standard deviation 1 over `train`; `others` are scaled alike."""
    mean, scale = train.mean(axis=0), train.std(axis=0)
    # By their range: rounding leaves constant columns a deviation that is tiny, not zero.
    scale[np.ptp(train, axis=0) == 0] = 1.0
    return [(X - mean) / scale for X in (train, *others)]


def stratified_folds(
    y: np.ndarray, seed: int, n_folds: int = 5
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Indices (train, test) of each fold: the classes are shuffled apart and dealt out in turn.

    Fold sizes, and the rows of a class in each fold, differ by one at most.
    """
    rng = np.random.default_rng(seed)
    dealt = np.concatenate([rng.permutation(np.flatnonzero(y == c)) for c in np.unique(y)])
    tests = [np.sort(dealt[k::n_folds]) for k in range(n_folds)]
    return [(np.setdiff1d(np.arange(len(y)), test), test) for test in tests]


def information_score(y: np.ndarray, p: np.ndarray, base_rate: float) -> float:
    """Bits a label that the forecasts p = P(y = 1) give beyond the base rate of the classes.

    `pymc_skewgp.workflow.scores.information_score`, which says how, with its arguments checked.
    """
    if np.shape(y) != np.shape(p):
        raise ValueError(f"y and p differ in shape: {np.shape(y)} and {np.shape(p)}.")
    if not np.isfinite(p).all():
        raise ValueError("p has entries that are not finite.")
    return scores.information_score(y, p, base_rate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data
    for name, n, d in pmlb_sizes(data):
        star = "*" if name in SETS_20 else " "
        print(f"{star} {name:<55} {n:>6} {d:>5} {pmlb(data, name)[1].mean():6.2f}")


if __name__ == "__main__":
    main()
