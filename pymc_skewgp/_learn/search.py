"""The search behind `find_hyperparameters`: coarse to fine, expectation propagation to twisted."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from pymc_skewgp._learn.evaluation_log import EvaluationLog
from pymc_skewgp._learn.objective import Objective
from pymc_skewgp._learn.optimizers import (
    Optimum,
    maximize,
    negative_hessian,
    newton,
    with_value,
)
from pymc_skewgp._learn.point import Bounds, Function, Point, Value
from pymc_skewgp._learn.searched import Searched
from pymc_skewgp._learn.settings import SearchSettings
from pymc_skewgp._validation import FloatArray


class Part(NamedTuple):
    """The objective on some of the data, and what share of all these are."""

    objective: Searched
    share: float


class SearchResult(NamedTuple):
    """The best of a search.

    Attributes
    ----------
    optimum : Optimum
    hessian : ndarray or None
        Negative Hessian of the objective with EP's evidence; None where there are too many
        coordinates, where one is fixed, or where it was not asked for and part of the data had to
        do.
    """

    optimum: Optimum
    hessian: FloatArray | None


def search(
    objective: Objective,
    part: Part | None,
    starts: list[Point],
    bounds: Bounds,
    settings: SearchSettings,
    log: EvaluationLog,
) -> SearchResult:
    """Maximise `objective` over the box, from every start.

    Parameters
    ----------
    objective : Objective
    part : Part or None
        Where there is one the ascents are made on it; then the best of each pattern of binary
        values, and the best others, go on with `objective`.
    starts : list of Point
    bounds : list of pairs
    settings : SearchSettings
    log : EvaluationLog

    Returns
    -------
    SearchResult

    Raises
    ------
    ValueError
        Where the objective has no value at any start.
    """
    if part is not None:
        begin = partial(log.run, "ep", objective.by_ep)
        starts = promising(begin, part.objective, starts, bounds, settings, log)
    optima = distinct(ascents(objective.by_ep, starts, bounds, "ep", settings, log), settings)
    best = optima[0]
    if settings.method == "twisted":
        best = _best_by_twisting(objective, optima, settings, log)
    hessian = None
    few = 0 < best.point.x.size <= settings.max_hessian and all(low < high for low, high in bounds)
    if few and (settings.hessian or part is None):
        hessian = negative_hessian(objective.by_ep, best.point, bounds, settings.optimizer)
    if settings.method == "ep":
        return SearchResult(best, hessian)
    known = hessian
    if known is None and few and part is not None:
        by_ep = part.objective.by_ep
        known = negative_hessian(by_ep, best.point, bounds, settings.optimizer) / part.share
    if known is None:
        known = np.eye(best.point.x.size)
    return SearchResult(_refined(objective, best, bounds, known, settings, log), hessian)


def promising(
    begin: Callable[[], Function],
    coarse: Searched,
    starts: list[Point],
    bounds: Bounds,
    settings: SearchSettings,
    log: EvaluationLog,
) -> list[Point]:
    """Where a new run is to go on: of each pattern the best, and the best of the others."""
    origin = starts[0].x
    bounded = np.array([np.isfinite(low) for low, _ in bounds], dtype=bool)
    precision = np.where(bounded, 1.0 / settings.coarse_prior_sd**2, 0.0)

    def with_prior(point: Point) -> Value:
        found, away = coarse.by_ep(point), precision * (point.x - origin)
        total = found.total - 0.5 * float(away @ (point.x - origin))
        return Value(total, found.log_evidence, found.gradient - away)

    name = "ep, part of the data"
    optima = distinct(ascents(with_prior, starts, bounds, name, settings, log), settings)
    patterns = dict.fromkeys(found.point.pattern for found in optima)
    best = [next(o for o in optima if o.point.pattern == pattern) for pattern in patterns]
    others = [o for o in optima if not any(o is b for b in best)]
    points = [found.point for found in best + _within(others[:1], optima[0], settings.ep_margin)]
    function = begin()
    first, last = points[0].at(origin), points[0]
    if function(first).total > function(last).total:  # what part of the data said was wrong
        points.insert(0, first)
    return points


def ascents(
    function: Function,
    starts: list[Point],
    bounds: Bounds,
    name: str,
    settings: SearchSettings,
    log: EvaluationLog,
) -> list[Optimum]:
    optima = [
        maximize(log.run(name, function), start, bounds, settings.optimizer) for start in starts
    ]
    return with_value(optima, "marginal likelihood")


def _best_by_twisting(
    objective: Objective, optima: list[Optimum], settings: SearchSettings, log: EvaluationLog
) -> Optimum:
    """The best by the twisted sampler, where expectation propagation leaves doubt."""
    near = _within(optima, optima[0], settings.ep_margin)
    if len(near) == 1:
        return near[0]
    twisted = partial(objective.by_twisting, n_draws=settings.n_draws, seed=settings.seed)
    return max(near, key=lambda found: log.run("twisted", twisted)(found.point).total)


def _refined(
    objective: Objective,
    optimum: Optimum,
    bounds: Bounds,
    hessian: FloatArray,
    settings: SearchSettings,
    log: EvaluationLog,
) -> Optimum:
    """Newton steps on the twisted evidence, with more draws where the first were too few.

    At the edge of the box, where the optimum is none, the first have to do where they are poor: of
    an amplitude that runs off more take minutes.
    """
    for n_draws in (settings.n_draws, settings.finer * settings.n_draws):
        twisted = partial(objective.by_twisting, n_draws=n_draws, seed=settings.seed)
        logged = log.run("twisted", twisted)
        optimum = newton(logged, optimum.point, bounds, hessian, settings.optimizer)
        noisy = optimum.value.noise >= settings.max_noise
        if _at_edge(optimum.point, bounds, settings) if noisy else optimum.converged:
            break
    return optimum


def _at_edge(point: Point, bounds: Bounds, settings: SearchSettings) -> bool:
    """Whether a coordinate that is searched is at the edge of the box."""
    low, high = np.transpose(bounds) if bounds else (point.x, point.x)
    near = np.minimum(point.x - low, high - point.x) < settings.at_bound
    return bool((near & (low < high)).any())


def _within(optima: list[Optimum], best: Optimum, margin: float) -> list[Optimum]:
    return [o for o in optima if o.value.total > best.value.total - margin]


def distinct(optima: list[Optimum], settings: SearchSettings) -> list[Optimum]:
    """Different optima, the best first."""
    kept: list[Optimum] = []
    for optimum in sorted(optima, key=lambda o: o.value.total, reverse=True):
        if not any(_same(optimum, other, settings) for other in kept):
            kept.append(optimum)
    return kept


def _same(one: Optimum, other: Optimum, settings: SearchSettings) -> bool:
    distance = np.abs(one.point.x - other.point.x).max(initial=0.0)
    return (
        one.point.pattern == other.point.pattern
        and abs(one.value.total - other.value.total) < settings.same_value
        and bool(distance < settings.same_place)
    )
