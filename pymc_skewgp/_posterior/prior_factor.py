"""The prior covariance of values of several functions, by one factor for all functions."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.operators.factored import FactoredCovariance
from pymc_skewgp._observations.values import Values, function_index, input_index
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._posterior.prior_values import covariance_of


def factored_covariance_of(prior: Prior, name: str, parts: Sequence[Values]) -> FactoredCovariance:
    """Covariance of the values `parts`, which the caller knows as `name`, with its factor.

    The K functions have one kernel k, and covariance B among each other: k is factorised at the n
    inputs, in n^3 operations, and B in K^3, not the matrix of the n K values.
    """
    base = replace(prior, coregion=None)
    cov = FactoredCovariance.of_kernel(
        covariance_of(base, name, [replace(part, n_functions=1) for part in parts])
    )
    k = max(part.n_functions for part in parts)
    if k == 1 and prior.coregion is None:
        return cov
    between = np.eye(k) if prior.coregion is None else prior.coregion[:k, :k]
    at, function = input_index(parts), function_index(parts)
    matrix = cov.dense()[np.ix_(at, at)]
    matrix *= between[np.ix_(function, function)]
    half = linalg.low_rank_factor(between)[function]
    factor = half[:, :, None] * cov.factor[at][:, None, :]
    return FactoredCovariance(factor.reshape(factor.shape[0], -1), matrix)
