r"""Gaussians with sparse precisions from their covariances: Vecchia's approximation.

Values c at places in an order, each given its m nearest among those before it, N(i):

.. math:: p(c) \approx \prod_i N\{c_i \mid b_i^\top c_{N(i)},\; d_i\}, \qquad Q = B^\top D^{-1} B,

row i of B being 1 at i and -b_i at N(i) (Vecchia 1988, doi:10.1111/j.2517-6161.1988.tb01729.x).
Places on a line are in its order, others come from coarse to fine, so that each has neighbours on
all sides (Guinness 2018, doi:10.1080/00401706.2018.1437476).
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree

from pymc_skewgp._errors import JitterWarning, NotPositiveDefiniteError, warn
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray

# Of a variance of 1, added to each: smooth kernels are singular to round-off. The others where
# round-off is larger, as that of distances between inputs that are next to equal.
NUGGETS = (1e-10, 1e-8, 1e-6)
# Cells along each side of the box, at most; how many more there are from level to level.
_MOST_CELLS, _FINER = 2.0**20, 2.0**0.5
# Values whose covariances with all of their neighbours are one matrix.
_AT_ONCE = 64
_SEED = 0

# Correlations of values by their numbers: from (rows, columns) to a matrix.
Correlation = Callable[[IntArray, IntArray], FloatArray]


def coarse_to_fine(points: FloatArray) -> IntArray:
    """An order of different points: the middle one of each cell of finer and finer lattices.

    Of cells without a point of a coarser one; in a random order within a level. On a line they are
    in order, where a Markov process needs one neighbour.
    """
    n, d = points.shape
    if d == 1:
        return np.argsort(points[:, 0])
    rng, low = np.random.default_rng(_SEED), points.min(axis=0)
    size = max(float(np.ptp(points, axis=0).max()), np.finfo(float).tiny)
    level, cells, step = np.full(n, -1), 1.0, 0
    while (level < 0).any() and cells < _MOST_CELLS:
        at = (points - low) * ((1.0 - 1e-9) * cells / size)
        cell = np.floor(at)
        key = cell.astype(np.int64) @ (int(_MOST_CELLS) ** np.arange(d))
        left = np.flatnonzero((level < 0) & ~np.isin(key, key[level >= 0]))
        off = np.square(at[left] - cell[left] - 0.5).sum(axis=1)
        left = left[np.argsort(off, kind="stable")]
        level[left[np.unique(key[left], return_index=True)[1]]] = step
        cells, step = cells * _FINER, step + 1
    level[level < 0] = step
    mixed = rng.permutation(n)
    found: IntArray = mixed[np.argsort(level[mixed], kind="stable")]
    return found


def nearest_earlier(points: FloatArray, m: int) -> IntArray:
    """Of each point the m nearest before it, shape (n, m); -1 where there are fewer."""
    n = len(points)
    m = min(m, max(n - 1, 1))
    found, first = np.full((n, m), -1), 0
    while first < n:
        stop = min(n, max(2 * first, m + 1))
        tree, left, k = cKDTree(points[:stop]), np.arange(first, stop), min(2 * m + 2, stop)
        while left.size:
            near = tree.query(points[left], k=k)[1].reshape(left.size, -1)
            before = near < left[:, None]
            count = np.cumsum(before, axis=1)
            done = (count[:, -1] >= m) | (k == stop)
            kept = before[done] & (count[done] <= m)
            row, place = np.nonzero(kept)
            found[left[done][row], count[done][row, place] - 1] = near[done][row, place]
            left, k = left[~done], min(2 * k, stop)
        first = stop
    return found


class Conditionals(NamedTuple):
    """Values given others: N(b'c, d).

    Attributes
    ----------
    neighbours : ndarray of int, shape (n, m)
        -1 where there are fewer.
    weights : ndarray, shape (n, m)
        b; 0 there.
    variance : ndarray, shape (n,)
        d.
    """

    neighbours: IntArray
    weights: FloatArray
    variance: FloatArray

    def matrix(self, size: int) -> sparse.csr_array:
        """Rows b of the weights of so many others."""
        known = self.neighbours >= 0
        starts = np.concatenate([[0], np.cumsum(known.sum(axis=1))])
        return sparse.csr_array(
            (self.weights[known], self.neighbours[known], starts), shape=(len(known), size)
        )


def conditionals(
    points: FloatArray, neighbours: IntArray, of_neighbours: Correlation, across: Correlation
) -> Conditionals:
    """Of values of variance 1 at `points`, by their correlations.

    Parameters
    ----------
    points : ndarray, shape (n, d)
    neighbours : ndarray of int, shape (n, m)
    of_neighbours, across : Correlation
        Of the others, and of values with others.

    Raises
    ------
    NotPositiveDefiniteError

    Warns
    -----
    JitterWarning
        Where round-off asks for a larger nugget.
    """
    n, m = neighbours.shape
    weights, variance, most = np.zeros((n, m)), np.empty(n), NUGGETS[0]
    for rows in _groups(points, neighbours[0, 0] < 0):
        near = neighbours[rows]
        others, place = np.unique(near, return_inverse=True)
        place, lacking = place.reshape(near.shape), int(others[0] < 0)
        own, cross = np.zeros((others.size, others.size)), np.zeros((rows.size, others.size))
        if others.size > lacking:  # what others there are not is 0
            known = others[lacking:]
            own[lacking:, lacking:] = of_neighbours(known, known)
            cross[:, lacking:] = across(rows, known)
        block = np.zeros((rows.size, m + 1, m + 1))
        block[:, :m, :m] = own[place[:, :, None], place[:, None, :]]
        block[:, m, :m] = np.take_along_axis(cross, place, axis=1)
        factor, nugget = _factors(block)
        most = max(most, nugget)
        last = factor[:, m, :m, None]
        weights[rows] = np.linalg.solve(factor[:, :m, :m].swapaxes(1, 2), last)[:, :, 0]
        variance[rows] = factor[:, m, m] ** 2
    if most > NUGGETS[0]:
        warn(
            f"the covariance of neighbours is numerically singular, as where inputs are next to "
            f"equal: up to {most:.0e} of the variance was added to each value.",
            JitterWarning,
            stacklevel=2,
        )
    weights[neighbours < 0] = 0.0
    return Conditionals(neighbours, weights, variance)


def _factors(blocks: FloatArray) -> tuple[FloatArray, float]:
    """Cholesky factors of correlation matrices, with the least nugget that they take."""
    i = np.arange(blocks.shape[1])
    for nugget in NUGGETS:
        blocks[:, i, i] = 1.0 + nugget
        try:
            return np.linalg.cholesky(blocks), nugget
        except np.linalg.LinAlgError:
            continue
    raise NotPositiveDefiniteError(
        f"cov_func is not positive definite: correlations of {len(i)} neighbouring inputs have "
        f"an eigenvalue below {-NUGGETS[-1]:.0e}. Check the kernel and the scale of the inputs."
    )


def _groups(points: FloatArray, in_order: bool) -> Iterator[IntArray]:
    """Rows near each other; of points from coarse to fine such of nearly one level."""
    n = len(points)
    levels = range(6, (n - 1).bit_length()) if in_order else range(0)
    for first, stop in pairwise([0, *(2**level for level in levels), n]):
        near = first + cKDTree(points[first:stop], leafsize=_AT_ONCE // 4).indices
        yield from (near[i : i + _AT_ONCE] for i in range(0, stop - first, _AT_ONCE))
