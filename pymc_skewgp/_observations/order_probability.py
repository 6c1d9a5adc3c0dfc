r"""Probability of an order of noisy values, by nested integrals on one grid.

With :math:`v_j = f_j + e_j` and independent standard normal e,

.. math:: P(v_1 > v_2 > \dots > v_k) = \int \phi(x - f_1) H_2(x)\, \mathrm dx, \qquad
    H_j(x) = \int_{-\infty}^x \phi(t - f_j) H_{j+1}(t)\, \mathrm dt, \quad H_{k+1} = 1.

Every H is a running sum over the grid, by the rule of six points. Its terms have digits of their
own, however small they are.
"""

import numpy as np
from scipy.special import log_ndtr

from pymc_skewgp._observations.winner import bivariate_below
from pymc_skewgp._validation import FloatArray

# Integral over one step from the values at six nodes around it: exact for polynomials of degree 5.
_SIX_POINTS = np.array([11.0, -93.0, 802.0, 802.0, -93.0, 11.0]) / 1440.0
_STEP, _REACH = 0.25, 6.5
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
        To 1e-4 for probabilities above 1e-4. The error grows to some hundredths at exp(-30), where
        the noise has to be many standard deviations out.
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
    near = _drawn_together(values)
    left = np.flatnonzero(~exact)
    # Rows of one width together: the grid is as wide as the widest.
    left = left[np.argsort(np.ptp(near[left], axis=1))]
    while left.size:
        width = float(np.ptp(near[left[0]]))
        width = np.ceil(width + 1.0)
        count = max(1, int(_CHUNK * _STEP / (width + 2 * _REACH)))
        chosen = left[:count]
        chosen = chosen[np.ptp(near[chosen], axis=1) <= width]
        log_p[chosen] = _on_grid(near[chosen], width)
        left = left[chosen.size :]
    return log_p


def _drawn_together(values: FloatArray) -> FloatArray:
    """The same without the part of gaps that decides nothing any more."""
    gaps = np.minimum(values[:, :-1] - values[:, 1:], _CERTAIN)
    last = np.zeros((values.shape[0], 1))
    return np.concatenate([np.cumsum(gaps[:, ::-1], axis=1)[:, ::-1], last], axis=1)


def _on_grid(values: FloatArray, width: float) -> FloatArray:
    start = values.min(axis=1, keepdims=True) - _REACH
    x = start + np.arange(0.0, width + 2 * _REACH, _STEP)
    log_scale = np.zeros(values.shape[0])
    below = np.ones_like(x)
    for j in range(values.shape[1] - 1, -1, -1):
        density = below * np.exp(-0.5 * (x - values[:, [j]]) ** 2)
        if j == 0:
            return np.asarray(np.log(_total(density)) + log_scale)
        below = _running_integral(density)
        # Improbable orders would underflow.
        top = np.maximum(below.max(axis=1), 1e-300)
        below /= top[:, None]
        log_scale += np.log(top)
    raise AssertionError("an order has at least two values")


def _total(density: FloatArray) -> FloatArray:
    total: FloatArray = density.sum(axis=1) * (_STEP / np.sqrt(2.0 * np.pi))
    return np.maximum(total, 1e-300)


def _running_integral(density: FloatArray) -> FloatArray:
    """Over normal densities without their constant, which is put in here."""
    padded = np.pad(density, ((0, 0), (3, 2)))
    n = density.shape[1]
    steps = sum(w * padded[:, i : i + n] for i, w in enumerate(_SIX_POINTS))
    found: FloatArray = np.cumsum(steps, axis=1) * (_STEP / np.sqrt(2.0 * np.pi))
    return np.maximum(found, 0.0)
