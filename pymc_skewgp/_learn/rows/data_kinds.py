"""Data of one kind, all or some of which are cut into blocks."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import sparse

from pymc_skewgp._gaussian.blocks.rows import FactorGradient, RowBlock
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._learn.coordinates import Coordinates, Point
from pymc_skewgp._learn.factor_evidence import (
    LearntFunctions,
    LearntRepeats,
    LearntRows,
    LearntSites,
    Predictors,
)
from pymc_skewgp._learn.objective import Batch
from pymc_skewgp._learn.rows.blocks import LimitsOfKind
from pymc_skewgp._learn.rows.group_kind import GroupsOfKind, is_grouped
from pymc_skewgp._learn.rows.prior_at import (
    BlockGradient,
    BlockOfData,
    CompiledNumbers,
    FunctionsAt,
    PriorRows,
    compiled_rows,
)
from pymc_skewgp._model.graph.data_rows import KnownData, RowTable
from pymc_skewgp._model.graph.data_sites import KnownSites
from pymc_skewgp._observations.likelihood import Data
from pymc_skewgp._observations.observations import MOST_DISTINCT, DistinctRows, distinct_rows
from pymc_skewgp._observations.sites import SiteFamily
from pymc_skewgp._posterior.row_groups import rows_are_apart
from pymc_skewgp._validation import FloatArray

# Blocks of data at a point: where f is needed, and the sites of predictors of it.


class NumbersOfSites(Protocol):
    """What the sites of a block are made of, as a function of a point."""

    def at(self, point: Point, predictors: Predictors) -> tuple[LearntSites, float] | None:
        """Sites, and a constant of the log evidence; None where they are impossible."""
        ...

    def pull_back(self, point: Point, wrt: Sequence[FloatArray]) -> list[FloatArray] | None:
        """Gradient from the `slopes_of_numbers`; None for 0."""
        ...


@dataclass(frozen=True, eq=False)
class DataBlock:
    """Some data of one kind, about the first function; see `BlockOfData`.

    Attributes
    ----------
    X : ndarray, shape (k, d)
        Inputs at which f is needed.
    numbers : NumbersOfSites
    design : sparse array, shape (n, k), or None
        Predictors are this times f; None where they are f itself.
    takes_rest : bool
        Whether what features leave of f is noise of the predictors of its own.
    """

    X: FloatArray
    numbers: NumbersOfSites
    design: sparse.csr_array | None = None
    takes_rest: bool = True

    of = None

    def at(self, point: Point, prior: PriorRows, functions: FunctionsAt) -> "DataAt | None":
        """See `BlockOfData`."""
        phi, mean, rest = self.predictors(functions.first(prior))
        predictors = Predictors(mean, rest, np.sqrt(np.einsum("ij,ij->i", phi, phi)))
        found = self.numbers.at(point, predictors)
        if found is None:
            return None
        sites, log_constant = found
        return DataAt(self, point, prior, functions, RowBlock(phi, sites), sites, log_constant)

    def predictors(self, prior: PriorRows) -> PriorRows:
        """The same numbers of the predictors as `prior` has of f."""
        rest = prior.rest if self.takes_rest else np.zeros_like(prior.rest)
        if self.design is None:
            return prior._replace(rest=rest)
        phi = np.asarray(self.design @ prior.phi)
        return PriorRows(phi, self.design @ prior.mean, self.design.power(2) @ rest)

    def wrt_prior(self, found: FactorGradient) -> PriorRows:
        """Derivatives in the numbers of f from those of the predictors."""
        if self.design is None:
            rest = found.noise if self.takes_rest else np.zeros_like(found.noise)
            return PriorRows(found.factor, found.offset, rest)
        back = self.design.T
        rest = np.zeros(self.X.shape[0])
        if self.takes_rest:
            rest = self.design.power(2).T @ found.noise
        return PriorRows(np.ascontiguousarray(back @ found.factor), back @ found.offset, rest)


@dataclass(frozen=True, eq=False)
class DataAt:
    """Some data at a point; see `BlockAt`.

    Attributes
    ----------
    data : DataBlock
    point : Point
    prior : PriorRows
    functions : FunctionsAt
    block : RowBlock
    sites : LearntSites
    log_constant : float
    """

    data: DataBlock
    point: Point
    prior: PriorRows
    functions: FunctionsAt
    block: RowBlock
    sites: LearntSites
    log_constant: float

    def hard(self) -> None:
        """Rows with noise are none."""

    def gradient(self, mean: FloatArray, spread: FloatArray) -> BlockGradient:
        """See `BlockAt`."""
        found = self.block.gradient(mean, spread)
        own = self.data.numbers.pull_back(self.point, self.sites.slopes_of_numbers(found))
        wrt, functions = self.functions.wrt_first(self.prior, self.data.wrt_prior(found))
        return BlockGradient(wrt, own, functions)


@dataclass(frozen=True, eq=False)
class NumbersOfRows:
    """Limits, values and noise of points and intervals.

    Attributes
    ----------
    compiled : CompiledNumbers
        Lower, upper, value, noise and the log of a constant.
    batch : tuple of ndarray
        Their data.
    counts : ndarray, shape (m,), or None
        How often each row was seen; None for once.
    unit : ndarray of int, shape (m,), or None
        The predictor of each row, whose value of f all that it counts share; None where each is of
        a predictor of its own, and what features leave of f is not shared.
    """

    compiled: CompiledNumbers
    batch: Batch
    counts: FloatArray | None = None
    unit: Any = None

    def at(self, point: Point, predictors: Predictors) -> tuple[LearntSites, float] | None:
        """See `NumbersOfSites`."""
        *columns, log_constant = self.compiled(point, self.batch)
        lower, upper, value, noise = columns
        if not (np.isfinite(log_constant) and np.isfinite(noise).all()):
            return None
        if self.counts is not None and self.unit is not None:
            repeats = LearntRepeats(tuple(columns), self.counts, self.unit, predictors)
            return repeats, float(log_constant)
        rows = LearntRows(lower, upper, value, noise, predictors, self.counts)
        return rows, float(log_constant)

    def pull_back(self, point: Point, wrt: Sequence[FloatArray]) -> list[FloatArray] | None:
        """See `NumbersOfSites`; the constant has no derivative."""
        return self.compiled.pull_back(point, self.batch, [*wrt, np.zeros(())])


@dataclass(frozen=True, eq=False)
class NumbersOfFunctions:
    """Parameters of sites that are functions.

    Attributes
    ----------
    compiled : CompiledNumbers
        The parameters; they depend on no data.
    family : SiteFamily
    y : ndarray
    """

    compiled: CompiledNumbers
    family: SiteFamily
    y: Data

    def at(self, point: Point, predictors: Predictors) -> tuple[LearntSites, float] | None:
        """See `NumbersOfSites`."""
        try:
            sites = self.family.at(self.y, self.compiled(point, ()))
        except ValueError:  # parameters that are impossible
            return None
        return LearntFunctions(sites, predictors), 0.0

    def pull_back(self, point: Point, wrt: Sequence[FloatArray]) -> list[FloatArray] | None:
        """See `NumbersOfSites`."""
        return self.compiled.pull_back(point, (), wrt)


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
