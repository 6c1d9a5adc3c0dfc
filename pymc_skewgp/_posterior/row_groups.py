"""Rows that share noise, in groups: each one's rows, what values they are about, and its noise.

What features leave of f is noise as well, which the rows of a group share. That is so as long as no
two groups are about one input; else groups would share it, and f is taken without it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.noise import rows_of_blocks
from pymc_skewgp._observations.observations import Observations, as_matrix
from pymc_skewgp._validation import FloatArray

_MOST_ROWS = 64  # of a group: its covariance is a matrix


@dataclass(frozen=True, eq=False)
class RowGroups:
    """Groups of m rows each, :math:`u = A f + a + e`, about p values of f each.

    Attributes
    ----------
    rows : ndarray of int, shape (n, m)
        Which of the rows these are.
    values : ndarray of int, shape (n, p)
        Which values of f, counted as the likelihood's rows do.
    design : ndarray, shape (n, m, p)
    offset : ndarray, shape (n, m)
    noise : ndarray, shape (n, m, m)
    lower, upper, value : ndarray, shape (n, m)
    """

    rows: IntArray
    values: IntArray
    design: FloatArray
    offset: FloatArray
    noise: FloatArray
    lower: FloatArray
    upper: FloatArray
    value: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of groups, and of rows of each."""
        return self.value.shape[0], self.value.shape[1]

    def part(self, groups: slice | IntArray) -> "RowGroups":
        """Some of the groups."""
        return RowGroups(*(getattr(self, name)[groups] for name in self.__dataclass_fields__))

    def of_all_functions(self, n_functions: int) -> "RowGroups":
        """The same rows as rows of all the functions at the one input of each group."""
        if n_functions == 1:
            return self
        inputs, function = self.values // n_functions, self.values % n_functions
        design = np.zeros((*self.shape, n_functions))
        index = np.arange(self.shape[0])
        for i in range(inputs.shape[1]):
            design[index, :, function[:, i]] += self.design[:, :, i]
        values = inputs[:, :1] * n_functions + np.arange(n_functions)
        return replace(self, values=values, design=design)

    def with_rest(self, rest: FloatArray) -> "RowGroups":
        """With covariances of what features leave of the values, shape (n, p, p), in the noise."""
        return replace(self, noise=self.noise + self.design @ rest @ self.design.swapaxes(1, 2))

    def points_first(self) -> "RowGroups":
        """With the intervals given the points: their noise is then independent of these.

        Raises
        ------
        ApproximationError
            For points that share noise.
        """
        point = ~np.isnan(self.value)
        if not point.any():
            return self
        shared = self.noise.copy()
        np.einsum("ijj->ij", shared)[:] = 0.0
        between = shared * (point[:, :, None] & point[:, None, :])
        if between.any():
            raise ApproximationError("has points that share noise")
        variance = np.einsum("ijj->ij", self.noise)
        # Of intervals on points.
        gain = np.where(point[:, None, :] & ~point[:, :, None], shared / variance[:, None, :], 0.0)
        left = np.eye(self.shape[1]) - gain
        known = np.where(point, self.value, 0.0)
        noise = left @ self.noise @ left.swapaxes(1, 2)
        noise[point[:, :, None] != point[:, None, :]] = 0.0
        return replace(
            self,
            design=left @ self.design,
            offset=(left @ self.offset[:, :, None] + gain @ known[:, :, None])[:, :, 0],
            noise=noise,
        )

    @property
    def is_apart(self) -> bool:
        """Whether the noise of all rows is their own."""
        off = self.noise.copy()
        np.einsum("ijj->ij", off)[:] = 0.0
        return not off.any()


def row_groups(rows: Observations) -> Iterator[RowGroups]:
    """Groups of rows that share noise, those of equal size together.

    Raises
    ------
    ApproximationError
        For groups of very many rows.
    """
    if rows.S.ndim == 1:
        groups = [np.arange(rows.n_rows)[:, None]]
        noise = [rows.S[:, None, None]]
    else:
        groups = rows_of_blocks(rows.S)
        most = groups[-1].shape[1]
        if most > _MOST_ROWS:
            raise ApproximationError(f"has {most} rows that share noise, more than {_MOST_ROWS}")
        whole = sparse.csr_array(rows.S)
        noise = [blocks_of_noise(whole, index) for index in groups]
    design = sparse.csr_array(as_matrix(rows.A, rows.n_rows))
    for index, covariance in zip(groups, noise, strict=True):
        values, own = _of_values(design, index)
        parts = (x[index] for x in (rows.lower, rows.upper, rows.value))
        yield RowGroups(index, values, own, rows.a[index], covariance, *parts)


def groups_are_apart(groups: Sequence[RowGroups], n_functions: int) -> bool:
    """Whether no two groups are about one input, of whose functions they all are."""
    inputs = [np.sort(some.values // n_functions, axis=1) for some in groups]
    # Once for each group: a group's own may repeat.
    once = [x[np.diff(x, axis=1, prepend=-1) != 0] for x in inputs]
    return bool(np.bincount(np.concatenate(once), minlength=1).max() <= 1)


def blocks_of_noise(whole: sparse.csr_array, index: IntArray) -> FloatArray:
    """Covariances of groups of these rows, shape (n, m, m)."""
    n, m = index.shape
    first, second = np.repeat(index, m, axis=1).ravel(), np.tile(index, m).ravel()
    return np.asarray(whole[first, second], dtype=float).reshape(n, m, m)


def _of_values(design: sparse.csr_array, index: IntArray) -> tuple[IntArray, FloatArray]:
    """Values that groups of rows are about, (n, p), and their rows of them, (n, m, p)."""
    n, m = index.shape
    own = sparse.coo_array(design[index.ravel()])
    row, column = own.coords
    group = row // m
    key, place = np.unique(group * design.shape[1] + column, return_inverse=True)
    of_group = key // design.shape[1]
    first = np.searchsorted(of_group, np.arange(n))
    position = np.arange(key.size) - first[of_group]
    values = np.repeat((key[first] % design.shape[1])[:, None], position.max() + 1, axis=1)
    values[of_group, position] = key % design.shape[1]
    matrix = np.zeros((n, m, values.shape[1]))
    matrix[group, row % m, position[place]] = own.data
    return values, matrix
