"""The normal restricted to an interval, in one dimension and two: masses, draws, moments.

Everything works on whole arrays of any (broadcastable) shape. Bounds are not checked, because these
functions sit in inner loops: callers pass ``a < b`` (`as_bounds` checks it at the public edge).

Two devices remove every cancellation:

* reflection: an interval is mirrored so that its bound nearest to zero is the lower one, ``p``, and
  ``p + q >= 0``; then only survival functions and Mills ratios of the right tail are needed;
* where a difference of distribution functions would lose digits (narrow intervals, intervals in a
  tail), the positive integrand itself is summed by Gauss-Legendre quadrature, moments included.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfc, erfcx, log_ndtr, logsumexp, ndtri

from pymc_skewgp._gaussian.linalg import cholesky
from pymc_skewgp._validation import FloatArray, as_bounds, as_covariance

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
    # `log_ndtr_interval` where the difference has lost digits.
    lost = ~(high - low > _LEAST_SHARE * high) | (p > _TAIL_DRAW)
    with np.errstate(divide="ignore"):
        log_mass = np.asarray(np.log(np.maximum(high - low, 0.0)))
    if lost.any():
        lost, a, b = np.broadcast_arrays(lost, a, b)
        known = None if width is None else np.broadcast_to(width, lost.shape)[lost]
        log_mass = np.array(np.broadcast_to(log_mass, lost.shape))
        log_mass[lost] = log_ndtr_interval(a[lost], b[lost], known)
    return np.where(flip, -z, z), log_mass


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


# Moments of the standard normal restricted to an interval, stable everywhere.
#
# As in `pymc_skewgp._gaussian.univariate`, intervals are mirrored so that the bound nearest to zero
# is the lower one, and where a difference would lose digits the integrand is summed by quadrature.

# Above this the closed form 1 - r(r - p) of the variance has lost p^4 eps.
_TAIL_MOMENT = 3.0
# exp(-45) times the cube of a point 45 scale lengths out is under 1e-14: such a bound is invisible.
_INVISIBLE, _END = 45.0, 44.9
# (largest log ratio of the normal density across the interval, Gauss-Legendre nodes for ~1e-15).
_TIERS = ((1.0, 9), (8.0, 16), (_INVISIBLE, 32))


def truncated_moments(a: ArrayLike, b: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    r"""Log mass, mean and variance of a standard normal restricted to an interval.

    .. math:: \log Z,\quad \mathrm E[x] = \frac{\phi(a) - \phi(b)}{Z},\quad
        \mathrm{var}[x] = 1 + \frac{a\phi(a) - b\phi(b)}{Z} - \mathrm E[x]^2

    These closed forms are used only where they keep their digits; elsewhere, and far out, the
    integrand is summed by quadrature.

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
    .. [1] NIST Digital Library of Mathematical Functions, 7.8 (Mills' ratio) and 3.5
       (quadrature), https://dlmf.nist.gov/7.8.

    Examples
    --------
    >>> from pymc_skewgp._gaussian.univariate import truncated_moments
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
    >>> from pymc_skewgp._gaussian.univariate import truncated_third_moment
    >>> print(f"{truncated_third_moment(0.0, float('inf')):.6f}")
    0.218014
    """
    return _central_moments(a, b)[2]


def truncated_shape(a: ArrayLike, b: ArrayLike) -> tuple[FloatArray, ...]:
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
    .. [1] See `truncated_moments`.

    Examples
    --------
    >>> from pymc_skewgp._gaussian.univariate import truncated_shape
    >>> *_, skewness, excess_kurtosis = truncated_shape(0.0, float("inf"))
    >>> print(f"{skewness:.6f} {excess_kurtosis:.6f}")
    0.995272 0.869177
    """
    mean, variance, third, fourth = _central_moments(a, b)
    sd = np.sqrt(variance)
    # One division after another: in a far tail the powers themselves would underflow.
    return mean, variance, third / variance / sd, fourth / variance / variance - 3.0


def _central_moments(a: ArrayLike, b: ArrayLike) -> tuple[FloatArray, ...]:
    """Mean and central moments 2 to 4."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    p, q, flip = reflect(a, b)
    shape = p.shape
    p, q = p.ravel(), q.ravel()
    moments = np.empty((4, p.size))
    with np.errstate(invalid="ignore"):  # the whole line again
        decay = 0.5 * (q - p) * (p + q)
    one_sided = (q == np.inf) | ((decay >= _INVISIBLE) & (p > 0))
    far = one_sided & (p > _TAIL_MOMENT)
    for rows, rule in (
        (one_sided & ~far, lambda low, _: _hazard_moments(low)),
        (~one_sided & (p <= 1.0) & (q - p >= 1.0), _closed_moments),
    ):
        if rows.any():
            moments[:, rows] = rule(p[rows], q[rows])
    gap, left = q - p, far | (~one_sided & ((p > 1.0) | (q - p < 1.0)))
    decay[far] = _END  # as far as anything is seen
    gap[far] = 2.0 * _END / (p[far] + np.sqrt(p[far] ** 2 + 2.0 * _END))
    for largest, count in _TIERS:
        rows = left & (decay < largest)
        if rows.any():
            moments[:, rows] = integrate(p[rows], gap[rows], count)[1:]
            left &= ~rows
    sign = np.where(flip, -1.0, 1.0)
    mean, variance, third, fourth = moments.reshape((4, *shape))
    return sign * mean, np.minimum(variance, 1.0), sign * third, fourth


def _hazard_moments(p: FloatArray) -> tuple[FloatArray, ...]:
    p = np.maximum(p, -40.0)  # the hazard is zero there, and -inf * 0 is avoided
    hazard = HAZARD_SCALE / erfcx(p * SQRT_HALF)
    excess = hazard - p
    variance = 1.0 - hazard * excess
    third = hazard * (excess * (hazard + excess) - 1.0)
    # Integration by parts: E[x (x - r)^3] = 3 var + r (p - r)^3 at the bound.
    return hazard, variance, third, 3.0 * variance - hazard * (third + excess**3)


def _closed_moments(p: FloatArray, q: FloatArray) -> tuple[FloatArray, ...]:
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


# A normal distribution at the limits that truncate it: what derivatives in them are made of.


class Edges(NamedTuple):
    """N(mean, sd^2) at the limits: densities over the mass between them, 0 at infinite ones."""

    lower: FloatArray
    upper: FloatArray
    spread: FloatArray  # a phi(a) - b phi(b) over the mass, a and b the standardised limits

    @classmethod
    def of(
        cls, lower: FloatArray, upper: FloatArray, mean: FloatArray | float, sd: FloatArray
    ) -> Self:
        """Of each row; `lower` and `upper` broadcast against `mean` and `sd`."""
        a, b = (lower - mean) / sd, (upper - mean) / sd
        at_a, at_b = edge_densities(a, b)
        at_low, at_high = (np.where(np.isfinite(x), x, 0.0) for x in (a, b))
        spread = at_low * at_a - at_high * at_b
        return cls(at_a / sd, at_b / sd, spread)


# The exact case N = 2: log probability and moments of a bivariate Gaussian in a rectangle.

# The integrand is cut where it has fallen by exp(-45) = 3e-20 from its peak.
_CUT = 45.0
_AS_GOOD_AS_INFINITE = 1e100  # bounds as good as infinite, whose squares would overflow
# Sixteen panels leave each a fall of some exp(-10) at most: 20 nodes integrate that to round-off.
_PANELS = 16
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(20)
# Where the inner interval switches on, in units of the width of the switch: Phi(8) = 1 - 6e-16.
_SWITCH = np.arange(-8.0, 8.5, 1.0)


@dataclass(frozen=True)
class LatentMoments:
    """First three moments of Gaussian variables in a rectangle.

    Attributes
    ----------
    mean : ndarray, shape (s,)
    cov : ndarray, shape (s, s)
    tensor : ndarray, shape (s, s, s), or None
        Third central moments, where they are known exactly.
    centred, weights : ndarray, shapes (n_draws, s) and (n_draws,), or None
        Weighted draws less their mean, where they are not.
    """

    mean: FloatArray
    cov: FloatArray
    tensor: FloatArray | None = None
    centred: FloatArray | None = None
    weights: FloatArray | None = None

    def third(self, directions: FloatArray) -> FloatArray:
        """Third central moment of each column of u' directions, shape (p,)."""
        if self.tensor is not None:
            return np.einsum("ijk,ip,jp,kp->p", self.tensor, directions, directions, directions)
        assert self.centred is not None
        assert self.weights is not None
        return self.weights @ (self.centred @ directions) ** 3


class _Slices(NamedTuple):
    """Standardised rectangle cut along its first coordinate, x = anchor + t; y given x is normal.

    The bounds of (y - rho x)/s at t are (near - rho t)/s: `near` and `far` are y's bounds less rho
    times the anchor, rounded once, so that nothing cancels when s is as small as 1e-6.
    """

    anchor: float
    near: float
    far: float
    width: float  # of y's interval: far - near, before they were rounded
    rho: float
    s: float

    def inner(self, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        alpha = (self.near - self.rho * t) / self.s
        beta = (self.far - self.rho * t) / self.s
        return alpha, np.maximum(beta, np.nextafter(alpha, np.inf))  # far off they may coincide

    def log_density(self, t: FloatArray) -> FloatArray:
        alpha, beta = self.inner(t)
        log_mass = log_ndtr_interval(alpha, beta)
        width = self.width / self.s
        narrow = width * (1.0 + np.maximum(np.abs(alpha), np.abs(beta))) < 1.0
        if narrow.any():  # the mass goes with the width, which beta - alpha has to few digits
            log_mass[narrow] += np.log(width / (beta - alpha)[narrow])
        return log_mass - 0.5 * self.anchor**2 - t * (self.anchor + 0.5 * t) - LOG_SQRT_2PI

    def slope(self, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """First and second derivative of the log density."""
        _, mean, variance = truncated_moments(*self.inner(t))
        ratio = self.rho / self.s
        return ratio * mean - self.anchor - t, ratio**2 * (variance - 1.0) - 1.0

    def moved(self, shift: float, low: float, high: float) -> "_Slices":
        anchor = self.anchor + shift
        return self._replace(
            anchor=anchor,
            near=_exact_residual(low, self.rho, anchor),
            far=_exact_residual(high, self.rho, anchor),
        )


def bivariate_log_prob(lower: ArrayLike | None, upper: ArrayLike | None, cov: ArrayLike) -> float:
    r"""Log probability of a rectangle under a bivariate Gaussian of mean zero.

    .. math:: \log P(a < u < b) = \log \int_{a_1}^{b_1} \phi(x) \left\{
        \Phi\left(\frac{b_2 - \rho x}{\sqrt{1-\rho^2}}\right)
        - \Phi\left(\frac{a_2 - \rho x}{\sqrt{1-\rho^2}}\right)\right\} \mathrm dx

    in standardised bounds. The references reduce the integral to one over the correlation, which
    is fast but absolute in accuracy: a probability of 1e-300 is lost. This integrand is log-concave
    and known in logs, so it is summed around its mode by a composite Gauss-Legendre rule, broken
    where the inner interval switches on: near :math:`|\rho| = 1` that is a step.

    Parameters
    ----------
    lower, upper : array_like, shape (2,), or None
        Bounds, infinities allowed; None means unbounded.
    cov : array_like, shape (2, 2)
        Covariance matrix.

    Returns
    -------
    float
        Log probability, to about 1e-12 absolute (or a few 1e-15 relative, where it is larger).

    Raises
    ------
    NotPositiveDefiniteError
        When `cov` is not positive definite beyond what the jitter policy mends.

    References
    ----------
    .. [1] Z. Drezner and G. O. Wesolowsky (1990), On the computation of the bivariate normal
       integral, doi:10.1080/00949659008811236.
    .. [2] A. Genz (2004), Numerical computation of rectangular bivariate and trivariate normal and
       t probabilities, doi:10.1023/B:STCO.0000035304.20635.31.

    Examples
    --------
    >>> from pymc_skewgp._gaussian.univariate import bivariate_log_prob
    >>> round(bivariate_log_prob([0.0, 0.0], None, [[1.0, 0.5], [0.5, 1.0]]), 10)  # log(1/3)
    -1.0986122887
    >>> round(bivariate_log_prob([60.0, 80.0], None, [[1.0, 0.5], [0.5, 1.0]]), 6)
    -3475.845615
    """
    low, high, rho, s, _ = _standardise(lower, upper, cov)
    free = np.isinf(low) & np.isinf(high)
    if free.any():
        other = int(free[0])
        return float(log_ndtr_interval(low[other], high[other]))
    slices, nodes, log_weights = _rule(low, high, rho, s)
    return float(logsumexp(log_weights + slices.log_density(nodes)))


def bivariate_truncated_moments(
    lower: ArrayLike | None, upper: ArrayLike | None, cov: ArrayLike
) -> LatentMoments:
    r"""Mean, covariance and third central moments of a bivariate Gaussian in a rectangle.

    .. math:: \mathrm E[u],\quad \mathrm E[(u-\mathrm E u)(u-\mathrm E u)'],\quad
        \mathrm E[(u-\mathrm E u)_i (u-\mathrm E u)_j (u-\mathrm E u)_k]

    by the rule of `bivariate_log_prob`: given the first coordinate the second is a univariate
    truncated normal, whose moments are closed, and the two are put together by the laws of total
    covariance and total third cumulant. Relative to the standard deviations inside the rectangle
    they are good to about 1e-12, or 1e-15 times the log probability where that is larger.

    Parameters
    ----------
    lower, upper : array_like, shape (2,), or None
        Bounds, infinities allowed; None means unbounded.
    cov : array_like, shape (2, 2)
        Covariance matrix.

    Returns
    -------
    LatentMoments

    References
    ----------
    .. [1] A. Genz (2004), doi:10.1023/B:STCO.0000035304.20635.31.

    Examples
    --------
    >>> from pymc_skewgp._gaussian.univariate import bivariate_truncated_moments
    >>> moments = bivariate_truncated_moments([0.0, 0.0], None, [[1.0, 0.5], [0.5, 1.0]])
    >>> moments.mean.round(4).tolist()
    [0.8976, 0.8976]
    """
    low, high, rho, s, sd = _standardise(lower, upper, cov)
    slices, t, log_weights = _rule(low, high, rho, s)
    log_terms = log_weights + slices.log_density(t)
    # Against their peak, not their sum: a log of -1e8 is spaced at 1e-8, and weights would drift.
    w = np.exp(log_terms - log_terms.max())
    w /= w.sum()
    alpha, beta = slices.inner(t)
    _, inner_mean, inner_variance = truncated_moments(alpha, beta)
    inner_third = truncated_third_moment(alpha, beta)
    # Means relative to the peak: the large common part stays out of the differences.
    y = rho * t + s * inner_mean
    top = np.array([slices.anchor, y[np.argmax(w)]])
    dx, dy = t, y - top[1]
    centre = np.array([w @ dx, w @ dy])
    dx, dy = dx - centre[0], dy - centre[1]
    v = s * s * inner_variance
    xx, xy, yy = w @ (dx * dx), w @ (dx * dy), w @ (dy * dy + v)
    xxx, xxy, xyy = w @ dx**3, w @ (dx * dx * dy), w @ (dx * (dy * dy + v))
    yyy = w @ (dy**3 + 3.0 * dy * v + s**3 * inner_third)
    third = np.array([[[xxx, xxy], [xxy, xyy]], [[xxy, xyy], [xyy, yyy]]])
    return LatentMoments(
        sd * (centre + top + [0.0, rho * slices.anchor]),
        sd[:, None] * np.array([[xx, xy], [xy, yy]]) * sd,
        sd[:, None, None] * sd[:, None] * sd * third,
    )


def _standardise(
    lower: ArrayLike | None, upper: ArrayLike | None, cov: ArrayLike
) -> tuple[FloatArray, FloatArray, float, float, FloatArray]:
    """Bounds over standard deviations, correlation rho, sqrt(1 - rho^2), standard deviations."""
    matrix = as_covariance("cov", cov, 2)
    low, high = as_bounds(lower, upper, 2)
    # In rational arithmetic: in floating point 1 - rho^2 would cancel.
    a, b, c = (Fraction(float(x)) for x in (matrix[0, 0], matrix[0, 1], matrix[1, 1]))
    left = float(1 - b * b / (a * c))
    if left <= 0:
        factor, jitter = cholesky("cov", matrix)  # jitter comes with its warning
        matrix = matrix + jitter * np.diag(matrix.diagonal())
        left = float(factor[1, 1] ** 2 / matrix[1, 1])
    sd = np.sqrt(matrix.diagonal())
    # Near 1 the quotient may round to 1 or above; s, which matters, is exact.
    rho = float(np.clip(matrix[0, 1] / (sd[0] * sd[1]), -1.0, 1.0))
    low, high = low / sd, high / sd
    low[low < -_AS_GOOD_AS_INFINITE], high[high > _AS_GOOD_AS_INFINITE] = -np.inf, np.inf
    return low, high, rho, math.sqrt(left), sd


def _exact_residual(bound: float, rho: float, x: float) -> float:
    if math.isinf(bound):
        return bound
    return float(Fraction(bound) - Fraction(rho) * Fraction(x))


def _rule(
    low: FloatArray, high: FloatArray, rho: float, s: float
) -> tuple[_Slices, FloatArray, FloatArray]:
    """The slices anchored at the mode of their density, nodes t and log weights."""
    a, b = float(low[0]), float(high[0])
    y_low, y_high = float(low[1]), float(high[1])
    start = _Slices(0.0, y_low, y_high, y_high - y_low, rho, s)
    slices = start.moved(_mode(start, a, b), y_low, y_high)
    left, right = a - slices.anchor, b - slices.anchor
    slope, curvature = (float(x[0]) for x in slices.slope(np.zeros(1)))
    scale = 1.0 / max(abs(slope), math.sqrt(-curvature))
    left = -_reach(lambda t: slices.log_density(-t), scale, -left)
    right = _reach(slices.log_density, scale, right)
    edges = [np.linspace(left, right, _PANELS + 1)]
    width = s / max(abs(rho), 1e-300)
    if width < right - left:  # else the uniform panels resolve the switch
        edges += [
            bound / rho + width * _SWITCH
            for bound in (slices.near, slices.far)
            if np.isfinite(bound)
        ]
    cuts = np.unique(np.clip(np.concatenate(edges), left, right))
    half = 0.5 * np.diff(cuts)[:, None]
    nodes = cuts[:-1, None] + half * (1.0 + _POINTS)
    return slices, nodes.ravel(), np.log(half * _WEIGHTS).ravel()


def _mode(slices: _Slices, a: float, b: float) -> float:
    """Mode of a log-concave density on [a, b], to 1% of its width, by sections on its slope."""
    # The joint mode is no farther out than the farthest bound, this one a few deviations more.
    bounds = np.array([a, b, slices.near, slices.far])
    farthest = 10.0 + 2.0 * np.abs(bounds[np.isfinite(bounds)]).max(initial=0.0)
    a, b = max(a, -farthest), min(b, farthest)
    reach = 2.0 ** np.arange(-10.0, math.log2(farthest))
    points = np.concatenate([-reach[::-1], [0.0], reach])
    points = np.unique(np.concatenate([[a, b], points[(points > a) & (points < b)]]))
    while True:
        slope, curvature = slices.slope(points)
        k = int(np.searchsorted(-slope, 0.0))  # the slope falls: first point past the mode
        if k in (0, points.size):
            return float(points[min(k, points.size - 1)])
        lo, hi = points[k - 1], points[k]
        width = 1.0 / math.sqrt(max(-curvature[k - 1], -curvature[k]))
        if hi - lo <= max(0.01 * width, 4.0 * np.spacing(max(abs(lo), abs(hi)))):
            return float(0.5 * (lo + hi))
        points = np.linspace(lo, hi, 33)


def _reach(log_density: Callable[[FloatArray], FloatArray], scale: float, limit: float) -> float:
    """Distance from the mode at which the density is cut: `limit`, or a fall of exp(-45)."""
    if limit <= 0:
        return 0.0
    floor = float(log_density(np.zeros(1))[0]) - _CUT

    def first_below(t: FloatArray) -> float:
        t = t[t < limit]
        below = np.flatnonzero(log_density(t) < floor)
        return float(t[below[0]]) if below.size else limit

    far = first_below(scale * 2.0 ** np.arange(-30.0, 60.0))
    return first_below(np.linspace(0.5 * far, far, 17)) if math.isfinite(far) else far
