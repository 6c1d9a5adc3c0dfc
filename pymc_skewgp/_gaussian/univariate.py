"""The standard normal restricted to an interval: log mass and draws, stable everywhere.

Everything works on whole arrays of any (broadcastable) shape. Bounds are not checked, because these
functions sit in inner loops: callers pass ``a < b`` (`as_bounds` checks it at the public edge).

Two devices remove every cancellation:

* reflection: an interval is mirrored so that its bound nearest to zero is the lower one, ``p``, and
  ``p + q >= 0``; then only survival functions and Mills ratios of the right tail are needed;
* where a difference of distribution functions would lose digits (narrow intervals, intervals in a
  tail), the positive integrand itself is summed by Gauss-Legendre quadrature, moments included.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfc, erfcx, log_ndtr, ndtri

from pymc_skewgp._validation import FloatArray

BoolArray = NDArray[np.bool_]

LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
SQRT_HALF = math.sqrt(0.5)
HAZARD_SCALE = math.sqrt(2.0 / math.pi)

_HUGE = 1e150
# Beyond this bound a draw is located by its excess over the bound: log Phi itself grows like p^2/2,
# so inverting it would cost p^2 units of round-off in the excess.
_TAIL_DRAW = 10.0
# Below this the lower tail probability is inverted, above it the upper one.
_LEFT_DRAW = -3.0
# Relative width under which a draw's position in its interval is better had from the series of the
# tilted uniform (error width^2) than from ndtri (error eps/width).
_NARROW_DRAW = 1e-6
# A difference of survival probabilities has eps over this share of the first of them wrong.
_LEAST_SHARE = 0.02
# Gauss-Legendre nodes for ~1e-15 where the log of the density varies by less than 1.
_FEW_NODES = 9
_CHUNK = 16384  # elements whose nodes still fit the cache


def log_ndtr_interval(a: ArrayLike, b: ArrayLike, width: ArrayLike | None = None) -> FloatArray:
    r"""Logarithm of the standard normal mass of an interval.

    .. math:: \log\{\Phi(b) - \Phi(a)\}

    With :math:`0 < p < q` after reflection and :math:`m` the scaled complementary error function
    of :math:`\cdot/\sqrt 2`, the mass is
    :math:`\Phi(-p)\{1 - e^{-(q-p)(q+p)/2} m(q)/m(p)\}`, whose subtraction is harmless once the
    exponent exceeds 1/2; narrower intervals are integrated.

    Parameters
    ----------
    a, b : array_like
        Bounds, broadcast together; ``a < b``, infinities allowed.
    width : array_like, optional
        b - a, where it is known better than from the rounded bounds: the mass of a narrow interval
        goes with its width, and a difference of bounds has eps / width of it wrong.

    Returns
    -------
    ndarray
        Log mass, of the broadcast shape.

    References
    ----------
    .. [1] W. J. Cody (1969), Rational Chebyshev approximations for the error function,
       doi:10.1090/S0025-5718-1969-0247736-4.

    Examples
    --------
    >>> from pymc_skewgp._gaussian.univariate import log_ndtr_interval
    >>> log_ndtr_interval([-1.0, 40.0], [1.0, 41.0]).round(3).tolist()
    [-0.382, -804.608]
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if np.all(b == np.inf):
        return np.asarray(log_ndtr(-a)) + np.zeros(b.shape)
    if np.all(a == -np.inf):
        return np.asarray(log_ndtr(b)) + np.zeros(a.shape)
    p, q, _ = reflect(a, b)
    log_mass = np.asarray(log_ndtr(-p))
    two_sided = np.isfinite(p) & np.isfinite(q)
    if not two_sided.any():
        return log_mass
    p, q = p[two_sided], q[two_sided]
    gap = q - p if width is None else np.broadcast_to(width, two_sided.shape)[two_sided]
    result = log_mass[two_sided]
    decay = 0.5 * gap * (p + q)
    narrow = (gap < 1.0) & (decay < 1.0)
    tail = ~narrow & (p > 0)
    straddling = ~narrow & ~tail
    # A ratio of tails and a sum of tails: both far enough below 1 here.
    x = p[tail]
    ratio = np.exp(-decay[tail]) * erfcx(q[tail] * SQRT_HALF) / erfcx(x * SQRT_HALF)
    result[tail] += np.log1p(-ratio)
    result[straddling] = np.log1p(-(survival(q[straddling]) + survival(-p[straddling])))
    result[narrow] = integrate(p[narrow], gap[narrow], _FEW_NODES)[0]
    log_mass[two_sided] = result
    return log_mass


