"""The log probability of a rectangle with its gradient, to be climbed.

One deterministic function of the limits and the covariance: its random points are fixed, and it
answers minus infinity, never an exception or a warning, where it cannot be computed.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_solve
from scipy.linalg.lapack import dpotrf, dpotri, dtrtrs

from pymc_skewgp._errors import DoublePrecisionError, no_warnings
from pymc_skewgp._gaussian import escalation, linalg, twisted
from pymc_skewgp._gaussian import weights as w
from pymc_skewgp._gaussian.covariance import DenseCovariance
from pymc_skewgp._gaussian.ep import EPResult, fit_ep
from pymc_skewgp._gaussian.ep_dense import dense_ep, ep_with_gradient
from pymc_skewgp._gaussian.escalation import LARGEST_EFFECT
from pymc_skewgp._gaussian.linalg import row_limits, symmetric
from pymc_skewgp._gaussian.univariate import Edges, bivariate_log_prob, log_ndtr_interval
from pymc_skewgp._limits import few_blas_threads, refuse_too_many_draws
from pymc_skewgp._validation import FloatArray, as_count

LogProbMethod = Literal["twisted", "ep"]
METHODS: tuple[LogProbMethod, ...] = ("twisted", "ep")

_ROUND_OFF = 1e-13
_LOG_SQRT_2PI = 0.5 * np.log(2.0 * np.pi)
# Gradients are off by the residual, for "twisted" times what the draws leave; values by its square.
_EP_TOLERANCE = {"twisted": 1e-4, "ep": 1e-8}

# Of a variance: what the entries of a kernel's matrix and its factorisation are off by, at most.
ROUND_OFF = 1e-13
_RELATIVE_EFFECT = 1e-6  # of log probabilities that are large themselves


class LogProbGradient(NamedTuple):
    """Log probability of a rectangle and its gradient.

    Attributes
    ----------
    value : float
        log P(lower < u < upper).
    lower, upper : ndarray, shape (n,)
        Derivatives in the limits; 0 for infinite ones.
    cov : ndarray, shape (n, n)
        Symmetric derivative in the covariance: d value = sum_ij cov_ij dcov_ij.
    noise : float
        Standard error of the value where draws were tempered. They meet chance on their way, so
        that this is what the value jumps by between neighbours; 0 where it is smooth.
    own_noise : ndarray, shape (n,), or float
        Where rows repeat: derivatives in the noise of the rows of each kind, beyond `cov`, of which
        it is part. 0 elsewhere.
    in_parameters : sequence of ndarray
        Derivatives in the parameters of sites, where the last rows are their predictors; of these
        `lower` has minus the derivative in the mean.
    """

    value: float
    lower: FloatArray
    upper: FloatArray
    cov: FloatArray
    noise: float = 0.0
    own_noise: FloatArray | float = 0.0
    in_parameters: Sequence[FloatArray] = ()


_Evaluate = Callable[[DenseCovariance, FloatArray, FloatArray], LogProbGradient]


def log_prob_and_gradient(
    lower: ArrayLike,
    upper: ArrayLike,
    cov: ArrayLike,
    *,
    method: LogProbMethod = "twisted",
    n_draws: int = 256,
    random_seed: int = 0,
    settings: escalation.SamplerSettings = escalation.DEFAULT,
    compiled: bool = False,
) -> LogProbGradient:
    r"""Log probability of a rectangle under N(0, cov), with its gradient.

    .. math:: \log P(l < u < x), \quad u \sim N(0, \Sigma); \qquad
        \frac{\partial \log P}{\partial \Sigma}
        = \frac12 \left(\mathrm E[v v'] - \Sigma^{-1}\right), \quad v = \Sigma^{-1} u, \qquad
        \frac{\partial \log P}{\partial x_i} = p(u_i = x_i),

    the expectation and the density over u inside the rectangle. For N <= 2 in closed form. By
    "twisted" the value is the log of a mean weight at fixed points, drawn in the order of the rows
    unless restrictions are of very different strength, and the gradient is the derivative of that
    very number (to 1e-4 of its largest part), which is what Hamiltonian Monte Carlo needs. Where
    the weights collapse, tempered draws are put into the formulas above. By "ep" the value is EP's
    approximation, and the gradient is exactly that of this value: at the fixed point only explicit
    dependence counts.

    Parameters
    ----------
    lower, upper : array_like, shape (n,), or float
        Limits, infinities allowed. A number stands for all rows.
    cov : array_like, shape (n, n)
        Covariance, of which the symmetric part is read.
    method : {"twisted", "ep"}
        "twisted": sequential importance sampling with fixed points, right up to their small error,
        and its gradient likewise. "ep": expectation propagation, without random error, but biased
        (hundredths of a nat as a rule, more at large variances).
    n_draws : int, default 256
        Draws of "twisted".
    random_seed : int, default 0
        Which points they use: equal arguments give equal results.
    settings : SamplerSettings
        Thresholds of the escalation policy: `gradient_rungs`, and the others for tempered draws.
    compiled : bool, default False
        For chains: where all rows have one limit, loops of "twisted" compiled by numba, which takes
        a second once. They take half the time, and are without Python's lock.

    Returns
    -------
    LogProbGradient
        ``value``, ``lower``, ``upper``, ``cov``, ``noise``. Where a limit or the covariance is not
        a number, ``lower >= upper`` in a row or the covariance of the rows with limits is not
        positive definite (from three rows on: beyond what a jitter of round-off's size mends), the
        value is minus infinity and the gradient 0; and so from three rows on where the value moves
        by more than a tenth of a nat when round-off is added to the variances.

    Raises
    ------
    ValueError
        Shapes that do not fit, an unknown method, `n_draws` < 1.

    References
    ----------
    .. [1] R. L. Plackett (1954), A reduction formula for normal multivariate integrals,
       doi:10.1093/biomet/41.3-4.351.
    .. [2] J. P. Cunningham, P. Hennig & S. Lacoste-Julien (2011), Gaussian probabilities and
       expectation propagation, arXiv:1111.6832.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp._gaussian.log_prob_gradient import log_prob_and_gradient
    >>> cov = np.array([[1.0, 0.5], [0.5, 1.0]])
    >>> result = log_prob_and_gradient([0.0, 0.0], [np.inf, np.inf], cov)
    >>> print(f"{result.value:.4f}")  # log(1/3)
    -1.0986
    >>> result.cov.round(4).tolist()
    [[-0.1378, 0.2757], [0.2757, -0.1378]]
    """
    matrix = np.asarray(cov, dtype=np.float64)
    low, high = row_limits(lower, upper, len(matrix) if matrix.ndim else 1)
    n = low.size
    if low.shape != (n,) or high.shape != (n,) or matrix.shape != (n, n):
        raise ValueError(
            "lower and upper must be vectors of one length n and cov (n, n), got shapes "
            f"{low.shape}, {high.shape} and {matrix.shape}."
        )
    if method not in METHODS:
        raise ValueError(f"method must be one of {METHODS}, got {method!r}.")
    count = as_count("n_draws", n_draws)
    if method == "twisted" and n > 2:
        refuse_too_many_draws("n_draws", count, n)
    nothing = LogProbGradient(-np.inf, np.zeros(n), np.zeros(n), np.zeros((n, n)))
    if not ((low < high).all() and np.isfinite(matrix).all() and (matrix.diagonal() > 0).all()):
        return nothing
    evaluate: _Evaluate = partial(_by_twisted, count, random_seed, settings, compiled)
    if method == "ep":
        evaluate = _by_ep
    kept = np.isfinite(low) | np.isfinite(high)
    part = symmetric(matrix[np.ix_(kept, kept)])
    # Called thousands of times while sampling, at points that no user chose: what is wrong with one
    # of them is no news, and the value says it. Quiet by a context variable, because the filters of
    # `warnings` belong to all threads.
    try:
        with no_warnings(), np.errstate(all="ignore"), few_blas_threads(n):
            result = _bounded(low[kept], high[kept], part, evaluate)
    except (np.linalg.LinAlgError, ArithmeticError, ValueError):  # the last: SciPy's, of overflow
        return nothing
    finite = all(np.isfinite(x).all() for x in result)
    if not finite or kept.all():
        return result if finite else nothing
    full = result._replace(lower=np.zeros(n), upper=np.zeros(n), cov=np.zeros((n, n)))
    full.lower[kept], full.upper[kept] = result.lower, result.upper
    full.cov[np.ix_(kept, kept)] = result.cov
    return full


def _bounded(
    lower: FloatArray, upper: FloatArray, cov: FloatArray, evaluate: _Evaluate
) -> LogProbGradient:
    """Every row has a limit. `evaluate` is for three rows or more."""
    if lower.size == 0:
        return LogProbGradient(0.0, lower, upper, cov)
    if lower.size == 1:
        return _univariate(lower, upper, cov)
    if lower.size == 2:
        return _bivariate(lower, upper, cov)
    dense = DenseCovariance(cov)
    result = evaluate(dense, lower, upper)
    added = max(ROUND_OFF, dense.jitter) * dense.diagonal()
    effect = abs(float(added @ result.cov.diagonal()))
    if not effect <= LARGEST_EFFECT + _RELATIVE_EFFECT * abs(result.value):
        raise DoublePrecisionError("round-off in the covariance decides the log probability.")
    return result


def _univariate(lower: FloatArray, upper: FloatArray, cov: FloatArray) -> LogProbGradient:
    sd = np.sqrt(cov[0])
    edges = Edges.of(lower, upper, 0.0, sd)
    return LogProbGradient(
        float(log_ndtr_interval(lower / sd, upper / sd)[0]),
        -edges.lower,
        edges.upper,
        edges.spread[:, None] / (2.0 * cov),
    )


def _bivariate(lower: FloatArray, upper: FloatArray, cov: FloatArray) -> LogProbGradient:
    """Densities of the edges and, for the correlation, of the corners (Plackett 1954)."""
    value = bivariate_log_prob(lower, upper, cov)
    variance = cov.diagonal()
    slope = cov[0, 1] / variance  # of the other coordinate on each
    sd = np.sqrt(variance)
    other_sd = np.sqrt(variance[::-1] - slope * cov[0, 1])
    limits = np.array([lower, upper])
    finite = np.isfinite(limits)
    at = np.where(finite, limits, 0.0)
    centre = slope * at
    # Rows: lower or upper edge; columns: of which coordinate.
    log_edge = -0.5 * (at / sd) ** 2 - np.log(sd) - _LOG_SQRT_2PI
    low_side = (lower[::-1] - centre) / other_sd
    log_side = log_ndtr_interval(low_side, (upper[::-1] - centre) / other_sd)
    density = np.where(finite, np.exp(log_edge + log_side - value), 0.0)
    # [i, j]: limit i of the first coordinate, limit j of the second.
    residual = (at[:, 1] - centre[:, :1]) / other_sd[0]
    log_corner = log_edge[:, :1] - 0.5 * residual**2 - np.log(other_sd[0]) - _LOG_SQRT_2PI
    corner = np.where(finite[:, :1] & finite[:, 1], np.exp(log_corner - value), 0.0)
    cross = corner[0, 0] + corner[1, 1] - corner[0, 1] - corner[1, 0]
    own = (at[0] * density[0] - at[1] * density[1] - cov[0, 1] * cross) / variance
    gradient = 0.5 * np.array([[own[0], cross], [cross, own[1]]])
    return LogProbGradient(value, -density[0], density[1], gradient)


def _by_ep(cov: DenseCovariance, lower: FloatArray, upper: FloatArray) -> LogProbGradient:
    ep, gradient = ep_with_gradient(cov, lower, upper, tol=_EP_TOLERANCE["ep"])
    return LogProbGradient(ep.log_prob, *gradient)


def _by_twisted(
    n_draws: int,
    random_seed: int,
    settings: escalation.SamplerSettings,
    compiled: bool,
    cov: DenseCovariance,
    lower: FloatArray,
    upper: FloatArray,
) -> LogProbGradient:
    """The ladder without pilots: which rung is accepted is a function of the arguments alone."""
    tol = _EP_TOLERANCE["twisted"]
    fitted = dense_ep(cov.matrix, np.stack([lower, upper]), tol=tol)
    ep = fit_ep(cov, lower, upper, tol=tol) if fitted is None else fitted.ep
    # Where EP has not converged its sites are no function of the arguments to differentiate.
    sites = ep if ep.residual < tol else None
    order = _slow_order(ep)

    def run(rung: twisted.Rung) -> tuple[Any, float]:
        if fitted is not None and rung.relax == 1.0 and rung.power is None:
            proposal = twisted.twist_by_covariance(fitted, lower, upper, order)
        else:
            proposal = rung.twist(cov, ep, lower, upper, order)
        points = _points(proposal.n_dims, n_draws, random_seed, rung.relax == 1.0)
        drawn = twisted.TwistedDraws(proposal, points, compiled)
        return (proposal, drawn, rung.relax), w.relative_ess(drawn.log_weights)

    (proposal, drawn, relax), _, accepted = escalation.first_accepted(settings.gradient_rungs, run)
    if accepted:
        found = twisted.weight_gradient(cov, proposal, drawn, ep=sites, relax=relax)
        return LogProbGradient(*found)
    sampler = escalation.RectangleSampler(cov, lower, upper, settings)
    rng = np.random.default_rng(random_seed)
    return _by_fisher(cov, lower, upper, sampler.sample(n_draws, rng, goal="probability"))


def _slow_order(ep: EPResult) -> w.IntArray:
    """Rows as they come, but for restrictions that say far more or less than the others.

    Where the order changes, the value jumps. Among rows of a kind it hardly matters: with the most
    informative first the standard error is the same on average, within a factor of two either way.
    But a narrow interval that comes last in a nearly singular covariance finds nothing left to
    move. The odds of what a site takes of its row's variance are taken in powers of 1000: those of
    labels lie between .01 and 10 and never change group.
    """
    share = ep.tau * ep.variance
    odds = share / np.maximum(1.0 - share, _ROUND_OFF)
    group = np.trunc(np.log10(np.maximum(odds, _ROUND_OFF)) / 3.0)
    return np.argsort(-group, kind="stable")


def _by_fisher(
    cov: DenseCovariance, lower: FloatArray, upper: FloatArray, result: escalation.SamplingResult
) -> LogProbGradient:
    r"""Fisher's identity over weighted draws of any making, u_i integrated out given the others.

    With :math:`Q = \Sigma^{-1}`, :math:`v = Q u` and expectations inside the rectangle,

    .. math:: \frac{\partial \log P}{\partial \Sigma} = \frac12 \left(\mathrm E[v v'] - Q\right),
        \qquad \frac{\partial \log P}{\partial x_i} = p(u_i = x_i), \quad
        \frac{\partial \log P}{\partial l_i} = -p(u_i = l_i).

    Given the others u_i is a truncated normal with mean :math:`u_i - v_i / Q_{ii}` and variance
    :math:`1/Q_{ii}`, so that Q cancels from the first.
    """
    weights = w.normalized_weights(result.log_weights)
    precision = linalg.mirrored(dpotri(cov.chol, lower=1)[0])
    own = precision.diagonal()[:, None]
    v = cho_solve((cov.chol, True), result.u, check_finite=False)
    excess = v / own  # of u_i over its mean given all others
    edges = Edges.of(lower[:, None], upper[:, None], result.u - excess, own**-0.5)
    # E[v_i v_j | all but u_i] - Q_ij = g_i (v_j - Q_ij excess_i) + Q_ij t_i, with g_i the mean of
    # v_i and t_i the mean square of u_i about its untruncated mean over its variance, less 1.
    score = (edges.lower - edges.upper) * weights
    left = edges.spread @ weights - np.einsum("ij,ij->i", score, excess)
    gradient = symmetric(0.5 * (score @ v.T + left[:, None] * precision))
    value, noise, *_ = result.log_prob
    return LogProbGradient(value, -(edges.lower @ weights), edges.upper @ weights, gradient, noise)


@lru_cache(maxsize=16)
def _points(n_dims: int, n_draws: int, random_seed: int, mirrored: bool) -> FloatArray:
    """Quasi-random points, made once: they cost more than the draws.

    `mirrored`: half of them mirror the other half. What EP's Gaussian lacks first is skewness,
    whose effect on the weights is odd and cancels within a pair; where weights are uneven, pairs
    only halve the number of independent points.
    """
    rng = np.random.default_rng(random_seed)
    if mirrored:
        points = w.mirrored_points(n_dims, -(-n_draws // 2), 1, rng)
    else:
        points = w.uniform_points(n_dims, n_draws, 1, rng)
    points.flags.writeable = False  # shared by all callers
    return points


# Density of a normal vector at a point together with the probability of a latent orthant.
#
# The numerator of the unified skew-normal density, with its gradient: one factorisation serves
# both.

_LOG_2PI = np.log(2.0 * np.pi)


class DensityAndOrthant(NamedTuple):
    """Log density with orthant, and its derivatives.

    Attributes
    ----------
    value : float
    offset : ndarray, shape (p,)
    scale : ndarray, shape (p, p)
        Symmetric: d value = sum_ij scale_ij dscale_ij; so is `latent_cov`.
    cross_cov : ndarray, shape (p, s)
    limits : ndarray, shape (s,)
    latent_cov : ndarray, shape (s, s)
    """

    value: float
    offset: FloatArray
    scale: FloatArray
    cross_cov: FloatArray
    limits: FloatArray
    latent_cov: FloatArray


def density_and_orthant(
    offset: FloatArray,
    scale: FloatArray,
    cross_cov: FloatArray,
    limits: FloatArray,
    latent_cov: FloatArray,
) -> DensityAndOrthant:
    r"""Log density of x_1 at a point, times the probability that x_0 < limits, with gradient.

    .. math::

        \begin{pmatrix} x_0 \\ x_1 \end{pmatrix} \sim N\left(0,
        \begin{pmatrix} \Gamma & -C^\top \\ -C & \Omega \end{pmatrix}\right), \qquad
        \log N(d; 0, \Omega) + \log \Phi_s(\gamma + C^\top\alpha;\, \Gamma - C^\top A),

    with :math:`\alpha = \Omega^{-1} d`, :math:`A = \Omega^{-1} C`. With a and B the derivatives of
    :math:`\log\Phi_s` in its limits and its covariance, those of the sum are
    :math:`A a - \alpha` in d, a and B in :math:`\gamma` and :math:`\Gamma`,
    :math:`\alpha a^\top - 2 A B` in C and

    .. math:: \tfrac12(\alpha\alpha^\top - \Omega^{-1} - A a \alpha^\top - \alpha a^\top A^\top)
        + A B A^\top \quad\text{in } \Omega.

    Parameters
    ----------
    offset : ndarray, shape (p,)
        d.
    scale : ndarray, shape (p, p)
        Omega, of which the symmetric part is read, as of `latent_cov`.
    cross_cov : ndarray, shape (p, s)
        C; s may be 0.
    limits : ndarray, shape (s,)
        gamma.
    latent_cov : ndarray, shape (s, s)
        Gamma.

    Returns
    -------
    DensityAndOrthant
        Minus infinity, with gradient 0, where something is not a number or a covariance not
        positive definite.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp._gaussian.log_prob_gradient import density_and_orthant
    >>> one = np.eye(1)
    >>> result = density_and_orthant(np.zeros(1), one, 0.5 * one, np.zeros(1), one)
    >>> print(f"{result.value:.4f}")  # log phi(0) + log 1/2
    -1.6121
    """
    p, s = cross_cov.shape
    nothing = DensityAndOrthant(
        -np.inf, np.zeros(p), np.zeros((p, p)), np.zeros((p, s)), np.zeros(s), np.zeros((s, s))
    )
    with np.errstate(over="ignore", invalid="ignore"), few_blas_threads(p):
        inputs = (offset, scale, cross_cov, limits, latent_cov)
        if not all(np.isfinite(x).all() for x in inputs):
            return nothing
        chol, info = dpotrf(symmetric(scale), lower=1, clean=1)
        if info != 0:
            return nothing
        # Products of halves, L^-1 d and L^-1 C, keep digits that those of d with alpha would lose.
        white, _ = dtrtrs(chol, offset, lower=1)
        half, _ = dtrtrs(chol, cross_cov, lower=1) if s else (cross_cov, 0)
        above, left = limits + half.T @ white, latent_cov - half.T @ half
        orthant = log_prob_and_gradient(-np.inf, above, left)
        if orthant.value == -np.inf:
            return nothing
        normal = -0.5 * (white @ white + p * _LOG_2PI) - np.log(chol.diagonal()).sum()
        alpha, _ = dtrtrs(chol, white, lower=1, trans=1)
        pull, _ = dtrtrs(chol, half, lower=1, trans=1) if s else (cross_cov, 0)
        inverse, _ = dpotri(chol, lower=1)
        precision = np.tril(inverse) + np.tril(inverse, -1).T
        a, b = orthant.upper, orthant.cov
        by_a, by_b = pull @ a, pull @ b
        # (alpha alpha' - A a alpha' - alpha a'A') / 2, as one product of two vectors.
        outer = symmetric(np.outer(alpha, 0.5 * alpha - by_a))
        result = DensityAndOrthant(
            float(normal + orthant.value),
            by_a - alpha,
            outer - 0.5 * precision + by_b @ pull.T,
            np.outer(alpha, a) - 2.0 * by_b,
            a,
            b,
        )
    return result if all(np.isfinite(x).all() for x in result) else nothing
