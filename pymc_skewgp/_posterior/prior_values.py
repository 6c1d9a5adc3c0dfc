"""Prior moments of values of several independent functions, each with the same kernel and mean."""

from collections.abc import Sequence

import numpy as np

from pymc_skewgp._observations.values import Values, function_index, input_index, stacked_inputs
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._validation import FloatArray


def covariance_of(
    prior: Prior, name: str, a: Sequence[Values], b: Sequence[Values] | None = None
) -> FloatArray:
    """Covariance of the values `a`, which the caller knows as `name`, with `b`.

    Without `b` they are one set of rows, with noise of the kernel of their own.
    """
    kernel = prior.covariance(name, stacked_inputs(a), None if b is None else stacked_inputs(b))
    others = a if b is None else b
    if all(part.n_functions == 1 for part in (*a, *others)):
        return kernel
    matrix = kernel[np.ix_(input_index(a), input_index(others))]
    matrix *= function_index(a)[:, None] == function_index(others)
    return matrix


def variances_of(prior: Prior, name: str, part: Values) -> FloatArray:
    """Variances, shape (n,), or covariances of the K functions at each input, shape (n, K, K)."""
    variances = prior.covariance(name, part.X, diag=True)
    if part.n_functions == 1:
        return variances
    return np.asarray(variances[:, None, None] * np.eye(part.n_functions))


def mean_of(prior: Prior, name: str, a: Sequence[Values]) -> FloatArray:
    """Their means."""
    mean: FloatArray = prior.mean(name, stacked_inputs(a))[input_index(a)]
    return mean
