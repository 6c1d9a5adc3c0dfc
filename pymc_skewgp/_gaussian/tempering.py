"""Tempering from a twisted proposal to its target, for the cases in which its weights collapse.

A twisted proposal is a map u = T(z) from standard normal z, with weight w(z). The bridge
pi_b(z) ~ N(z; 0, I) w(z)^b, 0 <= b <= 1, leads from the proposal to the target; a sequential Monte
Carlo sampler (Del Moral, Doucet & Jasra 2006) follows it, with moves that leave N(z; 0, I) alone
and meet only w^b, whose log varies by a few nats whatever the dimension.
"""

from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import ndtr, ndtri

from pymc_skewgp._gaussian.tabulated import TabulatedDensity
from pymc_skewgp._gaussian.weights import log_mean_exp, pareto_k, relative_ess, systematic_rows
from pymc_skewgp._validation import FloatArray

_STAGE_ESS = 0.5  # relative ESS at which a stage ends
_STAGE_K = 0.5  # Pareto shape up to which the weights of a stage have a variance
_LEAST_RISE = 0.1  # share of what is left that a stage takes at least
# Stages chosen by the weights; as many again take what is left in equal steps. Steep problems need
# ten or so; where log weights range over millions a run would go on for days.
_FREE_STAGES = 30
_FORGOTTEN = 0.2  # moves go on until this share of the start is left ...
# ... or so many were made. With 8 the evidence of separable labels in 300 dimensions was .9 nat too
# low and its error half of that; with 40 a tenth of a nat, within its error.
_MAX_MOVES = 40
_ACCEPTANCE = 0.35  # near the best for random-walk moves on a few effective dimensions


class Proposal(Protocol):
    """A map from uniform points to draws with weights: of rows, or of what they depend on."""

    @property
    def n_dims(self) -> int:
        """Uniforms needed for one draw."""
        ...

    @property
    def first(self) -> TabulatedDensity | None:
        """What a leading direction is drawn from."""
        ...

    def draw(
        self, points: FloatArray, *, overwrite_points: bool = False
    ) -> tuple[FloatArray, FloatArray]:
        """Draws as columns, and their log weights, whose mean weight is the probability."""
        ...

    def unseen_share(self, n_draws: int) -> float:
        """Relative error of the probability from tails that `n_draws` draws hardly meet."""
        ...


class TemperedDraws(NamedTuple):
    """Particles at the target.

    Attributes
    ----------
    u : ndarray, shape (n, n_draws)
        Draws, the replicates one after another.
    log_probs : ndarray, shape (n_replicates,)
        Each replicate's own log estimate of P.
    pareto_k : float
        Largest over the stages.
    n_stages, n_passes : int
        Stages, and passes of the proposal over all particles.
    acceptance : float
        Mean acceptance rate of the moves.
    """

    u: FloatArray
    log_probs: FloatArray
    pareto_k: float
    n_stages: int
    n_passes: int
    acceptance: float


def temper(
    proposal: Proposal, points: FloatArray, n_replicates: int, rng: np.random.Generator
) -> TemperedDraws:
    """Run `n_replicates` sequential Monte Carlo samplers side by side.

    Parameters
    ----------
    proposal : Proposal
        Where the bridge starts.
    points : ndarray, shape (n_dims, n_draws)
        Uniform starting points, as many for each replicate.
    n_replicates : int
        Replicates: they share the ladder of exponents and resample apart, so that the spread of
        their estimates is a standard error.
    rng : numpy.random.Generator
        Source of the moves.

    Returns
    -------
    TemperedDraws
        Where sixty stages were not enough for each to keep a relative ESS of a half, the estimates
        of the replicates lie far apart.

    References
    ----------
    .. [1] P. Del Moral, A. Doucet & A. Jasra (2006), Sequential Monte Carlo samplers,
       doi:10.1111/j.1467-9868.2006.00553.x.
    .. [2] S. L. Cotter, G. O. Roberts, A. M. Stuart & D. White (2013), MCMC methods for functions
       (the preconditioned Crank-Nicolson move), arXiv:1202.0709.
    """
    n_draws = points.shape[1]
    z = np.asarray(ndtri(points))
    u, log_weights = proposal.draw(points)
    log_probs = np.zeros(n_replicates)
    exponent, step = 0.0, 0.7
    worst_k, n_stages, n_passes, rates = -np.inf, 0, 1, []
    while exponent < 1.0:
        rise = _next_rise(log_weights, 1.0 - exponent)
        if n_stages >= _FREE_STAGES:
            rise = max(rise, (1.0 - exponent) / max(2 * _FREE_STAGES - n_stages, 1))
        exponent = min(1.0, exponent + rise)
        n_stages += 1
        increments = (rise * log_weights).reshape(n_replicates, -1)
        worst_k = max(worst_k, pareto_k(increments.ravel()))
        log_probs += [log_mean_exp(block) for block in increments]
        size = n_draws // n_replicates
        chosen = systematic_rows(increments, size, rng).ravel()
        z, u, log_weights = z[:, chosen], u[:, chosen], log_weights[chosen]
        left = 1.0
        for _ in range(_MAX_MOVES):
            trial = np.sqrt(1.0 - step**2) * z + step * rng.standard_normal(z.shape)
            trial_u, trial_weights = proposal.draw(np.clip(ndtr(trial), 1e-300, 1.0 - 2.0**-53))
            n_passes += 1
            log_ratio = exponent * (trial_weights - log_weights)
            taken = np.log(rng.random(n_draws)) < log_ratio
            z[:, taken], u[:, taken] = trial[:, taken], trial_u[:, taken]
            log_weights[taken] = trial_weights[taken]
            rate = float(taken.mean())
            rates.append(rate)
            left *= 1.0 - rate * (1.0 - np.sqrt(1.0 - step**2))
            step = float(np.clip(step * np.exp(rate - _ACCEPTANCE), 0.05, 0.999))
            if left < _FORGOTTEN:
                break
    return TemperedDraws(u, log_probs, worst_k, n_stages, n_passes, float(np.mean(rates)))


def _next_rise(log_weights: FloatArray, most: float) -> float:
    """Largest rise of the exponent, up to `most`, with a fair relative ESS and a light tail."""
    from scipy.optimize import brentq  # takes a while, which an import alone should not

    possible = log_weights[~np.isneginf(log_weights)]
    share = possible.size / log_weights.size

    def surplus(rise: float) -> float:
        return share * relative_ess(rise * possible) - _STAGE_ESS

    if surplus(most) >= 0.0:
        rise = most
    elif share <= _STAGE_ESS:  # a stage for these alone
        rise = _LEAST_RISE * most
    else:
        rise = float(brentq(surplus, 0.0, most, xtol=1e-6))
    # The relative ESS of a sample cannot see a tail that the sample missed; the Pareto shape
    # can, and scales with the exponent.
    shape = pareto_k(rise * log_weights)
    return rise if shape <= _STAGE_K else max(rise * _STAGE_K / shape, _LEAST_RISE * most)
