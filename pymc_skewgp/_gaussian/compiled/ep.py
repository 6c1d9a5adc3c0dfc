"""EP for intervals and the twisted sampler's evidence without Python: for chains in threads.

Up to some hundred rows. Nothing here calls BLAS, whose threads would get in each other's way.
"""

import math
from functools import cache
from typing import Any

import numpy as np
from llvmlite.binding import add_symbol
from numba import carray, cfunc, types  # type: ignore[attr-defined]

from pymc_skewgp._gaussian.compiled import rows as r

# The inverse of a positive definite matrix, eight rows at a time.
#
# Up to some hundred rows this takes less time than LAPACK's two calls.

_WIDTH = 8
# Of other types than bool: for each of its values a function would be compiled anew.
WHOLE, DETERMINANT = r.Index(1), r.Index(0)


@r.jit_sums()
def sweep(a, whole):  # type: ignore[no-untyped-def]
    """Overwrite the lower triangle of `a` by minus its inverse; return the log determinant.

    Rows are swept (Goodnight 1979, doi:10.1080/00031305.1979.10482685), n^3 operations in all.
    Where not the `whole` is asked for, rows before the ones in turn are left out: of n^3/3
    operations only the log determinant is of use. It is not a number where `a` is not positive
    definite.
    """
    n, width = r.Index(a.shape[0]), r.Index(_WIDTH)
    own = np.empty((_WIDTH, _WIDTH))
    columns = np.empty((n + width, width))
    solved = np.empty((width, n + width))
    log_det = 0.0
    start = r.Index(0)
    while start < n:
        stop = min(start + width, n)
        first = r.Index(0) if whole else start
        _gather(a, columns, own, start, first)
        log_det += _sweep_block(own)
        if np.isnan(log_det):
            return log_det
        for j in range(first, n):
            for m in range(width):
                total = 0.0
                for k in range(width):
                    total -= columns[j, k] * own[k, m]
                solved[m, j] = total
        _subtract(a, columns, solved, first)
        for k in range(start, stop):
            for i in range(first, start):
                a[k, i] = solved[k - start, i]
            for m in range(start, k + r.Index(1)):
                a[k, m] = own[k - start, m - start]
        for i in range(stop, n):
            for k in range(start, stop):
                a[i, k] = solved[k - start, i]
        start = stop
    return log_det


@r.jit_sums()
def _gather(a, columns, own, start, first):  # type: ignore[no-untyped-def]
    """Take the columns of a block of rows from the lower triangle; missing ones are 0 and 1."""
    n, width = r.Index(a.shape[0]), r.Index(_WIDTH)
    stop = min(start + width, n)
    if stop < start + width:
        for i in range(n + width):
            for k in range(width):
                columns[i, k] = 0.0
    for i in range(first, start):
        for k in range(start, stop):
            columns[i, k - start] = a[k, i]
    for i in range(start, stop):
        for k in range(start, i + r.Index(1)):
            columns[i, k - start] = a[i, k]
            columns[k, i - start] = a[i, k]
    for i in range(stop, n):
        for k in range(start, stop):
            columns[i, k - start] = a[i, k]
    for i in range(width):
        for k in range(width):
            inside = start + i < stop and start + k < stop
            own[i, k] = columns[start + i, k] if inside else (1.0 if i == k else 0.0)


@r.jit_sums()
def _sweep_block(p):  # type: ignore[no-untyped-def]
    """Replace `p` by minus its inverse; return its log determinant, or not a number."""
    n = r.Index(_WIDTH)
    log_det = 0.0
    for k in range(n):
        pivot = p[k, k]
        if not pivot > 0.0:
            return np.nan
        log_det += math.log(pivot)
        share = 1.0 / pivot
        for i in range(n):
            if i != k:
                factor = p[i, k] * share
                for j in range(n):
                    if j != k:
                        p[i, j] -= factor * p[k, j]
        for i in range(n):
            if i != k:
                p[i, k] *= share
                p[k, i] *= share
        p[k, k] = -share
    return log_det


