"""Expectation propagation for intervals under a dense covariance, in few factorisations.

`fit_factors` moves the sites by one step of their iteration for each factorisation. Here the
inverse that a factorisation leads to gives all of the Gaussian's covariance, with which the
iteration goes on in n^2 operations a step, on a model of the marginals that is right to first
order. A factorisation with its inverse, n^3 operations, squares the residual, as Newton's method.
"""

import threading
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dsymm
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.compiled import rows as r
from pymc_skewgp._gaussian.compiled.site_model import solve_model
from pymc_skewgp._gaussian.edges import Edges
from pymc_skewgp._gaussian.operators.covariance import Covariance
from pymc_skewgp._gaussian.operators.dense import WEAK_SITE, DenseCovariance
from pymc_skewgp._gaussian.proposals.ep import EPResult, fit_ep
from pymc_skewgp._gaussian.proposals.ep_gradient import EPGradient, ep_gradient
from pymc_skewgp._validation import FloatArray

# Rows up to which a thread keeps the matrix of one call for the next: to allocate it takes as long
# as to factorise it.
_MOST_KEPT = 1500
_kept = threading.local()


class EPWithGradient(NamedTuple):
    """EP's fixed point, and the gradient of its log probability there."""

    ep: EPResult
    gradient: EPGradient


class EPWithCovariance(NamedTuple):
    """EP's fixed point, its Gaussian's covariance, and log det(I + T^.5 G T^.5)."""

    ep: EPResult
    covariance: FloatArray
    log_det: float


def ep_with_gradient(
    cov: Covariance,
    lower: FloatArray,
    upper: FloatArray,
    *,
    tol: float,
    max_sweeps: int = 200,
    start: EPResult | None = None,
) -> EPWithGradient:
    """By `fit_dense_ep` for a dense covariance, else, or where that is stuck, by `fit_ep`."""
    if isinstance(cov, DenseCovariance):
        found = fit_dense_ep(cov.matrix, np.stack([lower, upper]), tol=tol, start=start)
        if found is not None:
            return found
    ep = fit_ep(cov, lower, upper, tol=tol, max_sweeps=max_sweeps, start=start)
    return EPWithGradient(ep, ep_gradient(cov, ep, lower, upper))


def ep_alone(
    cov: Covariance,
    lower: FloatArray,
    upper: FloatArray,
    *,
    tol: float,
    max_sweeps: int = 200,
    start: EPResult | None = None,
) -> EPResult:
    """As `ep_with_gradient`, the fixed point alone."""
    if isinstance(cov, DenseCovariance):
        found = _fixed_point(cov.matrix, np.stack([lower, upper]), tol=tol, start=start)
        if found is not None:
            return found.result()
    return fit_ep(cov, lower, upper, tol=tol, max_sweeps=max_sweeps, start=start)


def fit_dense_ep(
    matrix: FloatArray,
    limits: FloatArray,
    *,
    tol: float,
    max_sweeps: int = 50,
    start: EPResult | None = None,
) -> EPWithGradient | None:
    """EP with its gradient, n^3 operations a sweep; None where it makes no progress.

    Parameters
    ----------
    matrix : ndarray, shape (n, n)
        Positive definite.
    limits : ndarray, shape (2, n)
        Lower and upper ones, infinities allowed.
    tol, max_sweeps, start
        As for `fit_ep`.
    """
    found = _fixed_point(matrix, limits, tol=tol, max_sweeps=max_sweeps, start=start)
    return None if found is None else EPWithGradient(found.result(), found.gradient(limits))


def dense_ep_with_covariance(
    matrix: FloatArray, limits: FloatArray, *, tol: float, start: EPResult | None = None
) -> EPWithCovariance | None:
    """As `fit_dense_ep`, with the covariance in place of the gradient."""
    found = _fixed_point(matrix, limits, tol=tol, start=start)
    if found is None:
        return None
    product = found.product
    product.to_covariance(found.work)
    # The memory is used again.
    covariance = linalg.mirrored(found.work).copy()
    return EPWithCovariance(found.result(), covariance, product.log_det)


def _fixed_point(
    matrix: FloatArray,
    limits: FloatArray,
    *,
    tol: float,
    max_sweeps: int = 50,
    start: EPResult | None = None,
) -> "_FixedPoint | None":
    """Of EP; None where it makes no progress."""
    prior = matrix.diagonal()
    rows, least = np.zeros((r.N_ROWS, prior.size)), r.LEAST_CAVITY / prior
    if start is None:
        rows[r.VARIANCE] = prior
        r.tilt(rows, limits, least)
        rows[[r.TAU, r.NU]] = rows[[r.NEW_TAU, r.NEW_NU]]
    else:
        rows[r.TAU], rows[r.NU] = start.tau, start.nu
    least_variance = r.LEAST_VARIANCE * prior
    work = _memory(prior.size)
    progress = r.new_progress()
    for sweep in range(1, max_sweeps + 1):
        product = _Product(matrix, rows, work)
        if not product.definite:
            return None
        np.maximum(product.variance, least_variance, out=rows[r.VARIANCE])
        np.minimum(rows[r.VARIANCE], prior, out=rows[r.VARIANCE])
        found = r.judge(rows, limits, least, tol, progress)
        residual = float(progress.residual[0])
        if found == r.CONVERGED:
            return _FixedPoint(product, work, sweep, residual)
        if found == r.STUCK:
            return None
        if found == r.NEAR:
            product.to_covariance(work)
            solve_model(work, rows, limits, residual, tol)
    return None


