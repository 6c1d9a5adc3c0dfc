"""Blocks of groups of rows, which share noise or are about several functions, at a point."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import sparse

from pymc_skewgp._gaussian.blocks.block_sites import RowSites
from pymc_skewgp._gaussian.blocks.group_block import GroupBlock
from pymc_skewgp._gaussian.blocks.group_predictors import DenseRows, FunctionRows
from pymc_skewgp._gaussian.blocks.group_sites import GroupLogProbs, GroupSites
from pymc_skewgp._gaussian.blocks.row_block import RowBlock
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._learn.compiled import Batch
from pymc_skewgp._learn.point import Point
from pymc_skewgp._learn.rows.block_at import BlockGradient
from pymc_skewgp._learn.rows.compiled_numbers import CompiledNumbers
from pymc_skewgp._learn.rows.functions_at import FunctionsAt
from pymc_skewgp._learn.rows.group_changes import GroupChange, before_points
from pymc_skewgp._learn.rows.learnt_sites import slopes_of_limits
from pymc_skewgp._learn.rows.prior_at import PriorRows
from pymc_skewgp._posterior.approximations.several_functions import rest_between
from pymc_skewgp._posterior.group_log_probs import log_probs_of
from pymc_skewgp._posterior.row_groups import RowGroups
from pymc_skewgp._validation import FloatArray


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
