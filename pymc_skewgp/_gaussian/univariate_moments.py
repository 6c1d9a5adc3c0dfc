"""Moments of the standard normal restricted to an interval, stable everywhere.

As in `pymc_skewgp._gaussian.univariate`, intervals are mirrored so that the bound nearest to zero
is the lower one, and where a difference would lose digits the integrand is summed by quadrature.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx

from pymc_skewgp._gaussian.univariate import (
    HAZARD_SCALE,
    LOG_SQRT_2PI,
    SQRT_HALF,
    integrate,
    log_ndtr_interval,
    reflect,
    survival,
)
from pymc_skewgp._validation import FloatArray

# Above this the closed form 1 - r(r - p) of the variance has lost p^4 eps, and the continued
# fraction needs few terms.
_TAIL_MOMENT = 3.0
_FRACTION_TERMS = 50
# exp(-45) times the cube of a point 45 scale lengths out is under 1e-14: such a bound is invisible.
_INVISIBLE = 45.0
# (largest log ratio of the normal density across the interval, Gauss-Legendre nodes for ~1e-15).
_TIERS = ((1.0, 9), (8.0, 16), (_INVISIBLE, 32))


def truncated_moments(a: ArrayLike, b: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    r"""Log mass, mean and variance of a standard normal restricted to an interval.

    .. math:: \log Z,\quad \mathrm E[x] = \frac{\phi(a) - \phi(b)}{Z},\quad
        \mathrm{var}[x] = 1 + \frac{a\phi(a) - b\phi(b)}{Z} - \mathrm E[x]^2

    These closed forms are used only where they keep their digits. Far out and one-sided, the
    ratios :math:`r_k` of successive moments of the excess come from the continued fraction
    :math:`r_k = k/(p + r_{k+1})`, with variance :math:`r_1(r_2 - r_1)`.

    Parameters
    ----------
    a, b : array_like
        Bounds, broadcast together; ``a < b``, infinities allowed.

    Returns
    -------
    log_mass, mean, variance : ndarray
        Of the broadcast shape; ``0 < variance <= 1``.

    References
    ----------
    .. [1] NIST Digital Library of Mathematical Functions, 7.18 (repeated integrals of the
       complementary error function) and their recurrence, https://dlmf.nist.gov/7.18.

    Examples
    --------
    >>> from pymc_skewgp._gaussian.univariate_moments import truncated_moments
    >>> log_mass, mean, variance = truncated_moments(0.0, float("inf"))
    >>> print(f"{mean:.6f} {variance:.6f}")
    0.797885 0.363380
    """
    mean, variance, *_ = _central_moments(a, b)
    return log_ndtr_interval(a, b), mean, variance


def truncated_third_moment(a: ArrayLike, b: ArrayLike) -> FloatArray:
    r"""Third central moment of a standard normal restricted to an interval.

    .. math:: \mathrm E[(x - \mathrm E x)^3]; \quad
        r\{(r - a)(2r - a) - 1\} \text{ when } b = \infty, \; r = \phi(a)/\Phi(-a)

    Parameters
    ----------
    a, b : array_like
        Bounds, broadcast together; ``a < b``, infinities allowed.

    Returns
    -------
    ndarray
        Of the broadcast shape.

    References
    ----------
    .. [1] See `truncated_moments`; the closed form is the second derivative of the hazard.

    Examples
    --------
    >>> from pymc_skewgp._gaussian.univariate_moments import truncated_third_moment
    >>> print(f"{truncated_third_moment(0.0, float('inf')):.6f}")
    0.218014
    """
    return _central_moments(a, b)[2]


def truncated_shape(
    a: ArrayLike, b: ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    r"""Mean, variance, skewness and excess kurtosis of a standard normal in an interval.

    .. math:: \mathrm E[(x - \mathrm E x)^3] / \mathrm{var}[x]^{3/2}, \quad
        \mathrm E[(x - \mathrm E x)^4] / \mathrm{var}[x]^2 - 3

    Parameters
    ----------
    a, b : array_like
        Bounds, broadcast together; ``a < b``, infinities allowed.

    Returns
    -------
    mean, variance : ndarray
        As of `truncated_moments`.
    skewness, excess_kurtosis : ndarray
        Of the broadcast shape: 0 and 0 for the whole line, 0 and -1.2 for a narrow interval, 2 and
        6 in a far tail.

    References
    ----------
    .. [1] See `truncated_moments`; in a tail with fourth moment r_1 r_2 r_3 r_4 of the excess.

    Examples
    --------
    >>> from pymc_skewgp._gaussian.univariate_moments import truncated_shape
    >>> *_, skewness, excess_kurtosis = truncated_shape(0.0, float("inf"))
    >>> print(f"{skewness:.6f} {excess_kurtosis:.6f}")
    0.995272 0.869177
    """
    mean, variance, third, fourth = _central_moments(a, b)
    sd = np.sqrt(variance)
    # One division after another: in a far tail the powers themselves would underflow.
    return mean, variance, third / variance / sd, fourth / variance / variance - 3.0


def _central_moments(
    a: ArrayLike, b: ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Mean and central moments 2 to 4."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    p, q, flip = reflect(a, b)
    shape = p.shape
    p, q = p.ravel(), q.ravel()
    moments = np.empty((4, p.size))
    with np.errstate(invalid="ignore"):  # the whole line again
        decay = 0.5 * (q - p) * (p + q)
    one_sided = (q == np.inf) | ((decay >= _INVISIBLE) & (p > 0))
    for rows, rule in (
        (one_sided & (p <= _TAIL_MOMENT), lambda low, _: _hazard_moments(low)),
        (one_sided & (p > _TAIL_MOMENT), lambda low, _: _fraction_moments(low)),
        (~one_sided & (p <= 1.0) & (q - p >= 1.0), _closed_moments),
    ):
        if rows.any():
            moments[:, rows] = rule(p[rows], q[rows])
    left = ~one_sided & ((p > 1.0) | (q - p < 1.0))
    for largest, count in _TIERS:
        rows = left & (decay < largest)
        if rows.any():
            moments[:, rows] = integrate(p[rows], (q - p)[rows], count)[1:]
            left &= ~rows
    sign = np.where(flip, -1.0, 1.0)
    mean, variance, third, fourth = moments.reshape((4, *shape))
    return sign * mean, np.minimum(variance, 1.0), sign * third, fourth


def _hazard_moments(p: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    p = np.maximum(p, -40.0)  # the hazard is zero there, and -inf * 0 is avoided
    hazard = HAZARD_SCALE / erfcx(p * SQRT_HALF)
    excess = hazard - p
    variance = 1.0 - hazard * excess
    third = hazard * (excess * (hazard + excess) - 1.0)
    # Integration by parts: E[x (x - r)^3] = 3 var + r (p - r)^3 at the bound.
    return hazard, variance, third, 3.0 * variance - hazard * (third + excess**3)


def _fraction_moments(p: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    # Start at the fixed point of the recursion; backward it contracts.
    ratio = 2.0 * _FRACTION_TERMS / (p + np.sqrt(p * p + 4.0 * _FRACTION_TERMS))
    first = second = third = fourth = ratio
    for k in range(_FRACTION_TERMS, 0, -1):
        ratio = k / (p + ratio)
        first, second, third, fourth = ratio, first, second, third
    variance = first * (second - first)
    cube = second * third - first * (3.0 * second - 2.0 * first)
    quartic = second * third * (fourth - 4.0 * first) + 3.0 * first**2 * (2.0 * second - first)
    return p + first, variance, first * cube, first * quartic


def _closed_moments(
    p: FloatArray, q: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    p, q = np.maximum(p, -40.0), np.minimum(q, 40.0)  # the density underflows: 0 * inf avoided
    mass = survival(p) - survival(q)
    at_p = np.exp(-0.5 * p * p - LOG_SQRT_2PI) / mass
    at_q = np.exp(-0.5 * q * q - LOG_SQRT_2PI) / mass
    mean = at_p - at_q
    second = 1.0 + p * at_p - q * at_q
    cube = 2.0 * mean + p * p * at_p - q * q * at_q
    variance = second - mean * mean
    third = cube - 3.0 * mean * second + 2.0 * mean**3
    fourth = 3.0 * variance - mean * third + (p - mean) ** 3 * at_p - (q - mean) ** 3 * at_q
    return mean, variance, third, fourth
