r"""Probabilities of classes, averaged over what is known of the functions.

Given u the functions and their noise are Gaussian, :math:`f + e \sim N\{m(u), V + \Sigma\}`. A
class wins with the probability of K - 1 differences to be positive: a univariate or bivariate
normal one for two or three classes. For more, a function common to all
classes is of no matter, so that

.. math:: V + \Sigma \simeq s I + L L^\top

on the differences, with s the smallest eigenvalue there: f is drawn from N(m(u), L L'), and what is
left is noise of variance s. Far from the data, where the functions are independent, L is 0.
"""

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from pymc_skewgp._gaussian.bivariate import bivariate_log_prob
from pymc_skewgp._gaussian.points import uniform_points
from pymc_skewgp._gaussian.weights import mean_probability, weighted_error
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._observations.orthant import log_orthant_probability
from pymc_skewgp._observations.winner import bivariate_below, win_probabilities
from pymc_skewgp._validation import FloatArray

_LEAST = 1e-7  # probability below which differences of Owen's function have too few digits


def category_probabilities(mixture: Mixture, noise: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Probabilities of K classes at t points and their standard errors, shape (t, K) each.

    `noise` is the covariance of the noise, (K, K). To S effective draws one is added that stands
    for what no draw has met, a Gaussian of the same mean and variance, as for two classes.
    """
    covariance, weights = mixture.covariance, mixture.weights
    assert covariance is not None
    t, k = covariance.shape[:2]
    means = mixture.means.reshape(t, k, -1).swapaxes(1, 2)  # (t, S, K)
    total = covariance + noise
    n_effective = 1.0 / float(weights @ weights)
    share = 1.0 / (1.0 + n_effective)
    value, error = np.empty((t, k)), np.empty((t, k))
    rng = np.random.default_rng(0)  # summaries are the same for every seed of draws
    for i in range(t):  # a point at a time: S K numbers each
        p = _given_draws(means[i], total[i], rng)
        mean = mean_probability(p.T, weights)
        centre = weights @ means[i]
        off = means[i] - centre
        spread = (off * weights[:, None]).T @ off
        other = _given_draws(np.tile(centre, (_OTHERS, 1)), total[i] + spread, rng).mean(axis=0)
        own = weighted_error((p - mean).T, weights, mixture.replicate)
        value[i] = mean + share * (other - mean)
        error[i] = np.sqrt(own**2 + share**2 * other * (1.0 - other))
    if mixture.exact:
        error[:] = 0.0
    return value, error


_OTHERS = 64  # draws for the Gaussian of equal mean and variance, beyond three classes


def normal_probabilities(means: FloatArray, cov: FloatArray) -> FloatArray:
    """Probability of each of several normal variables to be the largest.

    Beyond three variables to a thousandth or so: see `orthant`.

    Parameters
    ----------
    means : ndarray, shape (..., K)
    cov : ndarray, shape (1, K, K) or (K, K)

    Returns
    -------
    ndarray, shape (..., K)
    """
    cov = cov.reshape(cov.shape[-2:])
    k = means.shape[-1]
    found = np.empty(means.shape)
    for c in range(k):
        others = [j for j in range(k) if j != c]
        contrast = np.eye(k)[c] - np.eye(k)[others]
        spread = contrast @ cov @ contrast.T
        if k > 3:
            ahead = means[..., [c]] - means[..., others]
            found[..., c] = np.exp(log_orthant_probability(ahead, spread))
            continue
        sd = np.sqrt(spread.diagonal())
        ahead = (means[..., [c]] - means[..., others]) / sd
        if k == 2:
            found[..., c] = ndtr(ahead[..., 0])
        else:
            rho = spread[0, 1] / (sd[0] * sd[1])
            found[..., c] = bivariate_below(ahead[..., 0], ahead[..., 1], rho)
    found /= found.sum(axis=-1, keepdims=True)
    return found


def log_bivariate(a: FloatArray, b: FloatArray, rho: FloatArray) -> FloatArray:
    """Log P(u < a, w < b) of standard normals of correlation rho, with all digits of small ones."""
    p = bivariate_below(a, b, rho)
    found = np.log(np.maximum(p, _LEAST))
    correlation = np.broadcast_to(rho, p.shape)
    for at in zip(*np.nonzero(p < _LEAST), strict=True):
        cov = np.array([[1.0, correlation[at]], [correlation[at], 1.0]])
        found[at] = bivariate_log_prob(None, np.array([a[at], b[at]]), cov)
    return np.minimum(found, np.minimum(log_ndtr(a), log_ndtr(b)))


def _given_draws(means: FloatArray, cov: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Probabilities of the classes for each row of `means`, (S, K), with one covariance."""
    n_draws, k = means.shape
    if k < 4:
        return normal_probabilities(means, cov)
    centred = np.eye(k) - 1.0 / k
    eigenvalue, vector = np.linalg.eigh(centred @ cov @ centred)
    # The first is 0, of what is common to all; the second the smallest that matters.
    least = eigenvalue[1]
    factor = vector[:, 2:] * np.sqrt(np.maximum(eigenvalue[2:] - least, 0.0))
    points = ndtri(uniform_points(k - 2, n_draws, 1, rng))
    return win_probabilities((means + (factor @ points).T) / np.sqrt(least))
