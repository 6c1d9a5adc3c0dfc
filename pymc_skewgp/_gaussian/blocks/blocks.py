"""Many blocks of rows: a method is called for all of them, and what they return is added up."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Any, Protocol

from pymc_skewgp._gaussian.proposals.modes import Target
from pymc_skewgp._threads import few_blas_threads, n_blas_threads


class Block(Protocol):
    """One block: a `RowBlock`, or a `GroupBlock`, whose methods have the same names."""

    @property
    def n_rows(self) -> int:
        """Of the block."""
        ...

    @property
    def rank(self) -> int:
        """Number r of coordinates."""
        ...

    def bent(self) -> int:
        """Whether not all its factors are log-concave, after EP."""
        ...

    def target(self) -> Target:
        """Its factors, as modes are looked for among them."""
        ...


class Blocks(Protocol):
    """Blocks of rows of the same coordinates, wherever they are kept."""

    @property
    def n_rows(self) -> int:
        """Of all blocks."""
        ...

    @property
    def rank(self) -> int:
        """Number r of coordinates."""
        ...

    @property
    def here(self) -> bool:
        """Whether they are in this process, where many calls cost nothing but their work."""
        ...

    def total(self, method: str, *arguments: Any) -> Any:
        """Call a method of `RowBlock` for every block; the sum, or sums, of what they return."""
        ...


class LocalBlocks:
    """Blocks in this process.

    Results are added up in the order of the blocks: they do not depend on the threads.

    Parameters
    ----------
    blocks : sequence of Block
    n_threads : int, optional
        Default as many as BLAS may use.
    """

    def __init__(self, blocks: Sequence[Block], n_threads: int | None = None) -> None:
        self.blocks = tuple(blocks)
        self._n_threads = n_threads
        self.n_rows = sum(block.n_rows for block in blocks)
        self.rank = blocks[0].rank
        self.here = True

    def total(self, method: str, *arguments: Any) -> Any:
        """See `Blocks`."""

        def call(block: Block) -> Any:
            return getattr(block, method)(*arguments)

        return added(side_by_side(call, self.blocks, self._n_threads))


class JoinedBlocks:
    """Blocks of several kinds as one."""

    def __init__(self, parts: Sequence[Blocks]) -> None:
        self._parts = tuple(parts)
        self.n_rows = sum(part.n_rows for part in parts)
        self.rank = parts[0].rank
        self.here = all(part.here for part in parts)

    def total(self, method: str, *arguments: Any) -> Any:
        """See `Blocks`."""
        return added(part.total(method, *arguments) for part in self._parts)


def side_by_side[Item, Result](
    call: Callable[[Item], Result], items: Sequence[Item], n_threads: int | None = None
) -> Iterator[Result]:
    """Results of a call for each item, in their order, as it is made in threads.

    Each of them has one thread of BLAS: with more, matrices of some thousand rows take longer.
    """
    n_threads = min(n_threads or n_blas_threads(), len(items))
    with few_blas_threads(0):
        if n_threads <= 1:
            yield from map(call, items)
        else:
            with ThreadPoolExecutor(n_threads) as pool:
                yield from pool.map(call, items)


def added(results: Iterable[Any]) -> Any:
    """Sum of numbers, of arrays, or of tuples of these."""
    return reduce(_plus, results)


def _plus(a: Any, b: Any) -> Any:
    if a is None:
        return None
    if isinstance(a, tuple):
        return type(a)(*(x + y for x, y in zip(a, b, strict=True)))
    return a + b
