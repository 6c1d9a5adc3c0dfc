"""What a covariance G can do, whatever its structure: dense, low rank, repeated, noise.

A site is exp(-tau u^2 / 2 + nu u). The product with N(0, G) has covariance
S = (G^-1 + T)^-1 and mean m = S nu, with T = diag(tau). Expectation propagation asks for the
diagonal of S, m and the normalising constant at every sweep, the twisted sampler for all of S once.
"""

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs, dtrtri, dtrtrs

from pymc_skewgp._errors import NotPositiveDefiniteError
from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray


class SiteProduct(NamedTuple):
    """Marginals of N(0, G) times Gaussian sites."""

    mean: FloatArray
    variance: FloatArray
    log_constant: float  # log of the integral of N(u; 0, G) prod exp(-tau u^2/2 + nu u)
    weights: FloatArray  # G^-1 mean
    log_det: float  # of I + G T


# Noise of rows, independent or shared in small blocks, and what Gaussian sites leave of it.
#
# Sites of precisions T shrink a noise covariance S to (S^-1 + T)^-1 = Q S with Q = (I + S T)^-1,
# row by row or block by block. Written so, S may be singular. S, Q, Q S and T Q are matrices of one
# form.

# Of a row's variance: blocks with a smaller squared pivot lose digits when they are inverted.
_LEAST_PIVOT = 1e-6


class IndependentNoise:
    """Each row has noise of its own, or what sites make of it: a diagonal matrix.

    Parameters
    ----------
    variances : ndarray, shape (n,)
        >= 0.
    """

    def __init__(self, variances: FloatArray) -> None:
        self.variances = variances

    def multiply(self, x: FloatArray) -> FloatArray:
        """S x."""
        return self.variances * x if x.ndim == 1 else self.variances[:, None] * x

    def back(self, x: FloatArray) -> FloatArray:
        """S' x."""
        return self.multiply(x)

    def inverse(self) -> "IndependentNoise":
        """S^-1; 0 in rows without noise."""
        noisy = self.variances > 0
        return IndependentNoise(np.where(noisy, 1.0 / np.where(noisy, self.variances, 1.0), 0.0))

    def log_det(self, count: FloatArray | float = 1.0) -> float:
        """Log of the determinant, each row standing for so many."""
        return float((count * np.log(self.variances)).sum())

    def add_to(self, matrix: FloatArray) -> None:
        """Add S to `matrix`, in place."""
        matrix[np.diag_indices_from(matrix)] += self.variances

    def scaled(self, tau: FloatArray) -> "IndependentNoise":
        """T S, which is symmetric."""
        return IndependentNoise(tau * self.variances)

    def shrunk(self, tau: FloatArray) -> "tuple[IndependentNoise, IndependentNoise]":
        """Q and Q S under sites of precisions `tau`."""
        share = 1.0 / (1.0 + tau * self.variances)
        return IndependentNoise(share), IndependentNoise(self.variances * share)


