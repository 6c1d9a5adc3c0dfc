r"""Probabilities of rectangles in JAX, for the samplers of numpyro and blackjax.

Models with `pt_mvn_logcdf`, `UnifiedSkewNormal`, `TruncatedMvNormal`, `MarginalProbit` or
`SkewGP.marginal_likelihood` under any likelihood, in up to
20 dimensions under one probability, run under ``pm.sample(nuts_sampler="numpyro")`` and "blackjax".
Those differentiate in JAX, so the evaluation here is differentiable: the separation of variables of
Genz (1992) at fixed quasi-random points.

PyTensor imports this module when it compiles a function for JAX; an import of your own does no
harm. Nothing else of the package imports JAX, because parallel chains cannot be forked safely once
it is there.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, logsumexp, ndtri
from pytensor.graph.basic import Apply, Constant
from pytensor.link.jax.dispatch.basic import jax_funcify

from pymc_skewgp._gaussian.linalg import JITTER_LADDER
from pymc_skewgp._gaussian.weights import uniform_points
from pymc_skewgp._model.ops.densities import LogDensityAndOrthant, MvnLogProb
from pymc_skewgp._model.ops.log_evidence import LogEvidence
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray

__all__ = ["MAX_DIMS", "mvn_log_prob"]

MAX_DIMS = 20
# Uniforms for so many dimensions.
Points = Callable[[int], FloatArray]
# Without EP's twist the weights are uneven: more points than the NumPy code takes by default. They
# leave .003 nats of error in a classification of 20 points, a few hundredths in a steep one.
_LEAST_POINTS = 1024
_LOG_SQRT_2PI = 0.5 * np.log(2.0 * np.pi)
# Standard deviations beyond 0, and beyond the other limit, at which a limit is as good as none.
_FAR = 40.0
# Log probabilities below this are inverted by Newton's method: their exponentials underflow.
_UNDERFLOW = -300.0


def mvn_log_prob(
    lower: jax.Array,
    upper: jax.Array,
    cov: jax.Array,
    points: FloatArray,
    value: jax.Array | None = None,
) -> jax.Array:
    r"""Log probability of a rectangle under N(0, cov), differentiable by ``jax.grad``.

    .. math:: P = \mathrm E_U \prod_{k=1}^n \left\{\Phi\left(\frac{x_k - c_k}{C_{kk}}\right)
        - \Phi\left(\frac{l_k - c_k}{C_{kk}}\right)\right\}, \qquad
        c_k = \sum_{j<k} C_{kj} e_j, \quad C C' = \Sigma,

    with :math:`e_k` the quantile at :math:`U_k` of the standard normal between the two limits.
    Everything is kept in logs, and the derivative of the quantile is taken from its definition.

    Rows that have a value come first: :math:`e_k` is known, and its density the factor.

    Parameters
    ----------
    lower, upper : jax.Array, shape (n,)
        Limits, infinities allowed.
    cov : jax.Array, shape (n, n)
        Covariance, of which the symmetric part is read. It should be float64.
    points : ndarray, shape (n, n_points)
        Uniforms in (0, 1).
    value : jax.Array, shape (n,), optional
        What a coordinate is, where it is known; NaN where it is between limits. Default: all are.

    Returns
    -------
    jax.Array, shape ()
        Minus infinity, with gradient 0, where a limit is not a number or not below its partner, or
        `cov` is not positive definite.

    References
    ----------
    .. [1] A. Genz (1992), Numerical computation of multivariate normal probabilities,
       doi:10.1080/10618600.1992.10477010.
    """
    n = lower.shape[0]
    value = jnp.full(n, jnp.nan) if value is None else value
    known = ~jnp.isnan(value)
    # A row without limits has mass 1, whose gradient is 0.
    lower, upper = jnp.where(known, -jnp.inf, lower), jnp.where(known, jnp.inf, upper)
    value = jnp.where(known, value, 0.0)
    chol = jnp.linalg.cholesky(jax.lax.stop_gradient(cov))  # reads the symmetric part
    valid = jnp.all(lower < upper) & jnp.all(jnp.isfinite(chol))
    # What is invalid is replaced on the way in: NaN would pass through the gradient of a switch.
    lower = jnp.where(valid, lower, -1.0)
    upper = jnp.where(valid, upper, 1.0)
    cov = jnp.where(valid, cov, jnp.eye(n))
    open_low, open_high = jnp.isneginf(lower), jnp.isposinf(upper)
    lower, upper = jnp.where(open_low, 0.0, lower), jnp.where(open_high, 0.0, upper)
    # The rows that say most come first, for theirs are the masses that the others depend on.
    # Rounded: rows that say as much must not change places by round-off, or the value jumps.
    sd = jnp.sqrt(jnp.diagonal(cov))
    marginal = _log_mass(*_far_limits(lower / sd, upper / sd, open_low, open_high))[0]
    marginal = jnp.round(jax.lax.stop_gradient(marginal), 6)
    order = jnp.argsort(jnp.where(known, -jnp.inf, marginal))
    chol = jnp.linalg.cholesky(cov[order][:, order])

    def step(noise: jax.Array, row: Any) -> tuple[jax.Array, jax.Array]:
        k, low, high, no_low, no_high, is_known, at, factor, point = row
        centre = factor @ noise  # rows from k on are still 0
        a, b = (low - centre) / factor[k], (high - centre) / factor[k]
        log_mass, draw = _draw_between(*_far_limits(a, b, no_low, no_high), point)
        own = (at - centre) / factor[k]
        log_density = -0.5 * own**2 - jnp.log(factor[k]) - _LOG_SQRT_2PI
        draw = jnp.where(is_known, own, draw)
        return noise.at[k].set(draw), jnp.where(is_known, log_density, log_mass)

    by_row = (lower, upper, open_low, open_high, known, value)
    rows = (jnp.arange(n), *(x[order] for x in by_row), chol, jnp.asarray(points))
    log_masses = jax.lax.scan(step, jnp.zeros(points.shape), rows)[1]
    found = logsumexp(log_masses.sum(axis=0)) - np.log(points.shape[1])
    return jnp.where(valid, found, -jnp.inf)


def _far_limits(
    a: jax.Array, b: jax.Array, no_a: jax.Array, no_b: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Absent limits put where there is no mass beyond them: infinite ones have NaN gradients."""
    low, high = jax.lax.stop_gradient((a, b))
    far_a = jnp.where(no_b, -_FAR, jnp.minimum(high, 0.0) - _FAR)
    far_b = jnp.where(no_a, _FAR, jnp.maximum(low, 0.0) + _FAR)
    return jnp.where(no_a, far_a, a), jnp.where(no_b, far_b, b)


