"""Standard errors of hyperparameters on their own scale, from the Hessian at the optimum."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._learn.point import Point
from pymc_skewgp._validation import FloatArray

_STEP = 1e-4


def standard_errors(
    named: Callable[[Point], dict[str, NDArray[Any]]],
    point: Point,
    hessian: FloatArray | None,
    least: float,
) -> dict[str, NDArray[Any]]:
    """Of every value by name, by the inverse of the negative Hessian and the delta method.

    Parameters
    ----------
    named : callable
        Values by name at a point.
    point : Point
        The optimum.
    hessian : ndarray or None
        Negative Hessian there. Without one there are no standard errors.
    least : float
        Eigenvalue below which a direction is flat: values that depend on such a direction have an
        infinite standard error.
    """
    if hessian is None:
        return {}
    values, vectors = np.linalg.eigh(hessian)
    steep = values >= least
    root = vectors[:, steep] / np.sqrt(values[steep])
    flat = vectors[:, ~steep]
    errors = {}
    for name, jacobian in _jacobians(named, point).items():
        if not jacobian.any():
            continue  # a constant
        error = np.sqrt(((jacobian @ root) ** 2).sum(axis=-1))
        lost = (jacobian @ flat) ** 2
        total = (jacobian**2).sum(axis=-1)
        errors[name] = np.where(lost.sum(axis=-1) > 1e-2 * total, np.inf, error)
    return errors


def _jacobians(
    named: Callable[[Point], dict[str, NDArray[Any]]], point: Point
) -> dict[str, FloatArray]:
    """Derivatives of every float by name in the coordinates, by central differences."""
    slopes: dict[str, list[FloatArray]] = {}
    for i in range(point.x.size):
        step = np.zeros(point.x.size)
        step[i] = _STEP
        ahead, behind = named(point.at(point.x + step)), named(point.at(point.x - step))
        for name, value in ahead.items():
            if value.dtype.kind == "f":
                slopes.setdefault(name, []).append((value - behind[name]) / (2.0 * _STEP))
    return {name: np.stack(slope, axis=-1) for name, slope in slopes.items()}
