"""What was observed of a Gaussian vector, points or intervals: noise, repeats, shared noise."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import block_diag
from scipy.sparse.csgraph import connected_components
from scipy.special import logsumexp

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.blocks.rows import RowSites
from pymc_skewgp._gaussian.covariance import BlockNoise
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray

# The noise of rows: variances of independent ones, a covariance, or a sparse one of blocks.

# Variances, shape (m,); or a covariance, shape (m, m), dense or sparse.
Noise = Any
BoolArray = NDArray[np.bool_]


def noise_part(S: Noise, chosen: Any) -> Noise:
    """Of the rows that are `chosen`: variances, where they are independent of each other.

    Rows with noise of their own may be chosen by number, again and again.
    """
    if S.ndim == 1:
        return S[chosen]
    if isinstance(S, np.ndarray):
        return S[np.ix_(chosen, chosen)]
    index = np.flatnonzero(chosen)
    part = S[index][:, index]
    diagonal = part.diagonal()
    return diagonal if part.nnz <= np.count_nonzero(diagonal) else part


def shared_noise(S: Noise, a: BoolArray, b: BoolArray) -> FloatArray | None:
    """Covariance of the noise of the rows `a` with that of `b`; None where there is none."""
    if S.ndim == 1:
        return None
    if not isinstance(S, np.ndarray):
        part = S[np.flatnonzero(a)][:, np.flatnonzero(b)].toarray()
    else:
        part = S[np.ix_(a, b)]
    return part if part.any() else None


def add_noise(matrix: FloatArray, S: Noise) -> None:
    """Add the covariance of the noise to `matrix`, in place."""
    if S.ndim == 1:
        np.einsum("ii->i", matrix)[:] += S
    elif not isinstance(S, np.ndarray):
        entries = S.tocoo()  # a sparse array has each entry once
        matrix[entries.coords] += entries.data
    else:
        matrix += S


def noise_factor(S: Noise) -> Any:
    """B with B B' the covariance of the noise; block by block where it is sparse."""
    if S.ndim == 1:
        return sparse.diags_array(np.sqrt(S), format="csr")
    if isinstance(S, np.ndarray):
        return linalg.low_rank_factor(S)
    members, whole = _blocks(S), S.tocsr()
    factors = [linalg.low_rank_factor(whole[rows][:, rows].toarray()) for rows in members]
    blocks = [sparse.csr_array(factor) for factor in factors]
    order = np.concatenate(members)
    return sparse.block_diag(blocks, format="csr")[np.argsort(order)]


def rows_of_blocks(S: Noise) -> list[IntArray]:
    """Rows that share noise with each other, shape (blocks, size), an array for each size."""
    members = _blocks(S)
    sizes = np.array([rows.size for rows in members])
    return [np.array([rows for rows in members if rows.size == size]) for size in np.unique(sizes)]


def block_noise(S: Noise, largest: int) -> BlockNoise | None:
    """The covariance S as blocks of at most `largest` rows; None where its blocks are larger.

    Or where one is so near to singular that its inverse would lose digits.
    """
    entries = np.count_nonzero(S) if isinstance(S, np.ndarray) else S.nnz
    if entries > largest * S.shape[0]:
        return None
    rows = rows_of_blocks(S)
    if rows[-1].shape[1] > largest:
        return None
    whole = sparse.csr_array(S)
    blocks = [blocks_of_noise(whole, part) for part in rows]
    noise = BlockNoise(rows, blocks)
    return noise if noise.well_conditioned else None


def _blocks(S: Noise) -> list[IntArray]:
    """Rows of each block."""
    return places_of(connected_components(sparse.csr_array(S), directed=False)[1].astype(np.intp))


def places_of(labels: IntArray) -> list[IntArray]:
    """Places of each label, of labels from 0 on that all occur."""
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.cumsum(np.bincount(labels))[:-1])


def blocks_of_noise(matrix: Any, rows: IntArray) -> FloatArray:
    """Entries of blocks of these rows, shape (b, k, k)."""
    b, k = rows.shape
    first, second = np.repeat(rows, k, axis=1).ravel(), np.tile(rows, k).ravel()
    return np.asarray(matrix[first, second]).reshape(b, k, k)


