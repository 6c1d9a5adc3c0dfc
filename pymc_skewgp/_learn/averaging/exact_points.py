"""The exact evidence at points of hyperparameters, and draws of the latent functions there."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from xarray import DataTree

from pymc_skewgp._gaussian.short_path import short_path
from pymc_skewgp._gaussian.weights import (
    Estimate,
    IntArray,
    log_mean_exp,
    pareto_k,
    relative_ess,
    systematic_resample,
)
from pymc_skewgp._learn.averaging.tasks import Task, run_tasks
from pymc_skewgp._learn.averaging.weighted_points import WeightedPoints
from pymc_skewgp._learn.point import Point
from pymc_skewgp._posterior.draws_with_evidence import DrawsWithEvidence
from pymc_skewgp._validation import FloatArray


class HasTasks(Protocol):
    """Evidences, and draws of the functions, as a function of hyperparameters."""

    def tasks(self, points: Sequence[Point]) -> Iterator[list[Task]]:
        """What is to be computed at each point: the evidence is the product of its parts."""
        ...


class LatentFunctions(HasTasks, Protocol):
    """The latent functions of a model, as a function of its hyperparameters."""

    def tree(self, points: Sequence[Point], draws: "EqualDraws", rng: Any) -> DataTree:
        """Draws with equal weights, in groups."""
        ...


# Draws of f at points, so many at each.
MoreDraws = Callable[[Sequence[Point], Sequence[int]], list[FloatArray]]


class EqualDraws(NamedTuple):
    """Draws with equal weights.

    Attributes
    ----------
    point : ndarray of int, shape (chain, draw)
        Which of the points each has.
    f : ndarray, shape (chain, draw, q)
        Draws of the latent functions.
    log_evidence, relative_ess : ndarray, shape (chain, draw)
        At the point: by its own weighted draws, and how unequal these are.
    """

    point: IntArray
    f: FloatArray
    log_evidence: FloatArray
    relative_ess: FloatArray


class ExactPoints(NamedTuple):
    """Points with the exact evidence over EP's.

    Attributes
    ----------
    entries : ndarray of int, shape (P,)
        Which of the different points each of the P equal-weight ones under EP's evidence is.
    points : list of Point
        The different ones.
    log_ratio : ndarray, shape (U,)
        Log of the exact evidence over EP's, at these.
    found : list of DrawsWithEvidence
    """

    entries: IntArray
    points: list[Point]
    log_ratio: FloatArray
    found: list[DrawsWithEvidence]

    @property
    def log_weights(self) -> FloatArray:
        """Of the different points, under the exact evidence."""
        found: FloatArray = np.log(np.bincount(self.entries)) + self.log_ratio
        return found

    def correction(self) -> Estimate:
        """Log of the exact evidence of the model over EP's, with the weights' quality."""
        log_weights = self.log_ratio[self.entries]
        value = log_mean_exp(log_weights)
        if len(self.points) == 1:  # the draws there are all that is weighted
            own = self.found[0]
            return Estimate(value, own.std_error, own.relative_ess, -np.inf)
        shares = np.bincount(self.entries) / self.entries.size
        ratio = np.exp(self.log_ratio - value)
        own = shares * ratio * np.array([x.std_error for x in self.found])
        # Few points may agree by chance: no less than the points' own errors, part of the spread.
        error = float(np.sqrt(own @ own))
        if self.points[0].x.size:  # otherwise they are all the points there are, and no sample
            error = max(error, _error_of_mean(ratio, shares))
        return Estimate(value, error, relative_ess(log_weights), pareto_k(self.log_ratio))

    def equal_draws(
        self, chains: int, draws: int, more: "MoreDraws", rng: np.random.Generator
    ) -> EqualDraws:
        """Draws with equal weights; those that share their point stand side by side.

        Each has f of its own: where a point's correction is so large that those at hand do not
        suffice, `more` are made.
        """
        blocks = _dealt(self.entries, chains, rng)
        index = np.stack(
            [
                block[np.sort(systematic_resample(self.log_ratio[block], draws, rng))]
                for block in blocks
            ]
        )
        at_hand = [x.f for x in self.found]
        wanted = np.bincount(index.ravel(), minlength=len(self.points))
        lacking = wanted - [len(own) for own in at_hand]
        few = np.flatnonzero(lacking > 0)
        new = more([self.points[u] for u in few], lacking[few].tolist())
        for u, own in zip(few, new, strict=True):
            at_hand[u] = np.concatenate([at_hand[u], own])
        f = np.empty((index.size, at_hand[0].shape[1]))
        order = np.argsort(index.ravel(), kind="stable")
        f[order] = np.concatenate([own[:n] for own, n in zip(at_hand, wanted, strict=True)])
        f = f.reshape(*index.shape, -1)
        log_evidence = np.array([x.log_evidence for x in self.found])
        ess = np.array([x.relative_ess for x in self.found])
        return EqualDraws(index, f, log_evidence[index], ess[index])


def _dealt(entries: IntArray, chains: int, rng: np.random.Generator) -> list[IntArray]:
    """Those of each chain, in an order by chance: neighbours go to different halves of chains.

    Few points dealt by chance make chains that differ, as of a sampler that has not converged.
    """
    halves = 2 * chains
    along = np.sort(entries if entries.size >= halves else np.tile(entries, halves))
    rounds = np.tile(np.arange(halves), (-(-along.size // halves), 1))
    half = rng.permuted(rounds, axis=1).ravel()[: along.size]
    own = [rng.permutation(along[half == i]) for i in range(halves)]
    return [np.concatenate(own[i : i + 2]) for i in range(0, halves, 2)]


def _error_of_mean(ratio: FloatArray, shares: FloatArray) -> float:
    """Standard error of a mean of one by independent values with weights.

    Copies of a point share one estimate. Points are spread more evenly than independent ones: an
    upper bound.
    """
    squared = float(shares @ shares)
    variance = float(shares @ (ratio - 1.0) ** 2) / (1.0 - squared)
    return float(np.sqrt(variance * squared))


def exact_points(
    latent: HasTasks,
    weighted: WeightedPoints,
    n_evidences: int,
    n_draws: float,
    n_candidates: int,
    rng: np.random.Generator,
    tick: Callable[[], None],
    n_jobs: int | None = None,
) -> ExactPoints:
    """Exact evidences at points drawn with equal weights under EP's evidence.

    Parameters
    ----------
    latent : HasTasks
    weighted : WeightedPoints
    n_evidences : int
        Points with equal weights; those that are the same are visited once.
    n_draws : float
        Draws of f, at all points together.
    n_candidates : int
    rng : numpy.random.Generator
    tick : callable
        Called after each point.
    n_jobs : int, optional
        Of joblib.
    """
    chosen = weighted.resampled(n_evidences, rng)
    different = np.unique(chosen)
    # The sampler begins from the last point's.
    different = different[short_path(weighted.x[different])]
    place = np.empty(len(weighted.x), dtype=np.intp)
    place[different] = np.arange(different.size)
    entries = place[chosen]
    share = np.bincount(entries) / chosen.size
    counts = np.ceil(n_draws * share).astype(np.intp) + 1
    points = [weighted.point(i) for i in different]
    found = []
    for x in run_tasks(latent.tasks(points), counts.tolist(), n_candidates, rng, n_jobs):
        found.append(x)
        tick()
    exact = np.array([x.log_evidence for x in found])
    return ExactPoints(entries, points, exact - weighted.log_evidence[different], found)


def more_draws(latent: LatentFunctions, n_candidates: int, rng: np.random.Generator) -> MoreDraws:
    """At points that were visited before: independent of what was found there."""

    def draw(points: Sequence[Point], counts: Sequence[int]) -> list[FloatArray]:
        if not points:
            return []
        found = run_tasks(latent.tasks(points), counts, n_candidates, rng, None)
        return [x.f for x in found]

    return draw
