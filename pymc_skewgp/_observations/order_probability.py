r"""Probability of an order of noisy values, by nested integrals on one grid.

With :math:`v_j = f_j + e_j` and independent standard normal e, let m be the mode of v among those
in order, the isotonic regression of f (Barlow et al. 1972), and :math:`\lambda_j = \sum_{i \le j}
(m_i - f_i)` the multipliers of its constraints, none of them negative. Where :math:`\lambda_j > 0`,
:math:`m_j = m_{j+1}`, so that

.. math:: P(v_1 > v_2 > \dots > v_k) = e^{-|m - f|^2 / 2} \int \phi(x - m_1) H_2(x)\,
    \mathrm dx, \qquad H_j(x) = \int_{-\infty}^x e^{-\lambda_{j-1} (x - t)} \phi(t - m_j)
    H_{j+1}(t)\, \mathrm dt, \quad H_{k+1} = 1.

What is improbable is in the first factor; the integrals are moderate, of values that are in order,
and smooth however large the multipliers are. Every H is a running sum over the grid, by the rule of
eight points that is exact for polynomials of degree 7 times the exponential.
"""

import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy.special import log_ndtr

from pymc_skewgp._observations.winner import bivariate_below
from pymc_skewgp._validation import FloatArray

# Eight nodes around a step from 0 to 1; values there make the coefficients of their polynomial.
_PLACES = np.arange(-3.0, 5.0)
_FROM_VALUES = np.linalg.inv(np.vander(_PLACES, increasing=True))
_RULE = leggauss(12)
_STEEP = 8.0  # beyond, moments follow from each other without loss of digits
_STEP, _REACH = 0.25, 6.5
_MANY = 10  # values: of more the integrals are too steep for the step
_CERTAIN = 9.0  # sd: a gap beyond it is as good as infinite
_LEAST = 1e-7  # probability below which differences of Owen's function have too few digits
_CHUNK = 2**15  # numbers at a time, which a processor's cache has room for


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
        chosen = there == k
        found[chosen] = _of_length(flat[chosen, :k])
    return found.reshape(values.shape[:-1])


def _of_length(values: FloatArray) -> FloatArray:
    gaps = (values[:, :-1] - values[:, 1:]) / np.sqrt(2.0)
    if gaps.shape[1] == 1:
        return np.asarray(log_ndtr(gaps[:, 0]))
    log_p = np.empty(values.shape[0])
    exact = np.zeros(values.shape[0], dtype=bool)
    if gaps.shape[1] == 2:
        p = bivariate_below(gaps[:, 0], gaps[:, 1], -0.5)
        exact = p > _LEAST
        log_p[exact] = np.log(p[exact])
    if not exact.all():
        log_p[~exact] = _by_mode(values[~exact])
    return log_p


def _by_mode(values: FloatArray) -> FloatArray:
    mode = _mode(values)
    log_p = -0.5 * np.square(mode - values).sum(axis=1)
    slope = np.maximum(np.cumsum(mode - values, axis=1)[:, :-1], 0.0)
    near = _drawn_together(mode)
    step = _STEP * min(1.0, _MANY / values.shape[1])
    # Rows of one width together: the grid is as wide as the widest.
    left = np.argsort(near[:, 0])
    while left.size:
        width = np.ceil(near[left[0], 0] + 1.0)
        count = max(1, int(_CHUNK * step / (width + 2 * _REACH)))
        chosen = left[:count]
        chosen = chosen[near[chosen, 0] <= width]
        log_p[chosen] += _on_grid(near[chosen].T, slope[chosen].T, width, step)
        left = left[chosen.size :]
    return log_p


def _mode(values: FloatArray) -> FloatArray:
    """Isotonic regression of each row."""
    mode = values.copy()
    left = np.flatnonzero((values[:, :-1] < values[:, 1:]).any(axis=1))
    rows = max(1, _CHUNK // values.shape[1] ** 2)
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


def _drawn_together(mode: FloatArray) -> FloatArray:
    """The mode, falling to 0, without the part of gaps that decides nothing any more."""
    gaps = np.clip(mode[:, :-1] - mode[:, 1:], 0.0, _CERTAIN)
    last = np.zeros((mode.shape[0], 1))
    return np.concatenate([np.cumsum(gaps[:, ::-1], axis=1)[:, ::-1], last], axis=1)


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
