"""Probabilities averaged over a mixture: of an interval, of an order, of the largest."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy.special import log_ndtr, ndtr, ndtri, owens_t

from pymc_skewgp._gaussian.blocks.groups import OneFactor, one_factor
from pymc_skewgp._gaussian.univariate import draw_truncated
from pymc_skewgp._gaussian.weights import IntArray, mean_probability, uniform_points, weighted_error
from pymc_skewgp._observations.likelihood import Mixture
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
        # Deviations of the two ends add up at most, and a square is no more than the largest mass
        # that a component can have there times the mass.
        ends = [ndtr(-np.abs(limit - centre) / np.sqrt(total)) for limit in limits]
        together = sum(np.sqrt(probability_variance(end, correlation)) for end in ends) ** 2
        most = 1.0 - 2.0 * ndtr(-0.5 * (upper - lower) / np.sqrt(within))
        spread = np.minimum(together, np.maximum(other * most - other**2, 0.0))
    else:
        spread = probability_variance(tail, correlation)
    # The chance that no draw was there; if so, it holds no more than the share of one.
    missed = np.exp(-n_effective * np.minimum(tail, np.minimum(mean, 1.0 - mean)))
    missed *= share / np.maximum(tail, share)
    error = np.sqrt(error**2 + doubt + missed * spread / n_effective)
    return Probability(np.minimum(mean + share * (other - mean), 1.0), error)


def _mass(
    mean: FloatArray, variance: FloatArray, limits: tuple[float, float], noise: float | NormalParts
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


# Probability that several normal values of any covariance are all positive, for many means.
#
# The values are drawn one after the other, each positive given those before it, and the probability
# is the mean product of the masses (Genz 1992). The points that they are drawn from are few and
# always the same. All masses have digits of their own, so that small probabilities do too.
#
# References
# ----------
# .. [1] A. Genz (1992), Numerical computation of multivariate normal probabilities,
#    doi:10.1080/10618600.1992.10477010.

_POINTS = 64
_MEANS_AT_ONCE = 2**11  # means at a time, which a processor's cache has room for


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
    for start in range(0, len(flat), _MEANS_AT_ONCE):
        rows = slice(start, start + _MEANS_AT_ONCE)
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


# Which of several noisy values is the largest, and its probability.
#
# With :math:`v_k = f_k + e_k` and independent standard normal e,
#
# .. math:: P(v_c > v_k \text{ for all } k \ne c)
#     = \int \phi(z) \prod_{k \ne c} \Phi(f_c - f_k + z)\, \mathrm dz,
#
# an integral over the winner's own noise. Up to three values it is a bivariate normal probability,
# by Owen's function; beyond, the trapezoid rule, which converges exponentially for such integrands:
# the winner's noise is the one factor that all differences share.
#
# References
# ----------
# .. [1] D. B. Owen (1956), Tables for computing bivariate normal probabilities,
#    doi:10.1214/aoms/1177728074.

# Of the trapezoid rule, in units of the noise: the integrand of k values is no narrower than a
# normal density of variance 1/k, which a step of k^-1/2 integrates to 3e-9 of itself.
_WINNER_STEP, _WINNER_REACH = 1.0, 7.0
_LEAST = 1e-7  # probability below which differences of Owen's function have too few digits
_WINNERS_AT_ONCE = 2**16  # numbers at a time, which a processor's cache has room for


def bivariate_below(a: FloatArray, b: FloatArray, rho: FloatArray | float) -> FloatArray:
    r"""P(u < a, w < b) of standard normals of correlation rho, to 1e-15 absolute.

    .. math:: \tfrac12 \{\Phi(a) + \Phi(b)\} - T(a, \alpha_a) - T(b, \alpha_b) - \tfrac12 [ab < 0],
        \qquad \alpha_a = \frac{b - \rho a}{a (1 - \rho^2)^{1/2}}
    """
    root = np.sqrt((1.0 - rho) * (1.0 + rho))
    # Far out and at 0 the quotients are no numbers, but their limits are: 40 is beyond rounding.
    a, b = (np.where(x == 0.0, 1e-300, np.clip(x, -40.0, 40.0)) for x in (a, b))
    with np.errstate(over="ignore"):
        slope_a, slope_b = (b / a - rho) / root, (a / b - rho) / root
    both = 0.5 * (ndtr(a) + ndtr(b)) - owens_t(a, slope_a) - owens_t(b, slope_b)
    both -= np.where((a < 0) != (b < 0), 0.5, 0.0)
    found: FloatArray = np.clip(both, 0.0, np.minimum(ndtr(a), ndtr(b)))
    return found


def log_all_positive(mean: FloatArray, cov: FloatArray) -> FloatArray:
    """Log probability that values of N(mean, cov) are all positive.

    Parameters
    ----------
    mean : ndarray, shape (..., d)
        Infinite for one that is not there.
    cov : ndarray, shape (d, d)

    Returns
    -------
    ndarray, shape (...)
        To 1e-8 of the probability where d is 1 or 2, or one factor is all that the values share;
        else as `log_orthant_probability` has it.
    """
    d, sd = len(cov), np.sqrt(cov.diagonal())
    if d == 1:
        return np.asarray(log_ndtr(mean[..., 0] / sd[0]))
    flat = mean.reshape(-1, d)
    log_p, exact = np.empty(len(flat)), np.zeros(len(flat), dtype=bool)
    if d == 2:
        a, b = (flat / sd).T
        p = bivariate_below(a, b, cov[0, 1] / sd.prod())
        exact = p > _LEAST
        log_p[exact] = np.log(p[exact])
    if not exact.all():
        left, factor = flat[~exact], one_factor(cov[None])
        if factor is None:
            log_p[~exact] = log_orthant_probability(left, cov)
        else:
            limits = np.zeros((1, d)), np.full((1, d), np.inf)
            each = OneFactor(*limits, *factor)
            log_p[~exact] = each(slice(None), np.ascontiguousarray(left.T)[None])[0]
    return log_p.reshape(mean.shape[:-1])


def log_win_probability(ahead: FloatArray) -> FloatArray:
    """Log probability that one value is larger than all others, to 1e-8 of it.

    `ahead`, shape (..., k - 1), is f of that value less f of each other one, over the standard
    deviation of the noise of each; infinite for one that is not there.
    """
    return log_all_positive(ahead, np.eye(ahead.shape[-1]) + 1.0)


def win_probabilities(values: FloatArray) -> FloatArray:
    """Probability of each of k values to be the largest, with standard normal noise.

    Parameters
    ----------
    values : ndarray, shape (..., k)
        f over the standard deviation of the noise; minus infinity for one that is not there.

    Returns
    -------
    ndarray, shape (..., k)
        Their sum is 1; each to 1e-8.
    """
    k = values.shape[-1]
    if k <= 3:
        others = [[j for j in range(k) if j != c] for c in range(k)]
        ahead = (values[..., [c]] - values[..., own] for c, own in enumerate(others))
        found = np.stack([np.exp(log_win_probability(x)) for x in ahead], axis=-1)
        return np.asarray(found / found.sum(axis=-1, keepdims=True))
    flat = values.reshape(-1, k)
    rows = max(1, _WINNERS_AT_ONCE // (k * _nodes(k).size))
    blocks = [flat[i : i + rows] for i in range(0, flat.shape[0], rows)]
    found = np.concatenate([_shared_grid(block) for block in blocks])
    found /= found.sum(axis=1, keepdims=True)
    return found.reshape(values.shape)


def _nodes(k: int) -> FloatArray:
    half = int(np.ceil(_WINNER_REACH * np.sqrt(k) / _WINNER_STEP))
    return np.arange(-half, half + 1) * (_WINNER_STEP / np.sqrt(k))


def _shared_grid(values: FloatArray) -> FloatArray:
    """The integrals of all k values at the nodes of one grid of the largest value."""
    k = values.shape[1]
    nodes = _nodes(k)
    away = nodes - (values - values.max(axis=1, keepdims=True))[:, :, None]  # (rows, k, nodes)
    below = ndtr(away)
    density = np.exp(-0.5 * away**2)
    # The product of all others, from those before and those after: quotients would be 0 / 0.
    before, after = np.ones_like(below[:, 0]), np.ones_like(below[:, 0])
    for c in range(k):
        density[:, c] *= before
        before *= below[:, c]
        density[:, k - 1 - c] *= after
        after *= below[:, k - 1 - c]
    found: FloatArray = density.sum(axis=2)
    return found * ((nodes[1] - nodes[0]) / np.sqrt(2.0 * np.pi))


# Probability of an order of noisy values, by nested integrals on one grid.
#
# With :math:`v_j = f_j + e_j` and independent standard normal e, let m be the mode of v among those
# in order, the isotonic regression of f (Barlow et al. 1972), and :math:`\lambda_j = \sum_{i \le j}
# (m_i - f_i)` the multipliers of its constraints, none of them negative. Where :math:`\lambda_j >
# 0`, :math:`m_j = m_{j+1}`, so that
#
# .. math:: P(v_1 > v_2 > \dots > v_k) = e^{-|m - f|^2 / 2} \int \phi(x - m_1) H_2(x)\,
#     \mathrm dx, \qquad H_j(x) = \int_{-\infty}^x e^{-\lambda_{j-1} (x - t)} \phi(t - m_j)
#     H_{j+1}(t)\, \mathrm dt, \quad H_{k+1} = 1.
#
# What is improbable is in the first factor; the integrals are moderate, of values that are in
# order, and smooth however large the multipliers are. Every H is a running sum over the grid, by
# the rule of eight points that is exact for polynomials of degree 7 times the exponential.

# Eight nodes around a step from 0 to 1; values there make the coefficients of their polynomial.
_PLACES = np.arange(-3.0, 5.0)
_FROM_VALUES = np.linalg.inv(np.vander(_PLACES, increasing=True))
_RULE = leggauss(12)
_STEEP = 8.0  # beyond, moments follow from each other without loss of digits
_STEP, _REACH = 0.25, 6.5
_MANY = 10  # values: of more the integrals are too steep for the step
_CERTAIN = 9.0  # sd: a gap beyond it is as good as infinite
_ORDERS_AT_ONCE = 2**15  # numbers at a time, which a processor's cache has room for


def log_order_probability(values: FloatArray) -> FloatArray:
    """Log probability that noisy values are in falling order.

    Parameters
    ----------
    values : ndarray, shape (..., k)
        f over the standard deviation of the noise, first the one that is to be largest. NaN fills
        up the end of a row with fewer values.

    Returns
    -------
    ndarray, shape (...)
        To 1e-6 of the probability for up to four values, 1e-5 for six, and 2e-4 for 24, however
        improbable the order is.
    """
    flat = values.reshape(-1, values.shape[-1])
    there = (~np.isnan(flat)).sum(axis=1)
    found = np.zeros(flat.shape[0])
    for k in np.unique(there[there > 1]):
        chosen = np.flatnonzero(there == k)
        gaps = (flat[chosen, : k - 1] - flat[chosen, 1:k]) / np.sqrt(2.0)
        if k == 2:
            found[chosen] = log_ndtr(gaps[:, 0])
            continue
        if k == 3:
            p = bivariate_below(gaps[:, 0], gaps[:, 1], -0.5)
            exact = p > _LEAST
            found[chosen[exact]] = np.log(p[exact])
            chosen = chosen[~exact]
        if chosen.size:
            found[chosen] = _by_mode(flat[chosen, :k])
    return found.reshape(values.shape[:-1])


def _by_mode(values: FloatArray) -> FloatArray:
    mode = _mode(values)
    log_p = -0.5 * np.square(mode - values).sum(axis=1)
    slope = np.maximum(np.cumsum(mode - values, axis=1)[:, :-1], 0.0)
    # The mode, falling to 0, without the part of gaps that decides nothing any more.
    kept = np.clip(mode[:, :-1] - mode[:, 1:], 0.0, _CERTAIN)
    near = np.pad(np.cumsum(kept[:, ::-1], axis=1)[:, ::-1], ((0, 0), (0, 1)))
    step = _STEP * min(1.0, _MANY / values.shape[1])
    # Rows of one width together: the grid is as wide as the widest.
    left = np.argsort(near[:, 0])
    while left.size:
        width = np.ceil(near[left[0], 0] + 1.0)
        count = max(1, int(_ORDERS_AT_ONCE * step / (width + 2 * _REACH)))
        chosen = left[:count]
        chosen = chosen[near[chosen, 0] <= width]
        log_p[chosen] += _on_grid(near[chosen].T, slope[chosen].T, width, step)
        left = left[chosen.size :]
    return log_p


def _mode(values: FloatArray) -> FloatArray:
    """Isotonic regression of each row."""
    mode = values.copy()
    left = np.flatnonzero((values[:, :-1] < values[:, 1:]).any(axis=1))
    rows = max(1, _ORDERS_AT_ONCE // values.shape[1] ** 2)
    for start in range(0, left.size, rows):
        chosen = left[start : start + rows]
        mode[chosen] = _isotonic(values[chosen])
    return mode


def _isotonic(values: FloatArray) -> FloatArray:
    """The least, over starts, of the largest mean from there to an end."""
    n, k = values.shape
    sums = np.zeros((n, k + 1))
    np.cumsum(values, axis=1, out=sums[:, 1:])
    first, last = np.arange(k)[:, None], np.arange(k)
    count = np.maximum(last - first + 1, 1)
    means = (sums[:, None, 1:] - sums[:, :-1, None]) / count
    means[:, last < first] = -np.inf
    largest = np.maximum.accumulate(means[:, :, ::-1], axis=2)[:, :, ::-1]
    largest[:, last < first] = np.inf
    return np.asarray(largest.min(axis=1))


def _on_grid(mode: FloatArray, slope: FloatArray, width: float, step: float) -> FloatArray:
    """Log of the integrals, of shapes (k, rows) and (k - 1, rows)."""
    x = np.arange(-_REACH, width + _REACH, step)[:, None]
    area = step / np.sqrt(2.0 * np.pi)
    weights = area * _weights((step * slope).ravel()).reshape(_PLACES.size, *slope.shape)
    log_scale = np.zeros(mode.shape[1])
    below = np.ones((x.size, mode.shape[1]))
    for j in range(len(mode) - 1, -1, -1):
        density = np.exp(-0.5 * (x - mode[j]) ** 2)
        density *= below
        if j == 0:
            return np.asarray(np.log(area * density.sum(axis=0)) + log_scale)
        below = _running_integral(density, weights[:, j - 1], np.exp(-step * slope[j - 1]))
        top = below.max(axis=0)  # many values in order would underflow
        below /= top
        log_scale += np.log(top)
    raise AssertionError("an order has at least two values")


def _running_integral(density: FloatArray, weights: FloatArray, kept: FloatArray) -> FloatArray:
    """Over normal densities without their constant, which is in the weights; `kept` is a step's."""
    n, before = density.shape[0], _PLACES.size // 2
    padded = np.zeros((n + 2 * before - 1, density.shape[1]))
    padded[before : before + n] = density
    found = weights[0] * padded[:n]
    for i in range(1, _PLACES.size):
        found += weights[i] * padded[i : i + n]
    for i in range(1, n):
        found[i] += kept * found[i - 1]
    return np.maximum(found, 0.0, out=found)


def _weights(steepness: FloatArray) -> FloatArray:
    """Of nodes in the integral over one step of a function times exp(-steepness (1 - t))."""
    powers = np.empty((_PLACES.size, steepness.size))
    near = steepness < _STEEP
    nodes, rule = 0.5 * (_RULE[0] + 1.0), 0.5 * _RULE[1]
    moments = rule[:, None] * np.vander(nodes, _PLACES.size, increasing=True)
    powers[:, near] = moments.T @ np.exp((nodes[:, None] - 1.0) * steepness[near])
    far = steepness[~near]
    moment = -np.expm1(-far) / far
    for p in range(_PLACES.size):
        powers[p, ~near] = moment
        moment = (1.0 - (p + 1) * moment) / far
    return np.asarray(_FROM_VALUES.T @ powers)
