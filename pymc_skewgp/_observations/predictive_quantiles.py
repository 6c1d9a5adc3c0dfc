r"""Quantiles of a new y whose distribution function given f is known.

.. math:: P(y_* \le y) = \int F(y \mid f(z))\, \varphi(z)\, dz, \qquad f(z) = P_f^{-1}\{\Phi(z)\}

f(z) is tabulated once. Cells of z in which F moves are halved until it moves little: as few as
where F is a step, and where it is smooth. Where f has narrow modes that are far apart, f(z) jumps:
the nodes of a table that is finer there are nodes as well.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from pymc_skewgp._gaussian.weights import IntArray, weighted_error
from pymc_skewgp._observations.likelihood import Mixture, some_values
from pymc_skewgp._validation import FloatArray

# F(y | f), of shapes that broadcast.
ConditionalCdf = Callable[[FloatArray, FloatArray], FloatArray]
# Quantiles of probabilities at points of these indices, near some numbers if these are known.
_Search = Callable[[FloatArray, IntArray, FloatArray | None], FloatArray]
_GRID = np.linspace(-7.5, 7.5, 61)  # where P_f is computed, in standard deviations of f
_REACH = 6.0  # of z: what is beyond has mass 1e-9
_SCORES = np.linspace(-_REACH, _REACH, 129)
_STEP = _SCORES[1] - _SCORES[0]
# Points of f at which neighbours on the grid differ by more, within the scores that draws reach,
# have a finer table. Cells are halved while scores differ in them by more than _FINE and are off a
# line by more than _OFF in the middle, down to a share of f's deviation.
_JUMP, _DRAWN = 0.5, 2.5
_FINE, _OFF, _NARROWEST = 0.1, 0.002, 1e-6
# Cells of z at first, every fourth score; by how much F may move in one, and how often it is
# halved at most; nodes and weights of Gauss and Legendre in it.
_EVERY, _MOVES, _HALVINGS = 4, 0.1, 12
_PLACES, _SHARES = (0.5 * x for x in np.polynomial.legendre.leggauss(3))
_NOTHING = 1e-9
_MOST = 2**62
_LARGEST_POWER = 960.0  # of two, whose inverse is taken for 0
_TOLERANCES: Any = {"xatol": 1e-9, "xrtol": 0.0, "fatol": 1e-9}
_QUADRATURE, _COARSE = 1e-5, 4  # error of a probability; scores that those of draws are by
_NUMBERS = 2**22  # held at once


class Quantiles(NamedTuple):
    """Quantiles, shape (n_probs, t), and those of probabilities an error lower and higher."""

    value: FloatArray
    low: FloatArray
    high: FloatArray

    def named(self, transform: Callable[[FloatArray], FloatArray] | None = None) -> dict[str, Any]:
        """``y_quantile`` and ``y_quantile_se``, after an increasing function."""
        with np.errstate(invalid="ignore", over="ignore"):
            value, low, high = self if transform is None else (transform(x) for x in self)
            error = np.maximum(value - low, high - value)
        return {"y_quantile": value, "y_quantile_se": error}


class _Cells(NamedTuple):
    """Cells of z of all values in which F moves: which value, and their ends."""

    row: IntArray
    left: FloatArray
    right: FloatArray


class NewValues:
    """A new y at each of t points, f as `mixture` has it.

    Parameters
    ----------
    mixture : Mixture
    cdf : callable
        F(y | f).
    """

    def __init__(self, mixture: Mixture, cdf: ConditionalCdf) -> None:
        self._mixture = mixture
        # At the powers of two among which it is searched exp(y) is infinite, and F one.
        self._cdf: ConditionalCdf = np.errstate(over="ignore")(cdf)
        self.f, self._slopes, self._tables = latent_at_scores(mixture)

    def cdf(self, y: FloatArray, point: IntArray | None = None) -> FloatArray:
        """P(y_* <= y), y of shape (t,); or of any numbers y at the points of these indices."""
        point = np.arange(y.size) if point is None else point
        z = _SCORES[::_EVERY]
        at = self._cdf(y[:, None], self.f[point, ::_EVERY])
        # At the ends, and where F is as at both ends of a cell.
        found = at[:, 0] * ndtr(z[0]) + at[:, -1] * ndtr(-z[-1])
        rise = np.abs(np.diff(at, axis=1))
        moves = rise > _NOTHING
        found += np.where(moves, 0.0, 0.5 * (at[:, 1:] + at[:, :-1])) @ np.diff(ndtr(z))
        cells = self._halved(y, point, at, moves)
        middle, width = 0.5 * (cells.left + cells.right), cells.right - cells.left
        nodes = middle[:, None] + width[:, None] * _PLACES
        f = self._f_at(point[cells.row][:, None], nodes)
        density = np.exp(-0.5 * nodes**2) / np.sqrt(2.0 * np.pi)
        mass = width * ((self._cdf(y[cells.row][:, None], f) * density) @ _SHARES)
        found += np.bincount(cells.row, mass, found.size)
        for i in np.flatnonzero(np.isin(point, list(self._tables))):
            edges = np.concatenate([z, cells.left[cells.row == i]])
            found[i] = self._of_table(float(y[i]), self._tables[int(point[i])], edges)
        return np.asarray(found)

    def _halved(
        self, y: FloatArray, point: IntArray, at: FloatArray, moves: NDArray[np.bool_]
    ) -> _Cells:
        """Cells in which F moves, halved until it moves little."""
        row, k = np.nonzero(moves)
        z = _SCORES[::_EVERY]
        left, right, low, high = z[k], z[k + 1], at[row, k], at[row, k + 1]
        done = []
        for step in range(_HALVINGS + 1):
            again = (np.abs(high - low) > _MOVES) & (step < _HALVINGS)
            done.append((row[~again], left[~again], right[~again]))
            if not again.any():
                break
            row = row[again]
            left, right, low, high = (x[again] for x in (left, right, low, high))
            middle = 0.5 * (left + right)
            between = self._cdf(y[row], self._f_at(point[row], middle))
            left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
            low, high = np.concatenate([low, between]), np.concatenate([between, high])
            row = np.tile(row, 2)
        return _Cells(*(np.concatenate(x) for x in zip(*done, strict=True)))

    def _f_at(self, row: IntArray, z: FloatArray) -> FloatArray:
        """f(z) at these points, by cubics between scores."""
        place = (z + _REACH) / _STEP
        k = np.minimum(place.astype(int), _SCORES.size - 2)
        u = place - k
        start, end = self.f[row, k], self.f[row, k + 1]
        # Hermite's form, in differences from the chord.
        rise = end - start
        first, last = self._slopes[row, k] * _STEP - rise, self._slopes[row, k + 1] * _STEP - rise
        return np.asarray(start + u * (rise + (1.0 - u) * (first * (1.0 - u) - last * u)))

    def _of_table(self, y: float, table: "LatentTable", edges: FloatArray) -> float:
        """P(y_* <= y), f(z) being tabulated: a trapezoid rule in Phi(z)."""
        edges = np.unique(edges)
        # Eight nodes in each cell.
        index = np.arange(8 * (edges.size - 1) + 1) / 8.0
        even = np.interp(index, np.arange(edges.size), edges)
        own = slice(*np.searchsorted(table.scores, [-_REACH, _REACH]))
        z = np.concatenate([even, table.scores[own]])
        f = np.concatenate([np.interp(even, *table), table.f[own]])
        order = np.lexsort((f, z))  # at a jump f has many values at one score
        z, f = z[order], f[order]
        values = self._cdf(np.full((1, 1), y), f[None, :])[0]
        below = ndtr(z)
        ends = values[0] * below[0] + values[-1] * (1.0 - below[-1])
        return float(ends + 0.5 * (values[1:] + values[:-1]) @ np.diff(below))

    def errors(self, y: FloatArray) -> FloatArray:
        """Standard errors of `cdf` at y, shape (k, t): of draws of f, and of the quadrature."""
        mixture, t = self._mixture, y.shape[1]
        found = np.zeros(y.shape)
        if mixture.exact:
            return found + _QUADRATURE
        nodes = self.f[:, ::_COARSE]
        values = self._cdf(y[:, :, None], nodes)
        between = 0.5 * (values[..., 1:] + values[..., :-1])
        steps = np.diff(np.concatenate([values[..., :1], between, values[..., -1:]], axis=-1))
        size = max(1, _NUMBERS // (nodes.shape[1] * mixture.weights.size))
        for start in range(0, t, size):
            own = slice(start, start + size)
            # F is constant between nodes: what a component has above each of them.
            sd = np.sqrt(mixture.variance[own] + 1e-24 * (1.0 + mixture.moments[1][own] ** 2))
            off = mixture.means[own][:, :, None] - nodes[own][:, None, :]
            above = ndtr(off / sd[:, None, None])
            for k, rises in enumerate(steps[:, own]):
                each = (above @ rises[:, :, None])[..., 0]
                each -= (each @ mixture.weights)[:, None]
                found[k, own] = weighted_error(each, mixture.weights, mixture.replicate)
        return np.hypot(found, _QUADRATURE)

    def whole_quantiles(self, probs: FloatArray) -> Quantiles:
        """The smallest whole numbers y with P(y_* <= y) >= p, at most 2^62."""
        return self._with_errors(probs, self._whole)

    def real_quantiles(self, probs: FloatArray) -> Quantiles:
        """The least real numbers y with P(y_* <= y) >= p."""
        return self._with_errors(probs, self._real)

    def _with_errors(self, probs: FloatArray, solve: _Search) -> Quantiles:
        p = np.repeat(probs, self.f.shape[0])
        point = np.tile(np.arange(self.f.shape[0]), probs.size)
        value = solve(p, point, None)
        doubt = self.errors(value.reshape(probs.size, -1)).ravel()
        sides = (np.clip(p + x, 1e-12, 1.0 - 1e-12) for x in (-doubt, doubt))
        each = (value, *(solve(side, point, value) for side in sides))
        return Quantiles(*(x.reshape(probs.size, -1) for x in each))

    def _whole(self, p: FloatArray, point: IntArray, near: FloatArray | None) -> FloatArray:
        enough = p - _NOTHING
        high = np.zeros(p.size) if near is None else near
        low, step = high - 1.0, 1.0
        while (above := (self.cdf(low, point) >= enough) & (low > -_MOST)).any():
            high, low = np.where(above, low, high), np.where(above, low - step, low)
            step *= 2.0
        step = 1.0
        while (short := (self.cdf(high, point) < enough) & (high < _MOST)).any():
            low, high = np.where(short, high, low), np.where(short, high + step, high)
            high, step = np.minimum(high, _MOST), 2.0 * step
        while (high - low > 1.0).any():
            mid = np.floor(0.5 * (low + high))
            reached = self.cdf(mid, point) >= enough
            low, high = np.where(reached, low, mid), np.where(reached, mid, high)
            # Neighbours of large numbers may be one float.
            low = np.where(high - low <= 4e-16 * np.abs(high), high - 1.0, low)
        return high

    def _real(self, p: FloatArray, point: IntArray, near: FloatArray | None) -> FloatArray:
        """By Chandrupatla's method in the power of two of y: of any scale, and F may have jumps."""
        from scipy.optimize import elementwise  # a third of a second that few need

        def off(power: FloatArray, goal: FloatArray, point: FloatArray) -> FloatArray:
            below = self.cdf(_of_power(power), point.astype(np.intp))
            # Normal scores are nearly a line.
            return np.asarray(ndtri(np.clip(below, 1e-15, 1.0 - 1e-15))) - goal

        start, width = (self._mixture.moments[0][point], 1.0) if near is None else (near, 0.1)
        power, args = _power_of(start), (ndtri(p), point)
        ends = elementwise.bracket_root(off, power - width, power + width, args=args).bracket
        found = elementwise.find_root(off, ends, args=args, tolerances=_TOLERANCES)
        # Before a jump the probability is not reached.
        return _of_power(np.where(np.abs(found.f_x) < 1e-6, found.x, found.bracket[1]))


