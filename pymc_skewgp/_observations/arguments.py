"""What the exact posterior accepts: inputs, labels, pseudo-points."""

from collections.abc import Sequence
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.values import Derivative
from pymc_skewgp._validation import (
    FloatArray,
    as_count,
    as_matrix,
    as_positive,
    as_real_array,
    as_vector,
    refuse_masked,
    refuse_other_kinds,
)

# Beyond it the covariance of a derivative is one of sixth derivatives of the kernel.
_HIGHEST_ORDER = 2
# Correlation at which two pseudo-points are one: beyond it their difference is round-off.
_COINCIDENT = 1.0 - 1e-9


def as_inputs(name: str, value: ArrayLike, n_features: int | None = None) -> FloatArray:
    """`value` as a matrix of inputs; a vector is a column."""
    refuse_masked(name, value)
    if issparse(value):
        raise TypeError(
            f"{name} is a sparse matrix of shape {value.shape}, and kernels take all its entries: "
            f"pass {name}.toarray(), or fewer columns that say the same."
        )
    array = np.asarray(value)
    if array.ndim == 1:
        array = array[:, None]
    if array.size == 0:
        raise ValueError(f"{name} is empty (shape {array.shape}): at least one point is needed.")
    # A copy: what is computed later must not follow the caller's array.
    return as_matrix(name, array, (None, n_features)).copy()


def as_labels(y: ArrayLike, n: int, name: str = "y", rows: str = "X") -> NDArray[np.int64]:
    """Labels of two classes as 0 and 1; the caller knows them as `name`, one a row of `rows`."""
    refuse_masked(name, y)
    labels = np.asarray(y)
    refuse_other_kinds(name, labels, "cMm")
    if labels.ndim != 1 or labels.size != n:
        raise ValueError(
            f"{name} must have shape ({n},), one label for each row of {rows}; got {labels.shape}."
        )
    try:
        found = np.unique(labels)
    except TypeError as error:  # None among numbers, say
        raise TypeError(f"{name} must hold numbers or booleans: {error}.") from error
    for negative in (0, -1):
        if np.isin(found, (negative, 1)).all():
            return (labels == 1).astype(np.int64)
    if found.dtype.kind == "f" and np.isnan(found).any():
        raise ValueError(f"{name} must be finite, found NaN: drop those rows of {rows} and {name}.")
    shown = ", ".join(map(repr, found[:5].tolist())) + (", ..." if found.size > 5 else "")
    raise ValueError(
        f"{name} must hold two classes coded 0 and 1 (or -1 and 1); found {found.size} value(s): "
        f"{shown}. For other codes use ({name} == positive_class)."
    )


def as_values(y: ArrayLike, n: int, name: str = "y") -> FloatArray:
    """Finite values, one a row of X, as a copy."""
    values = as_real_array(name, y)
    if values.shape != (n,):
        raise ValueError(
            f"{name} must have shape ({n},), one value for each row of X; got {values.shape}."
        )
    if not np.isfinite(values).all():
        count = int((~np.isfinite(values)).sum())
        raise ValueError(
            f"{name} must be finite, found {count} NaN or infinite value(s): drop those rows of X "
            f"and {name}."
        )
    return values.copy()


def as_integers(y: ArrayLike, n: int, meaning: str, name: str = "y") -> NDArray[np.int64]:
    """Integers, one a row of X; `meaning` is what each of them is."""
    values = as_values(y, n, name)
    whole = np.floor(values)
    if not (whole == values).all():
        i = int(np.argmax(whole != values))
        raise ValueError(
            f"{name} must hold integers, one {meaning} for each row of X; row {i} has "
            f"{values[i]:.6g}."
        )
    return whole.astype(np.int64)


def as_codes(y: ArrayLike, n: int, names: Sequence[Any]) -> NDArray[np.int64]:
    """Places in `names` of what y holds; numbers are places where no name is a number."""
    refuse_masked("y", y)
    found = np.asarray(y)
    if found.shape != (n,):
        raise ValueError(
            f"y must have shape ({n},), one category for each row of X; got {found.shape}."
        )
    known = {name: code for code, name in enumerate(names)}
    if found.dtype.kind in "iufb" and not any(isinstance(name, Number) for name in names):
        known = {code: code for code in range(len(names))}
    entries = found.tolist()
    unknown = [entry for entry in entries if entry not in known]
    if unknown:
        shown = ", ".join(map(repr, dict.fromkeys(unknown[:5])))
        raise ValueError(
            f"y must hold the categories {list(known)}; found {shown} in {len(unknown)} row(s)."
        )
    return np.array([known[entry] for entry in entries], dtype=np.int64)


def frozen_copy(value: Any) -> Any:
    """An array of its own that nobody can change; numbers, graphs and None as they are."""
    if not np.ndim(value) or hasattr(value, "owner"):
        return value
    copy = np.array(value)
    copy.flags.writeable = False
    return copy


def as_positive_parameter(name: str, value: Any) -> float:
    """One positive number; the value of a random variable, an array without dimensions, is one."""
    plain = value.item() if isinstance(value, np.ndarray) and not value.ndim else value
    return as_positive(name, plain)


def chosen_of(value: Any, index: IntArray) -> Any:
    """Of a parameter that is one number for each observation, those that are chosen."""
    return np.asarray(value)[index] if np.ndim(value) == 1 else value


def as_phase(phase: ArrayLike | None, s: int) -> FloatArray:
    """Phases, +1 or -1 for each of `s` pseudo-points."""
    signs = as_vector("phase", 1.0 if phase is None else phase, s)
    if not np.isin(signs, (-1.0, 1.0)).all():
        raise ValueError(f"phase must hold +1 and -1 only, got {signs}.")
    return signs


def refuse_coincident(cov: FloatArray, phase: FloatArray, truncation: FloatArray) -> None:
    """Refuse pseudo-points with covariance `cov` that are one point, or have no variance."""
    if not (cov.diagonal() > 0).all():
        raise ValueError("cov_func has no variance at some of pseudo_points: move them.")
    sd = np.sqrt(cov.diagonal())
    correlation = np.abs(np.triu(cov / sd / sd[:, None], 1))
    i, j = np.unravel_index(int(np.argmax(correlation)), correlation.shape)
    if correlation[i, j] < _COINCIDENT:
        return
    if phase[i] * phase[j] * cov[i, j] < 0 and truncation[i] + truncation[j] <= 0:
        raise ValueError(
            f"pseudo_points {i} and {j} coincide with opposite phases: the prior asks f to be "
            "positive and negative at one point, which has probability 0. Move one, or flip its "
            "phase."
        )
    raise ValueError(
        f"pseudo_points {i} and {j} coincide (correlation 1 within 1e-9), so their latent "
        "covariance is singular: remove one of them."
    )


def as_derivative(value: Any, n_features: int | None = None) -> Derivative | None:
    """`value` as (feature, order) of a derivative, with a feature that there is; None for None."""
    if value is None:
        return None
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise TypeError(f"derivative must be (feature, order), as in (0, 1); got {value!r}.")
    feature = as_count("the feature of derivative", value[0], 0)
    order = as_count("the order of derivative", value[1])
    if order > _HIGHEST_ORDER:
        raise ValueError(f"derivatives may be of order 1 or 2, got {order}.")
    if n_features is not None and feature >= n_features:
        raise ValueError(
            f"the derivative is in feature {feature}, but X has {n_features} column(s), features 0 "
            f"to {n_features - 1}."
        )
    return Derivative(feature, order)