def stacked_noise(parts: Sequence[Noise]) -> Noise:
    """Of the rows of several parts, one part after the other, each with noise of its own."""
    if all(S.ndim == 1 for S in parts):
        return np.concatenate(parts)
    if not all(isinstance(S, np.ndarray) for S in parts):
        blocks = [sparse.diags_array(S) if S.ndim == 1 else sparse.csr_array(S) for S in parts]
        return sparse.block_diag(blocks, format="csr")
    whole: FloatArray = block_diag(*[np.diag(S) if S.ndim == 1 else S for S in parts])
    return whole


# A design: a matrix, dense or sparse, a vector for a diagonal one, None for the identity.
Design = Any


@dataclass(frozen=True)
class Observations:
    r"""Rows :math:`v = A f + a + e`, :math:`e \sim N(0, S)`, of a vector f of p values.

    A row is a *point*, where v itself is known, or an *interval* that v lies in. A label 1 under a
    probit likelihood is the interval :math:`(0, \infty)`, a label 0 is :math:`(-\infty, 0)`, both
    with noise of variance 1.

    Attributes
    ----------
    A : ndarray or sparse array, shape (m, p); ndarray, shape (m,); or None
        Design. A vector is the diagonal of a square one. None is the identity. These two have
        m <= p rows, for the first m values of f.
    a : ndarray, shape (m,)
        Offset.
    S : ndarray, shape (m,) or (m, m), or sparse array, shape (m, m)
        Variances of the noise, or its covariance: sparse where it is one of many small blocks.
    lower, upper : ndarray, shape (m,)
        Limits of the intervals, infinities allowed; what they are at points has no meaning.
    value : ndarray, shape (m,)
        v at points; NaN at intervals.
    log_constant : float, default 0
        What the log probability of the data has beyond that of the rows, such as log of the orders
        in which trials may have come.
    """

    A: Design
    a: FloatArray
    S: Noise
    lower: FloatArray
    upper: FloatArray
    value: FloatArray
    log_constant: float = field(default=0.0, kw_only=True)

    @property
    def n_rows(self) -> int:
        """Number m of rows."""
        return self.value.size

    @cached_property
    def is_point(self) -> NDArray[np.bool_]:
        """Which rows are points, shape (m,)."""
        return ~np.isnan(self.value)

    @property
    def variances(self) -> FloatArray:
        """Of the noise, shape (m,)."""
        found: FloatArray = self.S if self.S.ndim == 1 else self.S.diagonal()
        return found

    def of(self, matrix: FloatArray) -> FloatArray:
        """A times an array with a row for each value of f."""
        return design_of(self.A, self.n_rows, matrix)

    def rows(self, chosen: Any) -> "Observations":
        """Only the rows that are `chosen`, for the same f, and no constant; see `noise_part`."""
        limits = (x[chosen] for x in (self.lower, self.upper, self.value))
        A, S = as_matrix(self.A, self.n_rows)[chosen], noise_part(self.S, chosen)
        return Observations(A, self.a[chosen], S, *limits)


def design_of(A: Design, n_rows: int, matrix: FloatArray) -> FloatArray:
    """A of so many rows times an array with a row for each value of f."""
    if A is None:
        return matrix[:n_rows]
    if isinstance(A, np.ndarray) and A.ndim == 1:
        leading = matrix[:n_rows]
        return A * leading if leading.ndim == 1 else A[:, None] * leading
    return np.asarray(A @ matrix[: A.shape[1]])


def points(value: FloatArray, noise: FloatArray, A: Design = None) -> Observations:
    """Rows that are points, with noise of these variances and no offset."""
    nowhere = np.full(value.size, np.nan)
    return Observations(A, np.zeros(value.size), noise, nowhere, nowhere, value)


def intervals(lower: FloatArray, upper: FloatArray, noise: Noise, A: Design = None) -> Observations:
    """Rows that are intervals, with noise of these variances or covariance, and no offset."""
    unknown = np.full(lower.size, np.nan)
    return Observations(A, np.zeros(lower.size), noise, lower, upper, unknown)


def stacked(parts: Sequence[Observations], sizes: Sequence[int] | None = None) -> Observations:
    """Rows of several parts, each of values of f of its own, one part after the other.

    The parts' f are stacked likewise, and `sizes` are their lengths. Without it only the last may
    leave out values at its end.
    """
    return parts[0] if len(parts) == 1 else joined(parts, _stacked_design(parts, sizes))


def joined(parts: Sequence[Observations], A: Design) -> Observations:
    """Rows of several parts, one part after the other, with the design of all of them."""
    names = ("a", "lower", "upper", "value")
    own = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    S, log_constant = stacked_noise([part.S for part in parts]), sum(x.log_constant for x in parts)
    return Observations(A=A, S=S, **own, log_constant=log_constant)