class BlockNoise:
    """Rows share noise within small blocks.

    To invert the blocks takes n k^2 operations for blocks of k rows, a product with a matrix of r
    columns n k r.

    Parameters
    ----------
    rows : sequence of ndarray of int, shape (b, k), or BlockLayout
        The rows of b blocks of k each, an array for each k; every row is in one block.
    covariances : sequence of ndarray, shape (b, k, k)
        S of these blocks: positive definite, or 0 for a block of one row without noise.
    """

    def __init__(
        self, rows: "Sequence[IntArray] | BlockLayout", covariances: Sequence[FloatArray]
    ) -> None:
        self._layout = rows if isinstance(rows, BlockLayout) else BlockLayout.of(rows)
        self._blocks = tuple(covariances)
        self.variances = np.empty(self._layout.n_rows)
        for own, S in zip(self._layout.rows, self._blocks, strict=True):
            self.variances[own] = _diagonals(S)

    @cached_property
    def _matrix(self) -> Any:
        return self._layout.matrix(self._blocks)

    @property
    def well_conditioned(self) -> bool:
        """Whether the inverses of the blocks keep enough digits."""
        try:
            roots = [_where_noisy(np.linalg.cholesky, S) for S in self._blocks]
        except np.linalg.LinAlgError:
            return False
        return all(
            bool((_diagonals(L) ** 2 >= _LEAST_PIVOT * _diagonals(S)).all())
            for L, S in zip(roots, self._blocks, strict=True)
        )

    def multiply(self, x: FloatArray) -> FloatArray:
        """S x."""
        return np.asarray(self._matrix @ x)

    def back(self, x: FloatArray) -> FloatArray:
        """S' x."""
        return np.asarray(self._matrix.T @ x)

    def inverse(self) -> "BlockNoise":
        """S^-1; 0 in rows without noise."""
        return BlockNoise(self._layout, [_where_noisy(np.linalg.inv, S) for S in self._blocks])

    def log_det(self, count: FloatArray | float = 1.0) -> float:
        """Log of the determinant; each row stands for itself."""
        return sum(float(np.linalg.slogdet(S)[1].sum()) for S in self._blocks)

    def add_to(self, matrix: FloatArray) -> None:
        """Add S to `matrix`, in place."""
        self._layout.add(self._blocks, matrix)

    def scaled(self, tau: FloatArray) -> "BlockNoise":
        """T S, which is symmetric."""
        pairs = zip(self._layout.rows, self._blocks, strict=True)
        return BlockNoise(
            self._layout, [linalg.symmetric(tau[i][:, :, None] * S) for i, S in pairs]
        )

    def shrunk(self, tau: FloatArray) -> "tuple[BlockNoise, BlockNoise]":
        """Q and Q S under sites of precisions `tau`."""
        # Columns of I + S T differ in size as the sites do, which elimination does not feel.
        kept = [
            np.linalg.inv(np.eye(S.shape[1]) + S * tau[rows][:, None, :])
            for rows, S in zip(self._layout.rows, self._blocks, strict=True)
        ]
        left = [linalg.symmetric(Q @ S) for Q, S in zip(kept, self._blocks, strict=True)]
        return BlockNoise(self._layout, kept), BlockNoise(self._layout, left)


type RowNoise = IndependentNoise | BlockNoise


class BlockLayout(NamedTuple):
    """Where the entries of blocks stand in a sparse matrix.

    Attributes
    ----------
    rows : tuple of ndarray of int, shape (b, k)
    position : tuple of ndarray of int, shape (b, k, k)
        Of each entry among those of the sparse matrix.
    indices, indptr : ndarray of int
        Of its compressed rows.
    """

    rows: tuple[IntArray, ...]
    position: tuple[IntArray, ...]
    indices: IntArray
    indptr: IntArray

    @classmethod
    def of(cls, rows: Sequence[IntArray]) -> "BlockLayout":
        """Of blocks of these rows."""
        n_rows = sum(block.size for block in rows)
        length = np.empty(n_rows, dtype=np.intp)
        for block in rows:
            length[block] = block.shape[1]
        indptr = np.concatenate([[0], np.cumsum(length)])
        position = tuple(indptr[block][:, :, None] + np.arange(block.shape[1]) for block in rows)
        indices = np.empty(indptr[-1], dtype=np.intp)
        for block, at in zip(rows, position, strict=True):
            indices[at] = block[:, None, :]
        return cls(tuple(rows), position, indices, indptr)

    @property
    def n_rows(self) -> int:
        """Of the matrix."""
        return self.indptr.size - 1

    def matrix(self, blocks: Sequence[FloatArray]) -> Any:
        """A sparse matrix of these blocks."""
        data = np.empty(self.indices.size)
        for at, block in zip(self.position, blocks, strict=True):
            data[at] = block
        return sparse.csr_array((data, self.indices, self.indptr), shape=(self.n_rows,) * 2)

    def add(self, blocks: Sequence[FloatArray], matrix: FloatArray) -> None:
        """Add the blocks to a dense matrix, in place."""
        for rows, block in zip(self.rows, blocks, strict=True):
            matrix[rows[:, :, None], rows[:, None, :]] += block


