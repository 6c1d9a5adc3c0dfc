"""How data are cut into blocks of rows, for the posterior and for learning alike.

A block needs functions of finite rank at some inputs. Its rows are points and intervals with noise
of their own, each about one value of f, or about several as those of comparisons; or groups of rows
that share noise or are about several functions.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import matmul
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._gaussian.blocks.beside import RowsBeside
from pymc_skewgp._gaussian.blocks.functions import FunctionSites
from pymc_skewgp._gaussian.blocks.groups import GroupBlock
from pymc_skewgp._gaussian.blocks.rows import RowBlock
from pymc_skewgp._gaussian.blocks.several import SeveralBlock
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations import observations as row
from pymc_skewgp._observations.likelihood import Likelihood
from pymc_skewgp._observations.sites import SiteLikelihood, Sites
from pymc_skewgp._posterior import blocks_at
from pymc_skewgp._posterior import row_groups as grouping
from pymc_skewgp._posterior.features import FunctionFeatures, rest_between
from pymc_skewgp._posterior.prior import DataSet, Prior, in_prior_units
from pymc_skewgp._validation import FloatArray

# Rows in a block: what their features take stays in the cache.
ROWS_IN_BLOCK = 2048
# Share of the prior variance that features may leave of functions that one factor has several of.
_MOST_REST = 1e-6
Arrays = tuple[NDArray[Any], ...]


class RowTable(NamedTuple):
    """Rows of data as numbers.

    Attributes
    ----------
    columns : tuple of ndarray
        Lower, upper, value, shape (m,) each, and S, sparse where it is one of many blocks. Limits
        are those at 0 of random parameters.
    log_constant : ndarray, shape ()
    counts : ndarray, shape (m,), or None
        How many rows each interval stands for, each with noise of its own. None for one each.
    design : ndarray or sparse array, shape (m, p), or None
        A; None for the identity.
    slopes : tuple of ndarray, shape (m, k)
        Of the limits, or of S, in each random parameter but sigma.
    """

    columns: Arrays
    log_constant: FloatArray
    counts: FloatArray | None
    design: Any
    slopes: Arrays = ()

    @classmethod
    def of(cls, rows: row.Observations, *, merged: bool = False) -> "RowTable":
        """Of rows without random parameters; if `merged` equal trials of one value count."""
        columns = [rows.lower - rows.a, rows.upper - rows.a, rows.value - rows.a, rows.S]
        counts, design = None, None
        if rows.A is not None:
            design = sparse.csr_array(row.as_matrix(rows.A, rows.n_rows))
            once = bool((np.diff(design.indptr) == 1).all())
            if merged and once and not grouping.rows_are_apart(design):
                kinds = row.equal_rows(rows)
                columns = [x[kinds.first] for x in columns]
                counts, design = kinds.counts, design[kinds.first]
        return cls(tuple(columns), np.asarray(rows.log_constant), counts, design)

    @property
    def arrays(self) -> Sequence[Any]:
        """All that is not None, one after the other."""
        known = [x for x in (self.counts, self.design) if x is not None]
        return *self.columns, self.log_constant, *known, *self.slopes

    @property
    def observations(self) -> row.Observations:
        """Rows as they are at 0 of random limits."""
        lower, upper, value, noise = self.columns
        return row.Observations(self.design, np.zeros(value.size), noise, lower, upper, value)


class Cut(NamedTuple):
    """Some rows with noise of their own, of which a block is made.

    Attributes
    ----------
    inputs : ndarray of int, shape (k,)
        Rows of X at which functions are needed.
    rows : ndarray of int, shape (m,)
        Which these are.
    counts : ndarray, shape (m,), or None
        How often each was seen; None for once.
    unit : ndarray of int, shape (m,), or None
        The predictor of each row, whose value of f all that it counts share; None where each is of
        a predictor of its own.
    design : sparse matrix, shape (m, k), or None
        Rows of the values at the inputs; None where predictors are these values.
    """

    inputs: IntArray
    rows: IntArray
    counts: FloatArray | None = None
    unit: IntArray | None = None
    design: Any = None


@dataclass(frozen=True, eq=False)
class PlainRows:
    """Points and intervals with noise of their own.

    Attributes
    ----------
    X : ndarray, shape (n, d)
    table : RowTable
    """

    X: FloatArray
    table: RowTable

    @property
    def n_observations(self) -> int:
        """Rows of X; or comparisons, where these are rows about several of them."""
        return self._n_rows if self.picked is None else self.X.shape[0]

    @property
    def n_computed(self) -> int:
        """Observations whose features are computed: of equal rows one."""
        return self.n_observations if self.distinct is None else self.distinct.first.size

    @property
    def apart(self) -> bool:
        """Whether no value of f is in two comparisons, which would share what is left of it."""
        return grouping.rows_are_apart(self._design) and bool((self._counts == 1.0).all())

    def cuts(self, chosen: IntArray, size: int | None = None) -> Iterator[Cut]:
        """Of some observations, in increasing order, so many rows each."""
        size = size or ROWS_IN_BLOCK
        kept, counts = chosen, None
        if self.distinct is not None:
            kinds, often = np.unique(self.distinct.kind[chosen], return_counts=True)
            if kinds.size <= row.MOST_DISTINCT * chosen.size:
                kept, counts = self.distinct.first[kinds], often.astype(np.float64)
        for start in range(0, kept.size, size):
            some = slice(start, start + size)
            if counts is not None:
                yield Cut(kept[some], kept[some], counts[some])
            else:
                yield self._of_single(kept[some])

    def _of_single(self, chosen: IntArray) -> Cut:
        """Of some rows of X, each of which data are about by itself, or about several together."""
        if self.picked is None:
            design = self._design[chosen]
            items, place = np.unique(design.indices.astype(np.intp), return_inverse=True)
            own = sparse.csr_matrix((design.data, place, design.indptr), (chosen.size, items.size))
            if (self._counts == 1.0).all():
                return Cut(items, chosen, design=own)
            return Cut(items, chosen, self._counts[chosen], np.arange(chosen.size), own)
        order, unit = self.picked
        low, high = np.searchsorted(unit, chosen), np.searchsorted(unit, chosen, side="right")
        sizes = high - low
        of = np.repeat(np.arange(chosen.size), sizes)
        rows = order[np.arange(of.size) - np.repeat(np.cumsum(sizes) - sizes - low, sizes)]
        if (sizes <= 1).all() and (self._counts[rows] == 1.0).all():
            return Cut(chosen[of], rows)
        return Cut(chosen, rows, self._counts[rows], of)

    @property
    def _n_rows(self) -> int:
        return int(self.table.columns[0].size)

    @cached_property
    def _design(self) -> sparse.csr_array:
        design = self.table.design
        if design is None:
            return sparse.eye_array(self._n_rows, format="csr")
        return sparse.csr_array(design)

    @cached_property
    def picked(self) -> tuple[IntArray, IntArray] | None:
        """Rows in the order of the one value of f that each is of, and these; else None."""
        design = self._design
        if (np.diff(design.indptr) != 1).any() or (design.data != 1.0).any():
            return None
        order = np.argsort(design.indices, kind="stable")
        return order, design.indices[order].astype(np.intp)

    @cached_property
    def _counts(self) -> FloatArray:
        counts = self.table.counts
        return np.ones(self._n_rows) if counts is None else counts

    @cached_property
    def distinct(self) -> row.DistinctRows | None:
        """Kinds of equal rows, where these are few, each seen once and of its own row of X."""
        every = np.arange(self.X.shape[0])
        if self.picked is None or not all(np.array_equal(x, every) for x in self.picked):
            return None
        if not (self._counts == 1.0).all():
            return None
        return row.distinct_rows([self.X, *self.table.columns, *self.table.slopes])


class GroupCut(NamedTuple):
    """Some groups of rows, of which a block is made.

    Attributes
    ----------
    inputs : ndarray of int, shape (k,)
        Rows of X at which functions are needed.
    groups : RowGroups
    kind : GroupKind
    design : tuple of ndarray
        Of the rows, shape (n, m, p): how they mix p values of f each; which function each value is
        of, and which values are at one input, shape (n, p) and (n, p, p). Where groups are about
        several inputs also the input of each value, as a sparse matrix of shape (n p, k).
    """

    inputs: IntArray
    groups: grouping.RowGroups
    kind: "GroupKind"
    design: tuple[Any, ...]


class GroupKind(NamedTuple):
    """Groups of one size.

    Attributes
    ----------
    groups : RowGroups
    of_one_input : bool
        Whether all are about one input each.
    is_apart : bool
        Whether the noise of each interval is its own.
    takes_rest : bool
        Whether what features leave of f is noise of the rows.
    has_points : bool
    """

    groups: grouping.RowGroups
    of_one_input: bool
    is_apart: bool
    takes_rest: bool
    has_points: bool

    def numbers(
        self, xp: Any, dot: Callable[[Any, Any], Any], f: Any, noise: Any, value: Any, *design: Any
    ) -> list[Any]:
        """What the sites of groups are made of: factor, offset and covariance of the noise.

        For arrays and for graphs alike.

        Parameters
        ----------
        xp : module
            NumPy or ``pytensor.tensor``.
        dot : callable
            Product of a sparse matrix with a matrix.
        f : tuple
            Of one function at the inputs phi, mean, and variance that phi leaves; R and B of all.
        noise, value
            Of the rows, shape (n, m, m) and (n, m).
        *design
            See `GroupCut`.
        """
        phi, mean, rest, half, between = f
        A, function, same, *place = design
        mixing = half[function]  # (n, p, L)
        n, p = function.shape
        if self.of_one_input:
            means, rests = mean[:, None] + xp.zeros_like(mixing[:, :, 0]), rest[:, None, None]
        else:
            means = dot(place[0], mean[:, None]).reshape((n, p))
            rests = dot(place[0], rest[:, None]).reshape((n, p, 1))
        if self.takes_rest:
            shared = same * between[function[:, :, None], function[:, None, :]] * rests
            noise = noise + xp.matmul(xp.matmul(A, shared), A.swapaxes(1, 2))
        offset = xp.zeros_like(value)
        if self.has_points:
            A, offset, noise = grouping.intervals_given_points(xp, value, A, offset, noise)
        offset = offset + xp.matmul(A, means[:, :, None])[:, :, 0]
        if not self.of_one_input:
            values = dot(place[0], phi).reshape((n, p, 1, -1))
            wide = (mixing[:, :, :, None] * values).reshape((n, p, -1))
            return [xp.matmul(A, wide), offset, noise]
        mixing = xp.matmul(A, mixing)
        if not self.is_apart:
            return [phi, mixing, offset, noise]
        wide = mixing[:, :, :, None] * phi[:, None, None, :]
        return [wide.reshape((n, A.shape[1], -1)), offset, noise]


class GroupedRows:
    """Rows that share noise, or are about several functions: observations are groups of them.

    Parameters
    ----------
    table : RowTable
    n_functions : int
        K, values of f at each input.
    between : ndarray, shape (K, K)
        Covariance of the functions, or one with the same zeros.
    """

    def __init__(self, table: RowTable, n_functions: int, between: FloatArray) -> None:
        self.table, self._k = table, n_functions
        rows, noise = table.observations, table.columns[3]
        patterns = groups = list(grouping.row_groups(rows))
        if noise.ndim == 2 and table.slopes:  # the noise may be correlated at some point
            shared = [sparse.csr_array(abs(x)) for x in table.slopes if self.is_noise(x)]
            pattern = sum(shared, sparse.csr_array(abs(noise)))
            patterns = list(grouping.row_groups(replace(rows, S=pattern)))
            whole = sparse.csr_array(noise)
            groups = [replace(x, noise=row.blocks_of_noise(whole, x.rows)) for x in patterns]
        rest, points = grouping.rest_is_noise(groups, between, n_functions), rows.is_point.any()
        self.kinds = []
        for own, some in zip(groups, patterns, strict=True):
            inputs = own.values // n_functions
            if rest:
                some = some.with_rest(rest_between(between, some.values, n_functions))
            one, apart = bool((inputs == inputs[:, :1]).all()), some.points_first().is_apart
            self.kinds.append(GroupKind(own, one, apart, rest, bool(points)))

    @property
    def n_observations(self) -> int:
        """Groups."""
        return sum(kind.groups.shape[0] for kind in self.kinds)

    def cuts(self, chosen: IntArray) -> Iterator[GroupCut]:
        """Of some groups, in increasing order: they are counted by size."""
        first = 0
        for kind in self.kinds:
            n, m = kind.groups.shape
            own = chosen[(chosen >= first) & (chosen < first + n)] - first
            first += n
            # Groups about one input have the features of that alone.
            size = ROWS_IN_BLOCK if kind.of_one_input else max(1, ROWS_IN_BLOCK // m)
            for start in range(0, own.size, size):
                yield self._cut(kind, kind.groups.part(own[start : start + size]))

    def _cut(self, kind: GroupKind, groups: grouping.RowGroups) -> GroupCut:
        inputs, function = groups.values // self._k, groups.values % self._k
        same = (inputs[:, :, None] == inputs[:, None, :]).astype(np.float64)
        design = groups.design, function, same
        if kind.of_one_input:
            return GroupCut(inputs[:, 0], groups, kind, design)
        inputs, which = np.unique(inputs, return_inverse=True)
        n = which.size
        parts = np.ones(n), which.ravel(), np.arange(n + 1)
        place = sparse.csr_matrix(parts, shape=(n, inputs.size))
        return GroupCut(inputs, groups, kind, (*design, place))

    def slopes(self, rows: IntArray) -> Sequence[FloatArray]:
        """Those of the table, of groups of rows."""
        return [
            row.blocks_of_noise(sparse.csr_array(x), rows) if self.is_noise(x) else x[rows]
            for x in self.table.slopes
        ]

    def is_noise(self, slope: Any) -> bool:
        """Whether a slope is one of the covariance of the noise, not of limits."""
        m = self.table.columns[0].size
        return bool(slope.shape == (m, m))


# Data under a prior of finite rank as blocks of sites of predictors linear in a few coordinates.
#
# With :math:`f(x) = m(x) + \phi(x)^\top c + e(x)` a row v = A f + a + noise of one value of f is a
# site of :math:`\eta = A \phi^\top c`, with the variance of A e beside that of its own noise. So is
# a likelihood p(y | f), whose site is the mean of it over e, and a duel, A f being a difference, as
# long as no item is in two of them: else duels would share e, and f is taken without it.

NOISE_OF_ITEMS = (
    "the kernel has noise, as by WhiteNoise, and items are in several comparisons, which share it: "
    "an approximated prior does not take that. Take the kernel as it is (approximation=None), or "
    "leave the noise of the kernel out."
)
MOST_LIMITS = 1000  # of constraints, whose rows are drawn one after the other
_FEW = 64  # rows, of which all are alike


class DataBlock(NamedTuple):
    """Some of the data.

    Attributes
    ----------
    block : RowBlock or GroupBlock
    log_constant : float
        Of their log probability.
    X : ndarray, shape (p, d), or None
        Inputs of the values of f that they are about; None where these are of several functions.
    design : sparse matrix, shape (n, p), or None
        What predictors are of several values each.
    """

    block: RowBlock | GroupBlock
    log_constant: float
    X: FloatArray | None = None
    design: sparse.csr_matrix | None = None


def refuse_other_data(sets: tuple[DataSet, ...], prior: Prior) -> None:
    """Raise for data that are no sites of a few predictors each.

    Raises
    ------
    ApproximationError
    """
    between = prior.coregion
    dependent = between is not None and np.count_nonzero(between) > len(between)
    if prior.n_pseudo_points and dependent:
        raise ApproximationError(
            "many rows under an approximated prior do not take pseudo-points of functions that "
            "depend on each other: leave out the pseudo-points, or give a diagonal coregion."
        )
    if not any(data.likelihood.has_data for data in sets):
        raise ApproximationError(
            "constraints alone have no rows that many rows under an approximated prior are met in: "
            "take the kernel as it is (approximation=None)."
        )
    for data in sets:
        known = data.likelihood
        try:
            if not known.has_data and data.X.shape[0] > MOST_LIMITS:
                raise ApproximationError(f"has more than {MOST_LIMITS} virtual points")
            if is_grouped(data):
                grouping.refuse_shared_noise(_few(data).rows())
        except ApproximationError as error:
            raise ApproximationError(
                f"{known!r} {error}, which many rows under an approximated prior do not take yet: "
                "take at most 5000 rows of them, which need no blocks, or another likelihood."
            ) from None


def is_grouped(data: DataSet) -> bool:
    """Whether observations are of several predictors each: functions, or rows that share noise."""
    if isinstance(data.likelihood, SiteLikelihood) or not data.likelihood.has_data:
        return False
    return data.values.n_functions > 1 or bool(_few(data).rows().S.ndim == 2)


def _few(data: DataSet) -> DataSet:
    """Some of the data, where they can be cut; of comparisons all."""
    if data.likelihood.y_dim != "obs_id":
        return data
    n = data.X.shape[0]
    return data.part(np.unique(np.linspace(0, n - 1, min(n, _FEW)).astype(np.intp)))


def cuts_into_rows(likelihood: Likelihood) -> bool:
    """Whether rows of X with their observations are data of the same kind."""
    whole = isinstance(likelihood, SiteLikelihood) and not likelihood.divisible
    return likelihood.y_dim == "obs_id" and not whole


def plain_rows(data: DataSet) -> PlainRows | None:
    """Points and intervals with noise of their own; None where data are others."""
    if isinstance(data.likelihood, SiteLikelihood) or is_grouped(data):
        return None
    return PlainRows(data.X, RowTable.of(data.rows(), merged=True))


def n_repeated(data: DataSet) -> int:
    """Rows that are as others are, so that their features are not computed."""
    rows = plain_rows(data)
    return 0 if rows is None else rows.n_observations - rows.n_computed


def data_blocks(
    data: DataSet, features: FunctionFeatures, prior: Prior, size: int | None = None
) -> Iterator[DataBlock]:
    """Of all the data, so many rows each."""
    size = size or ROWS_IN_BLOCK
    rows = plain_rows(data)
    if rows is not None:
        yield from _of_rows(rows, data.X, features, prior, size)
    elif isinstance(data.likelihood, SiteLikelihood):
        n = data.X.shape[0]
        size = size if data.likelihood.divisible else n
        for start in range(0, n, size):
            index = np.arange(start, min(start + size, n))
            yield _of_functions(data.part(index) if size < n else data, features, prior)
    else:
        yield from _of_groups(data, features, prior)


def _of_rows(
    rows: PlainRows, X: FloatArray, features: FunctionFeatures, prior: Prior, size: int
) -> Iterator[DataBlock]:
    constant = float(rows.table.log_constant)
    for cut in rows.cuts(np.arange(rows.n_observations), size):
        at, design = X[cut.inputs], cut.design
        columns = [x[cut.rows] for x in rows.table.columns]
        (phi, rest), mean = features.at(at), prior.mean("X", at)
        if design is not None:
            phi, mean = design @ phi, design @ mean
            exact = getattr(features.single, "prior", None)  # a spectrum has no noise
            if not rows.apart and exact and exact.noise("X", at, exact.pairs("X", at, at)).any():
                raise ApproximationError(NOISE_OF_ITEMS)
            rest = design.power(2) @ rest if rows.apart else np.zeros(mean.size)
        if cut.unit is None and not (columns[3] + rest > 0.0).all():
            i = cut.rows[int(np.argmin(columns[3] + rest))]
            raise ApproximationError(
                f"row {i} of the data has no noise, which an approximated prior of many rows does "
                "not take: give the likelihood a sigma, or the kernel a WhiteNoise."
            )
        found = blocks_at.rows_at(cut.counts, cut.unit, np.zeros(()), phi, mean, rest, *columns)
        assert found is not None  # all numbers are checked
        if isinstance(found.block.sites, FunctionSites):
            _ = found.block.sites.averaged  # refuses what features leave too much of
        yield DataBlock(found.block, constant, at, design)
        constant = 0.0


def _of_functions(part: DataSet, features: FunctionFeatures, prior: Prior) -> DataBlock:
    known, n = part.likelihood, part.X.shape[0]
    assert isinstance(known, SiteLikelihood)
    own = known.sites(part.y, n)
    mean = np.repeat(prior.mean("X", part.X), own.width) + own.a
    if own.width > 1:
        return DataBlock(_of_several(own, part.X, features, mean), 0.0, part.X)
    phi, rest = features.at(part.X)
    sites = blocks_at.LearntFunctions(own.known, mean, rest, blocks_at.deviations(phi))
    _ = sites.averaged  # refuses what features leave too much of
    return DataBlock(RowBlock(phi, sites), 0.0, part.X)


def _of_several(
    own: Sites, X: FloatArray, features: FunctionFeatures, mean: FloatArray
) -> SeveralBlock:
    phi, rest = features.single.at(X)
    share = rest / (rest + np.einsum("ij,ij->i", phi, phi))
    if share.max() > _MOST_REST:
        raise ApproximationError(
            f"up to {share.max():.2g} of the variance of f at a row is its own, as by WhiteNoise "
            "in the kernel or of few features, which a likelihood of several functions refuses: "
            "write white noise as a variable of a model; under an approximation give more "
            "features, as sg.approximations.Inducing(m) has m of them."
        )
    wide = features.values(phi, own.width).reshape(mean.size, -1)
    return SeveralBlock(wide, blocks_at.LearntSeveral(own.known, mean))


def _of_groups(data: DataSet, features: FunctionFeatures, prior: Prior) -> Iterator[DataBlock]:
    table, between = RowTable.of(data.rows()), features.between
    rows = GroupedRows(table, data.values.n_functions, between)
    constant = float(table.log_constant)
    for inputs, groups, kind, design in rows.cuts(np.arange(rows.n_observations)):
        X, columns = data.X[inputs], (groups.lower, groups.upper, groups.value)
        phi, rest = features.single.at(X)
        f = phi, prior.mean("X", X), rest, features.half, between
        numbers = kind.numbers(np, matmul, f, groups.noise, groups.value, *design)
        if not (np.einsum("ijj->ij", numbers[-1]) > 0.0).all():
            raise ApproximationError(
                f"{data.likelihood!r} has rows without noise, which an approximated prior of many "
                "rows does not take: give it noise."
            )
        found = blocks_at.groups_at(kind.is_apart, np.zeros(()), *numbers, *columns)
        assert found is not None
        yield DataBlock(found.block, constant)
        constant = 0.0


def hard_rows(
    prior: Prior, features: FunctionFeatures, sets: tuple[DataSet, ...], n_functions: int
) -> RowsBeside | None:
    """Signs of all functions at the pseudo-points, and constraints; None without any.

    Raises
    ------
    ApproximationError
        For derivatives of features that have none.
    """
    parts = []
    if prior.n_pseudo_points:  # of f less its mean, in standard deviations
        phi, rest = features.single.at(prior.pseudo_points)
        variance = np.einsum("ij,ij->i", phi, phi) + rest
        own = phi / np.sqrt(variance)[:, None], rest / variance
        parts.append(blocks_at.SignsAt(n_functions, prior.phase, prior.truncation, *own).hard)
    for data in sets:
        if data.likelihood.has_data:
            continue
        derivative = data.likelihood.derivative
        if derivative is None:
            phi, rest = features.at(data.X)
        else:
            phi, rest = features.derivative_at(data.X, derivative), np.zeros(data.X.shape[0])
        rows, mean = in_prior_units(data.rows(), prior, data), prior.mean("X", data.X, derivative)
        variance = np.einsum("ij,ij->i", phi, phi) + rest
        numbers = phi, mean, rest, rows.lower, rows.upper, variance, rows.S
        limits = blocks_at.limits_at(np.zeros(()), *numbers)
        assert limits is not None  # all numbers are checked
        parts.append(limits.hard)
    return RowsBeside.joined(parts)