@r.jit_sums()
def _subtract(a, c, d, first):  # type: ignore[no-untyped-def]
    """Take c d off the lower triangle, two rows at once; written out, so that it is vectorised."""
    k0, k1, k2, k3 = r.Index(0), r.Index(1), r.Index(2), r.Index(3)
    k4, k5, k6, k7 = r.Index(4), r.Index(5), r.Index(6), r.Index(7)
    n = r.Index(a.shape[0])
    i = first
    while i < n:
        s = min(i + k1, n - k1)
        p0, p1, p2, p3 = c[i, k0], c[i, k1], c[i, k2], c[i, k3]
        p4, p5, p6, p7 = c[i, k4], c[i, k5], c[i, k6], c[i, k7]
        if s == i:
            for j in range(first, i + k1):
                x = p0 * d[k0, j] + p1 * d[k1, j] + p2 * d[k2, j] + p3 * d[k3, j]
                x += p4 * d[k4, j] + p5 * d[k5, j] + p6 * d[k6, j] + p7 * d[k7, j]
                a[i, j] -= x
            return
        q0, q1, q2, q3 = c[s, k0], c[s, k1], c[s, k2], c[s, k3]
        q4, q5, q6, q7 = c[s, k4], c[s, k5], c[s, k6], c[s, k7]
        # One entry above the diagonal comes along; nobody reads it.
        for j in range(first, s + k1):
            e0, e1, e2, e3 = d[k0, j], d[k1, j], d[k2, j], d[k3, j]
            e4, e5, e6, e7 = d[k4, j], d[k5, j], d[k6, j], d[k7, j]
            x = p0 * e0 + p1 * e1 + p2 * e2 + p3 * e3
            x += p4 * e4 + p5 * e5 + p6 * e6 + p7 * e7
            y = q0 * e0 + q1 * e1 + q2 * e2 + q3 * e3
            y += q4 * e4 + q5 * e5 + q6 * e6 + q7 * e7
            a[i, j] -= x
            a[s, j] -= y
        i += k2


# As in `SemidefiniteMatrix`.
_WEAK_SITE = 1e-6
_judge: Any = r.jit_inner()(r.judge)
_solve_model: Any = r.jit_inner()(r.solve_model)


@r.jit_inner()
def _log_scales(rows):  # type: ignore[no-untyped-def]
    """Sum of `tilted.log_scales` over the rows."""
    total = 0.0
    for i in range(rows.shape[1]):
        tau, nu = rows[r.TAU, i], rows[r.NU, i]
        mean, var = rows[r.CAVITY_MEAN, i], rows[r.CAVITY_VAR, i]
        ratio = 1.0 + tau * var
        quadratic = (mean * mean * tau - 2.0 * mean * nu - var * nu * nu) / ratio
        total += rows[r.LOG_MASS, i] + 0.5 * math.log(ratio) + 0.5 * quadratic
    return total


@r.jit_inner()
def fit(cov, limits, work, tol, max_sweeps):  # type: ignore[no-untyped-def]
    """Rows at EP's fixed point, G^-1 mean, and the log probability; that is nan for failure.

    `work` (n, n) is left with minus the inverse of B = I + T^.5 G T^.5 in its lower triangle.
    """
    n = cov.shape[0]
    rows, model, vectors = np.zeros((r.N_ROWS, n)), np.empty((r.N_ROWS, n)), np.empty((6, n))
    weights, least = vectors[0], vectors[1]
    for i in range(n):
        least[i] = r.LEAST_CAVITY / cov[i, i]
        rows[r.VARIANCE, i] = cov[i, i]
    r.tilt(rows, limits, least)
    for i in range(n):
        rows[r.TAU, i], rows[r.NU, i] = rows[r.NEW_TAU, i], rows[r.NEW_NU, i]
    progress = r.Progress(np.array([np.inf]), np.array([1.0]), np.array([0.0]))
    for _ in range(max_sweeps):
        log_det = _site_product(cov, rows, vectors, work)
        if np.isnan(log_det):
            break
        found = _judge(rows, limits, least, tol, progress)
        if found == r.CONVERGED:
            log_prob = _log_scales(rows) - 0.5 * log_det
            for i in range(n):
                log_prob += 0.5 * rows[r.NU, i] * rows[r.MEAN, i]
            return rows, weights, log_prob
        if found == r.STUCK:
            break
        if found == r.NEAR:
            _to_covariance(cov, rows, vectors, work)
            for i in range(n):
                for k in range(r.N_ROWS):
                    model[k, i] = rows[k, i]
            _solve_model(work, rows, model, limits, progress.residual[0], tol)
        share = progress.damping[0] if found == r.FAR else 1.0
        asked = rows if found == r.FAR else model
        for i in range(n):
            for k in range(2):
                rows[r.TAU + k, i] += share * (asked[r.NEW_TAU + k, i] - rows[r.TAU + k, i])
    return rows, weights, np.nan


