"""Factorisations, the jitter policy, limits of rows, Anderson's acceleration, small matrices."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigvalsh, solve_triangular
from scipy.linalg.lapack import dpotrf, dpstrf

from pymc_skewgp._errors import JitterWarning, NotPositiveDefiniteError, warn
from pymc_skewgp._validation import FloatArray

# The jitter policy: where a Cholesky factorisation fails each variance is raised by this share of
# itself, smallest first, so that the units of the rows do not matter. Round-off in a kernel matrix
# is of the first kind; a matrix that needs more than the last is not a covariance, and is refused.
JITTER_LADDER = (1e-12, 1e-10, 1e-8, 1e-6)


def cholesky(name: str, matrix: FloatArray) -> tuple[FloatArray, float]:
    """Lower Cholesky factor of `matrix`, and the share added to its variances (0 as a rule).

    Raises
    ------
    NotPositiveDefiniteError
        When the largest jitter of the ladder is not enough; the message gives the smallest
        eigenvalue.

    Warns
    -----
    JitterWarning
        When jitter was added; the message says how much.
    """
    factor, info = dpotrf(matrix, lower=1, clean=1)
    if info == 0:
        return factor, 0.0
    variances = matrix.diagonal()
    for relative in JITTER_LADDER:
        shifted = matrix.copy(order="F")
        shifted[np.diag_indices_from(shifted)] += relative * np.abs(variances)
        factor, info = dpotrf(shifted, lower=1, clean=1, overwrite_a=1)
        if info == 0:
            warn(
                f"{name} is numerically singular: jitter, {relative:.0e} of its variances "
                f"({variances.min():.3g} to {variances.max():.3g}), was added to its diagonal.",
                JitterWarning,
                stacklevel=3,
            )
            return factor, relative
    smallest = float(eigvalsh(matrix, subset_by_index=[0, 0])[0])
    scale = float(np.mean(variances))
    raise NotPositiveDefiniteError(
        f"{name} is not positive definite: its smallest eigenvalue is {smallest:.3g} "
        f"(mean variance {scale:.3g}). Check how it was built; to accept it as it is, "
        f"add at least {max(-smallest, JITTER_LADDER[-1] * scale) * 1.01:.3g} to its diagonal."
    )


def low_rank_factor(matrix: FloatArray, rtol: float = 1e-13) -> FloatArray:
    """Factor F (n, r) with F F' = `matrix` up to `rtol` of its largest variance.

    Pivoted Cholesky (LAPACK ``dpstrf``) stops at the numerical rank r, in O(n^2 r); a positive
    semidefinite matrix is factored without jitter. A smooth kernel on n points has r << n.
    """
    tol = rtol * float(matrix.diagonal().max())
    # Of full rank plain Cholesky is several times faster; of low rank it fails soon.
    factor, info = dpotrf(matrix, lower=1, clean=1)
    if info == 0 and factor.diagonal().min() ** 2 > tol:
        return factor
    return pivoted_factor(matrix, rtol).columns


class PivotedFactor(NamedTuple):
    """F with F F' a covariance, r columns in the order of what they explain.

    Attributes
    ----------
    columns : ndarray, shape (n, r)
        F.
    pivots : ndarray of int, shape (r,)
        Rows of F that are a lower triangle, in this order.
    """

    columns: FloatArray
    pivots: NDArray[np.intp]

    @property
    def left(self) -> FloatArray:
        """The largest variance that the columns before each leave unexplained, shape (r,)."""
        return np.asarray(self.columns[self.pivots, np.arange(self.pivots.size)] ** 2)

    def coordinates(self, values: FloatArray) -> FloatArray:
        """The c with F c = `values`, shape (n,), in as many entries as F has rank."""
        triangle = self.columns[self.pivots]
        return solve_triangular(triangle, values[self.pivots], lower=True, check_finite=False)


def pivoted_factor(matrix: FloatArray, rtol: float = 1e-13) -> PivotedFactor:
    """Of a positive semidefinite matrix, at its numerical rank."""
    tol = rtol * float(matrix.diagonal().max(initial=0.0))
    # The transpose is the same matrix, in the order of LAPACK.
    factor, pivots, rank, _ = dpstrf(matrix.T, tol=tol, lower=1)
    rows = pivots.astype(np.intp) - 1
    columns = np.empty((matrix.shape[0], rank))
    columns[rows] = np.tril(factor[:, :rank])
    return PivotedFactor(columns, rows[:rank])


def mirrored(lower: FloatArray) -> FloatArray:
    """The symmetric matrix with this lower triangle, in place: what LAPACK leaves above is lost."""
    n = lower.shape[0]
    for start in range(0, n, 256):  # no temporary of the whole size
        stop = min(start + 256, n)
        block = lower[start:stop, start:stop]
        np.copyto(block, block.T.copy(), where=np.tri(stop - start, k=-1, dtype=bool).T)
        lower[start:stop, stop:] = lower[stop:, start:stop].T
    return lower


def symmetric(matrix: FloatArray) -> FloatArray:
    """`matrix`, or each of many, symmetric by construction, without asymmetry of its round-off."""
    return 0.5 * (matrix + matrix.swapaxes(-1, -2))


def squared_distances(p: FloatArray, q: FloatArray) -> FloatArray:
    """Of each row of p from each of q."""
    found = np.square(p).sum(axis=1)[:, None] + np.square(q).sum(axis=1) - 2.0 * p @ q.T
    return np.maximum(found, 0.0)


def grouped_products(a: FloatArray, b: FloatArray, group: int) -> FloatArray:
    """The product a' b of each `group` columns in a row; for one, the diagonal of the whole."""
    if group == 1:
        return np.asarray(np.einsum("ij,ij->j", a, b))
    shape = (a.shape[0], -1, group)
    return np.asarray(np.einsum("itk,itl->tkl", a.reshape(shape), b.reshape(shape), optimize=True))


