"""Data of one kind, all or some of which are cut into blocks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pytensor.sparse as ps
import pytensor.tensor as pt
from scipy import sparse

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._learn.objective import Batch
from pymc_skewgp._learn.rows.blocks import (
    Chunk,
    OfFunctions,
    OfGroups,
    OfRows,
    OfSigns,
    limits_at,
)
from pymc_skewgp._learn.rows.program import CompiledNumbers, LatentGraph
from pymc_skewgp._model.graph.data_rows import KnownData, RowTable
from pymc_skewgp._model.graph.data_sites import KnownSites
from pymc_skewgp._observations.observations import (
    MOST_DISTINCT,
    DistinctRows,
    Observations,
    distinct_rows,
)
from pymc_skewgp._posterior.features import rest_between
from pymc_skewgp._posterior.row_groups import (
    RowGroups,
    blocks_of_noise,
    intervals_given_points,
    refuse_shared_noise,
    rest_is_noise,
    row_groups,
    rows_are_apart,
)
from pymc_skewgp._validation import FloatArray

# Rows in a block: what their features take stays in the cache.
ROWS_IN_BLOCK = 2048


def signs_of(latent: LatentGraph, n_columns: int) -> Chunk | None:
    """Signs of all functions at the pseudo-points; None without any."""
    gp, s = latent.gp, latent.gp.n_pseudo_points
    if not s:
        return None
    phi, _, rest = latent.f("pseudo-points")
    variance = pt.sqr(phi).sum(axis=1) + rest
    columns = [pt.broadcast_to(pt.cast(x, "float64"), (s,)) for x in (gp.phase, gp.truncation)]
    compiled = latent.compiled([], [*columns, phi / pt.sqrt(variance)[:, None], rest / variance])
    return Chunk(compiled, np.zeros((s, n_columns)), OfSigns(len(latent.known)))


class DataOfKind:
    """Data of one kind.

    Attributes
    ----------
    known : KnownData or KnownSites
    is_data : bool
        Whether they are data, and no constraint, which goes with any of the data.
    in_parts : bool
        Whether some of them are data too.
    """

    known: Any
    is_data: bool = True
    in_parts: bool = True

    @property
    def n_observations(self) -> int:
        """Rows of X; or comparisons, where these are rows about several of them."""
        return int(self.known.X.shape[0])

    @property
    def n_computed(self) -> int:
        """Observations whose features are computed."""
        return self.n_observations

    def blocks(self, chosen: IntArray) -> list[Chunk]:
        """Of some observations, in increasing order."""
        raise NotImplementedError


class LimitsOfKind(DataOfKind):
    """A constraint, which holds whole."""

    is_data = False
    in_parts = False

    def __init__(self, known: KnownData, latent: LatentGraph) -> None:
        self.known = known
        symbols, rows = _row_graphs(known, latent)
        phi, mean, rest = latent.first(known.likelihood.derivative)
        variance = pt.sqr(phi).sum(axis=1) + rest
        nugget = rows.S * variance
        numbers = [phi, mean, nugget + rest, rows.lower, rows.upper, variance, nugget]
        self.compiled = latent.compiled(symbols, [rows.log_constant, *numbers])

    def blocks(self, chosen: IntArray) -> list[Chunk]:
        """See `DataOfKind`."""
        known, table = self.known, self.known.whole
        batch = *table.columns, table.log_constant, *table.slopes
        return [Chunk(self.compiled, known.X, limits_at, batch)]


class _Picked(NamedTuple):
    """Rows in the order of the value of f that each is of: `unit[i]` of row `order[i]`."""

    order: IntArray
    unit: IntArray


@dataclass(frozen=True, eq=False)
class RowsOfKind(DataOfKind):
    """Points and intervals with noise of their own.

    Attributes
    ----------
    known : KnownData
    compiled : CompiledNumbers
    """

    known: KnownData
    compiled: CompiledNumbers

    @classmethod
    def of(cls, known: KnownData, latent: LatentGraph) -> "RowsOfKind":
        """Compiled for a model."""
        own = cls(known, latent.common)  # which is not asked for numbers
        symbols, rows = _row_graphs(known, latent)
        phi, mean, rest = latent.first()
        if own._picked is None:
            design, squares = (ps.csr_matrix(dtype="float64") for _ in range(2))
            symbols += [design, squares]
            phi, mean = ps.structured_dot(design, phi), _times(design, mean)
            # What is left of items that comparisons share is not noise of the rows.
            rest = _times(squares, rest) if own._apart else 0.0 * mean
        numbers = [phi, mean, rest, rows.lower, rows.upper, rows.value, rows.S]
        return cls(known, latent.compiled(symbols, [rows.log_constant, *numbers]))

    @property
    def n_observations(self) -> int:
        """See `DataOfKind`."""
        return self._n_rows if self._picked is None else self.known.X.shape[0]

    @property
    def n_computed(self) -> int:
        """See `DataOfKind`: of equal rows one."""
        return self.n_observations if self._distinct is None else self._distinct.first.size

    @property
    def _n_rows(self) -> int:
        return int(self.known.whole.columns[0].size)

    def blocks(self, chosen: IntArray) -> list[Chunk]:
        """See `DataOfKind`."""
        kept, counts = chosen, None
        known = self._distinct
        if known is not None:
            kinds, often = np.unique(known.kind[chosen], return_counts=True)
            if kinds.size <= MOST_DISTINCT * chosen.size:
                kept, counts = known.first[kinds], often.astype(np.float64)
        found = []
        for start in range(0, kept.size, ROWS_IN_BLOCK):
            part = slice(start, start + ROWS_IN_BLOCK)
            if counts is not None:
                made, batch = OfRows(counts[part]), self._batch(kept[part], start == 0)
                found.append(Chunk(self.compiled, self.known.X[kept[part]], made, batch))
            elif self._picked is None:
                found.append(self._of_items(kept[part], start == 0))
            else:
                found.append(self._of_values(self._picked, kept[part], start == 0))
        return found

    def _of_values(self, picked: _Picked, chosen: IntArray, with_constant: bool) -> Chunk:
        """Of some rows of X, each of which data are about by itself."""
        order, unit = picked
        low, high = np.searchsorted(unit, chosen), np.searchsorted(unit, chosen, side="right")
        sizes = high - low
        own = np.repeat(np.arange(chosen.size), sizes)
        rows = order[np.arange(own.size) - np.repeat(np.cumsum(sizes) - sizes - low, sizes)]
        made = OfRows() if self._once else OfRows(self._counts[rows], own)
        return Chunk(self.compiled, self.known.X[chosen], made, self._batch(rows, with_constant))

    def _of_items(self, chosen: IntArray, with_constant: bool) -> Chunk:
        """Of some rows about several values each."""
        design = self._design[chosen]
        items, place = np.unique(design.indices, return_inverse=True)
        shape = chosen.size, items.size
        own = sparse.csr_matrix((design.data, place, design.indptr), shape)
        made = OfRows()
        if (self._counts != 1.0).any():
            made = OfRows(self._counts[chosen], np.arange(chosen.size))
        batch: Any = (*self._batch(chosen, with_constant), own, own.power(2))
        return Chunk(self.compiled, self.known.X[items], made, batch)

    def _batch(self, rows: IntArray, with_constant: bool) -> Batch:
        table = self.known.whole
        constant = table.log_constant if with_constant else np.zeros(())
        return *(x[rows] for x in table.columns), constant, *(x[rows] for x in table.slopes)

    @cached_property
    def _design(self) -> sparse.csr_array:
        design = self.known.whole.design
        if design is None:
            return sparse.eye_array(self._n_rows, format="csr")
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
        counts = self.known.whole.counts
        return np.ones(self._n_rows) if counts is None else counts

    @cached_property
    def _once(self) -> bool:
        """Whether each row of X has one row of the table, which was seen once."""
        assert self._picked is not None
        whole = np.array_equal(self._picked.unit, np.arange(self.known.X.shape[0]))
        return bool(whole and (self._counts == 1.0).all())

    @cached_property
    def _distinct(self) -> DistinctRows | None:
        """Kinds of equal rows, where these are few and each is one value of f."""
        picked = self._picked
        if picked is None or not self._once or not np.array_equal(picked.order, picked.unit):
            return None
        table = self.known.whole
        return distinct_rows([self.known.X, *table.columns, *table.slopes])

    @property
    def _apart(self) -> bool:
        """Whether no value of f is in two comparisons, which would share what is left of it."""
        return rows_are_apart(self._design) and bool((self._counts == 1.0).all())


def _times(design: Any, x: Any) -> Any:
    return ps.structured_dot(design, x[:, None])[:, 0]


@dataclass(frozen=True, eq=False)
class FunctionsOfKind(DataOfKind):
    """Sites that are functions of one predictor each.

    Attributes
    ----------
    known : KnownSites
    compiled : CompiledNumbers
    """

    known: KnownSites
    compiled: CompiledNumbers

    @classmethod
    def of(cls, known: KnownSites, latent: LatentGraph) -> "FunctionsOfKind":
        """Compiled for a model."""
        numbers = [pt.zeros(()), *latent.first(), *known.random.values()]
        return cls(known, latent.compiled([], numbers))

    @property
    def in_parts(self) -> bool:  # type: ignore[override]
        """See `DataOfKind`; a function of all values has no parts, nor have parameters of rows."""
        return self.known.divisible

    def blocks(self, chosen: IntArray) -> list[Chunk]:
        """See `DataOfKind`."""
        known = self.known
        if not self.in_parts:
            return [Chunk(self.compiled, known.X, OfFunctions(known.family, known.y))]
        parts = [chosen[i : i + ROWS_IN_BLOCK] for i in range(0, chosen.size, ROWS_IN_BLOCK)]
        return [
            Chunk(self.compiled, known.X[x], OfFunctions(known.family_of(x), known.y[x]))
            for x in parts
        ]


def why_not_in_groups(known: KnownData) -> str | None:
    """What keeps data from being met in groups; None where nothing."""
    try:
        refuse_shared_noise(_observations(known.whole))
    except ApproximationError as error:
        return f"{type(known.likelihood).__name__} {error}"
    return None


def is_grouped(known: KnownData) -> bool:
    """Whether observations are of several predictors each: functions, or rows that share noise."""
    return known.n_functions > 1 or known.shares_noise


class _Groups(NamedTuple):
    """Groups of one size, and how the numbers of their blocks are made."""

    rows: RowGroups
    of_one_input: bool
    apart: bool
    compiled: CompiledNumbers


class GroupsOfKind(DataOfKind):
    """Rows that share noise, or are about several functions: observations are groups of them."""

    def __init__(self, known: KnownData, latent: LatentGraph) -> None:
        self.known, self._k = known, known.n_functions
        table = known.whole
        rows, noise = _observations(table), table.columns[3]
        patterns = list(row_groups(rows))
        groups = patterns
        if noise.ndim == 2:  # of rows whose noise may be correlated at some point
            shared = [sparse.csr_array(abs(x)) for x in table.slopes if self._is_noise(x)]
            pattern = sum(shared, sparse.csr_array(abs(noise)))
            patterns, whole = list(row_groups(replace(rows, S=pattern))), sparse.csr_array(noise)
            groups = [replace(x, noise=blocks_of_noise(whole, x.rows)) for x in patterns]
        between = latent.known
        self._takes_rest = rest_is_noise(groups, between, self._k)
        self._groups = []
        for own, some in zip(groups, patterns, strict=True):
            inputs = own.values // self._k
            one = bool((inputs == inputs[:, :1]).all())
            if self._takes_rest:
                some = some.with_rest(rest_between(between, some.values, self._k))
            apart = some.points_first().is_apart
            compiled = self._compiled(latent, one, apart)
            self._groups.append(_Groups(own, one, apart, compiled))

    @property
    def n_observations(self) -> int:
        """See `DataOfKind`."""
        return sum(groups.rows.shape[0] for groups in self._groups)

    def blocks(self, chosen: IntArray) -> list[Chunk]:
        """See `DataOfKind`: groups are counted by size."""
        found: list[Chunk] = []
        first = 0
        for groups in self._groups:
            n, m = groups.rows.shape
            own = chosen[(chosen >= first) & (chosen < first + n)] - first
            first += n
            # Groups about one input have the features of that alone.
            size = ROWS_IN_BLOCK if groups.of_one_input else max(1, ROWS_IN_BLOCK // m)
            for start in range(0, own.size, size):
                part = groups._replace(rows=groups.rows.part(own[start : start + size]))
                found.append(self._block(part, with_constant=not found))
        return found

    def _block(self, groups: _Groups, with_constant: bool) -> Chunk:
        table, rows, X = self.known.whole, groups.rows, self.known.X
        constant = table.log_constant if with_constant else np.zeros(())
        slopes = [
            blocks_of_noise(sparse.csr_array(x), rows.rows) if self._is_noise(x) else x[rows.rows]
            for x in table.slopes
        ]
        inputs, function = rows.values // self._k, rows.values % self._k
        same = (inputs[:, :, None] == inputs[:, None, :]).astype(np.float64)
        place = []
        if groups.of_one_input:
            X = X[inputs[:, 0]]
        else:
            inputs, which = np.unique(inputs, return_inverse=True)
            X, n = X[inputs], which.size
            parts = np.ones(n), which.ravel(), np.arange(n + 1)
            place = [sparse.csr_matrix(parts, shape=(n, inputs.size))]
        columns = *(x[rows.rows] for x in table.columns[:3]), rows.noise
        batch: Any = *columns, constant, *slopes, rows.design, function, same, *place
        return Chunk(groups.compiled, X, OfGroups(groups.apart), batch)

    def _compiled(self, latent: LatentGraph, of_one_input: bool, apart: bool) -> CompiledNumbers:
        """Of groups of m rows of p values each, at one input or at several."""
        table, known = self.known.whole, self.known
        noise = [3 if self._is_noise(x) else x.ndim + 1 for x in table.slopes]
        symbols = [_symbol(ndim) for ndim in (2, 2, 2, 3, 0, *noise)]
        counts = [_symbol(1)] if known.repeats else []
        rows = known.rows_of([latent.X, *symbols[:5], *counts, *symbols[5:]], known.random)
        design, same, function = _symbol(3), _symbol(3), pt.matrix(dtype="int64")
        inputs = [*symbols, design, function, same]
        phi, mean, rest = latent.f()
        half = latent.half[function]  # (n, p, L)
        n, p = function.shape
        if of_one_input:
            means, rests = mean[:, None] + pt.zeros_like(half[:, :, 0]), rest[:, None, None]
        else:
            place = ps.csr_matrix(dtype="float64")
            inputs.append(place)
            means = _times(place, mean).reshape((n, p))
            rests = _times(place, rest).reshape((n, p, 1))
        S = rows.S
        if self._takes_rest:
            between = latent.between[function[:, :, None], function[:, None, :]]
            S = S + _sandwich(design, same * between * rests)
        offset = pt.zeros_like(rows.value)
        if (~np.isnan(table.columns[2])).any():
            design, offset, S = intervals_given_points(pt, rows.value, design, offset, S)
        offset = offset + pt.matmul(design, means[:, :, None])[:, :, 0]
        factor = [pt.matmul(design, half)]
        if of_one_input and not apart:
            factor = [phi, *factor]
        elif of_one_input:
            wide = factor[0][:, :, :, None] * phi[:, None, None, :]
            factor = [wide.reshape((n, design.shape[1], -1))]
        else:
            values = ps.structured_dot(place, phi).reshape((n, p, 1, -1))
            wide = (half[:, :, :, None] * values).reshape((n, p, -1))
            factor = [pt.matmul(design, wide)]
        numbers = [*factor, offset, S, rows.lower, rows.upper, rows.value]
        return latent.compiled(inputs, [rows.log_constant, *numbers])

    def _is_noise(self, slope: Any) -> bool:
        """Whether a slope is one of the covariance of the noise, not of limits."""
        m = self.known.whole.columns[0].size
        return slope.shape == (m, m)


def _sandwich(a: Any, b: Any) -> Any:
    """A B A' of each group."""
    return pt.matmul(pt.matmul(a, b), a.transpose((0, 2, 1)))


