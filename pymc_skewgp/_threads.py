"""One BLAS thread for small matrices, and in chains that run side by side.

The samplers alternate between matrix products of some hundred rows and work in between. Waking a
second thread for each of these takes longer than it saves, and where several chains run at once,
forked by PyMC or as threads of nutpie, each with as many BLAS threads as there are cores, they wait
for one another ten times as long as they compute.
"""

import multiprocessing
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Rows of a square matrix whose factorisation a second thread begins to speed up.
_MANY_ROWS = 1000


class _Holders:
    """How many blocks of code ask for one thread now, and what to go back to after the last."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.restore: list[tuple[Any, int]] = []


_holders = _Holders()
_libraries: list[Any] | None = None


def _after_fork() -> None:
    global _holders
    _holders = _Holders()


if hasattr(os, "register_at_fork"):
    # The lock may be taken by a thread that the child does not have.
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def few_blas_threads(n: int) -> Iterator[None]:
    """Keep OpenBLAS to one thread where more would not help; may be nested, in any thread.

    Parameters
    ----------
    n : int
        Rows of the matrices at work. Large ones keep all threads, unless this is a process of
        `multiprocessing` or a thread other than the main one: then it is taken for one of several.

    Notes
    -----
    Only OpenBLAS with its own threads: the others share them with OpenMP, which does not survive
    being called in a forked process. A limit by ``threadpoolctl.threadpool_limits`` stands.

    Examples
    --------
    >>> from pymc_skewgp._threads import few_blas_threads
    >>> with few_blas_threads(100):
    ...     pass
    """
    if n > _MANY_ROWS and not _one_of_several():
        yield
        return
    holders = _holders
    with holders.lock:
        holders.count += 1
        if holders.count == 1:
            holders.restore = [(x, x.get_num_threads()) for x in _open_blas()]
            _set([(x, 1) for x, found in holders.restore if found != 1])
    try:
        yield
    finally:
        with holders.lock:
            holders.count -= 1
            if holders.count == 0:
                _set([(x, found) for x, found in holders.restore if found != 1])


def n_blas_threads() -> int:
    """Threads that BLAS may use now; one where this is taken for one of several processes."""
    if _one_of_several():
        return 1
    return max((int(x.get_num_threads()) for x in _open_blas()), default=1)


def _one_of_several() -> bool:
    return (
        multiprocessing.parent_process() is not None
        or threading.current_thread() is not threading.main_thread()
    )


def _set(libraries: list[tuple[Any, int]]) -> None:
    for library, n_threads in libraries:
        # Inside of a `threadpool_limits` nothing changes: that is somebody's wish.
        if _controlled(library):
            continue
        library.set_num_threads(n_threads)
        # threadpoolctl lets only the first thread that sets it do so again, until it lets go.
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread()


def _controlled(library: Any) -> bool:
    """Whether a thread, this one or another, has limited the library (threadpoolctl 3.7 on)."""
    state = getattr(library, "_SHARED_STATE", None)
    thread = getattr(state, "controlling_thread", None)
    return thread is not None and thread.is_alive()


def _open_blas() -> list[Any]:
    """Controllers of the OpenBLAS libraries, looked for once: NumPy and SciPy bring one each."""
    global _libraries
    if _libraries is None:
        import scipy.linalg  # noqa: F401  # loads its library
        from threadpoolctl import ThreadpoolController

        found = ThreadpoolController().select(internal_api="openblas").lib_controllers
        _libraries = [x for x in found if x.threading_layer == "pthreads"]
    return _libraries
