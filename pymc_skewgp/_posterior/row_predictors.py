r"""Data as sites of predictors that are linear in a few coordinates, some rows at a time.

With :math:`f(x) = m(x) + \phi(x)^\top c + e(x)` a row v = A f + a + noise of one value of f is a
site of :math:`\eta = A \phi^\top c`, with the variance of A e beside that of its own noise. So is
a likelihood p(y | f), whose site is the mean of it over e, and a duel, A f being a difference, as
long as no item is in two of them: else duels would share e, and f is taken without it. Data whose
observations are several predictors each are in `grouped_rows`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._gaussian.blocks.groups import GroupBlock
from pymc_skewgp._gaussian.blocks.rows import FunctionSites, RowBlock, RowSites
from pymc_skewgp._gaussian.coordinates import RowFactors
from pymc_skewgp._gaussian.tilted import SiteFunction, SlopeFunction
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.likelihood import Likelihood
from pymc_skewgp._observations.observations import (
    DistinctRows,
    Observations,
    as_matrix,
    distinct_rows,
)
from pymc_skewgp._observations.sites import SiteLikelihood
from pymc_skewgp._posterior.features import FunctionFeatures
from pymc_skewgp._posterior.prior import DataSet, Features, Prior
from pymc_skewgp._posterior.row_groups import grouped_blocks, refuse_shared_noise, rows_are_apart
from pymc_skewgp._validation import FloatArray, as_real_array

# Sites averaged over Gaussian noise of their predictors.

# Nodes of Gauss-Hermite rules, tried in this order: noise that is small beside the scale on which
# a site changes needs few.
_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
# From one rule to the next. Errors of a million rows may add up.
_CHANGE = 1e-8
_NUMBERS_AT_ONCE = 2**17  # nodes of predictors: what is done to them stays in the cache
_LOST = 15.0  # nats below its largest value, where a site is not looked at
_PLACES = np.linspace(-3.0, 3.0, 13)  # prior deviations, where rules are compared


class NoiseRule:
    """A Gauss-Hermite rule for the noise of n predictors.

    Parameters
    ----------
    variance : ndarray, shape (n,)
    n_nodes : int
    """

    def __init__(self, variance: FloatArray, n_nodes: int) -> None:
        nodes, self._log_mass = _hermite(n_nodes)
        self._steps = np.sqrt(variance) * nodes[:, None]

    @classmethod
    def of(
        cls, log_prob: SiteFunction, variance: FloatArray, mean: FloatArray, sd: FloatArray
    ) -> "NoiseRule | None":
        """The first that is exact enough for predictors N(mean, sd^2); None where it is no noise.

        Raises
        ------
        ApproximationError
            Where none is.
        """
        if not variance.any():
            return None
        eta = mean + _PLACES[:, None] * sd
        rule = cls(variance, _SIZES[0])
        before = rule.log_mean(log_prob, eta)
        for size in _SIZES[1:]:
            finer = cls(variance, size)
            found = finer.log_mean(log_prob, eta)
            seen = found > found.max(axis=0) - _LOST
            if (np.abs(found[seen] - before[seen]) < _CHANGE).all():
                return rule if rule.size > 1 else None
            rule, before = finer, found
        i = int(np.argmax(variance))
        raise ApproximationError(
            f"the features leave a variance of {variance[i]:.3g} of f at row {i}, which is wide "
            "beside what a row of the data says of f: take more features."
        )

    @property
    def size(self) -> int:
        """Number of nodes."""
        return self._log_mass.size

    def part(self, rows: slice) -> "NoiseRule":
        """Of some of the predictors."""
        other = object.__new__(NoiseRule)
        other._log_mass, other._steps = self._log_mass, self._steps[:, rows]
        return other

    def averaged(
        self, log_prob: SiteFunction, slopes: SlopeFunction
    ) -> tuple[SiteFunction, SlopeFunction]:
        r"""Log of the mean of p(eta + e), e being the noise, and its two derivatives.

        With the shares of the nodes as weights, the first derivative is the mean of that of log p,
        the second the mean of the second plus the variance of the first.
        """

        def mean_slopes(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
            nodes, logs = self._logs(log_prob, eta)
            shares = np.exp(logs - logs.max(axis=-2, keepdims=True))
            shares /= shares.sum(axis=-2, keepdims=True)
            first, second = slopes(nodes)
            mean = (shares * first).sum(axis=-2)
            bend = (shares * (second + first**2)).sum(axis=-2) - mean**2
            return mean, bend

        return lambda eta: self.log_mean(log_prob, eta), mean_slopes

    def log_mean(self, log_prob: SiteFunction, eta: FloatArray) -> FloatArray:
        """Log of the mean of p(eta + e)."""
        size = max(1, _NUMBERS_AT_ONCE // (self.size * eta.shape[-1]))
        if eta.ndim == 2 and eta.shape[0] > size:
            parts = [eta[i : i + size] for i in range(0, eta.shape[0], size)]
            return np.concatenate([self.log_mean(log_prob, part) for part in parts])
        _, logs = self._logs(log_prob, eta)
        largest = logs.max(axis=-2)
        base = np.where(np.isfinite(largest), largest, 0.0)
        with np.errstate(divide="ignore"):
            return np.asarray(base + np.log(np.exp(logs - base[..., None, :]).sum(axis=-2)))

    def _logs(self, log_prob: SiteFunction, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        nodes = eta[..., None, :] + self._steps
        with np.errstate(over="ignore"):
            logs = log_prob(nodes)
        return nodes, logs + self._log_mass[:, None]


@lru_cache
def _hermite(n_nodes: int) -> tuple[FloatArray, FloatArray]:
    """Nodes and the logs of their shares."""
    nodes, mass = np.polynomial.hermite_e.hermegauss(n_nodes)
    kept = mass > 0.0
    return nodes[kept], np.log(mass[kept] / mass[kept].sum())


# Several rows of one value of f, such as trials, as one site of it.


def _row_factors(rows: Observations, design: sparse.csr_array, size: int) -> RowFactors:
    """Equal rows of one value as one row that counts so often, in the order of the values."""
    value = np.where(rows.is_point, rows.value, 0.0)
    limits = (np.where(rows.is_point, 0.0, x) for x in (rows.lower, rows.upper))
    columns = (design.indices, design.data, rows.a, rows.S, *limits, value, rows.is_point)
    table, counts = np.unique(np.column_stack(columns), axis=0, return_counts=True)
    offset, point = table[:, 2], table[:, 7] > 0
    lower, upper = (np.where(point, np.nan, table[:, i] - offset) for i in (4, 5))
    known = RowSites(lower, upper, np.where(point, table[:, 6] - offset, np.nan), table[:, 3])
    unit = table[:, 0].astype(np.intp)
    return RowFactors(unit, known, counts.astype(float), table[:, 1], size)


def repeated_sites(
    observations: Observations,
    design: sparse.csr_array,
    phi: FloatArray,
    mean: FloatArray,
    rest: FloatArray,
) -> FunctionSites:
    """The product of all rows of each value of f, averaged over what features leave of it."""
    factors = _row_factors(observations, design, mean.size)
    return _averaged(factors, factors.part, rest, mean, np.sqrt(np.einsum("ij,ij->i", phi, phi)))


def _averaged(
    every: Any,
    some: Callable[[slice], Any],
    rest: FloatArray,
    offset: FloatArray,
    sd: FloatArray,
    divisible: bool = True,
) -> FunctionSites:
    """Functions of all or some predictors, averaged over what features leave of f.

    Predictors have the mean `offset` and the deviation `sd` in the prior.
    """
    rule = NoiseRule.of(every.log_prob, rest, offset, sd)

    def functions(rows: slice) -> tuple[SiteFunction, SlopeFunction]:
        own = some(rows)
        if rule is None:
            return own.log_prob, own.slopes
        return rule.part(rows).averaged(own.log_prob, own.slopes)

    return FunctionSites(functions, offset, divisible)


ROWS_AT_ONCE = 8192
MOST_LIMITS = 1000  # of constraints, whose rows are drawn one after the other
_FEW = 64  # rows, of which all are alike
_OTHERS = "take at most 5000 rows of them, which need no blocks, or another likelihood"


@dataclass(frozen=True)
class PredictorRows:
    """Some predictors and their sites.

    Attributes
    ----------
    block : RowBlock or GroupBlock
    log_constant : float
        Of their log probability.
    X : ndarray, shape (p, d), or None
        Inputs of the values of f that they are about; None where these are of several functions.
    scale : ndarray, shape (n,), or float
        What each predictor is times its own value, of which there are n.
    design : sparse array, shape (n, p), or None
        What predictors are of several values each.
    """

    block: RowBlock | GroupBlock
    log_constant: float
    X: FloatArray | None = None
    scale: FloatArray | float = 1.0
    design: sparse.csr_array | None = None


def refuse_other_data(sets: tuple[DataSet, ...], prior: Prior) -> None:
    """Raise for data that are no sites of a few predictors each.

    Raises
    ------
    ApproximationError
    """
    between = prior.coregion
    joined = between is not None and np.count_nonzero(between) > len(between)
    if prior.n_pseudo_points and joined:
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
                refuse_shared_noise(_few(data).rows())
        except ApproximationError as error:
            raise ApproximationError(
                f"{known!r} {error}, which many rows under an approximated prior do not take yet: "
                f"{_OTHERS}."
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
    return _part(data, np.unique(np.linspace(0, n - 1, min(n, _FEW)).astype(np.intp)))


def predictor_rows(
    data: DataSet,
    features: FunctionFeatures,
    prior: Prior,
    distinct: DistinctRows | None = None,
) -> Iterator[PredictorRows]:
    """Of all the data, in blocks; of equal rows one, where `distinct_data` are known."""
    grouped = is_grouped(data)
    if data.likelihood.y_dim != "obs_id":
        yield from (_grouped if grouped else _of_items)(data, features, prior)
        return
    if distinct is not None:
        yield from _of_distinct(data, distinct, features, prior)
        return
    n = data.X.shape[0]
    size = n if is_whole(data.likelihood) else ROWS_AT_ONCE
    for start in range(0, n, size):
        index = np.arange(start, min(start + size, n))
        if grouped:
            yield from _grouped(_part(data, index), features, prior)
        else:
            yield rows_of_part(data, index, features, prior)


def distinct_data(data: DataSet) -> DistinctRows | None:
    """Kinds of equal rows, where there are few of them and each row is a site of its own."""
    known = data.likelihood
    if isinstance(known, SiteLikelihood) or known.y_dim != "obs_id" or data.weights is not None:
        return None
    if is_grouped(data):
        return None
    if distinct_rows([data.X]) is None:
        return None
    rows = data.rows()
    if rows.A is not None:
        return None
    return distinct_rows([data.X, rows.a, rows.S, rows.lower, rows.upper, rows.value])


def _of_distinct(
    data: DataSet, distinct: DistinctRows, features: Features, prior: Prior
) -> Iterator[PredictorRows]:
    """Of one row of each kind, which counts as often as there are equal ones."""
    constant, counts = data.rows().log_constant, distinct.counts
    for start in range(0, distinct.first.size, ROWS_AT_ONCE):
        some = slice(start, start + ROWS_AT_ONCE)
        part = _part(data, distinct.first[some])
        phi, rest = features.at(part.X)
        mean = prior.mean("X", part.X)
        block = _block(part.rows(), None, phi, mean, rest, counts[some])
        yield PredictorRows(block, constant if start == 0 else 0.0, part.X)


def _grouped(data: DataSet, features: FunctionFeatures, prior: Prior) -> Iterator[PredictorRows]:
    rows = data.rows()
    for i, block in enumerate(grouped_blocks(rows, data, features, prior)):
        yield PredictorRows(block, 0.0 if i else rows.log_constant)


def rows_of_part(data: DataSet, index: IntArray, features: Features, prior: Prior) -> PredictorRows:
    """Of some rows of data that are about one value of f each."""
    part = data if index.size == data.X.shape[0] else _part(data, index)
    phi, rest = features.at(part.X)
    mean = prior.mean("X", part.X)
    if isinstance(part.likelihood, SiteLikelihood):
        sites = _function_sites(part, mean, rest, np.sqrt(np.einsum("ij,ij->i", phi, phi)))
        return PredictorRows(RowBlock(phi, sites), 0.0, part.X)
    rows = part.rows()
    design = sparse.csr_array(as_matrix(rows.A, rows.n_rows))
    once = bool((np.diff(design.indptr) == 1).all())
    if once and np.unique(design.indices).size == rows.n_rows:
        block = _block(rows, design, phi, mean, rest)
        return PredictorRows(block, rows.log_constant, part.X[design.indices], design.data)
    if not once:
        raise ApproximationError(
            f"{data.likelihood!r} has rows about several values of f, which many rows under an "
            f"approximated prior do not take yet: {_OTHERS}."
        )
    repeated = repeated_sites(rows, design, phi, mean, rest)
    return PredictorRows(RowBlock(phi, repeated), rows.log_constant, part.X)


def as_rows(rows: ArrayLike, sets: tuple[DataSet, ...]) -> IntArray:
    """Rows of data of one kind, checked; ValueError or TypeError for what are none."""
    if len(sets) > 1:
        raise ValueError(
            f"rows= is for data of one kind, and these are of {len(sets)}: leave it out."
        )
    whole = as_row_numbers(rows, sets[0].X.shape[0])
    part_of(sets[0], whole)
    return whole


def as_row_numbers(rows: ArrayLike, n: int) -> IntArray:
    """Numbers of some of n rows, checked."""
    index = np.atleast_1d(as_real_array("rows", rows))
    whole = index.astype(np.intp)
    if index.ndim != 1 or not index.size or (whole != index).any() or not _inside(whole, n):
        raise ValueError(f"rows must be whole numbers from 0 to {n - 1}, at least one of them.")
    return whole


def _inside(index: IntArray, n: int) -> bool:
    return bool((index >= 0).all() and (index < n).all())


def part_of(data: DataSet, index: IntArray) -> DataSet:
    """Some rows of data that are about one value of f each."""
    if data.likelihood.y_dim != "obs_id":
        raise ValueError(
            f"rows= chooses rows of X, and {data.likelihood!r} has observations of several of them."
        )
    return _part(data, index)


def _part(data: DataSet, index: IntArray) -> DataSet:
    known, weights = data.likelihood.of_observations(index, data.y), data.weights
    return data._replace(
        X=data.X[index],
        y=data.y[index],
        likelihood=known,
        weights=None if weights is None else weights[index],
    )


def is_whole(likelihood: Likelihood) -> bool:
    """Whether it is one function of all rows, of which no part is known."""
    return isinstance(likelihood, SiteLikelihood) and not likelihood.divisible


def cuts_into_rows(likelihood: Likelihood) -> bool:
    """Whether rows of X with their observations are data of the same kind."""
    return likelihood.y_dim == "obs_id" and not is_whole(likelihood)


def _function_sites(
    part: DataSet, mean: FloatArray, rest: FloatArray, sd: FloatArray
) -> FunctionSites:
    """Of a likelihood that is one; predictors have the mean and deviation `sd` in the prior."""
    known, y, n = part.likelihood, part.y, part.X.shape[0]
    assert isinstance(known, SiteLikelihood)
    all_sites = known.sites(y, n)

    def some(rows: slice) -> Any:
        if rows == slice(None):
            return all_sites
        index = np.arange(n)[rows]
        own = known.of_observations(index, y)
        assert isinstance(own, SiteLikelihood)
        return own.sites(y[rows], index.size)

    return _averaged(all_sites, some, rest, mean + all_sites.a, sd, known.divisible)


def takes_rest(data: DataSet) -> bool:
    """Whether comparisons are each of items of their own, so that e is noise of their rows."""
    rows = data.rows()
    return rows_are_apart(sparse.csr_array(as_matrix(rows.A, rows.n_rows)))


def _of_items(data: DataSet, features: Features, prior: Prior) -> Iterator[PredictorRows]:
    """Of comparisons, each of a few items."""
    rows = data.rows()
    design = sparse.csr_array(as_matrix(rows.A, rows.n_rows))
    apart = rows_are_apart(design)
    for start in range(0, rows.n_rows, ROWS_AT_ONCE):
        part = np.arange(rows.n_rows) // ROWS_AT_ONCE == start // ROWS_AT_ONCE
        own = design[part]
        items, place = np.unique(own.indices, return_inverse=True)
        shape = (own.shape[0], items.size)
        own = sparse.csr_array((own.data, place, own.indptr), shape=shape)
        phi, rest = features.at(data.X[items])
        mean, rest = prior.mean("X", data.X[items]), rest if apart else np.zeros(items.size)
        block = _block(rows.rows(part), own, phi, mean, rest)
        constant = rows.log_constant if start == 0 else 0.0
        yield PredictorRows(block, constant, data.X[items], design=own)


def _block(
    rows: Observations,
    design: sparse.csr_array | None,
    phi: FloatArray,
    mean: FloatArray,
    rest: FloatArray,
    counts: FloatArray | None = None,
) -> RowBlock:
    """Rows that are points and intervals, each with noise of its own."""
    if rows.A is None or design is None:
        phi, mean, rest = (x[: rows.n_rows] for x in (phi, mean, rest))
    else:
        phi, mean, rest = np.asarray(design @ phi), design @ mean, design.power(2) @ rest
    offset, noise = mean + rows.a, rows.S + rest
    if not (noise > 0.0).all():
        i = int(np.argmin(noise))
        raise ApproximationError(
            f"row {i} of the data has no noise, which an approximated prior of many rows does not "
            "take: give the likelihood a sigma, or the kernel a WhiteNoise."
        )
    lower, upper, value = (x - offset for x in (rows.lower, rows.upper, rows.value))
    return RowBlock(phi, RowSites(lower, upper, value, noise, counts))
