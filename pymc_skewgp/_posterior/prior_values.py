r"""Prior moments of values of several functions, and of their derivatives.

The functions have one kernel and mean, and are independent but for a coregionalization matrix B:
:math:`\mathrm{cov}\{f_k(x), f_l(t)\} = B_{kl}\, k(x, t)`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pymc_skewgp._gaussian.rectangle import log_prob_rectangle
from pymc_skewgp._gaussian.weights import Estimate, IntArray
from pymc_skewgp._observations.values import (
    Derivative,
    Values,
    derivative_groups,
    function_index,
    input_index,
    stacked_inputs,
)
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._validation import FloatArray

_ROWS_AT_ONCE = 256


def covariance_of(
    prior: Prior, name: str, a: Sequence[Values], b: Sequence[Values] | None = None
) -> FloatArray:
    """Covariance of the values `a`, which the caller knows as `name`, with `b`.

    Without `b` they are one set of rows, with noise of the kernel of their own.
    """
    kernel = kernel_of(prior, name, a, b)
    others = a if b is None else b
    if prior.coregion is None and all(part.n_functions == 1 for part in (*a, *others)):
        return kernel
    left, right = function_index(a), function_index(others)
    matrix = kernel[np.ix_(input_index(a), input_index(others))]
    k = max(part.n_functions for part in (*a, *others))
    matrix *= between_functions(prior, k)[np.ix_(left, right)]
    return matrix


def units_of(variances: FloatArray, groups: Mapping[Any, IntArray]) -> FloatArray | None:
    """What to measure values with these variances in, by groups; None where there is only one.

    Derivatives have other units than f, and round-off in one must not be counted in another's.
    """
    if len(groups) == 1:
        return None
    units = np.ones(variances.size)
    for rows in groups.values():
        units[rows] = np.sqrt(variances[rows].max()) or 1.0
    return units


def function_units(prior: Prior, size: int) -> FloatArray | None:
    """The same for so many values of all the functions: their standard deviations in B."""
    if prior.coregion is None:
        return None
    sd = np.sqrt(prior.coregion.diagonal())
    return np.tile(sd, size // sd.size)


def variances_of(prior: Prior, name: str, part: Values) -> FloatArray:
    """Variances, shape (n,), or covariances of the K functions at each input, shape (n, K, K)."""
    if part.derivative is None:
        variances = prior.covariance(name, part.X, diag=True)
    else:
        variances = _derivative_variances(prior, name, part.X, part.derivative)
    between = between_functions(prior, part.n_functions)
    if part.n_functions == 1:
        return np.asarray(variances * between[0, 0])
    return np.asarray(variances[:, None, None] * between)


def mean_of(prior: Prior, name: str, a: Sequence[Values]) -> FloatArray:
    """Their means."""
    X = stacked_inputs(a)
    mean = np.empty(X.shape[0])
    for derivative, rows in derivative_groups(a).items():
        mean[rows] = prior.mean(name, X[rows], derivative)
    mean_of_values: FloatArray = mean[input_index(a)]
    return mean_of_values


def log_prob_of_signs(prior: Prior, n_functions: int, n_draws: int) -> Estimate:
    """Log probability of the signs of all functions at the pseudo-points, before any data."""
    if prior.coregion is None:
        one = log_prob_rectangle(prior.latent_cov, -np.inf, prior.truncation, n_draws, None, 0)
        return one._replace(value=n_functions * one.value, std_error=n_functions * one.std_error)
    # The first pseudo-point of each function, then the second, as in `Values`.
    between = between_functions(prior, n_functions)
    sd = np.sqrt(between.diagonal())
    correlation = np.asarray(np.kron(prior.latent_cov, between / sd / sd[:, None]), dtype=float)
    truncation = np.repeat(prior.truncation, n_functions)
    return log_prob_rectangle(correlation, -np.inf, truncation, n_draws, None, 0)


def between_functions(prior: Prior, n_functions: int) -> FloatArray:
    """B, for the first functions."""
    if prior.coregion is None:
        return np.eye(n_functions)
    return prior.coregion[:n_functions, :n_functions]


def kernel_of(
    prior: Prior, name: str, a: Sequence[Values], b: Sequence[Values] | None = None
) -> FloatArray:
    """Covariance of one function at all the inputs, or of its derivatives there."""
    X, rows = stacked_inputs(a), derivative_groups(a)
    Xs, columns = (X, rows) if b is None else (stacked_inputs(b), derivative_groups(b))
    if set(rows) | set(columns) == {None}:
        return prior.covariance(name, X, None if b is None else Xs)
    kernel = np.empty((X.shape[0], Xs.shape[0]))
    for i, (left, own) in enumerate(rows.items()):
        for j, (right, other) in enumerate(columns.items()):
            if b is None and j < i:
                block = kernel[np.ix_(other, own)].T
            elif left is None and right is None:
                block = prior.covariance(name, X[own], None if b is None else Xs[other])
            else:
                block = prior.derivative_covariance(name, X[own], Xs[other], left, right)
            kernel[np.ix_(own, other)] = block
    return kernel


def _derivative_variances(
    prior: Prior, name: str, X: FloatArray, derivative: Derivative
) -> FloatArray:
    parts = [X[i : i + _ROWS_AT_ONCE] for i in range(0, X.shape[0], _ROWS_AT_ONCE)]
    found = [prior.derivative_covariance(name, x, x, derivative, derivative) for x in parts]
    return np.concatenate([block.diagonal() for block in found])
