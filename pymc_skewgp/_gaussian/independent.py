"""Independent draws of a truncated Gaussian: rows of a data set rather than an integration rule.

The weighted draws of `RectangleSampler` stand for one integral: their points are spread evenly on
purpose, so that a mean over them varies less than one over independent draws. A model that has k
such vectors needs k independent ones. Here each has its own short Markov chain.
"""

import numpy as np
from scipy.linalg import solve

from pymc_skewgp._gaussian import covariance, escalation, linalg, tempering, truncated, univariate
from pymc_skewgp._gaussian import weights as w
from pymc_skewgp._validation import FloatArray

# Exact draws of a small truncated Gaussian, by accepting and rejecting.
#
# With the Cholesky factor L of the covariance, x = L z meets its limits one coordinate after
# another (the separation of variables of Genz 1992): z_k is drawn from a normal restricted to the
# interval that the earlier ones leave. Such a draw has weight prod_k P_k, whose first factor is a
# constant and whose others are at most 1, so it is accepted with probability prod_{k>1} P_k: exact,
# and enough for a few coordinates. Where that is too rare, each z_k is drawn around a tilt mu_k;
# the log weight is then bounded by the value of a saddle point, which Newton's method finds (Botev
# 2017).

# Sizes of the batches tried. Most calls end with the first; a saddle point is looked for only where
# both untilted ones fail.
_PLAIN = (16, 256)
_TILTED = (64, 1024, 4096, 16384, 65536)
_NEWTON_STEPS = 100
_CONVERGED = 1e-8


def draw_by_rejection(
    mean: FloatArray,
    cov: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    rng: np.random.Generator,
) -> FloatArray | None:
    r"""One exact draw of :math:`N(m, \Sigma)` restricted to a rectangle.

    Parameters
    ----------
    mean : ndarray, shape (s,)
    cov : ndarray, shape (s, s)
        Positive definite.
    lower, upper : ndarray, shape (s,)
        Limits, infinities allowed, ``lower < upper``.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray, shape (s,), or None
        None when some 87 000 proposals were rejected, or no tilt was found: dozens of dimensions
        with limits that nearly contradict each other.

    References
    ----------
    .. [1] Z. I. Botev (2017), The normal law under linear restrictions: simulation and estimation
       via minimax tilting, arXiv:1603.04166.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp._gaussian.independent import draw_by_rejection
    >>> cov = 0.5 * np.eye(10) + 0.5
    >>> limits = np.full(10, 2.0), np.full(10, np.inf)
    >>> x = draw_by_rejection(np.zeros(10), cov, *limits, np.random.default_rng(1))
    >>> bool((x > 2.0).all())
    True
    """
    size = mean.size
    sd = np.sqrt(cov.diagonal())
    log_mass = univariate.log_ndtr_interval((lower - mean) / sd, (upper - mean) / sd)
    order = np.argsort(log_mass, kind="stable")  # the least likely first: its mass costs nothing
    chol, _ = linalg.cholesky("cov", cov[np.ix_(order, order)])
    scale = chol.diagonal()
    low, high = (lower - mean)[order] / scale, (upper - mean)[order] / scale
    mixing = np.tril(chol, -1) / scale[:, None]
    z = _accept(np.zeros(size), log_mass[order[0]], _PLAIN, mixing, low, high, rng)
    if z is None:
        saddle = _saddle_point(mixing, low, high)
        if saddle is None:
            return None
        z = _accept(*saddle, _TILTED, mixing, low, high, rng)
        if z is None:
            return None
    x = np.empty(size)
    x[order] = mean[order] + chol @ z
    return np.minimum(np.maximum(x, lower), upper)  # the sum may round to the far side of a limit


def _accept(
    tilt: FloatArray,
    log_bound: float,
    batches: tuple[int, ...],
    mixing: FloatArray,
    low: FloatArray,
    high: FloatArray,
    rng: np.random.Generator,
) -> FloatArray | None:
    """First z whose log weight beats a uniform's log times the bound; None if none does."""
    for count in batches:
        uniforms = rng.random((tilt.size + 1, count))
        z = np.empty((tilt.size, count))
        log_weight = np.full(count, -log_bound)
        for k in range(tilt.size):
            shift = mixing[k, :k] @ z[:k] + tilt[k]
            draw, log_mass = univariate.draw_truncated(uniforms[k], low[k] - shift, high[k] - shift)
            z[k] = draw + tilt[k]
            log_weight += log_mass - tilt[k] * (z[k] - 0.5 * tilt[k])
        accepted = np.flatnonzero(np.log(uniforms[-1]) < log_weight)
        if accepted.size:
            return np.asarray(z[:, accepted[0]])
    return None


