"""Expectation propagation for intervals under a dense covariance, in few factorisations.

`fit_factors` moves the sites by one step of their iteration for each factorisation. Here the
inverse that a factorisation leads to gives all of the Gaussian's covariance, with which the
iteration goes on in n^2 operations a step, on a model of the marginals that is right to first
order. A factorisation with its inverse, n^3 operations, squares the residual, as Newton's method.
"""

import threading
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dsymm
from scipy.linalg.lapack import dgesv, dpotrf, dpotri, dpotrs

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.compiled import rows as r
from pymc_skewgp._gaussian.covariance import WEAK_SITE, Covariance, DenseCovariance
from pymc_skewgp._gaussian.ep import EPGradient, EPResult, ep_gradient, fit_ep
from pymc_skewgp._gaussian.tilted import cavity, log_scales
from pymc_skewgp._gaussian.univariate import Edges, edge_densities, truncated_shape
from pymc_skewgp._validation import FloatArray

# Rows up to which a thread keeps the matrix of one call for the next: to allocate it takes as long
# as to factorise it.
_MOST_KEPT = 1500
# Tolerance from which a step of the iteration is as good as its model.
_ROUGH = 0.1
_kept = threading.local()


def ep_with_gradient(
    cov: Covariance,
    lower: FloatArray,
    upper: FloatArray,
    *,
    tol: float,
    max_sweeps: int = 200,
    start: EPResult | None = None,
) -> tuple[EPResult, EPGradient]:
    """By `dense_ep` for a dense covariance, else, or where that is stuck, by `fit_ep`."""
    if isinstance(cov, DenseCovariance):
        found = dense_ep(cov.matrix, limits := np.stack([lower, upper]), tol=tol, start=start)
        if found is not None:
            return found.ep, found.gradient(limits)
    ep = fit_ep(cov, lower, upper, tol=tol, max_sweeps=max_sweeps, start=start)
    return ep, ep_gradient(cov, ep, lower, upper)


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
        found = dense_ep(cov.matrix, np.stack([lower, upper]), tol=tol, start=start)
        if found is not None:
            return found.ep
    return fit_ep(cov, lower, upper, tol=tol, max_sweeps=max_sweeps, start=start)


def dense_ep(
    matrix: FloatArray,
    limits: FloatArray,
    *,
    tol: float,
    max_sweeps: int = 50,
    start: EPResult | None = None,
) -> "DenseEP | None":
    """EP's fixed point, n^3 operations a sweep; None where it makes no progress.

    Parameters
    ----------
    matrix : ndarray, shape (n, n)
        Positive definite.
    limits : ndarray, shape (2, n)
        Lower and upper ones, infinities allowed.
    tol, max_sweeps, start
        As for `fit_ep`.
    """
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
        product = DenseEP(matrix, rows, work)
        if not product.definite:
            return None
        np.maximum(product.variance, least_variance, out=rows[r.VARIANCE])
        np.minimum(rows[r.VARIANCE], prior, out=rows[r.VARIANCE])
        found = r.judge(rows, limits, least, tol, progress)
        residual = float(progress.residual[0])
        if found == r.CONVERGED:
            product.n_sweeps, product.residual = sweep, residual
            return product
        if found == r.STUCK:
            return None
        if found == r.NEAR and tol >= _ROUGH:
            rows[[r.TAU, r.NU]] = rows[[r.NEW_TAU, r.NEW_NU]]
        elif found == r.NEAR:
            model = rows.copy()
            r.solve_model(product.to_covariance(), rows, model, limits, residual, tol)
            rows[[r.TAU, r.NU]] = model[[r.NEW_TAU, r.NEW_NU]]
        else:
            asked = rows[[r.NEW_TAU, r.NEW_NU]]
            rows[[r.TAU, r.NU]] += progress.damping[0] * (asked - rows[[r.TAU, r.NU]])
    return None


def _memory(n: int) -> FloatArray:
    """A matrix to work in."""
    work: FloatArray | None = getattr(_kept, "work", None)
    if work is not None and work.shape[0] == n:
        return work
    work = np.empty((n, n))
    _kept.work = work if n <= _MOST_KEPT else None
    return work


