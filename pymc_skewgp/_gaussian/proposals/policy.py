"""The escalation policy: which proposal is tried, when it is accepted, and what comes next.

All samplers follow it. A *rung* is a proposal made from EP's sites, plain or widened. Rungs are
tried in order by short runs until one is accepted; where none is, the draws are tempered from the
best. Every threshold stands in `SamplerSettings`, which is passed in.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from pymc_skewgp._gaussian.operators.covariance import Covariance
from pymc_skewgp._gaussian.points import random_points
from pymc_skewgp._gaussian.proposals.ep import EPResult
from pymc_skewgp._gaussian.proposals.tempering import Proposal
from pymc_skewgp._gaussian.proposals.twisted import TwistedProposal, twist
from pymc_skewgp._gaussian.weights import UNRELIABLE_K, Estimate, IntArray, scaled_weights
from pymc_skewgp._validation import FloatArray

Goal = Literal["draws", "probability"]


@dataclass(frozen=True)
class Rung:
    """A proposal that is tried, and the score of its run from which it is accepted.

    Attributes
    ----------
    relax, power, least_divergence
        Widths of the proposal: see `pymc_skewgp._gaussian.proposals.twisted.twist`.
    accept : float
        Score (a relative ESS, where nothing else is said) from which the rungs that follow are not
        tried. Infinite by default: all rungs are tried, and the best one is taken.
    """

    relax: float = 1.0
    power: float | None = None
    least_divergence: float = 0.0
    accept: float = np.inf

    def twist(
        self,
        cov: Covariance,
        ep: EPResult,
        lower: FloatArray,
        upper: FloatArray,
        order: IntArray | None = None,
    ) -> TwistedProposal:
        """The proposal of this rung from EP's sites, rows drawn in `order`."""
        return twist(
            cov,
            ep,
            lower,
            upper,
            relax=self.relax,
            power=self.power,
            least_divergence=self.least_divergence,
            order=order,
        )


@dataclass(frozen=True)
class GoalSettings:
    """Relative ESS at which runs for one goal are accepted or tempered.

    Attributes
    ----------
    accept : float
        From here on the first rung's run is the result.
    temper : float
        Where the best pilot of the wider rungs is below it, its proposal is only the start of
        tempering.
    """

    accept: float
    temper: float


@dataclass(frozen=True)
class SamplerSettings:
    """Thresholds of the escalation policy. Standard errors are those of log probabilities, in nats.

    Attributes
    ----------
    ep_tolerance : float
        Residual at which EP stops, in standard deviations. Thousands of sites err together: ten
        times the default shows in the weights.
    first : Rung
        First rung of `RectangleSampler`. Its leading direction is drawn from the power .8 of its
        density, where that is farther than 1e-3 from EP's Gaussian. Heavier tails than the
        target's cost two hundredths of the relative ESS; in exchange the error is that of the
        draws, not of a tail that all of them missed. The rule must not look at the draws.
    wider : tuple of Rung
        Rungs that follow. Pilot runs decide between them.
    draws, probability : GoalSettings
        When to go on, by goal. Draws are resampled, so that half the effective size is enough for
        them. For a probability quasi-Monte Carlo gains more on the second rung.
    target_se : float
        A probability whose standard error is below it needs no second rung.
    largest_se : float
        Above it batches are added, and a warning is due.
    abandon_se : float
        Error of one tempered batch beyond which seven more would not help.
    max_tempered, max_doubled : int
        Most batches of tempered and of plain draws.
    large : int
        Rows above which to twist anew takes longer than three times as many draws would. Draws then
        temper from the first proposal, whose leading direction has bounded its tail: for 5000 rows
        two stages and 9 s, where a wider one took three stages, 22 s and its own factorisation.
    accept_large : float
        In place of ``draws.accept`` for more rows, if the tail of the weights is light.
    wider_large : tuple of Rung
        In place of `wider`, for probabilities of more rows.
    pilot_draws, pilot_seed : int
        Of the pilot run of each wider rung: a seed of its own, for the choice is the problem's,
        not the caller's.
    gradient_rungs : tuple of Rung
        Rungs of the log probability with gradient. Where its value passes from one to the next it
        jumps by its own standard error, a few hundredths of a nat at 256 draws.
    move_rungs : tuple of Rung
        Rungs of independence Metropolis moves on a vector within a model.
    move_pilot_draws : int
        Draws of the pilot run of each.
    rejection_values : int
        Numbers asked for up to which independent draws are accepted or rejected one by one, which
        then takes less time than to fit a proposal.
    chain_pilot_draws : int
        Draws of the pilot run that says how long the chains of independent draws have to be.
    chain_bias : float
        Distance in total variation that these chains may keep from the target.
    max_chain_steps : int
        Length beyond which tempering costs less.
    """

    ep_tolerance: float = 1e-3
    first: Rung = Rung(power=0.8, least_divergence=1e-3)
    wider: tuple[Rung, ...] = (
        Rung(1.0, 0.64),
        Rung(0.6, 0.64),
        Rung(0.35, 0.64),
        Rung(0.6),
        Rung(0.35),
    )
    draws: GoalSettings = GoalSettings(accept=0.5, temper=0.3)
    probability: GoalSettings = GoalSettings(accept=0.95, temper=0.1)
    target_se: float = 0.003
    largest_se: float = 0.1
    abandon_se: float = 3.0
    max_tempered: int = 8
    max_doubled: int = 64
    large: int = 2000
    accept_large: float = 0.2
    wider_large: tuple[Rung, ...] = (Rung(0.6, 0.64),)
    pilot_draws: int = 1024
    pilot_seed: int = 0
    gradient_rungs: tuple[Rung, ...] = (
        Rung(1.0, accept=0.7),
        Rung(0.6, accept=0.5),
        Rung(0.35, accept=0.1),
    )
    move_rungs: tuple[Rung, ...] = (
        Rung(1.0, accept=0.7),
        Rung(0.6, accept=0.7),
        Rung(0.35, accept=0.7),
    )
    move_pilot_draws: int = 128
    rejection_values: int = 64
    chain_pilot_draws: int = 256
    chain_bias: float = 1e-3
    max_chain_steps: int = 200

    def of_goal(self, goal: Goal) -> GoalSettings:
        """Thresholds of one goal."""
        return self.draws if goal == "draws" else self.probability

    def accepts_first(self, estimate: Estimate, goal: Goal, n_rows: int) -> bool:
        """Whether the run of the first rung is the result.

        The Pareto shape is noisy, and runs that met the tail are the ones it would drop: for draws
        the heavier tails of the leading direction bound the weights instead.
        """
        if estimate.relative_ess >= self.of_goal(goal).accept:
            return True
        if not estimate.pareto_k < UNRELIABLE_K:
            return False
        if goal == "draws":
            return n_rows > self.large and estimate.relative_ess >= self.accept_large
        return estimate.std_error <= self.target_se

    def tempers(self, pilot: Estimate, goal: Goal) -> bool:
        """Whether the best wider proposal is only the start of tempering, by its pilot alone.

        To drop a run because it met the tail would be a bias.
        """
        return pilot.relative_ess < self.of_goal(goal).temper or pilot.heavy_tailed