class _FixedPoint(NamedTuple):
    """The last product, and `work`, the memory that it has left the inverse of B in."""

    product: "_Product"
    work: FloatArray
    n_sweeps: int
    residual: float

    def result(self) -> EPResult:
        """The fixed point."""
        return self.product.result(self.n_sweeps, self.residual)

    def gradient(self, limits: FloatArray) -> EPGradient:
        """See `ep_gradient`; `work` is overwritten."""
        return self.product.gradient(limits, self.work)


def _memory(n: int) -> FloatArray:
    """A matrix to work in."""
    work: FloatArray | None = getattr(_kept, "work", None)
    if work is not None and work.shape[0] == n:
        return work
    work = np.empty((n, n))
    _kept.work = work if n <= _MOST_KEPT else None
    return work


class _Product:
    """N(0, G) times Gaussian sites; `work` gets the inverse of B = I + T^.5 G T^.5.

    As in `SemidefiniteMatrix`, but with all of the inverse, of which the lower triangle counts.
    """

    def __init__(self, matrix: FloatArray, rows: FloatArray, work: FloatArray) -> None:
        self._matrix, self._rows = matrix, rows
        tau, nu = rows[r.TAU], rows[r.NU]
        self._root = root = np.sqrt(tau)
        np.multiply(matrix, root, out=work)
        work *= root[:, None]
        work.flat[:: root.size + 1] += 1.0
        # The lower triangle of its rows is the upper one of its columns, which LAPACK reads.
        chol, info = dpotrf(work.T, lower=0, clean=0, overwrite_a=1)
        self.definite = info == 0
        if info:
            return
        self.log_det = 2.0 * float(np.log(chol.diagonal()).sum())
        prior = matrix.diagonal()
        self._weak = weak = np.flatnonzero(tau * prior < WEAK_SITE)
        right, own = nu / np.where(tau > 0, root, 1.0), np.zeros_like(nu)
        if weak.size:
            own[weak] = nu[weak]
            right[weak] = 0.0
            right -= root * (matrix @ own)
        self.weights = own + root * dpotrs(chol, right, lower=0)[0]
        rows[r.MEAN] = matrix @ self.weights
        dpotri(chol, lower=0, overwrite_c=1)
        with np.errstate(divide="ignore", invalid="ignore"):  # weak sites are replaced below
            self.variance = (1.0 - work.diagonal()) / tau
        if weak.size:
            scaled = np.asfortranarray(root[:, None] * matrix[:, weak])
            solved = dsymm(1.0, work.T, scaled, lower=0)
            self._of_weak = matrix[:, weak] - matrix @ (root[:, None] * solved)
            self.variance[weak] = self._of_weak[weak, np.arange(weak.size)]

    def to_covariance(self, work: FloatArray) -> None:
        """Overwrite the inverse of B by the Gaussian's covariance."""
        scale = 1.0 / np.maximum(self._root, 1e-150)
        work *= -scale
        work *= scale[:, None]
        if self._weak.size:
            work[:, self._weak] = self._of_weak
            work[self._weak] = self._of_weak.T
        work.flat[:: scale.size + 1] = self._rows[r.VARIANCE]

    def result(self, n_sweeps: int, residual: float) -> EPResult:
        """The fixed point."""
        rows = self._rows
        nu, mean = rows[r.NU], rows[r.MEAN]
        log_prob = r.log_scales(rows) + 0.5 * float(nu @ mean) - 0.5 * self.log_det
        found = rows[r.TAU], nu, mean, rows[r.VARIANCE], self.weights
        return EPResult(*found, log_prob, n_sweeps, residual)

    def gradient(self, limits: FloatArray, inverse: FloatArray) -> EPGradient:
        """See `ep_gradient`; the inverse of B is overwritten."""
        rows, share = self._rows, np.sqrt(0.5) * self._root
        edges = Edges.of(limits[0], limits[1], rows[r.CAVITY_MEAN], np.sqrt(rows[r.CAVITY_VAR]))
        inverse *= share
        inverse *= share[:, None]
        linalg.mirrored(inverse)
        by_cov = np.outer(0.5 * self.weights, self.weights)
        by_cov -= inverse
        return EPGradient(-edges.lower, edges.upper, by_cov)
