"""Mixtures of Gaussians with one variance a row: what a truncated latent vector leaves of f."""

import numpy as np
from scipy.special import ndtr, ndtri

from pymc_skewgp._gaussian.weights import IntArray, weighted_error
from pymc_skewgp._validation import FloatArray

_MAX_STEPS = 60
_NARROW = 0.03  # of the mixture's deviation: a thousand components would leave gaps
_SILVERMAN = 0.9
_CHUNK = 2**22  # entries of a block of rows x components
_LEAST_OF_SD = 0.6  # of independent draws' error: what of it evenly spaced ones have at least
_VARYING_OF_MEAN = 0.6  # see `weights.weighted_error`: mirrored draws cancel even where they weigh


def mixture_moments(
    means: FloatArray, variance: FloatArray, weights: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    r"""Mean, standard deviation and skewness of :math:`\sum_j w_j N(m_{ij}, v_i)`.

    Parameters
    ----------
    means : ndarray, shape (n, n_components)
        Component means.
    variance : ndarray, shape (n,)
        Variance that all components of a row share.
    weights : ndarray, shape (n_components,)
        Weights that sum to 1.

    Returns
    -------
    mean, sd, skewness : ndarray, shape (n,)
    """
    mean = means @ weights
    centred = means - mean[:, None]
    total = centred**2 @ weights + variance
    third = centred**3 @ weights
    with np.errstate(invalid="ignore", divide="ignore"):
        skewness = np.where(total > 0, third / total**1.5, 0.0)
    return mean, np.sqrt(total), skewness


def mixture_moment_errors(
    means: FloatArray,
    variance: FloatArray,
    weights: FloatArray,
    replicate: IntArray | None = None,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    r"""Monte Carlo standard errors of `mixture_moments`, components being draws.

    The delta method: each statistic's influence function at component j, squared and summed with
    weights :math:`w_j^2`; for the skewness, with :math:`d_j = m_j - \bar m` and :math:`S` the
    total variance,
    :math:`(d_j^3 - \mu_3 - 3 \mu_2 d_j) / S^{3/2} - \tfrac32 \mathrm{skew}\,(d_j^2 - \mu_2) / S`.
    With `replicate`, shape (n_components,), draws of one replicate depend on each other
    (`weights.weighted_error`). A second power hangs on few draws, a third one on so few that most
    replicates lack them: their errors are no less than .6 and 1 times those of independent draws.

    Returns
    -------
    mean_error, sd_error, skewness_error : ndarray, shape (n,)
    """
    mean, sd, skewness = mixture_moments(means, variance, weights)
    centred = means - mean[:, None]
    squared = centred**2
    second = (squared @ weights)[:, None]
    third = (centred * squared @ weights)[:, None]
    scale = np.where(sd > 0, sd, 1.0)[:, None]
    on_skewness = (centred * squared - third - 3.0 * second * centred) / scale**3
    on_skewness -= 1.5 * skewness[:, None] * (squared - second) / scale**2
    return (
        weighted_error(centred, weights, replicate, varying=_VARYING_OF_MEAN),
        weighted_error((squared - second) / (2.0 * scale), weights, replicate, _LEAST_OF_SD),
        weighted_error(on_skewness, weights, replicate, 1.0),
    )


def mixture_quantiles(
    means: FloatArray, variance: FloatArray, weights: FloatArray, probs: FloatArray
) -> FloatArray:
    """Quantiles of the mixture of `mixture_moments`, by Newton's method kept inside a bracket.

    Returns
    -------
    ndarray, shape (n_probs, n)
        Quantiles, to 1e-10 of the mixture's standard deviation.
    """
    out = np.empty((probs.size, means.shape[0]))
    for block in _blocks(*means.shape):
        sd = _visible_sd(means[block], variance[block])
        mean, spread, _ = mixture_moments(means[block], sd**2, weights)
        for i, prob in enumerate(probs):
            out[i, block] = _solve(means[block], sd, weights, prob, mean, spread)
    return out


def mixture_quantile_errors(
    means: FloatArray,
    variance: FloatArray,
    weights: FloatArray,
    quantiles: FloatArray,
    replicate: IntArray | None = None,
) -> FloatArray:
    """Monte Carlo standard errors of `mixture_quantiles`, of the shape of these.

    That of the probability over the density; at most the range of the components, as where there
    is no density between two of them.
    """
    known = means, variance, weights, quantiles
    errors, density = mixture_cdf_errors(*known, replicate), mixture_density(*known)
    most = np.ptp(means, axis=1) + np.sqrt(variance)
    return np.minimum(errors / np.maximum(density, np.finfo(float).tiny), most)


def mixture_cdf(
    means: FloatArray, variance: FloatArray, weights: FloatArray, values: FloatArray
) -> FloatArray:
    r"""Distribution function :math:`\sum_j w_j \Phi\{(x - m_{ij}) / v_i^{1/2}\}` of each row.

    Parameters
    ----------
    means, variance, weights : ndarray
        As for `mixture_moments`.
    values : ndarray, shape (n_values, n)
        Where: a column for each row of `means`.

    Returns
    -------
    ndarray, shape (n_values, n)
    """
    cdf = np.empty(values.shape)
    for block in _blocks(*means.shape):
        sd = _visible_sd(means[block], variance[block])[:, None]
        for i, at in enumerate(values[:, block]):
            cdf[i, block] = ndtr((at[:, None] - means[block]) / sd) @ weights
    return cdf


def mixture_cdf_errors(
    means: FloatArray,
    variance: FloatArray,
    weights: FloatArray,
    values: FloatArray,
    replicate: IntArray | None = None,
) -> FloatArray:
    """Monte Carlo standard errors of `mixture_cdf`, components being draws.

    `replicate` as for `mixture_moment_errors`.
    """
    errors = np.empty(values.shape)
    for block in _blocks(*means.shape):
        sd = _visible_sd(means[block], variance[block])[:, None]
        for i, at in enumerate(values[:, block]):
            below = ndtr((at[:, None] - means[block]) / sd)
            below -= (below @ weights)[:, None]
            errors[i, block] = weighted_error(below, weights, replicate)
    return errors


def mixture_density(
    means: FloatArray, variance: FloatArray, weights: FloatArray, values: FloatArray
) -> FloatArray:
    """Density of the mixture of `mixture_cdf` at `values`, in the same shape.

    Where the components are points, or nearly so, they are draws of the density to be had: it is
    smoothed by a Gaussian kernel of Silverman's (1986) width.
    """
    density = np.empty(values.shape)
    width = _SILVERMAN * float(weights @ weights) ** 0.2
    for block in _blocks(*means.shape):
        sd = _visible_sd(means[block], variance[block])
        total = mixture_moments(means[block], variance[block], weights)[1]
        sd = np.where(sd < _NARROW * total, width * total, sd)
        for i, at in enumerate(values[:, block]):
            density[i, block] = _density((at[:, None] - means[block]) / sd[:, None], sd, weights)
    return density


def _blocks(n: int, n_components: int) -> list[slice]:
    rows = max(1, _CHUNK // n_components)
    return [slice(start, start + rows) for start in range(0, n, rows)]


def _visible_sd(means: FloatArray, variance: FloatArray) -> FloatArray:
    """Standard deviations; a point mass has no density to step along: an invisible width for it."""
    return np.asarray(np.sqrt(variance + 1e-24 * (1.0 + means.var(axis=1))))


def _density(scaled: FloatArray, sd: FloatArray, weights: FloatArray) -> FloatArray:
    return np.exp(-0.5 * scaled**2) @ weights / (np.sqrt(2 * np.pi) * sd)


def _solve(
    means: FloatArray,
    sd: FloatArray,
    weights: FloatArray,
    prob: float,
    mean: FloatArray,
    spread: FloatArray,
) -> FloatArray:
    # A mixture's quantile lies between its smallest and largest component's.
    z = float(ndtri(prob))
    low = means.min(axis=1) + z * sd
    high = means.max(axis=1) + z * sd
    x = np.clip(mean + z * spread, low, high)
    left = np.arange(x.size)  # rows still moving
    for _ in range(_MAX_STEPS):
        scaled = (x[left, None] - means[left]) / sd[left, None]
        surplus = ndtr(scaled) @ weights - prob
        density = _density(scaled, sd[left], weights)
        low[left] = np.where(surplus < 0, x[left], low[left])
        high[left] = np.where(surplus < 0, high[left], x[left])
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            step = x[left] - surplus / density
        inside = (step > low[left]) & (step < high[left])
        new = np.where(inside, step, 0.5 * (low[left] + high[left]))
        moving = np.abs(new - x[left]) > 1e-10 * spread[left]
        x[left] = new
        left = left[moving]
        if left.size == 0:
            break
    return x