def _power_of(y: FloatArray) -> FloatArray:
    """The power of two of y, of its sign and increasing: 0 is that of 2^-_LARGEST_POWER."""
    size = np.log2(np.maximum(np.abs(y), 2.0**-_LARGEST_POWER)) + _LARGEST_POWER
    return np.asarray(np.copysign(size, y))


def _of_power(power: FloatArray) -> FloatArray:
    size = np.minimum(np.abs(power), 2.0 * _LARGEST_POWER)
    return np.where(size < 1.0, 0.0, np.copysign(np.exp2(size - _LARGEST_POWER), power))


class LatentTable(NamedTuple):
    """Values of f at one point and their normal scores, both increasing, shape (k,) each."""

    scores: FloatArray
    f: FloatArray


def latent_at_scores(mixture: Mixture) -> tuple[FloatArray, FloatArray, dict[int, LatentTable]]:
    """Values of f of normal scores `_SCORES`, shape (t, 129), and slopes, by cubics on a grid.

    And finer tables of the points where f(z) jumps.
    """
    centre, sd, _ = mixture.moments
    x = centre[:, None] + sd[:, None] * _GRID
    scores = _scores(mixture._cdf_at(x.T).T)
    density = mixture._density_at(x.T).T
    jumps = np.diff(np.clip(scores, -_DRAWN, _DRAWN), axis=1).max(axis=1) > _JUMP
    tables = {
        int(i): _finer(mixture, int(i), LatentTable(scores[i], x[i])) for i in np.flatnonzero(jumps)
    }
    f, slopes = np.empty((2, centre.size, _SCORES.size))
    for i in range(centre.size):
        if i in tables:
            f[i] = np.interp(_SCORES, *tables[i])
            slopes[i] = np.gradient(f[i], _STEP)
        else:
            f[i], slopes[i] = _by_cubics(LatentTable(scores[i], x[i]), density[i])
    # No cubic leaves the range of its ends (Fritsch & Carlson 1980).
    chords = 3.0 * np.diff(f, axis=1) / _STEP
    slopes[:, 1:] = np.minimum(slopes[:, 1:], chords)
    slopes[:, :-1] = np.minimum(slopes[:, :-1], chords)
    return f, slopes, tables


