r"""Blocks and groups of rows on the workers of a dask cluster.

The rows and the state of EP stay on the workers. A sweep sends each of them the mean of the
coordinates and the factor of their covariance, and gets back as much: with W groups of blocks some
:math:`16 W r^2` bytes, whatever the number of rows.

A worker that is lost takes its blocks with it. All blocks are then built again from their inputs,
and all calls that changed them so far are repeated, so that EP goes on where it was: what comes out
is the same to the bit.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

import numpy as np

from pymc_skewgp._errors import ApproximationError, ClusterLostError
from pymc_skewgp._gaussian.blocks.ep import LocalBlocks, added
from pymc_skewgp._posterior.data_blocks import DataBlock, cuts_into_rows, data_blocks
from pymc_skewgp._posterior.features import FunctionFeatures
from pymc_skewgp._posterior.prior import DataSet, Prior

# What one dask worker keeps, and the answers that it gives.

_Kept = TypeVar("_Kept")
# From chunks of the data to what is kept of them; the same for the same chunks.
Build = Callable[[Sequence[Any]], _Kept]


class Kept:
    """An object in the memory of a worker, as an actor: its state stays where it is.

    Parameters
    ----------
    chunks : sequence
        Of the data, kept until the object is built of them.
    build : Build
    """

    def __init__(self, chunks: Sequence[Any], build: Build[Any]) -> None:
        self._build: Callable[[], Any] | None = partial(build, chunks)

    def call(self, method: str, *arguments: Any) -> Any:
        """A method of it, or its error: what is raised instead says that the worker is lost."""
        try:
            if self._build is not None:
                self._object, self._build = self._build(), None
            return getattr(self._object, method)(*arguments)
        except Exception as error:
            return error


class BuiltBlocks(LocalBlocks):
    """Blocks of some rows, and the constant of their log probability."""

    def __init__(self, parts: Sequence[DataBlock], n_threads: int | None = None) -> None:
        super().__init__([part.block for part in parts], n_threads)
        self.log_constant = float(sum(part.log_constant for part in parts))

    def numbers(self) -> tuple[int, int, float]:
        """Numbers of rows and of coordinates, and the constant."""
        return self.n_rows, self.rank, self.log_constant


def built_blocks(
    sets: Iterable[DataSet], features: FunctionFeatures, prior: Prior, _: Sequence[Any] = ()
) -> "BuiltBlocks":
    """Of data, in blocks of rows, on a worker, which are sent: they are not lost with it."""
    found = [part for data in sets for part in data_blocks(data, features, prior)]
    return BuiltBlocks(found, n_threads_of_worker())


def n_threads_of_worker() -> int:
    """Of the worker that this runs on."""
    from distributed import get_worker

    return int(get_worker().state.nthreads)


# Groups of rows, each kept by an actor on a worker of a dask cluster, of which any may be lost.

# Seconds in which a worker must be found, and between a loss and the next attempt; losses at most.
_PATIENCE, _PAUSE, MOST_LOSSES = 120.0, 0.2, 10
# What a call to a lost worker raises; errors of the blocks come as values.
_LOST = (OSError, RuntimeError, KeyError)


# Chunks of the data that are kept together, as Delayed, computed on the worker; and `Build`.
Group = tuple[Sequence[Any], Build[Any]]


class DaskGroups:
    """Groups of blocks, each kept by an actor on one worker.

    Parameters
    ----------
    client : distributed.Client
    groups : sequence of Group
    restore : callable
        Called after all groups were built again, and before: brings them into the state they had.
    """

    def __init__(self, client: Any, groups: Sequence[Group], restore: Callable[[], None]) -> None:
        self._client, self._groups, self._restore = client, groups, restore
        self._actors: list[Any] = []

    def ask(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of what is kept, side by side; answers in the groups' order.

        Raises
        ------
        ClusterLostError
        """
        for _ in range(MOST_LOSSES):
            try:
                if not self._actors:
                    self._actors = self._begun()
                    self._restore()
                answers = self.each(method, *arguments)
            except ClusterLostError:
                raise
            except _LOST as error:
                self._actors, lost = [], error
                time.sleep(_PAUSE)  # the scheduler has to notice
                continue
            for answer in answers:
                if isinstance(answer, Exception):
                    raise answer
            return answers
        raise ClusterLostError(
            f"workers of the dask cluster were lost {MOST_LOSSES} times in one call: see their "
            "logs. They may need more memory, or smaller chunks."
        ) from lost

    def each(self, method: str, *arguments: Any) -> list[Any]:
        """The same, with errors as values, of workers that are there."""
        asked = [actor.call(method, *arguments) for actor in self._actors]
        return [future.result() for future in asked]

    def _begun(self) -> list[Any]:
        """Actors for the groups, whose chunks are computed where they will be."""
        try:
            self._client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError as error:
            raise ClusterLostError(
                f"the dask cluster has no workers, and in {_PATIENCE:.0f} s none has come: start "
                "workers, and make the posterior again."
            ) from error
        workers = list(self._client.scheduler_info(n_workers=-1)["workers"])
        begun = []
        for i, (chunks, build) in enumerate(self._groups):
            where = {"workers": [workers[i % len(workers)]], "allow_other_workers": True}
            inputs = self._client.compute(list(chunks), optimize_graph=False, **where)
            begun.append(self._client.submit(Kept, inputs, build, actor=True, pure=False, **where))
        return [future.result() for future in begun]


