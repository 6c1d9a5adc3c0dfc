r"""Gaussians by their sparse precision: a factor, draws, and the covariances of predictors.

A field c has the density :math:`\exp(b^\top c - \tfrac12 c^\top Q c)`, Q sparse, and predictors
:math:`\eta = A c` of few entries each. Under sites of precisions T EP's Gaussian of c has the
precision :math:`P = Q + A^\top T A`, whose Cholesky factor R is sparse as well. Marginals of the
predictors, and derivatives in Q, ask for entries of :math:`P^{-1}` where R has some, and no others.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from pymc_skewgp._errors import NotPositiveDefiniteError
from pymc_skewgp._gaussian.compiled.rows import jit, jit_inner
from pymc_skewgp._gaussian.coordinate_gaussian import CoordinateGaussian
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray

_UNBOUNDED = (
    "the precision of the field is not positive definite: its density and the data leave some "
    "direction unbounded, or pull it apart."
)


class SparseCholesky:
    """R with P = R R', rows and columns in an order that leaves few entries.

    Parameters
    ----------
    precision : csc_array, shape (d, d)
        P, with both triangles.
    known : Elimination, optional
        What is known of P's pattern: entries that are 0 by chance count, which the inverse needs.
        By default an order is looked for by SciPy's SuperLU, without pivoting, whose factors of a
        symmetric matrix are L and D L', and those entries that it keeps are all.

    Attributes
    ----------
    log_det : float
        Of P.
    place : ndarray of int, shape (d,)
        Of each entry in the order.
    n_sums : int
        See `draw_part`.

    Raises
    ------
    NotPositiveDefiniteError
    """

    n_sums = 0
    place: IntArray
    rows: Any

    def __init__(self, precision: Any, known: "Elimination | None" = None) -> None:
        if known is None:
            self._by_superlu(precision)
        else:
            self.place, self.starts, self.rows = known[:3]
            self.values = np.zeros(self.rows.size)
            self.values[known.where] = precision.data[known.lower]
            try:
                _factorise(self.starts, self.rows, self.values)
            except np.linalg.LinAlgError:
                raise NotPositiveDefiniteError(_UNBOUNDED) from None
        self.log_det = 2.0 * float(np.log(self.values[self.starts[:-1]]).sum())

    def _by_superlu(self, precision: Any) -> None:
        try:
            found = splu(
                sparse.csc_matrix(precision),
                permc_spec="MMD_AT_PLUS_A",
                diag_pivot_thresh=0.0,
                options={"SymmetricMode": True},
            )
            pivots = found.U.diagonal()
        except RuntimeError:  # exactly singular
            pivots = np.zeros(1)
        if not (pivots > 0.0).all() or (found.perm_r != found.perm_c).any():
            raise NotPositiveDefiniteError(_UNBOUNDED)
        lower, self.place = found.L, found.perm_c.astype(np.intp)
        del found  # which has U, and both once more
        lower.sort_indices()
        self.rows, self.starts = lower.indices, lower.indptr.astype(np.intp)
        self.values = lower.data
        self.values *= np.repeat(np.sqrt(pivots), np.diff(self.starts))

    def solve(self, x: FloatArray) -> FloatArray:
        """P^-1 x."""
        found = np.empty((self.place.size, x.size // self.place.size))
        found[self.place] = x.reshape(found.shape)
        _solve(self.starts, self.rows, self.values, found)
        self.draw_part(found, 0, len(found))
        return found[self.place].reshape(x.shape)

    def __matmul__(self, white: FloatArray) -> FloatArray:
        """A root of P^-1 times columns: draws of N(0, P^-1) from standard normal ones."""
        found = np.concatenate([white, np.zeros((self.n_sums, white.shape[1]))])
        self.draw_part(found, 0, len(white))
        return found[self.place]

    def draw_part(self, draws: FloatArray, first: int, stop: int) -> None:
        """Draws in the order, in place, from `stop` down to `first`, where they are white so far.

        Those from `stop` on are known; the `n_sums` rows after all of them are of the caller's, 0
        at first.
        """
        _solve_transposed(self.starts, self.rows, self.values, draws, first, stop)

    @cached_property
    def _inverse(self) -> FloatArray:
        found = np.empty(self.values.size)
        _selected_inverse(self.starts, self.rows, self.values, found)
        return found

    def entries(self, rows: IntArray, columns: IntArray) -> FloatArray:
        """Entries of P^-1, where R or P has some."""
        found = np.empty(rows.size, dtype=np.intp)
        _find(self.starts, self.rows, self.place[rows], self.place[columns], found)
        return self._inverse[found]

    def covariances(self, columns: IntArray, starts: IntArray, values: FloatArray) -> FloatArray:
        """Of each entry A_ij, row by row, c_j's covariance with predictor i; `starts` of rows."""
        found, known = np.empty(values.size), (self.starts, self.rows, self._inverse)
        _covariances(*known, self.place[columns], starts, values, found)
        return found


