"""The exact case N = 2: log probability and moments of a bivariate Gaussian in a rectangle."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from pymc_skewgp._gaussian.linalg import cholesky
from pymc_skewgp._gaussian.univariate import log_ndtr_interval
from pymc_skewgp._gaussian.univariate_moments import truncated_moments, truncated_third_moment
from pymc_skewgp._validation import FloatArray, as_bounds, as_covariance

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
# The integrand is cut where it has fallen by exp(-45) = 3e-20 from its peak.
_CUT = 45.0
_HUGE = 1e100  # bounds as good as infinite, whose squares would overflow
# Sixteen panels leave each a fall of some exp(-10) at most: 20 nodes integrate that to round-off.
_PANELS = 16
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(20)
# Where the inner interval switches on, in units of the width of the switch: Phi(8) = 1 - 6e-16.
_SWITCH = np.arange(-8.0, 8.5, 1.0)


class BivariateMoments(NamedTuple):
    """Log probability of the rectangle, and the central moments of the Gaussian inside it."""

    log_prob: float
    mean: FloatArray  # (2,)
    cov: FloatArray  # (2, 2)
    third: FloatArray  # (2, 2, 2), E[(x-m)_i (x-m)_j (x-m)_k]


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
        return log_mass - 0.5 * self.anchor**2 - t * (self.anchor + 0.5 * t) - _LOG_SQRT_2PI

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
    >>> from pymc_skewgp._gaussian.bivariate import bivariate_log_prob
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
) -> BivariateMoments:
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
    BivariateMoments
        ``log_prob``, ``mean`` (2,), ``cov`` (2, 2), ``third`` (2, 2, 2).

    References
    ----------
    .. [1] A. Genz (2004), doi:10.1023/B:STCO.0000035304.20635.31.

    Examples
    --------
    >>> from pymc_skewgp._gaussian.bivariate import bivariate_truncated_moments
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
    return BivariateMoments(
        float(logsumexp(log_terms)),
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
    left = _relative_determinant(matrix)
    if left <= 0:
        factor, jitter = cholesky("cov", matrix)  # jitter comes with its warning
        matrix = matrix + jitter * np.diag(matrix.diagonal())
        left = float(factor[1, 1] ** 2 / matrix[1, 1])
    sd = np.sqrt(matrix.diagonal())
    # Near 1 the quotient may round to 1 or above; s, which matters, is exact.
    rho = float(np.clip(matrix[0, 1] / (sd[0] * sd[1]), -1.0, 1.0))
    low, high = low / sd, high / sd
    low[low < -_HUGE], high[high > _HUGE] = -np.inf, np.inf
    return low, high, rho, math.sqrt(left), sd


def _relative_determinant(cov: FloatArray) -> float:
    """1 - rho^2 in rational arithmetic: in floating point it would cancel."""
    a, b, c = (Fraction(float(x)) for x in (cov[0, 0], cov[0, 1], cov[1, 1]))
    return float(1 - b * b / (a * c))


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
