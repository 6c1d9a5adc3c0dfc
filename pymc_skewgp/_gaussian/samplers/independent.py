"""Independent draws of a truncated Gaussian: rows of a data set rather than an integration rule.

The weighted draws of `sampling` stand for one integral: their points are spread evenly on purpose,
so that a mean over them varies less than one over independent draws. A model that has k such
vectors needs k independent ones. Here each has its own short Markov chain.
"""

import numpy as np

from pymc_skewgp._gaussian.operators.covariance import Covariance
from pymc_skewgp._gaussian.proposals.ep import fit_ep
from pymc_skewgp._gaussian.proposals.escalation import DEFENCE
from pymc_skewgp._gaussian.proposals.twisted import TwistedProposal, twist
from pymc_skewgp._gaussian.samplers.rejection import draw_by_rejection
from pymc_skewgp._gaussian.truncated import twisted_draws
from pymc_skewgp._gaussian.univariate import draw_truncated
from pymc_skewgp._validation import FloatArray

# Numbers up to which rejection, draw by draw, takes less time than the set-up of what follows.
_FEW = 64
_PILOT = 256
# A chain of independence Metropolis forgets its start at the rate 1 - 1/w, w its largest weight
# over the mean one (Mengersen & Tweedie 1996, doi:10.1214/aos/1033066201): steps until what is
# left of it is below this, in total variation.
_BIAS = 1e-3
_MOST_STEPS = 200  # more: the weights have collapsed, and tempering is cheaper
_AT_ONCE = 4096  # proposals in one matrix product


def independent_draws(
    cov: Covariance,
    lower: FloatArray,
    upper: FloatArray,
    n_draws: int,
    rng: np.random.Generator,
) -> FloatArray:
    r"""Draws of :math:`N(0, \Sigma)` restricted to a rectangle, independent of each other.

    Exact in one dimension, and for a few draws in a few dimensions, which are accepted or rejected
    (`draw_by_rejection`). Otherwise every draw is the end of its own chain of independence
    Metropolis under the twisted proposal, as many steps as its largest weight asks for (a handful,
    as a rule) by a pilot run: within about 1e-3 of the target in total variation. Where the weights
    have collapsed the draws are picked, with replacement, from four times as many tempered
    particles.

    Parameters
    ----------
    cov : Covariance
        Covariance of the untruncated Gaussian.
    lower, upper : ndarray, shape (n,)
        Limits, infinities allowed, ``lower < upper``.
    n_draws : int
        Draws wanted.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    ndarray, shape (n_draws, n)
        Draws within the limits.

    Warns
    -----
    LowEffectiveSampleWarning
        When even tempering gave draws that are worth less than a tenth of their number.

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
    if lower.size == 1:
        sd = np.sqrt(cov.diagonal())
        z, _ = draw_truncated(_uniforms((n_draws, 1), rng), lower / sd, upper / sd)
        return np.clip(sd * z, lower, upper)
    if n_draws * lower.size <= _FEW:
        matrix, centre = cov.dense(), np.zeros(lower.size)
        draws = [draw_by_rejection(centre, matrix, lower, upper, rng) for _ in range(n_draws)]
        accepted = [draw for draw in draws if draw is not None]
        if len(accepted) == n_draws:
            return np.array(accepted)
    ep = fit_ep(cov, lower, upper)
    proposal = twist(cov, ep, lower, upper, **DEFENCE)
    steps = _steps_needed(proposal, rng)
    if steps <= _MOST_STEPS:
        return _chain_ends(proposal, n_draws, steps, rng)
    pool = twisted_draws(cov, lower, upper, max(4 * n_draws, 8 * _PILOT), rng)
    weights = np.exp(pool.log_weights - pool.log_weights.max())
    return pool.draws[rng.choice(weights.size, n_draws, p=weights / weights.sum())]


def _steps_needed(proposal: TwistedProposal, rng: np.random.Generator) -> int:
    """Steps after which a chain has forgotten its start, by the weights of a pilot run."""
    _, log_weights = proposal.draw(_uniforms((proposal.n_dims, _PILOT), rng))
    accepted = float(np.exp(log_weights - log_weights.max()).mean())
    if accepted > 1.0 - _BIAS:
        return 1 if accepted < 1.0 else 0
    return int(np.ceil(np.log(_BIAS) / np.log1p(-accepted)))


def _chain_ends(
    proposal: TwistedProposal, n_chains: int, steps: int, rng: np.random.Generator
) -> FloatArray:
    """Last states (n_chains, n) of chains of independence Metropolis started at a proposal each."""
    state, log_weight = proposal.draw(_uniforms((proposal.n_dims, n_chains), rng))
    block = max(1, _AT_ONCE // n_chains)
    for start in range(0, steps, block):
        count = min(block, steps - start)
        u, log_weights = proposal.draw(_uniforms((proposal.n_dims, count * n_chains), rng))
        log_uniform = np.log(rng.random((count, n_chains)))
        for step in range(count):
            own = slice(step * n_chains, (step + 1) * n_chains)
            moves = log_uniform[step] < log_weights[own] - log_weight
            state[:, moves] = u[:, own][:, moves]
            log_weight[moves] = log_weights[own][moves]
    return np.ascontiguousarray(state.T)


def _uniforms(shape: tuple[int, int], rng: np.random.Generator) -> FloatArray:
    """Uniforms strictly inside (0, 1)."""
    return np.maximum(rng.random(shape), np.finfo(float).tiny)
