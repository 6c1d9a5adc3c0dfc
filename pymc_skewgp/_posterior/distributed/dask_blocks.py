r"""Row blocks on the workers of a dask cluster.

The rows and the state of EP stay on the workers. A sweep sends each of them the mean of the
coordinates and the factor of their covariance, and gets back as much: with W groups of blocks some
:math:`16 W r^2` bytes, whatever the number of rows.

A worker that is lost takes its blocks with it. They are built again from their inputs on another
worker, and all calls that changed them so far are repeated there, so that EP goes on where it was:
what comes out is the same to the bit.
"""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pymc_skewgp._errors import ClusterLostError
from pymc_skewgp._gaussian.blocks.blocks import added
from pymc_skewgp._posterior.distributed.kept_blocks import Answer, Build, Call, KeptBlocks

if TYPE_CHECKING:
    from distributed import Client

# Methods of `RowBlock` after which it is another one.
_CHANGING = frozenset({"tilt", "move", "back", "forget", "finish"})
# Seconds after a loss in which another worker must be found, and between two attempts.
_PATIENCE, _PAUSE = 120.0, 0.2
_LOOK = 5.0  # seconds of an answer, after which it is asked whether there are workers at all
_LOST_MESSAGE = (
    f"workers of the dask cluster are lost, and for {_PATIENCE:.0f} s none has taken their place: "
    "start workers, and make the posterior again."
)
# What a call to a lost worker raises; errors of the blocks come as values.
_LOST = (OSError, RuntimeError, KeyError)


class Group(NamedTuple):
    """Blocks that are kept together.

    Attributes
    ----------
    chunks : sequence of Delayed
        Of the data, computed on the worker.
    build : Build
        From these to blocks.
    """

    chunks: Sequence[Any]
    build: Build


class DaskBlocks:
    """Blocks in groups, each kept by one worker.

    Sums are over the blocks of a group in their order, then over the groups: they do not depend on
    which worker keeps what, nor on workers that are lost.

    Parameters
    ----------
    client : distributed.Client
    groups : sequence of Group
    """

    def __init__(self, client: "Client", groups: Sequence[Group]) -> None:
        self._client, self._groups = client, groups
        self.here = False
        self._calls: list[Call] = []
        workers = self._workers()
        self._places = [workers[i % len(workers)] for i in range(len(groups))]
        # All of them begin before any is waited for.
        begun = [self._begun(i) for i in range(len(groups))]
        self._actors = [self._waited(future) for future in begun]
        found = self._of_all(lambda i: self._actors[i].build(groups[i].build))
        self.n_rows = sum(n for n, _, _ in found)
        self.rank: int = found[0][1]
        self.log_constant: float = sum(constant for _, _, constant in found)

    def total(self, method: str, *arguments: Any) -> Any:
        """See `Blocks`."""
        found = added(self._of_all(lambda i: self._actors[i].total(method, arguments)))
        if method in _CHANGING:
            self._calls.append((method, arguments))
        return found

    def _of_all(self, ask: Callable[[int], Any]) -> list[Any]:
        """Answers of all groups, which work side by side, in their order."""
        asked = [_asked(ask, i) for i in range(len(self._groups))]
        return [self._answer(i, future, ask) for i, future in enumerate(asked)]

    def _answer(self, i: int, future: Any, ask: Callable[[int], Any]) -> Any:
        """Of one group; from another worker if its own is lost, or from one that comes later."""
        deadline = None
        while True:
            try:
                if deadline is not None:
                    self._move(i)
                    future = _asked(ask, i)
                answer: Answer = self._waited(future)
            except ClusterLostError:
                raise
            except _LOST as error:
                now = time.monotonic()
                deadline = now + _PATIENCE if deadline is None else deadline
                if now > deadline:
                    raise ClusterLostError(_LOST_MESSAGE) from error
                time.sleep(_PAUSE)  # the scheduler has to notice
            else:
                return answer.unwrap()

    def _move(self, i: int) -> None:
        """Build a group again on another worker, in the state that it had."""
        others = [place for place in self._workers() if place != self._places[i]]
        if others:
            self._places[i] = min(others, key=self._places.count)
        self._actors[i] = actor = self._waited(self._begun(i))
        self._waited(actor.build(self._groups[i].build)).unwrap()
        for call in self._calls:
            self._waited(actor.repeat(*call)).unwrap()

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
        chunks = list(self._groups[i].chunks)
        inputs = self._client.compute(chunks, optimize_graph=False, **where)
        return self._client.submit(KeptBlocks, inputs, actor=True, pure=False, **where)

    def _workers(self) -> list[str]:
        """Addresses of all workers there are; waits for one."""
        self._client.wait_for_workers(1, timeout=_PATIENCE)
        return self._addresses()

    def _addresses(self) -> list[str]:
        return list(self._client.scheduler_info(n_workers=-1)["workers"])


class _Lost:
    """In place of the future of an answer, where it is known that the worker is lost."""

    def result(self, timeout: float | None = None) -> Answer:
        raise OSError("the worker of these rows is lost.")


def _asked(ask: Callable[[int], Any], i: int) -> Any:
    """A future of the answer of a group."""
    try:
        return ask(i)
    except _LOST:
        return _Lost()
