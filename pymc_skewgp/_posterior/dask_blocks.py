r"""Blocks and groups of rows on the workers of a dask cluster.

The rows and the state of EP stay on the workers. A sweep sends each of them the mean of the
coordinates and the factor of their covariance, and gets back as much: with W groups of blocks some
:math:`16 W r^2` bytes, whatever the number of rows.

A worker that is lost takes its blocks with it. They are built again from their inputs on another
worker, and all calls that changed them so far are repeated there, so that EP goes on where it was:
what comes out is the same to the bit.
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


def answer_of(value: Any) -> Any:
    """What a call returned; raises the error that it raised.

    An error that travels as a value is the method's own: what a call to a worker raises by itself
    says that the worker is lost.
    """
    if isinstance(value, Exception):
        raise value
    return value


class Kept:
    """An object in the memory of a worker, as an actor: its state stays where it is.

    Parameters
    ----------
    chunks : sequence
        Of the data, kept until the object is built of them.
    """

    def __init__(self, chunks: Sequence[Any]) -> None:
        self._chunks: Sequence[Any] = chunks
        self._object: Any = None

    def call(self, method: str, *arguments: Any) -> Any:
        """A method of it, or its error; of "build" the function that builds it, once."""
        try:
            if method != "build":
                return getattr(self._object, method)(*arguments)
            if self._object is None:
                self._object, self._chunks = arguments[0](self._chunks), ()
            return None
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

# Seconds after a loss in which another worker must be found, and between two attempts.
_PATIENCE, _PAUSE = 120.0, 0.2
_LOOK = 5.0  # seconds of an answer, after which it is asked whether there are workers at all
_LOST_MESSAGE = (
    f"workers of the dask cluster are lost, and for {_PATIENCE:.0f} s none has taken their place: "
    "start workers, and make the posterior again."
)
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
    restore : callable, optional
        Brings a group that was built again, of this number, into the state that it had.
    """

    def __init__(
        self,
        client: Any,
        groups: Sequence[Group],
        restore: Callable[[int], None] = lambda i: None,
    ) -> None:
        self._client, self._groups, self._restore = client, groups, restore
        workers = self._workers()
        self._places = [workers[i % len(workers)] for i in range(len(groups))]
        # All of them begin before any is waited for.
        begun = [self._begun(i) for i in range(len(groups))]
        self._actors = [self._waited(future) for future in begun]
        self._of_all(lambda i: self._actors[i].call("build", groups[i][1]))

    def ask(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of what is kept, side by side; answers in the groups' order."""
        return self._of_all(lambda i: self._actors[i].call(method, *arguments))

    def _of_all(self, ask: Callable[[int], Any]) -> list[Any]:
        asked = []
        for i in range(len(self._groups)):
            try:
                asked.append(ask(i))
            except _LOST as error:
                asked.append(error)
        return [self._answer(i, future, ask) for i, future in enumerate(asked)]

    def _answer(self, i: int, future: Any, ask: Callable[[int], Any]) -> Any:
        """Of one group; from another worker if its own is lost, or from one that comes later.

        `future` may be the error that it has raised by itself.
        """
        deadline = None
        while True:
            try:
                if deadline is not None:
                    self._move(i)
                    future = ask(i)
                if isinstance(future, Exception):
                    raise future
                answer = self._waited(future)
            except ClusterLostError:
                raise
            except _LOST as error:
                now = time.monotonic()
                deadline = now + _PATIENCE if deadline is None else deadline
                if now > deadline:
                    raise ClusterLostError(_LOST_MESSAGE) from error
                time.sleep(_PAUSE)  # the scheduler has to notice
            else:
                return answer_of(answer)

    def _move(self, i: int) -> None:
        """Build a group again on another worker."""
        others = [place for place in self._workers() if place != self._places[i]]
        if others:
            self._places[i] = min(others, key=self._places.count)
        self._actors[i] = actor = self._waited(self._begun(i))
        answer_of(self._waited(actor.call("build", self._groups[i][1])))
        self._restore(i)

    def _waited(self, future: Any) -> Any:
        """The result, however long it takes, as long as there is a worker."""
        alone: float | None = None
        while True:
            try:
                return future.result(timeout=_LOOK)
            except TimeoutError:
                if future.done():
                    return future.result()
                now = time.monotonic()
                alone = None if self._addresses() else alone or now
                if alone is not None and now - alone > _PATIENCE:
                    raise ClusterLostError(_LOST_MESSAGE) from None

    def _begun(self, i: int) -> Any:
        """A future of the actor for a group, whose chunks are computed where it will be."""
        where = {"workers": [self._places[i]], "allow_other_workers": True}
        chunks = list(self._groups[i][0])
        inputs = self._client.compute(chunks, optimize_graph=False, **where)
        return self._client.submit(Kept, inputs, actor=True, pure=False, **where)

    def _workers(self) -> list[str]:
        """Addresses of all workers there are; waits for one."""
        self._client.wait_for_workers(1, timeout=_PATIENCE)
        return self._addresses()

    def _addresses(self) -> list[str]:
        return list(self._client.scheduler_info(n_workers=-1)["workers"])


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
        super().__init__(client, groups, self.repeat)
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

    def repeat(self, i: int) -> None:
        """Repeat all calls that changed the blocks."""
        for call in self._calls:
            answer_of(self._waited(self._actors[i].call("total", *call)))


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