def _by_cubics(table: LatentTable, density: FloatArray) -> tuple[FloatArray, FloatArray]:
    """F and its slope at `_SCORES`, from the density of f at the nodes of the table."""
    inside = np.abs(table.scores) < 8.0
    inside[1:] &= np.diff(table.scores) > 0
    z, f = table.scores[inside], table.f[inside]
    if z.size < 2:
        return np.full(_SCORES.size, table.f.mean()), np.zeros(_SCORES.size)
    from scipy.interpolate import CubicHermiteSpline  # a tenth of a second that few need

    chords = np.diff(f) / np.diff(z)
    most = 3.0 * np.minimum(np.append(chords, np.inf), np.insert(chords, 0, np.inf))
    with np.errstate(divide="ignore", over="ignore"):
        slope = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi) / density[inside]
    spline = CubicHermiteSpline(z, f, np.minimum(slope, most))
    at = np.clip(_SCORES, z[0], z[-1])
    return spline(at), np.where(at == _SCORES, spline(at, 1), 0.0)


def _finer(mixture: Mixture, row: int, table: LatentTable) -> LatentTable:
    """With the middle of cells in which scores are no line, again and again."""
    own = some_values(mixture, slice(row, row + 1))
    narrowest = _NARROWEST * float(mixture.moments[1][row])
    scores, x = table
    unknown = np.ones(x.size - 1, dtype=bool)
    while True:
        rise = np.diff(np.clip(scores, -_REACH, _REACH))
        cells = np.flatnonzero(unknown & (rise > _OFF) & (np.diff(x) > narrowest))
        if not cells.size:
            return LatentTable(scores, x)
        middle = 0.5 * (x[cells] + x[cells + 1])
        found = _scores(own._cdf_at(middle[:, None])[:, 0])
        off = np.abs(found - 0.5 * (scores[cells] + scores[cells + 1]))
        unknown[:] = False
        unknown[cells] = (off > _OFF) | (rise[cells] > _FINE)
        unknown = np.insert(unknown, cells + 1, unknown[cells])
        scores, x = np.insert(scores, cells + 1, found), np.insert(x, cells + 1, middle)


def _scores(below: FloatArray) -> FloatArray:
    return np.asarray(ndtri(np.clip(below, 1e-16, 1.0 - 1e-16)))