@r.jit_sums()
def gradient(rows, limits, weights, work, by_limits, by_cov):  # type: ignore[no-untyped-def]
    """Fill in the derivatives of the log probability: see `ep_gradient`."""
    n = r.Index(work.shape[0])
    for i in range(n):
        sd = math.sqrt(rows[r.CAVITY_VAR, i])
        for k in range(2):
            by_limits[k, i] = 0.0
            if np.isfinite(limits[k, i]):
                at = (limits[k, i] - rows[r.CAVITY_MEAN, i]) / sd
                by_limits[k, i] = (2.0 * k - 1.0) * r.edge_density(at, rows[r.LOG_MASS, i]) / sd
        root = math.sqrt(rows[r.TAU, i])
        for j in range(i + r.Index(1)):
            entry = 0.5 * weights[i] * weights[j]
            entry += 0.5 * root * math.sqrt(rows[r.TAU, j]) * work[i, j]
            by_cov[i, j] = entry
            by_cov[j, i] = entry


@r.jit_sums()
def _site_product(cov, rows, vectors, work):  # type: ignore[no-untyped-def]
    """Fill in the marginals under the sites, as `SemidefiniteMatrix` does; log det B."""
    n = r.Index(cov.shape[0])
    weights, root, own, right, product = (
        vectors[0],
        vectors[2],
        vectors[3],
        vectors[4],
        vectors[5],
    )
    for i in range(n):
        root[i] = math.sqrt(rows[r.TAU, i])
        own[i] = rows[r.NU, i] if _is_weak(cov, rows, i) else 0.0
        for j in range(i):
            work[i, j] = root[i] * root[j] * cov[i, j]
        work[i, i] = 1.0 + rows[r.TAU, i] * cov[i, i]
    log_det = sweep(work, WHOLE)
    _multiply(cov, own, product)
    for i in range(n):
        right[i] = 0.0 if _is_weak(cov, rows, i) else rows[r.NU, i] / root[i]
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
        rows[r.MEAN, i] = product[i]
    for i in range(n):
        variance = (1.0 + work[i, i]) / max(rows[r.TAU, i], 1e-300)
        if _is_weak(cov, rows, i):
            _covariance_row(cov, vectors, work, i)
            variance = product[i]
        rows[r.VARIANCE, i] = min(max(variance, r.LEAST_VARIANCE * cov[i, i]), cov[i, i])
    return log_det


@r.jit_inner()
def _is_weak(cov, rows, i):  # type: ignore[no-untyped-def]
    """Whether a site says so little that B^-1 has lost the digits of its row's variance."""
    return rows[r.TAU, i] * cov[i, i] < _WEAK_SITE


@r.jit_sums()
def _covariance_row(cov, vectors, work, i):  # type: ignore[no-untyped-def]
    """A row of the Gaussian's covariance, in the last of `vectors`; no digits are lost."""
    n = r.Index(cov.shape[0])
    root, own, right, product = vectors[2], vectors[3], vectors[4], vectors[5]
    for j in range(n):
        own[j] = root[j] * cov[i, j]
    _multiply_lower(work, own, right)
    for j in range(n):
        right[j] *= root[j]
    _multiply(cov, right, product)
    for j in range(n):
        product[j] += cov[i, j]


@r.jit_sums()
def _to_covariance(cov, rows, vectors, work):  # type: ignore[no-untyped-def]
    """Overwrite minus the inverse of B, in `work`, by the Gaussian's covariance."""
    n = r.Index(cov.shape[0])
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
        work[i, i] = rows[r.VARIANCE, i]
    k = 0
    for i in range(n):
        if _is_weak(cov, rows, i):
            for j in range(i):
                work[i, j] = weak[k, j]
            for j in range(i + r.Index(1), n):
                work[j, i] = weak[k, j]
            k += 1


