"""Independent draws of a truncated Gaussian: rows of a data set rather than an integration rule.

The weighted draws of `RectangleSampler` stand for one integral: their points are spread evenly on
purpose, so that a mean over them varies less than one over independent draws. A model that has k
such vectors needs k independent ones. Here each has its own short Markov chain.
"""

import numpy as np

from pymc_skewgp._gaussian.limits import row_limits
from pymc_skewgp._gaussian.operators.covariance import Covariance
from pymc_skewgp._gaussian.points import random_points
from pymc_skewgp._gaussian.proposals.escalation import RectangleSampler
from pymc_skewgp._gaussian.proposals.policy import (
    DEFAULT,
    SamplerSettings,
    pilot_log_weights,
    steps_to_forget,
)
from pymc_skewgp._gaussian.proposals.tempering import Proposal
from pymc_skewgp._gaussian.rectangle import draws_by
from pymc_skewgp._gaussian.samplers.rejection import draw_by_rejection
from pymc_skewgp._gaussian.univariate import draw_truncated
from pymc_skewgp._gaussian.weights import normalized_weights
from pymc_skewgp._validation import FloatArray

_AT_ONCE = 4096  # proposals in one matrix product
_LEAST_POOL = 2048  # weighted draws to pick from


def independent_draws(
    cov: Covariance,
    lower: FloatArray | float,
    upper: FloatArray | float,
    n_draws: int,
    rng: np.random.Generator,
    settings: SamplerSettings = DEFAULT,
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
    >>> from pymc_skewgp._gaussian.operators.dense import DenseCovariance
    >>> from pymc_skewgp._gaussian.samplers.independent import independent_draws
    >>> cov = DenseCovariance(np.array([[1.0, 0.5], [0.5, 1.0]]))
    >>> rng = np.random.default_rng(0)
    >>> independent_draws(cov, np.zeros(2), np.full(2, np.inf), 5, rng).shape
    (5, 2)
    """
    lower, upper = row_limits(lower, upper, cov.size)
    if lower.size == 1:
        sd = np.sqrt(cov.diagonal())
        z, _ = draw_truncated(random_points(n_draws, 1, rng), lower / sd, upper / sd)
        return np.clip(sd * z, lower, upper)
    if n_draws * lower.size <= settings.rejection_values:
        matrix, centre = cov.dense(), np.zeros(lower.size)
        draws = [draw_by_rejection(centre, matrix, lower, upper, rng) for _ in range(n_draws)]
        accepted = [draw for draw in draws if draw is not None]
        if len(accepted) == n_draws:
            return np.array(accepted)
    sampler = RectangleSampler(cov, lower, upper, settings)
    pilot = pilot_log_weights(sampler.first, settings.chain_pilot_draws, rng)
    steps = steps_to_forget(pilot, settings.chain_bias)
    if steps <= settings.max_chain_steps:
        return _chain_ends(sampler.first, n_draws, steps, rng)
    pool = draws_by(sampler, max(4 * n_draws, _LEAST_POOL), rng)
    weights = normalized_weights(pool.log_weights)
    return pool.draws[rng.choice(weights.size, n_draws, p=weights)]


def _chain_ends(
    proposal: Proposal, n_chains: int, steps: int, rng: np.random.Generator
) -> FloatArray:
    """Last states (n_chains, n) of chains of independence Metropolis started at a proposal each."""
    state, log_weight = proposal.draw(random_points(proposal.n_dims, n_chains, rng))
    block = max(1, _AT_ONCE // n_chains)
    for start in range(0, steps, block):
        count = min(block, steps - start)
        u, log_weights = proposal.draw(random_points(proposal.n_dims, count * n_chains, rng))
        log_uniform = np.log(rng.random((count, n_chains)))
        for step in range(count):
            own = slice(step * n_chains, (step + 1) * n_chains)
            moves = log_uniform[step] < log_weights[own] - log_weight
            state[:, moves] = u[:, own][:, moves]
            log_weight[moves] = log_weights[own][moves]
    return np.ascontiguousarray(state.T)
