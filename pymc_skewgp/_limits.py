"""Limits of the machine, known before they are met: memory, time, threads; and progress."""

import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from pymc_skewgp._errors import TooManyDrawsError, TooManyRowsError

# Less than this is never looked up: reading the limits takes as long as a small problem.
_ALWAYS_ENOUGH = 2**28
# Arrays as large as the draws that a run of the sampler holds at once, at least (2.3 to 3.4 were
# measured: points, draws, and what is computed on the way), and those of draws of f with labels.
SAMPLER_BUFFERS, FUNCTION_BUFFERS = 2, 4
_CGROUP_FILES = (
    ("memory.max", "memory.current", "inactive_file"),  # version 2
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),  # version 1
)


def refuse_too_many_draws(what: str, draws: int, rows: int, buffers: int = SAMPLER_BUFFERS) -> None:
    """Raise where `draws` draws of `rows` numbers cannot fit into memory.

    `what` names the argument that asks for them. Where it is not known how much memory there is,
    nothing is refused.

    Raises
    ------
    TooManyDrawsError
        With the bytes it would take, at least, and those available.
    """
    needed = 8 * draws * rows * buffers
    if needed <= _ALWAYS_ENOUGH:
        return
    available = available_bytes()
    if available is None or needed <= available:
        return
    raise TooManyDrawsError(
        f"{what} asks for {draws} draws of {rows} number(s) each, which take at least "
        f"{gigabytes(needed)} ({buffers} arrays of 8 bytes a number), and {gigabytes(available)} "
        "of memory are available: ask for fewer, or for parts of them in several calls."
    )


