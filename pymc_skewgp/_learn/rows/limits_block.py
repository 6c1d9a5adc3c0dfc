r"""Limits of f, or of a derivative of it, at virtual points: few rows with next to no noise.

What is limited is :math:`\phi^\top c` of f or of the derivative, its e included. The noise of a row
is a stated share of its variance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm

from pymc_skewgp._gaussian.blocks.block_sites import RowSites
from pymc_skewgp._gaussian.blocks.row_block import RowBlock
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._learn.compiled import Batch
from pymc_skewgp._learn.coordinates import Coordinates
from pymc_skewgp._learn.point import Point
from pymc_skewgp._learn.rows.block_at import BlockGradient
from pymc_skewgp._learn.rows.compiled_numbers import CompiledNumbers, compiled_rows
from pymc_skewgp._learn.rows.functions_at import FunctionsAt
from pymc_skewgp._learn.rows.learnt_sites import slopes_of_limits
from pymc_skewgp._learn.rows.prior_at import PriorRows
from pymc_skewgp._model.graph.data_rows import KnownData
from pymc_skewgp._observations.observations import intervals
from pymc_skewgp._observations.values import Derivative
from pymc_skewgp._posterior.hard_rows import HardRows
from pymc_skewgp._validation import FloatArray


@dataclass(frozen=True, eq=False)
class LimitsBlock:
    """A constraint; see `BlockOfData`.

    Attributes
    ----------
    X : ndarray, shape (k, d)
        Virtual points.
    of : Derivative or None
    compiled : CompiledNumbers
        Lower, upper, value, share of the variance, and the log of a constant.
    batch : tuple of ndarray
    """

    X: FloatArray
    of: Derivative | None
    compiled: CompiledNumbers
    batch: Batch

    def at(self, point: Point, prior: PriorRows, functions: FunctionsAt) -> "LimitsAt | None":
        """See `BlockOfData`."""
        lower, upper, _, share, log_constant = self.compiled(point, self.batch)
        own = functions.first(prior)
        variance = np.einsum("ij,ij->i", own.phi, own.phi) + own.rest
        if not (np.isfinite(log_constant) and (variance > 0.0).all()):
            return None
        limits = lower - own.mean, upper - own.mean
        return LimitsAt(self, point, prior, functions, limits, share, float(log_constant))


class LimitsAt:
    """A constraint at a point; see `BlockAt`.

    Parameters
    ----------
    data : LimitsBlock
    point : Point
    prior : PriorRows
    functions : FunctionsAt
    limits : tuple of ndarray, shape (k,)
        Less the mean.
    share : ndarray, shape (k,)
        Of the variance, that is noise.
    log_constant : float
    """

    def __init__(
        self,
        data: LimitsBlock,
        point: Point,
        prior: PriorRows,
        functions: FunctionsAt,
        limits: tuple[FloatArray, FloatArray],
        share: FloatArray,
        log_constant: float,
    ) -> None:
        self._data, self._point, self._prior, self._functions = data, point, prior, functions
        self._limits, self._share, self.log_constant = limits, share, log_constant
        self._own = functions.first(prior)
        phi, rest = self._own.phi, self._own.rest
        self._variance = np.einsum("ij,ij->i", phi, phi) + rest
        nowhere = np.full(share.size, np.nan)
        self._noise = share * self._variance + rest
        self.block = RowBlock(phi, RowSites(*limits, nowhere, self._noise))

    def hard(self) -> HardRows:
        """The same as rows that are drawn first, in prior standard deviations."""
        lower, upper = self._limits
        sd = np.sqrt(self._variance)
        rows = intervals(lower / sd, upper / sd, self._noise / sd**2)
        factor = self._own.phi / sd[:, None]
        return HardRows(factor, np.zeros(sd.size), rows, self._share, 0)

    def gradient(self, mean: FloatArray, spread: FloatArray) -> BlockGradient:
        """See `BlockAt`."""
        found = self.block.gradient(mean, spread)
        sd = np.sqrt(found.cavity_sd**2 + self._noise)
        value = np.full(sd.size, np.nan)
        in_limits = slopes_of_limits(*self._limits, value, found.cavity_mean, sd)
        numbers = [*in_limits, np.zeros(sd.size), found.noise * self._variance, np.zeros(())]
        own = self._data.compiled.pull_back(self._point, self._data.batch, numbers)
        in_variance = self._share * found.noise
        in_phi = found.factor + (2.0 * in_variance)[:, None] * self._own.phi
        wrt = PriorRows(in_phi, found.offset, found.noise + in_variance)
        wrt, functions = self._functions.wrt_first(self._prior, wrt)
        return BlockGradient(wrt, own, functions)


@dataclass(frozen=True, eq=False)
class LimitsOfKind:
    """A constraint, which is no data; see `DataOfKind`.

    Attributes
    ----------
    known : KnownData
    compiled : CompiledNumbers
        Lower, upper, value, share of the variance, and constant.
    """

    known: KnownData
    compiled: CompiledNumbers

    is_data = False
    in_parts = False

    @classmethod
    def of(cls, known: KnownData, model: pm.Model, coordinates: Coordinates) -> "LimitsOfKind":
        """Compiled for a model."""
        return cls(known, compiled_rows(known, model, coordinates))

    @property
    def n_observations(self) -> int:
        """See `DataOfKind`."""
        return self.known.X.shape[0]

    def blocks(self, chosen: IntArray) -> Sequence[LimitsBlock]:
        """See `DataOfKind`: a constraint holds whole."""
        known, table = self.known, self.known.whole
        batch: Any = *table.columns, table.log_constant, *table.slopes
        return [LimitsBlock(known.X, known.likelihood.derivative, self.compiled, batch)]
