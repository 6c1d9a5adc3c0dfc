"""The search behind `find_hyperparameters`: coarse to fine, expectation propagation to twisted."""

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._learn.batches import random_batches
from pymc_skewgp._learn.climb import Bounds, Top, climb, curvature, finish
from pymc_skewgp._learn.fit_report import Journal
from pymc_skewgp._learn.objective import Objective, Pattern, Value
from pymc_skewgp._validation import FloatArray

Method = Literal["twisted", "ep"]
METHODS: tuple[Method, ...] = ("twisted", "ep")

# Labels on which every start is tried before the best go on with all: a step costs as their cube.
COARSE = 300
_WORTH_COARSE = 450
# Optima by EP that may be the best one by the twisted sampler: EP is off by less, as a rule.
_EP_DOUBT = 2.0
_SAME_OPTIMUM = 0.02
# Points for each restart, and how far apart those are that climbs start from.
_TRIED, _APART = 16, 1.0
_PULL = 3.0  # standard deviation, on the unconstrained scale
_MAX_ITERATIONS = 200
_FINER = 8  # times as many draws where a few did not settle it, ...
_ROUGH = 0.05  # ... or gave values that jump by so much
# Second derivatives that are worth their 2 k gradients.
_MOST_CURVED = 40

Climbs = list[tuple[Pattern, Top]]


class Found(NamedTuple):
    """The best of a search.

    Attributes
    ----------
    pattern : tuple
    top : Top
    curved : ndarray or None
        Minus the second derivatives of the objective with EP's evidence; None where there are too
        many, where a coordinate is held, or where they were not asked for and part of the data had
        to do.
    """

    pattern: Pattern
    top: Top
    curved: FloatArray | None


def coarse_part(
    sign: FloatArray, batch_size: int | None, rng: np.random.Generator
) -> IntArray | None:
    """Indices of some labels that stand for all at first; None where all are few enough."""
    size = COARSE if batch_size is None else min(COARSE, batch_size)
    if sign.size <= max(_WORTH_COARSE, size):
        return None
    return random_batches(sign, size, rng)[0]


def spread_out(
    objective: Objective, origin: FloatArray, n_restarts: int, rng: np.random.Generator
) -> list[FloatArray]:
    """`origin`, and the best of many points that lie apart from it and from each other."""
    starts = [origin]
    if not n_restarts or not origin.size:
        return starts
    pattern = objective.patterns()[0]
    points = objective.spread_starts(origin, _TRIED * n_restarts, rng)
    values = [objective.by_ep(x, pattern).total for x in points]
    for i in np.argsort(values)[::-1]:
        apart = min(float(np.abs(points[i] - x).max()) for x in starts)
        if len(starts) <= n_restarts and np.isfinite(values[i]) and apart > _APART:
            starts.append(points[i])
    return starts


def search(
    objective: Objective,
    coarse: tuple[Objective, float] | None,
    patterns: list[Pattern],
    starts: list[FloatArray],
    bounds: Bounds,
    journal: Journal,
    *,
    method: Method,
    n_draws: int,
    seed: int,
    curved: bool,
) -> Found:
    """Maximise `objective` over the box and the patterns.

    Parameters
    ----------
    objective : Objective
    coarse : pair or None
        The objective on part of the data, and what share of it these are.
    patterns, starts : list
        Every pattern is climbed from every start, on `coarse` where there is one; then the best
        climb of each pattern, and the best others, on `objective`.
    bounds : list of pairs
    journal : Journal
    method : {"twisted", "ep"}
    n_draws, seed : int
        Of "twisted".
    curved : bool
        Whether the second derivatives are wanted, at all data.

    Returns
    -------
    Found

    Raises
    ------
    ValueError
        Where the objective has no value at any start.
    """
    tried = [(pattern, x) for pattern in patterns for x in starts]
    if coarse is not None:
        tried = _promising(objective, coarse[0], tried, bounds, journal)
    climbs = _distinct(_climb_all(objective.by_ep, tried, bounds, journal, "ep"))
    twisted = partial(objective.by_twisting, n_draws=n_draws, seed=seed)
    pattern, top = climbs[0]
    if method == "twisted":
        pattern, top = _choose(journal, climbs, twisted)
    bent, few = None, 0 < top.x.size <= _MOST_CURVED and all(low < high for low, high in bounds)
    if few and (curved or coarse is None):
        bent = curvature(lambda x: objective.by_ep(x, pattern)[::2], top.x, bounds)
    if method == "twisted":
        known = bent
        if known is None and few and coarse is not None:
            part, share = coarse
            known = curvature(lambda x: part.by_ep(x, pattern)[::2], top.x, bounds) / share
        known = np.eye(top.x.size) if known is None else known
        for draws in (n_draws, _FINER * n_draws):
            exact = partial(objective.by_twisting, n_draws=draws, seed=seed)
            run = journal.run(pattern, "twisted", exact)
            top = finish(run, top.x, bounds, known, lambda: journal.noise)
            if top.settled and journal.noise < _ROUGH:
                break  # else its steps were lost in the noise of the values
    return Found(pattern, top, bent)