def as_matrix(A: Design, n_rows: int) -> Any:
    """A design as a sparse array, or as the dense one that it is."""
    if A is None:
        return sparse.eye_array(n_rows, format="csr")
    if isinstance(A, np.ndarray):
        return A if A.ndim == 2 else sparse.diags_array(A, format="csr")
    return A.tocsr()


def _stacked_design(parts: Sequence[Observations], sizes: Sequence[int] | None) -> Design:
    complete = sizes is None or all(
        part.n_rows == size for part, size in zip(parts[:-1], sizes, strict=False)
    )
    if complete and all(part.A is None for part in parts):
        return None
    if complete and all(part.A is None or part.A.ndim == 1 for part in parts):
        return np.concatenate([np.ones(p.n_rows) if p.A is None else p.A for p in parts])
    designs: list[Any] = [sparse.csr_array(as_matrix(p.A, p.n_rows)) for p in parts]
    for A, size in zip(designs, sizes or (), strict=sizes is not None):
        A.resize((A.shape[0], size))  # columns of zeros at its end
    return sparse.block_diag(designs, format="csr")


# Rows that repeat: equal intervals counted once, or made as often as they count.


def each_row(observations: Observations, counts: FloatArray) -> Observations:
    """Intervals that stand for so many each, with noise of their own, as so many rows."""
    index = np.repeat(np.arange(counts.size), counts.astype(np.intp))
    return replace(observations.rows(index), log_constant=observations.log_constant)


# Rows of a table that are equal, found by a hash.
#
# Tables of half a million rows often have many equal ones. These have equal features and equal
# sites, so that products over rows need only one of each.

MOST_DISTINCT = 0.5  # share of the rows, above which merging saves too little
_SEED = 6174  # of odd factors
_SHIFT = np.uint64(29)


class DistinctRows(NamedTuple):
    """Of n rows, one of each kind.

    Attributes
    ----------
    first : ndarray of int, shape (d,)
        The first row of each kind, in their order.
    kind : ndarray of int, shape (n,)
        Kind of each row.
    """

    first: IntArray
    kind: IntArray

    @property
    def counts(self) -> FloatArray:
        """How many rows there are of each kind, shape (d,)."""
        return np.bincount(self.kind, minlength=self.first.size).astype(np.float64)


def distinct_rows(columns: Sequence[Any], most: float = MOST_DISTINCT) -> DistinctRows | None:
    """Kinds of rows that are equal in all columns, of shape (n,) or (n, k); NaN equals NaN.

    None where more than this share of the rows are kinds of their own.
    """
    if not len(columns[0]):
        return None
    key = np.zeros(len(columns[0]), dtype=np.uint64)
    for i, column in enumerate(columns):
        key = _mixed(key, column.reshape(len(key), -1), i)
    _, first, kind = np.unique(key, return_index=True, return_inverse=True)
    if first.size > most * key.size:
        return None
    # Different rows with one key are next to impossible, but not impossible.
    if not all(np.array_equal(x, x[first[kind]], equal_nan=True) for x in columns):
        return None
    order = np.argsort(first)
    return DistinctRows(first[order], np.argsort(order)[kind])


def equal_rows(
    observations: Observations, columns: Sequence[FloatArray] = (), *, merge: bool = True
) -> DistinctRows:
    """Which intervals are equal, but for noise of their own; points are kinds of their own.

    `columns` are arrays, a row for each, in which they must be equal as well. All rows are kinds of
    their own where they share noise, or where not to `merge`.
    """
    m, every = observations.n_rows, np.arange(observations.n_rows)
    design = sparse.csr_array(as_matrix(observations.A, m))
    entries = np.diff(design.indptr)
    if observations.S.ndim == 2 or not merge or not m or (entries != entries[0]).any():
        return DistinctRows(every, every)
    design.sort_indices()
    rows = (design.indices.reshape(m, -1), design.data.reshape(m, -1), observations.S)
    # Points keep their place, and so differ from all other rows.
    place = np.where(observations.is_point, every, -1)
    limits = [
        np.where(observations.is_point, 0.0, x) for x in (observations.lower, observations.upper)
    ]
    found = distinct_rows([observations.a, *rows, *limits, place, *columns], most=1.0)
    return DistinctRows(every, every) if found is None else found


