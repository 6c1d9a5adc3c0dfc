"""Which values of the binary variables need a climb of their own."""

from itertools import permutations
from typing import Any

import numpy as np

from pymc_skewgp._learn.objective import Objective, Pattern
from pymc_skewgp._validation import FloatArray

# Relative: two evaluations of one number, EP stopped at its tolerance in each.
_EQUAL = 1e-5


def distinct_patterns(objective: Objective, gp: Any, x: FloatArray) -> list[Pattern]:
    """Patterns of phases that are not each other's with the pseudo-points exchanged.

    Where the pseudo-points are learnt, and their priors do not tell them apart, the phases (+, -)
    at (r, r') are the phases (-, +) at (r', r): of 2^s patterns s + 1 are left, by the number of
    positive phases. For each the assignment is taken that does best at `x`.

    Parameters
    ----------
    objective : Objective
    gp : SkewGP or None
        None where its pseudo-points are not known: then all patterns are distinct.
    x : ndarray, shape (k,)
        A start.

    Returns
    -------
    list of tuple
    """
    patterns = objective.patterns()
    points = [] if gp is None else _coordinates(objective, gp)
    if len(patterns) <= 2 or len(points) != len(patterns[0]):
        return patterns
    values = {pattern: objective.by_ep(x, pattern).total for pattern in patterns}
    if not _exchangeable(objective, x, patterns[1], points):
        return patterns
    best: dict[int, Pattern] = {}
    for pattern in sorted(patterns, key=lambda p: values[p]):
        best[sum(pattern)] = pattern
    return list(best.values())


def parted(objective: Objective, gp: Any, x: FloatArray, rng: np.random.Generator) -> FloatArray:
    """`x`, but with pseudo-points that coincide there moved apart.

    At a prior's centre they all do, and no density is left to climb from.
    """
    points = [c for c in _coordinates(objective, gp) if c]
    rows = x[points].reshape(len(points), -1) if points else np.zeros((0, 0))
    if np.unique(rows, axis=0).shape[0] == len(points):
        return x
    moved = x.copy()
    for coordinates in points:
        moved[coordinates] += rng.normal(size=len(coordinates))
    return moved


def _coordinates(objective: Objective, gp: Any) -> list[list[int]]:
    """Places in the vector of each pseudo-point, where these are a variable and not transformed."""
    name = getattr(gp.pseudo_points, "name", None)
    if name is None and getattr(gp.pseudo_points, "owner", None) is not None:
        name = gp.pseudo_points.owner.inputs[0].name  # specify_shape around it
    return [
        [i for i, label in enumerate(objective.labels) if label.startswith(f"{name}[{j}, ")]
        for j in range(gp.n_pseudo_points)
        if name in objective.names
    ]


def _exchangeable(
    objective: Objective, x: FloatArray, pattern: Pattern, points: list[list[int]]
) -> bool:
    """Whether exchanging points together with their phases leaves the objective as it is."""
    # Off `x`, whose symmetry may be an accident.
    x = x + np.random.default_rng(0).normal(0.0, 0.1, x.size)
    value = objective.by_ep(x, pattern).total
    for order in permutations(range(len(points))):
        moved = x.copy()
        moved[np.concatenate(points)] = x[np.concatenate([points[j] for j in order])]
        other = objective.by_ep(moved, tuple(pattern[j] for j in order)).total
        if not abs(other - value) <= _EQUAL * max(1.0, abs(value)):
            return False
    return True
