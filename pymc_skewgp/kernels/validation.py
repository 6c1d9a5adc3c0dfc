"""Argument checks shared by every public function; each message names the argument."""

import operator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_skewgp.kernels.errors import NotPositiveDefiniteError

FloatArray = NDArray[np.float64]

# Round-off in building a covariance leaves an asymmetry of a few eps of its variances; anything
# above this relative size is a mistake in the matrix, not round-off.
SYMMETRY_RTOL = 1e-7


def as_float_array(name: str, value: ArrayLike, ndim: int) -> FloatArray:
    """`value` as a float64 array with `ndim` dimensions, free of NaN (infinities allowed)."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be numeric, got {type(value).__name__}: {error}.") from error
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension(s), got shape {array.shape}.")
    if np.isnan(array).any():
        count = int(np.isnan(array).sum())
        raise ValueError(f"{name} holds {count} NaN value(s): remove or impute them first.")
    return array


def as_vector(
    name: str, value: ArrayLike, size: int | None = None, *, allow_inf: bool = False
) -> FloatArray:
    """`value` as a vector of length `size`; a scalar is repeated when `size` is given."""
    if size is not None and np.ndim(value) == 0:
        value = np.full(size, value)
    vector = as_float_array(name, value, 1)
    if size is not None and vector.size != size:
        raise ValueError(f"{name} must have length {size}, got {vector.size}.")
    if not allow_inf:
        _refuse_infinite(name, vector)
    return vector


def as_matrix(
    name: str, value: ArrayLike, shape: tuple[int | None, int | None] = (None, None)
) -> FloatArray:
    """`value` as a finite matrix; an entry of `shape` that is None is left open."""
    matrix = as_float_array(name, value, 2)
    wanted = tuple(s if s is not None else m for s, m in zip(shape, matrix.shape, strict=True))
    if matrix.shape != wanted:
        raise ValueError(f"{name} must have shape {wanted}, got {matrix.shape}.")
    _refuse_infinite(name, matrix)
    return matrix


def as_covariance(name: str, value: ArrayLike, size: int | None = None) -> FloatArray:
    """`value` as a finite, square, symmetric matrix with a positive diagonal.

    Positive definiteness is left to the factorisation (`linalg.cholesky`), which finds it for free.
    """
    matrix = as_matrix(name, value, (size, size))
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name} must be square, got shape {matrix.shape}.")
    if matrix.size == 0:
        raise ValueError(f"{name} is empty (shape {matrix.shape}): at least one row is needed.")
    diagonal = matrix.diagonal()
    if (diagonal <= 0).any():
        index = int(np.argmin(diagonal))
        raise NotPositiveDefiniteError(
            f"{name} is not positive definite: diagonal entry {index} is {diagonal[index]:.3g}, "
            "and variances must be positive."
        )
    # Against the two variances, not the largest entry: units may differ from row to row.
    gap = np.abs(matrix - matrix.T)
    sd = np.sqrt(diagonal)
    relative = gap / (sd * sd[:, None])
    if relative.max() > SYMMETRY_RTOL:
        i, j = np.unravel_index(int(relative.argmax()), gap.shape)
        raise ValueError(
            f"{name} is not symmetric: entries ({i}, {j}) and ({j}, {i}) differ by {gap[i, j]:.3g} "
            f"(standard deviations {sd[i]:.3g} and {sd[j]:.3g}). "
            f"Use ({name} + {name}.T) / 2 if that is round-off."
        )
    return matrix if not gap.any() else (matrix + matrix.T) / 2


def as_bounds(
    lower: ArrayLike | None, upper: ArrayLike | None, size: int, *, upper_name: str = "upper"
) -> tuple[FloatArray, FloatArray]:
    """Lower and upper limits of a rectangle; None means unbounded on that side."""
    low = as_vector("lower", -np.inf if lower is None else lower, size, allow_inf=True)
    high = as_vector(upper_name, np.inf if upper is None else upper, size, allow_inf=True)
    empty = ~(low < high)
    if empty.any():
        i = int(np.argmax(empty))
        raise ValueError(
            f"lower must be below {upper_name} in every row; row {i} has lower {low[i]:.6g} and "
            f"{upper_name} {high[i]:.6g} ({int(empty.sum())} such row(s)): swap them, or drop the "
            "constraint."
        )
    return low, high


def as_count(name: str, value: int, minimum: int = 1) -> int:
    """`value` as an integer of at least `minimum`."""
    try:
        count = operator.index(value)
    except TypeError as error:
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}.") from error
    if count < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {count}.")
    return count


def _refuse_infinite(name: str, array: FloatArray) -> None:
    if not np.isfinite(array).all():
        count = int((~np.isfinite(array)).sum())
        raise ValueError(f"{name} holds {count} infinite value(s); finite numbers are needed.")
