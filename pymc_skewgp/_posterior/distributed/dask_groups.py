"""Groups of rows, each kept by an actor on a worker of a dask cluster, of which any may be lost."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pymc_skewgp._errors import ClusterLostError
from pymc_skewgp._posterior.distributed.kept_blocks import Answer, Build

if TYPE_CHECKING:
    from distributed import Client

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
    build: Build[Any]


class DaskGroups:
    """Groups of blocks, each kept by an actor on one worker.

    Parameters
    ----------
    client : distributed.Client
    groups : sequence of Group
    actor : type
        Of the object that keeps a group, made of its chunks. `build`, given what makes blocks of
        these, is called first; all its methods return an `Answer`.

    Attributes
    ----------
    built : list
        What `build` returned, of each group.
    """

    def __init__(self, client: "Client", groups: Sequence[Group], actor: type) -> None:
        self._client, self._groups, self._actor = client, groups, actor
        workers = self._workers()
        self._places = [workers[i % len(workers)] for i in range(len(groups))]
        # All of them begin before any is waited for.
        begun = [self._begun(i) for i in range(len(groups))]
        self._actors = [self._waited(future) for future in begun]
        self.built = self._of_all(lambda i: self._actors[i].build(groups[i].build))

    def ask(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of the actors, which work side by side; answers in the groups' order."""
        return self._of_all(lambda i: getattr(self._actors[i], method)(*arguments))

    def restore(self, i: int) -> None:
        """Bring a group that was built again into the state that it had; here it has none."""

    def _of_all(self, ask: Callable[[int], Any]) -> list[Any]:
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
        """Build a group again on another worker."""
        others = [place for place in self._workers() if place != self._places[i]]
        if others:
            self._places[i] = min(others, key=self._places.count)
        self._actors[i] = actor = self._waited(self._begun(i))
        self._waited(actor.build(self._groups[i].build)).unwrap()
        self.restore(i)

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
        return self._client.submit(self._actor, inputs, actor=True, pure=False, **where)

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