class Elimination(NamedTuple):
    """An order in which to eliminate, and where R has entries then.

    Attributes
    ----------
    place : ndarray of int, shape (d,)
        See `SparseCholesky`.
    starts, rows : ndarray of int
        Of R's columns; of all entries that may be other than 0.
    lower, where : ndarray of int
        P's entries that are below the diagonal then, and where they are in R.
    """

    place: IntArray
    starts: IntArray
    rows: IntArray
    lower: IntArray
    where: IntArray


class TiedCholesky:
    r"""The same of P + U'DU, U of few rows without zeros, as of a field whose sum is held at 0.

    With :math:`V = P^{-1} U^\top` and :math:`S = (D + U V)^{-1}` the inverse is
    :math:`P^{-1} - V S V^\top` (Woodbury), and with :math:`B = R^\top V` draws are
    :math:`R^{-\top} v`, :math:`v \sim N(0, I - B S B^\top)`. Part J of v given those after it, K,
    has the mean :math:`-B_J M B_K^\top v_K` and the covariance :math:`I - B_J M B_J^\top`, with
    :math:`M = (S^{-1} - B_K^\top B_K)^{-1}`.

    Parameters
    ----------
    chol : SparseCholesky
        Of P.
    ties : ndarray, shape (k, d)
        U.
    signs : ndarray, shape (k,)
        The diagonal of D, of 1 and -1.

    Raises
    ------
    NotPositiveDefiniteError
    """

    def __init__(self, chol: SparseCholesky, ties: FloatArray, signs: FloatArray) -> None:
        self._chol, self._ties = chol, ties
        self._moved = chol.solve(ties.T.copy())
        inner = np.diag(signs) + ties @ self._moved
        if (np.sort(np.sign(np.linalg.eigvalsh(inner))) != np.sort(signs)).any():  # by inertia
            raise NotPositiveDefiniteError(_UNBOUNDED)
        self._inner, self._left = inner, np.linalg.inv(inner)
        self.place, self.n_sums = chol.place, signs.size
        self.log_det = chol.log_det + float(np.linalg.slogdet(inner)[1])

    def solve(self, x: FloatArray) -> FloatArray:
        """See `SparseCholesky`."""
        found = self._chol.solve(x)
        return found - self._moved @ (self._left @ (self._ties @ found))

    __matmul__ = SparseCholesky.__matmul__

    @cached_property
    def _root_moved(self) -> FloatArray:
        """B."""
        chol, in_order = self._chol, np.empty_like(self._moved)
        in_order[chol.place] = self._moved
        R = sparse.csc_array((chol.values, chol.rows, chol.starts), shape=(len(in_order),) * 2)
        return np.asarray(R.T @ in_order)

    def draw_part(self, draws: FloatArray, first: int, stop: int) -> None:
        """See `SparseCholesky`."""
        own, later = self._root_moved[first:stop], self._root_moved[stop:]
        left = np.linalg.inv(self._inner - later.T @ later)
        white, sums = draws[first:stop], draws[len(self._moved) :]
        across, length = np.linalg.qr(own)
        values, vectors = np.linalg.eigh(length @ left @ length.T)
        short = (vectors * (1.0 - np.sqrt(np.maximum(1.0 - values, 0.0)))) @ vectors.T
        white -= across @ (short @ (across.T @ white)) + own @ (left @ sums)
        sums += own.T @ white
        self._chol.draw_part(draws, first, stop)

    def entries(self, rows: IntArray, columns: IntArray) -> FloatArray:
        """See `SparseCholesky`."""
        found = self._chol.entries(rows, columns)
        left, right = self._moved[rows] @ self._left, self._moved[columns]
        return np.asarray(found - np.einsum("ij,ij->i", left, right))

    def covariances(self, columns: IntArray, starts: IntArray, values: FloatArray) -> FloatArray:
        """See `SparseCholesky`."""
        found = self._chol.covariances(columns, starts, values)
        row = np.repeat(np.arange(starts.size - 1), np.diff(starts))
        A = sparse.csr_array((values, columns, starts), shape=(starts.size - 1, len(self._moved)))
        seen = (A @ self._moved @ self._left)[row]
        return np.asarray(found - np.einsum("ij,ij->i", seen, self._moved[columns]))