def _diagonals(blocks: FloatArray) -> FloatArray:
    """Of each block, shape (b, k)."""
    return np.asarray(np.einsum("bii->bi", blocks))


def _where_noisy(function: Callable[[FloatArray], FloatArray], blocks: FloatArray) -> FloatArray:
    """`function` of the blocks that have noise, 0 for others."""
    noisy = _diagonals(blocks).any(axis=1)
    found = np.zeros_like(blocks)
    found[noisy] = function(blocks[noisy])
    return found


# A covariance as a matrix: EP factorises B = I + T^.5 G T^.5, 2 n^3 / 3 operations a sweep.

# S_ii = (1 - (B^-1)_ii) / tau_i loses -log10(tau_i G_ii) digits; below this the row is solved for.
WEAK_SITE = 1e-6
# Of a row's variance: a squared pivot of G below this leaves too few digits in I - B^-1.
_SMALL_PIVOT = 1e-6


class SemidefiniteMatrix:
    """A covariance given as a positive semidefinite matrix: as much of it as EP asks for.

    Parameters
    ----------
    matrix : ndarray, shape (n, n)
        Symmetric.
    """

    def __init__(self, matrix: FloatArray) -> None:
        self.matrix = matrix

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.matrix.shape[0]

    def diagonal(self) -> FloatArray:
        """Marginal variances."""
        return self.matrix.diagonal().copy()

    def workspace(self) -> FloatArray:
        """Memory for `site_product`: to allocate a matrix takes as long as to factorise it."""
        return np.empty_like(self.matrix, order="C")

    def site_product(
        self, tau: FloatArray, nu: FloatArray, work: FloatArray | None = None
    ) -> SiteProduct:
        """Marginals and normalising constant under Gaussian sites; `work` is overwritten."""
        # LAPACK by itself: at a few rows SciPy's wrappers would take most of the time.
        if not np.isfinite(nu).all():
            raise np.linalg.LinAlgError("Gaussian sites are not finite.")
        root = np.sqrt(tau)
        chol = self._site_chol(root, work)
        log_det = 2.0 * float(np.log(chol.diagonal()).sum())
        prior = self.matrix.diagonal()
        weak = tau * prior < WEAK_SITE
        # G^-1 S nu = T^.5 B^-1 T^-.5 nu: nu minus what the sites take of it would cancel where a
        # site is strong. Weak rows, which T^-.5 would blow up, go the other way.
        if weak.any():
            pull = self.matrix @ np.where(weak, nu, 0.0)
            strong = np.where(weak, 0.0, nu / np.where(weak, 1.0, root))
            solved, _ = dpotrs(chol, strong - root * pull, lower=1)
            weights = np.where(weak, nu, 0.0) + root * solved
            half, _ = dtrtrs(chol, root[:, None] * self.matrix[:, weak], lower=1)
        else:
            weights = root * dpotrs(chol, nu / root, lower=1)[0]
        mean = self.matrix @ weights
        inverse, _ = dtrtri(chol, lower=1, overwrite_c=1)
        with np.errstate(divide="ignore", invalid="ignore"):  # weak sites are replaced below
            variance = (1.0 - np.einsum("ij,ij->j", inverse, inverse)) / tau
        if weak.any():
            variance[weak] = prior[weak] - np.einsum("ij,ij->j", half, half)
        log_constant = 0.5 * float(nu @ mean) - 0.5 * log_det
        return SiteProduct(mean, variance, log_constant, weights, log_det)

    def site_precision(self, tau: FloatArray) -> FloatArray:
        """(G + diag(tau)^-1)^-1, rows of sites that are zero being zero."""
        root = np.sqrt(tau)
        inverse, _ = dpotri(self._site_chol(root), lower=1, overwrite_c=1)
        inverse *= root
        inverse *= root[:, None]
        return linalg.mirrored(inverse)

    def _site_chol(self, root: FloatArray, work: FloatArray | None = None) -> FloatArray:
        scaled = np.multiply(self.matrix, root, out=work)
        scaled *= root[:, None]
        scaled.flat[:: root.size + 1] += 1.0
        # Symmetric, so its transpose is the Fortran-ordered matrix that LAPACK can overwrite.
        chol, info = dpotrf(scaled.T, lower=1, clean=1, overwrite_a=1)
        if info:
            raise np.linalg.LinAlgError("Gaussian sites made an indefinite matrix.")
        return chol


