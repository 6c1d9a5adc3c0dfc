"""Data of the benchmarks from the network: PMLB by the package `pmlb`, images from OpenML.

What was fetched is kept in a folder of scikit-learn's `get_data_home`, and read from there the next
time. `sought` is the file that the data directory does not have, None if no directory was given.
"""

import functools
from difflib import get_close_matches
from http.client import HTTPException
from pathlib import Path
from types import ModuleType

import numpy as np
from sklearn.datasets import fetch_openml, get_data_home

OPENML_IDS = {"Fashion-MNIST": 40996, "MNIST": 554}
OPENML_SIZE = (70_000, 784)
# No network, a download or a kept file that breaks off; ValueError: a wrong checksum or content.
FAILURES = (OSError, EOFError, HTTPException, ValueError)


class DataUnavailableError(FileNotFoundError):
    """Data that are neither in the data directory nor to be fetched."""


class SetUnavailableError(DataUnavailableError):
    """One set that the package `pmlb` does not give, though it may give others."""


def cache() -> Path:
    """Folder for what was fetched."""
    return Path(get_data_home()) / "pymc_skewgp"


def not_there(what: str, sought: Path | None) -> str:
    """How every refusal begins; a mistyped name may be near to one that is there."""
    if sought is None:
        return f"No {what}: no --data DIR was given"
    there = [path.stem for path in sought.parent.glob(f"*{sought.suffix}")]
    near = get_close_matches(sought.stem, there)
    return f"No {what}: {sought} is not there" + (f" (but {', '.join(near)})" if near else "")


def package(what: str, sought: Path | None) -> ModuleType:
    """The package `pmlb`."""
    try:
        import pmlb
    except ImportError as error:
        raise DataUnavailableError(
            f"{not_there(what, sought)}, and the package pmlb, which would fetch it, cannot be "
            f"imported ({error}). Give the directory that has it as --data DIR, or install the "
            "package: pip install pmlb."
        ) from error
    return pmlb


def pmlb_names(sought: Path | None) -> list[str]:
    """The classification sets of the package `pmlb`, by name."""
    return sorted(package("list of PMLB sets", sought).classification_dataset_names)


def pmlb_set(name: str, sought: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """X and the labels, of all classes, of one set."""
    what = f"data set {name!r}"
    pmlb = package(what, sought)
    # The package has had underscores for hyphens since its release 1.0. It counts two sets with
    # labels -1.0 and 1.0, banana and titanic, to regression: so not its classification names.
    names = [spelt for spelt in (name, name.replace("-", "_")) if spelt in pmlb.dataset_names]
    if not names:
        raise SetUnavailableError(
            f"{not_there(what, sought)}, and the package pmlb knows no set of this name. "
            "Give the directory that has it as --data DIR."
        )
    kept = cache() / "pmlb"
    try:
        X, labels = pmlb.fetch_data(names[0], return_X_y=True, local_cache_dir=str(kept))
        X, labels = np.asarray(X, np.float64), np.asarray(labels)
        if len(np.unique(labels)) < 2:
            raise ValueError("it has not two classes, or only with values missing")
        return X, labels
    except FAILURES as error:
        # The package raises a ValueError where PMLB has withdrawn the set since its release.
        kind = SetUnavailableError if isinstance(error, ValueError) else DataUnavailableError
        raise kind(
            f"{not_there(what, sought)}, and the package pmlb could not fetch it "
            f"({type(error).__name__}: {error}). Give the directory that has it as --data DIR, or "
            f"try again with a network; what was fetched is kept in {kept / names[0]}: remove what "
            "broke off."
        ) from error


def openml_images(name: str, sought: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """X (70000, 784) bytes and labels in 0..9 of "Fashion-MNIST" or "MNIST": 60000 train first."""
    try:
        return openml(OPENML_IDS[name])
    except (*FAILURES, ImportError) as error:
        raise DataUnavailableError(
            f"{not_there(name, sought)}, and OpenML's data set {OPENML_IDS[name]} could not be "
            f"fetched ({type(error).__name__}: {error}). Give the directory that has it as "
            f"--data DIR, or try again with a network; what was fetched is kept in {cache()}."
        ) from error


@functools.cache  # reading the file takes longer than most things that are done with it
def openml(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Images as bytes and their labels."""
    X, y = fetch_openml(data_id=number, data_home=cache(), as_frame=False, return_X_y=True)
    if X.shape != OPENML_SIZE:
        raise ValueError(f"images of shape {X.shape}, not {OPENML_SIZE}")
    return X.astype(np.uint8), y.astype(np.int64)
