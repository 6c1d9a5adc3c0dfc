"""Data whose rows share noise, or are about several functions, cut into blocks of groups."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import sparse

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._learn.coordinates import Coordinates
from pymc_skewgp._learn.rows.compiled_numbers import CompiledNumbers
from pymc_skewgp._learn.rows.grouped_block import GroupedBlock
from pymc_skewgp._model.graph.data_rows import KnownData, RowTable
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._posterior.approximations.several_functions import FunctionRest
from pymc_skewgp._posterior.group_log_probs import refuse_shared_noise, rest_is_noise
from pymc_skewgp._posterior.row_groups import RowGroups, blocks_of_noise, row_groups
from pymc_skewgp._validation import FloatArray

# Rows in a block: what their features take stays in the cache.
ROWS_IN_BLOCK = 2048


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


@dataclass(frozen=True, eq=False)
class GroupsOfKind:
    """See `DataOfKind`: observations are groups.

    Attributes
    ----------
    known : KnownData
    compiled : CompiledNumbers
        Lower, upper, value, noise and the log of a constant, of groups.
    between : ndarray, shape (K, K)
        Covariance of the functions, or a matrix of its form where it is learnt.
    """

    known: KnownData
    compiled: CompiledNumbers
    between: FloatArray

    is_data = True
    in_parts = True

    @classmethod
    def of(
        cls, known: KnownData, model: pm.Model, coordinates: Coordinates, between: FloatArray
    ) -> "GroupsOfKind":
        """Compiled for a model."""
        table = known.whole
        symbols = [_symbol(2), _symbol(2), _symbol(2), _symbol(3), pt.scalar(dtype="float64")]
        counts = [_symbol(1)] if known.repeats else []
        slopes = [_symbol(3) for _ in table.slopes]
        X = pt.matrix("X", shape=(None, known.X.shape[1]), dtype="float64")
        rows = known.rows_of([X, *symbols, *counts, *slopes], known.random)
        graphs = [rows.lower, rows.upper, rows.value, rows.S, rows.log_constant]
        inputs = [*symbols, *slopes]
        return cls(known, CompiledNumbers(coordinates, model, inputs, graphs), between)

    @property
    def n_observations(self) -> int:
        """See `DataOfKind`."""
        return sum(groups.shape[0] for groups in self._groups)

    def blocks(self, chosen: IntArray) -> list[GroupedBlock]:
        """See `DataOfKind`: groups are counted by size."""
        found: list[GroupedBlock] = []
        first = 0
        for groups in self._groups:
            n, m = groups.shape
            own = chosen[(chosen >= first) & (chosen < first + n)] - first
            first += n
            inputs = groups.values // self.known.n_functions
            # Groups about one input have the features of that alone.
            of_one = bool((inputs == inputs[:, :1]).all())
            size = ROWS_IN_BLOCK if of_one else max(1, ROWS_IN_BLOCK // m)
            for start in range(0, own.size, size):
                part = groups.part(own[start : start + size])
                found.append(self._block(part, with_constant=not found))
        return found

    def _block(self, groups: RowGroups, with_constant: bool) -> GroupedBlock:
        table, k = self.known.whole, self.known.n_functions
        inputs, place = np.unique(groups.values // k, return_inverse=True)
        columns = (x[groups.rows] for x in table.columns[:3])
        constant = table.log_constant if with_constant else np.zeros(())
        slopes = [
            blocks_of_noise(sparse.csr_array(x), groups.rows)
            if self._is_noise(x)
            else x[groups.rows]
            for x in table.slopes
        ]
        return GroupedBlock(
            self.known.X[inputs],
            self.compiled,
            (*columns, groups.noise, constant, *slopes),
            groups,
            place.reshape(groups.values.shape),
            k,
            self._takes_rest,
        )

    def _is_noise(self, slope: Any) -> bool:
        """Whether a slope is one of the covariance of the noise, not of limits."""
        m = self.known.whole.columns[0].size
        return slope.shape == (m, m)

    @cached_property
    def _groups(self) -> list[RowGroups]:
        """All groups: of rows whose noise may be correlated at some point."""
        table = self.known.whole
        rows, noise = _observations(table), table.columns[3]
        if noise.ndim == 1:
            return list(row_groups(rows))
        shared = [abs(x) for x in table.slopes if self._is_noise(x)]
        pattern = sum((sparse.csr_array(x) for x in shared), sparse.csr_array(abs(noise)))
        whole = sparse.csr_array(noise)
        return [
            replace(groups, noise=blocks_of_noise(whole, groups.rows))
            for groups in row_groups(replace(rows, S=pattern))
        ]

    @cached_property
    def _takes_rest(self) -> bool:
        rest = FunctionRest(self.between)
        return rest_is_noise(self._groups, rest, self.known.n_functions)


def _observations(table: RowTable) -> Observations:
    """Rows as they are at 0 of random limits."""
    lower, upper, value, noise = table.columns
    return Observations(table.design, np.zeros(value.size), noise, lower, upper, value)


def _symbol(ndim: int) -> Any:
    return pt.tensor(dtype="float64", shape=(None,) * ndim)
