"""Data of one kind, all or some of which are cut into blocks."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import sparse

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._learn.coordinates import Coordinates
from pymc_skewgp._learn.rows.block_at import BlockOfData
from pymc_skewgp._learn.rows.compiled_numbers import CompiledNumbers, compiled_rows
from pymc_skewgp._learn.rows.data_blocks import DataBlock, NumbersOfFunctions, NumbersOfRows
from pymc_skewgp._learn.rows.group_kind import GroupsOfKind, is_grouped
from pymc_skewgp._learn.rows.limits_block import LimitsOfKind
from pymc_skewgp._model.graph.data_rows import KnownData, RowTable
from pymc_skewgp._model.graph.data_sites import KnownSites
from pymc_skewgp._observations.distinct_rows import MOST_DISTINCT, DistinctRows, distinct_rows
from pymc_skewgp._posterior.residual_draws import rows_are_apart
from pymc_skewgp._validation import FloatArray

# Rows whose kernel is evaluated at once: what they take stays in the cache.
ROWS_IN_BLOCK = 2048


class DataOfKind(Protocol):
    """Data of one kind."""

    @property
    def n_observations(self) -> int:
        """Rows of X; or comparisons, where these are rows about several of them."""
        ...

    @property
    def is_data(self) -> bool:
        """Whether they are data, and no constraint, which goes with any of the data."""
        ...

    @property
    def in_parts(self) -> bool:
        """Whether some of them are data too."""
        ...

    def blocks(self, chosen: IntArray) -> Sequence[BlockOfData]:
        """Of some observations, in increasing order."""
        ...


class _Picked(NamedTuple):
    """Rows in the order of the value of f that each is of: `unit[i]` of row `order[i]`."""

    order: IntArray
    unit: IntArray


@dataclass(frozen=True, eq=False)
class RowsOfKind:
    """Points and intervals.

    Attributes
    ----------
    known : KnownData
    table : RowTable
    compiled : CompiledNumbers
        Lower, upper, value, noise and constant.
    """

    known: KnownData
    table: RowTable
    compiled: CompiledNumbers

    is_data = True
    in_parts = True

    @classmethod
    def of(cls, known: KnownData, model: pm.Model, coordinates: Coordinates) -> "RowsOfKind":
        """Compiled for a model."""
        return cls(known, known.whole, compiled_rows(known, model, coordinates))

    @property
    def n_observations(self) -> int:
        """See `DataOfKind`."""
        return self.n_rows if self._picked is None else self.known.X.shape[0]

    @property
    def n_different(self) -> int:
        """Rows of X that are computed, of equal ones one."""
        return self.n_observations if self._distinct is None else self._distinct.first.size

    @property
    def n_rows(self) -> int:
        """Of the table."""
        return int(self.table.columns[0].size)

    def blocks(self, chosen: IntArray) -> list[DataBlock]:
        """See `DataOfKind`."""
        merged = self._merged(chosen)
        if merged is not None:
            kept, counts = merged
            parts = [slice(i, i + ROWS_IN_BLOCK) for i in range(0, kept.size, ROWS_IN_BLOCK)]
            return [
                DataBlock(self.known.X[kept[x]], self._numbers(kept[x], i == 0, counts[x]))
                for i, x in enumerate(parts)
            ]
        starts = range(0, chosen.size, ROWS_IN_BLOCK)
        of_part = self._of_items if self._picked is None else self._of_values
        return [
            of_part(chosen[start : start + ROWS_IN_BLOCK], with_constant=start == 0)
            for start in starts
        ]

    def _merged(self, chosen: IntArray) -> tuple[IntArray, FloatArray] | None:
        """Different rows among these and how often each is there, where these are few."""
        known = self._distinct
        if known is None:
            return None
        kinds, counts = np.unique(known.kind[chosen], return_counts=True)
        if kinds.size > MOST_DISTINCT * chosen.size:
            return None
        return known.first[kinds], counts.astype(np.float64)

    def _of_values(self, chosen: IntArray, with_constant: bool) -> DataBlock:
        """Of some rows of X, each of which data are about by itself."""
        assert self._picked is not None
        order, unit = self._picked
        low, high = np.searchsorted(unit, chosen), np.searchsorted(unit, chosen, side="right")
        sizes = high - low
        own = np.repeat(np.arange(chosen.size), sizes)
        rows = order[np.arange(own.size) - np.repeat(np.cumsum(sizes) - sizes - low, sizes)]
        if self._once:
            numbers = self._numbers(rows, with_constant)
        else:
            numbers = self._numbers(rows, with_constant, self._counts[rows], own)
        return DataBlock(self.known.X[chosen], numbers)

    def _of_items(self, chosen: IntArray, with_constant: bool) -> DataBlock:
        """Of some rows about several values each."""
        design = self._design[chosen]
        items, place = np.unique(design.indices, return_inverse=True)
        own = sparse.csr_array((design.data, place, design.indptr), (chosen.size, items.size))
        if self.table.counts is None or (self._counts == 1).all():
            numbers = self._numbers(chosen, with_constant)
        else:
            counts = self._counts[chosen]
            numbers = self._numbers(chosen, with_constant, counts, np.arange(chosen.size))
        return DataBlock(self.known.X[items], numbers, own, self._apart)

    def _numbers(
        self,
        rows: IntArray,
        with_constant: bool,
        counts: FloatArray | None = None,
        unit: IntArray | None = None,
    ) -> NumbersOfRows:
        table = self.table
        constant = table.log_constant if with_constant else np.zeros(())
        batch = *(x[rows] for x in table.columns), constant, *(x[rows] for x in table.slopes)
        return NumbersOfRows(self.compiled, batch, counts, unit)

    @cached_property
    def _design(self) -> sparse.csr_array:
        design = self.table.design
        if design is None:
            return sparse.eye_array(self.n_rows, format="csr")
        return sparse.csr_array(design)

    @cached_property
    def _picked(self) -> _Picked | None:
        """Where each row is one value of f: which; else None."""
        design = self._design
        if (np.diff(design.indptr) != 1).any() or (design.data != 1.0).any():
            return None
        order = np.argsort(design.indices, kind="stable")
        return _Picked(order, design.indices[order].astype(np.intp))

    @cached_property
    def _counts(self) -> FloatArray:
        counts = self.table.counts
        return np.ones(self.n_rows) if counts is None else counts

    @cached_property
    def _once(self) -> bool:
        """Whether each row of X has one row of the table, which was seen once."""
        assert self._picked is not None
        whole = np.array_equal(self._picked.unit, np.arange(self.known.X.shape[0]))
        return bool(whole and (self._counts == 1.0).all())

    @cached_property
    def _distinct(self) -> DistinctRows | None:
        """Kinds of equal rows, where these are few and each is one value of f."""
        if self._picked is None or not self._once:
            return None
        if not np.array_equal(self._picked.order, self._picked.unit):  # in another order than X
            return None
        table = self.table
        return distinct_rows([self.known.X, *table.columns, *table.slopes])

    @cached_property
    def _apart(self) -> bool:
        """Whether no value of f is in two comparisons, which would share what is left of it."""
        return rows_are_apart(self._design) and bool((self._counts == 1.0).all())


@dataclass(frozen=True, eq=False)
class FunctionsOfKind:
    """Sites that are functions of one predictor each.

    Attributes
    ----------
    known : KnownSites
    compiled : CompiledNumbers
        Their parameters.
    """

    known: KnownSites
    compiled: CompiledNumbers

    is_data = True

    @classmethod
    def of(cls, known: KnownSites, model: pm.Model, coordinates: Coordinates) -> "FunctionsOfKind":
        """Compiled for a model."""
        parameters = [pt.cast(x, "float64") for x in known.random.values()]
        return cls(known, CompiledNumbers(coordinates, model, (), parameters))

    @property
    def n_observations(self) -> int:
        """See `DataOfKind`."""
        return int(self.known.X.shape[0])

    @property
    def in_parts(self) -> bool:
        """See `DataOfKind`; a function of all values has no parts, nor have parameters of rows."""
        return self.known.divisible

    def blocks(self, chosen: IntArray) -> list[DataBlock]:
        """See `DataOfKind`."""
        known = self.known
        if not self.in_parts:
            return [DataBlock(known.X, NumbersOfFunctions(self.compiled, known.family, known.y))]
        starts = range(0, chosen.size, ROWS_IN_BLOCK)
        return [self._block(chosen[start : start + ROWS_IN_BLOCK]) for start in starts]

    def _block(self, chosen: IntArray) -> DataBlock:
        known = self.known
        numbers = NumbersOfFunctions(self.compiled, known.family_of(chosen), known.y[chosen])
        return DataBlock(known.X[chosen], numbers)


def kind_of(
    known: Any, model: pm.Model, coordinates: Coordinates, between: FloatArray
) -> DataOfKind:
    """Data that are checked, compiled for a model; `between` as for `GroupsOfKind`."""
    if isinstance(known, KnownSites):
        return FunctionsOfKind.of(known, model, coordinates)
    if not known.likelihood.has_data:
        return LimitsOfKind.of(known, model, coordinates)
    if is_grouped(known):
        return GroupsOfKind.of(known, model, coordinates, between)
    return RowsOfKind.of(known, model, coordinates)


def blocks_of(kinds: Sequence[DataOfKind]) -> list[BlockOfData]:
    """Of all data."""
    return [block for kind in kinds for block in kind.blocks(np.arange(kind.n_observations))]


def n_data(kinds: Sequence[DataOfKind]) -> int:
    """Observations of all kinds."""
    return sum(kind.n_observations for kind in kinds if kind.is_data)


def n_computed(kinds: Sequence[DataOfKind]) -> int:
    """Rows of all kinds whose features are computed."""
    return sum(
        kind.n_different if isinstance(kind, RowsOfKind) else kind.n_observations for kind in kinds
    )


def some_blocks(
    kinds: Sequence[DataOfKind], size: int, rng: np.random.Generator
) -> list[BlockOfData] | None:
    """Of so many observations, drawn at random with equal shares of each kind.

    None where there are no more than these, or where some data cannot be taken apart.
    """
    n = n_data(kinds)
    if n <= size or not all(kind.in_parts for kind in kinds if kind.is_data):
        return None
    blocks: list[BlockOfData] = []
    for kind in kinds:
        if not kind.is_data:
            blocks += blocks_of([kind])
            continue
        own = max(1, round(size * kind.n_observations / n))
        chosen = np.sort(rng.choice(kind.n_observations, own, replace=False))
        blocks += kind.blocks(chosen)
    return blocks
