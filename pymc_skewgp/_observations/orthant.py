r"""Probability that several normal values of any covariance are all positive, for many means.

The values are drawn one after the other, each positive given those before it, and the probability
is the mean product of the masses (Genz 1992). The points that they are drawn from are few and
always the same. All masses have digits of their own, so that small probabilities do too.

References
----------
.. [1] A. Genz (1992), Numerical computation of multivariate normal probabilities,
   doi:10.1080/10618600.1992.10477010.
"""

from functools import lru_cache

import numpy as np
from scipy.special import log_ndtr

from pymc_skewgp._gaussian.points import uniform_points
from pymc_skewgp._gaussian.univariate import draw_truncated
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray

_POINTS = 64
_CHUNK = 2**11  # means at a time, which a processor's cache has room for


def log_orthant_probability(mean: FloatArray, cov: FloatArray) -> FloatArray:
    """Log probability that values of N(mean, cov) are all positive.

    Parameters
    ----------
    mean : ndarray, shape (..., d)
    cov : ndarray, shape (d, d)
        Positive definite.

    Returns
    -------
    ndarray, shape (...)
        The relative error of the probability is 1e-3 or so for moderate correlations, and some
        hundredths where values contradict each other.
    """
    flat = mean.reshape(-1, mean.shape[-1])
    # The least probable first: it leaves the others the least to vary with.
    order = np.argsort(flat / np.sqrt(cov.diagonal()), axis=1)
    found = np.empty(len(flat))
    for start in range(0, len(flat), _CHUNK):
        rows = slice(start, start + _CHUNK)
        found[rows] = _of(flat[rows], order[rows], cov)
    return found.reshape(mean.shape[:-1])


def _of(mean: FloatArray, order: IntArray, cov: FloatArray) -> FloatArray:
    n, d = mean.shape
    chol = np.linalg.cholesky(cov[order[:, :, None], order[:, None, :]])
    scale, points = np.einsum("nii->ni", chol), _points(d - 1)
    low = -np.take_along_axis(mean, order, axis=1) / scale
    mixing = chol / scale[:, :, None]
    z, log_mass = np.empty((d - 1, n, _POINTS)), np.zeros((n, _POINTS))
    for j in range(d):
        limit = low[:, j, None] - np.einsum("ni,inp->np", mixing[:, j, :j], z[:j])
        if j < d - 1:
            z[j], mass = draw_truncated(points[j], limit, np.inf)
            log_mass += mass
        else:
            log_mass += log_ndtr(-limit)
    top = log_mass.max(axis=1)
    return top + np.log(np.exp(log_mass - top[:, None]).mean(axis=1))


@lru_cache
def _points(n_dims: int) -> FloatArray:
    return uniform_points(n_dims, _POINTS, 1, np.random.default_rng(0))
