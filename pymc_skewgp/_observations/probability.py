"""Probabilities of what is predicted, averaged over a mixture, with their Monte Carlo errors."""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri, owens_t

from pymc_skewgp._gaussian.weights import mean_probability, weighted_error
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._validation import FloatArray


class Probability(NamedTuple):
    """A probability at each point, with its Monte Carlo standard error."""

    value: FloatArray
    std_error: FloatArray


class NormalParts(NamedTuple):
    """Noise that is normal with one of several variances, each with its share of cases."""

    variances: FloatArray
    shares: FloatArray


def interval_probability(
    mixture: Mixture, lower: float, upper: float, noise: float | NormalParts = 1.0
) -> Probability:
    r"""Probability that f + e is between two limits, e of variance `noise`.

    .. math:: \sum_j w_j [\Phi\{(h - m_{ij}) / (v_i + S)^{1/2}\}
        - \Phi\{(l - m_{ij}) / (v_i + S)^{1/2}\}]

    To S effective draws one is added that stands for what no draw has met, a Gaussian of the
    same mean and variance: less than a standard error where the draws know better, and where
    they do not, in a tail beyond 1/S, nothing is called impossible. There the standard error
    is that of S draws of that Gaussian too, as draws that all missed a tail do not tell how
    far their mean is off.

    Parameters
    ----------
    mixture : Mixture
        Of t points.
    lower, upper : float
        Limits, infinities allowed, ``lower < upper``.
    noise : float or NormalParts, default 1
        Variance of e, positive; or e as a mixture of normal parts, of each of which the
        probability is the share.

    Returns
    -------
    Probability
        Of shape (t,).
    """
    weights, limits = mixture.weights, (lower, upper)
    p = _mass(mixture.means, mixture.variance[:, None], limits, noise)
    mean = mean_probability(p, weights)
    if mixture.exact:
        return Probability(mean, np.zeros(mean.size))
    p -= mean[:, None]
    error = weighted_error(p, weights, mixture.replicate)
    n_effective = 1.0 / float(weights @ weights)
    share = 1.0 / (1.0 + n_effective)
    centre, sd, _ = mixture.moments
    other = _mass(centre, sd**2, limits, noise)
    # And what was met by that one draw is either within the limits or not.
    doubt = share**2 * other * (1.0 - other)
    tail = np.minimum(other, 1.0 - other)
    # From here on parts are as one of their variance: it is for a bound of the error alone.
    own_noise = noise.shares @ noise.variances if isinstance(noise, NormalParts) else noise
    total, within = own_noise + sd**2, own_noise + mixture.variance
    correlation = (total - within) / total
    if np.isfinite(lower) and np.isfinite(upper):
        scales = np.sqrt(total), np.sqrt(within)
        spread = _interval_variance(other, centre, scales, correlation, limits)
    else:
        spread = probability_variance(tail, correlation)
    # The chance that no draw was there; if so, it holds no more than the share of one.
    missed = np.exp(-n_effective * np.minimum(tail, np.minimum(mean, 1.0 - mean)))
    missed *= share / np.maximum(tail, share)
    error = np.sqrt(error**2 + doubt + missed * spread / n_effective)
    return Probability(np.minimum(mean + share * (other - mean), 1.0), error)


def _mass(
    mean: FloatArray,
    variance: FloatArray,
    limits: tuple[float, float],
    noise: float | NormalParts,
) -> FloatArray:
    """Mass between limits of N(mean, variance) with noise of its own."""
    if not isinstance(noise, NormalParts):
        return normal_mass(mean, np.sqrt(variance + noise), *limits)
    mass = np.zeros(mean.shape)
    for part, share in zip(*noise, strict=True):
        mass += share * normal_mass(mean, np.sqrt(variance + part), *limits)
    return mass


def normal_mass(mean: FloatArray, sd: FloatArray, lower: float, upper: float) -> FloatArray:
    """Mass of N(mean, sd^2) between two limits, with all its digits where one is infinite."""
    if upper == np.inf:
        return np.asarray(ndtr((mean - lower) / sd))
    if lower == -np.inf:
        return np.asarray(ndtr((upper - mean) / sd))
    low, high = (lower - mean) / sd, (upper - mean) / sd
    # Of two tails the smaller ones are subtracted.
    right = low + high > 0
    low, high = np.where(right, -high, low), np.where(right, -low, high)
    return np.asarray(ndtr(high) - ndtr(low))


def probability_variance(p: FloatArray, correlation: FloatArray) -> FloatArray:
    r"""Variance of :math:`\Phi(a)` over a Gaussian a with mean p of it.

    .. math:: p - p^2 - 2 T\{z, \sqrt{(1 - \rho) / (1 + \rho)}\}, \qquad
        \rho = \mathrm{var}(a) / (1 + \mathrm{var}(a))

    with p = Phi(z): the probability that two standard normals of correlation rho are both below z,
    less the square (Owen 1956, doi:10.1214/aoms/1177728074).
    """
    rho = np.clip(correlation, 0.0, 1.0)
    both = 2.0 * owens_t(ndtri(p), np.sqrt((1.0 - rho) / (1.0 + rho)))
    variance: FloatArray = np.maximum(p - p**2 - both, 0.0)
    return variance


def _interval_variance(
    p: FloatArray,
    centre: FloatArray,
    scales: tuple[FloatArray, FloatArray],
    correlation: FloatArray,
    limits: tuple[float, float],
) -> FloatArray:
    """What the variance of a component's mass between two limits is at most; its mean is p.

    Deviations of its two ends add up at most, and a square is no more than the largest mass that a
    component can have there times the mass.
    """
    total, within = scales
    ends = [ndtr(-np.abs(limit - centre) / total) for limit in limits]
    together = sum(np.sqrt(probability_variance(end, correlation)) for end in ends) ** 2
    most = 1.0 - 2.0 * ndtr(-0.5 * (limits[1] - limits[0]) / within)
    bounded: FloatArray = np.minimum(together, np.maximum(p * most - p**2, 0.0))
    return bounded