def _promising(
    objective: Objective,
    coarse: Objective,
    tried: list[tuple[Pattern, FloatArray]],
    bounds: Bounds,
    journal: Journal,
) -> list[tuple[Pattern, FloatArray]]:
    """Where to go on with all data: of each pattern the best, and the best of the others."""
    origin = tried[0][1]
    # Some hundred labels may be separable, and send the climb to the edge of the box: a pull back
    # to the start that all the data will not feel.
    bounded = np.array([np.isfinite(low) for low, _ in bounds], dtype=bool)
    pull = np.where(bounded, 1.0 / _PULL**2, 0.0)

    def pulled(x: FloatArray, pattern: Pattern) -> Value:
        found, away = coarse.by_ep(x, pattern), pull * (x - origin)
        total = found.total - 0.5 * float(away @ (x - origin))
        return Value(total, found.log_evidence, found.gradient - away)

    climbs = _distinct(_climb_all(pulled, tried, bounds, journal, "ep, part of the data"))
    patterns = dict.fromkeys(pattern for pattern, _ in climbs)
    best = [next(c for c in climbs if c[0] == pattern) for pattern in patterns]
    others = [c for c in climbs if not any(c is b for b in best)]
    near = [c for c in others[:1] if c[1].value > climbs[0][1].value - _EP_DOUBT]
    found = [(pattern, top.x) for pattern, top in best + near]
    evaluate = journal.run(found[0][0], "ep", objective.by_ep)
    if evaluate(origin)[0] > evaluate(found[0][1])[0]:  # what part of the data said was wrong
        found.insert(0, (found[0][0], origin))
    return found


def _climb_all(
    function: Callable[[FloatArray, Pattern], Value],
    tried: list[tuple[Pattern, FloatArray]],
    bounds: Bounds,
    journal: Journal,
    name: str,
) -> Climbs:
    climbs = [
        (pattern, climb(journal.run(pattern, name, function), x, bounds, _MAX_ITERATIONS))
        for pattern, x in tried
    ]
    found = [c for c in climbs if np.isfinite(c[1].value)]
    if not found:
        raise ValueError(
            "the marginal likelihood has no value at any start: check the priors, the scale of the "
            "inputs and start; and, where there are pseudo-points, whether their phases contradict "
            "each other (SkewGP.posterior says so)."
        )
    return found


def _value(found: tuple[Pattern, Top]) -> float:
    return found[1].value


def _distinct(climbs: Climbs) -> Climbs:
    """Different optima, the best first."""
    kept: Climbs = []
    for pattern, top in sorted(climbs, key=_value, reverse=True):
        if not any(_same(pattern, top, *other) for other in kept):
            kept.append((pattern, top))
    return kept


def _same(pattern: Pattern, top: Top, other_pattern: Pattern, other: Top) -> bool:
    return (
        pattern == other_pattern
        and abs(top.value - other.value) < _SAME_OPTIMUM
        and bool(np.abs(top.x - other.x).max(initial=0.0) < 0.1)
    )


def _choose(
    journal: Journal, climbs: Climbs, twisted: Callable[[FloatArray, Pattern], Value]
) -> tuple[Pattern, Top]:
    """The best of the tops by the twisted sampler, where expectation propagation leaves doubt."""
    near = [c for c in climbs if c[1].value > climbs[0][1].value - _EP_DOUBT]
    if len(near) == 1:
        return near[0]
    return max(near, key=lambda found: journal.run(found[0], "twisted", twisted)(found[1].x)[0])
