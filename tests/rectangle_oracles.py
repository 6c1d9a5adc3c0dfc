"""Reference log probabilities of rectangles by quadrature and filters, NumPy and SciPy only.

Each function covers one structure of the covariance that makes the probability an integral of few
dimensions.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import log_ndtr, logsumexp, ndtr, owens_t

FloatArray = NDArray[np.float64]
LogFactor = Callable[[FloatArray], FloatArray]

_LOG_2PI = np.log(2.0 * np.pi)
_CUT = 42.0  # integrands are cut where they have fallen by exp(-42) = 6e-19
_AT_ONCE = 2_000_000  # nodes times rows evaluated in one block
_NARROW_POINTS, _NARROW_WEIGHTS = np.polynomial.legendre.leggauss(12)


def log_interval(a: FloatArray, b: FloatArray, width: FloatArray | None = None) -> FloatArray:
    """log(Phi(b) - Phi(a)); narrow intervals by a Gauss-Legendre rule, which does not cancel.

    `width`: b - a before a and b were rounded, whose difference has few digits where it is small.
    """
    a, b = np.broadcast_arrays(np.asarray(a, dtype=float), np.asarray(b, dtype=float))
    if np.all(np.isneginf(a)):
        return np.asarray(log_ndtr(b))
    if np.all(np.isposinf(b)):
        return np.asarray(log_ndtr(-a))
    with np.errstate(invalid="ignore", divide="ignore"):
        flip = a + b > 0
        low, high = np.where(flip, -b, a), np.where(flip, -a, b)
        log_high = log_ndtr(high)
        result = np.array(log_high + np.log1p(-np.exp(log_ndtr(low) - log_high)))
        width = high - low if width is None else np.broadcast_to(width, low.shape)
        narrow = np.isfinite(width) & (width * (1.0 + np.abs(low)) < 1.0)
    if narrow.any():
        start, length = low[narrow][:, None], width[narrow][:, None]
        nodes = start + 0.5 * length * (1.0 + _NARROW_POINTS)
        terms = -0.5 * nodes**2 - 0.5 * _LOG_2PI + np.log(0.5 * length * _NARROW_WEIGHTS)
        result[narrow] = logsumexp(terms, axis=1)
    return result


def composite(edges: FloatArray, nodes: int) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights of Gauss-Legendre rules, one in each of the panels between the edges."""
    points, weights = np.polynomial.legendre.leggauss(nodes)
    half = 0.5 * np.diff(edges)[:, None]
    return (edges[:-1, None] + half * (1.0 + points)).ravel(), (half * weights).ravel()


