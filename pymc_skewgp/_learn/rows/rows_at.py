"""Many rows at a point of their hyperparameters: blocks for EP, and its gradient through them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from pymc_skewgp._gaussian.blocks.blocks import Blocks, LocalBlocks, side_by_side
from pymc_skewgp._gaussian.blocks.ep import gaussian_of
from pymc_skewgp._gaussian.blocks.pairs import BlockPairs
from pymc_skewgp._gaussian.proposals.coordinate_gaussian import CoordinateGaussian
from pymc_skewgp._gaussian.proposals.mode_pairs import ModePairs
from pymc_skewgp._gaussian.proposals.pairs import EPPairs
from pymc_skewgp._gaussian.weights import Estimate
from pymc_skewgp._learn.point import Point
from pymc_skewgp._learn.rows.block_at import BlockAt, BlockOfData
from pymc_skewgp._learn.rows.latent_at import (
    Latent,
    LatentAt,
    LatentGradient,
    added_gradients,
    added_rows,
    plus,
)
from pymc_skewgp._learn.rows.prior_at import PriorRows
from pymc_skewgp._learn.rows.signs_block import SignsAt, SignsBlock
from pymc_skewgp._posterior.hard_rows import joined
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

    def proposal(self, gaussian: CoordinateGaussian) -> EPPairs | ModePairs:
        """Of coordinates after EP, rows with next to no noise first."""
        ...

    def of_data(self, evidence: Estimate, n_draws: int) -> Estimate:
        """Log evidence of the data, from that of the blocks by so many draws."""
        ...


class Rows(Protocol):
    """Data with the basis of f, wherever they are kept."""

    def evaluate(self, point: Point, function: Callable[[RowsAt], _T | None]) -> _T | None:
        """A function of all rows at a point; None where double precision ends."""
        ...


class _Part(NamedTuple):
    """A block of data at a point: f at its inputs, and its predictors with their sites."""

    prior: PriorRows
    data: BlockAt


class RowsHere:
    """Data in blocks in this process.

    Parameters
    ----------
    latent : Latent
    blocks : sequence of BlockOfData
    signs : SignsBlock, optional
        Of the functions at pseudo-points, beside the data.
    n_threads : int, optional
        See `LocalBlocks`.
    """

    def __init__(
        self,
        latent: Latent,
        blocks: Sequence[BlockOfData],
        signs: SignsBlock | None = None,
        n_threads: int | None = None,
    ) -> None:
        self.blocks, self.n_threads = blocks, n_threads
        self._latent, self._signs = latent, signs
        # Of each block, shape (2, n): EP begins where it has ended last.
        self._sites: dict[int, FloatArray] = {}

    @property
    def all_blocks(self) -> Sequence[BlockOfData]:
        """Of data and, last, of signs."""
        return self.blocks if self._signs is None else [*self.blocks, self._signs]

    def evaluate(self, point: Point, function: Callable[[RowsAt], _T | None]) -> _T | None:
        """See `Rows`."""
        found = self.at(point)
        return None if found is None else function(found)

    def at(self, point: Point) -> "RowsHereAt | None":
        """The rows at a point; None where double precision ends."""
        latent = self._latent.at(point)
        if latent is None:
            return None
        parts: list[_Part] = []
        for part in side_by_side(partial(_part_at, latent), self.all_blocks, self.n_threads):
            if part is None:
                return None
            parts.append(part)
        for i, (tau, nu) in self._sites.items():
            parts[i].data.block.tau, parts[i].data.block.nu = tau, nu
        return RowsHereAt(self, latent, parts)

    def begin_from(self, parts: Sequence[_Part]) -> None:
        """EP at the next point begins with the sites of these."""
        for i, part in enumerate(parts):
            self._sites[i] = np.stack([part.data.block.tau, part.data.block.nu])


class RowsHereAt(LocalBlocks):
    """`RowsAt` of a `RowsHere`."""

    def __init__(self, rows: RowsHere, latent: LatentAt, parts: Sequence[_Part]) -> None:
        super().__init__([part.data.block for part in parts], rows.n_threads)
        self._rows, self._latent, self._parts = rows, latent, parts
        self.log_constant = sum(part.data.log_constant for part in parts)

    def keep(self) -> None:
        """See `RowsAt`."""
        self._rows.begin_from(self._parts)

    def gradient(self, gaussian: CoordinateGaussian) -> tuple[FloatArray, ...]:
        """See `RowsAt`."""
        return self._latent.pull_back(self.part_of_gradient(gaussian.mean, gaussian.spread))

    def part_of_gradient(self, mean: FloatArray, spread: FloatArray) -> LatentGradient:
        """What these rows say of it, EP's Gaussian being N(mean, spread spread')."""
        call = partial(self._of_block, mean, spread)
        pairs = list(zip(self._rows.all_blocks, self._parts, strict=True))
        return added_gradients(side_by_side(call, pairs, self._rows.n_threads))

    def _of_block(
        self, mean: FloatArray, spread: FloatArray, pair: tuple[BlockOfData, _Part]
    ) -> LatentGradient:
        data, part = pair
        wrt, own, functions = part.data.gradient(mean, spread)
        pieces = []
        for rows in _slices(data.X.shape[0]):
            at, by = (PriorRows(*(x[rows] for x in y)) for y in (part.prior, wrt))
            pieces.append(self._latent.prior.pull_back(data.X[rows], at, by, data.of))
        found = added_rows(pieces)
        if own is not None:
            found = found._replace(slopes=plus(found.slopes, own))
        return LatentGradient(found, functions)

    def proposal(self, gaussian: CoordinateGaussian) -> EPPairs | ModePairs:
        """See `RowsAt`."""
        found = [(part.data.block, part.data.hard()) for part in self._parts]
        # Signs come first.
        rows = joined([hard for _, hard in reversed(found) if hard is not None])
        if rows is None:
            return BlockPairs(gaussian, self).with_modes()
        noisy = [block for block, hard in found if hard is None]
        blocks = LocalBlocks(noisy, self._rows.n_threads)
        gaussian = gaussian_of(blocks.total("sums"))
        pairs = BlockPairs(gaussian, blocks, rows=rows.given(gaussian))
        return pairs.with_modes(rows.beside())

    def of_data(self, evidence: Estimate, n_draws: int) -> Estimate:
        """See `RowsAt`."""
        found = evidence._replace(value=evidence.value + self.log_constant)
        last = self._parts[-1].data
        return last.with_error(found, n_draws) if isinstance(last, SignsAt) else found


def _part_at(latent: LatentAt, data: BlockOfData) -> _Part | None:
    """A block at a point; None where double precision ends."""
    pieces = [latent.prior.rows(data.X[rows], data.of) for rows in _slices(data.X.shape[0])]
    if not all(piece.finite for piece in pieces):
        return None
    of_f = pieces[0]
    if len(pieces) > 1:
        of_f = PriorRows(*(np.concatenate(column) for column in zip(*pieces, strict=True)))
    found = data.at(latent.point, of_f, latent.functions)
    return None if found is None else _Part(of_f, found)


def _slices(n: int) -> list[slice]:
    return [slice(i, i + _INPUTS_AT_ONCE) for i in range(0, n, _INPUTS_AT_ONCE)]
