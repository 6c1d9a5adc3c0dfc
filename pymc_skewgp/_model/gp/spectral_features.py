"""PyMC's basis of the Hilbert space approximation, as a graph of the inputs and of the box."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.gp.cov import BaseCovariance
from pymc.gp.hsgp_approx import calc_eigenvalues, calc_eigenvectors

from pymc_skewgp._errors import ApproximationError


def active_columns(cov_func: Any) -> list[int]:
    """Columns of the inputs that the kernel depends on.

    Raises
    ------
    ApproximationError
        For a sum whose terms depend on different ones: PyMC has no spectral density of it.
    """
    parts = [part for part in _parts(cov_func) if hasattr(part, "active_dims")]
    kinds = {tuple(map(int, part.active_dims)) for part in parts}
    if len(kinds) != 1:
        raise ApproximationError(
            f"HSGP needs a kernel whose terms all depend on the same columns; {_name(cov_func)} "
            f"has terms of {sorted(kinds)}: use Inducing."
        )
    return list(kinds.pop())


def spectral_features(
    cov_func: Any,
    X: Any,
    half_width: Any,
    m: tuple[int, ...],
    derivative: tuple[int, int] | None = None,
) -> Any:
    """Eigenfunctions at centred active columns, times the root of the spectral density.

    Or a derivative of them, of which the sine in one column is replaced: (column, order).

    Raises
    ------
    ApproximationError
        For a kernel that has no spectral density.
    """
    density = spectral_density(cov_func, half_width, m)
    if derivative is not None:
        return _differentiated(X, half_width, m, *derivative) * pt.sqrt(density)
    return spectral_basis(X, half_width, m) * pt.sqrt(density)


def spectral_basis(X: Any, half_width: Any, m: tuple[int, ...]) -> Any:
    """Eigenfunctions of the Laplacian on the box, at centred active columns."""
    return calc_eigenvectors(X, half_width, calc_eigenvalues(half_width, m), m)


def spectral_density(cov_func: Any, half_width: Any, m: tuple[int, ...]) -> Any:
    """Of a kernel at the frequencies of these eigenfunctions.

    Raises
    ------
    ApproximationError
        For a kernel that has none.
    """
    eigenvalues = calc_eigenvalues(half_width, m)
    try:
        return cov_func.power_spectral_density(pt.sqrt(eigenvalues))
    except (AttributeError, NotImplementedError, TypeError, ValueError) as error:
        raise ApproximationError(
            f"HSGP needs the spectral density of the kernel, and PyMC has none of "
            f"{_name(cov_func)}: use a sum of stationary kernels such as ExpQuad and Matern52, or "
            "Inducing for any kernel."
        ) from error


def _differentiated(X: Any, half_width: Any, m: tuple[int, ...], column: int, order: int) -> Any:
    """Products of L^-1/2 sin{w (x + L)}, the one of a column differentiated."""
    frequency = pt.sqrt(calc_eigenvalues(half_width, m))
    basis = 1.0
    for k in range(X.type.shape[1]):
        w, angle = frequency[:, k], frequency[:, k] * (X[:, k, None] + half_width[k])
        times = order if k == column else 0
        # Each derivative turns the sine by a quarter, and multiplies it by the frequency.
        basis = basis * w**times * pt.sin(angle + times * np.pi / 2.0) / pt.sqrt(half_width[k])
    return basis


def _parts(cov_func: Any) -> Iterator[Any]:
    """The kernels that a kernel is made of."""
    listed = getattr(cov_func, "_factor_list", None)
    if listed is None:
        yield cov_func
        return
    for part in listed:
        if isinstance(part, BaseCovariance):
            yield from _parts(part)


def _name(cov_func: Any) -> str:
    names = [type(part).__name__ for part in _parts(cov_func)]
    own = type(cov_func).__name__
    return own if names in ([], [own]) else f"{own} of {', '.join(names)}"
