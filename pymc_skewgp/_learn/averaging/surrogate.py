"""A Gaussian process through the log evidence and its gradient at some points: a surrogate for it.

With g the surrogate and P the points in coordinates of their own (see `Warp`),

    g ~ GP(level, s^2 exp(-|P - P'|^2 / (2 l^2))),

observed with its gradient at every point, with a little noise. Far from all points it returns to
its level, which is low: no draw is led to where nothing is known. The weights of N points in D
coordinates solve a system of N (D + 1) equations; conjugate gradients need products with its matrix
only, which cost 6 N^2 D operations each and no more memory than N x N.

What is drawn from the surrogate is weighted by the evidence itself: it need not be exact.

References
----------
.. [1] E. Solak, R. Murray-Smith, W. Leithead, D. Leith & C. Rasmussen (2003), Derivative
   observations in Gaussian process models of dynamic systems, NeurIPS 15.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray

# Share of the scale that is noise, of values and of slopes in units.
_NOISE = 1e-4
# Nats below the highest value at which noise is twice that: it matters only that it is low there.
_DEPTH = 15.0
_LENGTHS = (2.0, 3.0, 4.5, 7.0)
# Distances of the bend from the variable's upper quartile; infinite for none.
_BENDS = (-0.5, 0.0, 0.5, 1.0, np.inf)
_QUARTILE = 0.75
# Quantile of the values that is the level.
_LOW = 0.1
# Points of which length and bend are judged.
_JUDGED, _FEWEST_JUDGED = 48, 8
# Size of the matrix of their values and slopes, at most.
_LARGEST = 800
_LEAST_UNIT, _LARGEST_UNIT = 0.1, 10.0
# Squared, in nats.
_LEAST_SCALE = 1e-20
_MOST_STEPS, _TOLERANCE = 400, 1e-4


class Known(NamedTuple):
    """Points where the log evidence is known.

    Attributes
    ----------
    x : ndarray, shape (N, D)
    value : ndarray, shape (N,)
    gradient : ndarray, shape (N, D)
    """

    x: FloatArray
    value: FloatArray
    gradient: FloatArray

    @classmethod
    def nothing(cls, n_coordinates: int) -> "Known":
        """No points."""
        return cls(np.zeros((0, n_coordinates)), np.zeros(0), np.zeros((0, n_coordinates)))

    def joined(self, other: "Known") -> "Known":
        """These and others."""
        return Known(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))

    def first(self, count: int) -> "Known":
        """Some of them."""
        return Known(self.x[:count], self.value[:count], self.gradient[:count])

    def since(self, count: int) -> "Known":
        """The others."""
        return Known(self.x[count:], self.value[count:], self.gradient[count:])


@dataclass(frozen=True, eq=False)
class Warp:
    """Coordinates in which the log evidence is nearly stationary.

    Once a lengthscale is long its input is irrelevant, and the evidence no longer changes: on the
    log scale such a coordinate becomes c - log(1 + exp(2 (c - x))) / 2, which bends to a constant
    beyond c.

    Attributes
    ----------
    bend : ndarray, shape (D,)
        c, infinite where there is none.
    unit : ndarray, shape (D,)
    """

    bend: FloatArray
    unit: FloatArray

    def __call__(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Coordinates of rows, and the derivative of each."""
        bent = np.isfinite(self.bend)
        ratio = 2.0 * (np.where(bent, self.bend, 0.0) - x)
        warped = np.where(bent, -0.5 * np.logaddexp(0.0, ratio), x)
        slope = np.where(bent, 1.0 / (1.0 + np.exp(-ratio)), 1.0)
        return warped / self.unit, slope / self.unit