def factor_log_prob(
    lower: ArrayLike, upper: ArrayLike, loadings: ArrayLike, noise_sd: ArrayLike
) -> float:
    """log P(lower < B t + d e < upper) with standard normal t (r,) and e (n,), r = 1, 2 or 3.

    A trapezoidal rule around the mode, in coordinates whitened there; the integrand is entire and
    log-concave, so the rule converges geometrically. It is halved until two rules agree to 1e-9
    (r = 3: 1e-7); raises RuntimeError where they do not.
    """
    low, high = np.asarray(lower, dtype=float), np.asarray(upper, dtype=float)
    B, d = np.asarray(loadings, dtype=float), np.asarray(noise_sd, dtype=float)
    n, r = B.shape

    def log_integrand(t: FloatArray) -> FloatArray:  # (m, r) -> (m,)
        out = np.empty(len(t))
        step = max(1, _AT_ONCE // n)
        for start in range(0, len(t), step):
            part = t[start : start + step]
            shift = part @ B.T
            terms = log_interval((low - shift) / d, (high - shift) / d, (high - low) / d)
            out[start : start + step] = terms.sum(axis=1) - 0.5 * (part**2).sum(axis=1)
        return out - 0.5 * r * _LOG_2PI

    mode, whiten = _mode(log_integrand, r)
    peak = float(log_integrand(mode[None])[0])
    found = None
    for spacing in (0.4, 0.2, 0.1, 0.05, 0.025, 0.0125) if r < 3 else (0.4, 0.25, 0.15, 0.1):
        value = _trapezoid(log_integrand, mode, whiten, peak, spacing)
        if found is not None and abs(value - found) < (1e-9 if r < 3 else 1e-7):
            return value
        found = value
    raise RuntimeError(f"the trapezoidal rule did not converge: {found} and {value}.")


def _mode(log_integrand: LogFactor, r: int) -> tuple[FloatArray, FloatArray]:
    """Mode, and a matrix whose columns are one standard deviation there."""

    def slope(t: FloatArray) -> FloatArray:
        steps = 1e-5 * np.eye(r)
        points = np.vstack([t + steps, t - steps])
        values = log_integrand(points)
        return (values[:r] - values[r:]) / 2e-5

    # Nelder-Mead for the far tails, where gradients are steep, then Newton-like polish.
    best = minimize(
        lambda t: -log_integrand(t[None])[0],
        np.zeros(r),
        jac=lambda t: -slope(t),
        method="BFGS",
        options={"gtol": 1e-6, "maxiter": 500},
    )
    best = minimize(
        lambda t: -log_integrand(t[None])[0],
        best.x,
        method="Nelder-Mead",
        options={"xatol": 1e-4, "fatol": 1e-6, "maxiter": 2000},
    )
    mode = best.x
    h = 1e-4
    steps = h * np.eye(r)
    hessian = np.array([(slope(mode + s) - slope(mode - s)) / (2 * h) for s in steps])
    values, vectors = np.linalg.eigh(-0.5 * (hessian + hessian.T))
    return mode, vectors / np.sqrt(np.maximum(values, 0.5))


def _trapezoid(
    log_integrand: LogFactor, mode: FloatArray, whiten: FloatArray, peak: float, spacing: float
) -> float:
    r = mode.size
    # Of three dimensions 1e-7 is asked: beyond exp(-21) there is less than a tenth of it.
    cut, margin = (_CUT, 10.0) if r < 3 else (0.5 * _CUT, 4.0)
    scale = np.log(spacing) * r + np.log(abs(np.linalg.det(whiten)))
    # The box grows until nothing is left at its faces; each face is looked at on a coarse grid.
    ends = np.full((r, 2), 8)
    coarse = 0.5
    for _ in range(60):
        axes = [np.arange(-a, b + 1) for a, b in ends]
        grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, r)
        values = log_integrand(mode + coarse * grid @ whiten.T) - peak
        grown = False
        for axis in range(r):
            for side, edge in ((0, axes[axis][0]), (1, axes[axis][-1])):
                if values[grid[:, axis] == edge].max() > -cut:
                    ends[axis, side] += 8
                    grown = True
        if not grown:
            break
    kept = grid[values > -cut - margin]
    lowest, highest = kept.min(axis=0) - 1, kept.max(axis=0) + 1
    axes = [
        np.arange(np.floor(a * coarse / spacing), np.ceil(b * coarse / spacing) + 1)
        for a, b in zip(lowest, highest, strict=True)
    ]
    total = -np.inf
    for first in axes[0]:  # a slice at a time: three dimensions have millions of nodes
        rest = np.meshgrid(*axes[1:], indexing="ij") if r > 1 else []
        columns = [np.full(rest[0].size if r > 1 else 1, first), *(x.ravel() for x in rest)]
        grid = np.stack(columns, axis=-1)
        total = np.logaddexp(total, logsumexp(log_integrand(mode + spacing * grid @ whiten.T)))
    return float(total + scale)


def chain_log_prob(
    correlations: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    log_factors: Sequence[LogFactor | None] | None = None,
    panels: int = 48,
) -> float:
    """log E[prod_k f_k(g_k) 1(lower_k < g_k < upper_k)] over a Gaussian Markov chain.

    g_1 ~ N(0, 1), g_{k+1} = r_k g_k + (1 - r_k^2)^.5 xi: an AR(1) process, or an Ornstein-Uhlenbeck
    process at increasing inputs. A filter on composite Gauss-Legendre nodes in each interval; good
    to 1e-9 for abs(r) <= .98 and factors that vary on scales of .1 and more.
    """
    low, high = np.asarray(lower, dtype=float), np.asarray(upper, dtype=float)
    r = np.asarray(correlations, dtype=float)
    log_density = nodes = None
    for k in range(low.size):
        # Nothing is left 12 deviations beyond 0 or beyond the bound nearest to it.
        start = max(low[k], min(high[k], 0.0) - 12.0)
        stop = min(high[k], max(low[k], 0.0) + 12.0)
        new, weights = composite(np.linspace(start, stop, panels + 1), 12)
        if nodes is None:
            log_density = -0.5 * new**2 - 0.5 * _LOG_2PI
        else:
            var = 1.0 - r[k - 1] ** 2
            gap = new[:, None] - r[k - 1] * nodes
            log_kernel = -0.5 * gap**2 / var - 0.5 * np.log(var) - 0.5 * _LOG_2PI
            log_density = logsumexp(log_kernel + log_density, axis=1)
        nodes = new
        log_density = log_density + np.log(weights)
        if log_factors is not None and log_factors[k] is not None:
            log_density = log_density + log_factors[k](nodes)
    return float(logsumexp(log_density))


