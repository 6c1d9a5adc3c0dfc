"""The escalation policy: from a rectangle to weighted draws and a log probability.

Each rung is tried only when the one before is not good enough:

1. the twisted sampler with EP's own sites, and a leading direction where the target is skewed;
2. a wider proposal (relaxed sites, a flatter leading direction), picked by short pilot runs;
3. tempering from that proposal, in as many batches as the standard error asks for.

What is fitted (EP, proposals) depends on the problem alone, never on draws. It is fitted once, and
serves the probability and all draws that follow.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from pymc_skewgp._errors import DoublePrecisionError
from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian import weights as w
from pymc_skewgp._gaussian.covariance import Covariance, DenseCovariance
from pymc_skewgp._gaussian.ep import EPResult, ep_gradient, fit_ep
from pymc_skewgp._gaussian.ep_dense import dense_ep
from pymc_skewgp._gaussian.tempering import Proposal, temper
from pymc_skewgp._gaussian.twisted import Rung, TwistedProposal, twist_by_covariance
from pymc_skewgp._limits import few_blas_threads
from pymc_skewgp._validation import FloatArray

# The escalation policy: which proposal is tried, when it is accepted, and what comes next.
#
# All samplers follow it. A *rung* is a proposal made from EP's sites, plain or widened. Rungs are
# tried in order by short runs until one is accepted; where none is, the draws are tempered from the
# best. Every threshold stands in `SamplerSettings`, which is passed in.

Goal = Literal["draws", "probability"]
# Nats by which round-off may move a log probability; the samplers warn of a standard error above.
LARGEST_EFFECT = 0.1
_FIRST = Rung(power=0.8, least_divergence=1e-3)


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
    first: Rung = _FIRST
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

    def accepts_first(self, estimate: w.Estimate, goal: Goal, n_rows: int) -> bool:
        """Whether the run of the first rung is the result.

        The Pareto shape is noisy, and runs that met the tail are the ones it would drop: for draws
        the heavier tails of the leading direction bound the weights instead.
        """
        if estimate.relative_ess >= self.of_goal(goal).accept:
            return True
        if not estimate.pareto_k < w.UNRELIABLE_K:
            return False
        if goal == "draws":
            return n_rows > self.large and estimate.relative_ess >= self.accept_large
        return estimate.std_error <= self.target_se

    def tempers(self, pilot: w.Estimate, goal: Goal) -> bool:
        """Whether the best wider proposal is only the start of tempering, by its pilot alone.

        To drop a run because it met the tail would be a bias.
        """
        return pilot.relative_ess < self.of_goal(goal).temper or pilot.heavy_tailed


DEFAULT = SamplerSettings()


def pilot_score(pilot: w.Estimate, goal: Goal) -> float:
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
    >>> from pymc_skewgp._gaussian.escalation import Rung, first_accepted
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
    points = w.random_points(proposal.n_dims, n_draws, rng)
    return proposal.draw(points, overwrite_points=True)[1]


def steps_to_forget(log_weights: FloatArray, bias: float) -> int:
    """Steps after which independence Metropolis has forgotten its start up to `bias`.

    It does so at the rate 1 - 1/w, with w the largest weight over the mean one (Mengersen & Tweedie
    1996, doi:10.1214/aos/1033066201), here of a pilot run.
    """
    accepted = float(w.scaled_weights(log_weights).mean())
    if accepted > 1.0 - bias:
        return 1 if accepted < 1.0 else 0
    return int(np.ceil(np.log(bias) / np.log1p(-accepted)))


# Weighted draws from one proposal: a run, more batches of it, and tempering where it is too poor.
#
# A run consists of replicates, independent randomisations of one point set. Their spread is the
# standard error.

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
        "twisted", "twisted (relaxed)", "tempered" or "filtered".
    replicate : ndarray of int, shape (n_draws,), or None
        Equal numbers for draws that depend on each other: those of one set of mirrored points, or
        of one tempered run. None where draws are as good as independent.
    """

    u: FloatArray
    log_weights: FloatArray
    log_prob: w.Estimate
    method: str
    replicate: w.IntArray | None