@dataclass(frozen=True, eq=False)
class Kernel:
    """Of the process, but for its scale.

    Attributes
    ----------
    warp : Warp
    centre : ndarray, shape (D,)
    length : float
    """

    warp: Warp
    centre: FloatArray
    length: float

    def placed(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Coordinates in units of the length, with derivatives."""
        p, slope = self.warp(x)
        return (p - self.centre) / self.length, slope / self.length


class KernelChoice:
    """Length and bends with the largest marginal likelihood of sets of points, one after another.

    The sets are taken for independent, so that their matrices stay small.

    Parameters
    ----------
    first : Known
        Where the bends are placed by; judged as well.
    groups : sequence of (index, bool)
        Coordinates of each variable, and whether these are logarithms.
    """

    def __init__(self, first: Known, groups: Sequence[tuple[IntArray, bool]]) -> None:
        self._kernels = _candidates(first, groups)
        self._totals = np.zeros(len(self._kernels))
        self.add(first)

    def add(self, known: Known) -> None:
        """Judge by further points."""
        if known.value.size > 1:
            level = float(np.quantile(known.value, _LOW))
            size = known.x.shape[1] + 1
            judged = known.first(max(min(_JUDGED, _LARGEST // size), _FEWEST_JUDGED))
            self._totals += [_fit_of(kernel, judged, level) for kernel in self._kernels]

    @property
    def best(self) -> Kernel:
        """So far."""
        return self._kernels[int(np.argmax(self._totals))]


class Surrogate:
    """The posterior mean of the process.

    Parameters
    ----------
    known : Known
        Finite.
    kernel : Kernel
    """

    def __init__(self, known: Known, kernel: Kernel) -> None:
        self._level = float(np.quantile(known.value, _LOW))
        self._kernel = kernel
        p, slope = kernel.placed(known.x)
        self._p = p
        depth = (known.value.max() - known.value) / _DEPTH
        self._values, self._slopes = _solved(p, slope, known, self._level, 1.0 + depth**2)

    def __call__(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Value and gradient at rows."""
        p, slope = self._kernel.placed(x)
        value, gradient = _product(p, self._p, self._values, self._slopes)
        return self._level + value, gradient * slope


def _product(
    p: FloatArray, q: FloatArray, values: FloatArray, slopes: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Covariance of value and slopes at `p` with those at `q`, times weights of the latter."""
    among = np.exp(-0.5 * _squared_distances(p, q))
    parts = among * (values - np.einsum("nd,nd->n", q, slopes) + p @ slopes.T)
    sums = parts.sum(axis=1)
    return sums, among @ slopes + parts @ q - sums[:, None] * p


def _squared_distances(p: FloatArray, q: FloatArray) -> FloatArray:
    found = np.square(p).sum(axis=1)[:, None] + np.square(q).sum(axis=1) - 2.0 * p @ q.T
    return np.maximum(found, 0.0)


def _solved(
    p: FloatArray, slope: FloatArray, known: Known, level: float, noisier: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Weights by conjugate gradients."""
    n, d = p.shape
    # Where a coordinate has bent its derivative says nothing: noise in place of a division by 0.
    noise = _NOISE * np.concatenate([np.ones((n, 1)), 1.0 + 1.0 / np.maximum(slope, 1e-6) ** 2], 1)
    noise *= noisier[:, None]
    target = np.concatenate(
        [(known.value - level)[:, None], known.gradient / np.maximum(slope, 1e-6)], axis=1
    )
    diagonal = 1.0 + noise
    weights = np.zeros((n, d + 1))
    residual, step = target, target / diagonal
    inner = float((residual * step).sum())
    smallest = _TOLERANCE**2 * inner
    for _ in range(_MOST_STEPS):
        if inner <= smallest:
            break
        value, slopes = _product(p, p, step[:, 0], step[:, 1:])
        image = np.concatenate([value[:, None], slopes], axis=1) + noise * step
        length = inner / float((step * image).sum())
        weights = weights + length * step
        residual = residual - length * image
        scaled = residual / diagonal
        last, inner = inner, float((residual * scaled).sum())
        step = scaled + (inner / last) * step
    return weights[:, 0], weights[:, 1:]


def _candidates(first: Known, groups: Sequence[tuple[IntArray, bool]]) -> list[Kernel]:
    """Candidates for lengths and bends."""
    d = first.x.shape[1]
    unit = np.clip(first.x.std(axis=0), _LEAST_UNIT, _LARGEST_UNIT)
    found = []
    for beyond in _BENDS:
        bend = np.full(d, np.inf)
        for own, logarithms in groups:
            if logarithms:
                unit[own] = 1.0
                bend[own] = np.quantile(first.x[:, own], _QUARTILE) + beyond
        warp = Warp(bend, unit)
        centre = warp(first.x)[0].mean(axis=0)
        found += [Kernel(warp, centre, length) for length in _LENGTHS]
    return found


def _fit_of(kernel: Kernel, known: Known, level: float) -> float:
    """Log marginal likelihood of values and slopes at some points, its scale at the maximum."""
    p, slope = kernel.placed(known.x)
    n, d = p.shape
    among = np.exp(-0.5 * _squared_distances(p, p))
    apart = p[:, None, :] - p[None]
    cov = np.empty((n, d + 1, n, d + 1))
    cov[:, 0, :, 0] = among
    cov[:, 0, :, 1:] = among[..., None] * apart
    cov[:, 1:, :, 0] = cov[:, 0, :, 1:].transpose(1, 2, 0)
    bowl = np.eye(d) - apart[..., :, None] * apart[..., None, :]
    cov[:, 1:, :, 1:] = (among[..., None, None] * bowl).transpose(0, 2, 1, 3)
    factors = np.concatenate([np.ones((n, 1)), slope], axis=1)
    cov *= factors[:, :, None, None] * factors
    matrix = cov.reshape(n * (d + 1), -1)
    noise = _NOISE * np.concatenate([np.ones((n, 1)), 1.0 + slope**2], axis=1)
    matrix[np.diag_indices_from(matrix)] += noise.ravel()
    data = np.concatenate([(known.value - level)[:, None], known.gradient], axis=1).ravel()
    try:
        factor = cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        return -np.inf
    squared = float(data @ cho_solve(factor, data, check_finite=False))
    log_det = 2.0 * float(np.log(np.diagonal(factor[0])).sum())
    # Where the evidence is constant the scale is 0: any kernel does.
    return -0.5 * (data.size * np.log(max(squared / data.size, _LEAST_SCALE)) + log_det)
