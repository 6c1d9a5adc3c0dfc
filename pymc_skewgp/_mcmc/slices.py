"""Slice sampling of a few numbers, one coordinate after another (Neal 2003)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from pymc_skewgp._validation import FloatArray

_STEPS_OUT = 8
_STRETCH = 2.0  # of brackets that do not step out
_SHRINKAGES = 100
_MOST_COORDINATES = 8  # a sweep; of more a random choice
_LEAST_WIDTH = 1e-3


class SliceState(NamedTuple):
    """Where the numbers are, and what was learnt of their scale.

    Attributes
    ----------
    values : ndarray, shape (d,)
    widths : ndarray, shape (d,)
        Of the brackets that a slice is looked for with.
    counts : ndarray, shape (d,)
        Slices that each width was learnt from.
    """

    values: FloatArray
    widths: FloatArray
    counts: FloatArray


def init(values: FloatArray) -> SliceState:
    """State at `values`, of which nothing else is known."""
    return SliceState(values, np.ones(values.size), np.zeros(values.size))


class Located(Protocol):
    """A place, and the log density there, up to a constant."""

    @property
    def values(self) -> FloatArray:
        """Shape (d,)."""
        ...

    @property
    def log_density(self) -> float:
        """Minus infinity where the density is 0."""
        ...


@dataclass(frozen=True)
class SliceMove[Place: Located]:
    """Sweeps of slices over a density.

    Attributes
    ----------
    locate : callable
        From values to the place there.
    exists : callable
        Whether a place within a slice may be the next.
    tune : bool
        Whether to learn the widths.
    steps_out : bool, default True
        Whether a bracket grows until its ends are outside of the slice. Without, one of twice the
        width is only shrunk: two places fewer to be looked at for each new one, where widths are
        known well.
    """

    locate: Callable[[FloatArray], Place]
    exists: Callable[[Place], bool]
    tune: bool
    steps_out: bool = True

    def sweep(
        self, here: Place, state: SliceState, rng: np.random.Generator
    ) -> tuple[Place, SliceState]:
        """Each coordinate once, from a place of positive density; `state` has its values."""
        size = state.values.size
        widths, counts = state.widths.copy(), state.counts.copy()
        chosen = np.arange(size)
        if size > _MOST_COORDINATES:
            chosen = rng.choice(size, _MOST_COORDINATES, replace=False)
        for i in chosen:
            new = self._slice(here, int(i), widths[i], rng)
            if self.tune:  # a third of a slice lies between two points of it, on average
                step = 3.0 * abs(new.values[i] - here.values[i])
                counts[i] += 1.0
                widths[i] += (step - widths[i]) / (counts[i] + 1.0)
                widths[i] = max(widths[i], _LEAST_WIDTH)
            here = new
        return here, SliceState(here.values, widths, counts)

    def _slice(self, here: Place, i: int, width: float, rng: np.random.Generator) -> Place:
        """Step out from a random bracket, then shrink it until a point of the slice is met."""
        level = here.log_density - rng.exponential()
        most = _STEPS_OUT if self.steps_out else 1
        width *= 1.0 if self.steps_out else _STRETCH
        left = here.values[i] - width * rng.random()
        right = left + width
        n_left = int(rng.integers(most))
        for _ in range(n_left):
            if self.locate(_moved(here.values, i, left)).log_density <= level:
                break
            left -= width
        for _ in range(most - 1 - n_left):
            if self.locate(_moved(here.values, i, right)).log_density <= level:
                break
            right += width
        for _ in range(_SHRINKAGES):
            trial = self.locate(_moved(here.values, i, rng.uniform(left, right)))
            if trial.log_density > level and self.exists(trial):
                return trial
            if trial.values[i] < here.values[i]:
                left = trial.values[i]
            else:
                right = trial.values[i]
        return here


def _moved(values: FloatArray, i: int, value: float) -> FloatArray:
    values = values.copy()
    values[i] = value
    return values
