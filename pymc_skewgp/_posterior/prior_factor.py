"""The prior covariance of values of several functions, by one factor for all functions."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from pymc_skewgp._cost import announce_rows
from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.operators.factored import FactoredCovariance
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.values import (
    Values,
    derivative_groups,
    function_index,
    input_index,
)
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._posterior.prior_values import between_functions, kernel_of, units_of
from pymc_skewgp._validation import FloatArray


def factored_covariance_of(prior: Prior, name: str, parts: Sequence[Values]) -> FactoredCovariance:
    """Covariance of the values `parts`, which the caller knows as `name`, with its factor.

    The K functions have one kernel, so that its matrix at the n inputs is factorised, in n^3
    operations, and not that of the n K values: with k = F F' and B = R R' between the functions,
    value (i, a) has the factor's row R_a x F_i.
    """
    announce_rows(sum(part.X.shape[0] for part in parts))
    kernel = kernel_of(prior, name, parts)
    cov = FactoredCovariance.of_kernel(
        kernel, units_of(kernel.diagonal(), derivative_groups(parts))
    )
    k = max(part.n_functions for part in parts)
    if k == 1 and prior.coregion is None:
        return cov
    between = between_functions(prior, k)
    at, function = input_index(parts), function_index(parts)
    half = factor_between(between)[function]
    factor = half[:, :, None] * cov.factor[at][:, None, :]
    units = cov.units
    if units is not None or prior.coregion is not None:
        units = np.ones(at.size) if units is None else units[at]
        units = units * np.sqrt(between.diagonal())[function]
    # Where its rank is low the matrix is never asked for.
    matrix = partial(_entries, cov, at, between, function)
    return FactoredCovariance(factor.reshape(factor.shape[0], -1), matrix, units)


def _entries(
    kernel: FactoredCovariance, at: IntArray, between: FloatArray, function: IntArray
) -> FloatArray:
    """Covariance of function a at input i with function b at j: k_ij B_ab."""
    matrix: FloatArray = kernel.dense()[np.ix_(at, at)]
    matrix *= between[np.ix_(function, function)]
    return matrix


def factor_between(between: FloatArray) -> FloatArray:
    """Of B, each function in its own units."""
    sd = np.sqrt(between.diagonal())
    return sd[:, None] * linalg.low_rank_factor(between / sd / sd[:, None])