class FieldPattern:
    """Where A and Q have entries, and what of them makes which entry of P = Q + A'TA.

    Parameters
    ----------
    of_design, of_precision : ndarray of int, shape (2, m) and (2, q)
        Rows and columns: those of A by row, of Q each entry of both triangles.
    shape : tuple of int
        Of A.
    """

    def __init__(self, of_design: IntArray, of_precision: IntArray, shape: tuple[int, int]) -> None:
        n, d = self.shape = shape
        self.of_design, self.of_precision = of_design, of_precision
        self.rows, self.columns = of_design
        self.starts = np.searchsorted(self.rows, np.arange(n + 1))
        first, second = _pairs_in_rows(self.starts)
        i, j = self.columns[first], self.columns[second]
        own = of_precision[1] * d + of_precision[0], np.arange(d) * (d + 1), j * d + i
        keys, place = np.unique(np.concatenate(own), return_inverse=True)
        self._of_precision, _, products = np.split(place, np.cumsum([len(x) for x in own[:2]]))
        self._products = products, first, second
        self._entries = keys % d, np.searchsorted(keys // d, np.arange(d + 1))
        self._less: tuple[Any, FieldPattern] | None = None

    def is_of(self, of_design: IntArray, of_precision: IntArray) -> bool:
        """Whether these are the same places."""
        pairs = (self.of_design, of_design), (self.of_precision, of_precision)
        return all(np.array_equal(a, b) for a, b in pairs)

    def design(self, values: FloatArray) -> Any:
        """A."""
        return sparse.csr_array((values, self.columns, self.starts), shape=self.shape)

    def precision(self, values: FloatArray) -> Any:
        """Q, with places for what is added to it."""
        return self._matrix(self._sums(self._of_precision, values))

    def gram(self, values: FloatArray, tau: FloatArray) -> FloatArray:
        """Entries of A'TA, where P has some."""
        place, first, second = self._products
        return self._sums(place, values[first] * values[second] * tau[self.rows[first]])

    def added(self, precision: Any, gram: FloatArray) -> Any:
        """Q, as `precision` has it, and A'TA."""
        return self._matrix(precision.data + gram)

    @cached_property
    def _elimination(self) -> Elimination:
        """By a matrix that leaves no entries at 0."""
        dominant = self._matrix(-np.ones(self._entries[0].size))
        dominant.setdiag(np.diff(dominant.indptr) + 1.0)
        found = SparseCholesky(dominant)
        i, j = found.place[dominant.indices], np.repeat(found.place, np.diff(dominant.indptr))
        lower = np.flatnonzero(i >= j)
        where = np.empty(lower.size, dtype=np.intp)
        _find(found.starts, found.rows, i[lower], j[lower], where)
        return Elimination(found.place, found.starts, found.rows, lower, where)

    def factorised(self, precision: Any) -> SparseCholesky:
        """Of a matrix with these entries."""
        return SparseCholesky(precision, self._elimination)

    @cached_property
    def alone(self) -> Any:
        """Whether a column is in one row alone, the first such one there, and has no other in Q."""
        d, (i, j) = self.shape[1], self.of_precision
        found = np.bincount(self.columns, minlength=d) == 1
        found[i[i != j]] = False
        entries = np.flatnonzero(found[self.columns])
        others = np.delete(entries, np.unique(self.rows[entries], return_index=True)[1])
        found[self.columns[others]] = False
        return found

    def without(self, columns: Any) -> "FieldPattern":
        """Of the other columns, the rows as they are."""
        if self._less is None or (self._less[0] != columns).any():
            i, j = self.of_precision
            place, kept = np.cumsum(~columns) - 1, ~(columns[i] | columns[j])
            known = self.rows, place[self.columns]
            of_design = np.stack(known)[:, ~columns[self.columns]]
            shape = self.shape[0], int(place[-1]) + 1
            self._less = columns, FieldPattern(of_design, place[self.of_precision[:, kept]], shape)
        return self._less[1]

    def n_operations(self) -> float:
        """To factorise P: the sum of the squared lengths of R's columns."""
        lengths = np.diff(self._elimination.starts).astype(np.float64)
        return float(lengths @ lengths)

    def _sums(self, place: IntArray, values: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(place, values, minlength=self._entries[0].size))

    def _matrix(self, data: FloatArray) -> Any:
        return sparse.csc_array((data, *self._entries), shape=(self.shape[1],) * 2)


def _pairs_in_rows(starts: IntArray) -> tuple[IntArray, IntArray]:
    """All pairs of entries of one row, both orders and each with itself."""
    lengths = np.diff(starts)
    first = np.repeat(np.arange(starts[-1]), np.repeat(lengths, lengths))
    ends = np.cumsum(lengths**2)
    within = np.arange(first.size) - np.repeat(ends - lengths**2, lengths**2)
    row = np.repeat(np.arange(lengths.size), lengths**2)
    return first, starts[row] + within % lengths[row]


class FieldPrior(NamedTuple):
    """The density exp(b'c - c'(Q + U'U)c / 2), times (2 pi)^(-d/2).

    Attributes
    ----------
    pattern : FieldPattern
    precision : csc_array, shape (d, d)
    slope : ndarray, shape (d,)
    ties : ndarray, shape (k, d)
        U.
    """

    pattern: FieldPattern
    precision: Any
    slope: FloatArray
    ties: FloatArray

    @classmethod
    def centred(cls, pattern: FieldPattern, values: FloatArray) -> "FieldPrior":
        """About 0, of these entries of Q."""
        d = pattern.shape[1]
        return cls(pattern, pattern.precision(values), np.zeros(d), np.zeros((0, d)))

    def without(self, columns: Any) -> "FieldPrior":
        """Of the other coordinates, which are independent of these."""
        kept, pattern = np.flatnonzero(~columns), self.pattern.without(columns)
        i, j = kept[pattern.of_precision]
        values = pattern.precision(np.asarray(self.precision[i, j]).ravel())
        return FieldPrior(pattern, values, self.slope[kept], self.ties[:, kept])

    def refuse_improper(self) -> None:
        """Raise NotPositiveDefiniteError where Q is no precision; not with ties, which may help."""
        if not len(self.ties):
            self.pattern.factorised(self.precision)

    def log_prob(self, c: FloatArray) -> float:
        """Of one c, but for the power of 2 pi."""
        tied = self.ties @ c
        return float(self.slope @ c) - 0.5 * float(c @ (self.precision @ c) + tied @ tied)

    def times(self, sums: Any) -> "FieldGaussian":
        """With sites of these sums; see `SiteSums`."""
        P, k = self.pattern.added(self.precision, sums.gram), len(self.ties)
        chol: Any
        if k:  # without them the level may be unbounded: one entry of each is held meanwhile
            diagonal, held = P.diagonal(), (self.ties != 0.0).argmax(axis=1)
            holds = np.zeros(self.ties.shape)
            holds[np.arange(k), held] = np.sqrt(diagonal[held])
            P.setdiag(diagonal + (holds**2).sum(axis=0))
            ties, signs = np.concatenate([self.ties, holds]), np.repeat([1.0, -1.0], k)
            chol = TiedCholesky(self.pattern.factorised(P), ties, signs)
        else:
            chol = self.pattern.factorised(P)
        mean = chol.solve(self.slope + sums.pull)
        return FieldGaussian(mean, chol, prior=self, sums=sums)


@dataclass(frozen=True)
class FieldGaussian(CoordinateGaussian):
    """N(mean, P^-1) of a field, with the prior and the sums of the sites that it is made of."""

    chol: Any
    prior: FieldPrior = field(kw_only=True)
    sums: Any = field(kw_only=True)

    @property
    def spread(self) -> Any:
        """A root of the covariance, for products from the left."""
        return self.chol

    @property
    def half_log_det(self) -> float:
        """Half of log |P|."""
        return 0.5 * self.chol.log_det

    def log_integral(self, pull: FloatArray) -> float:
        """Of the prior times the sites that `pull` is the linear term of."""
        return 0.5 * float((self.prior.slope + pull) @ self.mean) - self.half_log_det

    def squared_length(self, pull: FloatArray) -> float:
        """Of the step that sites' `pull` makes, in deviations."""
        return float(pull @ self.chol.solve(pull))


# Loops over the columns of R: solves, R itself, and parts of P^-1.

_SOLVED = 48  # rows at a time, by those before them
_SHORT = 8  # entries below the diagonal up to which a column alone is faster as it is


@jit()
def _solve(starts, rows, values, x):  # type: ignore[no-untyped-def]
    """Solve R y = x in place, x of shape (d, N)."""
    for j in range(starts.size - 1):
        for k in range(x.shape[1]):
            x[j, k] /= values[starts[j]]
        for t in range(starts[j] + 1, starts[j + 1]):
            for k in range(x.shape[1]):
                x[rows[t], k] -= values[t] * x[j, k]


@jit()
def _solve_transposed(starts, rows, values, x, first, stop):  # type: ignore[no-untyped-def]
    """Solve R' y = x in place from row `stop` down to `first`, x of shape (d, N).

    Rows from `stop` on hold y already. The diagonal comes first in each column.
    """
    for j in range(stop - 1, first - 1, -1):
        for t in range(starts[j] + 1, starts[j + 1]):
            for k in range(x.shape[1]):
                x[j, k] -= values[t] * x[rows[t], k]
        for k in range(x.shape[1]):
            x[j, k] /= values[starts[j]]


@jit_inner()
def _found(starts, rows, i, j):  # type: ignore[no-untyped-def]
    """Where one entry is, by bisection in the column of the smaller index."""
    column, row = min(i, j), max(i, j)
    low, high = starts[column], starts[column + 1]
    while low < high:
        middle = (low + high) // 2
        if rows[middle] < row:
            low = middle + 1
        else:
            high = middle
    return low


@jit_inner()
def _last_alike(starts, rows, first):  # type: ignore[no-untyped-def]
    """The last of the columns from `first` on with entries in the same rows below themselves."""
    last = first
    while last + 2 < starts.size and starts[last + 1] - starts[last] > 1:
        if rows[starts[last] + 1] != last + 1:
            break
        if starts[last + 1] - starts[last] != starts[last + 2] - starts[last + 1] + 1:
            break
        last += 1
    return last


@jit_inner()
def _firsts(starts, rows):  # type: ignore[no-untyped-def]
    """Of each column the first that is alike."""
    found, first = np.empty(starts.size - 1, dtype=np.int64), 0
    while first < found.size:
        stop = _last_alike(starts, rows, first) + 1
        found[first:stop] = first
        first = stop
    return found


@jit_inner()
def _where(starts, rows, firsts, below, place, out):  # type: ignore[no-untyped-def]
    """Where the entries of some rows and columns are, into the upper triangle of `out`."""
    c = 0
    while c < below.size:
        first = last = firsts[below[c]]
        while last + 1 < firsts.size and firsts[last + 1] == first:
            last += 1
        for i in range(starts[first], starts[first + 1]):
            place[rows[i]] = i - starts[first]
        while c < below.size and below[c] <= last:
            start = starts[below[c]] + first - below[c]
            for i in range(c, below.size):
                out[c, i] = start + place[below[i]]
            c += 1


@jit()
def _factorise(starts, rows, values):  # type: ignore[no-untyped-def]
    """From the lower triangle of P to R, in place; LinAlgError where P is not positive definite.

    Columns that are alike, J, are taken together: R_JJ, then R_KJ in the rows K below them, and
    R_KJ R_KJ' is taken off what is left.
    """
    firsts, place, first = _firsts(starts, rows), np.empty(starts.size, dtype=np.int64), 0
    while first < firsts.size:
        last = _last_alike(starts, rows, first)
        width, k = last - first + 1, starts[last + 1] - starts[last] - 1
        if width == 1 and k <= _SHORT:  # as of chains: nothing is copied
            column = starts[first]
            if not values[column] > 0.0:
                raise np.linalg.LinAlgError("not positive definite")
            values[column] = np.sqrt(values[column])
            for t in range(column + 1, column + 1 + k):
                values[t] /= values[column]
            for t in range(column + 1, column + 1 + k):
                for s in range(t, column + 1 + k):
                    values[_found(starts, rows, rows[s], rows[t])] -= values[s] * values[t]
            first += 1
            continue
        own, below = np.zeros((width, width)), np.empty((width, k))
        for c in range(width):
            column = starts[first + c]
            own[c:, c] = values[column : column + width - c]
            below[c] = values[column + width - c : column + width - c + k]
        own = np.ascontiguousarray(np.linalg.cholesky(own))
        for b in range(0, width, _SOLVED):
            stop = min(b + _SOLVED, width)
            if b:
                below[b:stop] -= np.dot(np.ascontiguousarray(own[b:stop, :b]), below[:b])
            for c in range(b, stop):
                for e in range(b, c):
                    below[c] -= own[c, e] * below[e]
                below[c] /= own[c, c]
        for c in range(width):
            column = starts[first + c]
            values[column : column + width - c] = own[c:, c]
            values[column + width - c : column + width - c + k] = below[c]
        if k:
            known, where = rows[starts[last] + 1 : starts[last + 1]], np.empty((k, k), np.int32)
            _where(starts, rows, firsts, known, place, where)
            square = np.dot(below.T, below)
            for c in range(k):
                for i in range(c, k):
                    values[where[c, i]] -= square[c, i]
        first = last + 1


@jit()
def _selected_inverse(starts, rows, values, out):  # type: ignore[no-untyped-def]
    """Entries of P^-1 where R has entries, into `out`, from the last columns to the first.

    Columns J with entries in the same rows K below them are taken together. With
    Y = R_KJ R_JJ^-1, of Z = P^-1 the block Z_KJ is -Z_KK Y, and Z_JJ = (R_JJ R_JJ')^-1 + Y' Z_KK Y:
    all that this needs has been found before (Takahashi, Fagan & Chin 1973; Erisman & Tinney 1975,
    doi:10.1145/360680.360704).
    """
    firsts, place = _firsts(starts, rows), np.empty(starts.size, dtype=np.int64)
    last = starts.size - 2
    while last >= 0:
        first, k = firsts[last], starts[last + 1] - starts[last] - 1
        if first == last and k <= _SHORT:
            column = starts[first]
            out[column] = 1.0 / values[column] ** 2
            for t in range(column + 1, column + 1 + k):
                total = 0.0
                for s in range(column + 1, column + 1 + k):
                    total += out[_found(starts, rows, rows[t], rows[s])] * values[s]
                out[t] = -total / values[column]
                out[column] -= out[t] * values[t] / values[column]
            last -= 1
            continue
        width, below = last - first + 1, rows[starts[last] + 1 : starts[last + 1]]
        known, where = np.empty((k, k)), np.empty((k, k), np.int32)
        _where(starts, rows, firsts, below, place, where)
        for c in range(k):
            for i in range(c, k):
                known[c, i] = out[where[c, i]]
        for c in range(k):
            for i in range(c):
                known[c, i] = known[i, c]
        # Y', and beside it the inverse of R_JJ'.
        solved, root = np.zeros((width, k + width)), np.zeros((width, width))
        for c in range(width):
            column = starts[first + c]
            root[c, c:] = values[column : column + width - c]
            solved[c, :k] = values[column + width - c : column + width - c + k]
            solved[c, k + c] = 1.0
        for stop in range(width, 0, -_SOLVED):
            b = max(stop - _SOLVED, 0)
            if stop < width:
                solved[b:stop] -= np.dot(np.ascontiguousarray(root[b:stop, stop:]), solved[stop:])
            for c in range(stop - 1, b - 1, -1):
                for e in range(c + 1, stop):
                    solved[c] -= root[c, e] * solved[e]
                solved[c] /= root[c, c]
        ratio = np.ascontiguousarray(solved[:, :k])
        inverse = np.ascontiguousarray(solved[:, k:])
        moved = np.dot(ratio, known)
        own = np.dot(inverse, inverse.T) + np.dot(moved, ratio.T)
        for c in range(width):
            column = starts[first + c]
            out[column : column + width - c] = own[c, c:]
            out[column + width - c : column + width - c + k] = -moved[c]
        last = first - 1


@jit()
def _find(starts, rows, i, j, out):  # type: ignore[no-untyped-def]
    """Where entries are, into `out`."""
    for k in range(i.size):
        out[k] = _found(starts, rows, i[k], j[k])


@jit()
def _covariances(starts, rows, inverse, where, first, values, out):  # type: ignore[no-untyped-def]
    """Of each entry A_ij the covariance of c_j with the predictor A_i c, into `out`.

    Entries of row i are first[i] to first[i + 1], of the variables `where` in the order of R.
    """
    for i in range(first.size - 1):
        for s in range(first[i], first[i + 1]):
            total = 0.0
            for t in range(first[i], first[i + 1]):
                total += values[t] * inverse[_found(starts, rows, where[s], where[t])]
            out[s] = total
