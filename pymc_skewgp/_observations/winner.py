r"""Which of several noisy values is the largest, and its probability.

With :math:`v_k = f_k + e_k` and independent standard normal e,

.. math:: P(v_c > v_k \text{ for all } k \ne c)
    = \int \phi(z) \prod_{k \ne c} \Phi(f_c - f_k + z)\, \mathrm dz,

an integral over the winner's own noise. Up to three values it is a bivariate normal probability,
by Owen's function; beyond, the trapezoid rule, which converges exponentially for such integrands.

References
----------
.. [1] D. B. Owen (1956), Tables for computing bivariate normal probabilities,
   doi:10.1214/aoms/1177728074.
"""

import numpy as np
from scipy.special import log_ndtr, ndtr, owens_t

from pymc_skewgp._validation import FloatArray

# Of the trapezoid rule, in units of the noise: the integrand of k values is no narrower than a
# normal density of variance 1/k, which a step of k^-1/2 integrates to 3e-9 of itself.
_STEP, _REACH = 1.0, 7.0
_LEAST = 1e-7  # probability below which differences of Owen's function have too few digits
_CHUNK = 2**16  # numbers at a time, which a processor's cache has room for
_NEWTON = 60


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


def log_win_probability(ahead: FloatArray) -> FloatArray:
    """Log probability that one value is larger than all others.

    Parameters
    ----------
    ahead : ndarray, shape (..., k - 1)
        f of that value less f of each other one, over the standard deviation of the noise of each;
        infinite for one that is not there.

    Returns
    -------
    ndarray, shape (...)
        To 1e-8 of the probability.
    """
    n_others = ahead.shape[-1]
    if n_others == 1:
        return np.asarray(log_ndtr(ahead[..., 0] / np.sqrt(2.0)))
    flat = ahead.reshape(-1, n_others)
    log_p = np.empty(flat.shape[0])
    exact = np.zeros(flat.shape[0], dtype=bool)
    if n_others == 2:
        scaled = flat / np.sqrt(2.0)
        p = bivariate_below(scaled[:, 0], scaled[:, 1], 0.5)
        exact = p > _LEAST
        log_p[exact] = np.log(p[exact])
    left = np.flatnonzero(~exact)
    rows = max(1, _CHUNK // (n_others * _nodes(n_others + 1).size))
    for start in range(0, left.size, rows):
        chosen = left[start : start + rows]
        log_p[chosen] = _log_integral(flat[chosen])
    return log_p.reshape(ahead.shape[:-1])


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
    if k == 2:
        first = ndtr((values[..., 0] - values[..., 1]) / np.sqrt(2.0))
        second = ndtr((values[..., 1] - values[..., 0]) / np.sqrt(2.0))
        return np.stack([first, second], axis=-1)
    flat = values.reshape(-1, k)
    if k == 3:
        found = np.empty_like(flat)
        for c, (i, j) in enumerate(((1, 2), (0, 2), (0, 1))):
            ahead = (flat[:, [c]] - flat[:, [i, j]]) / np.sqrt(2.0)
            found[:, c] = bivariate_below(ahead[:, 0], ahead[:, 1], 0.5)
    else:
        rows = max(1, _CHUNK // (k * _nodes(k).size))
        blocks = [flat[i : i + rows] for i in range(0, flat.shape[0], rows)]
        found = np.concatenate([_shared_grid(block) for block in blocks])
    found /= found.sum(axis=1, keepdims=True)
    return found.reshape(values.shape)


def _nodes(k: int) -> FloatArray:
    half = int(np.ceil(_REACH * np.sqrt(k) / _STEP))
    return np.arange(-half, half + 1) * (_STEP / np.sqrt(k))


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


def _log_integral(ahead: FloatArray) -> FloatArray:
    """Log of the integral around the mode of each integrand, shape (rows, k - 1) to (rows,)."""
    nodes = _nodes(ahead.shape[1] + 1)
    z = _mode(ahead)[:, None] + nodes
    log_terms = -0.5 * z**2
    for j in range(ahead.shape[1]):
        log_terms += log_ndtr(ahead[:, [j]] + z)
    top = log_terms.max(axis=1)
    total = np.exp(log_terms - top[:, None]).sum(axis=1)
    found: FloatArray = top + np.log(total * ((nodes[1] - nodes[0]) / np.sqrt(2.0 * np.pi)))
    return found


def _mode(ahead: FloatArray) -> FloatArray:
    """Mode of the log-concave integrand, to a tenth of the noise.

    Newton's method from 0, which is below it: the slope is convex in z, so no step goes too far.
    """
    z = np.zeros(ahead.shape[0])
    left = np.arange(z.size)
    for _ in range(_NEWTON):
        x = ahead[left] + z[left, None]
        hazard = np.exp(-0.5 * x**2 - 0.5 * np.log(2.0 * np.pi) - log_ndtr(x))
        hazard[np.isinf(x)] = 0.0
        slope = hazard.sum(axis=1) - z[left]
        with np.errstate(invalid="ignore"):
            curvature = 1.0 + np.where(np.isinf(x), 0.0, hazard * (x + hazard)).sum(axis=1)
        step = slope / np.maximum(curvature, 1.0)
        z[left] += step
        left = left[np.abs(step) > 0.1]
        if not left.size:
            break
    return z
