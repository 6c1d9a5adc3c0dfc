"""What many rows cost: said before it is paid, and refused where memory would end on the way."""

import logging
import time

import numpy as np

from pymc_skewgp._errors import TooManyRowsError
from pymc_skewgp._memory import available_bytes, gigabytes

_log = logging.getLogger("pymc.pymc_skewgp")

# Up to here the answer comes in seconds.
_MANY_ROWS = 4000
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
    if n <= _MANY_ROWS:
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
    if n <= _MANY_ROWS:
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