class DenseEP:
    """N(0, G) times Gaussian sites; `work` gets the inverse of B = I + T^.5 G T^.5.

    As in `SemidefiniteMatrix`, but with all of the inverse, of which the lower triangle counts. The
    next EP of as many rows in a thread takes this memory: one of `covariance` and `gradient` may be
    asked for, and before that.
    """

    def __init__(self, matrix: FloatArray, rows: FloatArray, work: FloatArray) -> None:
        self._rows, self._work, self.n_sweeps, self.residual = rows, work, 0, np.inf
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

    def to_covariance(self) -> FloatArray:
        """Overwrite the inverse of B by the Gaussian's covariance."""
        work = self._work
        scale = 1.0 / np.maximum(self._root, 1e-150)
        work *= -scale
        work *= scale[:, None]
        if self._weak.size:
            work[:, self._weak] = self._of_weak
            work[self._weak] = self._of_weak.T
        work.flat[:: scale.size + 1] = self._rows[r.VARIANCE]
        return work

    @cached_property
    def covariance(self) -> FloatArray:
        """That of EP's Gaussian."""
        return linalg.mirrored(self.to_covariance()).copy()

    @cached_property
    def ep(self) -> EPResult:
        """The fixed point."""
        rows = self._rows
        nu, mean = rows[r.NU], rows[r.MEAN]
        scales = log_scales(*rows[[r.TAU, r.NU, r.CAVITY_MEAN, r.CAVITY_VAR, r.LOG_MASS]])
        log_prob = float(scales.sum()) + 0.5 * float(nu @ mean) - 0.5 * self.log_det
        found = rows[r.TAU], nu, mean, rows[r.VARIANCE], self.weights
        return EPResult(*found, log_prob, self.n_sweeps, self.residual)

    def gradient(self, limits: FloatArray) -> EPGradient:
        """See `ep_gradient`; the inverse of B is overwritten."""
        rows, share, inverse = self._rows, np.sqrt(0.5) * self._root, self._work
        edges = Edges.of(limits[0], limits[1], rows[r.CAVITY_MEAN], np.sqrt(rows[r.CAVITY_VAR]))
        inverse *= share
        inverse *= share[:, None]
        linalg.mirrored(inverse)
        by_cov = np.outer(0.5 * self.weights, self.weights)
        by_cov -= inverse
        return EPGradient(-edges.lower, edges.upper, by_cov)


# How EP's sites move with the limits and the covariance, in reverse.
#
# The sites are an implicit function: at the fixed point every tilted marginal has the Gaussian's
# moments. A number that was made with the sites, differentiated in them, becomes by the adjoint of
# that equation a number differentiated in the Gaussian's marginals and in the limits.

# Share of a row's precision that its cavity keeps: round-off may leave it none.
_LEAST_CAVITY = 1e-14


class SiteMotion(NamedTuple):
    """What the motion of the sites adds to derivatives.

    Attributes
    ----------
    mean, variance : ndarray, shape (n,)
        In the mean and the marginal variances of EP's Gaussian, as functions of the covariance at
        fixed sites.
    lower, upper : ndarray, shape (n,)
        In the limits.
    value : float
        What the number itself would change by if EP's residual were zero, to first order.
    """

    mean: FloatArray
    variance: FloatArray
    lower: FloatArray
    upper: FloatArray
    value: float