DEFAULT = SamplerSettings()


def pilot_score(pilot: Estimate, goal: Goal) -> float:
    """Of light-tailed pilots the relative ESS, or one over the error; else minus the tail shape."""
    if pilot.heavy_tailed:
        return -pilot.pareto_k
    if goal == "draws":
        return pilot.relative_ess
    return 1.0 / pilot.std_error if pilot.std_error > 0.0 else np.inf


class Attempt[T](NamedTuple):
    """What a rung made, its score, and whether that was enough."""

    made: T
    score: float
    accepted: bool


def first_accepted[T](rungs: Iterable[Rung], run: Callable[[Rung], tuple[T, float]]) -> Attempt[T]:
    """Try rungs in order until one is accepted.

    Parameters
    ----------
    rungs : iterable of Rung
        At least one.
    run : callable
        Makes something by a rung, a proposal or a whole run, and returns it with its score.

    Returns
    -------
    Attempt
        The one accepted; of several that are not, the first with the largest score.

    Examples
    --------
    >>> from pymc_skewgp._gaussian.proposals.policy import Rung, first_accepted
    >>> rungs = [Rung(1.0, accept=0.7), Rung(0.6, accept=0.7), Rung(0.35, accept=0.7)]
    >>> scores = {1.0: 0.2, 0.6: 0.8, 0.35: 0.9}
    >>> first_accepted(rungs, lambda rung: (rung.relax, scores[rung.relax]))
    Attempt(made=0.6, score=0.8, accepted=True)
    """
    best: Attempt[T] | None = None
    for rung in rungs:
        made, score = run(rung)
        if score >= rung.accept:
            return Attempt(made, score, True)
        if best is None or score > best.score:
            best = Attempt(made, score, False)
    if best is None:
        raise ValueError("there is no rung to try.")
    return best


def pilot_log_weights(proposal: Proposal, n_draws: int, rng: np.random.Generator) -> FloatArray:
    """Log weights of a run whose draws nobody sees, with plain random points."""
    points = random_points(proposal.n_dims, n_draws, rng)
    return proposal.draw(points, overwrite_points=True)[1]


def steps_to_forget(log_weights: FloatArray, bias: float) -> int:
    """Steps after which independence Metropolis has forgotten its start up to `bias`.

    It does so at the rate 1 - 1/w, with w the largest weight over the mean one (Mengersen & Tweedie
    1996, doi:10.1214/aos/1033066201), here of a pilot run.
    """
    accepted = float(scaled_weights(log_weights).mean())
    if accepted > 1.0 - bias:
        return 1 if accepted < 1.0 else 0
    return int(np.ceil(np.log(bias) / np.log1p(-accepted)))
