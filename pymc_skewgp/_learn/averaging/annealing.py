"""Draws from a density that is cheap for many points at once, with its integral, by annealing.

Points of a mixture of Student t distributions q, whose density is known, are led to the density
exp(f) through q^(1-b) exp(b f), b from 0 to 1: each step weights, resamples and moves them by
Hamiltonian Monte Carlo. The product of the mean weights estimates the integral without bias (but
for b and the moves being tuned on the points themselves).

References
----------
.. [1] P. Del Moral, A. Doucet & A. Jasra (2006), Sequential Monte Carlo samplers,
   doi:10.1111/j.1467-9868.2006.00553.x.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pymc_skewgp._gaussian.points import uniform_points
from pymc_skewgp._gaussian.tilted import BoolArray
from pymc_skewgp._gaussian.weights import (
    IntArray,
    log_mean_exp,
    relative_ess,
    systematic_resample,
)
from pymc_skewgp._learn.averaging.student_mixture import StudentMixture
from pymc_skewgp._validation import FloatArray

# Value and gradient at rows.
Rows = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
_TARGET_ACCEPT, _LEAST_SHARE = 0.8, 1e-6
_BISECTIONS = 40
# Standard deviations in one step.
_FARTHEST = 30.0


@dataclass(frozen=True)
class AnnealingSettings:
    """How points are led from the mixture to the density.

    Attributes
    ----------
    ess : float
        Relative ESS of each step's weights.
    moves, last_moves : int
        Of every point at each step, and at the last one.
    leaps : int
        Leapfrog steps of a move, at most.
    most_steps : int
    """

    ess: float = 0.7
    moves: int = 2
    last_moves: int = 4
    leaps: int = 6
    most_steps: int = 60


class Annealed(NamedTuple):
    """Draws in independent groups.

    Attributes
    ----------
    x : ndarray, shape (R, M, D)
    log_density : ndarray, shape (R, M)
        f there.
    log_integral : ndarray, shape (R,)
        Of exp(f), by each group.
    """

    x: FloatArray
    log_density: FloatArray
    log_integral: FloatArray


@dataclass
class _Points:
    """Points with both log densities and their gradients."""

    x: FloatArray
    start: tuple[FloatArray, FloatArray]
    end: tuple[FloatArray, FloatArray]

    def density(self, power: float) -> tuple[FloatArray, FloatArray]:
        """Log of q^(1-b) exp(b f), with its gradient."""
        pairs = zip(self.start, self.end, strict=True)
        value, gradient = ((1.0 - power) * a + power * b for a, b in pairs)
        return value, gradient


def annealed(
    density: Rows,
    proposal: StudentMixture,
    n_groups: int,
    n_points: int,
    settings: AnnealingSettings,
    rng: np.random.Generator,
) -> Annealed:
    """Draws from exp(f).

    Parameters
    ----------
    density : callable
        f, finite, with its gradient.
    proposal : StudentMixture
    n_groups, n_points : int
        Points in each group.
    settings : AnnealingSettings
    rng : numpy.random.Generator
    """

    def at(x: FloatArray) -> _Points:
        return _Points(x, proposal.slope(x), density(x))

    points = at(proposal.draw(uniform_points(proposal.n_uniforms, n_points, n_groups, rng)))
    log_integral = np.zeros(n_groups)
    power, stride = 0.0, float(points.x.shape[1]) ** -0.25
    for step in range(settings.most_steps):
        log_ratio = points.end[0] - points.start[0]
        last = step == settings.most_steps - 1
        added = 1.0 - power if last else _added(log_ratio, 1.0 - power, settings.ess)
        power += added
        log_weights = added * log_ratio.reshape(n_groups, n_points)
        log_integral += [log_mean_exp(own) for own in log_weights]
        chosen = np.concatenate(
            [
                g * n_points + systematic_resample(own, n_points, rng)
                for g, own in enumerate(log_weights)
            ]
        )
        points = _chosen(points, chosen)
        done = power >= 1.0
        for _ in range(settings.last_moves if done else settings.moves):
            points, accepted = _moved(points, at, power, stride, settings.leaps, rng)
            stride *= float(np.exp(accepted - _TARGET_ACCEPT))
        if done:
            break
    shape = (n_groups, n_points)
    return Annealed(points.x.reshape(*shape, -1), points.end[0].reshape(shape), log_integral)


def _added(log_ratio: FloatArray, most: float, ess: float) -> float:
    """The step of the power after which weights are as unequal as is allowed."""
    if relative_ess(most * log_ratio) >= ess:
        return most
    low, high = 0.0, most
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if relative_ess(middle * log_ratio) >= ess else (low, middle)
    return high


def _chosen(points: _Points, index: IntArray) -> _Points:
    start, end = ((value[index], slope[index]) for value, slope in (points.start, points.end))
    return _Points(points.x[index], start, end)


def _moved(
    points: _Points,
    at: Callable[[FloatArray], _Points],
    power: float,
    stride: float,
    leaps: int,
    rng: np.random.Generator,
) -> tuple[_Points, float]:
    """Every point by one trajectory, in coordinates in which all of them are white."""
    n, d = points.x.shape
    cov = np.atleast_2d(np.cov(points.x.T))
    chol = np.linalg.cholesky(cov + _LEAST_SHARE * np.trace(cov) / d * np.eye(d))
    length = stride * rng.uniform(0.7, 1.3, (n, 1))
    speed = rng.standard_normal((n, d))
    value, gradient = points.density(power)
    energy = value - 0.5 * np.square(speed).sum(axis=1)
    new, lost = points, np.zeros(n, dtype=bool)
    # Trajectories that leave for infinity end there.
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(int(rng.integers(1, leaps + 1))):
            half = speed + 0.5 * length * (gradient @ chol)
            step = length * (half @ chol.T)
            lost |= ~(np.abs(step) < _FARTHEST * np.sqrt(np.diagonal(cov))).all(axis=1)
            new = at(np.where(lost[:, None], points.x, new.x + step))
            value, gradient = new.density(power)
            speed = half + 0.5 * length * (gradient @ chol)
        gain = value - 0.5 * np.square(speed).sum(axis=1) - energy
        probability = np.where(lost, 0.0, np.nan_to_num(np.exp(np.minimum(gain, 0.0))))
    accept = rng.random(n) < probability
    mixed = _Points(
        np.where(accept[:, None], new.x, points.x),
        _either(accept, new.start, points.start),
        _either(accept, new.end, points.end),
    )
    return mixed, float(probability.mean())


def _either(
    first: BoolArray, a: tuple[FloatArray, FloatArray], b: tuple[FloatArray, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    return np.where(first, a[0], b[0]), np.where(first[:, None], a[1], b[1])
