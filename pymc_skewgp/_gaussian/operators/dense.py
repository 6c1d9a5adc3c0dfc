"""A covariance as a matrix: EP factorises B = I + T^.5 G T^.5, 2 n^3 / 3 operations a sweep."""

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs, dtrtri, dtrtrs

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.operators.covariance import SiteProduct
from pymc_skewgp._validation import FloatArray

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
        """See `Covariance`."""
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