# Anderson's acceleration of a fixed-point iteration.

# A difference that is so small a part of the others is their round-off.
_ROUND_OFF = 1e-8
_DEPTH = 5  # differences that are kept


class AndersonMixing:
    r"""Where the last steps of an iteration :math:`x \leftarrow g(x)` point to.

    With the differences :math:`\Delta G, \Delta F` of the last values and of :math:`f = g - x`,

    .. math:: g - \Delta G \, \gamma, \qquad
        \gamma = \arg\min \lVert D (f - \Delta F \, \gamma) \rVert,

    which is the secant method for one variable, and for a linear iteration does what GMRES does.

    References
    ----------
    .. [1] D. G. Anderson (1965), Iterative procedures for nonlinear integral equations, Journal of
       the ACM 12, doi:10.1145/321296.321305.
    .. [2] H. F. Walker & P. Ni (2011), Anderson acceleration for fixed-point iterations, SIAM
       Journal on Numerical Analysis 49, doi:10.1137/10078356X.

    Examples
    --------
    The cosine's fixed point, to which its plain iteration takes some fifty steps:

    >>> import numpy as np
    >>> from pymc_skewgp._gaussian.linalg import AndersonMixing
    >>> mixing, x = AndersonMixing(), np.array([1.0])
    >>> for _ in range(6):
    ...     x = mixing(x, np.cos(x), np.ones(1))
    >>> print(f"{x[0]:.8f}")
    0.73908513
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew: the last points say nothing of where it is now."""
        self._values: list[FloatArray] = []
        self._steps: list[FloatArray] = []

    def __call__(self, point: FloatArray, value: FloatArray, scale: FloatArray) -> FloatArray:
        """The next point, `value` itself at first; `scale` is the diagonal of D."""
        step = value - point
        self._values = [*self._values[-_DEPTH:], value]
        self._steps = [*self._steps[-_DEPTH:], step]
        if len(self._values) == 1:
            return value
        changes = np.diff(self._steps, axis=0) * scale
        share = np.linalg.lstsq(changes.T, step * scale, rcond=_ROUND_OFF)[0]
        return np.asarray(value - share @ np.diff(self._values, axis=0))


# Limits of a rectangle, one lower and one upper a row.


def row_limits(lower: ArrayLike, upper: ArrayLike, n_rows: int) -> tuple[FloatArray, FloatArray]:
    """Lower and upper limits as arrays of length `n_rows`; a number stands for all rows."""
    low, high = (np.asarray(x, dtype=np.float64) for x in (lower, upper))
    return (low if low.ndim else np.full(n_rows, low), high if high.ndim else np.full(n_rows, high))


# Algebra of many matrices of one or two rows, entry by entry in whole arrays; of more by NumPy.
#
# A call of LAPACK or matmul for each matrix was most of what EP took under factors of two
# predictors. Entries are what is contiguous in the results.