def one_of_each(X: FloatArray) -> IntArray:
    """The first of the rows of each kind; of next to no two rows that differ, one is left out."""
    key = _mixed(np.zeros(len(X), dtype=np.uint64), X, 0)
    return np.unique(key, return_index=True)[1]


def _mixed(key: NDArray[np.uint64], column: FloatArray, i: int) -> NDArray[np.uint64]:
    """A key that depends on these columns too."""
    factors = np.random.default_rng((_SEED, i)).integers(2**63, size=(column.shape[1], 2))
    for values, (odd, other) in zip(column.T, factors.astype(np.uint64), strict=True):
        bits = (np.ascontiguousarray(values, dtype=np.float64) + 0.0).view(np.uint64)
        key = (key ^ bits) * (odd | np.uint64(1)) + other
        key ^= key >> _SHIFT
    return key


# Rows between limits whose noise comes in blocks: log probabilities given f, and derivatives.
#
# The rows of one block have noise of covariance S. With d its least eigenvalue, S = d I + R R' and
#
# .. math:: p(\eta) = P(l < \eta + e < h) = \int N(z; 0, I) \prod_i m_i(\eta_i + R_i z) \, dz,
#
# with :math:`m_i(t)` the probability that t plus noise of variance d lies within the limits of row
# i. Its logarithm has the gradient :math:`E[g]` and the Hessian :math:`E[D + g g'] - E[g] E[g]'`,
# with g and D the first and second derivatives of :math:`\sum_i \log m_i`, and expectations under
# the normalised integrand. That is log-concave: nodes are laid around its mode.

_LEAST_LEFT = 1e-12  # of the variance of the noise, between limits that are close to each other
_LEAST_COLUMN = 1e-9  # of the variance: columns of R with less are none
_N_NODES = (1, 32, 16, 9, 7, 5)  # a dimension, for so many dimensions of z
_NEWTON_STEPS = 25
_NEWTON_TOLERANCE = 1e-8


@dataclass(frozen=True)
class RowSlopes:
    """Log likelihood of rows at their predictors, with its derivatives.

    Attributes
    ----------
    value : float
        The sum over all rows.
    gradient : ndarray, shape (m,)
    curvature : sparse array, shape (m, m)
        Minus the second derivatives.
    """

    value: float
    gradient: FloatArray
    curvature: sparse.csr_array


class RowsInBlocks:
    """Intervals in the order of their rows, with noise in blocks.

    Parameters
    ----------
    lower, upper : ndarray, shape (m,)
        Limits.
    noise : ndarray, shape (m,) or (m, m), or sparse array
        Variances of the noise, or its covariance.

    Raises
    ------
    ValueError
        For rows without noise, and for blocks of seven rows or more.
    """

    def __init__(self, lower: FloatArray, upper: FloatArray, noise: Noise) -> None:
        whole = sparse.csr_array(sparse.diags_array(noise) if noise.ndim == 1 else noise)
        by_size = rows_of_blocks(whole)
        largest = by_size[-1].shape[1]
        if largest > len(_N_NODES):
            raise ValueError(
                f"Laplace's approximation is for rows that share noise with at most "
                f"{len(_N_NODES) - 1} others, and {largest} of these observations share theirs: "
                "use EP."
            )
        self._blocks = [
            _Blocks(rows, lower[rows], upper[rows], blocks_of_noise(whole, rows))
            for rows in by_size
        ]
        self._size = lower.size

    def slopes(self, eta: FloatArray) -> RowSlopes:
        """Log likelihood and its derivatives at the predictors, shape (m,)."""
        value, gradient = 0.0, np.zeros(self._size)
        entries, at = [], []
        for block in self._blocks:
            log_p, own, hessian = block.slopes(eta[block.rows])
            value += float(log_p.sum())
            gradient[block.rows] = own
            k = block.rows.shape[1]
            entries.append(-hessian.ravel())
            at.append([np.repeat(block.rows, k, axis=1).ravel(), np.tile(block.rows, k).ravel()])
        coords = np.concatenate([np.array(pair) for pair in at], axis=1)
        shape = (self._size, self._size)
        curvature = sparse.csr_array((np.concatenate(entries), tuple(coords)), shape=shape)
        return RowSlopes(value, gradient, curvature)


