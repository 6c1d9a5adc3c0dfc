"""From a rectangle to weighted draws and a log probability: which sampler, when, and how sure.

The ladder, each rung only when the one before is not good enough:

1. the twisted sampler with EP's own sites, and a leading direction where the target is skewed;
2. a wider proposal (relaxed sites, a flatter leading direction), picked by short pilot runs;
3. tempering from that proposal, in as many batches as the standard error asks for.

What is fitted (EP, proposals) depends on the problem alone, never on draws: it is fitted once, and
serves the probability and all draws that follow.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from pymc_skewgp._errors import DoublePrecisionError
from pymc_skewgp._gaussian.operators.covariance import Covariance
from pymc_skewgp._gaussian.points import mirrored_points, uniform_points
from pymc_skewgp._gaussian.proposals.ep import EPResult, fit_ep
from pymc_skewgp._gaussian.proposals.ep_gradient import ep_gradient
from pymc_skewgp._gaussian.proposals.tempering import temper
from pymc_skewgp._gaussian.proposals.twisted import TwistedProposal, twist
from pymc_skewgp._gaussian.proposals.unseen import unseen_share
from pymc_skewgp._gaussian.weights import (
    Estimate,
    IntArray,
    log_mean_exp,
    pareto_k,
    replicate_estimate,
    spread_of_replicates,
)
from pymc_skewgp._threads import few_blas_threads
from pymc_skewgp._validation import FloatArray

Goal = Literal["draws", "probability"]

# Sixteen, for the yardstick of an error is then Student's t with 15 degrees of freedom: 6 % beyond
# two standard errors and .1 % beyond four, where 7 degrees have 9 % and .5 %.
N_REPLICATES = 16
# Of a standard deviation. Thousands of sites err together: ten times this shows in the weights.
_EP_TOLERANCE = 1e-3
_MIN_DRAWS = 8 * N_REPLICATES  # fewer would leave nothing to estimate an error from
# From a thousand draws on each replicate has as many points as even spacing asks for, where rows
# are few enough that drawing is a small part of the time.
_EVEN_DRAWS, _FROM_DRAWS, _FEW_ROWS = 128 * N_REPLICATES, 1000, 512
_PILOT_DRAWS, _PILOT_SEED = 64 * N_REPLICATES, 0
# On the first rung the leading direction is drawn from its density to this power, where it is
# farther than this from EP's Gaussian: heavier tails than the target's cost two hundredths of the
# relative ESS, and the error is that of the draws, not of a tail that all of them missed. The
# rule must not look at the draws.
DEFENCE: dict[str, Any] = {"power": 0.8, "least_divergence": 1e-3}
# (relaxation of the sites, power of the leading direction's density) to choose from on the second.
_WIDER = ((1.0, 0.64), (0.6, 0.64), (0.35, 0.64), (0.6, None), (0.35, None))
# Relative ESS that ends the ladder on the first rung; draws are resampled, so half is enough
# for them, while for a probability quasi-Monte Carlo gains more on the second rung.
_ENOUGH = {"draws": 0.5, "probability": 0.95}
# Rows above which to twist anew takes longer than thrice as many draws would, and the fraction that
# is enough for draws then. Below it draws temper from the first proposal, whose leading direction
# has bounded its tail: at N = 5000 two stages and 9 s, where a wider one took three, 22 s and its
# own factorisation. A probability tries this wider one.
_LARGE, _ENOUGH_OF_LARGE = 2000, 0.2
_WIDER_OF_LARGE = ((0.6, 0.64),)
_COLLAPSED = {"draws": 0.3, "probability": 0.1}  # below: temper
_SURE_ENOUGH = 0.003  # nats: no need to climb for less
_WORST_ERROR = 0.1  # nats: sampling goes on, and a warning is due, above this
# Relative ESS from which a heavy tail of the weights, if there is one, moves few draws.
_NEARLY_EQUAL = 0.5
_UNRELIABLE_K = 0.7
_TOO_FAR = (
    "{}: limits and covariance are too far apart for double precision. Check their units, and drop "
    "limits that are out of all reach."
)
_MAX_BATCHES = 8  # of tempering
_HOPELESS = 3.0  # nats: an error of one batch that seven more would not make a small one
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
    replicate : ndarray of int, shape (n_draws,)
        The independent randomisation that each draw comes from, in ascending order.
    """

    u: FloatArray
    log_weights: FloatArray
    log_prob: Estimate
    method: str
    ep: EPResult
    replicate: IntArray


