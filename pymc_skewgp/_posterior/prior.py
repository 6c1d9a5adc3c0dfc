"""The prior of a latent function: a Gaussian process, or a Skew GP."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from pymc_skewgp._observations.arguments import refuse_coincident
from pymc_skewgp._sun.contradiction import refuse_contradictory_points
from pymc_skewgp._validation import FloatArray, as_real_array, refuse_extreme_variances


class CovarianceFunction(Protocol):
    """A kernel on arrays: ``k(X, Xs)`` of shape (n, m), ``k(X, diag=True)`` of shape (n,).

    ``k(X)`` is the covariance of one set of rows, with ``k(X, diag=True)`` on its diagonal. What it
    has beyond ``k(X, X)`` is noise of each row, which no other row shares: a diagonal matrix.
    """

    def __call__(
        self, X: FloatArray, Xs: FloatArray | None = None, diag: bool = False
    ) -> FloatArray:
        """Evaluate the kernel."""
        ...


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
    """

    cov_func: CovarianceFunction
    mean_func: MeanFunction
    pseudo_points: FloatArray
    phase: FloatArray
    truncation: FloatArray

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

    def mean(self, name: str, points: FloatArray) -> FloatArray:
        """Mean at `points`, which the caller knows as `name`."""
        value = as_real_array(f"mean_func at {name}", self.mean_func(points))
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
