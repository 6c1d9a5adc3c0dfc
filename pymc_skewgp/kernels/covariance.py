"""Two forms of one covariance G, and the Gaussian N(0, G) times Gaussian sites in each.

A site is exp(-tau u^2 / 2 + nu u). The product with N(0, G) has covariance
S = (G^-1 + T)^-1 and mean m = S nu, with T = diag(tau). Expectation propagation asks for the
diagonal of S, m and the normalising constant at every sweep, the twisted sampler for all of S once.

* `DenseCovariance` factorises B = I + T^.5 G T^.5: n^3/3 + n^3/3 operations a sweep.
* `LowRankCovariance`, G = diag(d) + F F' with F of rank r, works in the r coordinates of F:
  n r^2 operations a sweep, and no cancellation in the variances.
"""

from typing import NamedTuple, Protocol

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs, dtrtri, dtrtrs

from pymc_skewgp.kernels import linalg
from pymc_skewgp.kernels.validation import FloatArray

# S_ii = (1 - (B^-1)_ii) / tau_i loses -log10(tau_i G_ii) digits; below this the row is solved for.
_WEAK_SITE = 1e-6
# Of a row's variance: a squared pivot of G below this leaves too few digits in I - B^-1.
_SMALL_PIVOT = 1e-6


class SiteProduct(NamedTuple):
    """Marginals of N(0, G) times Gaussian sites."""

    mean: FloatArray
    variance: FloatArray
    log_constant: float  # log of the integral of N(u; 0, G) prod exp(-tau u^2/2 + nu u)
    weights: FloatArray  # G^-1 mean
    log_det: float  # of I + G T


class Covariance(Protocol):
    """What the samplers need to know of a covariance matrix."""

    jitter: float  # share by which each variance was raised to make it definite

    @property
    def size(self) -> int:
        """Number of rows."""
        ...

    def diagonal(self) -> FloatArray:
        """Marginal variances."""
        ...

    def conditional_variances(self) -> FloatArray:
        """Variance of each coordinate given all others, 1 / (G^-1)_ii (or a lower bound of it)."""
        ...

    def dense(self) -> FloatArray:
        """G as an array."""
        ...

    def multiply(self, x: FloatArray) -> FloatArray:
        """G x."""
        ...

    def workspace(self) -> FloatArray | None:
        """Memory that `site_product` may use again and again; None where it needs none."""
        ...

    def site_product(
        self, tau: FloatArray, nu: FloatArray, work: FloatArray | None = None
    ) -> SiteProduct:
        """Marginals and normalising constant under Gaussian sites; `work` is overwritten."""
        ...

    def site_covariance(self, tau: FloatArray) -> FloatArray:
        """S = (G^-1 + diag(tau))^-1."""
        ...

    def site_precision(self, tau: FloatArray) -> FloatArray:
        """(G + diag(tau)^-1)^-1, rows of sites that are zero being zero."""
        ...


class DenseCovariance:
    """A covariance held as a positive definite matrix.

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
        self.matrix = matrix

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.matrix.shape[0]

    @property
    def chol(self) -> FloatArray:
        """Lower Cholesky factor."""
        return self._chol

    def diagonal(self) -> FloatArray:
        """Marginal variances."""
        return self.matrix.diagonal().copy()

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

    def workspace(self) -> FloatArray:
        """Memory for `site_product`: a large matrix takes as long to come by as to factorise."""
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
        weak = tau * prior < _WEAK_SITE
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

    def site_covariance(self, tau: FloatArray) -> FloatArray:
        """S = (G^-1 + diag(tau))^-1."""
        regular = (self._chol.diagonal() ** 2 > _SMALL_PIVOT * self.matrix.diagonal()).all()
        if regular and (tau * self.matrix.diagonal()).min() > _WEAK_SITE:
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


class LowRankCovariance:
    """A covariance diag(noise) + factor factor', with few columns in `factor`.

    Parameters
    ----------
    noise : ndarray, shape (n,)
        Independent variances, >= 0; zero rows must be independent in `factor`.
    factor : ndarray, shape (n, r)
        For instance from `linalg.low_rank_factor` of a smooth kernel's matrix.
    """

    def __init__(self, noise: FloatArray, factor: FloatArray) -> None:
        self.noise, self.factor = noise, factor
        self.jitter = 0.0

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.noise.size

    def diagonal(self) -> FloatArray:
        """Marginal variances."""
        return self.noise + np.einsum("ij,ij->i", self.factor, self.factor)

    def conditional_variances(self) -> FloatArray:
        """See `Covariance`."""
        return self.noise

    def dense(self) -> FloatArray:
        """G as an array."""
        matrix = self.factor @ self.factor.T
        matrix[np.diag_indices_from(matrix)] += self.noise
        return matrix

    def multiply(self, x: FloatArray) -> FloatArray:
        """G x."""
        return (self.noise * x.T).T + self.factor @ (self.factor.T @ x)

    def workspace(self) -> None:
        """None: what it needs is small."""

    def site_product(
        self, tau: FloatArray, nu: FloatArray, work: FloatArray | None = None
    ) -> SiteProduct:
        """Marginals and normalising constant under Gaussian sites; `work` is not used."""
        shrink = 1.0 / (1.0 + tau * self.noise)
        chol, half = self._core(tau, shrink)
        variance = self.noise * shrink + np.einsum("ij,ij->j", half, half) * shrink**2
        coordinates = cho_solve((chol, True), self.factor.T @ (nu * shrink))
        fitted = self.factor @ coordinates
        mean = (fitted + self.noise * nu) * shrink
        weights = (nu - tau * fitted) * shrink
        log_det = 2.0 * float(np.log(chol.diagonal()).sum()) - float(np.log(shrink).sum())
        log_constant = 0.5 * float(nu @ mean) - 0.5 * log_det
        return SiteProduct(mean, variance, log_constant, weights, log_det)

    def site_covariance(self, tau: FloatArray) -> FloatArray:
        """S = (G^-1 + diag(tau))^-1."""
        shrink = 1.0 / (1.0 + tau * self.noise)
        half = self._core(tau, shrink)[1] * shrink
        matrix = half.T @ half
        matrix[np.diag_indices_from(matrix)] += self.noise * shrink
        return matrix

    def site_precision(self, tau: FloatArray) -> FloatArray:
        """(G + diag(tau)^-1)^-1, rows of sites that are zero being zero."""
        shrink = 1.0 / (1.0 + tau * self.noise)
        half = self._core(tau, shrink)[1] * (tau * shrink)
        matrix = -(half.T @ half)
        matrix[np.diag_indices_from(matrix)] += tau * shrink
        return matrix

    def _core(self, tau: FloatArray, shrink: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Cholesky factor of the posterior precision in the coordinates, and L^-1 F'."""
        precision = self.factor.T @ ((tau * shrink)[:, None] * self.factor)
        precision[np.diag_indices_from(precision)] += 1.0
        chol = cholesky(precision, lower=True, overwrite_a=True)
        return chol, solve_triangular(chol, self.factor.T, lower=True)
