r"""Data under a prior of finite rank as blocks of sites of predictors linear in a few coordinates.

With :math:`f(x) = m(x) + \phi(x)^\top c + e(x)` a row v = A f + a + noise of one value of f is a
site of :math:`\eta = A \phi^\top c`, with the variance of A e beside that of its own noise. So is
a likelihood p(y | f), whose site is the mean of it over e, and a duel, A f being a difference, as
long as no item is in two of them: else duels would share e, and f is taken without it.
"""

from collections.abc import Iterator
from operator import matmul
from typing import NamedTuple

import numpy as np
from scipy import sparse

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._gaussian.blocks.beside import RowsBeside
from pymc_skewgp._gaussian.blocks.groups import GroupBlock
from pymc_skewgp._gaussian.blocks.rows import RowBlock
from pymc_skewgp._observations.likelihood import Likelihood
from pymc_skewgp._observations.sites import SiteLikelihood, SitesGiven
from pymc_skewgp._posterior import blocks_at, row_blocks
from pymc_skewgp._posterior.features import FunctionFeatures
from pymc_skewgp._posterior.prior import DataSet, Prior, in_prior_units
from pymc_skewgp._posterior.row_groups import refuse_shared_noise
from pymc_skewgp._validation import FloatArray

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
                refuse_shared_noise(_few(data).rows())
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


def plain_rows(data: DataSet) -> row_blocks.PlainRows | None:
    """Points and intervals with noise of their own; None where data are others."""
    if isinstance(data.likelihood, SiteLikelihood) or is_grouped(data):
        return None
    return row_blocks.PlainRows(data.X, row_blocks.RowTable.of(data.rows(), merged=True))


def n_repeated(data: DataSet) -> int:
    """Rows that are as others are, so that their features are not computed."""
    rows = plain_rows(data)
    return 0 if rows is None else rows.n_observations - rows.n_computed


def data_blocks(data: DataSet, features: FunctionFeatures, prior: Prior) -> Iterator[DataBlock]:
    """Of all the data."""
    rows = plain_rows(data)
    if rows is not None:
        yield from _of_rows(rows, data.X, features, prior)
    elif isinstance(data.likelihood, SiteLikelihood):
        n = data.X.shape[0]
        size = row_blocks.ROWS_IN_BLOCK if data.likelihood.divisible else n
        for start in range(0, n, size):
            index = np.arange(start, min(start + size, n))
            yield _of_functions(data.part(index) if size < n else data, features, prior)
    else:
        yield from _of_groups(data, features, prior)


def _of_rows(
    rows: row_blocks.PlainRows, X: FloatArray, features: FunctionFeatures, prior: Prior
) -> Iterator[DataBlock]:
    constant = float(rows.table.log_constant)
    for cut in rows.cuts(np.arange(rows.n_observations)):
        at, design = X[cut.inputs], cut.design
        columns = [x[cut.rows] for x in rows.table.columns]
        (phi, rest), mean = features.at(at), prior.mean("X", at)
        if design is not None:
            phi, mean = np.asarray(design @ phi), design @ mean
            rest = design.power(2) @ rest if rows.apart else np.zeros(mean.size)
        if cut.unit is None and not (columns[3] + rest > 0.0).all():
            i = cut.rows[int(np.argmin(columns[3] + rest))]
            raise ApproximationError(
                f"row {i} of the data has no noise, which an approximated prior of many rows does "
                "not take: give the likelihood a sigma, or the kernel a WhiteNoise."
            )
        found = blocks_at.rows_at(cut.counts, cut.unit, np.zeros(()), phi, mean, rest, *columns)
        assert found is not None  # all numbers are checked
        found.refuse_wide_rest()
        yield DataBlock(found.block, constant, at, design)
        constant = 0.0


def _of_functions(part: DataSet, features: FunctionFeatures, prior: Prior) -> DataBlock:
    known, n = part.likelihood, part.X.shape[0]
    assert isinstance(known, SiteLikelihood)
    own, (phi, rest) = known.sites(part.y, n), features.at(part.X)
    mean, sd = prior.mean("X", part.X) + own.a, np.sqrt(np.einsum("ij,ij->i", phi, phi))
    sites = blocks_at.LearntFunctions(SitesGiven(n, own.log_prob, own.slopes), mean, rest, sd)
    _ = sites.averaged  # refuses what features leave too much of
    return DataBlock(RowBlock(phi, sites), 0.0, part.X)


def _of_groups(data: DataSet, features: FunctionFeatures, prior: Prior) -> Iterator[DataBlock]:
    table, between = row_blocks.RowTable.of(data.rows()), features.between
    rows = row_blocks.GroupedRows(table, data.values.n_functions, between)
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
        numbers = phi, mean, rows.S + rest, rows.lower, rows.upper, variance, rows.S
        limits = blocks_at.limits_at(np.zeros(()), *numbers)
        assert limits is not None  # all numbers are checked
        parts.append(limits.hard)
    return RowsBeside.joined(parts)