def edge_densities(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Density at a and at b of a standard normal restricted to (a, b); 0 at infinite bounds."""
    # One side unbounded everywhere, as a rule: the hazard, a fifth of the time.
    if np.all(b == np.inf):
        return np.asarray(HAZARD_SCALE / erfcx(a * SQRT_HALF)), np.zeros(b.shape)
    if np.all(a == -np.inf):
        return np.zeros(a.shape), np.asarray(HAZARD_SCALE / erfcx(-b * SQRT_HALF))
    log_mass = log_ndtr_interval(a, b) + LOG_SQRT_2PI
    return np.exp(-0.5 * a * a - log_mass), np.exp(-0.5 * b * b - log_mass)


def draw_truncated(
    u: ArrayLike, a: ArrayLike, b: ArrayLike, width: ArrayLike | None = None
) -> tuple[FloatArray, FloatArray]:
    r"""Draws of a standard normal restricted to an interval, by inversion, with its log mass.

    .. math:: \Phi(z) = (1 - u)\Phi(a) + u\Phi(b)

    An increasing function of ``u``, so quasi-random points keep their structure. In a far tail
    the excess over the bound solves :math:`-\log\{S(p + t)/S(p)\} = L` by Newton's method, which
    converges monotonically because the hazard of the normal increases.

    Parameters
    ----------
    u : array_like
        Uniforms in (0, 1).
    a, b : array_like
        Bounds; ``a < b``, infinities allowed. `u`, `a` and `b` broadcast together.
    width : array_like, optional
        b - a, where it is known better than from the rounded bounds (see `log_ndtr_interval`).

    Returns
    -------
    z : ndarray
        Draws, of the common broadcast shape, inside ``(a, b)``.
    log_mass : ndarray
        :math:`\log\{\Phi(b) - \Phi(a)\}`, of the shape of ``a`` and ``b`` alone (one-sided, to an
        absolute 1e-14 rather than a relative one).

    References
    ----------
    .. [1] L. Devroye (1986), Non-Uniform Random Variate Generation, chapter 2,
       doi:10.1007/978-1-4613-8643-8.

    Examples
    --------
    >>> from pymc_skewgp._gaussian.univariate import draw_truncated
    >>> z, log_mass = draw_truncated([0.25, 0.75], 8.0, float("inf"))
    >>> z.round(4)
    array([8.0353, 8.169 ])
    """
    u = np.asarray(u, dtype=np.float64)
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if np.all(b == np.inf):
        z, log_mass = _draw_above(u, 1.0 - u, a)
        return z, log_mass if b.ndim == 0 else log_mass + np.zeros(b.shape)
    if np.all(a == -np.inf):
        z, log_mass = _draw_above(1.0 - u, u, -b)
        return -z, log_mass if a.ndim == 0 else log_mass + np.zeros(a.shape)
    return _draw_between(u, a, b, width)


def reflect(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Mirror intervals so that p + q >= 0; True in the third array where it was mirrored."""
    with np.errstate(invalid="ignore"):  # -inf + inf: the whole line, its own mirror
        flip = np.asarray(a + b < 0)
    p, q = np.where(flip, -b, a), np.where(flip, -a, b)
    # Their squares would overflow, and no float64 lies beyond them with any probability.
    p[p < -_HUGE], q[q > _HUGE] = -np.inf, np.inf
    return p, q, flip


def survival(x: FloatArray) -> FloatArray:
    """Probability of more than x."""
    # Half the time of scipy's ndtr, and as accurate.
    return 0.5 * np.asarray(erfc(x * SQRT_HALF))


@lru_cache
def _unit_rule(count: int) -> tuple[FloatArray, FloatArray]:
    """Gauss-Legendre nodes and weights of (0, 1), as columns."""
    points, weights = np.polynomial.legendre.leggauss(count)
    return 0.5 * (points + 1.0)[:, None], 0.5 * weights[:, None]


def integrate(p: FloatArray, width: FloatArray, count: int) -> tuple[FloatArray, ...]:
    """Log mass, mean, central moments 2 to 4 of (p, p + width), by Gauss-Legendre nodes.

    The middle of the interval is not below 0.

    The density is taken relative to its value at p, exp(-p t - t^2/2) at p + t: no cancellation.
    """
    s, weights = _unit_rule(count)
    out = np.empty((5, p.size))
    for start in range(0, p.size, _CHUNK):
        block = slice(start, start + _CHUNK)
        low, gap = p[block], width[block]
        t = s * gap
        mass = weights * np.exp(-t * (low + 0.5 * t))
        total = mass.sum(axis=0)
        mean = (mass * s).sum(axis=0) / total
        off = s - mean
        squares = mass * off * off
        out[0, block] = np.log(gap) + np.log(total) - 0.5 * low * low - LOG_SQRT_2PI
        out[1, block] = low + gap * mean
        out[2, block] = gap**2 * squares.sum(axis=0) / total
        squares *= off
        out[3, block] = gap**3 * squares.sum(axis=0) / total
        squares *= off
        out[4, block] = gap**4 * squares.sum(axis=0) / total
    return tuple(out)


def _draw_above(u: FloatArray, v: FloatArray, a: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Draws above `a` with survival probability v S(a), u + v = 1; and log S(a)."""
    v = np.maximum(v, 1e-300)  # a uniform of exactly 1 must not give an infinite draw
    mass = np.asarray(survival(a))
    with np.errstate(divide="ignore"):  # underflow: mended below
        log_mass = np.asarray(np.log(mass))
    z = np.asarray(-ndtri(v * mass))
    if a.max(initial=-np.inf) > _TAIL_DRAW:
        tail = a > _TAIL_DRAW
        log_mass = np.where(tail, log_ndtr(-a), log_mass)
        tail = np.broadcast_to(tail, z.shape)
        low, left = np.broadcast_to(a, z.shape)[tail], np.broadcast_to(v, z.shape)[tail]
        z[tail] = low + _excess(-np.log(left), low)
    # Near 1 a survival probability has lost its digits: use the lower tail there.
    lost = z <= np.maximum(a, _LEFT_DRAW)
    if lost.any():
        u, v, a = (np.broadcast_to(x, z.shape)[lost] for x in (u, v, a))
        low = np.asarray(ndtri(np.maximum(u + v * survival(-a), 1e-300)))
        z[lost] = np.maximum(np.where(a < 0, low, z[lost]), np.nextafter(a, np.inf))
    return z, log_mass


def _draw_between(
    u: FloatArray, a: FloatArray, b: FloatArray, width: ArrayLike | None
) -> tuple[FloatArray, FloatArray]:
    """Draws between finite bounds, or bounds of which some are finite; and the log mass."""
    p, q, flip = reflect(a, b)
    gap = q - p if width is None else np.asarray(width, dtype=np.float64)
    high, low = survival(p), survival(q)
    v = 1.0 - u
    u, v = np.where(flip, v, u), np.where(flip, u, v)
    z = np.asarray(-ndtri(np.maximum(v * high + u * low, 1e-300)))
    narrow = gap * np.maximum(p, 1.0) < _NARROW_DRAW
    tail = ~narrow & (p > _TAIL_DRAW)
    left = ~np.broadcast_to(narrow, z.shape) & (z < _LEFT_DRAW)

    def chosen(mask: BoolArray, *arrays: FloatArray) -> list[FloatArray]:
        return [np.broadcast_to(x, z.shape)[mask] for x in arrays]

    if tail.any():
        mask = np.broadcast_to(tail, z.shape)
        start, wide, share = chosen(mask, p, gap, u)
        inside = -np.expm1(-_log_survival_drop(start, wide))
        z[mask] = start + _excess(-np.log1p(-np.minimum(share * inside, 1.0 - 1e-16)), start)
    if narrow.any():
        mask = np.broadcast_to(narrow, z.shape)
        start, wide, share = chosen(mask, p, gap, u)
        tilt = wide * (start + 0.5 * wide)
        z[mask] = start + wide * share * (1.0 - 0.5 * tilt * (1.0 - share))
    if left.any():
        start, end, share, other = chosen(left, p, q, u, v)
        lower = other * survival(-start) + share * survival(-end)
        z[left] = ndtri(np.maximum(lower, 1e-300))
    z = np.minimum(np.maximum(z, np.nextafter(p, np.inf)), np.nextafter(q, -np.inf))
    return np.where(flip, -z, z), _log_mass_between(a, b, width, p, high - low, high)


def _log_mass_between(
    a: FloatArray,
    b: FloatArray,
    width: ArrayLike | None,
    p: FloatArray,
    mass: FloatArray,
    high: FloatArray,
) -> FloatArray:
    """Log of `mass`, a difference from `high`, and `log_ndtr_interval` where that lost digits."""
    lost = ~(mass > _LEAST_SHARE * high) | (p > _TAIL_DRAW)
    if not lost.any():
        return np.asarray(np.log(mass))
    with np.errstate(divide="ignore"):
        log_mass = np.log(np.maximum(mass, 0.0))
    lost, a, b = np.broadcast_arrays(lost, a, b)
    known = None if width is None else np.broadcast_to(width, lost.shape)[lost]
    log_mass = np.array(np.broadcast_to(log_mass, lost.shape))
    log_mass[lost] = log_ndtr_interval(a[lost], b[lost], known)
    return log_mass


def _log_survival_drop(p: FloatArray, t: FloatArray) -> FloatArray:
    """Logarithm of S(p) / S(p + t), for p > 0; infinite t allowed."""
    finite = np.minimum(t, 1e154 / (1.0 + p))  # an infinite drop without inf - inf
    mills = erfcx(p * SQRT_HALF) / erfcx((p + finite) * SQRT_HALF)
    return finite * (p + 0.5 * finite) + np.log(mills)


def _excess(drop: FloatArray, p: FloatArray) -> FloatArray:
    """Solve for t in log S(p) - log S(p + t) = `drop`, for p > 10."""
    t = 2.0 * drop / (p + np.sqrt(p * p + 2.0 * drop))
    for _ in range(3):  # error of the start under 3% of a standard deviation, then squared thrice
        hazard = HAZARD_SCALE / erfcx((p + t) * SQRT_HALF)
        t -= (_log_survival_drop(p, t) - drop) / hazard
    return np.maximum(t, 0.0)
