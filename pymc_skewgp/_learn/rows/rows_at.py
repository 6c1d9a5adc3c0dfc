"""Many rows at a point of their hyperparameters: blocks for EP, and its gradient through them."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from pymc_skewgp._gaussian.blocks.blocks import Blocks, LocalBlocks, side_by_side
from pymc_skewgp._gaussian.blocks.row_block import RowBlock
from pymc_skewgp._gaussian.proposals.coordinate_gaussian import CoordinateGaussian
from pymc_skewgp._learn.point import Point
from pymc_skewgp._learn.rows.data_blocks import DataBlock
from pymc_skewgp._learn.rows.learnt_sites import LearntSites, Predictors
from pymc_skewgp._learn.rows.prior_at import PriorAt, PriorFamily, PriorRows, RowsGradient
from pymc_skewgp._validation import FloatArray

# Inputs at which the kernel is evaluated at once: what they take stays in the cache.
_INPUTS_AT_ONCE = 4096
_T = TypeVar("_T")


class RowsAt(Blocks, Protocol):
    """All rows at a point."""

    @property
    def log_constant(self) -> float:
        """Of the log evidence, beside that of the blocks."""
        ...

    def keep(self) -> None:
        """EP at the next point is to begin with the sites as they are."""
        ...

    def gradient(self, gaussian: CoordinateGaussian) -> tuple[FloatArray, ...]:
        """Of EP's log evidence at its fixed point, in the continuous variables."""
        ...


class Rows(Protocol):
    """Data with the basis of f, wherever they are kept."""

    def evaluate(self, point: Point, function: Callable[[RowsAt], _T | None]) -> _T | None:
        """A function of all rows at a point; None where double precision ends."""
        ...


class _Part(NamedTuple):
    """A block of data at a point: f at its inputs, its predictors with their sites, a constant."""

    prior: PriorRows
    block: RowBlock
    sites: LearntSites
    log_constant: float


class RowsHere:
    """Data in blocks in this process.

    Parameters
    ----------
    process : PriorFamily
    blocks : sequence of DataBlock
    basis : object
        Of the process.
    n_threads : int, optional
        See `LocalBlocks`.
    """

    def __init__(
        self,
        process: PriorFamily,
        blocks: Sequence[DataBlock],
        basis: Any,
        n_threads: int | None = None,
    ) -> None:
        self.blocks, self.n_threads = blocks, n_threads
        self._process, self._basis = process, basis
        # Of each block, shape (2, n): EP begins where it has ended last.
        self._sites: dict[int, FloatArray] = {}

    def evaluate(self, point: Point, function: Callable[[RowsAt], _T | None]) -> _T | None:
        """See `Rows`."""
        found = self.at(point)
        return None if found is None else function(found)

    def at(self, point: Point) -> "RowsHereAt | None":
        """The rows at a point; None where double precision ends."""
        prior = self._process.at(point, self._basis)
        if prior is None:
            return None
        parts: list[_Part] = []
        for part in side_by_side(partial(_part_at, prior, point), self.blocks, self.n_threads):
            if part is None:
                return None
            parts.append(part)
        for i, (tau, nu) in self._sites.items():
            parts[i].block.tau, parts[i].block.nu = tau, nu
        return RowsHereAt(self, point, prior, parts)

    def begin_from(self, parts: Sequence[_Part]) -> None:
        """EP at the next point begins with the sites of these."""
        for i, part in enumerate(parts):
            self._sites[i] = np.stack([part.block.tau, part.block.nu])


class RowsHereAt(LocalBlocks):
    """`RowsAt` of a `RowsHere`."""

    def __init__(
        self,
        rows: RowsHere,
        point: Point,
        prior: PriorAt,
        parts: Sequence[_Part],
    ) -> None:
        super().__init__([part.block for part in parts], rows.n_threads)
        self._rows, self._point, self._prior, self._parts = rows, point, prior, parts
        self.log_constant = sum(part.log_constant for part in parts)

    def keep(self) -> None:
        """See `RowsAt`."""
        self._rows.begin_from(self._parts)

    def gradient(self, gaussian: CoordinateGaussian) -> tuple[FloatArray, ...]:
        """See `RowsAt`."""
        slopes, common = self.part_of_gradient(gaussian.mean, gaussian.spread)
        return _plus(slopes, self._prior.pull_back_common(common))

    def part_of_gradient(self, mean: FloatArray, spread: FloatArray) -> RowsGradient:
        """What these rows say of it, EP's Gaussian being N(mean, spread spread')."""
        call = partial(self._of_block, mean, spread)
        pairs = list(zip(self._rows.blocks, self._parts, strict=True))
        return added_gradients(side_by_side(call, pairs, self._rows.n_threads))

    def _of_block(
        self, mean: FloatArray, spread: FloatArray, pair: tuple[DataBlock, _Part]
    ) -> RowsGradient:
        data, part = pair
        found = part.block.gradient(mean, spread)
        own = data.numbers.pull_back(self._point, part.sites.slopes_of_numbers(found))
        wrt = data.wrt_prior(found)
        pieces = []
        for rows in _slices(data.X.shape[0]):
            at, by = (PriorRows(*(x[rows] for x in y)) for y in (part.prior, wrt))
            pieces.append(self._prior.pull_back(data.X[rows], at, by))
        slopes, common = added_gradients(pieces)
        return RowsGradient(slopes if own is None else _plus(slopes, own), common)


def added_gradients(parts: Iterable[RowsGradient]) -> RowsGradient:
    """Their sum, of at least one."""
    return reduce(lambda a, b: RowsGradient(_plus(a.slopes, b.slopes), a.common + b.common), parts)


def _plus(one: Sequence[FloatArray], other: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
    return tuple(x + y for x, y in zip(one, other, strict=True))


def _part_at(prior: PriorAt, point: Point, data: DataBlock) -> _Part | None:
    """A block at a point; None where double precision ends."""
    pieces = [prior.rows(data.X[rows]) for rows in _slices(data.X.shape[0])]
    if not all(piece.finite for piece in pieces):
        return None
    of_f = pieces[0]
    if len(pieces) > 1:
        of_f = PriorRows(*(np.concatenate(column) for column in zip(*pieces, strict=True)))
    phi, mean, rest = data.predictors(of_f)
    predictors = Predictors(mean, rest, np.sqrt(np.einsum("ij,ij->i", phi, phi)))
    found = data.numbers.at(point, predictors)
    if found is None:
        return None
    sites, log_constant = found
    return _Part(of_f, RowBlock(phi, sites), sites, log_constant)


def _slices(n: int) -> list[slice]:
    return [slice(i, i + _INPUTS_AT_ONCE) for i in range(0, n, _INPUTS_AT_ONCE)]