class RectangleSampler:
    """N(0, cov) within limits: proposals fitted once, draws as often as wanted.

    Parameters
    ----------
    cov : Covariance
        Covariance of the untruncated Gaussian.
    lower, upper : ndarray, shape (n,)
        Limits, infinities allowed, ``lower < upper``.
    """

    def __init__(self, cov: Covariance, lower: FloatArray, upper: FloatArray) -> None:
        self.cov, self.lower, self.upper = cov, lower, upper
        self._wider: dict[Goal, tuple[TwistedProposal, Estimate]] = {}

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.lower.size

    @property
    def fitted(self) -> bool:
        """Whether the first proposal has been made."""
        return "first" in self.__dict__

    @cached_property
    def ep(self) -> EPResult:
        """EP's fixed point."""
        return fit_ep(self.cov, self.lower, self.upper, tol=_EP_TOLERANCE)

    @cached_property
    def first(self) -> TwistedProposal:
        """The first rung's proposal."""
        return twist(self.cov, self.ep, self.lower, self.upper, **DEFENCE)

    def sample(
        self,
        n_draws: int,
        rng: np.random.Generator,
        *,
        goal: Goal,
        rtol: float | None = None,
    ) -> SamplingResult:
        """Draw, and estimate the probability of the limits.

        Parameters
        ----------
        n_draws : int
            Weighted draws wanted.
        rng : numpy.random.Generator
            Source of the randomisation.
        goal : {"draws", "probability"}
            What to spend effort on where the two differ.
        rtol : float, optional
            Standard error of the log probability to reach, by more batches of draws. Default 0.1.

        Returns
        -------
        SamplingResult
            Its ``log_prob.std_error`` may exceed `rtol`: 64 batches of draws, or 8 of tempering,
            are the most it spends.
        """
        wanted = rtol or _WORST_ERROR
        with few_blas_threads(self.size):
            result = self._climb(n_draws, rng, goal, wanted)
        if not self.cov.jitter:
            return result
        error = float(np.hypot(result.log_prob.std_error, self._jitter_effect))
        return replace(result, log_prob=result.log_prob._replace(std_error=error))

    def _climb(
        self, n_draws: int, rng: np.random.Generator, goal: Goal, wanted: float
    ) -> SamplingResult:
        """The ladder."""
        least = _EVEN_DRAWS if n_draws >= _FROM_DRAWS and self.size <= _FEW_ROWS else 0
        proposal = self.first
        result, log_weights = _run(proposal, self.ep, n_draws, rng, "twisted", least)
        if not _good(result.log_prob, goal, self.size):
            if goal == "draws" and self.size > _LARGE:
                return _temper_in_batches(proposal, self.ep, n_draws, rng, wanted)
            proposal, pilot = self._pick_wider(goal)
            # By the pilot alone: to drop a run because it met the tail would be a bias.
            if pilot.relative_ess < _COLLAPSED[goal] or heavy_tailed(pilot):
                return _temper_in_batches(proposal, self.ep, n_draws, rng, wanted)
            result, log_weights = _run(proposal, self.ep, n_draws, rng, "twisted (relaxed)", least)
        return _more_batches(result, log_weights, proposal, rng, wanted)

    @cached_property
    def _jitter_effect(self) -> float:
        """What the log probability changes by, by EP's gradient, where jitter was added.

        Twice the first order: of a singular matrix the probability goes with the root of the
        jitter, whose slope at what was added is half of what it did.
        """
        slope = ep_gradient(self.cov, self.ep, self.lower, self.upper).cov.diagonal()
        return float(2.0 * abs(self.cov.jitter * (slope @ self.cov.diagonal())))

    def _pick_wider(self, goal: Goal) -> tuple[TwistedProposal, Estimate]:
        """The wider proposal whose pilot run does best, and that run, which is not used again.

        Among light tails the largest relative ESS or the smallest error; else the lightest
        tail. The pilots have a seed of their own: the choice is the problem's, not the caller's.
        """
        if goal in self._wider:
            return self._wider[goal]
        rng = np.random.default_rng(_PILOT_SEED)
        pilots = []
        for relax, power in _WIDER if self.size <= _LARGE else _WIDER_OF_LARGE:
            proposal = twist(self.cov, self.ep, self.lower, self.upper, relax=relax, power=power)
            pilot, _ = _run(proposal, self.ep, _PILOT_DRAWS, rng, "pilot")
            pilots.append((proposal, pilot.log_prob))

        def score(pilot: tuple[TwistedProposal, Estimate]) -> tuple[bool, float]:
            estimate = pilot[1]
            if heavy_tailed(estimate):
                return False, -estimate.pareto_k
            return True, estimate.relative_ess if goal == "draws" else -estimate.std_error

        self._wider[goal] = max(pilots, key=score)
        return self._wider[goal]


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
    """Draw once from N(0, cov) within limits: see `RectangleSampler.sample`."""
    sampler = RectangleSampler(cov, lower, upper)
    return sampler.sample(n_draws, rng, goal=goal, rtol=rtol)


def heavy_tailed(estimate: Estimate) -> bool:
    """Whether the weights have a tail that their own statistics cannot be trusted with."""
    return not (estimate.pareto_k < _UNRELIABLE_K or estimate.relative_ess >= _NEARLY_EQUAL)


def _good(estimate: Estimate, goal: Goal, size: int) -> bool:
    """Whether the first rung will do.

    The Pareto shape is noisy, and runs that met the tail are the ones it would drop: for draws the
    heavier tails of the leading direction bound the weights instead.
    """
    enough = estimate.relative_ess >= _ENOUGH[goal]
    if goal == "draws":
        light = estimate.relative_ess >= _ENOUGH_OF_LARGE and estimate.pareto_k < _UNRELIABLE_K
        return enough or (size > _LARGE and light)
    sure = estimate.std_error <= _SURE_ENOUGH and estimate.pareto_k < _UNRELIABLE_K
    return enough or sure


