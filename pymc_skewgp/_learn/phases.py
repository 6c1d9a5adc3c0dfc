"""Phases of pseudo-points: which of their values need a search of their own."""

from itertools import permutations

import numpy as np

from pymc_skewgp._learn.coordinates import Coordinates
from pymc_skewgp._learn.point import Pattern, Point
from pymc_skewgp._learn.searched import Searched
from pymc_skewgp._learn.settings import StartSettings
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._posterior.evidence_terms import EvidenceTerms
from pymc_skewgp._validation import FloatArray

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


def distinct_patterns(
    objective: Searched,
    x: FloatArray,
    patterns: list[Pattern],
    places: Places,
    settings: StartSettings,
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
    settings : StartSettings

    Returns
    -------
    list of tuple
    """
    if len(patterns) <= 2 or len(places) != len(patterns[0]):
        return patterns
    values = {pattern: objective.by_ep(Point(x, pattern)).total for pattern in patterns}
    if not _exchangeable(objective, Point(x, patterns[1]), places, settings.equal):
        return patterns
    best: dict[int, Pattern] = {}
    for pattern in sorted(patterns, key=lambda p: values[p]):
        best[sum(pattern)] = pattern
    return list(best.values())


def _exchangeable(objective: Searched, point: Point, places: Places, rtol: float) -> bool:
    """Whether exchanging points together with their phases leaves the objective as it is."""
    # Off the point, whose symmetry may be an accident.
    x = point.x + np.random.default_rng(0).normal(0.0, 0.1, point.x.size)
    value = objective.by_ep(point.at(x)).total
    for order in permutations(range(len(places))):
        moved = x.copy()
        moved[np.concatenate(places)] = x[np.concatenate([places[j] for j in order])]
        pattern = tuple(point.pattern[j] for j in order)
        other = objective.by_ep(Point(moved, pattern)).total
        if not abs(other - value) <= rtol * max(1.0, abs(value)):
            return False
    return True
