"""Data of one kind, all or some of which are cut into blocks."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pytensor.sparse as ps
import pytensor.tensor as pt

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._learn.rows.program import Chunk, CompiledNumbers, LatentGraph
from pymc_skewgp._model.graph.data import KnownData, KnownSites
from pymc_skewgp._posterior import data_blocks as row_blocks
from pymc_skewgp._posterior.blocks_at import functions_at, groups_at, limits_at, rows_at, signs_at


def signs_of(latent: LatentGraph, n_columns: int) -> Chunk | None:
    """Signs of all functions at the pseudo-points; None without any."""
    gp, s = latent.gp, latent.gp.n_pseudo_points
    if not s:
        return None
    phi, _, rest = latent.f("pseudo-points")
    variance = pt.sqr(phi).sum(axis=1) + rest
    columns = [pt.broadcast_to(pt.cast(x, "float64"), (s,)) for x in (gp.phase, gp.truncation)]
    compiled = latent.compiled([], [*columns, phi / pt.sqrt(variance)[:, None], rest / variance])
    return Chunk(compiled, np.zeros((s, n_columns)), partial(signs_at, len(latent.known)))


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
        own = cls(known, latent.common).rows  # which is not asked for numbers
        symbols, rows = _row_graphs(known, latent)
        phi, mean, rest = latent.first()
        if own.picked is None:
            design, squares = (ps.csr_matrix(dtype="float64") for _ in range(2))
            symbols += [design, squares]
            phi, mean = ps.structured_dot(design, phi), _times(design, mean)
            # What is left of items that comparisons share is not noise of the rows.
            rest = _times(squares, rest) if own.apart else 0.0 * mean
        numbers = [phi, mean, rest, rows.lower, rows.upper, rows.value, rows.S]
        return cls(known, latent.compiled(symbols, [rows.log_constant, *numbers]))

    @cached_property
    def rows(self) -> row_blocks.PlainRows:
        """What is cut."""
        return row_blocks.PlainRows(self.known.X, self.known.whole)

    @property
    def n_observations(self) -> int:
        """See `DataOfKind`."""
        return self.rows.n_observations

    @property
    def n_computed(self) -> int:
        """See `DataOfKind`: of equal rows one."""
        return self.rows.n_computed

    def blocks(self, chosen: IntArray) -> list[Chunk]:
        """See `DataOfKind`."""
        table, found = self.known.whole, list[Chunk]()
        for own in self.rows.cuts(chosen):
            constant = np.zeros(()) if found else table.log_constant
            columns, slopes = ([x[own.rows] for x in y] for y in (table.columns, table.slopes))
            designs = [] if own.design is None else [own.design, own.design.power(2)]
            made = partial(rows_at, own.counts, own.unit)
            batch = *columns, constant, *slopes, *designs
            found.append(Chunk(self.compiled, self.known.X[own.inputs], made, batch))
        return found


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
        known, size = self.known, row_blocks.ROWS_IN_BLOCK
        if not self.in_parts:
            return [Chunk(self.compiled, known.X, partial(functions_at, known.family, known.y))]
        parts = [chosen[i : i + size] for i in range(0, chosen.size, size)]
        return [
            Chunk(self.compiled, known.X[x], partial(functions_at, known.family_of(x), known.y[x]))
            for x in parts
        ]


class GroupsOfKind(DataOfKind):
    """Rows that share noise, or are about several functions: observations are groups of them."""

    def __init__(self, known: KnownData, latent: LatentGraph) -> None:
        self.known = known
        self._rows = row_blocks.GroupedRows(known.whole, known.n_functions, latent.known)
        self._compiled = {id(kind): self._numbers(latent, kind) for kind in self._rows.kinds}

    @property
    def n_observations(self) -> int:
        """See `DataOfKind`."""
        return self._rows.n_observations

    def blocks(self, chosen: IntArray) -> list[Chunk]:
        """See `DataOfKind`: groups are counted by size."""
        table, found = self.known.whole, list[Chunk]()
        for inputs, groups, kind, design in self._rows.cuts(chosen):
            constant = np.zeros(()) if found else table.log_constant
            columns = *(x[groups.rows] for x in table.columns[:3]), groups.noise
            batch: Any = *columns, constant, *self._rows.slopes(groups.rows), *design
            made = partial(groups_at, kind.is_apart)
            found.append(Chunk(self._compiled[id(kind)], self.known.X[inputs], made, batch))
        return found

    def _numbers(self, latent: LatentGraph, kind: row_blocks.GroupKind) -> CompiledNumbers:
        """Of groups of m rows of p values each, at one input or at several."""
        table, known = self.known.whole, self.known
        noise = [3 if self._rows.is_noise(x) else x.ndim + 1 for x in table.slopes]
        symbols = [_symbol(ndim) for ndim in (2, 2, 2, 3, 0, *noise)]
        counts = [_symbol(1)] if known.repeats else []
        rows = known.rows_of([latent.X, *symbols[:5], *counts, *symbols[5:]], known.random)
        design = [_symbol(3), pt.matrix(dtype="int64"), _symbol(3)]
        if not kind.of_one_input:
            design.append(ps.csr_matrix(dtype="float64"))
        f = *latent.f(), latent.half, latent.between
        numbers = kind.numbers(pt, ps.structured_dot, f, rows.S, rows.value, *design)
        limits = rows.lower, rows.upper, rows.value
        return latent.compiled([*symbols, *design], [rows.log_constant, *numbers, *limits])


def is_grouped(known: KnownData) -> bool:
    """Whether observations are of several predictors each: functions, or rows that share noise."""
    return known.n_functions > 1 or known.shares_noise


def _row_graphs(known: KnownData, latent: LatentGraph) -> tuple[list[Any], Any]:
    """Symbols of the table of rows with noise of their own, and graphs of the rows."""
    table = known.whole
    data = [*table.columns, table.log_constant, *table.slopes]
    symbols = [pt.tensor(dtype=x.dtype, shape=(None,) * x.ndim) for x in data]
    counts = [pt.vector("counts", dtype="float64")] if known.repeats else []
    k = len(table.columns) + 1
    return symbols, known.rows_of([latent.X, *symbols[:k], *counts, *symbols[k:]], known.random)


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
