"""Rows that repeat: many intervals of one value of f, as the trials of a binomial are.

Given f the mean of n repeated rows says all that the rows say of f. So their mean is one row, with
a noise of S / n, and only the sampler has to know how many rows were between which limits.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.observations import Observations, as_matrix
from pymc_skewgp._validation import FloatArray

# Fewer rows are drawn one by one; and repeats save little where there are few of each.
_LEAST_ROWS, _LEAST_REPEATS = 200, 4


class RepeatedRows(NamedTuple):
    """Observations whose repeated intervals are means, and what these are means of.

    Attributes
    ----------
    rows : Observations
        Points as they were; a row for each group of equal intervals, without limits.
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
    if intervals.size < _LEAST_ROWS or observations.S.ndim == 2:
        return None
    design = sparse.csr_array(as_matrix(observations.A, observations.n_rows))
    if (np.diff(design.indptr) != 1).any():
        return None
    design_of = (design.indices, design.data, observations.a, observations.S)
    columns = np.column_stack([x[intervals] for x in design_of])
    _, first, group, sizes = np.unique(
        columns, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    if intervals.size < _LEAST_REPEATS * first.size:
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