class DenseCovariance(SemidefiniteMatrix):
    """A covariance given as a positive definite matrix.

    Parameters
    ----------
    matrix : ndarray, shape (n, n)
        Symmetric; factorised at once, so that a matrix which is no covariance is refused here.
    name : str
        What error messages call it.
    """

    def __init__(self, matrix: FloatArray, name: str = "cov") -> None:
        self._chol, self.jitter = linalg.cholesky(name, matrix)
        if self.jitter:
            matrix = matrix.copy()
            matrix[np.diag_indices_from(matrix)] *= 1.0 + self.jitter
        super().__init__(matrix)

    @property
    def chol(self) -> FloatArray:
        """Lower Cholesky factor."""
        return self._chol

    def conditional_variances(self) -> FloatArray:
        """Variance of each coordinate given all others, 1 / (G^-1)_ii (or a lower bound of it)."""
        inverse, _ = dpotri(self._chol, lower=1)
        return 1.0 / inverse.diagonal()

    def dense(self) -> FloatArray:
        """G as an array."""
        return self.matrix

    def multiply(self, x: FloatArray) -> FloatArray:
        """G x."""
        return self.matrix @ x

    def site_covariance(self, tau: FloatArray) -> FloatArray:
        """S = (G^-1 + diag(tau))^-1."""
        regular = (self._chol.diagonal() ** 2 > _SMALL_PIVOT * self.matrix.diagonal()).all()
        if regular and (tau * self.matrix.diagonal()).min() > WEAK_SITE:
            # T^-.5 (I - B^-1) T^-.5, a quarter of the operations.
            root = np.sqrt(tau)
            inverse, _ = dpotri(self._site_chol(root), lower=1, overwrite_c=1)
            inverse /= -root
            inverse /= root[:, None]
            inverse[np.diag_indices_from(inverse)] += 1.0 / tau
            return linalg.mirrored(inverse)
        # S = L (I + L' T L)^-1 L', a product: G minus something would cancel where S << G.
        inner = self._chol.T @ (tau[:, None] * self._chol)
        inner[np.diag_indices_from(inner)] += 1.0
        chol = cholesky(inner, lower=True, overwrite_a=True, check_finite=False)
        half = solve_triangular(chol, self._chol.T, lower=True, check_finite=False)
        return half.T @ half


# A covariance S + F F', S of rows or small blocks: n r^2 operations a sweep of EP.
#
# All is done in the r coordinates of F.


