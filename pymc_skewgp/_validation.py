"""Argument checks shared by every public function; each message names the argument."""

import operator
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_skewgp._errors import NotPositiveDefiniteError

FloatArray = NDArray[np.float64]
Seed = int | np.random.Generator | np.random.SeedSequence | None

# Round-off in building a covariance leaves an asymmetry of a few eps of its variances; anything
# above this relative size is a mistake in the matrix, not round-off.
SYMMETRY_RTOL = 1e-7
# Outside of these third moments, and products of variances with others, over- or underflow.
LEAST_VARIANCE, LARGEST_VARIANCE = 1e-290, 1e290
# Kinds of array that NumPy would turn into floats, or try to, without a word of what it lost.
_TIMES = (np.datetime64, np.timedelta64)
_NO_NUMBERS = {
    "c": "pass the real part, or the modulus",
    "M": "pass the time since a reference date, in some unit, as numbers",
    "m": "divide by a unit, as in {name} / np.timedelta64(1, 'D')",
    "U": "convert text to numbers first",
    "S": "convert text to numbers first",
}


def as_float_array(name: str, value: ArrayLike, ndim: int) -> FloatArray:
    """`value` as a float64 array with `ndim` dimensions, free of NaN (infinities allowed)."""
    array = as_real_array(name, value)
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension(s), got shape {array.shape}.")
    if np.isnan(array).any():
        count = int(np.isnan(array).sum())
        raise ValueError(f"{name} holds {count} NaN value(s): remove or impute them first.")
    return array


def as_real_array(name: str, value: Any) -> FloatArray:
    """`value` as a float64 array of any shape, NaN and infinities allowed.

    Raises
    ------
    TypeError
        What is no real number: text, complex numbers, dates and durations.
    ValueError
        Masked entries.
    """
    refuse_masked(name, value)
    try:
        array = np.asarray(value)
        if array.dtype.kind not in _NO_NUMBERS:
            # As objects these would become counts of a unit that nobody chose.
            if array.dtype == object and any(isinstance(x, _TIMES) for x in array.flat):
                raise TypeError("dates or durations as objects")
            array = array.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"{name} must be numeric, got {type(value).__name__}: {error}.") from error
    refuse_other_kinds(name, array)
    return array


def refuse_masked(name: str, value: Any) -> None:
    """Raise for masked entries: as a plain array it would lose its mask, and they would count."""
    if np.ma.is_masked(value):
        count = int(np.ma.count_masked(value))
        raise ValueError(
            f"{name} has masked values ({count} of {np.size(value)}): drop those rows, or fill "
            "them in."
        )


def refuse_other_kinds(name: str, array: NDArray[Any], kinds: str = "cMmUS") -> None:
    """Raise for an array of what is no real number; `kinds` as NumPy's types have them."""
    if array.dtype.kind in kinds:
        advice = _NO_NUMBERS[array.dtype.kind].format(name=name)
        raise TypeError(f"{name} must be numeric, got {array.dtype.name}: {advice}.")


def as_vector(
    name: str, value: ArrayLike, size: int | None = None, *, allow_inf: bool = False
) -> FloatArray:
    """`value` as a vector of length `size`; a scalar is repeated when `size` is given."""
    if size is not None and np.ndim(value) == 0:
        value = np.full(size, as_real_array(name, value))
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
    if any(s not in (None, m) for s, m in zip(shape, matrix.shape, strict=True)):
        wanted = ", ".join("any" if s is None else str(s) for s in shape)
        raise ValueError(f"{name} must have shape ({wanted}), got {matrix.shape}.")
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
    refuse_extreme_variances(name, diagonal)
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


def refuse_extreme_variances(name: str, variances: FloatArray) -> None:
    """Raise for a positive variance whose products with others over- or underflow."""
    extreme = (variances > 0) & ((variances < LEAST_VARIANCE) | (variances > LARGEST_VARIANCE))
    if extreme.any():
        i = int(np.argmax(extreme))
        raise ValueError(
            f"{name} has the variance {variances[i]:.3g} (diagonal entry {i}), outside of "
            f"[{LEAST_VARIANCE:.0e}, {LARGEST_VARIANCE:.0e}]: products of it are beyond double "
            "precision. Change the units of the variable."
        )


def as_count(name: str, value: Any, minimum: int = 1) -> int:
    """`value` as an integer of at least `minimum`; booleans are no counts."""
    if isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be an integer, got {value} (a boolean).")
    try:
        count = operator.index(value)
    except TypeError as error:
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}.") from error
    if count < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {count}.")
    return count


def as_positive(name: str, value: Any, *, or_zero: bool = False) -> float:
    """`value` as one positive, finite number; with `or_zero` 0 will do."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}.")
    number = float(value)
    if np.isnan(number) or number < 0 or (number == 0 and not or_zero):
        wanted = "not be negative" if or_zero else "be positive"
        raise ValueError(f"{name} must {wanted}, got {number:g}.")
    if number == np.inf:
        raise ValueError(f"{name} must be finite, got {number}.")
    return number


def as_generator(random_seed: Any, name: str = "random_seed") -> np.random.Generator:
    """A generator from what every `random_seed` may be: None, int, SeedSequence or Generator.

    A Generator is used as it is, so that it moves on. Several integers are one seed, as in NumPy.
    """
    accepted = (
        "None, an integer of at least 0, a numpy.random.SeedSequence or a numpy.random.Generator"
    )
    if random_seed is None or isinstance(random_seed, np.random.Generator | np.random.SeedSequence):
        return np.random.default_rng(random_seed)
    if isinstance(random_seed, np.random.RandomState):
        raise TypeError(
            f"{name} must be {accepted}, got a RandomState: pass an integer drawn from it, "
            "random_state.randint(2**31)."
        )
    if isinstance(random_seed, bool | np.bool_):
        raise TypeError(f"{name} must be {accepted}, got {random_seed} (a boolean).")
    if isinstance(random_seed, list | tuple | np.ndarray) and np.ndim(random_seed) == 1:
        for entry in random_seed:
            as_generator(entry, f"each entry of {name}")
        return np.random.default_rng([operator.index(entry) for entry in random_seed])
    try:
        number = operator.index(random_seed)
    except TypeError as error:
        kind = type(random_seed).__name__
        raise TypeError(f"{name} must be {accepted}, got {kind}.") from error
    if number < 0:
        raise ValueError(f"{name} must be {accepted}, got {number}.")
    return np.random.default_rng(number)


def _refuse_infinite(name: str, array: FloatArray) -> None:
    if not np.isfinite(array).all():
        count = int((~np.isfinite(array)).sum())
        raise ValueError(f"{name} holds {count} infinite value(s); finite numbers are needed.")
