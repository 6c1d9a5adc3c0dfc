"""Data sets of the classification benchmarks: loaders, scaling, folds and the score of a forecast.

    python benchmarks/datasets.py [--data DIR]

lists the sets in ``DIR/pmlb`` with n, d and the share of y = 1; a star marks those of `SETS_20`.
Everywhere `data` is that directory: it holds ``pmlb/NAME.npz`` (arrays X and y),
``fashion_mnist/*.gz`` (the four IDX files), ``mnist/mnist_3_vs_5.npz`` and
``gtsrb/gtsrb_speed30_vs_50_32x32.npz``. What it does not hold, all of it where `data` is None, is
fetched (see fetching.py), or refused with a `DataUnavailableError` that says why.
"""

import argparse
import gzip
import warnings
from collections.abc import Iterator
from pathlib import Path

import fetching
import numpy as np
from fetching import DataUnavailableError

from pymc_skewgp._diagnostics import measures as scores

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
N_TRAIN = 60_000  # the first rows of OpenML's MNIST and Fashion-MNIST


def add_data_option(parser: argparse.ArgumentParser) -> None:
    """`--data DIR`, the directory of the data."""
    parser.add_argument(
        "--data",
        type=directory,
        metavar="DIR",
        help="the data; what is not there, or all without it, the package pmlb and OpenML give",
    )


def directory(name: str) -> Path:
    # A mistyped one is refused: it would look like one that holds nothing, and all be fetched.
    if not Path(name).is_dir():
        raise argparse.ArgumentTypeError(f"{name} is not a directory")
    return Path(name)


def place(data: Path | None, name: str) -> Path | None:
    """Where the data directory holds a file."""
    return None if data is None else Path(data) / name


def pmlb(data: Path | None, name: str) -> tuple[np.ndarray, np.ndarray]:
    """X (n, d) float64 and y (n,) in {0, 1} of one set of the Penn Machine Learning Benchmarks.

    The first two classes, by their labels, are 0 and 1. A fetched set is as PMLB has it now: the
    directory has it as it was once, and most X to the digits of a float32.
    """
    path = place(data, f"pmlb/{name}.npz")
    if path and path.exists():
        with np.load(path) as arrays:
            X, y = arrays["X"].astype(np.float64), arrays["y"].astype(np.int64)
    else:
        X, y = first_two_classes(*fetching.pmlb_set(name, path))
    if not (np.isfinite(X).all() and np.array_equal(np.unique(y), [0, 1])):
        raise ValueError(f"{path or name}: X has to be finite and y to hold 0 and 1.")
    return X, y