class LowRankCovariance:
    """A covariance noise + factor factor', with few columns in `factor`.

    Parameters
    ----------
    noise : ndarray, shape (n,), or RowNoise
        Independent variances, >= 0, or noise that rows share; rows without any must be independent
        in `factor`.
    factor : ndarray, shape (n, r)
        For instance from `linalg.low_rank_factor` of a smooth kernel's matrix.
    count : ndarray, shape (n,), default 1
        Rows that each row stands for, with independent noise and all under the same site: marginals
        are those of one of each kind.
    """

    def __init__(
        self, noise: FloatArray | RowNoise, factor: FloatArray, count: FloatArray | float = 1.0
    ) -> None:
        self.noise: RowNoise = IndependentNoise(noise) if isinstance(noise, np.ndarray) else noise
        self.factor, self.count = factor, count
        self.jitter = 0.0

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.factor.shape[0]

    def diagonal(self) -> FloatArray:
        """Marginal variances."""
        return self.noise.variances + np.einsum("ij,ij->i", self.factor, self.factor)

    def conditional_variances(self) -> FloatArray:
        """Variance of each coordinate given all others, 1 / (G^-1)_ii (or a lower bound of it)."""
        inverse = self.noise.inverse().variances
        return np.divide(1.0, inverse, out=np.zeros(inverse.size), where=inverse > 0)

    def dense(self) -> FloatArray:
        """G as an array."""
        matrix = self.factor @ self.factor.T
        self.noise.add_to(matrix)
        return matrix

    def multiply(self, x: FloatArray) -> FloatArray:
        """G x."""
        return self.noise.multiply(x) + self.factor @ (self.factor.T @ x)

    def workspace(self) -> None:
        """None: what it needs is small."""

    def site_product(
        self, tau: FloatArray, nu: FloatArray, work: FloatArray | None = None
    ) -> SiteProduct:
        """Marginals and normalising constant under Gaussian sites; `work` is not used."""
        kept, left = self.noise.shrunk(tau)
        chol, half = self._core(self.count * tau, kept)
        variance = left.variances + np.einsum("ij,ij->j", half, half)
        pull = self.factor.T @ (self.count * kept.back(nu))
        fitted = self.factor @ cho_solve((chol, True), pull)
        # With a strong site S nu would be large, and Q S nu cancel: S Q' nu is the same.
        mean = kept.multiply(fitted) + self.noise.multiply(kept.back(nu))
        weights = kept.back(nu - tau * fitted)
        log_det = 2.0 * float(np.log(chol.diagonal()).sum()) - kept.log_det(self.count)
        log_constant = 0.5 * float((self.count * nu) @ mean) - 0.5 * log_det
        return SiteProduct(mean, variance, log_constant, weights, log_det)

    def site_covariance(self, tau: FloatArray) -> FloatArray:
        """S = (G^-1 + diag(tau))^-1."""
        kept, left = self.noise.shrunk(tau)
        half = self._core(tau, kept)[1]
        matrix = half.T @ half
        left.add_to(matrix)
        return matrix

    def site_precision(self, tau: FloatArray) -> FloatArray:
        """(G + diag(tau)^-1)^-1, rows of sites that are zero being zero."""
        kept, _ = self.noise.shrunk(tau)
        half = self._core(tau, kept)[1] * tau
        matrix = -(half.T @ half)
        kept.scaled(tau).add_to(matrix)
        return matrix

    def _core(self, tau: FloatArray, kept: RowNoise) -> tuple[FloatArray, FloatArray]:
        """Cholesky factor L of the posterior precision in the coordinates, and L^-1 F' Q'."""
        left = kept.multiply(self.factor)
        precision = self.factor.T @ (tau[:, None] * left)
        precision[np.diag_indices_from(precision)] += 1.0
        chol = cholesky(precision, lower=True, overwrite_a=True)
        return chol, solve_triangular(chol, left.T, lower=True)


# What the samplers need, and what expectation propagation does.
type Covariance = DenseCovariance | LowRankCovariance
type WithSites = SemidefiniteMatrix | LowRankCovariance

# The covariance of predictors, functions of few coordinates, for expectation propagation.

# Below this share of columns the low-rank form needs fewer operations than the dense one.
_LOW_RANK_SHARE = 0.3


def predictor_covariance(factor: FloatArray, noise: FloatArray | None = None) -> WithSites:
    """F F' of predictors, rows with `noise` before them, in the form that EP takes less time with.

    Parameters
    ----------
    factor : ndarray, shape (m + n, r)
    noise : ndarray, shape (m,) or (m, m), optional
        Variances of the first rows' noise, or its covariance.
    """
    n, r = factor.shape
    own = np.zeros(0) if noise is None else noise
    if r < _LOW_RANK_SHARE * n and own.ndim == 1:
        return LowRankCovariance(np.concatenate([own, np.zeros(n - own.size)]), factor)
    matrix = factor @ factor.T
    m = own.shape[0]
    matrix[:m, :m] += np.diag(own) if own.ndim == 1 else own
    return SemidefiniteMatrix(matrix)