@r.jit_sums()
def _multiply(a, x, out):  # type: ignore[no-untyped-def]
    """A x."""
    n = r.Index(a.shape[0])
    for i in range(n):
        total = 0.0
        for j in range(n):
            total += a[i, j] * x[j]
        out[i] = total


@r.jit_sums()
def _multiply_lower(a, x, out):  # type: ignore[no-untyped-def]
    """A x from the lower triangle of the symmetric matrix A."""
    n = r.Index(a.shape[0])
    for i in range(n):
        out[i] = 0.0
    for i in range(n):
        total = 0.0
        own = x[i]
        for j in range(i):
            total += a[i, j] * x[j]
            out[j] += a[i, j] * own
        out[i] += total + a[i, i] * own


# Log probability of a rectangle by EP, with its gradient: `log_prob_and_gradient` without Python.
#
# For what is asked for again and again while a chain runs. What is not simple is left to Python.
# Other compiled functions call it by a symbol, as one of another library. Where it were linked into
# them, each would be compiled together with all of it anew.

# Rows up to which it is at least as fast as LAPACK.
_MOST_ROWS = 400
# As in `log_prob_and_gradient`.
_TOLERANCE = 1e-8
_ROUND_OFF = 1e-13
_LARGEST_EFFECT = 0.1
_RELATIVE_EFFECT = 1e-6
_MAX_SWEEPS = 50
# The largest jitter that a covariance may need to be one.
_JITTER = 1e-6


_ARRAY = types.CPointer(types.float64)
_SIGNATURE = types.float64(types.intp, *[_ARRAY] * 5)
_SYMBOL = "pymc_skewgp_rectangle_by_ep"


@cache
def rectangle_by_ep() -> Any:
    """`_rectangle_by_ep` for functions that numba compiles, arrays as ``x.ctypes``."""
    # Kept in this module: the code must not be freed.
    add_symbol(_SYMBOL, _compiled().address)
    return types.ExternalFunction(_SYMBOL, _SIGNATURE)


@cache
def _compiled() -> Any:
    return cfunc(_SIGNATURE, cache=True, error_model="numpy")(_rectangle_by_ep)


def _rectangle_by_ep(n, cov, noise, limits, by_cov, by_limits):  # type: ignore[no-untyped-def]
    """Log P(limits) under N(0, cov + diag(noise)), and the derivatives filled in.

    `limits` and `by_limits` are (2, n). `cov` must be a covariance by itself, as `LogEvidence` asks
    for, and the noise be more than jitter. The result is not a number where Python has to decide:
    at few or many rows, where a number is missing or a matrix not definite, where EP is stuck or
    round-off decides.
    """
    if n < 3 or n > _MOST_ROWS:
        return np.nan
    square, pair = (n, n), (2, n)
    limits, by_limits = carray(limits, pair), carray(by_limits, pair)
    cov, by_cov, noise = carray(cov, square), carray(by_cov, square), carray(noise, n)
    work, joint = np.empty((n, n)), np.empty((n, n))
    n_bounded = 0
    for i in range(n):
        if not (limits[0, i] < limits[1, i] and noise[i] > _JITTER * cov[i, i] > 0.0):
            return np.nan
        n_bounded += np.isfinite(limits[0, i]) or np.isfinite(limits[1, i])
        for j in range(i + 1):
            work[i, j] = joint[i, j] = joint[j, i] = 0.5 * (cov[i, j] + cov[j, i])
        work[i, i] *= 1.0 + _JITTER
        joint[i, i] += noise[i]
    if n_bounded < 3 or np.isnan(sweep(work, DETERMINANT)):
        return np.nan
    rows, weights, log_prob = fit(joint, limits, work, _TOLERANCE, _MAX_SWEEPS)
    if not np.isfinite(log_prob):
        return np.nan
    gradient(rows, limits, weights, work, by_limits, by_cov)
    effect = 0.0
    for i in range(n):
        effect += _ROUND_OFF * joint[i, i] * by_cov[i, i]
    if not math.fabs(effect) <= _LARGEST_EFFECT + _RELATIVE_EFFECT * math.fabs(log_prob):
        return np.nan
    return log_prob
