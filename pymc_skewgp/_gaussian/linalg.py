"""Factorisations and the one jitter policy; limits of rows; Anderson's acceleration."""

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
        found: FloatArray = self.columns[self.pivots, np.arange(self.pivots.size)] ** 2
        return found

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
        block[:] = np.tril(block) + np.tril(block, -1).T
        lower[start:stop, stop:] = lower[stop:, start:stop].T
    return lower


def symmetric(matrix: FloatArray) -> FloatArray:
    """`matrix`, symmetric by construction, without the asymmetry of its round-off."""
    return 0.5 * (matrix + matrix.T)


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
        mixed: FloatArray = value - share @ np.diff(self._values, axis=0)
        return mixed


# Limits of a rectangle, one lower and one upper a row.


def row_limits(lower: ArrayLike, upper: ArrayLike, n_rows: int) -> tuple[FloatArray, FloatArray]:
    """Lower and upper limits as arrays of length `n_rows`; a number stands for all rows."""
    low, high = (np.asarray(x, dtype=np.float64) for x in (lower, upper))
    return (low if low.ndim else np.full(n_rows, low), high if high.ndim else np.full(n_rows, high))
