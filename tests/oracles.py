"""Reference answers by quadrature and filtering: NumPy and SciPy only, nothing of the package."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from likelihood_oracles import function_grid
from numpy.typing import ArrayLike, NDArray
from rectangle_oracles import composite, log_interval
from scipy.interpolate import make_interp_spline
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_ndtr, logsumexp

FloatArray = NDArray[np.float64]

_LOG_2PI = np.log(2.0 * np.pi)
# Integrands are cut where they have fallen by exp(-45) = 3e-20 from their peak.
_CUT = 45.0

# Example of the help page `SUNdistr-base` of the R package sn, with its dsun, sunMean, sunVcov.
SUN_EXAMPLE_PARAMETERS = {
    "mu": np.array([1.0, 0.0, -1.0]),
    "scale": np.array([[2.0, 1.0, 1.0], [1.0, 3.0, 1.0], [1.0, 1.0, 4.0]]),
    "skewness": np.array([[0.72, 0.20], [0.51, 0.42], [0.88, 0.94]]),
    "truncation": np.array([-0.5, 0.0]),
    "latent_cov": np.array([[1.0, 0.8], [0.8, 1.0]]),
}
SUN_EXAMPLE_POINT = np.array([0.8, 0.5, -1.1])
SUN_EXAMPLE_LOGPDF = -13.591065975212
SUN_EXAMPLE_MEAN = np.array([2.0468598578843, 1.04826311734095, 1.21370388556521])
SUN_EXAMPLE_COV = np.array(
    [
        [1.1810115318179, 0.4004862590681, -0.0953601087671],
        [0.4004862590681, 2.4311007285158, -0.1770797969253],
        [-0.0953601087671, -0.1770797969253, 1.4521634300804],
    ]
)


class Moments(NamedTuple):
    """E[u] (n,) and E[u u'] (n, n)."""

    first: FloatArray
    second: FloatArray


class Marginals(NamedTuple):
    """Posterior mean, variance and third central moment at each input, in the order given."""

    mean: FloatArray
    variance: FloatArray
    third: FloatArray


class Posterior(NamedTuple):
    """Log evidence, mean (n,), covariance (n, n) and standardised skewness (n,) of f."""

    log_evidence: float
    mean: FloatArray
    cov: FloatArray
    skewness: FloatArray


def column(*x):
    """Inputs of one feature."""
    return np.array(x, dtype=float)[:, None]


def equicorrelated_cov(n: int, rho: float) -> FloatArray:
    """Unit variances, every correlation rho."""
    return rho * np.ones((n, n)) + (1.0 - rho) * np.eye(n)


def equicorrelated_log_prob(lower: ArrayLike, upper: ArrayLike, rho: float) -> float:
    """log P(lower < u < upper), u equicorrelated with unit variances and 0 <= rho < 1, any n.

    An integral over the t of u_i = sqrt(rho) t + sqrt(1 - rho) e_i; round-off up to rho = .999.
    """
    low, high = _vectors(lower, upper)
    if rho == 0:
        return float(log_interval(low, high).sum())
    _, log_weights, _, _ = _common_factor(low, high, rho)
    return float(logsumexp(log_weights))


def equicorrelated_moments(lower: ArrayLike, upper: ArrayLike, rho: float) -> Moments:
    """E[u_i] and E[u_i u_j] of the same vector restricted to the rectangle.

    Relative accuracy about 1e-11 for bounds within some 10 standard deviations.
    """
    low, high = _vectors(lower, upper)
    if rho == 0:
        nodes, weights, alpha, beta = np.zeros(1), np.ones(1), low[None], high[None]
    else:
        nodes, log_weights, alpha, beta = _common_factor(low, high, rho)
        weights = np.exp(log_weights - logsumexp(log_weights))
    keep = weights > 1e-25
    nodes, weights, alpha, beta = nodes[keep], weights[keep], alpha[keep], beta[keep]
    mean, variance = _interval_moments(alpha, beta)
    given = np.sqrt(rho) * nodes[:, None] + np.sqrt(1.0 - rho) * mean
    second = (given * weights[:, None]).T @ given
    second[np.diag_indices_from(second)] += (1.0 - rho) * weights @ variance
    return Moments(weights @ given, second)


def brute_log_prob(lower: ArrayLike, upper: ArrayLike, cov: ArrayLike) -> float:
    """log P(lower < N(0, cov) < upper) for N <= 3 by nested composite Gauss-Legendre rules.

    Works in e with u = chol(cov) e, one coordinate inside the other, the last one in closed
    form. Good to 1e-12 for correlations up to about .99 and bounds within some 30 deviations.
    """
    cov = np.asarray(cov, dtype=float)
    n = len(cov)
    low, high = _vectors(lower, upper)
    factor = np.linalg.cholesky(cov)
    states = np.zeros((1, 0))
    log_weights = np.zeros(1)
    for k in range(n):
        shift = states @ factor[k, :k]
        alpha, beta = (low[k] - shift) / factor[k, k], (high[k] - shift) / factor[k, k]
        if k == n - 1:
            return float(logsumexp(log_weights + log_interval(alpha, beta)))
        # Nothing is left 9.5 deviations beyond the peak of the interval.
        peak = np.clip(0.0, alpha, beta)
        start, stop = np.maximum(alpha, peak - 9.5), np.minimum(beta, peak + 9.5)
        s, w = composite(np.linspace(0.0, 1.0, 31), 16)
        e = start[:, None] + (stop - start)[:, None] * s
        log_w = np.log((stop - start)[:, None] * w) - 0.5 * e**2 - 0.5 * _LOG_2PI
        log_weights = (log_weights[:, None] + log_w).ravel()
        states = np.column_stack([np.repeat(states, s.size, axis=0), e.ravel()])
        keep = log_weights > log_weights.max() - 800.0
        states, log_weights = states[keep], log_weights[keep]
    raise ValueError("cov is empty")


def orthant(cov: FloatArray) -> float:
    """P(all positive) of one to three centred normal variables (Sheppard 1899)."""
    n, sd = len(cov), np.sqrt(cov.diagonal())
    angles = np.arcsin((cov / sd / sd[:, None])[np.triu_indices(n, 1)])
    return float(0.5**n + angles.sum() / (2.0 * np.pi) / max(n - 1.0, 1.0))


def probit_posterior_quadrature(
    K: ArrayLike, y: ArrayLike, mean: ArrayLike | None = None
) -> Posterior:
    """Posterior of f ~ N(mean, K) given labels y in {0, 1} with P(y = 1) = Phi(f), for n <= 2.

    By the trapezoid rule of `function_grid`: about 1e-12 for variances up to 100.
    """
    sign = 2.0 * np.asarray(y) - 1.0
    centre = np.zeros(sign.size) if mean is None else mean
    found = function_grid(centre, K, lambda f: log_ndtr(sign * f).sum(axis=1))
    return Posterior(found.log_evidence, found.mean, found.cov, found.skewness)


def ou_cov(x: ArrayLike, lengthscale: float, variance: float) -> FloatArray:
    """Ornstein-Uhlenbeck kernel variance exp(-|x - x'|/lengthscale)."""
    x = np.asarray(x, dtype=float)
    return variance * np.exp(-np.abs(x[:, None] - x) / lengthscale)


def ou_probit_log_evidence(
    x: ArrayLike,
    y: ArrayLike,
    lengthscale: float,
    variance: float,
    mean: float = 0.0,
    points: int = 400,
) -> float:
    """Log evidence of GP probit classification in one dimension with the Ornstein-Uhlenbeck kernel.

    In sorted x the process is Markov: a forward filter on a grid gives the evidence. Gaussian
    sites t_i (from expectation propagation, but any would do) make the chain p(f) prod t_i Gaussian
    and Markov, and the evidence is its integral times E prod Phi(+-f_i)/t_i(f_i): exact, and the
    filtered density stays near a Gaussian known in advance, so the grid can follow it. In the
    coordinate standardised by that Gaussian each transition is r g + sqrt(1 - r^2) xi.

    Error: 2e-10 nat by doubling `points`, 3e-9 against a spectral filter, up to n = 1000.
    """
    return _ou_filter(_sorted_problem(x, y, lengthscale, variance, mean, points))[0]


def ou_probit_marginals(
    x: ArrayLike,
    y: ArrayLike,
    lengthscale: float,
    variance: float,
    mean: float = 0.0,
    points: int = 400,
) -> Marginals:
    """Posterior mean, variance and third central moment of f at each x, same model.

    Filtered both ways: p(f | y) is proportional to p(f | y_past, y_now) p(f | y_future) / p(f). By
    doubling `points` the error is 1e-9 of a standard deviation.
    """
    problem = _sorted_problem(x, y, lengthscale, variance, mean, points)
    filtered = _ou_filter(problem, keep=True)[2]
    predicted = _ou_filter(problem.reversed(), keep=True)[1][::-1]
    g = problem.grid
    joint = filtered + predicted - problem.log_normal
    joint = np.exp(joint - joint.max(axis=1, keepdims=True))
    joint /= joint.sum(axis=1, keepdims=True)
    centre = joint @ g
    off = g - centre[:, None]
    out = np.empty((3, centre.size))
    out[:, problem.order] = (
        mean + problem.centres + problem.scales * centre,
        problem.scales**2 * (joint * off**2).sum(1),
        problem.scales**3 * (joint * off**3).sum(1),
    )
    return Marginals(*out)


def finite_difference(
    f: Callable[[FloatArray], ArrayLike], x: ArrayLike, h: float = 1e-3
) -> FloatArray:
    """Derivative of f (scalar or array valued) at x, central of fourth order.

    Shape: that of f(x), then that of x. Error h^4 f'''''/30 and round-off 1.5 eps |f|/h.
    """
    x = np.asarray(x, dtype=float)
    columns = []
    for index in np.ndindex(x.shape):
        step = np.zeros(x.shape)
        step[index] = h
        values = [np.asarray(f(x + k * step), dtype=float) for k in (1, -1, 2, -2)]
        columns.append((8.0 * (values[0] - values[1]) - (values[2] - values[3])) / (12.0 * h))
    return np.stack(columns, axis=-1).reshape(columns[0].shape + x.shape)


def _vectors(lower: ArrayLike, upper: ArrayLike) -> tuple[FloatArray, FloatArray]:
    low, high = np.broadcast_arrays(np.atleast_1d(lower), np.atleast_1d(upper))
    return low.astype(float), high.astype(float)


def _interval_moments(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    log_mass = log_interval(a, b)
    density_a, density_b = (np.exp(-0.5 * c**2 - 0.5 * _LOG_2PI - log_mass) for c in (a, b))
    at_a, at_b = (np.where(np.isfinite(c), c, 0.0) * d for c, d in ((a, density_a), (b, density_b)))
    mean = density_a - density_b
    return mean, 1.0 + at_a - at_b - mean**2


def _common_factor(
    low: FloatArray, high: FloatArray, rho: float
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Nodes of the common factor, log weights (density times masses), standardised bounds."""

    def bounds(t: FloatArray) -> tuple[FloatArray, FloatArray]:
        shift = np.sqrt(rho) * t[:, None]
        return (low - shift) / np.sqrt(1.0 - rho), (high - shift) / np.sqrt(1.0 - rho)

    def log_integrand(t: FloatArray) -> FloatArray:
        return -0.5 * t**2 - 0.5 * _LOG_2PI + log_interval(*bounds(t)).sum(axis=1)

    def height(t: float) -> float:
        return float(log_integrand(np.array([t]))[0])

    mode = float(minimize_scalar(lambda t: -height(t)).x)
    floor = height(mode) - _CUT
    ends = []
    for direction in (-1.0, 1.0):
        reach = 1e-3
        while height(mode + direction * reach) > floor:
            reach *= 2.0
        ends.append(brentq(lambda t: height(t) - floor, mode, mode + direction * reach, rtol=1e-6))
    nodes, weights = composite(np.linspace(*ends, 61), 16)
    alpha, beta = bounds(nodes)
    return nodes, np.log(weights) + log_integrand(nodes), alpha, beta


class _Problem(NamedTuple):
    """The chain p(f) prod t_i in sorted inputs, with f_i = mean + centres_i + scales_i g."""

    order: NDArray[np.intp]
    log_constant: float  # log of the integral of p(f) prod t_i
    centres: FloatArray
    scales: FloatArray
    correlations: FloatArray  # between neighbours
    log_ratios: FloatArray  # (n, points): log Phi(+-f_i) - log t_i(f_i)
    grid: FloatArray  # of g
    log_normal: FloatArray  # log probabilities of its cells under N(0, 1)

    def reversed(self) -> "_Problem":
        return self._replace(correlations=self.correlations[::-1], log_ratios=self.log_ratios[::-1])


def _sorted_problem(
    x: ArrayLike, y: ArrayLike, lengthscale: float, variance: float, mean: float, points: int
) -> _Problem:
    x = np.asarray(x, dtype=float)
    order = np.argsort(x, kind="stable")
    sign = 2.0 * np.asarray(y, dtype=float)[order] - 1.0
    K = ou_cov(x[order], lengthscale, variance)
    tau, nu = _gaussian_sites(K, sign, mean)
    log_det, S = _site_posterior(K, tau)
    centres, scales = S @ nu, np.sqrt(np.diag(S))
    correlations = np.clip(np.diag(S, 1) / (scales[:-1] * scales[1:]), 0.0, 1.0)
    # Skewed posteriors reach far: in units of their standard deviation up to 9 sqrt(v/S) or so.
    grid = np.linspace(-13.0, 13.0, points)
    log_normal = -0.5 * grid**2
    f = centres[:, None] + scales[:, None] * grid
    log_sites = -0.5 * tau[:, None] * f**2 + nu[:, None] * f
    return _Problem(
        order=order,
        log_constant=0.5 * float(nu @ centres) - 0.5 * log_det,
        centres=centres,
        scales=scales,
        correlations=correlations,
        log_ratios=log_ndtr(sign[:, None] * (mean + f)) - log_sites,
        grid=grid,
        log_normal=log_normal - logsumexp(log_normal),
    )


def _site_posterior(K: FloatArray, tau: FloatArray) -> tuple[float, FloatArray]:
    """log det(I + K T) and (K^-1 + T)^-1 without inverting K."""
    root = np.sqrt(tau)
    L = cholesky(np.eye(tau.size) + root[:, None] * K * root, lower=True)
    V = solve_triangular(L, root[:, None] * K, lower=True)
    return 2.0 * float(np.log(np.diag(L)).sum()), K - V.T @ V


def _gaussian_sites(K: FloatArray, sign: FloatArray, mean: float) -> tuple[FloatArray, FloatArray]:
    """Precisions and shifts of sites near the EP fixed point; they need not be at it."""
    tau, nu = np.full(sign.size, 0.1), np.zeros(sign.size)
    for _ in range(30):
        S = _site_posterior(K, tau)[1]
        marginal = np.diag(S)
        v = 1.0 / (1.0 / marginal - tau)
        c = v * (S @ nu / marginal - nu)
        z = sign * (mean + c) / np.sqrt(1.0 + v)
        r = np.exp(-0.5 * z**2 - 0.5 * _LOG_2PI - log_ndtr(z))
        k = r * (z + r) / (1.0 + v)
        new_tau = k / (1.0 - v * k)
        new_nu = c * new_tau + sign * r / np.sqrt(1.0 + v) * (1.0 + v * new_tau)
        change = np.abs(new_tau - tau).max()
        tau, nu = tau + 0.7 * (new_tau - tau), nu + 0.7 * (new_nu - nu)
        if change < 1e-3:
            break
    return tau, nu


def _ou_filter(problem: _Problem, keep: bool = False) -> tuple[float, FloatArray, FloatArray]:
    """Log evidence, and with `keep` the log densities of g_i given y before i, and up to i."""
    n, points = problem.log_ratios.shape
    predicted, filtered = np.empty((2, n if keep else 0, points))
    log_density, log_evidence = problem.log_normal, problem.log_constant
    for i in range(n):
        if i > 0:
            log_density = _transition(log_density, problem.grid, problem.correlations[i - 1])
        if keep:
            predicted[i] = log_density
        log_density = log_density + problem.log_ratios[i]
        total = float(logsumexp(log_density))
        log_evidence += total
        log_density = log_density - total
        if keep:
            filtered[i] = log_density
    return log_evidence, predicted, filtered


def _transition(log_density: FloatArray, grid: FloatArray, r: float) -> FloatArray:
    """Log density of r g + sqrt(1 - r^2) xi.

    Wider than the grid, the kernel is summed over the grid (spectrally accurate); narrower, down to
    zero, it is a Gauss-Hermite rule in xi on a quintic spline of the log density. Every term is
    positive in both, so the tails, which the ratios raise again, keep their digits.
    """
    spacing = grid[1] - grid[0]
    q = np.sqrt((1.0 - r) * (1.0 + r))
    if q >= 1.5 * spacing:  # aliasing is exp(-2 (1.5 pi)^2)
        kernel = np.exp(-0.5 * (np.subtract.outer(grid, r * grid) / q) ** 2)
        total = kernel @ np.exp(log_density) * (spacing / (q * np.sqrt(2.0 * np.pi)))
        return np.log(np.maximum(total, 1e-300))  # the far corners may underflow
    xi, weights = np.polynomial.hermite_e.hermegauss(16)
    spline = make_interp_spline(grid, log_density, k=5)
    before = np.clip((grid[:, None] - q * xi) / r, grid[0], grid[-1])
    return logsumexp(spline(before), b=weights / (r * np.sqrt(2.0 * np.pi)), axis=1)
