"""Many rows at a point of their hyperparameters: blocks for EP, and its gradient through them."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeVar

import numpy as np
from scipy import sparse

from pymc_skewgp._errors import NotPositiveDefiniteError
from pymc_skewgp._gaussian.blocks.beside import RowsBeside
from pymc_skewgp._gaussian.blocks.conditional import block_sampler
from pymc_skewgp._gaussian.blocks.ep import LocalBlocks, gaussian_of, side_by_side
from pymc_skewgp._gaussian.blocks.pairs import BlockPairs
from pymc_skewgp._gaussian.blocks.rows import SiteSums, field_blocks
from pymc_skewgp._gaussian.coordinate_gaussian import CoordinateGaussian
from pymc_skewgp._gaussian.coordinates import SiteSampler
from pymc_skewgp._gaussian.sparse import FieldPattern, FieldPrior
from pymc_skewgp._gaussian.weights import Estimate
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.rows.program import Chunk, Latent, LatentAt, plus
from pymc_skewgp._posterior.blocks_at import Arrays, BlockAt, SignsAt
from pymc_skewgp._validation import FloatArray

_T = TypeVar("_T")


class Rows:
    """All data at one point after another, in blocks in this process: blocks for EP.

    Parameters
    ----------
    latent : Latent
    blocks : sequence of Chunk
    signs : Chunk, optional
        Of the functions at pseudo-points, beside the data.
    n_threads : int, optional
        See `LocalBlocks`.

    Attributes
    ----------
    n_rows, rank, here
        See `Blocks`.
    log_constant : float
        Of the log evidence, beside that of the blocks.
    """

    n_rows: int
    rank: int
    log_constant: float
    here = True
    _at: LatentAt | None = None

    def __init__(
        self,
        latent: Latent,
        blocks: Sequence[Chunk],
        signs: Chunk | None = None,
        n_threads: int | None = None,
    ) -> None:
        self.latent, self.blocks, self._n_threads = latent, blocks, n_threads
        self._all = [*blocks, *([] if signs is None else [signs])]
        self._parts: list[BlockAt] = []
        # Of each block, tau and nu: EP begins where it has ended last.
        self._sites: list[Arrays] = []

    def evaluate(self, point: Point, function: Callable[["Rows"], _T | None]) -> _T | None:
        """A function of all rows at a point; None where double precision ends."""
        try:
            return None if self.place(point) is None else function(self)
        finally:
            self._parts = []  # for their memory

    def place(self, point: Point) -> tuple[int, int, float] | None:
        """Go to a point: rows, coordinates and constant there; None where double precision ends."""
        self._parts = []
        # Aligned, see `InOnePiece`.
        self._at = at = self.latent.at(point.at(point.x.copy()))
        if at is None:
            return None
        for part in side_by_side(lambda x: x.at(at), self._all, self._n_threads):
            if part is None:
                return None
            self._parts.append(part)
        for part, (tau, nu) in zip(self._parts, self._sites, strict=False):
            part.block.tau, part.block.nu = tau, nu
        self._blocks = LocalBlocks([part.block for part in self._parts], self._n_threads)
        constant = sum(part.log_constant for part in self._parts)
        self.n_rows, self.rank, self.log_constant = self._blocks.n_rows, self._blocks.rank, constant
        return self.n_rows, self.rank, constant

    def total(self, method: str, *arguments: Any) -> Any:
        """See `Blocks`."""
        return self._blocks.total(method, *arguments)

    def times(self, sums: SiteSums) -> CoordinateGaussian:
        """The prior times sites with these sums."""
        return gaussian_of(sums)

    def keep(self) -> None:
        """EP at the next point is to begin with the sites as they are."""
        self._sites = [(x.block.tau.copy(), x.block.nu.copy()) for x in self._parts]

    def gradient(self, gaussian: CoordinateGaussian) -> Arrays:
        """Of EP's log evidence at its fixed point, in the continuous variables."""
        assert self._at is not None
        found = self.part_of_gradient(gaussian.mean, gaussian.spread)
        return self.latent.pull_back(self._at, found)

    def part_of_gradient(self, mean: FloatArray, spread: FloatArray) -> Arrays:
        """What `Latent` pulls back, EP's Gaussian being N(mean, spread spread')."""
        at = self._at
        assert at is not None

        def of_block(pair: tuple[Chunk, BlockAt]) -> Arrays:
            chunk, part = pair
            return chunk.pull_back(at, part, mean, spread)

        pairs = list(zip(self._all, self._parts, strict=True))
        return reduce(plus, side_by_side(of_block, pairs, self._n_threads))

    def sampler(self, gaussian: CoordinateGaussian) -> SiteSampler:
        """Of coordinates after EP, rows with next to no noise first."""
        # Signs come first.
        rows = RowsBeside.joined([part.hard for part in reversed(self._parts)])
        if rows is None:
            return block_sampler(gaussian, self._blocks if self.here else self)
        noisy = [part.block for part in self._parts if part.hard is None]
        blocks = LocalBlocks(noisy, self._n_threads)
        return SiteSampler(BlockPairs.beside(rows, gaussian_of(blocks.total("sums")), blocks))

    def of_data(self, evidence: Estimate, n_draws: int) -> Estimate:
        """Log evidence of the data, from that of the blocks by so many draws."""
        found = evidence._replace(value=evidence.value + self.log_constant)
        signs = [part for part in self._parts if isinstance(part, SignsAt)]
        return signs[0].with_error(found, n_draws) if signs else found


class RowsOfField(Rows):
    """The same of coordinates with a sparse precision: the basis is `VecchiaPlaces`."""

    _pattern: FieldPattern | None = None

    def place(self, point: Point) -> tuple[int, int, float] | None:
        """See `Rows`."""
        graph = self.latent.basis.graph
        if super().place(point) is None or self._at is None:
            return None
        try:
            known = graph.conditionals(self._at.common[0])
        except NotPositiveDefiniteError:
            return None
        pattern, blocks = self._pattern_of_rows(), list[Any](x.block for x in self._parts)
        self._prior = FieldPrior.centred(pattern, graph.precision(known))
        values = np.concatenate([block.factor.ravel() for block in blocks])
        fields = field_blocks(values, pattern, [block.sites for block in blocks])
        for part, field in zip(self._parts, fields, strict=True):
            field.tau, field.nu = part.block.tau, part.block.nu
            part.block = field
        self._blocks, self.rank = LocalBlocks(fields, self._n_threads), pattern.shape[1]
        self.log_constant -= 0.5 * float(np.log(known.variance).sum())
        return self.n_rows, self.rank, self.log_constant

    def _pattern_of_rows(self) -> FieldPattern:
        if self._pattern is None:
            basis = self.latent.basis
            place = basis.nearest(np.concatenate([block.X for block in self.blocks]), 1)[0].ravel()
            ends = np.arange(place.size + 1)
            design = sparse.csr_array((np.ones(place.size), place, ends), (place.size, basis.rank))
            self._pattern = basis.pattern(design)
        return self._pattern

    def times(self, sums: SiteSums) -> CoordinateGaussian:
        """See `Rows`."""
        return self._prior.times(sums)

    def part_of_gradient(self, mean: FloatArray, spread: Any) -> Arrays:
        """See `Rows`."""
        *found, _ = super().part_of_gradient(mean, spread)
        graph, at = self.latent.basis.graph, self._at
        assert at is not None
        i, j = graph.of_precision[:, : self.rank + graph.pairs.shape[1]]
        squares = spread.entries(i, j) + mean[i] * mean[j]
        return *found, graph.slopes(at.common[0], squares)