def _row_graphs(known: KnownData, latent: LatentGraph) -> tuple[list[Any], Any]:
    """Symbols of the table of rows with noise of their own, and graphs of the rows."""
    table = known.whole
    data = [*table.columns, table.log_constant, *table.slopes]
    symbols = [pt.tensor(dtype=x.dtype, shape=(None,) * x.ndim) for x in data]
    counts = [pt.vector("counts", dtype="float64")] if known.repeats else []
    k = len(table.columns) + 1
    return symbols, known.rows_of([latent.X, *symbols[:k], *counts, *symbols[k:]], known.random)


def _observations(table: RowTable) -> Observations:
    """Rows as they are at 0 of random limits."""
    lower, upper, value, noise = table.columns
    return Observations(table.design, np.zeros(value.size), noise, lower, upper, value)


def _symbol(ndim: int) -> Any:
    return pt.tensor(dtype="float64", shape=(None,) * ndim)


def kind_of(known: Any, latent: LatentGraph) -> DataOfKind:
    """Data that are checked, compiled for a model."""
    if isinstance(known, KnownSites):
        return FunctionsOfKind.of(known, latent)
    if not known.likelihood.has_data:
        return LimitsOfKind(known, latent)
    if is_grouped(known):
        return GroupsOfKind(known, latent)
    return RowsOfKind.of(known, latent)


def blocks_of(kinds: Sequence[DataOfKind]) -> list[Chunk]:
    """Of all data."""
    return [block for kind in kinds for block in kind.blocks(np.arange(kind.n_observations))]


def n_data(kinds: Sequence[DataOfKind]) -> int:
    """Observations of all kinds."""
    return sum(kind.n_observations for kind in kinds if kind.is_data)


def some_blocks(
    kinds: Sequence[DataOfKind], size: int, rng: np.random.Generator
) -> list[Chunk] | None:
    """Of so many observations, drawn at random with equal shares of each kind.

    None where there are no more than these, or where some data cannot be taken apart.
    """
    n = n_data(kinds)
    if n <= size or not all(kind.in_parts for kind in kinds if kind.is_data):
        return None
    blocks: list[Chunk] = []
    for kind in kinds:
        if not kind.is_data:
            blocks += blocks_of([kind])
            continue
        own = max(1, round(size * kind.n_observations / n))
        chosen = np.sort(rng.choice(kind.n_observations, own, replace=False))
        blocks += kind.blocks(chosen)
    return blocks
