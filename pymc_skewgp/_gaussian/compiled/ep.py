"""`fit_dense_ep` without Python: for chains that run side by side in threads.

Up to some hundred rows. Nothing here calls BLAS, whose threads would get in each other's way.
"""

import math

import numpy as np

from pymc_skewgp._gaussian.compiled.interval import edge_density
from pymc_skewgp._gaussian.compiled.inverse import WHOLE, sweep
from pymc_skewgp._gaussian.compiled.jit import Index, jit_inner, jit_sums
from pymc_skewgp._gaussian.compiled.rows import (
    CAVITY_MEAN,
    CAVITY_VAR,
    CONVERGED,
    LEAST_CAVITY,
    LEAST_VARIANCE,
    LOG_MASS,
    MEAN,
    N_ROWS,
    NEAR,
    NEW_NU,
    NEW_TAU,
    NU,
    STUCK,
    TAU,
    VARIANCE,
    Progress,
    judge,
    log_scales,
    tilt,
)
from pymc_skewgp._gaussian.compiled.site_model import solve_model

# As in `SemidefiniteMatrix`.
_WEAK_SITE = 1e-6


@jit_inner()
def fit(cov, limits, work, tol, max_sweeps):  # type: ignore[no-untyped-def]
    """Rows at EP's fixed point, G^-1 mean, and the log probability; that is nan for failure.

    `work` (n, n) is left with minus the inverse of B = I + T^.5 G T^.5 in its lower triangle.
    """
    n = cov.shape[0]
    rows, vectors = np.zeros((N_ROWS, n)), np.empty((6, n))
    weights, least = vectors[0], vectors[1]
    for i in range(n):
        least[i] = LEAST_CAVITY / cov[i, i]
        rows[VARIANCE, i] = cov[i, i]
    tilt(rows, limits, least)
    for i in range(n):
        rows[TAU, i], rows[NU, i] = rows[NEW_TAU, i], rows[NEW_NU, i]
    progress = Progress(np.array([np.inf]), np.array([1.0]), np.array([0.0]))
    for _ in range(max_sweeps):
        log_det = _site_product(cov, rows, vectors, work)
        if np.isnan(log_det):
            break
        found = judge(rows, limits, least, tol, progress)
        if found == CONVERGED:
            log_prob = log_scales(rows) - 0.5 * log_det
            for i in range(n):
                log_prob += 0.5 * rows[NU, i] * rows[MEAN, i]
            return rows, weights, log_prob
        if found == STUCK:
            break
        if found == NEAR:
            _to_covariance(cov, rows, vectors, work)
            solve_model(work, rows, limits, progress.residual[0], tol)
    return rows, weights, np.nan


@jit_sums()
def gradient(rows, limits, weights, work, by_limits, by_cov):  # type: ignore[no-untyped-def]
    """Fill in the derivatives of the log probability: see `ep_gradient`."""
    n = Index(work.shape[0])
    for i in range(n):
        sd = math.sqrt(rows[CAVITY_VAR, i])
        for k in range(2):
            by_limits[k, i] = 0.0
            if np.isfinite(limits[k, i]):
                at = (limits[k, i] - rows[CAVITY_MEAN, i]) / sd
                by_limits[k, i] = (2.0 * k - 1.0) * edge_density(at, rows[LOG_MASS, i]) / sd
        root = math.sqrt(rows[TAU, i])
        for j in range(i + Index(1)):
            entry = 0.5 * weights[i] * weights[j]
            entry += 0.5 * root * math.sqrt(rows[TAU, j]) * work[i, j]
            by_cov[i, j] = entry
            by_cov[j, i] = entry


