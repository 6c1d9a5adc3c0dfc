"""A point of the search, and what the objective is there."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from pymc_skewgp._validation import FloatArray

Pattern = tuple[int, ...]
Bounds = list[tuple[float, float]]


@dataclass(frozen=True, eq=False)
class Point:
    """Values of everything that is learnt.

    Attributes
    ----------
    x : ndarray, shape (k,)
        Of the continuous variables, on the unconstrained scale.
    pattern : tuple of int
        Of the binary variables, 0 or 1.
    """

    x: FloatArray
    pattern: Pattern = ()

    def at(self, x: FloatArray) -> "Point":
        """The point with another continuous part."""
        return Point(x, self.pattern)


class Value(NamedTuple):
    """Of the objective at a point.

    Attributes
    ----------
    total : float
        Log evidence plus log prior; minus infinity where there is none.
    log_evidence : float
    gradient : ndarray, shape (k,)
        Of `total` in the continuous part.
    noise : float
        What `total` jumps by between neighbouring points.
    """

    total: float
    log_evidence: float
    gradient: FloatArray
    noise: float = 0.0


Function = Callable[[Point], Value]