# Methods of `RowBlock` after which it is another one.
_CHANGING = frozenset({"tilt", "move", "back", "forget", "finish"})


class DaskBlocks(DaskGroups):
    """Blocks in groups, each kept by one worker.

    Sums are over the blocks of a group in their order, then over the groups: they do not depend on
    which worker keeps what, nor on workers that are lost.

    Parameters
    ----------
    client : distributed.Client
    groups : sequence of Group
    """

    def __init__(self, client: Any, groups: Sequence[Group]) -> None:
        self.here = False
        self._calls: list[tuple[Any, ...]] = []
        super().__init__(client, groups, self._repeat)
        numbers = self.ask("numbers")
        self.n_rows = sum(n for n, _, _ in numbers)
        self.rank: int = numbers[0][1]
        self.log_constant: float = sum(constant for _, _, constant in numbers)

    def total(self, method: str, *arguments: Any) -> Any:
        """See `Blocks`."""
        found = added(self.ask("total", method, *arguments))
        if method in _CHANGING:
            self._calls.append((method, *arguments))
        return found

    def _repeat(self) -> None:
        for call in self._calls:
            self.each("total", *call)


# Data of this process as rows on the workers of a dask cluster.

_client: ContextVar[Any] = ContextVar("_client", default=None)


@contextmanager
def rows_on(client: Any) -> Iterator[None]:
    """Keep the rows of data on the workers of a dask cluster.

    Posteriors under an approximated prior that are first asked for anything in this context have
    their rows there, each worker an equal part of them. So has `find_hyperparameters`, called in
    it, when it learns from more than 5000 rows. A sweep of expectation propagation sends
    :math:`8 r^2` bytes to every worker and gets :math:`8 r^2` back, with r features; N pairs send
    :math:`8 r N` bytes and get :math:`16 N` back. Results are those of one process, to round-off.
    What a lost worker had is made again on the others.

    For data that are in the memory of this process, of any kinds together. Data of one kind that
    are not may be dask arrays, with no need of this context: their rows never come here.

    Parameters
    ----------
    client : distributed.Client
        Of the cluster, which must last as long as the posterior is used.

    Raises
    ------
    ApproximationError
        When the posterior is asked for something: for likelihoods that cannot be cut into rows,
        such as comparisons, or PyMC distributions given as a function.
        From `find_hyperparameters`: for pseudo-points and constraints beside many rows.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_skewgp as sg
    >>> from distributed import Client  # doctest: +SKIP
    >>> def rbf(X, Xs=None, diag=False):
    ...     if diag:
    ...         return np.ones(len(X))
    ...     return np.exp(-0.5 * (X - (X if Xs is None else Xs).T) ** 2)
    >>> x = np.linspace(-3.0, 3.0, 200)
    >>> points = sg.approximations.Inducing(x[::50])
    >>> posterior = sg.SkewGPPosterior(x, x > 0, cov_func=rbf, approximation=points)
    >>> with Client() as client, sg.rows_on(client):  # doctest: +SKIP
    ...     evidence = posterior.log_marginal_likelihood
    >>> print(f"{evidence.value:.1f}")  # doctest: +SKIP
    -56.5
    """
    token = _client.set(client)
    try:
        yield
    finally:
        _client.reset(token)


def current_client() -> Any:
    """That of `rows_on`, or None."""
    return _client.get()


def blocks_on(
    client: Any, sets: tuple[DataSet, ...], features: FunctionFeatures, prior: Prior
) -> DaskBlocks:
    """Contiguous parts of the rows, one for each worker.

    Raises
    ------
    ApproximationError
        For likelihoods that cannot be cut into rows.
    """
    for data in sets:
        if not cuts_into_rows(data.likelihood):
            raise ApproximationError(
                f"{data.likelihood!r} cannot be cut into rows, which workers of a cluster would "
                "keep: leave out rows_on, or take a likelihood of pymc_skewgp.likelihoods."
            )
    n_parts = min(max(1, len(client.nthreads())), *(data.X.shape[0] for data in sets))
    pieces = [
        [data.part(index) for index in np.array_split(np.arange(len(data.X)), n_parts)]
        for data in sets
    ]
    builds = [partial(built_blocks, part, features, prior) for part in zip(*pieces, strict=True)]
    return DaskBlocks(client, [((), build) for build in builds])
