"""The search behind `find_hyperparameters`: coarse to fine, EP to twisted, and errors."""

from collections.abc import Callable
from functools import partial
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._gaussian.tilted import BoolArray
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._learn import optimizers
from pymc_skewgp._learn.coordinates import (
    Bounds,
    Coordinates,
    Function,
    Pattern,
    Point,
    Searched,
    Value,
)
from pymc_skewgp._learn.objective import Objective
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._posterior.evidence_gradient import EvidenceTerms
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

    optimum: optimizers.Optimum
    hessian: FloatArray | None


# A normal prior about the start, on the unconstrained scale, while part of the data is searched:
# some hundred labels may be separable and send the search to the edge of the box. All the data do
# not feel it.
_COARSE_PRIOR_SD = 3.0
# Times as many draws where the first did not converge, or gave values with too much noise.
_FINER = 8
# Coordinates up to which second derivatives are computed, from 2 k gradients.
_MAX_HESSIAN = 40
# Distance to the edge of the box.
_AT_BOUND = 1e-3


def search(
    objective: Objective,
    part: Part | None,
    starts: list[Point],
    bounds: Bounds,
    settings: optimizers.SearchSettings,
    log: optimizers.EvaluationLog,
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
    optima = ascents(objective.by_ep, starts, bounds, "ep", settings, log)
    best = optima[0]
    twisted = partial(objective.by_twisting, n_draws=settings.n_draws, seed=settings.seed)
    if settings.method == "twisted":  # the best by draws, where EP leaves doubt
        near = [x for x in optima if x.value.total > best.value.total - settings.ep_margin]
        if len(near) > 1:
            best = max(near, key=lambda found: log.run("twisted", twisted)(found.point).total)
    hessian = None
    few = 0 < best.point.x.size <= _MAX_HESSIAN and all(low < high for low, high in bounds)
    if few and (settings.hessian or part is None):
        hessian = optimizers.negative_hessian(objective.by_ep, best.point, bounds)
    if settings.method == "ep":
        return SearchResult(best, hessian)
    known = hessian
    if known is None and few and part is not None:
        known = optimizers.negative_hessian(part.objective.by_ep, best.point, bounds) / part.share
    if known is None:
        known = np.eye(best.point.x.size)
    found = _refined(objective, best, bounds, known, settings, log)
    if found.value.total < best.value.total - settings.ep_margin:
        # EP's evidence led to where draws do not confirm it: back to what they say is best.
        exact = log.run("twisted", twisted)
        others = [x.point for x in optima if x is not best] + starts
        totals = [exact(point).total for point in others]
        if max(totals) > found.value.total:
            start = others[int(np.argmax(totals))]
            found = optimizers.maximize(exact, start, bounds, settings.optimizer)
            hessian = (
                optimizers.negative_hessian(objective.by_ep, found.point, bounds) if few else None
            )
    return SearchResult(found, hessian)


def promising(
    begin: Callable[[], Function],
    coarse: Searched,
    starts: list[Point],
    bounds: Bounds,
    settings: optimizers.SearchSettings,
    log: optimizers.EvaluationLog,
) -> list[Point]:
    """Where a new run is to go on: of each pattern the best, and the best of the others."""
    origin = starts[0].x
    bounded = np.array([np.isfinite(low) for low, _ in bounds], dtype=bool)
    precision = np.where(bounded, 1.0 / _COARSE_PRIOR_SD**2, 0.0)

    def with_prior(point: Point) -> Value:
        found, away = coarse.by_ep(point), precision * (point.x - origin)
        total = found.total - 0.5 * float(away @ (point.x - origin))
        return Value(total, found.log_evidence, found.gradient - away)

    optima = ascents(with_prior, starts, bounds, "ep, part of the data", settings, log)
    best: dict[Pattern, optimizers.Optimum] = {}
    for found in optima:
        best.setdefault(found.point.pattern, found)
    others = [found for found in optima if found is not best[found.point.pattern]]
    least = optima[0].value.total - settings.ep_margin
    near = [found for found in others[:1] if found.value.total > least]
    points = [found.point for found in [*best.values(), *near]]
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
    settings: optimizers.SearchSettings,
    log: optimizers.EvaluationLog,
) -> list[optimizers.Optimum]:
    """Where they end: different optima, the best first."""
    found = [
        optimizers.maximize(log.run(name, function), x, bounds, settings.optimizer) for x in starts
    ]
    return optimizers.distinct(optimizers.with_value(found, "marginal likelihood"))