class _Blocks:
    """Blocks of k rows each."""

    def __init__(
        self, rows: IntArray, lower: FloatArray, upper: FloatArray, covariance: FloatArray
    ) -> None:
        self.rows = rows
        values, vectors = np.linalg.eigh(covariance)
        largest = values[:, -1:]
        own = np.where(values[:, :1] > _LEAST_LEFT * largest, values[:, :1], 0.0)
        if not (own > 0).all():
            raise ValueError(
                "Laplace's approximation needs noise on every row, and some of these observations "
                "have none: use EP."
            )
        variance = np.broadcast_to(own, rows.shape).ravel()
        self._sites = RowSites(lower.ravel(), upper.ravel(), np.full(rows.size, np.nan), variance)
        wide = ((values - own) > _LEAST_COLUMN * largest).any(axis=0)
        root = np.sqrt(np.maximum(values - own, 0.0))[:, wide]
        self._shared = vectors[:, :, wide] * root[:, None]
        self._nodes, self._log_weights = _grid(int(wide.sum()))

    def slopes(self, eta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Log probability of each block, its gradient, (b, k), and its Hessian, (b, k, k)."""
        z, spread = self._around_the_mode(eta)
        # Nodes z + L x, (b, r, q), for each of which every row is evaluated.
        nodes = z[:, :, None] + spread @ self._nodes
        at = eta[:, :, None] + self._shared @ nodes
        log_m, first, second = self._masses(at)
        log_ratio = 0.5 * (self._nodes**2).sum(axis=0) - 0.5 * (nodes**2).sum(axis=1)
        log_det = np.log(np.abs(np.einsum("bii->bi", spread))).sum(axis=1)
        log_w = self._log_weights + log_ratio + log_m.sum(axis=1)
        log_p = logsumexp(log_w, axis=1)
        w = np.exp(log_w - log_p[:, None])
        gradient = np.einsum("bkq,bq->bk", first, w)
        hessian = np.einsum("bkq,blq,bq->bkl", first, first, w, optimize=True)
        hessian -= gradient[:, :, None] * gradient[:, None]
        np.einsum("bii->bi", hessian)[:] += np.einsum("bkq,bq->bk", second, w)
        return log_p + log_det, gradient, hessian

    def _masses(self, at: FloatArray) -> Any:
        """Log m of each row, its first and second derivative, at (b, k) or (b, k, q)."""
        flat = np.ascontiguousarray(at.reshape(self._sites.size, -1).T)
        found = self._sites.log_prob(slice(None), flat), *self._sites.slopes(slice(None), flat)
        return [x.T.reshape(at.shape) for x in found]

    def _around_the_mode(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mode of each integrand, (b, r), and a factor of the inverse of its curvature there."""
        z = np.zeros((eta.shape[0], self._shared.shape[2]))
        value = np.full(eta.shape[0], -np.inf)
        size = np.ones(eta.shape[0])
        step = np.zeros_like(z)
        for _ in range(_NEWTON_STEPS):
            trial = z + size[:, None] * step
            log_m, first, second = self._masses(eta + np.einsum("bkr,br->bk", self._shared, trial))
            found = log_m.sum(axis=1) - 0.5 * (trial**2).sum(axis=1)
            better = found >= value - 1e-12 * np.abs(value)
            size = np.where(better, 1.0, 0.5 * size)
            z = np.where(better[:, None], trial, z)
            value = np.where(better, found, value)
            slope = np.einsum("bkr,bk->br", self._shared, first) - trial
            curvature = np.einsum("bkr,bk,bks->brs", self._shared, -second, self._shared)
            curvature += np.eye(z.shape[1])
            newton = np.linalg.solve(curvature, slope[:, :, None])[:, :, 0]
            step = np.where(better[:, None], newton, step)
            if better.all() and (np.abs(step) < _NEWTON_TOLERANCE).all():
                break
        # curvature = L L': nodes L^-T x.
        chol = np.linalg.cholesky(curvature)
        return z, np.swapaxes(np.linalg.inv(chol), 1, 2)


@cache
def _grid(n_dims: int) -> tuple[FloatArray, FloatArray]:
    """Gauss-Hermite nodes, (n_dims, q), and log weights of a standard normal of so many dims."""
    if not n_dims:
        return np.zeros((0, 1)), np.zeros(1)
    nodes, weights = hermegauss(_N_NODES[n_dims])
    log_weights = np.log(weights / weights.sum())
    grid = np.array(list(product(nodes, repeat=n_dims))).T
    return grid, np.array(list(product(log_weights, repeat=n_dims))).sum(axis=1)
