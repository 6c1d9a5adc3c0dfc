"""From a rectangle to weighted draws and a log probability, by the escalation policy.

Each rung is tried only when the one before is not good enough:

1. the twisted sampler with EP's own sites, and a leading direction where the target is skewed;
2. a wider proposal (relaxed sites, a flatter leading direction), picked by short pilot runs;
3. tempering from that proposal, in as many batches as the standard error asks for.

What is fitted (EP, proposals) depends on the problem alone, never on draws. It is fitted once, and
serves the probability and all draws that follow.
"""

from dataclasses import replace
from functools import cached_property

import numpy as np

from pymc_skewgp._errors import DoublePrecisionError
from pymc_skewgp._gaussian.limits import row_limits
from pymc_skewgp._gaussian.operators.covariance import Covariance
from pymc_skewgp._gaussian.operators.dense import DenseCovariance
from pymc_skewgp._gaussian.proposals.ep import EPResult, fit_ep
from pymc_skewgp._gaussian.proposals.ep_gradient import ep_gradient
from pymc_skewgp._gaussian.proposals.policy import (
    DEFAULT,
    Goal,
    Rung,
    SamplerSettings,
    first_accepted,
    pilot_score,
)
from pymc_skewgp._gaussian.proposals.runs import (
    TOO_FAR,
    SamplingResult,
    kept,
    more_batches,
    point_sets,
    run_once,
    temper_in_batches,
)
from pymc_skewgp._gaussian.proposals.tempering import Proposal
from pymc_skewgp._gaussian.weights import Estimate
from pymc_skewgp._threads import few_blas_threads
from pymc_skewgp._validation import FloatArray

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
        self.lower, self.upper = row_limits(lower, upper, cov.size)
        self._wider: dict[Goal, tuple[Proposal, Estimate]] = {}

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

    def _pick_wider(self, goal: Goal) -> tuple[Proposal, Estimate]:
        """The wider proposal whose pilot run does best, and that run, which is not used again."""
        if goal not in self._wider:
            settings = self.settings
            rng = np.random.default_rng(settings.pilot_seed)

            def pilot(rung: Rung) -> tuple[tuple[Proposal, Estimate], float]:
                proposal = self._twist(rung)
                estimate = run_once(
                    proposal, point_sets(proposal, settings.pilot_draws), rng
                ).log_prob
                return (proposal, estimate), pilot_score(estimate, goal)

            rungs = settings.wider if self.size <= settings.large else settings.wider_large
            self._wider[goal] = first_accepted(rungs, pilot).made
        return self._wider[goal]


def sample_rectangle(
    cov: Covariance,
    lower: FloatArray | float,
    upper: FloatArray | float,
    n_draws: int,
    rng: np.random.Generator,
    *,
    goal: Goal,
    rtol: float | None = None,
    settings: SamplerSettings = DEFAULT,
) -> SamplingResult:
    """Draw once from N(0, cov) within limits: see `RectangleSampler.sample`."""
    sampler = RectangleSampler(cov, lower, upper, settings)
    return sampler.sample(n_draws, rng, goal=goal, rtol=rtol)
