"""Weighted draws from one proposal: a run, more batches of it, and tempering where it is too poor.

A run consists of replicates, independent randomisations of one point set. Their spread is the
standard error.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pymc_skewgp._errors import DoublePrecisionError
from pymc_skewgp._gaussian.points import mirrored_points, uniform_points
from pymc_skewgp._gaussian.proposals.policy import SamplerSettings
from pymc_skewgp._gaussian.proposals.tempering import Proposal, temper
from pymc_skewgp._gaussian.weights import (
    Estimate,
    IntArray,
    log_mean_exp,
    pareto_k,
    replicate_estimate,
    spread_of_replicates,
)
from pymc_skewgp._validation import FloatArray

# With 16 an error over its standard error has Student's t distribution with 15 degrees of freedom:
# 6 % beyond two and .1 % beyond four, where 7 degrees have 9 % and .5 %.
N_REPLICATES = 16
MIN_DRAWS = 8 * N_REPLICATES  # fewer would leave nothing to estimate an error from
# Where rows are few enough that drawing is a small part of the time, a thousand draws come with as
# many again for the probability.
_EVEN_DRAWS, _FROM_DRAWS, _FEW_ROWS = 2048, 1000, 512
# What was found, and what to do about it.
TOO_FAR = (
    "{}: limits and covariance are too far apart for double precision. Check their units, and drop "
    "limits that are out of all reach."
)


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
    replicate : ndarray of int, shape (n_draws,), or None
        Equal numbers for draws that depend on each other: those of one set of mirrored points, or
        of one tempered run. None where draws are as good as independent.
    """

    u: FloatArray
    log_weights: FloatArray
    log_prob: Estimate
    method: str
    replicate: IntArray | None


