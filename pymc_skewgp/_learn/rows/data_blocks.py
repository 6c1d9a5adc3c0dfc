"""Blocks of data at a point: where f is needed, and the sites of predictors of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from pymc_skewgp._gaussian.blocks.row_block import FactorGradient, RowBlock
from pymc_skewgp._learn.compiled import Batch
from pymc_skewgp._learn.point import Point
from pymc_skewgp._learn.rows.block_at import BlockGradient
from pymc_skewgp._learn.rows.compiled_numbers import CompiledNumbers
from pymc_skewgp._learn.rows.functions_at import FunctionsAt
from pymc_skewgp._learn.rows.learnt_sites import (
    LearntFunctions,
    LearntRepeats,
    LearntRows,
    LearntSites,
    Predictors,
)
from pymc_skewgp._learn.rows.prior_at import PriorRows
from pymc_skewgp._observations.learnt_sites import SiteFamily
from pymc_skewgp._observations.likelihood import Data
from pymc_skewgp._validation import FloatArray


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
