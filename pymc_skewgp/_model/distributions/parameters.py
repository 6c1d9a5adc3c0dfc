"""What the vectors and matrices given to a distribution may be, as far as is known at build."""

import warnings
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor import config
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_skewgp._errors import JitterWarning, NotPositiveDefiniteError
from pymc_skewgp._gaussian import linalg
from pymc_skewgp._validation import FloatArray, as_covariance


def as_parameter(name: str, value: Any, ndim: int) -> TensorVariable:
    """`value` as a floating-point variable with `ndim` core dimensions.

    Raises
    ------
    TypeError
        Not numeric.
    ValueError
        Too few dimensions (a scalar will do for a vector), or a constant that holds NaN.
    """
    try:
        variable = pt.as_tensor_variable(value)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise TypeError(f"{name} must be numeric, got {type(value).__name__}: {error}") from error
    if variable.type.dtype.startswith("complex"):
        raise TypeError(f"{name} must be real, got {variable.type.dtype}.")
    found = variable.type.ndim
    if found < ndim and not (ndim == 1 and found == 0):
        raise ValueError(f"{name} must have at least {ndim} dimensions, got {found}.")
    known = known_value(variable)
    if known is not None:
        if np.isnan(known).any():
            count = int(np.isnan(known).sum())
            raise ValueError(f"{name} holds {count} NaN value(s): remove or impute them first.")
        # Of the type of the draws, which transforms of them have to keep.
        return variable if variable.type.dtype == config.floatX else _constant(known)
    if not variable.type.dtype.startswith("float"):
        return pt.cast(variable, "floatX")
    return variable


def as_covariance_parameter(name: str, value: Any) -> TensorVariable:
    """`value` as square matrices; constant ones symmetric and positive definite.

    Raises
    ------
    ValueError, NotPositiveDefiniteError
        When it is known to be anything else; otherwise as `as_parameter`.
    """
    variable = as_parameter(name, value, 2)
    rows, columns = variable.type.shape[-2:]
    if None not in (rows, columns) and rows != columns:
        raise ValueError(f"{name} must be square, got shape {(rows, columns)}.")
    check_known_finite(name, variable)
    known = known_value(variable)
    if known is not None and known.size:
        for matrix in known.reshape(-1, rows, rows):
            check_positive_definite(name, as_covariance(name, matrix))
    return variable


def as_vector_parameter(name: str, value: Any, matrix: TensorVariable) -> TensorVariable:
    """`value` as a vector with an entry for each row of `matrix`; a single number is repeated.

    Raises
    ------
    ValueError
        When the length is known to differ; otherwise as `as_parameter`.
    """
    vector = as_parameter(name, value, 1)
    wanted = matrix.type.shape[-1]
    length = vector.type.shape[-1] if vector.type.ndim else 1
    if length == wanted and vector.type.ndim:
        return vector
    if length == 1:
        known = known_value(vector)
        batch = tuple(vector.shape[:-1])
        if known is not None and wanted is not None:
            return _constant(np.broadcast_to(known, (*known.shape[:-1], wanted)))
        return pt.alloc(vector, *batch, matrix.shape[-1])
    if None not in (length, wanted):
        raise ValueError(f"{name} must have length {wanted}, got {length}.")
    return vector


def known_value(variable: TensorVariable) -> FloatArray | None:
    """The numbers of a constant, None for everything that may yet change."""
    if not isinstance(variable, TensorConstant):
        return None
    return np.asarray(variable.data, dtype=np.float64)


def check_known_finite(name: str, variable: TensorVariable) -> None:
    """Refuse a constant that holds infinities."""
    known = known_value(variable)
    if known is not None and not np.isfinite(known).all():
        count = int((~np.isfinite(known)).sum())
        raise ValueError(f"{name} holds {count} infinite value(s); finite numbers are needed.")


def check_static_shape(name: str, variable: TensorVariable, wanted: tuple[int | None, ...]) -> None:
    """Refuse core dimensions that are known to differ from those wanted; None: not known."""
    found = variable.type.shape[-len(wanted) :]
    if any(None not in (n, m) and n != m for n, m in zip(found, wanted, strict=True)):
        shape = tuple(m if m is not None else n for n, m in zip(found, wanted, strict=True))
        raise ValueError(f"{name} must have shape {shape}, got {found}.")


def check_positive_definite(name: str, matrix: FloatArray) -> None:
    """Refuse a matrix whose density is zero everywhere, for all that jitter would mend it.

    A log density cannot add jitter: it has to be a smooth function of the matrix.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", JitterWarning)
        try:
            linalg.cholesky(name, matrix)
        except JitterWarning as warning:
            raise NotPositiveDefiniteError(
                f"{name} is numerically singular, so that the log density is -inf everywhere: "
                "add a small multiple of the identity to it (1e-6 of its mean variance)."
            ) from warning


def _constant(value: FloatArray) -> TensorConstant:
    return pt.constant(np.asarray(value, dtype=config.floatX))