def _points(proposal: TwistedProposal, n_draws: int, rng: np.random.Generator) -> FloatArray:
    """Points for `n_draws` draws or a few more, in replicates of equal, even size.

    Without a leading direction half of each replicate mirrors the other half: what EP's Gaussian
    lacks first is skewness, whose effect on the weights is odd and cancels within a pair. The
    evenly spaced points of a leading direction do better alone.
    """
    half = -(-max(n_draws, _MIN_DRAWS) // (2 * N_REPLICATES))
    if proposal.first is None:
        return mirrored_points(proposal.n_dims, half, N_REPLICATES, rng)
    return uniform_points(proposal.n_dims, 2 * half, N_REPLICATES, rng)


def _run(
    proposal: TwistedProposal,
    ep: EPResult,
    n_draws: int,
    rng: np.random.Generator,
    method: str,
    least: int = 0,
) -> tuple[SamplingResult, FloatArray]:
    """A run, and the log weights of all its draws: `least` or more, of which `n_draws` are kept."""
    points = _points(proposal, max(n_draws, least), rng)
    u, log_weights = proposal.draw(points, overwrite_points=True)
    if not np.isfinite(log_weights).all():
        raise DoublePrecisionError(_TOO_FAR.format("the importance weights are not finite"))
    estimate = _estimate(proposal, log_weights, N_REPLICATES)
    # A mean weight is a probability: above 1 beyond its error it is round-off.
    if not estimate.value <= 1.0 + 10.0 * estimate.std_error:
        found = f"the log probability came out as {estimate.value:.3g}, above 0"
        raise DoublePrecisionError(_TOO_FAR.format(found))
    replicate = np.repeat(np.arange(N_REPLICATES), log_weights.size // N_REPLICATES)[:n_draws]
    result = SamplingResult(u[:, :n_draws], log_weights[:n_draws], estimate, method, ep, replicate)
    return result, log_weights


def _estimate(proposal: TwistedProposal, log_weights: FloatArray, n_replicates: int) -> Estimate:
    """Log of the mean weight; its error allows for what all replicates may have missed."""
    estimate = replicate_estimate(log_weights, n_replicates)
    unseen = unseen_share(proposal, log_weights.size)
    return estimate._replace(std_error=float(np.hypot(estimate.std_error, unseen)))


def _more_batches(
    result: SamplingResult,
    log_weights: FloatArray,
    proposal: TwistedProposal,
    rng: np.random.Generator,
    wanted: float,
) -> SamplingResult:
    """Double the draws behind the probability until its standard error is as `wanted`."""
    batches = [log_weights]
    while not result.log_prob.std_error <= wanted and len(batches) < _MAX_DOUBLED:
        batches += [
            proposal.draw(_points(proposal, log_weights.size, rng), overwrite_points=True)[1]
            for _ in batches
        ]
        estimate = _estimate(proposal, np.concatenate(batches), N_REPLICATES * len(batches))
        result = replace(result, log_prob=estimate)
    return result


def _temper_in_batches(
    proposal: TwistedProposal,
    ep: EPResult,
    n_draws: int,
    rng: np.random.Generator,
    rtol: float,
) -> SamplingResult:
    """Run tempering until the standard error is `rtol`, or beyond hope.

    Draws are weighted by their replicate.
    """
    u: list[FloatArray] = []
    log_probs = np.empty(0)
    worst_k = -np.inf
    for _ in range(_MAX_BATCHES):
        # Resampling parts pairs: no mirrored points here.
        size = N_REPLICATES * (-(-max(n_draws, _MIN_DRAWS) // N_REPLICATES))
        points = uniform_points(proposal.n_dims, size // N_REPLICATES, N_REPLICATES, rng)
        batch = temper(proposal, points, N_REPLICATES, rng)
        u.append(batch.u)
        log_probs = np.append(log_probs, batch.log_probs)
        worst_k = max(worst_k, batch.pareto_k)
        value = log_mean_exp(log_probs)
        std_error = spread_of_replicates(log_probs, value)
        if std_error <= rtol or std_error > _HOPELESS:
            break
    draws = np.concatenate(u, axis=1)
    replicate = np.repeat(np.arange(log_probs.size), draws.shape[1] // log_probs.size)
    # As many of each replicate, and replicates together, so that chains cut from the draws do not
    # share ancestors.
    chosen = np.arange(n_draws) * draws.shape[1] // n_draws
    replicate = replicate[chosen]
    # Independent draws that would give the evidence this error: the honest count behind particles
    # that share ancestors, whose weights alone would say 1.
    fraction = 1.0 / (1.0 + draws.shape[1] * std_error**2)
    worst_k = max(worst_k, pareto_k(log_probs))
    return SamplingResult(
        draws[:, chosen],
        log_probs[replicate],
        Estimate(value, std_error, fraction, worst_k),
        "tempered",
        ep,
        replicate,
    )
