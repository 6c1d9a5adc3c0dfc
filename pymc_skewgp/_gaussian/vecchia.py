r"""Gaussians with sparse precisions from their covariances: Vecchia's approximation.

Values c at places in an order, each given its m nearest among those before it, N(i):

.. math:: p(c) \approx \prod_i N\{c_i \mid b_i^\top c_{N(i)},\; d_i\}, \qquad Q = B^\top D^{-1} B,

row i of B being 1 at i and -b_i at N(i) (Vecchia 1988, doi:10.1111/j.2517-6161.1988.tb01729.x).
Places on a line are in its order, others come from coarse to fine, so that each has neighbours on
all sides (Guinness 2018, doi:10.1080/00401706.2018.1437476).
"""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from pymc_skewgp._errors import JitterWarning, NotPositiveDefiniteError, warn
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray

# Of a variance of 1, added to each: smooth kernels are singular to round-off. The others where
# round-off is larger, as that of distances between inputs that are next to equal.
NUGGETS = (1e-10, 1e-8, 1e-6)
# Cells along each side of the box, at most; how many more there are from level to level.
_MOST_CELLS, _FINER = 2.0**20, 2.0**0.5
_AT_ONCE = 256  # values whose small matrices are factorised together
_SEED = 0


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
    """Values of variance 1 given others: N(b'c, d).

    Attributes
    ----------
    weights : ndarray, shape (n, m)
        b.
    variance : ndarray, shape (n,)
        d.
    """

    weights: FloatArray
    variance: FloatArray


def conditionals(correlations: FloatArray, m: int) -> Conditionals:
    """Of values by their correlations with m others.

    Parameters
    ----------
    correlations : ndarray, shape (n, m (m + 1) / 2)
        Of the others and then of the value itself, below the diagonal row by row.

    Raises
    ------
    NotPositiveDefiniteError

    Warns
    -----
    JitterWarning
        Where round-off asks for a larger nugget.
    """
    n = len(correlations)
    weights, variance, most = np.empty((n, m)), np.empty(n), NUGGETS[0]
    for rows in _slices(n):
        factor, nugget = _factors(_blocks(correlations[rows], m))
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
    return Conditionals(weights, variance)


def _slices(n: int) -> Iterator[slice]:
    return (slice(i, i + _AT_ONCE) for i in range(0, n, _AT_ONCE))


def _blocks(correlations: FloatArray, m: int) -> FloatArray:
    """Matrices, all but their diagonals."""
    found = np.empty((len(correlations), m + 1, m + 1))
    i, j = below_diagonal(m)
    found[:, i, j] = found[:, j, i] = correlations
    return found


def below_diagonal(m: int) -> tuple[IntArray, IntArray]:
    """Rows and columns of the entries below the diagonal of m + 1 rows."""
    return np.tril_indices(m + 1, -1)


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


class NeighbourGraph:
    """Which values each is known from, and where the precision has entries.

    Parameters
    ----------
    neighbours : ndarray of int, shape (n, m)
        -1 where there are fewer.

    Attributes
    ----------
    pairs : ndarray of int, shape (2, q)
        Different values whose correlations count, the larger number first.
    """

    def __init__(self, neighbours: IntArray) -> None:
        self.neighbours, (n, m) = neighbours, neighbours.shape
        block = np.column_stack([neighbours, np.arange(n)])
        a, b = (block[:, x] for x in below_diagonal(m))
        keys = np.where((a < 0) | (b < 0), -1, np.maximum(a, b) * n + np.minimum(a, b))
        found, place = np.unique(keys, return_inverse=True)
        # The first is of those that there are not: the first value has no neighbours.
        self.pairs: IntArray = np.stack(np.divmod(found[1:], n))
        self._place = place.reshape(keys.shape).astype(np.int32)

    def conditionals(self, correlations: FloatArray) -> Conditionals:
        """Of each value given those before it, from the correlations of the pairs."""
        known = np.concatenate([[0.0], correlations])[self._place]
        return conditionals(known, self.neighbours.shape[1])

    @cached_property
    def of_precision(self) -> IntArray:
        """Rows and columns of the entries of Q: the diagonal, the pairs, and these transposed."""
        each = np.arange(len(self.neighbours))
        return np.hstack([[each, each], self.pairs, self.pairs[::-1]])

    def precision(self, known: Conditionals) -> FloatArray:
        """Entries of Q."""
        n = len(known.variance)
        # Rows of D^-1/2 B, their entries at the neighbours and at the value.
        root = np.column_stack([-known.weights, np.ones(n)]) / np.sqrt(known.variance)[:, None]
        i, j = below_diagonal(known.weights.shape[1])
        off = root[:, i] * root[:, j]
        off = np.bincount(self._place.ravel(), off.ravel(), minlength=self.pairs.shape[1] + 1)[1:]
        own = np.where(self.neighbours < 0, 0, self.neighbours)
        diagonal = np.bincount(own.ravel(), np.square(root[:, :-1]).ravel(), minlength=n)
        return np.concatenate([diagonal + 1.0 / known.variance, off, off])

    def slopes(self, correlations: FloatArray, squares: FloatArray) -> FloatArray:
        r"""Derivatives of E log p(c) in the correlations of the pairs.

        With K that of a value and its neighbours, M their E(c c'), v = (-b, 1) and
        :math:`u = K^{-1} \{\tfrac12 (d + v'Mv) e - M v\}`, e that of the value, the derivative in K
        is :math:`-(u v' + v u') / (2 d)`.

        Parameters
        ----------
        correlations : ndarray, shape (q,)
        squares : ndarray
            E(c_i c_j) at the entries of Q.
        """
        n, m = self.neighbours.shape
        q, known = self.pairs.shape[1], self.conditionals(correlations)
        i, j = below_diagonal(m)
        found = np.empty(self._place.shape)
        padded, of_pairs = np.concatenate([[0.0], correlations]), np.zeros(q + 1)
        of_pairs[1:] = squares[n : n + q]
        every = np.arange(m + 1)
        for rows in _slices(n):
            place, own = self._place[rows], self.neighbours[rows]
            K, M = _blocks(padded[place], m), _blocks(of_pairs[place], m)
            _factors(K)  # with the nugget that it takes
            M[:, every[:-1], every[:-1]] = np.where(own < 0, 0.0, squares[own])
            M[:, m, m] = squares[:n][rows]
            d = known.variance[rows]
            v = np.column_stack([-known.weights[rows], np.ones(len(d))])
            right = -np.einsum("nij,nj->ni", M, v)
            right[:, m] += 0.5 * (d - np.einsum("ni,ni->n", v, right))
            u = np.linalg.solve(K, right[:, :, None])[:, :, 0] / d[:, None]
            found[rows] = -(u[:, i] * v[:, j] + v[:, i] * u[:, j])
        total: FloatArray = np.bincount(self._place.ravel(), found.ravel(), minlength=q + 1)
        return total[1:]
