"""Which tests run (the option ``--runslow``, the marker ``slow``), and the cluster some run on."""

import gc
import os
import warnings
from collections.abc import Iterator
from typing import Any

# Each worker of pytest-xdist has one core: more BLAS threads would only wait for each other.
# The libraries read these when they are loaded, so they are set before NumPy is imported.
if "PYTEST_XDIST_WORKER" in os.environ:
    for _name in (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "BLIS_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
    ):
        os.environ[_name] = "1"

# Variables of graphs keep the stack that made them, for PyTensor's messages: a fifth of the time of
# building models, and pytest shows the stack of an error as well.
os.environ["PYTENSOR_FLAGS"] = f"traceback__limit=0,{os.environ.get('PYTENSOR_FLAGS', '')}"

# Examples that draw need no screen.
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest

# Those of folders share a name, which the search for examples in docstrings stumbles over.
collect_ignore_glob = ["*conftest.py"]

# What tornado and dask say of ports and slow workers is no fault of ours.
DASK_WARNINGS = ("UserWarning:distributed", "DeprecationWarning", "ResourceWarning")


def _cluster(n_workers: int) -> Any:
    distributed = pytest.importorskip("distributed")
    return distributed.LocalCluster(
        n_workers=n_workers, threads_per_worker=1, dashboard_address=None
    )


@pytest.fixture(scope="session")
def two_processes() -> Iterator[Any]:
    """A cluster for all tests that leave it as it was: its processes import the package once."""
    cluster = _cluster(2)
    yield cluster
    with warnings.catch_warnings():  # the last test is none of dask's
        warnings.simplefilter("ignore")
        cluster.close()
        gc.collect()


@pytest.fixture
def dask_cluster(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A cluster of two processes on this machine, or one of its own of as many as a parameter."""
    if hasattr(request, "param"):
        with _cluster(request.param) as cluster:
            yield cluster
    else:
        yield request.getfixturevalue("two_processes")
    gc.collect()  # sockets that dask has left open, whose warnings are ignored here


@pytest.fixture(scope="module")
def in_python() -> Iterator[None]:
    """Functions without a mode of their own run in Python: numba takes seconds for each.

    Modules that ask for it name ``mode="NUMBA"`` where the backend is what they test.
    """
    from pytensor import config

    with config.change_flags(linker="py"):
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--runslow",
        nargs="?",
        const="all",
        choices=("ci", "all"),
        default=None,
        help="run the tests marked slow: those with ci=True (ci), or every one (all, or no value)",
    )


def pytest_collection_finish() -> None:
    """What is imported stays, and graphs make many objects: fewer looks for cycles among them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 20)


def slow_kind(marker: pytest.Mark) -> bool:
    """Whether a test with this marker also runs with ``--runslow=ci``."""
    if marker.args or not set(marker.kwargs) <= {"ci"}:
        raise pytest.UsageError("the marker slow takes one keyword only: slow(ci=True)")
    return bool(marker.kwargs.get("ci", False))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = config.getoption("--runslow")
    for item in items:
        if "dask_cluster" in getattr(item, "fixturenames", ()):
            for warning in DASK_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{warning}"))
        marker = item.get_closest_marker("slow")
        if marker is None:
            continue
        in_ci = slow_kind(marker)
        if chosen == "all" or (chosen == "ci" and in_ci):
            continue
        need = "--runslow=ci" if in_ci else "--runslow=all"
        item.add_marker(pytest.mark.skip(reason=f"slow: runs with {need}"))
