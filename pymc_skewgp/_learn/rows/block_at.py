"""What the objective of many rows asks of a block of data, and of the same at a point."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pymc_skewgp._gaussian.blocks.group_block import GroupBlock
from pymc_skewgp._gaussian.blocks.row_block import RowBlock
from pymc_skewgp._learn.point import Point
from pymc_skewgp._learn.rows.functions_at import FunctionsAt, FunctionsGradient
from pymc_skewgp._learn.rows.prior_at import PriorRows, ValuesOf
from pymc_skewgp._posterior.hard_rows import HardRows
from pymc_skewgp._validation import FloatArray


class BlockGradient(NamedTuple):
    """Derivatives of EP's log evidence.

    Attributes
    ----------
    prior : PriorRows
        In the numbers of one function with the kernel as it is, at the inputs of the block.
    numbers : sequence of ndarray, or None
        In the continuous variables, through what the sites are made of; None for 0.
    functions : FunctionsGradient
        In how several functions are made of such ones.
    """

    prior: PriorRows
    numbers: Sequence[FloatArray] | None
    functions: FunctionsGradient


class BlockAt(Protocol):
    """A block of data at a point."""

    @property
    def block(self) -> RowBlock | GroupBlock:
        """Its predictors with their sites."""
        ...

    @property
    def log_constant(self) -> float:
        """Of its log evidence."""
        ...

    def hard(self) -> HardRows | None:
        """The same as rows that are drawn first, where they have next to no noise."""
        ...

    def gradient(self, mean: FloatArray, spread: FloatArray) -> BlockGradient:
        """At EP's fixed point."""
        ...


class BlockOfData(Protocol):
    """A block of data."""

    @property
    def X(self) -> FloatArray:
        """Inputs at which functions are needed, shape (k, d)."""
        ...

    @property
    def of(self) -> ValuesOf:
        """What is needed there of functions; None for themselves."""
        ...

    def at(self, point: Point, prior: PriorRows, functions: FunctionsAt) -> BlockAt | None:
        """At a point, where `prior` is of its inputs; None where double precision ends."""
        ...