_SMALL = 2  # rows that go entry by entry


def _entries(like: FloatArray, *size: int) -> FloatArray:
    """Nothing yet, of shape (..., *size), where `like` is one entry of all."""
    return _last(np.empty((*size, *like.shape)), len(size))


def _last(found: FloatArray, n: int) -> FloatArray:
    """With the first n axes last."""
    return found.transpose(*range(n, found.ndim), *range(n))


def eigh(matrices: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Ascending eigenvalues, and eigenvectors as columns, of symmetric matrices."""
    if matrices.shape[-1] != 2:
        values, vectors = np.linalg.eigh(matrices)
        return values, vectors
    a, b, c = matrices[..., 0, 0], matrices[..., 1, 0], matrices[..., 1, 1]
    middle, half = 0.5 * (a + c), 0.5 * (a - c)
    radius, angle = np.hypot(half, b), 0.5 * np.arctan2(b, half)
    values, vectors = _entries(a, 2), _entries(a, 2, 2)
    values[..., 0], values[..., 1] = middle - radius, middle + radius
    vectors[..., 0, 1] = vectors[..., 1, 0] = np.cos(angle)
    vectors[..., 1, 1] = np.sin(angle)
    vectors[..., 0, 0] = -vectors[..., 1, 1]
    return values, vectors


def inverse(matrices: FloatArray) -> FloatArray:
    """Of regular matrices."""
    k = matrices.shape[-1]
    if k > _SMALL:
        return np.linalg.inv(matrices)
    if k == 1:
        return 1.0 / matrices
    over, found = 1.0 / _determinant(matrices), _entries(matrices[..., 0, 0], 2, 2)
    for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
        sign = 1.0 if i == j else -1.0
        found[..., i, j] = sign * over * matrices[..., 1 - j, 1 - i]
    return found


def _determinant(matrices: FloatArray) -> FloatArray:
    if matrices.shape[-1] == 1:
        return matrices[..., 0, 0]
    found = matrices[..., 0, 0] * matrices[..., 1, 1] - matrices[..., 0, 1] * matrices[..., 1, 0]
    return np.asarray(found)


def log_size(matrices: FloatArray) -> FloatArray:
    """Log of the absolute determinant."""
    if matrices.shape[-1] > _SMALL:
        return np.linalg.slogdet(matrices)[1]
    return np.log(np.abs(_determinant(matrices)))


def cholesky_of_many(matrices: FloatArray) -> FloatArray:
    """Lower triangles.

    Raises
    ------
    numpy.linalg.LinAlgError
        Where one is not positive definite.
    """
    k = matrices.shape[-1]
    if k > _SMALL:
        return np.linalg.cholesky(matrices)
    found = _entries(matrices[..., 0, 0], k, k)
    with np.errstate(all="ignore"):
        found[..., 0, 0] = first = np.sqrt(matrices[..., 0, 0])
        if k == 2:
            found[..., 0, 1] = 0.0
            found[..., 1, 0] = across = matrices[..., 1, 0] / first
            found[..., 1, 1] = np.sqrt(matrices[..., 1, 1] - across**2)
    if not (found.diagonal(axis1=-2, axis2=-1) > 0.0).all():
        raise np.linalg.LinAlgError("Matrix is not positive definite")
    return found


def product(a: FloatArray, b: FloatArray) -> FloatArray:
    """Of square matrices, each with its own."""
    k = a.shape[-1]
    if k > _SMALL:
        return np.asarray(a @ b)
    found = _entries(a[..., 0, 0], k, k)
    for i in range(k):
        for j in range(k):
            found[..., i, j] = _sum_of_products(a[..., i, :], b[..., :, j])
    return found


def _sum_of_products(a: FloatArray, b: FloatArray) -> FloatArray:
    total = a[..., 0] * b[..., 0]
    for i in range(1, a.shape[-1]):
        total += a[..., i] * b[..., i]
    return total


def times(matrices: FloatArray, vectors: FloatArray) -> FloatArray:
    """Of each: (n, k, m) times (..., n, m)."""
    k, m = matrices.shape[-2:]
    if max(k, m) > _SMALL:
        return np.asarray((matrices @ vectors[..., None])[..., 0])
    return _last(np.array([_sum_of_products(matrices[..., i, :], vectors) for i in range(k)]), 1)