def _log_mass(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """log{Phi(b) - Phi(a)}; log{Phi(a) / Phi(b)}; whether the interval was mirrored for both.

    It is where it lies to the right, for there the difference has no digits.
    """
    flip = a + b > 0
    left, right = jnp.where(flip, -b, a), jnp.where(flip, -a, b)
    log_right = log_ndtr(right)
    log_ratio = log_ndtr(left) - log_right
    return log_right + jnp.log1p(-jnp.exp(log_ratio)), log_ratio, flip


def _draw_between(a: jax.Array, b: jax.Array, u: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Log mass of (a, b), and the quantile at u of the standard normal inside it."""
    log_mass, log_ratio, flip = _log_mass(a, b)
    log_right = log_ndtr(jnp.where(flip, -a, b))
    share = jnp.where(flip, 1.0 - u, u)
    log_p = log_right + jnp.log(share + (1.0 - share) * jnp.exp(log_ratio))
    z = _quantile(log_p)
    return log_mass, jnp.where(flip, -z, z)


def _quantile(log_p: jax.Array) -> jax.Array:
    """Inverse of `log_ndtr`, with the derivative that this implies."""
    target = jax.lax.stop_gradient(log_p)
    body = ndtri(jnp.minimum(jnp.exp(jnp.maximum(target, _UNDERFLOW)), 1.0 - 2.0**-53))
    tail = -jnp.sqrt(-2.0 * jnp.minimum(target, _UNDERFLOW))
    for _ in range(4):  # log_ndtr is concave: Newton's method converges from the left
        log_density = -0.5 * tail**2 - _LOG_SQRT_2PI
        log_tail = log_ndtr(tail)
        tail = tail - (log_tail - target) * jnp.exp(log_tail - log_density)
    z = jax.lax.stop_gradient(jnp.where(target > _UNDERFLOW, body, tail))
    return z + (log_p - target) * jnp.exp(target + 0.5 * z**2 + _LOG_SQRT_2PI)


def _points(n_dims: int, n_points: int, random_seed: int) -> FloatArray:
    """Uniforms for `mvn_log_prob`, if it serves so many dimensions."""
    if n_dims > MAX_DIMS:
        raise NotImplementedError(
            f"the probability of a rectangle in {n_dims} dimensions is not available in JAX, only "
            f"up to {MAX_DIMS}: sample with PyMC's own NUTS or with nutpie (backend numba)."
        )
    return uniform_points(n_dims, n_points, 1, np.random.default_rng(random_seed))


def _with_gradient(value: Callable[..., jax.Array]) -> Callable[..., Any]:
    """Value and its derivatives in all arguments, each differentiable by ``jax.grad``."""

    def outputs(*inputs: jax.Array) -> tuple[jax.Array, ...]:
        # What of this is not asked for, XLA leaves out.
        found, gradients = jax.value_and_grad(value, tuple(range(len(inputs))))(*inputs)
        return found, *gradients

    return outputs


def _log_prob(
    lower: jax.Array,
    upper: jax.Array,
    cov: jax.Array,
    points: Points,
    value: jax.Array | None = None,
    n_known: int = 0,
) -> jax.Array:
    """`mvn_log_prob` of any number of dimensions, none included; so many have values, at least."""
    n = lower.shape[0]
    if not n:
        return jnp.zeros(())
    uniforms = points(n - n_known) if n > n_known else np.zeros((0, 1))
    uniforms = np.concatenate([np.full((n_known, uniforms.shape[1]), 0.5), uniforms])
    return mvn_log_prob(lower, upper, 0.5 * (cov + cov.T), uniforms, value)


@jax_funcify.register(MvnLogProb)
def _jax_mvn_log_prob(op: MvnLogProb, node: Apply, **kwargs: Any) -> Any:
    points = partial(_points, n_points=max(op.n_draws, _LEAST_POINTS), random_seed=op.random_seed)
    return _with_gradient(partial(_log_prob, points=points))


@jax_funcify.register(LogDensityAndOrthant)
def _jax_log_density_and_orthant(op: LogDensityAndOrthant, node: Apply, **kwargs: Any) -> Any:
    points = partial(_points, n_points=_LEAST_POINTS, random_seed=0)

    def log_density(
        offset: jax.Array, scale: jax.Array, cross: jax.Array, limits: jax.Array, own: jax.Array
    ) -> jax.Array:
        scale = 0.5 * (scale + scale.T)
        valid = _is_covariance(scale) & jnp.all(jnp.isfinite(offset))
        # As above: what is invalid is replaced on the way in, for the gradient's sake.
        chol = jnp.linalg.cholesky(jnp.where(valid, scale, jnp.eye(len(offset))))
        offset = jnp.where(valid, offset, 0.0)
        white = jax.scipy.linalg.solve_triangular(chol, offset, lower=True)
        normal = -0.5 * white @ white - jnp.log(jnp.sqrt(2.0 * np.pi) * chol.diagonal()).sum()
        if len(limits) == 0:
            return jnp.where(valid, normal, -jnp.inf)
        half = jax.scipy.linalg.solve_triangular(chol, cross, lower=True)
        below = jnp.full(len(limits), -jnp.inf)
        orthant = _log_prob(below, limits + half.T @ white, own - half.T @ half, points)
        return jnp.where(valid, normal + orthant, -jnp.inf)

    return _with_gradient(log_density)


def _kind_of_rows(op: LogEvidence, node: Apply) -> Any:
    """Which kind each row is of, where rows repeat."""
    if not op.repeats:
        return None
    counts = node.inputs[-1]
    if not isinstance(counts, Constant):
        raise NotImplementedError("JAX needs to know how many rows repeat: they must be data.")
    return np.repeat(np.arange(counts.data.size), counts.data.astype(np.intp))


def _each(noise: jax.Array, kind: Any) -> jax.Array:
    """Noise of each row; what rows of one kind have is their own."""
    if noise.ndim == 1:
        return noise[kind]
    other = (kind[:, None] == kind) & ~np.eye(kind.size, dtype=bool)
    return jnp.where(other, 0.0, noise[kind][:, kind])


@jax_funcify.register(LogEvidence)
def _jax_log_evidence(op: LogEvidence, node: Apply, **kwargs: Any) -> Any:
    points = partial(_points, n_points=max(op.n_draws, _LEAST_POINTS), random_seed=0)

    value = node.inputs[2]  # of data, as a rule, which say how many rows are points
    n_known = int((~np.isnan(value.data)).sum()) if isinstance(value, Constant) else 0
    kind = _kind_of_rows(op, node)

    def evidence(
        lower: jax.Array,
        upper: jax.Array,
        value: jax.Array,
        noise: jax.Array,
        *parameters: jax.Array,
    ) -> jax.Array:
        if kind is not None:
            (lower, upper, value), noise = (
                (x[kind] for x in (lower, upper, value)),
                _each(noise, kind),
            )
            mu, scale, cross_cov, *latent, _ = parameters
            parameters = (mu[kind], scale[kind][:, kind], cross_cov[kind], *latent)
        sun = SunParameters(*parameters)
        n, s = len(lower), len(sun.truncation)
        top = jnp.concatenate([sun.latent_cov, sun.cross_cov.T], axis=1)
        cov = jnp.concatenate([top, jnp.concatenate([sun.cross_cov, sun.scale], axis=1)])
        jitter = JITTER_LADDER[-1] * jnp.abs(cov.diagonal())
        valid = _is_covariance(0.5 * (cov + cov.T) + jnp.diag(jitter))
        own = jnp.diag(noise) if noise.ndim == 1 else noise
        cov = jnp.where(valid, cov, jnp.eye(s + n)).at[s:, s:].add(own)
        open_end = jnp.full(s, jnp.inf)
        joint = _log_prob(
            jnp.concatenate([-sun.truncation, lower - sun.mu]),
            jnp.concatenate([open_end, upper - sun.mu]),
            cov,
            points,
            jnp.concatenate([jnp.full(s, jnp.nan), value - sun.mu]),
            n_known,
        )
        prior = _log_prob(-sun.truncation, open_end, sun.latent_cov, points)
        valid = valid & jnp.isfinite(joint) & jnp.isfinite(prior)
        return jnp.where(valid, joint - prior, -jnp.inf)

    return _with_gradient(evidence)


def _is_covariance(matrix: jax.Array) -> jax.Array:
    """Whether a symmetric matrix is positive definite."""
    return jnp.all(jnp.isfinite(jnp.linalg.cholesky(jax.lax.stop_gradient(matrix))))
