"""The prior covariance of values of several functions, factorised once for all functions."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pymc_skewgp._gaussian.operators.factored import FactoredCovariance
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.values import Values, function_index, input_index
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._posterior.prior_values import covariance_of
from pymc_skewgp._validation import FloatArray


def factored_covariance_of(prior: Prior, name: str, parts: Sequence[Values]) -> FactoredCovariance:
    """Covariance of the values `parts`, which the caller knows as `name`, with its factor.

    The K functions are independent and have one kernel, so that its matrix at the n inputs is
    factorised, in n^3 operations, and not that of the n K values.
    """
    once = covariance_of(prior, name, [replace(part, n_functions=1) for part in parts])
    cov = FactoredCovariance.of_kernel(once)
    k = max(part.n_functions for part in parts)
    if k == 1:
        return cov
    at, function = input_index(parts), function_index(parts)
    matrix = cov.dense()[np.ix_(at, at)]
    matrix *= function[:, None] == function
    return FactoredCovariance(_repeated(cov.factor[at], function, k), matrix)


def _repeated(factor: FloatArray, function: IntArray, k: int) -> FloatArray:
    """Rows of `factor` in columns of their own for each of `k` functions."""
    size, rank = factor.shape
    whole = np.zeros((size, k, rank))
    whole[np.arange(size), function] = factor
    return whole.reshape(size, k * rank)