def negative_equicorrelated_log_prob(lower: ArrayLike, upper: ArrayLike, c: float) -> float:
    """log P(lower < u < upper), cov = (1 + c) I - c 11', 0 < c < 1 / (n - 1).

    u_i = sqrt(1 + c) e_i + i sqrt(c) t with an imaginary common factor: an integral over t whose
    terms alternate. Absolute accuracy of P about 1e-13.
    """
    low, high = np.asarray(lower, dtype=float), np.asarray(upper, dtype=float)
    n = low.size
    # The integrand falls like exp(-t^2 {1 - n c / (1 + c)} / 2).
    left = 1.0 - n * c / (1.0 + c)
    reach = 9.0 / np.sqrt(left)
    t, spacing = np.linspace(0.0, reach, 4000, retstep=True)
    shift = 1j * np.sqrt(c) * t[:, None]

    def cdf(x: FloatArray) -> NDArray[np.complex128]:
        finite = np.isfinite(x)
        z = (np.where(finite, x, 0.0) - shift) / np.sqrt(1.0 + c)
        return np.where(finite, ndtr(z), np.where(x > 0, 1.0, 0.0))

    terms = np.prod(cdf(high) - cdf(low), axis=1).real * np.exp(-0.5 * t**2)
    return float(np.log(2.0 * spacing * (terms.sum() - 0.5 * terms[0]) / np.sqrt(2.0 * np.pi)))


def duplicated_factor_log_prob(
    upper: ArrayLike, twin_upper: ArrayLike, loading: ArrayLike, noise_sd: ArrayLike, gap_sd: float
) -> float:
    """log P(x < upper, x + gap_sd z < twin_upper), x = b t + d e, by quadrature over t.

    Given t each pair is a bivariate normal, by Owen's function: 1e-13 absolute a pair.
    """
    high, twin = np.asarray(upper, dtype=float), np.asarray(twin_upper, dtype=float)
    b, d = np.asarray(loading, dtype=float), np.asarray(noise_sd, dtype=float)
    t, weights = composite(np.linspace(-10.0, 10.0, 201), 10)
    total = np.sqrt(d**2 + gap_sd**2)
    h = (high - t[:, None] * b) / d
    k = (twin - t[:, None] * b) / total
    # (k - rho h) / s with rho = d / total, without cancellation of the common t.
    s = gap_sd / total
    rho = d / total
    at_h = ((twin - high) / total + (d / total - rho) * h) / s
    at_k = ((high - twin) / d + (total / d - rho) * k) / s
    both = 0.5 * (ndtr(h) + ndtr(k)) - owens_t(h, at_h / h) - owens_t(k, at_k / k)
    both -= np.where((h * k < 0) | ((h * k == 0) & (h + k < 0)), 0.5, 0.0)
    log_terms = np.log(np.maximum(both, 1e-300)).sum(axis=1) - 0.5 * t**2 - 0.5 * _LOG_2PI
    return float(logsumexp(log_terms + np.log(weights)))


def plane_log_prob(lower: ArrayLike, upper: ArrayLike, loadings: ArrayLike) -> float:
    """log P(lower < B t < upper) with standard normal t in one or two dimensions: a polygon.

    Exact for a covariance B B' of rank two; what is added to its diagonal changes the probability
    by the order of the square root of it at the corners and less elsewhere.
    """
    low, high = np.asarray(lower, dtype=float), np.asarray(upper, dtype=float)
    B = np.asarray(loadings, dtype=float)
    if B.shape[1] == 1:
        ends = np.sort(np.stack([low, high]) / B[:, 0], axis=0)
        return float(log_interval(np.array(ends[0].max()), np.array(ends[1].min())))
    # Lines b1 x + b2 y = c, their crossings in x cut the panels.
    lines = [(b, c) for b, ends in zip(B, zip(low, high, strict=True), strict=True) for c in ends]
    lines = [(b, c) for b, c in lines if np.isfinite(c)]
    cuts = [-12.0, 12.0, *np.linspace(-11.5, 11.5, 47)]
    for i, (b, c) in enumerate(lines):
        if abs(b[1]) < 1e-12:
            cuts.append(c / b[0])
        for other, e in lines[:i]:
            det = b[0] * other[1] - b[1] * other[0]
            if abs(det) > 1e-14:
                cuts.append((c * other[1] - e * b[1]) / det)
    x, weights = composite(np.unique(np.clip(cuts, -12.0, 12.0)), 24)
    log_weight = np.log(weights) - 0.5 * x**2 - 0.5 * _LOG_2PI
    rest = np.stack([low, high])[:, None, :] - x[None, :, None] * B[:, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = np.sort(rest / B[:, 1], axis=0)
    bottom, top = ends[0].max(axis=1), ends[1].min(axis=1)
    inside = bottom < top
    return float(logsumexp(log_weight[inside] + log_interval(bottom[inside], top[inside])))