def _refined(
    objective: Objective,
    optimum: optimizers.Optimum,
    bounds: Bounds,
    hessian: FloatArray,
    settings: optimizers.SearchSettings,
    log: optimizers.EvaluationLog,
) -> optimizers.Optimum:
    """Newton steps on the twisted evidence, with more draws where the first were too few.

    At the edge of the box, where the optimum is none, the first have to do where they are poor: of
    an amplitude that runs off more take minutes.
    """
    least_gain = settings.optimizer.newton_gain
    for n_draws in (settings.n_draws, _FINER * settings.n_draws):
        twisted = partial(objective.by_twisting, n_draws=n_draws, seed=settings.seed)
        optimum = optimizers.newton(
            log.run("twisted", twisted), optimum.point, bounds, hessian, least_gain
        )
        noisy = optimum.value.noise >= settings.max_noise
        if at_edge(optimum.point.x, bounds).any() if noisy else optimum.converged:
            break
    return optimum


def at_edge(x: FloatArray, bounds: Bounds) -> BoolArray:
    """Whether each coordinate, if it is searched, is at the edge of the box."""
    low, high = np.transpose(bounds) if bounds else (x, x)
    near: BoolArray = (np.minimum(x - low, high - x) < _AT_BOUND) & (low < high)
    return near


# Phases of pseudo-points: which of their values need a search of their own.

# Places in the vector of each pseudo-point.
Places = list[list[int]]


def pseudo_point_places(coordinates: Coordinates, gp: SkewGP) -> Places:
    """Places in the vector of each pseudo-point; none where these are no untransformed variable."""
    points = gp.pseudo_points
    name = getattr(points, "name", None)
    if name is None and getattr(points, "owner", None) is not None:
        name = points.owner.inputs[0].name  # specify_shape around it
    if name not in coordinates.names:
        return []
    labels = coordinates.labels
    return [
        [i for i, label in enumerate(labels) if label.startswith(f"{name}[{j}, ")]
        for j in range(gp.n_pseudo_points)
    ]


def separate_coincident(x: FloatArray, places: Places, rng: np.random.Generator) -> FloatArray:
    """`x`, with pseudo-points that coincide there moved apart.

    At a prior's centre they all do, and the density to start from is 0.
    """
    places = [place for place in places if place]
    if not places:
        return x
    rows = x[places].reshape(len(places), -1)
    if np.unique(rows, axis=0).shape[0] == len(places):
        return x
    moved = x.copy()
    for place in places:
        moved[place] += rng.normal(size=len(place))
    return moved


def refuse_other_phases(objective: Searched, point: Point, exact: bool) -> None:
    """Raise where a phase is none: their squares are the variances of the latent signs.

    Parameters
    ----------
    objective : Searched
    point : Point
    exact : bool
        Whether the variances are squares of phases alone. Else only zeros are refused.
    """
    for terms in objective.terms_at(point):
        if not isinstance(terms, EvidenceTerms):
            continue  # without pseudo-points
        squares = terms.prior_cov.diagonal()
        if not (squares > 0).all() or (exact and np.abs(squares - 1.0).max(initial=0.0) > 1e-3):
            raise ValueError(
                f"with {', '.join(objective.coordinates.binary_names)} = {point.pattern} a phase "
                'is neither +1 nor -1: write 2 * pm.Bernoulli("positive", 0.5, shape=s) - 1.'
            )


# Relative difference of two evaluations of one number: EP stops at its tolerance in each.
_EQUAL = 1e-5