def first_two_classes(X: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the first two labels in sorted order, which become 0 and 1."""
    classes = np.unique(labels)[:2]
    rows = np.isin(labels, classes)
    return X[rows], (labels[rows] == classes[-1]).astype(np.int64)


def pmlb_sets(data: Path | None) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Name, X and y of every set, by name: of the directory, or else all that can be fetched."""
    folder = place(data, "pmlb")
    names = sorted(path.stem for path in folder.glob("*.npz")) if folder else []
    for name in names or fetching.pmlb_names(folder):
        try:
            yield name, *pmlb(data, name)
        except fetching.SetUnavailableError as error:
            warnings.warn(f"{name} is left out. {error}", stacklevel=2)


def pmlb_sizes(data: Path | None) -> list[tuple[str, int, int]]:
    """Name, n and d of every set, by name; without a directory, all are fetched for it."""
    return [(name, *X.shape) for name, X, _ in pmlb_sets(data)]


def fashion_mnist(data: Path | None, part: str = "train") -> tuple[np.ndarray, np.ndarray]:
    """X (n, 784) float64 in [0, 1] and labels (n,) in 0..9, of the part "train" or "test".

    OpenML has the 60000 images to train with first, then the others. That their order in each part
    is that of the files is what its first labels say; it was not compared image by image.
    """
    if part not in FASHION_MNIST_PARTS:
        raise ValueError(f'part has to be "train" or "test", not {part!r}.')
    stem = f"fashion_mnist/{FASHION_MNIST_PARTS[part]}"
    files = [place(data, f"{stem}-{end}-ubyte.gz") for end in ("images-idx3", "labels-idx1")]
    found = [file for file in files if file and file.exists()]
    if len(found) == len(files):
        X, y = map(read_idx, found)
    else:
        sought = next(file for file in files if file not in found)
        rows = slice(N_TRAIN) if part == "train" else slice(N_TRAIN, None)
        X, y = (array[rows] for array in fetching.openml_images("Fashion-MNIST", sought))
    if len(X) != len(y):
        raise ValueError(f"{len(X)} images, but {len(y)} labels.")
    return flat(X), y.astype(np.int64)


def mnist_3_vs_5(data: Path | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X (n, 784) float64 in [0, 1], y (n,), 1 for a five, and split (n,), 1 for the test images.

    Of OpenML: the threes and fives among the 60000 to train with, then among the others. The order
    is that of the original files, and of the directory, as far as the first labels say.
    """
    path = place(data, "mnist/mnist_3_vs_5.npz")
    if path and path.exists():
        with np.load(path) as arrays:
            return flat(arrays["X"]), arrays["y"].astype(np.int64), arrays["split"]
    X, digits = fetching.openml_images("MNIST", path)
    rows = np.flatnonzero(np.isin(digits, (3, 5)))
    return flat(X[rows]), (digits[rows] == 5).astype(np.int64), (rows >= N_TRAIN).astype(np.uint8)


def speed_limits(data: Path | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X (n, 3072) float64 in [0, 1], y (n,), 1 for 50 km/h, and split (n,), 1 for the test images.

    German traffic signs, 30 against 50 km/h. No sign is on both sides of the split.
    """
    path = place(data, "gtsrb/gtsrb_speed30_vs_50_32x32.npz")
    if not (path and path.exists()):
        raise DataUnavailableError(
            f"{fetching.not_there('German traffic signs', path)}, and nothing gives them in this "
            "form. They are classes 1 and 2 of GTSRB (benchmark.ini.rub.de; Stallkamp et al. 2012)."
            " Expected in --data DIR: gtsrb/gtsrb_speed30_vs_50_32x32.npz with bytes X (n, 32, 32, "
            "3), each sign cropped to its region of interest and resized, y (1: 50 km/h), split "
            "(1: to test) and track (the sign that a frame shows, -1: not known)."
        )
    with np.load(path) as arrays:
        X, y, split = flat(arrays["X"]), arrays["y"].astype(np.int64), arrays["split"]
        if "track" in arrays:  # a sign on both sides would be an easy one
            sides = [set(arrays["track"][split == side].tolist()) for side in (0, 1)]
            shared = (sides[0] & sides[1]) - {-1}  # of no known track
            if shared:
                raise ValueError(f"{path}: tracks {sorted(shared)[:5]} are on both sides.")
    return X, y, split


def flat(images: np.ndarray) -> np.ndarray:
    """A row an image, in [0, 1]."""
    return images.reshape(len(images), -1) / 255.0


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

    The public `information_score` says how, and checks its arguments.
    """
    if np.shape(y) != np.shape(p):
        raise ValueError(f"y and p differ in shape: {np.shape(y)} and {np.shape(p)}.")
    if not np.isfinite(p).all():
        raise ValueError("p has entries that are not finite.")
    return scores.information_score(y, p, base_rate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    starred = {name.replace("-", "_") for name in SETS_20}  # as the package pmlb spells them
    try:
        for name, X, y in pmlb_sets(parser.parse_args().data):
            star = "*" if name.replace("-", "_") in starred else " "
            print(f"{star} {name:<55} {X.shape[0]:>6} {X.shape[1]:>5} {y.mean():6.2f}")
    except DataUnavailableError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