def available_bytes(
    proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Memory that this process may still take, None where that is not known.

    The least of what the machine has available and of what is left of the limits on the process's
    control groups, as containers and batch systems set them.
    """
    found = [_field(proc / "meminfo", "MemAvailable:", 1024)]
    for folder in _control_groups(proc, cgroup):
        for limit_file, usage_file, reclaimable in _CGROUP_FILES:
            limit, usage = _number(folder / limit_file), _number(folder / usage_file)
            if limit is not None and usage is not None:
                # What the group has read from files is given back when memory runs short.
                cached = _field(folder / "memory.stat", reclaimable, 1) or 0
                found.append(max(limit - max(usage - cached, 0), 0))
    known = [number for number in found if number is not None]
    return min(known, default=None)


def gigabytes(count: int) -> str:
    """Bytes for messages."""
    return f"{min(count, 2**200) / 2**30:.3g} GiB"


def _control_groups(proc: Path, cgroup: Path) -> Iterator[Path]:
    """Folders of the groups that the process is in, and of those around them."""
    for line in _lines(proc / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        root = cgroup / controllers
        # In a container the path may be the host's: then only the root is there.
        own = root / path.strip().lstrip("/")
        yield from (folder for folder in (own, *own.parents) if folder.is_relative_to(root))


def _field(path: Path, key: str, unit: int) -> int | None:
    for line in _lines(path):
        name, _, value = line.partition(" ")
        if name == key:
            return int(value.split()[0]) * unit
    return None


def _number(path: Path) -> int | None:
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdigit() else None  # "max" is no limit


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return []


# One BLAS thread for small matrices, and in chains that run side by side.
#
# The samplers alternate between matrix products of some hundred rows and work in between. Waking a
# second thread for each of these takes longer than it saves, and where several chains run at once,
# forked by PyMC or as threads of nutpie, each with as many BLAS threads as there are cores, they
# wait for one another ten times as long as they compute.

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
    >>> from pymc_skewgp._limits import few_blas_threads
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


# Progress: one bar for a call, whatever the call is made of.

_PATIENCE = 2.0  # seconds of a call before its bar is shown
_QUICK_ROWS = 200  # which take less, and making a bar a millisecond
# None outside of all calls, False where a call is to show none.
_bar: ContextVar[Any] = ContextVar("bar", default=None)


@contextmanager
def progress(wanted: bool, transient: bool = False) -> Iterator[None]:
    """One bar for all that a call does, from two seconds on; a call within it goes on with that.

    There is none where it is not wanted, where output is neither a terminal nor a notebook, and in
    one of several processes or threads. A `transient` one leaves no line behind.
    """
    wanted = wanted and not _one_of_several()
    if wanted and _bar.get() is not None:  # or without one, where that call has none
        yield
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    bar = Progress(*columns, transient=transient)
    bar.add_task("Compiling", total=None)
    timer = threading.Timer(_PATIENCE, _show, [bar])
    timer.daemon = True
    if wanted and _is_watched(bar.console):
        timer.start()
    token = _bar.set(bar if wanted else False)
    try:
        yield
    finally:
        _bar.reset(token)
        timer.cancel()
        if timer.ident is not None:
            timer.join()  # it may be about to show it
        if bar.live.is_started:
            bar.stop()


def _show(bar: Any) -> None:
    from rich.errors import LiveError

    with suppress(LiveError):  # rich before 14.1 shows one at a time, and there is another
        bar.start()


def _is_watched(console: Any) -> bool:
    """Whether a bar can move: in terminals, and in notebooks that have widgets."""
    if console.is_jupyter:
        return find_spec("ipywidgets") is not None
    return bool(console.is_interactive)


@contextmanager
def progress_of(n: int, what: str, wanted: bool) -> Iterator[None]:
    """A bar for work on `n` rows by itself, where these may be so many that it takes seconds."""
    if not wanted or n <= _QUICK_ROWS or _bar.get() is not None:
        yield
        return
    with progress(True):
        stage(f"{what} {n} rows")
        yield


def stage(what: str, total: int | None = None) -> None:
    """Say what is done now, and in how many steps, in the bar of the call that this is part of."""
    bar = _bar.get()
    if bar:
        (task,) = bar.tasks
        task.total, task.finished_time = total, None  # its time is that of the call
        bar.update(task.id, description=what, completed=0)


def steps[T](items: Iterable[T], what: str | None, total: int) -> Iterator[T]:
    """Items of a stage, one step each; without a name they are no steps of what is shown."""
    if what is None:
        yield from items
        return
    stage(what, total)
    for item in items:
        yield item
        if _bar.get():
            _bar.get().advance(_bar.get().tasks[0].id)


# What many rows cost: said before it is paid, and refused where memory would end on the way.

_log = logging.getLogger("pymc.pymc_skewgp")

# Up to here the answer comes in seconds.
_COSTLY_ROWS = 4000
_MEASUREMENTS = 3  # other processes may interrupt one
# n x n arrays at once, at least: 4 were measured with smooth kernels, 6 to 9 with rough ones.
_MATRICES = 5
# Cholesky factorisations that an evidence takes: with a kernel of low rank, and without.
_SMOOTH, _ROUGH = 2, 40
_VALUES = 12  # the same of values with Gaussian noise
# Features of many rows are spoken of from so many bytes on. Sweeps of EP for them, and bytes of a
# row beside its features: sites, limits and their last steps.
_SMALL_FEATURES, _SWEEPS, _ROW_BYTES = 2**28, 12, 400
# Sweeps of EP that begins near its end; seconds from which on an average is spoken of.
_WARM_SWEEPS, _LONG = 4, 5.0
# Rows from which on an average by exact algebra is spoken of, Cholesky factorisations that an
# evaluation of EP takes, and matrices and bytes of the posteriors that are kept.
_ROWS_OF_AVERAGE, _EVALUATION, _KEPT_MATRICES, _KEPT_BYTES = 1000, 10, 6, 2**32
_FEWEST_KEPT = 4
# Numbers of rows whose cost was said: a route may make thousands of posteriors of the same rows.
_announced: set[int] = set()


def announce_rows(n: int, no_blocks: str | None = None) -> None:
    """Say what the exact algebra of `n` rows takes, where that is much, once for each `n`.

    `no_blocks` as for `refuse_too_many_rows`.

    Raises
    ------
    TooManyRowsError
        As `refuse_too_many_rows`.
    """
    if n <= _COSTLY_ROWS:
        return
    refuse_too_many_rows(n, no_blocks)
    if n in _announced:
        return
    _announced.add(n)
    _log.info(f"{n} rows: exact algebra with {n} x {n} matrices takes {cost_of_kernel(n, False)}.")


def announce_blocks(n: int, r: int, n_draws: int) -> None:
    """Say what `n` rows of `r` coordinates take in blocks, where that is much.

    Raises
    ------
    TooManyRowsError
        Where their features alone do not fit into memory.
    """
    needed = 8 * n * r
    if needed < _SMALL_FEATURES:
        return
    available = available_bytes()
    if available is not None and needed > available:
        raise TooManyRowsError(
            f"{n} rows of {r} features need at least {gigabytes(needed)} of memory, of which "
            f"{gigabytes(available)} are available: take {int(available / (8 * n))} features or "
            "fewer, such as Inducing of as many points, or a part of the rows."
        )
    operations = 2.0 * n * r * (_SWEEPS * r + n_draws)
    _log.info(
        f"{n} rows of {r} features, in blocks: some {gigabytes(needed + _ROW_BYTES * n)} of memory "
        f"and {_duration(operations / _operations_per_second())}."
    )


def announce_average(n: int, r: int, n_points: int, n_evidences: int) -> None:
    """Say what an average over hyperparameters takes with `n` rows of `r` coordinates.

    Parameters
    ----------
    n, r : int
    n_points : int
        Evaluations of EP, each begun near its end.
    n_evidences : int
        Posteriors that are kept.
    """
    sweeps = _WARM_SWEEPS * n_points + _SWEEPS * n_evidences
    operations = 2.0 * n * r * r * (sweeps + n_points + n_evidences)
    duration = operations / _operations_per_second()
    if duration < _LONG:
        return
    kept = 8 * n * r * n_evidences
    _log.info(
        f"{n} rows of {r} features, averaged over hyperparameters: {n_points} evaluations of "
        f"expectation propagation or more, and {n_evidences} posteriors; some {gigabytes(kept)} "
        f"of memory and {_duration(duration)}."
    )


def posteriors_kept(n: int, n_evidences: int) -> int:
    """How many of an average's posteriors of `n` rows are kept, for memory's sake.

    Raises
    ------
    TooManyRowsError
        Where the fewest do not fit into memory.
    """
    one = 8 * _KEPT_MATRICES * n * n
    kept = min(n_evidences, max(_FEWEST_KEPT, _KEPT_BYTES // one))
    needed, available = kept * one, available_bytes()
    if available is not None and needed > available and n > _ROWS_OF_AVERAGE:
        raise TooManyRowsError(
            f"an average over hyperparameters of {n} rows keeps {kept} posteriors, which need "
            f"{gigabytes(needed)} of memory, of which {gigabytes(available)} are available: "
            'maximise instead (hyperparameters="maximize"), approximate the prior '
            "(SkewGP(approximation=...)), take a random part of the rows, or use integrate(), "
            "which keeps draws alone."
        )
    return kept


def announce_exact_average(n: int, n_points: int, n_evidences: int) -> None:
    """Say what an average over hyperparameters takes with the kernel itself, where that is much.

    Parameters as for `announce_average`.
    """
    if n <= _ROWS_OF_AVERAGE:
        return
    factorisations = _EVALUATION * n_points + (_EVALUATION + _SMOOTH) * n_evidences
    duration = factorisations * n**3 / 3 / _operations_per_second()
    _log.info(
        f"{n} rows, averaged over hyperparameters: {n_points} evaluations of expectation "
        f"propagation or more, and {n_evidences} posteriors, each with {n} x {n} matrices; some "
        f"{_duration(duration)}."
    )


def cost_of_kernel(n: int, values: bool) -> str:
    """What the exact algebra of `n` rows takes, in words; of `values` with Gaussian noise."""
    cholesky = n**3 / 3 / _operations_per_second()
    memory = f"some {gigabytes(_bytes(n))} of memory and "
    if values:
        return memory + _duration(_VALUES * cholesky)
    times = f"{_duration(_SMOOTH * cholesky)} (smooth kernels) to {_duration(_ROUGH * cholesky)}"
    return f"{memory}{times} (rough ones)"


def announce_kernel(n: int, why: str) -> None:
    """Say that `n` values are met with the kernel as it is, what that takes, and why."""
    _announced.add(n)
    _log.info(f"{n} rows: the kernel as it is, which takes {cost_of_kernel(n, True)}; {why}.")


def is_easily_kept(n: int) -> bool:
    """Whether the exact algebra of `n` rows takes no more than half of the memory there is."""
    available = available_bytes()
    return available is None or 2 * _bytes(n) <= available


def refuse_too_many_rows(n: int, no_blocks: str | None = None) -> None:
    """Raise where the exact algebra of `n` rows cannot fit into memory.

    `no_blocks` is why hyperparameters cannot be learnt from them with an approximated prior; None
    where that is not known, or where they can.

    Raises
    ------
    TooManyRowsError
        With the bytes it needs, at least, those available, and for how many rows these are enough.
    """
    if n <= _COSTLY_ROWS:
        return
    needed, available = _bytes(n), available_bytes()
    if available is not None and needed > available:
        most = int(np.sqrt(available / _bytes(1)))
        way_out = (
            "approximate the prior (SkewGP(approximation=...), of which find_hyperparameters says "
            "what data it is for)"
        )
        why = ""
        if no_blocks is not None:
            way_out = "change that"
            why = f" No approximated prior takes them, as {no_blocks}."
        raise TooManyRowsError(
            f"the data have {n} rows, and exact algebra with {n} x {n} matrices needs at least "
            f"{gigabytes(needed)} of memory, of which {gigabytes(available)} are available, enough "
            f"for {most} rows.{why} The ways out: {way_out}, take a random part of the rows, put "
            "rows with equal inputs together (BinomialProbit, weights), or learn the "
            "hyperparameters in batches (batch_size)."
        )


def _bytes(n: int) -> int:
    return 8 * _MATRICES * n * n


def _operations_per_second(size: int = 512) -> float:
    """Of a matrix product, measured in some milliseconds: the fastest of a few."""
    matrix = np.ones((size, size))
    matrix @ matrix  # the first one wakes threads
    seconds = []
    for _ in range(_MEASUREMENTS):
        start = time.perf_counter()
        matrix @ matrix
        seconds.append(time.perf_counter() - start)
    return 2.0 * size**3 / max(min(seconds), 1e-9)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
