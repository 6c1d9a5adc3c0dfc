"""The covariance of predictors, functions of few coordinates, for expectation propagation."""

import numpy as np

from pymc_skewgp._gaussian.operators.covariance import WithSites
from pymc_skewgp._gaussian.operators.dense import SemidefiniteMatrix
from pymc_skewgp._gaussian.operators.low_rank import LowRankCovariance
from pymc_skewgp._validation import FloatArray

# Below this share of columns the low-rank form needs fewer operations than the dense one.
_LOW_RANK_SHARE = 0.3


def predictor_covariance(factor: FloatArray, noise: FloatArray | None = None) -> WithSites:
    """F F' of predictors, rows with `noise` before them, in the form that EP takes less time with.

    Parameters
    ----------
    factor : ndarray, shape (m + n, r)
    noise : ndarray, shape (m,) or (m, m), optional
        Variances of the first rows' noise, or its covariance.
    """
    n, r = factor.shape
    own = np.zeros(0) if noise is None else noise
    if r < _LOW_RANK_SHARE * n and own.ndim == 1:
        return LowRankCovariance(np.concatenate([own, np.zeros(n - own.size)]), factor)
    matrix = factor @ factor.T
    m = own.shape[0]
    matrix[:m, :m] += np.diag(own) if own.ndim == 1 else own
    return SemidefiniteMatrix(matrix)