def site_motion(
    ep: EPResult,
    posterior: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    by_nu: FloatArray,
    by_tau: FloatArray,
) -> SiteMotion:
    r"""Pull derivatives in the sites back to what the sites are a function of.

    Let a site be :math:`\exp(\nu w - \tau w^2/2)` with w = u - m, m being EP's mean, and let K, F
    and D be the covariances of the statistics :math:`(w_i, -w_i^2/2)` of all rows under EP's
    Gaussian, of single rows under it, and of single rows under the tilted marginals. Linearised,
    the fixed point is

    .. math:: (I - W K)\, \mathrm ds = W\, \mathrm d\mu + D^{-1}\, \mathrm db, \qquad
        W = F^{-1} - D^{-1},

    with :math:`\mathrm d\mu` the change of the Gaussian's marginals at fixed sites and
    :math:`\mathrm db` that of the tilted ones at fixed cavities, both as means of the statistics.
    K consists of S and S*S/2, S being the Gaussian's covariance, and W is made of the tilted
    marginals' skewness and excess kurtosis: sites move only where those are not Gaussian.

    Parameters
    ----------
    ep : EPResult
        Near its fixed point: what this leaves out is of the order of the residual, in `value` of
        its square.
    posterior : ndarray, shape (n, n)
        S, the covariance of EP's Gaussian.
    lower, upper : ndarray, shape (n,)
        Limits, at least one of each row finite.
    by_nu, by_tau : ndarray, shape (n,)
        Derivatives in the sites as they are written above, m fixed.

    Returns
    -------
    SiteMotion

    References
    ----------
    .. [1] T. P. Minka (2001), Expectation propagation for approximate Bayesian inference,
       arXiv:1301.2294.
    .. [2] M. Blondel et al. (2022), Efficient and modular implicit differentiation,
       arXiv:2105.15183.
    """
    # All in standard deviations of the Gaussian's marginals.
    sd = np.sqrt(posterior.diagonal())
    sites = ep.mean, ep.variance, ep.tau, ep.nu
    cavity_mean, cavity_variance = cavity(*sites, _LEAST_CAVITY / ep.variance)
    cavity_sd = np.sqrt(cavity_variance)
    a, b = (lower - cavity_mean) / cavity_sd, (upper - cavity_mean) / cavity_sd
    shift, spread, *shape = truncated_shape(a, b)
    excess = _excess_information(*shape)
    pull = _pull(posterior / sd / sd[:, None], excess, np.stack([by_nu / sd, by_tau / sd**2]))
    moved = (excess * pull).sum(axis=1)
    at_tilted = pull * [[1.0], [2.0]] - moved

    def weigh(off: FloatArray, square: FloatArray) -> FloatArray:
        """What `at_tilted` says of changes of the tilted marginals' E[w] and E[w^2]."""
        return at_tilted[0] * off - 0.5 * at_tilted[1] * square

    by_limits = []
    for limit, density in zip((lower, upper), edge_densities(a, b), strict=True):
        off = np.where(np.isfinite(limit), (limit - ep.mean) / sd, 0.0)
        by_limits.append(weigh(off, off**2 - 1.0) * density / cavity_sd)
    off = (cavity_mean + cavity_sd * shift - ep.mean) / sd
    spread = np.maximum(spread, r.LEAST_SHRINKAGE) * cavity_variance / ep.variance
    value = float(weigh(off, spread + off**2 - 1.0).sum())
    return SiteMotion(moved[0] / sd, -0.5 * moved[1] / sd**2, -by_limits[0], by_limits[1], value)


def _excess_information(skewness: FloatArray, excess_kurtosis: FloatArray) -> FloatArray:
    """F^-1 - D^-1, row by row, shape (2, 2, n), of variables of mean 0 and variance 1.

    F = diag(1, 1/2) and D are the covariances of (w, -w^2/2) where w is Gaussian and where it is
    not; D has the rows (1, -skewness / 2) and (-skewness / 2, 1/2 + kurtosis / 4).
    """
    determinant = 0.5 + 0.25 * (excess_kurtosis - skewness**2)
    # Written so there is no cancellation.
    cross = -0.5 * skewness / determinant
    second = 0.5 * (excess_kurtosis - skewness**2) / determinant
    return np.array([[0.5 * skewness * cross, cross], [cross, second]])


def _pull(correlation: FloatArray, excess: FloatArray, x: FloatArray) -> FloatArray:
    """(I - K W)^-1 x, where K consists of two blocks and W of those in `excess`.

    By elimination: iterations take some twenty products, which pays from 300 rows on and saves a
    twentieth of an evaluation there.
    """
    n = correlation.shape[0]
    matrix = np.empty((2 * n, 2 * n), order="F")
    for i, block in enumerate((-correlation, -0.5 * correlation**2)):
        for j in range(2):
            np.multiply(block, excess[i, j], out=matrix[i * n :, j * n :][:n, :n])
    matrix[np.diag_indices_from(matrix)] += 1.0
    solved = dgesv(matrix, x.reshape(2 * n, 1), overwrite_a=1)[2]
    return np.reshape(solved, (2, n))