@jit_sums()
def _site_product(cov, rows, vectors, work):  # type: ignore[no-untyped-def]
    """Fill in the marginals under the sites, as `SemidefiniteMatrix` does; log det B."""
    n = Index(cov.shape[0])
    weights, root, own, right, product = (
        vectors[0],
        vectors[2],
        vectors[3],
        vectors[4],
        vectors[5],
    )
    for i in range(n):
        root[i] = math.sqrt(rows[TAU, i])
        own[i] = rows[NU, i] if _is_weak(cov, rows, i) else 0.0
        for j in range(i):
            work[i, j] = root[i] * root[j] * cov[i, j]
        work[i, i] = 1.0 + rows[TAU, i] * cov[i, i]
    log_det = sweep(work, WHOLE)
    _multiply(cov, own, product)
    for i in range(n):
        right[i] = 0.0 if _is_weak(cov, rows, i) else rows[NU, i] / root[i]
        right[i] -= root[i] * product[i]
        weights[i] = own[i]
    # Twice: for the vector, and for what round-off in the inverse has left of it.
    for _ in range(2):
        _multiply_lower(work, right, product)
        for i in range(n):
            weights[i] -= root[i] * product[i]
            right[i] += product[i]
            own[i] = root[i] * product[i]
        _multiply(cov, own, product)
        for i in range(n):
            right[i] += root[i] * product[i]
    _multiply(cov, weights, product)
    for i in range(n):
        rows[MEAN, i] = product[i]
    for i in range(n):
        variance = (1.0 + work[i, i]) / max(rows[TAU, i], 1e-300)
        if _is_weak(cov, rows, i):
            _covariance_row(cov, vectors, work, i)
            variance = product[i]
        rows[VARIANCE, i] = min(max(variance, LEAST_VARIANCE * cov[i, i]), cov[i, i])
    return log_det


@jit_inner()
def _is_weak(cov, rows, i):  # type: ignore[no-untyped-def]
    """Whether a site says so little that B^-1 has lost the digits of its row's variance."""
    return rows[TAU, i] * cov[i, i] < _WEAK_SITE


@jit_sums()
def _covariance_row(cov, vectors, work, i):  # type: ignore[no-untyped-def]
    """A row of the Gaussian's covariance, in the last of `vectors`; no digits are lost."""
    n = Index(cov.shape[0])
    root, own, right, product = vectors[2], vectors[3], vectors[4], vectors[5]
    for j in range(n):
        own[j] = root[j] * cov[i, j]
    _multiply_lower(work, own, right)
    for j in range(n):
        right[j] *= root[j]
    _multiply(cov, right, product)
    for j in range(n):
        product[j] += cov[i, j]


@jit_sums()
def _to_covariance(cov, rows, vectors, work):  # type: ignore[no-untyped-def]
    """Overwrite minus the inverse of B, in `work`, by the Gaussian's covariance."""
    n = Index(cov.shape[0])
    root, product = vectors[2], vectors[5]
    n_weak = 0
    for i in range(n):
        n_weak += _is_weak(cov, rows, i)
    weak = np.empty((n_weak, n))
    k = 0
    for i in range(n):
        if _is_weak(cov, rows, i):
            _covariance_row(cov, vectors, work, i)
            for j in range(n):
                weak[k, j] = product[j]
            k += 1
    for i in range(n):
        for j in range(i):
            work[i, j] /= max(root[i], 1e-150) * max(root[j], 1e-150)
        work[i, i] = rows[VARIANCE, i]
    k = 0
    for i in range(n):
        if _is_weak(cov, rows, i):
            for j in range(i):
                work[i, j] = weak[k, j]
            for j in range(i + Index(1), n):
                work[j, i] = weak[k, j]
            k += 1


@jit_sums()
def _multiply(a, x, out):  # type: ignore[no-untyped-def]
    """A x."""
    n = Index(a.shape[0])
    for i in range(n):
        total = 0.0
        for j in range(n):
            total += a[i, j] * x[j]
        out[i] = total


@jit_sums()
def _multiply_lower(a, x, out):  # type: ignore[no-untyped-def]
    """A x from the lower triangle of the symmetric matrix A."""
    n = Index(a.shape[0])
    for i in range(n):
        out[i] = 0.0
    for i in range(n):
        total = 0.0
        own = x[i]
        for j in range(i):
            total += a[i, j] * x[j]
            out[j] += a[i, j] * own
        out[i] += total + a[i, i] * own
