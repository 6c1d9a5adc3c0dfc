"""Algebra of many matrices of one or two rows, entry by entry in whole arrays; of more by NumPy.

A call of LAPACK or matmul for each matrix was most of what EP took under factors of two predictors.
Entries are what is contiguous in the results.
"""

import numpy as np

from pymc_skewgp._validation import FloatArray

_MOST = 2  # rows that go entry by entry


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
    if k > _MOST:
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
    if matrices.shape[-1] > _MOST:
        return np.linalg.slogdet(matrices)[1]
    return np.log(np.abs(_determinant(matrices)))


def cholesky(matrices: FloatArray) -> FloatArray:
    """Lower triangles.

    Raises
    ------
    numpy.linalg.LinAlgError
        Where one is not positive definite.
    """
    k = matrices.shape[-1]
    if k > _MOST:
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
    if k > _MOST:
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
    if max(k, m) > _MOST:
        return np.asarray((matrices @ vectors[..., None])[..., 0])
    return _last(np.array([_sum_of_products(matrices[..., i, :], vectors) for i in range(k)]), 1)
