"""Data whose rows share noise, or are about several functions, cut into blocks of groups."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import sparse

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._gaussian.blocks.groups import (
    DenseRows,
    FunctionRows,
    GroupBlock,
    GroupLogProbs,
    GroupSites,
)
from pymc_skewgp._gaussian.blocks.rows import RowBlock, RowSites
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._learn.coordinates import Coordinates, Point
from pymc_skewgp._learn.factor_evidence import slopes_of_limits
from pymc_skewgp._learn.objective import Batch
from pymc_skewgp._learn.rows.prior_at import BlockGradient, CompiledNumbers, FunctionsAt, PriorRows
from pymc_skewgp._model.graph.data_rows import KnownData, RowTable
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._posterior.features import FunctionRest, rest_between
from pymc_skewgp._posterior.row_groups import (
    RowGroups,
    blocks_of_noise,
    log_probs_of,
    refuse_shared_noise,
    rest_is_noise,
    row_groups,
)
from pymc_skewgp._validation import FloatArray

# Derivatives carried back through what is done to groups of rows before EP meets them.


class GroupChange(NamedTuple):
    """Derivatives in numbers of groups.

    Attributes
    ----------
    design : ndarray, shape (n, m, p)
    offset : ndarray, shape (n, m)
    noise : ndarray, shape (n, m, m)
    """

    design: FloatArray
    offset: FloatArray
    noise: FloatArray


def before_points(groups: RowGroups, wrt: GroupChange) -> GroupChange:
    """From derivatives in `groups.points_first()` those in `groups`.

    With the gain g of intervals on points it has the rows I - g of design and offset, the offset
    g y besides, and (I - g) S (I - g)' as noise, but for what is left of it between the two.
    """
    point = ~np.isnan(groups.value)
    if not point.any():
        return wrt
    variance = np.einsum("ijj->ij", groups.noise)
    on_points = point[:, None, :] & ~point[:, :, None]
    gain = np.where(on_points, groups.noise / variance[:, None, :], 0.0)
    left = np.eye(groups.shape[1]) - gain
    in_noise = np.where(point[:, :, None] != point[:, None, :], 0.0, wrt.noise)
    known = np.where(point, groups.value, 0.0) - groups.offset
    in_left = wrt.design @ groups.design.swapaxes(1, 2) - wrt.offset[:, :, None] * known[:, None]
    in_left += 2.0 * in_noise @ left @ groups.noise
    in_gain = np.where(on_points, -in_left, 0.0)
    back = left.swapaxes(1, 2)
    through = in_gain / variance[:, None, :]
    noise = back @ in_noise @ left + 0.5 * (through + through.swapaxes(1, 2))
    np.einsum("ijj->ij", noise)[:] -= (through * gain).sum(axis=1)
    return GroupChange(back @ wrt.design, (back @ wrt.offset[:, :, None])[:, :, 0], noise)


# Blocks of groups of rows, which share noise or are about several functions, at a point.


@dataclass(frozen=True, eq=False)
class GroupedBlock:
    """Some groups of one size; see `BlockOfData`.

    Attributes
    ----------
    X : ndarray, shape (k, d)
    compiled : CompiledNumbers
        Lower, upper, value, noise and the log of a constant.
    batch : tuple of ndarray
        Their data.
    groups : RowGroups
        What they are about; limits and noise are those of the point.
    place : ndarray of int, shape (n, p)
        Row of X of each value.
    n_functions : int
        Of the likelihood.
    takes_rest : bool
        Whether what features leave of f is noise of the rows.
    """

    X: FloatArray
    compiled: CompiledNumbers
    batch: Batch
    groups: RowGroups
    place: IntArray
    n_functions: int
    takes_rest: bool

    of = None

    def at(self, point: Point, prior: PriorRows, functions: FunctionsAt) -> "GroupsAt | None":
        """See `BlockOfData`."""
        *numbers, log_constant = self.compiled(point, self.batch)
        lower, upper, value, noise = numbers
        if not (np.isfinite(log_constant) and np.isfinite(noise).all()):
            return None
        groups = replace(self.groups, lower=lower, upper=upper, value=value, noise=noise)
        if self.takes_rest:
            shared = self.rest_between(functions) * prior.rest[self.place][:, :, None]
            groups = groups.with_rest(shared)
        given = groups.points_first()
        if not (np.einsum("ijj->ij", given.noise) > 0.0).all():
            return None
        return GroupsAt(self, point, prior, functions, groups, given, float(log_constant))

    def rest_between(self, functions: FunctionsAt) -> FloatArray:
        """Covariances of what features leave of the values, where its variance is 1."""
        return rest_between(functions.between, self.groups.values, self.n_functions)

    @cached_property
    def of_one_input(self) -> bool:
        """Whether each group is about one row of X."""
        return bool((self.place == self.place[:, :1]).all())

    @cached_property
    def incidence(self) -> sparse.csr_array:
        """Sums of what is of each value, shape (k, n p)."""
        n = self.place.size
        shape = (self.X.shape[0], n)
        return sparse.csr_array((np.ones(n), (self.place.ravel(), np.arange(n))), shape=shape)


class _InValues(NamedTuple):
    """Derivatives in features, in the design and in the rows of R of the values rows are about.

    `phi` has the shape (n, p, r), or (n, 1, r) where a group is about one input.
    """

    phi: FloatArray
    design: FloatArray
    half: FloatArray


class GroupsAt:
    """Groups of rows at a point; see `BlockAt`.

    Parameters
    ----------
    data : GroupedBlock
    point : Point
    prior : PriorRows
    functions : FunctionsAt
    groups : RowGroups
        With their noise, that of what features leave of f included.
    given : RowGroups
        The same, intervals given the points.
    log_constant : float
    """

    def __init__(
        self,
        data: GroupedBlock,
        point: Point,
        prior: PriorRows,
        functions: FunctionsAt,
        groups: RowGroups,
        given: RowGroups,
        log_constant: float,
    ) -> None:
        self._data, self._point, self._prior, self._functions = data, point, prior, functions
        self._groups, self._given, self.log_constant = groups, given, log_constant
        self._half = functions.half[given.values % data.n_functions]  # (n, p, L)
        mean = prior.mean[data.place]
        offset = given.offset + (given.design @ mean[:, :, None])[:, :, 0]
        self._lower, self._upper = given.lower - offset, given.upper - offset
        self.block: RowBlock | GroupBlock
        if given.is_apart:
            variance = np.einsum("ijj->ij", given.noise)
            columns = self._lower, self._upper, given.value - offset, variance
            rows = self._predictors.rows()
            self.block = RowBlock(rows, RowSites(*(np.ravel(x) for x in columns)))
        else:
            probs = _MadeLater(lambda: log_probs_of(self._lower, self._upper, given.noise))
            sites = GroupSites(self._lower, self._upper, given.noise, probs)
            self.block = GroupBlock(self._predictors, sites)

    @cached_property
    def _predictors(self) -> DenseRows | FunctionRows:
        data, given, phi = self._data, self._given, self._prior.phi
        if data.of_one_input:
            return FunctionRows(phi[data.place[:, 0]], given.design @ self._half)
        n, m = given.shape
        of_values = self._half[:, :, :, None] * phi[data.place][:, :, None]  # (n, p, L, r)
        rows = given.design @ of_values.reshape(n, data.place.shape[1], -1)
        return DenseRows(rows.reshape(n * m, -1), m)

    def hard(self) -> None:
        """Rows with noise are none."""

    def gradient(self, mean: FloatArray, spread: FloatArray) -> BlockGradient:
        """See `BlockAt`."""
        data, given, shape = self._data, self._given, self._given.shape
        if isinstance(self.block, RowBlock):
            of_rows = self.block.gradient(mean, spread)
            offset, noise = of_rows.offset.reshape(shape), np.zeros((*shape, shape[1]))
            np.einsum("ijj->ij", noise)[:] = of_rows.noise.reshape(shape)
            cavity = of_rows.cavity_mean.reshape(shape), of_rows.cavity_sd.reshape(shape)
            variance = np.einsum("ijj->ij", given.noise)
            found = self._of_rows(of_rows.factor.reshape(*shape, -1))
        else:
            of_groups = self.block.gradient(mean, spread)
            offset, noise = of_groups.offset, of_groups.noise
            cavity, variance = (of_groups.cavity_mean, of_groups.cavity_sd), np.zeros(shape)
            found = self._of_groups(offset, of_groups.precision, mean, spread)
        in_limits = slopes_of_limits(
            self._lower, self._upper, given.value, cavity[0], np.sqrt(cavity[1] ** 2 + variance)
        )
        of_mean = self._prior.mean[data.place]
        in_design = found.design + offset[:, :, None] * of_mean[:, None]
        in_mean = (given.design.swapaxes(1, 2) @ offset[:, :, None])[:, :, 0]
        change = before_points(self._groups, GroupChange(in_design, offset, noise))
        numbers = [*in_limits, np.zeros(shape), change.noise, np.zeros(())]
        own = data.compiled.pull_back(self._point, data.batch, numbers)
        in_rest, in_between = self._wrt_rest(change.noise)
        wrt = PriorRows(
            self._at_inputs(found.phi), self._at_inputs(in_mean[:, :, None])[:, 0], in_rest
        )
        functions = self._functions.gradient(self._function, in_between, found.half)
        return BlockGradient(wrt, own, functions)

    def _of_rows(self, wrt: FloatArray) -> _InValues:
        """From derivatives in rows as they are, shape (n, m, R)."""
        phi, design, half = self._prior.phi[self._data.place], self._given.design, self._half
        n, p, n_latent = half.shape
        in_values = design.swapaxes(1, 2) @ wrt
        in_values = in_values.reshape(n, p, n_latent, -1)
        in_half = np.einsum("iplr,ipr->ipl", in_values, phi)
        wrt = wrt.reshape(n, -1, n_latent, phi.shape[2])
        in_design = np.einsum("imlr,ipr,ipl->imp", wrt, phi, half, optimize=True)
        return _InValues(np.einsum("iplr,ipl->ipr", in_values, half), in_design, in_half)

    def _of_groups(
        self, weight: FloatArray, precision: FloatArray, mean: FloatArray, spread: FloatArray
    ) -> _InValues:
        predictors, half = self._predictors, self._half
        if isinstance(predictors, DenseRows):
            return self._of_rows(predictors.gradient(weight, precision, mean, spread))
        found = predictors.gradient(weight, precision, mean, spread)
        design = self._given.design
        in_half = design.swapaxes(1, 2) @ found.mixing
        return _InValues(found.phi[:, None], found.mixing @ half.swapaxes(1, 2), in_half)

    def _wrt_rest(self, in_noise: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Derivatives in the variances of what features leave of f at the inputs.

        And in the covariances between functions of each group's values, (n, p, p).
        """
        data = self._data
        if not data.takes_rest:
            n, p = data.place.shape
            return np.zeros(data.X.shape[0]), np.zeros((n, p, p))
        design = self._groups.design
        in_rest = design.swapaxes(1, 2) @ in_noise @ design
        between = data.rest_between(self._functions)
        rest = self._prior.rest[data.place][:, :, None]
        inputs = data.groups.values // data.n_functions
        same = inputs[:, :, None] == inputs[:, None, :]
        wrt = self._at_inputs((in_rest * between).sum(axis=2)[:, :, None])[:, 0]
        return wrt, np.where(same, in_rest * rest, 0.0)

    def _at_inputs(self, of_values: FloatArray) -> FloatArray:
        """Sums over the values at each input, shape (k, r), of (n, p, r) or (n, 1, r)."""
        n, p, r = of_values.shape
        sums = self._data.incidence
        if p < self._data.place.shape[1]:  # one for all values of a group
            sums = sums[:, :: self._data.place.shape[1]]
        return np.ascontiguousarray(sums @ of_values.reshape(n * p, r))

    @property
    def _function(self) -> IntArray:
        """Of each value, (n, p)."""
        return self._data.groups.values % self._data.n_functions


class _MadeLater:
    """Log probabilities of groups that are made when weights are asked for."""

    def __init__(self, make: Callable[[], GroupLogProbs | None]) -> None:
        self._make = make

    @cached_property
    def _found(self) -> GroupLogProbs:
        found = self._make()
        assert found is not None  # else these data were refused
        return found

    def __call__(self, groups: slice, eta: FloatArray) -> FloatArray:
        """See `GroupLogProbs`."""
        return self._found(groups, eta)


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
