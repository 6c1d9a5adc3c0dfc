"""A search for hyperparameters from the data to the report."""

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pymc_skewgp._gaussian.weights import Estimate
from pymc_skewgp._learn.coordinates import initial_values
from pymc_skewgp._learn.evaluation_log import EvaluationLog
from pymc_skewgp._learn.fit_report import HyperparameterFit
from pymc_skewgp._learn.optimizers import NoValueError
from pymc_skewgp._learn.phases import distinct_patterns, refuse_other_phases, separate_coincident
from pymc_skewgp._learn.point import Bounds, Point
from pymc_skewgp._learn.problem import Start, TrainingData, learning_problem
from pymc_skewgp._learn.search import SearchResult, search
from pymc_skewgp._learn.searched import Searched
from pymc_skewgp._learn.settings import SearchSettings
from pymc_skewgp._learn.standard_errors import standard_errors
from pymc_skewgp._learn.starts import spread_starts

# How far out an objective is looked at, and what it has to lose there, in nats, to have a maximum.
_FURTHER, _FALL = 100.0, 0.1


@dataclass(frozen=True)
class LearningRun:
    """A search that has ended.

    Attributes
    ----------
    objective : Objective or RowsObjective
    result : SearchResult
    bounds : list of pairs
    log : EvaluationLog
    settings : SearchSettings
    in_batches : bool
        Whether a composite likelihood was maximised.
    seconds : float
    fixed_from : LearningRun or None
        The one before it, whose values it left as they were.
    """

    objective: Searched
    result: SearchResult
    bounds: Bounds
    log: EvaluationLog
    settings: SearchSettings
    in_batches: bool
    seconds: float
    fixed_from: "LearningRun | None" = None

    @property
    def point(self) -> Point:
        """The optimum."""
        return self.result.optimum.point

    @property
    def values(self) -> dict[str, Any]:
        """The optimum by name."""
        return self.objective.named(self.point)

    @property
    def at_bound(self) -> list[str]:
        """Coordinates at the edge of the box."""
        rows = zip(self.objective.coordinates.labels, self.point.x, self.bounds, strict=True)
        own = [
            label
            for label, x, (low, high) in rows
            if low < high and min(x - low, high - x) < self.settings.at_bound
        ]
        return own + (self.fixed_from.at_bound if self.fixed_from else [])

    @property
    def flat(self) -> list[str]:
        """Coordinates that make up most of the directions with a small second derivative."""
        before = self.fixed_from.flat if self.fixed_from else []
        if self.result.hessian is None:
            return before
        values, vectors = np.linalg.eigh(self.result.hessian)
        share = (vectors[:, values < self.settings.flat_hessian] ** 2).sum(axis=1)
        labels = zip(self.objective.coordinates.labels, share, strict=True)
        at_bound = self.at_bound
        own = [label for label, part in labels if part > 0.5 and label not in at_bound]
        return own + before

    @property
    def converged(self) -> bool:
        """Whether it ended at an optimum, and the run before it did."""
        own = self.result.optimum.converged
        return own and (self.fixed_from is None or self.fixed_from.converged)

    def rise(self, name: str, away: float) -> float | None:
        """What the objective gains from a value of a positive variable on, if it has no maximum.

        All else is as found. None where it falls: by more than a tenth of a nat a hundredfold
        further out. So an optimum among values that do as well is one that a search happens to end
        at, but one that the objective still rises to, far out, is none.

        Parameters
        ----------
        name : str
            A coordinate that is a logarithm.
        away : float
            The value.
        """
        place = self.objective.coordinates.labels.index(name)
        here, low, high = self.point.x, self.point.x.copy(), self.point.x.copy()
        low[place] = min(np.log(away), here[place])
        high[place] += np.log(_FURTHER)
        best, before, beyond = (
            self.objective.total_by_ep(self.point.at(x))[0] for x in (here, low, high)
        )
        return best - before if beyond > best - _FALL else None

    def estimate(self) -> Estimate:
        """Log evidence, or composite likelihood, at the optimum, from draws of its own."""
        n_draws = self.settings.evidence_draws
        return self.objective.estimate(self.point, n_draws, self.settings.seed)

    def report(self, log_marginal_likelihood: Estimate) -> HyperparameterFit:
        """All of it, in the user's terms."""
        errors = {}
        # A composite likelihood counts batches as independent, which they are not: standard errors
        # from its Hessian would be a third of what they should be.
        if not self.in_batches:
            errors = standard_errors(
                self.objective.named, self.point, self.result.hessian, self.settings.flat_hessian
            )
        return HyperparameterFit(
            point=self.values,
            log_marginal_likelihood=log_marginal_likelihood,
            log_prior=self.objective.log_prior(self.point),
            std_error=errors,
            kind="composite" if self.in_batches else "evidence",
            converged=self.converged,
            at_bound=self.at_bound,
            flat=self.flat,
            runs=self.log.runs(),
            path=self.log.path(),
            seconds=self.seconds + (self.fixed_from.seconds if self.fixed_from else 0.0),
            improper_priors=list(self.objective.density_one),
        )


def learn(
    data: TrainingData,
    settings: SearchSettings,
    rng: np.random.Generator,
    *,
    start: Start = None,
    centre: Start = None,
    fixed_from: LearningRun | None = None,
    progressbar: bool = False,
) -> LearningRun:
    """`find_hyperparameters` for checked settings, without the evidence's own estimate.

    Parameters
    ----------
    data : TrainingData
    settings : SearchSettings
        The seed of the twisted draws is drawn from `rng`.
    rng : numpy.random.Generator
        Of batches, restarts and draws.
    start, centre : mapping, optional
        Values by name. The box lies around `centre`, `start` where none is given: a search that
        goes on from another is not to leave its box.
    fixed_from : LearningRun, optional
        Its continuous variables stay as it has found them.
    progressbar : bool
    """
    began = time.perf_counter()
    problem = learning_problem(data, settings, rng, start)
    coordinates = problem.objective.coordinates
    origin = separate_coincident(problem.origin, problem.places, rng)
    middle = origin
    if centre is not None:
        model, continuous = coordinates.model, coordinates.continuous
        middle = coordinates.vector(initial_values(model, continuous, centre))
    fixed = fixed_from.values if fixed_from else ()
    bounds = coordinates.bounds(middle, settings.start.half_width, fixed)
    origin = np.clip(origin, *np.transpose(bounds)) if bounds else origin
    patterns = coordinates.patterns(settings.start.max_binary)
    cheap: Searched = problem.objective if problem.part is None else problem.part.objective
    first = Point(origin, patterns[0])
    vectors = spread_starts(cheap, first, settings.n_restarts, settings.start, rng)
    settings = replace(settings, seed=int(rng.integers(2**31)))
    for pattern in patterns:
        refuse_other_phases(cheap, Point(origin, pattern), problem.of_process)
    patterns = distinct_patterns(cheap, origin, patterns, problem.places, settings.start)
    starts = [Point(x, pattern) for pattern in patterns for x in vectors]
    with EvaluationLog(coordinates.labels, progressbar) as log:
        if problem.rows is None:
            objective: Searched = problem.objective
            try:
                result = search(problem.objective, problem.part, starts, bounds, settings, log)
            except NoValueError as error:
                why = problem.objective.why_no_value(starts[0])
                raise NoValueError(why or str(error)) from None
        else:
            assert problem.part is not None
            objective, result = problem.rows.search(problem.part, starts, bounds, settings, log)
    seconds = time.perf_counter() - began
    in_batches = settings.batch_size is not None
    return LearningRun(objective, result, bounds, log, settings, in_batches, seconds, fixed_from)