# The covariance of a latent function, K = F F', with as many columns in F as it has rank.

# Of the largest variance: what the factor may leave out before the matrix counts as indefinite.
_LEFT_OUT = 1e-7


class FactoredCovariance:
    """A positive semidefinite covariance by its factor; the matrix only where it is known already.

    Parameters
    ----------
    factor : ndarray, shape (q, r)
        F, with F F' the covariance.
    matrix : ndarray, shape (q, q), or function that makes it, optional
        F F', where the caller has it, or knows a better way to it.
    units : ndarray, shape (q,), optional
        What each value is to be measured in where round-off counts. Default the same for all.
    """

    def __init__(
        self,
        factor: FloatArray,
        matrix: FloatArray | Callable[[], FloatArray] | None = None,
        units: FloatArray | None = None,
    ) -> None:
        self.factor, self._given, self.units = factor, matrix, units

    @cached_property
    def _matrix(self) -> FloatArray | None:
        return self._given() if callable(self._given) else self._given

    @classmethod
    def of_kernel(cls, matrix: FloatArray, units: FloatArray | None = None) -> "FactoredCovariance":
        """From a kernel's matrix, factorised at its numerical rank.

        Raises
        ------
        NotPositiveDefiniteError
            When the matrix is not positive semidefinite.
        """
        matrix = linalg.symmetric(matrix)
        measured = matrix if units is None else matrix / units / units[:, None]
        factor = linalg.low_rank_factor(measured)
        _refuse_indefinite(measured, factor)
        return cls(factor if units is None else units[:, None] * factor, matrix, units)

    def conditioned(self, matrix: FloatArray) -> "FactoredCovariance":
        """The covariance `matrix` that is left of this one, to round-off of this one's size."""
        before, measured = self.diagonal(), matrix
        if self.units is not None:
            before, measured = before / self.units**2, matrix / self.units / self.units[:, None]
        largest = max(float(measured.diagonal().max()), 1e-300)
        factor = linalg.low_rank_factor(measured, min(1e-13 * float(before.max()) / largest, 1.0))
        whole = factor if self.units is None else self.units[:, None] * factor
        return FactoredCovariance(whole, matrix, self.units)

    @property
    def rank(self) -> int:
        """Number r of columns of the factor."""
        return self.factor.shape[1]

    def dense(self) -> FloatArray:
        """K as an array."""
        return self.factor @ self.factor.T if self._matrix is None else self._matrix

    def diagonal(self) -> FloatArray:
        """Variances."""
        return np.einsum("ij,ij->i", self.factor, self.factor)

    def leading(self, n: int, scale: FloatArray | None = None) -> FloatArray:
        """Covariance of the first n values, each times its `scale`, as a new array."""
        if self._matrix is None:
            head = self.factor[:n] if scale is None else scale[:, None] * self.factor[:n]
            return head @ head.T
        if scale is None:
            return self._matrix[:n, :n].copy()
        block = self._matrix[:n, :n] * scale
        block *= scale[:, None]
        return block


@lru_cache
def _signs(n: int) -> FloatArray:
    return np.where(np.random.default_rng(0).random(n) < 0.5, -1.0, 1.0)


def _refuse_indefinite(matrix: FloatArray, factor: FloatArray) -> None:
    # One matrix product with a fixed vector of signs sees what the factor left out, at O(n^2).
    probe = _signs(matrix.shape[0])
    gap = np.abs(matrix @ probe - factor @ (factor.T @ probe)).max()
    scale = matrix.diagonal().max()
    if gap > _LEFT_OUT * scale * np.sqrt(probe.size):
        raise NotPositiveDefiniteError(
            "cov_func is not positive semidefinite at X and the pseudo-points: what is left of its "
            f"matrix beyond the positive part is of size {gap:.3g} (largest variance {scale:.3g})."
        )
