"""Variance that features leave."""

from typing import TYPE_CHECKING

import numpy as np

from pymc_skewgp._posterior.approximations.features import Features
from pymc_skewgp._validation import FloatArray

if TYPE_CHECKING:
    from pymc_skewgp._posterior.prior import Prior

_ROWS_AT_ONCE = 128


def function_variances(prior: "Prior", X: FloatArray) -> FloatArray:
    """Variances of f without noise of rows: k(x, x) with two arguments."""
    parts = [X[i : i + _ROWS_AT_ONCE] for i in range(0, X.shape[0], _ROWS_AT_ONCE)]
    return np.concatenate([prior.covariance("X", x, x).diagonal() for x in parts])


def residual_variances(prior: "Prior", features: Features, X: FloatArray) -> FloatArray:
    """What phi(x)'phi(x) lacks of these; negative where it is more."""
    phi, _ = features.at(X)
    found: FloatArray = function_variances(prior, X) - np.einsum("ij,ij->i", phi, phi)
    return found
