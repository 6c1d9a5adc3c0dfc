"""The prior covariance of values of several functions, by one factor for all functions."""

from collections.abc import Sequence

import numpy as np

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.operators.factored import FactoredCovariance
from pymc_skewgp._observations.values import Values, function_index, input_index
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._posterior.prior_values import between_functions, kernel_of


def factored_covariance_of(prior: Prior, name: str, parts: Sequence[Values]) -> FactoredCovariance:
    """Covariance of the values `parts`, which the caller knows as `name`, with its factor.

    The K functions have one kernel, so that its matrix at the n inputs is factorised, in n^3
    operations, and not that of the n K values: with k = F F' and B = R R' between the functions,
    value (i, a) has the factor's row R_a x F_i.
    """
    cov = FactoredCovariance.of_kernel(kernel_of(prior, name, parts, None))
    k = max(part.n_functions for part in parts)
    if k == 1 and prior.coregion is None:
        return cov
    at, function = input_index(parts), function_index(parts)
    between = between_functions(prior, k)
    matrix = cov.dense()[np.ix_(at, at)]
    matrix *= between[np.ix_(function, function)]
    of_function = linalg.low_rank_factor(between)[function]
    factor = of_function[:, :, None] * cov.factor[at][:, None, :]
    return FactoredCovariance(factor.reshape(at.size, -1), matrix)
