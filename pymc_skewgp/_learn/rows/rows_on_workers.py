"""Many rows at a point of their hyperparameters, kept by the workers of a dask cluster.

A point, EP's Gaussian of the coordinates and sums of r x r numbers travel. Each worker carries its
own rows' part of the gradient back to the hyperparameters, and to what all rows have in common.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import cloudpickle
import numpy as np

from pymc_skewgp._errors import ClusterLostError
from pymc_skewgp._gaussian.blocks.blocks import added
from pymc_skewgp._gaussian.blocks.pairs import BlockPairs
from pymc_skewgp._gaussian.proposals.coordinate_gaussian import CoordinateGaussian
from pymc_skewgp._gaussian.proposals.mode_pairs import ModePairs
from pymc_skewgp._gaussian.proposals.pairs import EPPairs
from pymc_skewgp._gaussian.weights import Estimate
from pymc_skewgp._learn.point import Point
from pymc_skewgp._learn.rows.block_at import BlockOfData
from pymc_skewgp._learn.rows.latent_at import Latent, LatentGradient, added_gradients
from pymc_skewgp._learn.rows.rows_at import RowsAt, RowsHere, RowsHereAt
from pymc_skewgp._posterior.distributed.dask_groups import DaskGroups, Group
from pymc_skewgp._posterior.distributed.kept_blocks import (
    Answer,
    Build,
    answered,
    n_threads_of_worker,
)
from pymc_skewgp._validation import FloatArray

if TYPE_CHECKING:
    from distributed import Client

_MOST_LOSSES = 10  # at one point
_T = TypeVar("_T")


class Placed(NamedTuple):
    """What a worker says of its rows at a point."""

    n_rows: int
    rank: int
    log_constant: float


class KeptRows:
    """Rows in the memory of a worker, as an actor, at one point after another.

    Parameters
    ----------
    chunks : sequence
        Of the data, kept until blocks are built of them.
    """

    def __init__(self, chunks: Sequence[Any]) -> None:
        self._chunks = chunks
        self._rows: RowsHere | None = None
        self._at: RowsHereAt | None = None

    def build(self, build: Build[RowsHere]) -> Answer:
        """Build blocks of the chunks, once."""
        return answered(self._built, build)

    def _built(self, build: Build[RowsHere]) -> None:
        if self._rows is None:
            self._rows, self._chunks = build(self._chunks), ()

    def place(self, point: Point) -> Answer:
        """Go to a point: `Placed`, or None where double precision ends."""
        return answered(self._placed, point)

    def _placed(self, point: Point) -> Placed | None:
        assert self._rows is not None
        self._at = None  # first, for its memory
        self._at = self._rows.at(point.at(point.x.copy()))  # aligned, see `InOnePiece`
        if self._at is None:
            return None
        return Placed(self._at.n_rows, self._at.rank, self._at.log_constant)

    def call(self, method: str, arguments: tuple[Any, ...]) -> Answer:
        """A method of the rows at that point."""
        return answered(getattr(self._at, method), *arguments)


class InOnePiece:
    """A `Build` that travels as one string of bytes.

    By itself dask lets arrays travel beside what has them. They arrive as parts of a buffer, at
    places in it that compiled functions of PyTensor do not take.
    """

    def __init__(self, build: Build[RowsHere]) -> None:
        self._build = build

    def __getstate__(self) -> bytes:
        found: bytes = cloudpickle.dumps(self._build)
        return found

    def __setstate__(self, state: bytes) -> None:
        self._build = cloudpickle.loads(state)

    def __call__(self, chunks: Sequence[Any]) -> RowsHere:
        """See `Build`."""
        return self._build(chunks)


class _RowsLostError(Exception):
    """Rows were lost with a worker, and are at no point on their new one."""


class _RowGroups(DaskGroups):
    """Groups of `KeptRows`, which are at a point or not."""

    placed = False

    def restore(self, i: int) -> None:
        """Their sites of EP are lost."""
        if self.placed:
            raise _RowsLostError


class RowsOnWorkers:
    """Data that workers keep.

    Rows that are lost with a worker are built again on another one. EP begins at the same point
    anew, for these rows from nothing: it ends at the same fixed point, within its tolerance.

    Parameters
    ----------
    client : distributed.Client
    groups : sequence of tuples (chunks, build)
        Which are a `RowsHere` each, of the same latent process.
    latent : Latent
    """

    def __init__(
        self,
        client: "Client",
        groups: Iterable[tuple[Sequence[Any], Build[RowsHere]]],
        latent: Latent,
    ) -> None:
        own = [Group(chunks, InOnePiece(build)) for chunks, build in groups]
        self._groups = _RowGroups(client, own, KeptRows)
        self._latent = latent

    def evaluate(self, point: Point, function: Callable[[RowsAt], _T | None]) -> _T | None:
        """See `Rows`."""
        for _ in range(_MOST_LOSSES):
            try:
                found = self._at(point)
                return None if found is None else function(found)
            except _RowsLostError:
                continue
        raise ClusterLostError(
            f"workers of the dask cluster were lost {_MOST_LOSSES} times at one value of the "
            "hyperparameters: see their logs. They may need more memory, or smaller chunks."
        )

    def _at(self, point: Point) -> "_RowsOnWorkersAt | None":
        groups = self._groups
        groups.placed = False
        found = groups.ask("place", point)
        groups.placed = True
        if any(own is None for own in found):
            return None
        return _RowsOnWorkersAt(self, groups, point, found)

    def pull_back(self, point: Point, found: LatentGradient) -> tuple[FloatArray, ...]:
        """See `LatentAt`."""
        latent = self._latent.at(point)
        assert latent is not None  # the workers have it
        return latent.pull_back(found)


class _RowsOnWorkersAt:
    """`RowsAt` of `RowsOnWorkers`."""

    def __init__(
        self, rows: RowsOnWorkers, groups: _RowGroups, point: Point, placed: Sequence[Placed]
    ) -> None:
        self._rows, self._groups, self._point = rows, groups, point
        self.n_rows = sum(own.n_rows for own in placed)
        self.rank = placed[0].rank
        self.here = False
        self.log_constant = sum(own.log_constant for own in placed)

    def total(self, method: str, *arguments: Any) -> Any:
        """See `Blocks`."""
        return added(self._groups.ask("call", "total", (method, *arguments)))

    def keep(self) -> None:
        """See `RowsAt`."""
        self._groups.ask("call", "keep", ())

    def gradient(self, gaussian: CoordinateGaussian) -> tuple[FloatArray, ...]:
        """See `RowsAt`."""
        arguments = gaussian.mean, gaussian.spread
        parts = self._groups.ask("call", "part_of_gradient", arguments)
        return self._rows.pull_back(self._point, added_gradients(parts))

    def proposal(self, gaussian: CoordinateGaussian) -> EPPairs | ModePairs:
        """See `RowsAt`; rows with next to no noise are refused before."""
        return BlockPairs(gaussian, self).with_modes()

    def of_data(self, evidence: Estimate, n_draws: int) -> Estimate:
        """See `RowsAt`."""
        return evidence._replace(value=evidence.value + self.log_constant)


@dataclass(frozen=True, eq=False)
class _SentRows:
    """Blocks that are sent: they are not lost with a worker."""

    latent: Latent
    blocks: Sequence[BlockOfData]

    def __call__(self, chunks: Sequence[Any]) -> RowsHere:
        """See `Build`."""
        return RowsHere(self.latent, self.blocks, n_threads=n_threads_of_worker())


def sent_rows(client: "Client", latent: Latent, blocks: Sequence[BlockOfData]) -> RowsOnWorkers:
    """Blocks of this process on the workers, in contiguous parts of about as many rows."""
    n_parts = min(max(1, len(client.nthreads())), len(blocks))
    ends = np.cumsum([block.X.shape[0] for block in blocks])
    own = (ends - 1) * n_parts // ends[-1]
    parts = [[b for b, i in zip(blocks, own, strict=True) if i == k] for k in range(n_parts)]
    groups = [((), _SentRows(latent, part)) for part in parts if part]
    return RowsOnWorkers(client, groups, latent)
