"""From a rectangle to weighted draws and a log probability: which sampler, when, and how sure.

The ladder, each rung only when the one before is not good enough:

1. the twisted sampler with EP's own sites;
2. a wider proposal (relaxed sites, a widened leading direction), picked by short pilot runs;
3. tempering from that proposal, in as many batches as the standard error asks for.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pymc_skewgp.kernels.covariance import Covariance
from pymc_skewgp.kernels.ep import EPResult, fit_ep
from pymc_skewgp.kernels.points import uniform_points
from pymc_skewgp.kernels.tempering import temper
from pymc_skewgp.kernels.twisted import TwistedProposal, twist
from pymc_skewgp.kernels.validation import FloatArray
from pymc_skewgp.kernels.weights import (
    Estimate,
    log_mean_exp,
    pareto_k,
    replicate_estimate,
    spread_of_replicates,
)

Goal = Literal["draws", "probability"]

N_REPLICATES = 8
_MIN_DRAWS = 8 * N_REPLICATES  # fewer would leave nothing to estimate an error from
_PILOT_DRAWS = 64 * N_REPLICATES
# (relaxation of the sites, widening of the leading direction) to choose from on the second rung.
_WIDER = ((1.0, 1.5), (0.6, 1.5), (0.35, 1.5), (0.6, None), (0.35, None))
# Effective fraction that ends the ladder on the first rung; draws are resampled, so half is enough
# for them, while for a probability quasi-Monte Carlo gains more on the second rung.
_ENOUGH = {"draws": 0.5, "probability": 0.95}
_COLLAPSED = {"draws": 0.25, "probability": 0.1}  # below: temper
_SURE_ENOUGH = 0.003  # nats: no need to climb for less
_WORST_ERROR = 0.1  # nats: tempering goes on, and a warning is due, above this
_UNRELIABLE_K = 0.7
_MAX_BATCHES = 8  # of tempering
_MAX_DOUBLED = 64  # of plain draws


@dataclass(frozen=True)
class SamplingResult:
    """Weighted draws of a truncated Gaussian and its log probability.

    Attributes
    ----------
    u : ndarray, shape (n, n_draws)
        Draws as columns.
    log_weights : ndarray, shape (n_draws,)
        Log importance weights, up to a constant.
    log_prob : Estimate
        Log probability of the rectangle.
    method : str
        "twisted", "twisted (relaxed)" or "tempered".
    ep : EPResult
        The fixed point that the proposal was made from.
    """

    u: FloatArray
    log_weights: FloatArray
    log_prob: Estimate
    method: str
    ep: EPResult


def sample_rectangle(
    cov: Covariance,
    lower: FloatArray,
    upper: FloatArray,
    n_draws: int,
    rng: np.random.Generator,
    *,
    goal: Goal,
    rtol: float | None = None,
) -> SamplingResult:
    """Draw from N(0, cov) within limits and estimate the probability of the limits.

    Parameters
    ----------
    cov : Covariance
        Covariance of the untruncated Gaussian.
    lower, upper : ndarray, shape (n,)
        Limits, infinities allowed, ``lower < upper``.
    n_draws : int
        Weighted draws wanted.
    rng : numpy.random.Generator
        Source of the randomisation.
    goal : {"draws", "probability"}
        What to spend effort on where the two differ.
    rtol : float, optional
        Standard error of the log probability to reach, by more batches of draws.

    Returns
    -------
    SamplingResult
        Its ``log_prob.std_error`` may exceed `rtol`: 64 batches of draws, or 8 of tempering, are
        the most it spends.
    """
    ep = fit_ep(cov, lower, upper)
    method = "twisted"
    proposal = twist(cov, ep, lower, upper)
    result = _run(proposal, ep, n_draws, rng, method)
    estimate = result.log_prob
    if goal == "draws":
        good = estimate.ess_fraction >= _ENOUGH[goal]
    else:  # a heavy tail of weights hides its error: it must be light, whatever the fraction says
        good = estimate.pareto_k < _UNRELIABLE_K and (
            estimate.ess_fraction >= _ENOUGH[goal] or estimate.std_error <= _SURE_ENOUGH
        )
    if not good:
        method = "twisted (relaxed)"
        proposal = _pick_wider(cov, ep, lower, upper, rng, goal)
        result = _run(proposal, ep, n_draws, rng, method)
        estimate = result.log_prob
        if estimate.ess_fraction < _COLLAPSED[goal] or estimate.std_error > _WORST_ERROR:
            return _temper_in_batches(proposal, ep, n_draws, rng, rtol or _WORST_ERROR)
    if rtol is not None and estimate.std_error > rtol:
        result = _more_batches(result, proposal, n_draws, rng, rtol)
    return result


def _points(proposal: TwistedProposal, n_draws: int, rng: np.random.Generator) -> FloatArray:
    per_replicate = -(-max(n_draws, _MIN_DRAWS) // N_REPLICATES)
    return uniform_points(proposal.n_dims, per_replicate, N_REPLICATES, rng)


def _run(
    proposal: TwistedProposal, ep: EPResult, n_draws: int, rng: np.random.Generator, method: str
) -> SamplingResult:
    u, log_weights = proposal.draw(_points(proposal, n_draws, rng))
    estimate = replicate_estimate(log_weights, N_REPLICATES)
    return SamplingResult(u[:, :n_draws], log_weights[:n_draws], estimate, method, ep)


def _pick_wider(
    cov: Covariance,
    ep: EPResult,
    lower: FloatArray,
    upper: FloatArray,
    rng: np.random.Generator,
    goal: Goal,
) -> TwistedProposal:
    """The wider proposal whose pilot run does best; its own draws are not used again."""
    best, best_score = None, -np.inf
    for relax, widening in _WIDER:
        proposal = twist(cov, ep, lower, upper, relax=relax, widening=widening)
        _, log_weights = proposal.draw(_points(proposal, _PILOT_DRAWS, rng))
        pilot = replicate_estimate(log_weights, N_REPLICATES)
        score = pilot.ess_fraction if goal == "draws" else -pilot.std_error
        if best is None or score > best_score:
            best, best_score = proposal, score
    assert best is not None
    return best


def _more_batches(
    result: SamplingResult,
    proposal: TwistedProposal,
    n_draws: int,
    rng: np.random.Generator,
    rtol: float,
) -> SamplingResult:
    """Double the draws behind the probability until its standard error is `rtol`."""
    batches = [proposal.draw(_points(proposal, n_draws, rng))[1]]
    while True:
        estimate = replicate_estimate(np.concatenate(batches), N_REPLICATES * len(batches))
        if estimate.std_error <= rtol or len(batches) >= _MAX_DOUBLED:
            return replace(result, log_prob=estimate)
        batches += [proposal.draw(_points(proposal, n_draws, rng))[1] for _ in batches]


def _temper_in_batches(
    proposal: TwistedProposal,
    ep: EPResult,
    n_draws: int,
    rng: np.random.Generator,
    rtol: float,
) -> SamplingResult:
    """Run tempering until the standard error is `rtol`; draws are weighted by their replicate."""
    u: list[FloatArray] = []
    log_probs = np.empty(0)
    worst_k = -np.inf
    for _ in range(_MAX_BATCHES):
        batch = temper(proposal, _points(proposal, n_draws, rng), N_REPLICATES, rng)
        u.append(batch.u)
        log_probs = np.append(log_probs, batch.log_probs)
        worst_k = max(worst_k, batch.pareto_k)
        value = log_mean_exp(log_probs)
        std_error = spread_of_replicates(log_probs, value)
        if std_error <= rtol:
            break
    draws = np.concatenate(u, axis=1)
    log_weights = np.repeat(log_probs, draws.shape[1] // log_probs.size)
    # An even choice among all replicates, so that fewer draws still represent every one of them.
    chosen = rng.permutation(draws.shape[1])[:n_draws]
    # Independent draws that would give the evidence this error: the honest count behind particles
    # that share ancestors, whose weights alone would say 1.
    fraction = 1.0 / (1.0 + draws.shape[1] * std_error**2)
    worst_k = max(worst_k, pareto_k(log_probs))
    return SamplingResult(
        draws[:, chosen],
        log_weights[chosen],
        Estimate(value, std_error, fraction, worst_k),
        "tempered",
        ep,
    )
