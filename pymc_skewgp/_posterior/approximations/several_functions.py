r"""Features of several functions: :math:`f_k(x) = m(x) + \sum_l R_{kl} \phi(x)^\top c_l + e_k(x)`.

With R R' = B, the covariance of the functions, and :math:`\mathrm{cov}\{e(x)\} = d(x) B`. The
coordinates are those of the first latent function, of the second, and so on.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.values import Derivative
from pymc_skewgp._posterior.approximations.features import Features
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._posterior.prior_factor import factor_between
from pymc_skewgp._posterior.prior_values import between_functions
from pymc_skewgp._validation import FloatArray


@dataclass(frozen=True, eq=False)
class FunctionRest:
    """What features leave of K functions.

    Attributes
    ----------
    between : ndarray, shape (K, K)
        B.
    """

    between: FloatArray

    def of_rest(self, values: IntArray, rest: FloatArray, n_functions: int) -> FloatArray:
        """Covariances of e at p values each, (n, p, p), counted as the first functions' values are.

        `rest` are the variances d at the input of each value, shape (n, p).
        """
        return rest_between(self.between, values, n_functions) * rest[:, :, None]


@dataclass(frozen=True, eq=False)
class FunctionFeatures(FunctionRest):
    """Features of K functions; as `Features` they are those of the first one.

    Attributes
    ----------
    single : Features
        Of a process with the kernel as it is.
    """

    single: Features

    @cached_property
    def half(self) -> FloatArray:
        """R, shape (K, L)."""
        return factor_between(self.between)

    @property
    def is_single(self) -> bool:
        """Whether there is one function, with the kernel as it is."""
        return self.between.shape == (1, 1) and float(self.between[0, 0]) == 1.0

    @property
    def rank(self) -> int:
        """Number L r of coordinates."""
        return self.single.rank * self.half.shape[1]

    def at(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Of the first function."""
        phi, rest = self.single.at(X)
        if self.is_single:
            return phi, rest
        return self.values(phi, 1)[:, 0], rest * self.between[0, 0]

    def derivative_at(self, X: FloatArray, derivative: Derivative) -> FloatArray:
        """Features of a derivative of the first function; see `derivative_features`."""
        return self.values(derivative_features(self.single, X, derivative), 1)[:, 0]

    def values(self, phi: FloatArray, n_functions: int) -> FloatArray:
        """Features of the first functions, shape (n, n_functions, L r), from those of a process."""
        if self.is_single:
            return phi[:, None]
        half = self.half[:n_functions]
        wide = half[None, :, :, None] * phi[:, None, None, :]
        return np.asarray(wide.reshape(phi.shape[0], n_functions, self.rank))


def rest_between(between: FloatArray, values: IntArray, n_functions: int) -> FloatArray:
    """Covariances of e at p values each, (n, p, p), where its variance d is 1; see `of_rest`."""
    inputs, function = values // n_functions, values % n_functions
    same = inputs[:, :, None] == inputs[:, None, :]
    return np.asarray(
        np.where(same, between[function[:, :, None], function[:, None, :]], 0.0), dtype=float
    )


def derivative_features(features: Features, X: FloatArray, derivative: Derivative) -> FloatArray:
    """Derivatives of phi at X, shape (n, r).

    Raises
    ------
    ApproximationError
        For features without.
    NotDifferentiableError
        For a kernel without.
    """
    method = getattr(features, "derivative_at", None)
    if method is None:
        raise ApproximationError(
            "the features of this approximated prior have no derivatives: take Inducing, or the "
            "prior as it is."
        )
    return np.asarray(method(X, derivative))


def features_of(prior: Prior, features: Features, n_functions: int) -> FunctionFeatures:
    """Of so many functions under a prior."""
    return FunctionFeatures(between_functions(prior, n_functions), features)
