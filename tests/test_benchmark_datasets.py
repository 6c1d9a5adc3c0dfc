"""The data of the benchmarks: the directory first, then PMLB, then a clear refusal.

No test asks the network: a stand-in takes the place of the package pmlb.
"""

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
X = np.arange(12.0).reshape(6, 2)
LABELS = np.array([7, 2, 5, 2, 5, 7])  # in sorted order 2 and 5 come first


@pytest.fixture
def module(monkeypatch, tmp_path):
    """Imports a module of the benchmarks; what is fetched is kept apart, and nothing can be."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "pmlb", None)
    fetching = importlib.import_module("fetching")
    monkeypatch.setattr(fetching, "fetch_openml", refusing(URLError("no route to host")))
    yield importlib.import_module
    for name, found in list(sys.modules.items()):
        if Path(getattr(found, "__file__", None) or "/").parent == BENCHMARKS:
            del sys.modules[name]


@pytest.fixture
def datasets(module):
    return module("datasets")


def refusing(error):
    def fetch(*arguments, **options):
        raise error

    return fetch


def package(monkeypatch, fetch):
    """Put a stand-in where ``import pmlb`` finds it."""
    names = {"classification_dataset_names": ["made_up"], "dataset_names": ["made_up"]}
    monkeypatch.setitem(sys.modules, "pmlb", SimpleNamespace(fetch_data=fetch, **names))


def test_the_directory_comes_first(datasets, monkeypatch, tmp_path):
    (tmp_path / "pmlb").mkdir()
    y = np.array([0, 1, 0, 0, 1, 1], dtype=np.uint8)
    np.savez(tmp_path / "pmlb" / "made_up.npz", X=X.astype(np.float32), y=y)
    package(monkeypatch, refusing(AssertionError("fetched")))
    for found, wanted in zip(datasets.pmlb(tmp_path, "made_up"), (X, y), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert datasets.pmlb_sizes(tmp_path) == [("made_up", 6, 2)]


@pytest.mark.parametrize(
    ("labels", "kept", "y"),
    [
        (LABELS, [1, 2, 3, 4], [0, 1, 0, 1]),
        (np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0]), range(6), [1, 0, 1, 1, 0, 0]),
    ],
)
def test_a_fetched_set_is_cut_to_its_first_two_classes(datasets, monkeypatch, labels, kept, y):
    package(monkeypatch, lambda *name, **options: (X, labels))
    found = datasets.pmlb(None, "made_up")
    np.testing.assert_array_equal(found[0], X[list(kept)])
    np.testing.assert_array_equal(found[1], y)
    assert [array.dtype for array in found] == [np.float64, np.int64]


@pytest.mark.parametrize("given", [True, False])
def test_without_the_package_the_refusal_says_what_to_do(datasets, tmp_path, given):
    data = tmp_path if given else None
    sought = str(tmp_path / "pmlb" / "iris.npz") if given else "no --data DIR was given"
    with pytest.raises(datasets.DataUnavailableError) as raised:
        datasets.pmlb(data, "iris")
    for part in ("'iris'", sought, "--data DIR", "pip install pmlb"):
        assert part in str(raised.value)
