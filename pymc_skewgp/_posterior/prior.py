"""The prior of a latent function: a Gaussian process, or a Skew GP."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from pymc_skewgp._errors import NotDifferentiableError, NotPositiveDefiniteError
from pymc_skewgp._observations.arguments import refuse_coincident
from pymc_skewgp._observations.values import Derivative
from pymc_skewgp._posterior.approximations.features import Approximation
from pymc_skewgp._sun.contradiction import refuse_contradictory_points
from pymc_skewgp._validation import (
    FloatArray,
    as_covariance,
    as_float_array,
    as_real_array,
    refuse_extreme_variances,
)


class CovarianceFunction(Protocol):
    """A kernel on arrays: ``k(X, Xs)`` of shape (n, m), ``k(X, diag=True)`` of shape (n,).

    ``k(X)`` is the covariance of one set of rows, with ``k(X, diag=True)`` on its diagonal. What it
    has beyond ``k(X, X)`` is noise of each row, which no other row shares: a diagonal matrix.

    Where derivatives of f are asked for it also has a method ``derivative(X, Xs, left, right)``,
    the covariance (n, m) of a `Derivative` of f at X with another one at Xs, None for f itself; and
    the mean function one ``derivative(X, derivative)``.
    """

    def __call__(
        self, X: FloatArray, Xs: FloatArray | None = None, diag: bool = False
    ) -> FloatArray:
        """Evaluate the kernel."""
        ...


# Of the eigenvalues of a correlation matrix of a few functions.
_ROUND_OFF = 1e-12
MeanFunction = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class Prior:
    """A Gaussian process, conditioned on its sign at pseudo-points.

    Attributes
    ----------
    cov_func, mean_func : callable
        Kernel and mean on arrays; what they return is checked at every call.
    pseudo_points : ndarray, shape (s, d)
    phase, truncation : ndarray, shape (s,)
    coregion : ndarray, shape (K, K), optional
        B, the covariance of K functions times the kernel. Default: independent ones.
    approximation : Approximation, optional
        By which the process has finite rank. Default none: the kernel as it is.
    """

    cov_func: CovarianceFunction
    mean_func: MeanFunction
    pseudo_points: FloatArray
    phase: FloatArray
    truncation: FloatArray
    coregion: FloatArray | None = None
    approximation: Approximation | None = None

    @property
    def n_pseudo_points(self) -> int:
        """Number s of pseudo-points."""
        return self.phase.size

    @cached_property
    def scale(self) -> FloatArray:
        """Phase over prior standard deviation at each pseudo-point."""
        if not self.n_pseudo_points:
            return np.zeros(0)
        return self.phase / np.sqrt(self.covariance("pseudo_points", self.pseudo_points, diag=True))

    @cached_property
    def latent_cov(self) -> FloatArray:
        """Gamma: correlations of f at the pseudo-points, with the phases."""
        if not self.n_pseudo_points:
            return np.zeros((0, 0))
        cov = self.covariance("pseudo_points", self.pseudo_points)
        refuse_coincident(cov, self.phase, self.truncation)
        scale = self.phase / np.sqrt(cov.diagonal())
        latent_cov = scale[:, None] * cov * scale
        refuse_contradictory_points(latent_cov, self.truncation)
        return latent_cov

    def mean(
        self, name: str, points: FloatArray, derivative: Derivative | None = None
    ) -> FloatArray:
        """Mean of f, or of a derivative of it, at `points`, which the caller knows as `name`."""
        if derivative is None:
            found = self.mean_func(points)
        else:
            found = _method(self.mean_func, "mean_func")(points, derivative)
        value = as_real_array(f"mean_func at {name}", found)
        if value.shape != points.shape[:1]:
            raise ValueError(
                f"mean_func gave shape {value.shape} at {name}, expected {points.shape[:1]}."
            )
        if not np.isfinite(value).all():
            raise ValueError(f"mean_func gave NaN or infinite values at {name}.")
        return value

    def covariance(
        self, name: str, a: FloatArray, b: FloatArray | None = None, diag: bool = False
    ) -> FloatArray:
        """Covariance of f at `a`, which the caller knows as `name`, with f at `b`."""
        value = as_real_array(f"cov_func at {name}", self.cov_func(a, b, diag))
        wanted = (a.shape[0],) if diag else (a.shape[0], (a if b is None else b).shape[0])
        if value.shape != wanted:
            raise ValueError(f"cov_func gave shape {value.shape} at {name}, expected {wanted}.")
        if not np.isfinite(value).all():
            raise ValueError(
                f"cov_func gave NaN or infinite covariances at {name}: check its hyperparameters "
                "and the scale of the inputs."
            )
        if diag or b is None:
            refuse_extreme_variances(f"cov_func at {name}", value if diag else value.diagonal())
        return value

    def derivative_covariance(
        self,
        name: str,
        a: FloatArray,
        b: FloatArray,
        left: Derivative | None,
        right: Derivative | None,
    ) -> FloatArray:
        """Covariance of a derivative of f at `a` with one at `b`; None for f itself.

        Raises
        ------
        NotDifferentiableError
            When the kernel is not smooth enough, or an array function that has no derivatives.
        """
        found = _method(self.cov_func, "cov_func")(a, b, left, right)
        value = as_real_array(f"cov_func at {name}", found)
        if value.shape != (a.shape[0], b.shape[0]) or not np.isfinite(value).all():
            raise ValueError(
                f"the derivatives of cov_func at {name} have shape {value.shape} or NaN and "
                f"infinite values, expected finite ones of shape {(a.shape[0], b.shape[0])}: check "
                "its hyperparameters and the scale of the inputs."
            )
        return value


def as_coregion(value: ArrayLike | None, n_functions: int) -> FloatArray | None:
    """B, the covariance of so many functions, checked; None for independent ones of variance 1."""
    if value is None:
        return None
    matrix = as_float_array("coregion", value, 2)
    if matrix.shape != (n_functions, n_functions):
        raise ValueError(
            f"coregion must have shape ({n_functions}, {n_functions}), as the data are about "
            f"{n_functions} function(s); got {matrix.shape}."
        )
    matrix = as_covariance("coregion", matrix)
    sd = np.sqrt(matrix.diagonal())
    smallest = float(np.linalg.eigvalsh(matrix / sd / sd[:, None])[0])
    if smallest < -_ROUND_OFF:
        raise NotPositiveDefiniteError(
            f"coregion is not positive semidefinite: as correlations its smallest eigenvalue is "
            f"{smallest:.3g}. W W' + diag(kappa) with positive kappa is, for any W."
        )
    return matrix


def _method(function: Any, name: str) -> Any:
    """Its method that gives derivatives."""
    method = getattr(function, "derivative", None)
    if method is None:
        raise NotDifferentiableError(
            f"{name} is a function of arrays without derivatives, which constraints on derivatives "
            "need: use SkewGP(cov_func=...).posterior with a pm.gp.cov object."
        )
    return method
