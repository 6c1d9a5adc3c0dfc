"""A density on the line given by a table: its logarithm is linear between nodes.

Draws, distribution function and normalising constant are closed, and it may be as far from a
Gaussian as it likes: cut on one side, heavy on the other.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray

# Points at which a density is first looked at, in its units, either side of 0: it may be as wide as
# a prior that no limit restricts.
_FIRST_LOOK = np.array([0.0, 1.0, 2.0, 3.5, 6.0, 12.0, 24.0, 48.0])
_CUT = 60.0  # nats below the peak at which a table ends
_MATTERS = 25.0  # nats below the peak down to which cells are halved
_FLAT = 0.01  # nats by which the middle of a cell may leave the straight line
_ROUNDS, _MOST_NODES = 14, 300
_FLOOR = 1e12  # nats
_STEP = 0.125  # of the grid on which -x^2 / 2 is a polygon: off by .002 nat


@dataclass(frozen=True)
class TabulatedDensity:
    """A density whose logarithm is linear between nodes, and beyond them.

    Attributes
    ----------
    nodes : ndarray, shape (k,)
        Increasing.
    log_density : ndarray, shape (k,)
        At the nodes, normalised.
    slope : ndarray, shape (k + 1,)
        Of the log density left of the first node, in the k - 1 cells, right of the last.
    cumulative : ndarray, shape (k + 2,)
        Probability left of each cell, the two tails among them; from 0 to 1.
    """

    nodes: FloatArray
    log_density: FloatArray
    slope: FloatArray
    cumulative: FloatArray

    @classmethod
    def of(cls, nodes: FloatArray, log_values: FloatArray) -> "TabulatedDensity":
        """Normalised; the tails go on with the slopes of the outermost cells."""
        gaps = np.diff(nodes)
        inner = np.diff(log_values) / gaps
        # A tail has to fall: where the table ends on a rise, it falls at once.
        slope = np.concatenate([[max(inner[0], 1.0)], inner, [min(inner[-1], -1.0)]])
        peak = log_values.max()
        height = np.exp(log_values - peak)
        mass = np.empty(nodes.size + 1)
        mass[0], mass[-1] = height[0] / slope[0], -height[-1] / slope[-1]
        mass[1:-1] = height[:-1] * gaps * _relative_expm1(inner * gaps)
        total = mass.sum()
        cumulative = np.append(0.0, np.minimum(np.cumsum(mass / total), 1.0))
        cumulative[-1] = 1.0
        return cls(nodes, log_values - peak - np.log(total), slope, cumulative)

    def flattened(self, power: float) -> "TabulatedDensity":
        """The density to a power below 1, normalised: heavier in both tails."""
        return TabulatedDensity.of(self.nodes, power * self.log_density)

    def quantile(self, probs: FloatArray) -> FloatArray:
        """Inverse of the distribution function at probabilities in (0, 1)."""
        cell = np.searchsorted(self.cumulative, probs, side="right") - 1
        cell = np.clip(cell, 0, self.nodes.size)
        anchor = np.maximum(cell - 1, 0)  # the left node of a cell, the first one for the left tail
        base = np.where(cell == 0, self.cumulative[1], self.cumulative[cell])
        run = (probs - base) / np.exp(self.log_density[anchor])
        slope = self.slope[cell]
        steep = np.abs(slope * run) > 1e-12
        safe = np.where(steep, slope, 1.0)
        step = np.log1p(np.maximum(safe * run, -1.0 + 1e-16)) / safe
        return self.nodes[anchor] + np.where(steep, step, run)

    def log_pdf(self, x: FloatArray) -> FloatArray:
        """Log density."""
        cell, anchor = self._cells(x)
        result: FloatArray = self.log_density[anchor] + self.slope[cell] * (x - self.nodes[anchor])
        return result

    def cdf(self, x: FloatArray) -> FloatArray:
        """Distribution function."""
        cell, anchor = self._cells(x)
        run, slope = x - self.nodes[anchor], self.slope[cell]
        base = np.where(cell == 0, self.cumulative[1], self.cumulative[cell])
        inside = np.exp(self.log_density[anchor]) * run * _relative_expm1(slope * run)
        result: FloatArray = np.clip(base + inside, 0.0, 1.0)
        return result

    def _cells(self, x: FloatArray) -> tuple[IntArray, IntArray]:
        cell = np.searchsorted(self.nodes, x, side="right")
        return cell, np.maximum(cell - 1, 0)


def tabulate(correction: Callable[[FloatArray], FloatArray]) -> TabulatedDensity:
    """The table of exp{correction(x) - x^2 / 2}, up to a constant, made log-concave.

    The correction takes nearly all of the time: it is known at the nodes where it is not straight,
    and the square is added on a finer grid.
    """
    x = np.concatenate([-_FIRST_LOOK[:0:-1], _FIRST_LOOK])
    extra = _bounded(correction(x))
    unknown = np.ones(x.size - 1, dtype=bool)  # cells whose middle has not been looked at
    for _ in range(_ROUNDS):
        values = _log_concave(x, extra - 0.5 * x**2)
        top = np.maximum(values[:-1], values[1:])
        cells = np.flatnonzero(unknown & (top > values.max() - _MATTERS))
        if not cells.size or x.size > _MOST_NODES:
            break
        middle = 0.5 * (x[cells] + x[cells + 1])
        found = _bounded(correction(middle))
        curved = np.abs(found - 0.5 * (extra[cells] + extra[cells + 1])) > _FLAT
        unknown[cells] = curved
        where = cells + 1
        x, extra = np.insert(x, where, middle), np.insert(extra, where, found)
        unknown = np.insert(unknown, where, curved)
    values = _log_concave(x, extra - 0.5 * x**2)
    peak = values.max()
    high = np.flatnonzero(values > peak - _CUT)
    ends = slice(max(high[0] - 1, 0), high[-1] + 2)
    first, last = x[ends][[0, -1]]
    nodes = np.union1d(x[ends], np.linspace(first, last, max(2, int((last - first) / _STEP))))
    # The square between nodes, where the correction is straight there; elsewhere a straight line.
    resolved = np.append(np.maximum(values[:-1], values[1:]) > peak - _MATTERS, False)
    fine = np.interp(nodes, x, values + 0.5 * x**2) - 0.5 * nodes**2
    inside = resolved[np.searchsorted(x, nodes, side="right") - 1]
    table = np.where(inside, fine, np.interp(nodes, x, values))
    return TabulatedDensity.of(nodes, np.maximum(table, peak - 2.0 * _CUT))


def _bounded(values: FloatArray) -> FloatArray:
    """Finite: what overflows, or is no number, is as good as impossible."""
    return np.clip(np.nan_to_num(values, nan=-_FLOOR), -_FLOOR, _FLOOR)


def _log_concave(x: FloatArray, values: FloatArray) -> FloatArray:
    """`values` with slopes that only fall, outwards from the mode nearest to 0.

    Where they would rise the last slope goes on.
    """
    gaps, slope = np.diff(x), np.diff(values) / np.diff(x)
    start = int(np.argmin(np.abs(x)))
    up = start
    while up < slope.size and slope[up] > 0.0:
        up += 1
    while up == start and start > 0 and slope[start - 1] < 0.0:
        start -= 1
        up = start
    right = np.minimum.accumulate(slope[up:])
    left = np.maximum.accumulate(slope[:up][::-1])[::-1]
    rises = np.concatenate([left, right]) * gaps
    whole = np.append(0.0, np.cumsum(rises))
    result: FloatArray = whole - whole[up] + values[up]
    return result


def _relative_expm1(x: FloatArray) -> FloatArray:
    """(exp(x) - 1) / x."""
    small = np.abs(x) < 1e-8
    safe = np.where(small, 1.0, x)
    return np.where(small, 1.0 + 0.5 * x, np.expm1(safe) / safe)
