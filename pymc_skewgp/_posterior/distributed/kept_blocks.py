"""Row blocks that one dask worker keeps, and the answers that it gives of them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from pymc_skewgp._gaussian.blocks.blocks import Block, LocalBlocks
from pymc_skewgp._posterior.approximations.several_functions import FunctionFeatures
from pymc_skewgp._posterior.data_sets import DataSet
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._posterior.row_predictors import distinct_data, predictor_rows

_Kept = TypeVar("_Kept")


class Answer(NamedTuple):
    """What a call returned, or the error that it raised.

    An error that travels as a value is the method's own: what a call to a worker raises by itself
    says that the worker is lost.
    """

    value: Any
    error: Exception | None = None

    def unwrap(self) -> Any:
        """The value; raises the error."""
        if self.error is not None:
            raise self.error
        return self.value


def answered(function: Callable[..., Any], *arguments: Any) -> Answer:
    """What a function returns, or the error that it raises."""
    try:
        return Answer(function(*arguments))
    except Exception as error:
        return Answer(None, error)


class BuiltBlocks(NamedTuple):
    """Blocks of some rows, and the constant of their log probability."""

    blocks: Sequence[Block]
    log_constant: float


# From chunks of the data to what is kept of them; the same for the same chunks.
Build = Callable[[Sequence[Any]], _Kept]
# A method of `RowBlock` and its arguments.
Call = tuple[str, tuple[Any, ...]]


class KeptBlocks:
    """Blocks in the memory of a worker, as an actor: their state stays where they are.

    Parameters
    ----------
    chunks : sequence
        Of the data, kept until the blocks are built.
    """

    def __init__(self, chunks: Sequence[Any]) -> None:
        self._chunks = chunks
        self._blocks: LocalBlocks | None = None
        self._log_constant = 0.0

    def build(self, build: Build[BuiltBlocks]) -> Answer:
        """Build the blocks, once; numbers of rows and of coordinates, and the constant."""
        return answered(self._built, build)

    def _built(self, build: Build[BuiltBlocks]) -> tuple[int, int, float]:
        if self._blocks is None:
            blocks, self._log_constant = build(self._chunks)
            self._blocks, self._chunks = LocalBlocks(blocks, n_threads_of_worker()), ()
        return self._blocks.n_rows, self._blocks.rank, self._log_constant

    def total(self, method: str, arguments: tuple[Any, ...]) -> Answer:
        """The sum over the blocks of what a method returns."""
        assert self._blocks is not None
        return answered(self._blocks.total, method, *arguments)

    def repeat(self, method: str, arguments: tuple[Any, ...]) -> Answer:
        """The same without the sum, which is known."""
        answer = self.total(method, arguments)
        return answer if answer.error is not None else Answer(None)


def built_blocks(sets: Iterable[DataSet], features: FunctionFeatures, prior: Prior) -> BuiltBlocks:
    """Of data, in blocks of rows."""
    found = [
        part for data in sets for part in predictor_rows(data, features, prior, distinct_data(data))
    ]
    constant = float(sum(part.log_constant for part in found))
    return BuiltBlocks([part.block for part in found], constant)


def n_threads_of_worker() -> int:
    """Of the worker that this runs on."""
    from distributed import get_worker

    return int(get_worker().state.nthreads)