def distinct_patterns(
    objective: Searched, x: FloatArray, patterns: list[Pattern], places: Places
) -> list[Pattern]:
    """Patterns of phases that are not each other's with the pseudo-points exchanged.

    Where the pseudo-points are learnt, and their priors are alike, the phases (+, -) at (r, r') are
    the phases (-, +) at (r', r): of 2^s patterns s + 1 are left, by the number of positive phases.
    For each the assignment is taken that is best at `x`.

    Parameters
    ----------
    objective : Searched
    x : ndarray, shape (k,)
        A start.
    patterns : list of tuple
    places : list of lists
        Of the pseudo-points in `x`; none where they are not learnt: then all patterns are distinct.

    Returns
    -------
    list of tuple
    """
    if len(patterns) <= 2 or len(places) != len(patterns[0]):
        return patterns
    values = {pattern: objective.by_ep(Point(x, pattern)).total for pattern in patterns}
    # Whether exchanging points together with their phases leaves the objective as it is: off the
    # point, whose symmetry may be an accident.
    phases, off = patterns[1], x + np.random.default_rng(0).normal(0.0, 0.1, x.size)
    value = objective.by_ep(Point(off, phases)).total
    for order in permutations(range(len(places))):
        moved = off.copy()
        moved[np.concatenate(places)] = off[np.concatenate([places[j] for j in order])]
        other = objective.by_ep(Point(moved, tuple(phases[j] for j in order))).total
        if not abs(other - value) <= _EQUAL * max(1.0, abs(value)):
            return patterns
    best = {sum(pattern): pattern for pattern in sorted(patterns, key=values.__getitem__)}
    return list(best.values())


# Random batches of labelled data.


def random_batches(labels: NDArray[Any], size: int, rng: np.random.Generator) -> list[IntArray]:
    """A random partition into batches of `size` labels or a few less, as equal as can be.

    Each has its share of both classes, as far as there are enough of them: a batch of one class
    alone says nothing of the boundary between them.

    Parameters
    ----------
    labels : ndarray, shape (n,)
        0 and 1, or booleans.
    size : int
    rng : numpy.random.Generator

    Returns
    -------
    list of ndarray of int
        Indices of the rows of each batch.
    """
    n_batches = -(-labels.size // size)
    order = np.argsort(labels + rng.uniform(-0.5, 0.5, labels.size), kind="stable")
    # Dealt out in turn, the negative labels first.
    return [np.sort(order[start::n_batches]) for start in range(n_batches)]


# Standard errors of hyperparameters on their own scale, from the Hessian at the optimum.

_STEP = 1e-4
# Eigenvalue of the negative Hessian below which a direction is flat: a factor of e in a parameter
# costs less than a hundredth of a nat.
FLAT_HESSIAN = 0.02


def standard_errors(
    named: Callable[[Point], dict[str, NDArray[Any]]], point: Point, hessian: FloatArray | None
) -> dict[str, NDArray[Any]]:
    """Of every value by name, by the inverse of the negative Hessian and the delta method.

    Infinite for values that depend on a flat direction.

    Parameters
    ----------
    named : callable
        Values by name at a point.
    point : Point
        The optimum.
    hessian : ndarray or None
        Negative Hessian there. Without one there are no standard errors.
    """
    if hessian is None:
        return {}
    values, vectors = np.linalg.eigh(hessian)
    steep = values >= FLAT_HESSIAN
    root, flat = vectors[:, steep] / np.sqrt(values[steep]), vectors[:, ~steep]
    # Derivatives by central differences.
    sides = [
        (named(point.at(point.x + step)), named(point.at(point.x - step)))
        for step in _STEP * np.eye(point.x.size)
    ]
    errors = {}
    for name, value in sides[0][0].items() if sides else ():
        if value.dtype.kind != "f":
            continue
        slopes = [(ahead[name] - behind[name]) / (2.0 * _STEP) for ahead, behind in sides]
        jacobian = np.stack(slopes, axis=-1)
        if not jacobian.any():
            continue  # a constant
        error = np.sqrt(((jacobian @ root) ** 2).sum(axis=-1))
        lost = ((jacobian @ flat) ** 2).sum(axis=-1)
        errors[name] = np.where(lost > 1e-2 * (jacobian**2).sum(axis=-1), np.inf, error)
    return errors