class PointSets(NamedTuple):
    """Replicates, each of `size` points, of which half may mirror the other half."""

    n_replicates: int
    size: int
    mirrored: bool

    def points(self, n_dims: int, rng: np.random.Generator) -> FloatArray:
        """Points as columns, one replicate after another."""
        if self.mirrored:
            return w.mirrored_points(n_dims, self.size // 2, self.n_replicates, rng)
        return w.uniform_points(n_dims, self.size, self.n_replicates, rng)


class Run(NamedTuple):
    """Draws of one run as columns, their log weights, and the log probability they give."""

    u: FloatArray
    log_weights: FloatArray
    log_prob: w.Estimate
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


def _estimate(proposal: Proposal, log_weights: FloatArray, n_replicates: int) -> w.Estimate:
    """Log of the mean weight; its error allows for what all replicates may have missed."""
    estimate = w.replicate_estimate(log_weights, n_replicates)
    unseen = proposal.unseen_share(log_weights.size)
    return estimate._replace(std_error=float(np.hypot(estimate.std_error, unseen)))


def kept(run: Run, n_draws: int, log_prob: w.Estimate, method: str) -> SamplingResult:
    """The first draws of a run, with a log probability that may come from more than these."""
    # With a leading direction tails decide: replicates that all lack them agree too well.
    replicate = np.arange(n_draws) // run.sets.size if run.sets.mirrored else None
    return SamplingResult(
        run.u[:, :n_draws], run.log_weights[:n_draws], log_prob, method, replicate
    )


def more_batches(
    run: Run, proposal: Proposal, rng: np.random.Generator, wanted: float, max_doubled: int
) -> w.Estimate:
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
        points = w.uniform_points(proposal.n_dims, size, N_REPLICATES, rng)
        batch = temper(proposal, points, N_REPLICATES, rng)
        u.append(batch.u)
        log_probs = np.append(log_probs, batch.log_probs)
        worst_k = max(worst_k, batch.pareto_k)
        value = w.log_mean_exp(log_probs)
        std_error = w.spread_of_replicates(log_probs, value)
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
    estimate = w.Estimate(value, std_error, fraction, max(worst_k, w.pareto_k(log_probs)))
    return SamplingResult(draws[:, chosen], log_probs[replicate], estimate, "tempered", replicate)


# Residual of EP, in standard deviations and log variances, that round-off in a matrix brings about:
# steps that overshoot are off by some ten. Log probabilities are then below -1e7 or meaningless.
_NO_FIXED_POINT = 1e4


class RectangleSampler:
    """N(0, cov) within limits: proposals fitted once, draws as often as wanted.

    Parameters
    ----------
    cov : Covariance
        Covariance of the untruncated Gaussian.
    lower, upper : float or ndarray, shape (n,)
        Limits, infinities allowed, ``lower < upper``. A number stands for all rows.
    settings : SamplerSettings
        Thresholds of the escalation policy.
    """

    def __init__(
        self,
        cov: Covariance,
        lower: FloatArray | float,
        upper: FloatArray | float,
        settings: SamplerSettings = DEFAULT,
    ) -> None:
        self.cov, self.settings = cov, settings
        self.lower, self.upper = linalg.row_limits(lower, upper, cov.size)
        self._wider: dict[Goal, tuple[Proposal, w.Estimate]] = {}

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
        """EP's fixed point.

        Raises
        ------
        DoublePrecisionError
            Where round-off in a dense matrix has left nothing of it: equal weights mean nothing.
        """
        ep = fit_ep(self.cov, self.lower, self.upper, tol=self.settings.ep_tolerance)
        if isinstance(self.cov, DenseCovariance) and not ep.residual < _NO_FIXED_POINT:
            raise DoublePrecisionError(
                TOO_FAR.format(f"expectation propagation's moments are off by {ep.residual:.2g}")
            )
        return ep

    @cached_property
    def first(self) -> Proposal:
        """The first rung's proposal."""
        return self._twist(self.settings.first)

    def sample(
        self, n_draws: int, rng: np.random.Generator, *, goal: Goal, rtol: float | None = None
    ) -> SamplingResult:
        """Draw, and estimate the probability of the limits.

        Parameters
        ----------
        n_draws : int
            Weighted draws wanted.
        rng : numpy.random.Generator
            Source of the randomisation.
        goal : {"draws", "probability"}
            What to spend effort on where the two differ: equal weights, or a small error.
        rtol : float, optional
            Standard error of the log probability to reach, by more batches of draws. Default
            ``settings.largest_se``.

        Returns
        -------
        SamplingResult
            Its ``log_prob.std_error`` may exceed `rtol`: 64 batches of draws, or 8 of tempering,
            are the most it spends.
        """
        wanted = rtol or self.settings.largest_se
        with few_blas_threads(self.size):
            result = self._escalate(n_draws, rng, goal, wanted)
        if not self.cov.jitter:
            return result
        error = float(np.hypot(result.log_prob.std_error, self._jitter_effect))
        return replace(result, log_prob=result.log_prob._replace(std_error=error))

    def _escalate(
        self, n_draws: int, rng: np.random.Generator, goal: Goal, wanted: float
    ) -> SamplingResult:
        settings, proposal, method = self.settings, self.first, "twisted"
        run = run_once(proposal, point_sets(proposal, n_draws, self.size), rng)
        if not settings.accepts_first(run.log_prob, goal, self.size):
            if goal == "draws" and self.size > settings.large:
                return temper_in_batches(proposal, n_draws, rng, wanted, settings)
            proposal, pilot = self._pick_wider(goal)
            if settings.tempers(pilot, goal):
                return temper_in_batches(proposal, n_draws, rng, wanted, settings)
            method = "twisted (relaxed)"
            run = run_once(proposal, point_sets(proposal, n_draws, self.size), rng)
        log_prob = more_batches(run, proposal, rng, wanted, settings.max_doubled)
        return kept(run, n_draws, log_prob, method)

    @cached_property
    def _jitter_effect(self) -> float:
        """What the log probability changes by, by EP's gradient, where jitter was added.

        Twice the first order: of a singular matrix the probability goes with the root of the
        jitter, whose slope at what was added is half of what it did.
        """
        slope = ep_gradient(self.cov, self.ep, self.lower, self.upper).cov.diagonal()
        return float(2.0 * abs(self.cov.jitter * (slope @ self.cov.diagonal())))

    def _twist(self, rung: Rung) -> Proposal:
        return rung.twist(self.cov, self.ep, self.lower, self.upper)

    def _pick_wider(self, goal: Goal) -> tuple[Proposal, w.Estimate]:
        """The wider proposal whose pilot run does best, and that run, which is not used again."""
        if goal not in self._wider:
            settings = self.settings
            rng = np.random.default_rng(settings.pilot_seed)

            def pilot(rung: Rung) -> tuple[tuple[Proposal, w.Estimate], float]:
                proposal = self._twist(rung)
                estimate = run_once(
                    proposal, point_sets(proposal, settings.pilot_draws), rng
                ).log_prob
                return (proposal, estimate), pilot_score(estimate, goal)

            rungs = settings.wider if self.size <= settings.large else settings.wider_large
            self._wider[goal] = first_accepted(rungs, pilot).made
        return self._wider[goal]


# EP and the twisted sampler for many rectangles that are alike.


class Fitted(NamedTuple):
    """EP's fixed point, from which the next one begins, and its proposal."""

    ep: EPResult
    proposal: TwistedProposal


def twist_dense(
    matrix: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    *,
    tol: float,
    order: w.IntArray | None = None,
    start: EPResult | None = None,
) -> Fitted | None:
    """EP and `Rung.twist` from one factorisation, no leading direction; None where EP is stuck.

    Parameters
    ----------
    matrix : ndarray, shape (n, n)
        Positive definite.
    lower, upper : ndarray, shape (n,)
    tol, start
        As for `fit_ep`.
    order : ndarray of int, shape (n,), optional
        As for `Rung.twist`.
    """
    found = dense_ep(matrix, np.stack([lower, upper]), tol=tol, start=start)
    if found is None:
        return None
    try:
        return Fitted(found.ep, twist_by_covariance(found, lower, upper, order))
    except np.linalg.LinAlgError:
        return None
