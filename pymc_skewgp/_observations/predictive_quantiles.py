r"""Quantiles of a new y whose distribution function :math:`F(y \mid f)` falls as f grows.

.. math:: P(y_* \le y) = \int F(y \mid f(z))\, \varphi(z)\, dz, \qquad f(z) = P_f^{-1}\{\Phi(z)\}

f(z) is tabulated once. The integral runs over the z where F is neither 1 nor 0, by as many nodes
whether that is a thousandth of a standard deviation of f or all of it. Where f has narrow modes
that are far apart, f(z) jumps: the nodes of a table that is finer there are nodes as well.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from pymc_skewgp._gaussian.mixture import mixture_cdf
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._validation import FloatArray

# F(y | f), of shapes that broadcast.
ConditionalCdf = Callable[[FloatArray, FloatArray], FloatArray]
_GRID = np.linspace(-7.5, 7.5, 61)  # where P_f is computed, in standard deviations of f
_REACH = 6.0  # of z: what is beyond has mass 1e-9
_SCORES = np.linspace(-_REACH, _REACH, 129)
_STEP = _SCORES[1] - _SCORES[0]
# Points of f at which neighbours on the grid differ by more, within the scores that draws reach,
# have a finer table. Cells are halved while scores differ in them by more than _FINE and are off a
# line by more than _OFF in the middle, down to a share of f's deviation.
_JUMP, _DRAWN = 0.5, 2.5
_FINE, _OFF, _NARROWEST = 0.1, 0.002, 1e-6
_NODES = np.linspace(0.0, 1.0, 257)
_PARTS = np.linspace(0.0, 1.0, 65)
_SIMPSON = np.tile([2.0, 4.0], 33)[:65] / (3.0 * 64)
_SIMPSON[[0, -1]] /= 2.0
_NOTHING = 1e-9
_MOST = 2**62
_MAX_STEPS = 60


class NewValues:
    """A new y at each of t points, f as `mixture` has it.

    Parameters
    ----------
    mixture : Mixture
    cdf : callable
        F(y | f), which falls as f grows.
    """

    def __init__(self, mixture: Mixture, cdf: ConditionalCdf) -> None:
        self.f, self._tables = latent_at_scores(mixture)
        self._cdf = cdf

    def cdf(self, y: FloatArray) -> FloatArray:
        """P(y_* <= y), both of shape (t,)."""
        coarse = self._cdf(y[:, None], self.f[:, ::2])
        # Where F is 1 below and 0 above, a node to spare.
        first = 2 * np.maximum((coarse > 1.0 - _NOTHING).sum(axis=1) - 1, 0)
        last = _SCORES.size - 1 - 2 * np.maximum((coarse < _NOTHING).sum(axis=1) - 1, 0)
        last = np.maximum(last, first + 2)
        place = first[:, None] + (last - first)[:, None] * _PARTS
        left = np.minimum(place.astype(int), _SCORES.size - 2)
        f = np.take_along_axis(self.f, left, axis=1)
        f += (place - left) * (np.take_along_axis(self.f, left + 1, axis=1) - f)
        z = place * _STEP - _REACH
        density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
        within = (self._cdf(y[:, None], f) * density) @ _SIMPSON
        found = np.asarray(ndtr(z[:, 0]) + (last - first) * _STEP * within)
        for row, table in self._tables.items():
            found[row] = self._of_table(float(y[row]), table, z[row, 0], z[row, -1])
        return found

    def _of_table(self, y: float, table: "LatentTable", first: float, last: float) -> float:
        """P(y_* <= y), f(z) being tabulated: a trapezoid rule in Phi(z) between two scores."""
        own = slice(*np.searchsorted(table.scores, [first, last]))
        even = first + (last - first) * _NODES
        z = np.concatenate([even, table.scores[own]])
        f = np.concatenate([np.interp(even, *table), table.f[own]])
        order = np.lexsort((f, z))  # at a jump f has many values at one score
        z, f = z[order], f[order]
        values = self._cdf(np.full((1, 1), y), f[None, :])[0]
        below = ndtr(z)
        return float(below[0] + 0.5 * (values[1:] + values[:-1]) @ np.diff(below))

    def whole_quantiles(self, probs: FloatArray) -> FloatArray:
        """`whole_quantile` of each probability, shape (n_probs, t)."""
        return np.stack([self.whole_quantile(prob) for prob in probs])

    def whole_quantile(self, prob: float) -> FloatArray:
        """The smallest whole number y with P(y_* <= y) >= prob, at most 2^62."""
        enough = prob - _NOTHING
        low = np.full(self.f.shape[0], -1.0)
        high = np.zeros(low.size)
        while (short := (self.cdf(high) < enough) & (high < _MOST)).any():
            low = np.where(short, high, low)
            high = np.where(short, np.minimum(2.0 * high + 1.0, _MOST), high)
        while (high - low > 1.0).any():
            mid = np.floor(0.5 * (low + high))
            reached = self.cdf(mid) >= enough
            low, high = np.where(reached, low, mid), np.where(reached, mid, high)
            # Neighbours of large numbers may be one float.
            low = np.where(high - low <= 4e-16 * high, high - 1.0, low)
        return high

    def noisy_quantiles(self, probs: FloatArray, inverse: Callable[[float], float]) -> FloatArray:
        """`noisy_quantile` of each probability, shape (n_probs, t)."""
        return np.stack([self.noisy_quantile(prob, inverse) for prob in probs])

    def noisy_quantile(self, prob: float, inverse: Callable[[float], float]) -> FloatArray:
        """Of y = f + e, e with this inverse distribution function: by false positions."""
        # If y is below a + b, f is below a or e below b: half of prob for b leaves less for a.
        low = self.f[:, 0] + inverse(0.5 * prob)
        high = self.f[:, -1] + inverse(0.5 + 0.5 * prob)
        goal = ndtri(prob)
        below, above = self._score(low) - goal, self._score(high) - goal
        width = 1e-9 * (high - low)
        for _ in range(_MAX_STEPS):
            mid = high - above * (high - low) / np.maximum(above - below, 1e-300)
            found = self._score(mid) - goal
            up = found >= 0
            # Illinois: the end that stays counts half.
            below, above = np.where(up, 0.5 * below, found), np.where(up, found, 0.5 * above)
            moved = np.where(up, high - mid, mid - low)
            low, high = np.where(up, low, mid), np.where(up, mid, high)
            if ((np.minimum(moved, high - low) < width) | (np.abs(found) < 1e-9)).all():
                break
        return mid

    def _score(self, y: FloatArray) -> FloatArray:
        """Normal score of P(y_* <= y), nearly a line."""
        return np.asarray(ndtri(np.clip(self.cdf(y), 1e-15, 1.0 - 1e-15)))


class LatentTable(NamedTuple):
    """Values of f at one point and their normal scores, both increasing, shape (k,) each."""

    scores: FloatArray
    f: FloatArray


def latent_at_scores(mixture: Mixture) -> tuple[FloatArray, dict[int, LatentTable]]:
    """Values of f of normal scores `_SCORES`, shape (t, 129), by lines between those of a grid.

    And finer tables of the points where f(z) jumps.
    """
    centre, sd, _ = mixture.moments
    x = centre[:, None] + sd[:, None] * _GRID
    below = mixture_cdf(mixture.means, mixture.variance, mixture.weights, x.T).T
    scores = _scores(below)
    jumps = np.diff(np.clip(scores, -_DRAWN, _DRAWN), axis=1).max(axis=1) > _JUMP
    tables = {
        int(i): _finer(mixture, int(i), LatentTable(scores[i], x[i])) for i in np.flatnonzero(jumps)
    }
    known = [tables.get(i, pair) for i, pair in enumerate(zip(scores, x, strict=True))]
    return np.stack([np.interp(_SCORES, *pair) for pair in known]), tables


def _finer(mixture: Mixture, row: int, table: LatentTable) -> LatentTable:
    """With the middle of cells in which scores are no line, again and again."""
    own = slice(row, row + 1)
    narrowest = _NARROWEST * float(mixture.moments[1][row])
    scores, x = table
    unknown = np.ones(x.size - 1, dtype=bool)
    while True:
        rise = np.diff(np.clip(scores, -_REACH, _REACH))
        cells = np.flatnonzero(unknown & (rise > _OFF) & (np.diff(x) > narrowest))
        if not cells.size:
            return LatentTable(scores, x)
        middle = 0.5 * (x[cells] + x[cells + 1])
        below = mixture_cdf(
            mixture.means[own], mixture.variance[own], mixture.weights, middle[:, None]
        )
        found = _scores(below[:, 0])
        off = np.abs(found - 0.5 * (scores[cells] + scores[cells + 1]))
        unknown[:] = False
        unknown[cells] = (off > _OFF) | (rise[cells] > _FINE)
        unknown = np.insert(unknown, cells + 1, unknown[cells])
        scores, x = np.insert(scores, cells + 1, found), np.insert(x, cells + 1, middle)


def _scores(below: FloatArray) -> FloatArray:
    return np.asarray(ndtri(np.clip(below, 1e-16, 1.0 - 1e-16)))