class PointSets(NamedTuple):
    """Replicates, each of `size` points, of which half may mirror the other half."""

    n_replicates: int
    size: int
    mirrored: bool

    def points(self, n_dims: int, rng: np.random.Generator) -> FloatArray:
        """Points as columns, one replicate after another."""
        if self.mirrored:
            return mirrored_points(n_dims, self.size // 2, self.n_replicates, rng)
        return uniform_points(n_dims, self.size, self.n_replicates, rng)


class Run(NamedTuple):
    """Draws of one run as columns, their log weights, and the log probability they give."""

    u: FloatArray
    log_weights: FloatArray
    log_prob: Estimate
    sets: PointSets


def point_sets(proposal: Proposal, n_draws: int, n_rows: int | None = None) -> PointSets:
    """Replicates of even size for a run of which `n_draws` are kept; with `n_rows`, for both goals.

    Without a leading direction half of each replicate mirrors the other half: what EP's Gaussian
    lacks first is skewness, whose effect on the weights is odd and cancels within a pair. What is
    kept are whole replicates, so that their spread is the error of all that is summed over them: a
    part of an evenly spaced set is hardly more even than independent draws. The further draws are
    more replicates. With a leading direction evenly spaced points do better alone, in larger sets.
    """
    half, mirrored = -(-max(n_draws, MIN_DRAWS) // (2 * N_REPLICATES)), proposal.first is None
    further = n_rows is not None and n_draws >= _FROM_DRAWS and n_rows <= _FEW_ROWS
    if not further or n_draws >= _EVEN_DRAWS:
        return PointSets(N_REPLICATES, 2 * half, mirrored)
    if mirrored:
        return PointSets(-(-_EVEN_DRAWS // (2 * half)), 2 * half, mirrored)
    return PointSets(N_REPLICATES, _EVEN_DRAWS // N_REPLICATES, mirrored)


def run_once(proposal: Proposal, sets: PointSets, rng: np.random.Generator) -> Run:
    """A run at the points of `sets`.

    Raises
    ------
    DoublePrecisionError
        Where the weights are not finite, or their mean is no probability.
    """
    u, log_weights = proposal.draw(sets.points(proposal.n_dims, rng), overwrite_points=True)
    if not np.isfinite(log_weights).all():
        raise DoublePrecisionError(TOO_FAR.format("the importance weights are not finite"))
    estimate = _estimate(proposal, log_weights, sets.n_replicates)
    # A mean weight is a probability: above 1 beyond its error it is round-off.
    if not estimate.value <= 1.0 + 10.0 * estimate.std_error:
        found = f"the log probability came out as {estimate.value:.3g}, above 0"
        raise DoublePrecisionError(TOO_FAR.format(found))
    return Run(u, log_weights, estimate, sets)


def _estimate(proposal: Proposal, log_weights: FloatArray, n_replicates: int) -> Estimate:
    """Log of the mean weight; its error allows for what all replicates may have missed."""
    estimate = replicate_estimate(log_weights, n_replicates)
    unseen = proposal.unseen_share(log_weights.size)
    return estimate._replace(std_error=float(np.hypot(estimate.std_error, unseen)))


def kept(run: Run, n_draws: int, log_prob: Estimate, method: str) -> SamplingResult:
    """The first draws of a run, with a log probability that may come from more than these."""
    # With a leading direction tails decide: replicates that all lack them agree too well.
    replicate = np.arange(n_draws) // run.sets.size if run.sets.mirrored else None
    return SamplingResult(
        run.u[:, :n_draws], run.log_weights[:n_draws], log_prob, method, replicate
    )


def more_batches(
    run: Run,
    proposal: Proposal,
    rng: np.random.Generator,
    wanted: float,
    max_doubled: int,
) -> Estimate:
    """Double the draws behind the probability until its standard error is at most `wanted`."""
    estimate, sets = run.log_prob, run.sets
    batches = [run.log_weights]
    while not estimate.std_error <= wanted and len(batches) < max_doubled:
        batches += [
            proposal.draw(sets.points(proposal.n_dims, rng), overwrite_points=True)[1]
            for _ in batches
        ]
        estimate = _estimate(proposal, np.concatenate(batches), sets.n_replicates * len(batches))
    return estimate


def temper_in_batches(
    proposal: Proposal,
    n_draws: int,
    rng: np.random.Generator,
    wanted: float,
    settings: SamplerSettings,
) -> SamplingResult:
    """Temper until the standard error is at most `wanted`, or too large for more batches to help.

    Draws are weighted by their replicate.
    """
    size = -(-max(n_draws, MIN_DRAWS) // N_REPLICATES)
    u: list[FloatArray] = []
    log_probs = np.empty(0)
    worst_k = -np.inf
    for _ in range(settings.max_tempered):
        # Resampling separates mirrored pairs: none here.
        points = uniform_points(proposal.n_dims, size, N_REPLICATES, rng)
        batch = temper(proposal, points, N_REPLICATES, rng)
        u.append(batch.u)
        log_probs = np.append(log_probs, batch.log_probs)
        worst_k = max(worst_k, batch.pareto_k)
        value = log_mean_exp(log_probs)
        std_error = spread_of_replicates(log_probs, value)
        if std_error <= wanted or std_error > settings.abandon_se:
            break
    draws = np.concatenate(u, axis=1)
    replicate = np.repeat(np.arange(log_probs.size), draws.shape[1] // log_probs.size)
    # As many of each replicate, and replicates together, so that chains cut from the draws do not
    # share ancestors.
    chosen = np.arange(n_draws) * draws.shape[1] // n_draws
    replicate = replicate[chosen]
    # Independent draws that would give the evidence this error: particles share ancestors, and
    # their weights alone would give a relative ESS of 1.
    fraction = 1.0 / (1.0 + draws.shape[1] * std_error**2)
    estimate = Estimate(value, std_error, fraction, max(worst_k, pareto_k(log_probs)))
    return SamplingResult(draws[:, chosen], log_probs[replicate], estimate, "tempered", replicate)
