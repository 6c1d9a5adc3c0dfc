"""How often each observation was made: whole numbers, which stand for repeated rows."""

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.likelihood import Data, Likelihood
from pymc_skewgp._observations.observations import Observations, as_matrix
from pymc_skewgp._validation import as_real_array

_WHY = (
    "a likelihood of rows to a power that is no whole number has no rows, so that under a probit "
    "link the posterior would be no truncated Gaussian any more, and nothing here would be exact"
)


def as_weights(name: str, value: ArrayLike, n: int) -> IntArray:
    """`value` as whole numbers >= 0, one for each of `n` observations, not all 0.

    Raises
    ------
    ValueError, TypeError
        The message says why weights are whole, and what to do.
    """
    weights = as_real_array(name, value)
    if weights.shape != (n,):
        raise ValueError(
            f"{name} must have shape ({n},), one number for each observation; got {weights.shape}."
        )
    whole = np.isfinite(weights) & (weights == np.floor(weights))
    if not whole.all():
        i = int(np.argmin(whole))
        raise ValueError(
            f"{name} must be whole numbers, how often each observation was made; number {i} is "
            f"{weights[i]:.6g}. Others are not taken: {_WHY}. Multiply the weights until they are "
            "whole; or take BernoulliLogit for labels, which has powers (likelihoods.Weighted); "
            "or, where numbers differ in their noise, Gaussian(sigma / np.sqrt(weights))."
        )
    if (weights < 0).any():
        i = int(np.argmin(weights))
        raise ValueError(
            f"{name} must not be negative; number {i} is {weights[i]:.6g}. 0 leaves an observation "
            "out."
        )
    if not weights.any():
        raise ValueError(f"{name} are all zero: no observation is left.")
    return weights.astype(np.intp)


def weighted_observations(
    likelihood: Likelihood, y: Data, n: int, weights: IntArray
) -> Observations:
    """Rows of observations that were made so often each, of f at `n` rows of X."""
    index = np.repeat(np.arange(len(y)), weights)
    known, repeated = likelihood.of_observations(index, y), y[index]
    if likelihood.y_dim != "obs_id":  # the rows of X are items, which stay as they are
        return known.observations(repeated, n)
    rows = known.observations(repeated, index.size)
    # Each of the repeated places is one of the n places that there are.
    k = likelihood.n_functions(y)
    place = (k * index[:, None] + np.arange(k)).ravel()
    A = as_matrix(rows.A, rows.n_rows)
    A = sparse.csr_array(A)
    at = place[: A.shape[1]]
    same = sparse.csr_array((np.ones(at.size), (np.arange(at.size), at)), shape=(at.size, n * k))
    return Observations(
        sparse.csr_array(A @ same),
        rows.a,
        rows.S,
        rows.lower,
        rows.upper,
        rows.value,
        log_constant=rows.log_constant,
    )