def _saddle_point(
    mixing: FloatArray, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, float] | None:
    """Tilt and bound: the minimum over mu of the maximum over z of the log weight psi(z, mu).

    psi = sum_k mu_k^2/2 - mu_k z_k + log P_k is convex in mu and concave in z. With m_k and v_k
    the moments of the standard normal on the k-th interval, shifted by (B z + mu)_k, its gradient
    is mu - z + m and B'm - mu, and dm = -(1 - v)(B dz + dmu). The last tilt is zero.
    """
    free = mixing.shape[0] - 1
    z, tilt = np.zeros(free + 1), np.zeros(free + 1)
    identity = np.eye(free)
    log_mass, gradient, taken = _gradient(z, tilt, mixing, low, high)
    for _ in range(_NEWTON_STEPS):
        size = np.abs(gradient).max(initial=0.0)
        if size < _CONVERGED:
            return tilt, float((0.5 * tilt - z) @ tilt + log_mass.sum())
        scaled = taken[:, None] * mixing[:, :free]
        jacobian = np.block(
            [
                [-identity - scaled[:free], identity - np.diag(taken[:free])],
                [-mixing[:, :free].T @ scaled, -identity - scaled[:free].T],
            ]
        )
        step = solve(jacobian, gradient, check_finite=False)
        for halving in 0.5 ** np.arange(20):
            new_z, new_tilt = z.copy(), tilt.copy()
            new_z[:free] -= halving * step[:free]
            new_tilt[:free] -= halving * step[free:]
            trial = _gradient(new_z, new_tilt, mixing, low, high)
            if np.linalg.norm(trial[1]) < np.linalg.norm(gradient):
                break
        else:
            return None
        z, tilt = new_z, new_tilt
        log_mass, gradient, taken = trial
    return None


def _gradient(
    z: FloatArray, tilt: FloatArray, mixing: FloatArray, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Log masses P_k, gradient in the free tilts and then z, and 1 - v_k."""
    shift = mixing @ z + tilt
    log_mass, mean, variance = univariate.truncated_moments(low - shift, high - shift)
    gradient = np.concatenate([(tilt - z + mean)[:-1], (mixing.T @ mean - tilt)[:-1]])
    return log_mass, gradient, 1.0 - variance


_AT_ONCE = 4096  # proposals in one matrix product
_LEAST_POOL = 2048  # weighted draws to pick from


def independent_draws(
    cov: covariance.Covariance,
    lower: FloatArray | float,
    upper: FloatArray | float,
    n_draws: int,
    rng: np.random.Generator,
    settings: escalation.SamplerSettings = escalation.DEFAULT,
) -> FloatArray:
    r"""Draws of :math:`N(0, \Sigma)` restricted to a rectangle, independent of each other.

    Exact in one dimension, and for a few draws in a few dimensions, which are accepted or rejected
    (`draw_by_rejection`). Otherwise every draw is the end of its own chain of independence
    Metropolis under the twisted proposal, as many steps as its largest weight asks for (a handful,
    as a rule) by a pilot run: within about 1e-3 of the target in total variation. Where the weights
    have collapsed the draws are picked, with replacement, from four times as many weighted ones,
    tempered where need be.

    Parameters
    ----------
    cov : Covariance
        Covariance of the untruncated Gaussian.
    lower, upper : float or ndarray, shape (n,)
        Limits, infinities allowed, ``lower < upper``. A number stands for all rows.
    n_draws : int
        Draws wanted.
    rng : numpy.random.Generator
        Source of randomness.
    settings : SamplerSettings
        Thresholds of the escalation policy.

    Returns
    -------
    ndarray, shape (n_draws, n)
        Draws within the limits.

    Warns
    -----
    LowEffectiveSampleWarning
        When even of the tempered draws the relative ESS is below a tenth.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp._gaussian.covariance import DenseCovariance
    >>> from pymc_skewgp._gaussian.independent import independent_draws
    >>> cov = DenseCovariance(np.array([[1.0, 0.5], [0.5, 1.0]]))
    >>> rng = np.random.default_rng(0)
    >>> independent_draws(cov, np.zeros(2), np.full(2, np.inf), 5, rng).shape
    (5, 2)
    """
    lower, upper = linalg.row_limits(lower, upper, cov.size)
    if lower.size == 1:
        sd = np.sqrt(cov.diagonal())
        z, _ = univariate.draw_truncated(w.random_points(n_draws, 1, rng), lower / sd, upper / sd)
        return np.clip(sd * z, lower, upper)
    if n_draws * lower.size <= settings.rejection_values:
        matrix, centre = cov.dense(), np.zeros(lower.size)
        draws = [draw_by_rejection(centre, matrix, lower, upper, rng) for _ in range(n_draws)]
        accepted = [draw for draw in draws if draw is not None]
        if len(accepted) == n_draws:
            return np.array(accepted)
    sampler = escalation.RectangleSampler(cov, lower, upper, settings)
    pilot = escalation.pilot_log_weights(sampler.first, settings.chain_pilot_draws, rng)
    steps = escalation.steps_to_forget(pilot, settings.chain_bias)
    if steps <= settings.max_chain_steps:
        return _chain_ends(sampler.first, n_draws, steps, rng)
    pool = truncated.draws_by(sampler, max(4 * n_draws, _LEAST_POOL), rng)
    weights = w.normalized_weights(pool.log_weights)
    return pool.draws[rng.choice(weights.size, n_draws, p=weights)]


def _chain_ends(
    proposal: tempering.Proposal, n_chains: int, steps: int, rng: np.random.Generator
) -> FloatArray:
    """Last states (n_chains, n) of chains of independence Metropolis started at a proposal each."""
    state, log_weight = proposal.draw(w.random_points(proposal.n_dims, n_chains, rng))
    block = max(1, _AT_ONCE // n_chains)
    for start in range(0, steps, block):
        count = min(block, steps - start)
        u, log_weights = proposal.draw(w.random_points(proposal.n_dims, count * n_chains, rng))
        log_uniform = np.log(rng.random((count, n_chains)))
        for step in range(count):
            own = slice(step * n_chains, (step + 1) * n_chains)
            moves = log_uniform[step] < log_weights[own] - log_weight
            state[:, moves] = u[:, own][:, moves]
            log_weight[moves] = log_weights[own][moves]
    return np.ascontiguousarray(state.T)
