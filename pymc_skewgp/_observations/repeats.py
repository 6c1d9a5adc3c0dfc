"""Rows that repeat: many intervals of one value of f, as the trials of a binomial are.

Given f the mean of n repeated rows says all that the rows say of f. So their mean is one row, with
a noise of S / n, and only the sampler has to know how many rows were between which limits.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pymc_skewgp._gaussian.repeated_log_prob import LEAST_REPEATS, LEAST_ROWS
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.observations import Observations, as_matrix
from pymc_skewgp._validation import FloatArray


class RepeatedRows(NamedTuple):
    """Observations whose repeated intervals are means, and what these are means of.

    Attributes
    ----------
    rows : Observations
        Points as they were; a row for each group of equal intervals, without limits. Intervals that
        are in no group are as they were.
    group : ndarray of int, shape (d,)
        Of d kinds of intervals, each of one group and with limits of its own: the group, counted
        among the intervals of `rows`.
    lower, upper : ndarray, shape (d,)
        Limits of the kind.
    noise : ndarray, shape (d,)
        Variance of the noise of each of its rows.
    counts : ndarray of int, shape (d,)
        How many rows there are of it.
    """

    rows: Observations
    group: IntArray
    lower: FloatArray
    upper: FloatArray
    noise: FloatArray
    counts: IntArray


def repeated_rows(observations: Observations) -> RepeatedRows | None:
    """`observations` with repeated intervals merged; None where it would not save much.

    Only rows are found that are of one value of f each, with noise of their own.
    """
    intervals = np.flatnonzero(~observations.is_point)
    if intervals.size < LEAST_ROWS or observations.S.ndim == 2:
        return None
    design = sparse.csr_array(as_matrix(observations.A, observations.n_rows))
    if (np.diff(design.indptr) != 1).any():
        return None
    design_of = (design.indices, design.data, observations.a, observations.S)
    columns = np.column_stack([x[intervals] for x in design_of])
    _, first, group, sizes = np.unique(
        columns, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    if intervals.size < LEAST_REPEATS * first.size:
        return None
    limits = np.column_stack([group, observations.lower[intervals], observations.upper[intervals]])
    kinds, counts = np.unique(limits, axis=0, return_counts=True)
    own, low, high = kinds[:, 0].astype(np.intp), kinds[:, 1], kinds[:, 2]
    points = np.flatnonzero(observations.is_point)
    members = np.concatenate([points, intervals[first]])
    open_side = np.full(members.size, np.inf)
    noise = observations.S[members]
    noise[points.size :] /= sizes
    rows = Observations(
        design[members],
        observations.a[members],
        noise,
        -open_side,
        open_side,
        observations.value[members],
        log_constant=observations.log_constant,
    )
    return RepeatedRows(rows, own, low, high, observations.S[intervals[first]][own], counts)


def rows_of_means(
    observations: Observations, counts: FloatArray, repeats: NDArray[np.bool_]
) -> RepeatedRows:
    """Means of intervals that stand for so many each, of one value one after the other.

    Only those are merged that `repeats` says. Single intervals stay as they are, with their limits:
    they are in no group.
    """
    kept = counts > 0
    found = observations if kept.all() else observations.rows(kept)
    counts, repeats = counts[kept], repeats[kept]
    design = sparse.csr_array(as_matrix(found.A, found.n_rows))
    same = np.asarray(abs(design[1:] - design[:-1]).sum(axis=1)).ravel() == 0
    same &= (found.a[1:] == found.a[:-1]) & (found.S[1:] == found.S[:-1])
    same &= repeats[1:] & repeats[:-1]
    group = np.concatenate([[0], np.cumsum(~same)])
    first = np.flatnonzero(np.concatenate([[True], ~same]))
    total = np.bincount(group, weights=counts)
    several = total > 1
    rows = Observations(
        as_matrix(found.A, found.n_rows)[first],
        found.a[first],
        found.S[first] / total,
        np.where(several, -np.inf, found.lower[first]),
        np.where(several, np.inf, found.upper[first]),
        found.value[first],
        log_constant=found.log_constant,
    )
    interval = np.cumsum(~rows.is_point) - 1  # its number among the intervals
    own = several[group]
    low, high, noise = (x[own] for x in (found.lower, found.upper, found.S))
    number = counts[own].astype(np.intp)
    return RepeatedRows(rows, interval[group][own], low, high, noise, number)


def each_row(observations: Observations, counts: FloatArray) -> Observations:
    """Intervals that stand for so many each, with noise of their own, as so many rows."""
    index = np.repeat(np.arange(counts.size), counts.astype(np.intp))
    columns = (x[index] for x in (observations.a, observations.S))
    limits = (x[index] for x in (observations.lower, observations.upper, observations.value))
    A = as_matrix(observations.A, observations.n_rows)[index]
    return Observations(A, *columns, *limits, log_constant=observations.log_constant)


class EqualRows(NamedTuple):
    """Of rows that may repeat, one of each kind.

    Attributes
    ----------
    first : ndarray of int, shape (d,)
        The first row of each kind, in their order.
    counts : ndarray, shape (d,)
        How many rows there are of it; points are kinds of their own.
    """

    first: IntArray
    counts: FloatArray


def equal_rows(
    observations: Observations, columns: Sequence[FloatArray] = (), *, merge: bool = True
) -> EqualRows:
    """Which intervals are equal, but for noise of their own.

    `columns` are arrays, a row for each, in which they must be equal as well. All rows are kinds of
    their own where they share noise, or where not to `merge`.
    """
    m = observations.n_rows
    alone = EqualRows(np.arange(m), np.ones(m))
    if observations.S.ndim == 2 or not merge or not m:
        return alone
    design = sparse.csr_array(as_matrix(observations.A, m))
    design.sort_indices()
    entries = np.diff(design.indptr)
    if (entries != entries[0]).any():
        return alone
    rows = (design.indices, design.data, observations.a, observations.S)
    limits = [observations.lower, observations.upper]
    # Points keep their place, and so differ from all other rows.
    place = np.where(observations.is_point, np.arange(m), -1)
    limits = [np.where(observations.is_point, 0.0, x) for x in limits]
    every = np.column_stack([x.reshape(m, -1) for x in (*rows, *limits, place, *columns)])
    _, first, counts = np.unique(every, axis=0, return_index=True, return_counts=True)
    order = np.argsort(first)
    return EqualRows(first[order], counts[order].astype(np.float64))
