"""Importance sampling over many hyperparameters, from a surrogate of the log evidence.

With twenty and more coordinates no mixture is near enough to the posterior: where an input does
not matter, its lengthscale follows the prior from some length on and is cut off below, and weights
multiply over the coordinates. A Gaussian process through the log evidence and its gradient knows
that shape from some hundred points. Draws from it, times the exact prior, cost no evidence; their
weights are the evidence over the surrogate, at points by which the surrogate was not fitted.

With g the surrogate and P the points in coordinates of their own (see `Kernel`),

    g ~ GP(level, s^2 exp(-|P - P'|^2 / (2 l^2))),

observed with its gradient at every point, with a little noise [1]_. Far from all points it returns
to its level, which is low: no draw is led to where nothing is known. The weights of N points in D
coordinates solve a system of N (D + 1) equations; conjugate gradients need products with its matrix
only, which cost 6 N^2 D operations each and no more memory than N x N.

Draws from it are made by annealing [2]_: points of a mixture of Student t distributions q are led
to the density exp(f) through q^(1-b) exp(b f), b from 0 to 1; each step weights, resamples and
moves them by Hamiltonian Monte Carlo. The product of the mean weights estimates the integral
without bias (but for b and the moves being tuned on the points themselves).

References
----------
.. [1] E. Solak, R. Murray-Smith, W. Leithead, D. Leith & C. Rasmussen (2003), Derivative
   observations in Gaussian process models of dynamic systems, NeurIPS 15.
.. [2] P. Del Moral, A. Doucet & A. Jasra (2006), Sequential Monte Carlo samplers,
   doi:10.1111/j.1467-9868.2006.00553.x.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from pymc_skewgp._gaussian import weights
from pymc_skewgp._gaussian.linalg import squared_distances
from pymc_skewgp._gaussian.weights import IntArray, uniform_points
from pymc_skewgp._learn.averaging.importance import (
    DF,
    LEAST_SHARE,
    IntegrationSettings,
    StudentMixture,
    Target,
    mixture_of_modes,
)
from pymc_skewgp._learn.averaging.modes import Mode
from pymc_skewgp._learn.averaging.points import WeightedPoints
from pymc_skewgp._learn.coordinates import Function, Pattern, Point
from pymc_skewgp._limits import few_blas_threads, stage
from pymc_skewgp._validation import FloatArray

# Value and gradient at rows.
Rows = Callable[[FloatArray], tuple[FloatArray, FloatArray]]

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

    @property
    def level(self) -> float:
        """That a surrogate of them returns to."""
        return float(np.quantile(self.value, _LOW))


class Kernel(NamedTuple):
    """Of the process, in coordinates in which the log evidence is nearly stationary.

    Once a lengthscale is long its input is irrelevant, and the evidence no longer changes: on the
    log scale such a coordinate becomes c - log(1 + exp(2 (c - x))) / 2, which bends to a constant
    beyond c.

    Attributes
    ----------
    bend : ndarray, shape (D,)
        c, infinite where there is none.
    unit, centre : ndarray, shape (D,)
        Of the bent coordinates.
    """

    bend: FloatArray
    unit: FloatArray
    centre: FloatArray | float = 0.0

    def placed(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Coordinates of rows in units, and the derivative of each."""
        bent = np.isfinite(self.bend)
        ratio = 2.0 * (np.where(bent, self.bend, 0.0) - x)
        warped = np.where(bent, -0.5 * np.logaddexp(0.0, ratio), x)
        slope = np.where(bent, 1.0 / (1.0 + np.exp(-ratio)), 1.0)
        return (warped - self.centre) / self.unit, slope / self.unit


def kernels(x: FloatArray, groups: Sequence[tuple[IntArray, bool]]) -> list[Kernel]:
    """Candidates for lengths and bends.

    Parameters
    ----------
    x : ndarray, shape (N, D)
        Where the bends are placed by.
    groups : sequence of (index, bool)
        Coordinates of each variable, and whether these are logarithms.
    """
    unit = np.clip(x.std(axis=0), _LEAST_UNIT, _LARGEST_UNIT)
    found = []
    for beyond in _BENDS:
        bend = np.full(x.shape[1], np.inf)
        for own, logarithms in groups:
            if logarithms:
                unit[own] = 1.0
                bend[own] = np.quantile(x[:, own], _QUARTILE) + beyond
        centre = Kernel(bend, np.ones_like(unit)).placed(x)[0].mean(axis=0)
        found += [Kernel(bend, length * unit, centre) for length in _LENGTHS]
    return found


def fits(candidates: Sequence[Kernel], known: Known) -> FloatArray:
    """Log marginal likelihood of each at some of the points, its scale at the maximum.

    Those of several sets are added up, as if these were independent: their matrices stay small.
    """
    if known.value.size < 2:
        return np.zeros(len(candidates))
    count = max(min(_JUDGED, _LARGEST // (known.x.shape[1] + 1)), _FEWEST_JUDGED)
    few = Known(*(part[:count] for part in known))
    data = np.concatenate([(few.value - known.level)[:, None], few.gradient], axis=1).ravel()
    return np.array([_fit_of(kernel, few.x, data) for kernel in candidates])


def _fit_of(kernel: Kernel, x: FloatArray, data: FloatArray) -> float:
    p, slope = kernel.placed(x)
    n, d = p.shape
    among = np.exp(-0.5 * squared_distances(p, p))
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
    try:
        factor = cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        return -np.inf
    squared = float(data @ cho_solve(factor, data, check_finite=False))
    log_det = 2.0 * float(np.log(np.diagonal(factor[0])).sum())
    # Where the evidence is constant the scale is 0: any kernel does.
    return -0.5 * (data.size * np.log(max(squared / data.size, _LEAST_SCALE)) + log_det)


class Surrogate:
    """The posterior mean of the process.

    Parameters
    ----------
    known : Known
        Finite.
    kernel : Kernel
    """

    def __init__(self, known: Known, kernel: Kernel) -> None:
        self._kernel, self._level = kernel, known.level
        self._p, slope = kernel.placed(known.x)
        # Where a coordinate has bent its derivative says nothing: noise in place of a division
        # by 0.
        steep = np.maximum(slope, 1e-6)
        depth = (known.value.max() - known.value) / _DEPTH
        noise = np.concatenate([np.ones((len(steep), 1)), 1.0 + steep**-2.0], axis=1)
        noise *= _NOISE * (1.0 + depth**2)[:, None]
        target = np.column_stack([known.value - known.level, known.gradient / steep])
        self._weights = self._solved(target, noise)

    def __call__(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Value and gradient at rows."""
        p, slope = self._kernel.placed(x)
        found = self._product(p, self._weights)
        return self._level + found[:, 0], found[:, 1:] * slope

    def _product(self, p: FloatArray, by: FloatArray) -> FloatArray:
        """Covariance of value and slopes at `p` with those at the points, times weights."""
        q, slopes = self._p, by[:, 1:]
        among = np.exp(-0.5 * squared_distances(p, q))
        parts = among * (by[:, 0] - np.einsum("nd,nd->n", q, slopes) + p @ slopes.T)
        sums = parts.sum(axis=1)
        return np.column_stack([sums, among @ slopes + parts @ q - sums[:, None] * p])

    def _solved(self, target: FloatArray, noise: FloatArray) -> FloatArray:
        """Weights by conjugate gradients."""
        found, residual, step = np.zeros_like(target), target, target / (1.0 + noise)
        inner = float((residual * step).sum())
        smallest = _TOLERANCE**2 * inner
        for _ in range(_MOST_STEPS):
            if inner <= smallest:
                break
            image = self._product(self._p, step) + noise * step
            length = inner / float((step * image).sum())
            found, residual = found + length * step, residual - length * image
            scaled = residual / (1.0 + noise)
            last, inner = inner, float((residual * scaled).sum())
            step = scaled + (inner / last) * step
        return found


# Annealing. Relative ESS of each step's weights; moves of every point at each step, and at the last
# one; leapfrog steps of a move, at most.
_ESS, _MOVES, _LAST_MOVES, _LEAPS, _MOST_POWERS = 0.7, 2, 4, 6, 60
_TARGET_ACCEPT, _LEAST_VARIANCE, _BISECTIONS = 0.8, 1e-6, 40
# Standard deviations in one step.
_FARTHEST = 30.0


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


class _State(NamedTuple):
    """Points with both log densities, (2, N), and their gradients, (2, N, D)."""

    x: FloatArray
    value: FloatArray
    gradient: FloatArray

    def density(self, power: float) -> tuple[FloatArray, FloatArray]:
        """Log of q^(1-b) exp(b f), with its gradient."""
        (q, f), (of_q, of_f) = self.value, self.gradient
        return (1.0 - power) * q + power * f, (1.0 - power) * of_q + power * of_f


def annealed(
    density: Rows, start: StudentMixture, n_groups: int, each: int, rng: np.random.Generator
) -> Annealed:
    """Draws from exp(f).

    Parameters
    ----------
    density : callable
        f, finite, with its gradient.
    start : StudentMixture
    n_groups, each : int
        Points in each group.
    rng : numpy.random.Generator
    """

    def at(x: FloatArray) -> _State:
        value, gradient = zip(start.slope(x), density(x), strict=True)
        return _State(x, np.stack(value), np.stack(gradient))

    state = at(start.draw(uniform_points(start.n_uniforms, each, n_groups, rng)))
    log_integral = np.zeros(n_groups)
    power, stride = 0.0, float(state.x.shape[1]) ** -0.25
    for step in range(_MOST_POWERS):
        log_ratio = state.value[1] - state.value[0]
        added = 1.0 - power if step == _MOST_POWERS - 1 else _added(log_ratio, 1.0 - power)
        power += added
        chosen = []
        for g, own in enumerate(added * log_ratio.reshape(n_groups, each)):
            log_integral[g] += weights.log_mean_exp(own)
            chosen.append(g * each + weights.systematic_resample(own, each, rng))
        index = np.concatenate(chosen)
        state = _State(state.x[index], state.value[:, index], state.gradient[:, index])
        for _ in range(_LAST_MOVES if power >= 1.0 else _MOVES):
            state, accepted = _moved(state, at, power, stride, rng)
            stride *= float(np.exp(accepted - _TARGET_ACCEPT))
        if power >= 1.0:
            break
    shape = (n_groups, each)
    return Annealed(state.x.reshape(*shape, -1), state.value[1].reshape(shape), log_integral)


def _added(log_ratio: FloatArray, most: float) -> float:
    """The step of the power after which weights are as unequal as is allowed."""
    if weights.relative_ess(most * log_ratio) >= _ESS:
        return most
    low, high = 0.0, most
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        enough = weights.relative_ess(middle * log_ratio) >= _ESS
        low, high = (middle, high) if enough else (low, middle)
    return high


def _moved(
    state: _State,
    at: Callable[[FloatArray], _State],
    power: float,
    stride: float,
    rng: np.random.Generator,
) -> tuple[_State, float]:
    """Every point by one trajectory, in coordinates in which all of them are white."""
    n, d = state.x.shape
    cov = np.atleast_2d(np.cov(state.x.T))
    chol = np.linalg.cholesky(cov + _LEAST_VARIANCE * np.trace(cov) / d * np.eye(d))
    length = stride * rng.uniform(0.7, 1.3, (n, 1))
    speed = rng.standard_normal((n, d))
    value, gradient = state.density(power)
    energy = value - 0.5 * np.square(speed).sum(axis=1)
    new, lost = state, np.zeros(n, dtype=bool)
    # Trajectories that leave for infinity end there.
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(int(rng.integers(1, _LEAPS + 1))):
            half = speed + 0.5 * length * (gradient @ chol)
            step = length * (half @ chol.T)
            lost |= ~(np.abs(step) < _FARTHEST * np.sqrt(np.diagonal(cov))).all(axis=1)
            new = at(np.where(lost[:, None], state.x, new.x + step))
            value, gradient = new.density(power)
            speed = half + 0.5 * length * (gradient @ chol)
        gain = value - 0.5 * np.square(speed).sum(axis=1) - energy
        probability = np.where(lost, 0.0, np.nan_to_num(np.exp(np.minimum(gain, 0.0))))
    accept = rng.random(n) < probability
    each = accept[:, None]
    mixed = _State(
        np.where(each, new.x, state.x),
        np.where(accept, new.value, state.value),
        np.where(each, new.gradient, state.gradient),
    )
    return mixed, float(probability.mean())


# The rung. Of each mode at the start: place, scale and share, as of `mixture_of_modes`.
_AT_MODES = ((0.0, 1.0, 1.0),)
# Points of the first fit: for each coordinate, and at least.
_POINTS_PER_COORDINATE, _FEWEST_POINTS = 2, 32
# Independent groups of draws from the surrogate, whose spread is the standard error; points that
# each adds in a round; draws in a group, while the surrogate is learnt and after that.
_GROUPS, _ADDED, _CLOUD, _FINAL_CLOUD = 16, 3, 16, 64
# Times that the surrogate learns from its last draws, and points of further rounds each time.
_MOST_REPAIRS, _MOST_LEARNT = 4, 96
# Nats by which the bound on the density is above all that is known.
_MARGIN = 2.0
# Of the mixture from which the next draws begin: points that start at the modes come back to them,
# wherever the others have been led.
_SHARE_OF_MODES = 0.2
_WIDEN, _EM_STEPS = 1.2, 2
# Log density where there is none.
_NOWHERE = -1e10
# Rows of the surrogate's matrices: too few for a second thread.
_SMALL = 100


def first_points(n_coordinates: int) -> int:
    """Of the first fit."""
    return max(_POINTS_PER_COORDINATE * n_coordinates, _FEWEST_POINTS)


class SmoothTarget(NamedTuple):
    """Log prior plus log evidence.

    Attributes
    ----------
    function : callable
        Value with gradient.
    values : callable
        Of many points, without.
    log_prior : callable
        Of rows, with gradients; finite.
    groups : sequence of (index, bool)
        As of `kernels`.
    """

    function: Function
    values: Target
    log_prior: Callable[[FloatArray, Pattern], tuple[FloatArray, FloatArray]]
    groups: Sequence[tuple[IntArray, bool]]


class SurrogateSampler:
    """Points drawn from a surrogate, with one pattern of binary values.

    Parameters
    ----------
    target : SmoothTarget
    modes : list of Mode
        Of one pattern.
    settings : IntegrationSettings
    rng : numpy.random.Generator

    Attributes
    ----------
    highest : tuple of Point and float
        The highest point that was met, and the target there.
    """

    def __init__(
        self,
        target: SmoothTarget,
        modes: list[Mode],
        settings: IntegrationSettings,
        rng: np.random.Generator,
    ) -> None:
        self._target, self._pattern = target, modes[0].point.pattern
        self._settings, self._rng = settings, rng
        nothing = np.zeros((0, modes[0].point.x.size))
        self._known = Known(nothing, np.zeros(0), nothing)
        # Wider to begin with: other modes may be near.
        self._first = mixture_of_modes(modes)
        self._learnt = self._proposal = mixture_of_modes(modes, _AT_MODES)
        self.highest = modes[0].point, -np.inf

    def learn(self, enough: int) -> None:
        """Evaluate the target at draws from the surrogate, round after round.

        Until the weights are good and further points would be more than those that are then
        weighted, twice in a row: some tens of weights look better than they are.
        """
        first = self._first
        each = -(-first_points(first.means.shape[1]) // _GROUPS)
        uniforms = uniform_points(first.n_uniforms, each, _GROUPS, self._rng)
        self._observe(np.concatenate([first.means, first.draw(uniforms)]))
        self._candidates = kernels(self._known.x, self._target.groups)
        with few_blas_threads(_SMALL):
            self._totals = fits(self._candidates, self._known)
        self._rounds(enough, self._settings.learnt)

    def _rounds(self, enough: int, most: int) -> None:
        settings, count, reached, last = self._settings, 0, 0.0, 0.0
        while count < most and (
            min(reached, last) < settings.good or min(reached, last) * count < enough
        ):
            self._fit()
            cloud = self._annealed(_CLOUD)
            rows = cloud.x.reshape(-1, cloud.x.shape[2])
            equal = np.full(len(rows), 1.0 / len(rows))
            self._learnt = self._learnt.fitted(rows, equal, _WIDEN, _EM_STEPS, LEAST_SHARE)
            self._proposal = self._learnt.beside(self._first, _SHARE_OF_MODES)
            chosen = cloud.x[:, :_ADDED].reshape(-1, rows.shape[1])
            log_ratio = self._observed(chosen) - cloud.log_density[:, :_ADDED].ravel()
            last, reached = reached, _relative_ess(log_ratio)
            count += log_ratio.size
            stage(f"Surrogate of the log evidence: {count} points, relative ESS {reached:.2f}")
        self._fit()

    def _observed(self, x: FloatArray) -> FloatArray:
        """As `_observe`, and the kernels judged by these points too."""
        before = self._known.value.size
        found = self._observe(x)
        with few_blas_threads(_SMALL):
            new = Known(*(part[before:] for part in self._known))
            self._totals += fits(self._candidates, new)
        return found

    def draws(self, enough: int) -> WeightedPoints:
        """Points by which the surrogate was not fitted, until there are enough effective ones.

        Where weights are poor the surrogate learns from the largest, and all points are new.
        """
        for _ in range(_MOST_REPAIRS):
            found = self._weighted(enough, least=True)
            estimate = found.estimate()
            if self._settings.accepts(estimate) or not estimate.relative_ess:  # nothing to learn
                return found
            stage("Surrogate of the log evidence: learning from points of large weight")
            self._observed(found.x[np.argsort(-found.log_weights)[: _ADDED * _GROUPS]])
            self._rounds(enough, _MOST_LEARNT)
        return self._weighted(enough, least=False)

    def _weighted(self, enough: int, *, least: bool) -> WeightedPoints:
        """New points; if `least`, none after weights that are not accepted."""
        cloud, portion = self._annealed(_FINAL_CLOUD), self._settings.portion
        log_integral = cloud.log_integral[:, None]
        parts: list[tuple[FloatArray, ...]] = []
        for begin in range(0, _FINAL_CLOUD, portion):
            part = slice(begin, begin + portion)
            x = cloud.x[:, part].reshape(-1, cloud.x.shape[2])
            found = self._target.values([Point(row, self._pattern) for row in x])
            log_ratio = found[0] + (log_integral - cloud.log_density[:, part]).ravel()
            parts.append((x, *found, log_ratio))
            rows, *known, log_weights = map(np.concatenate, zip(*parts, strict=True))
            group = np.tile(np.repeat(np.arange(_GROUPS), portion), len(parts))
            points = WeightedPoints.of(self._pattern, rows, *known, log_weights, group)
            if _relative_ess(log_weights) * log_weights.size >= enough:
                break
            if least and not self._settings.accepts(points.estimate()):
                break
        return points

    def _fit(self) -> None:
        """The surrogate, and the bound on its density, by all that is known."""
        known, self._bound = self._known, self._proposal
        kernel = self._candidates[int(np.argmax(self._totals))]
        with few_blas_threads(_SMALL):
            self._surrogate = Surrogate(known, kernel)
        log_prior, _ = self._target.log_prior(known.x, self._pattern)
        ratio = known.value + log_prior - self._bound.log_density(known.x)
        self._height = float(ratio.max()) + _MARGIN

    def _annealed(self, each: int) -> Annealed:
        with few_blas_threads(_SMALL):
            return annealed(self._density, self._proposal, _GROUPS, each, self._rng)

    def _density(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Prior times surrogate, as far as it is below a multiple of the mixture.

        Where few points are known a Gaussian process goes up as steeply as it goes down elsewhere.
        """
        log_prior, slope = self._target.log_prior(x, self._pattern)
        value, gradient = self._surrogate(x)
        value, gradient = value + log_prior, gradient + slope
        bound, away = self._bound.slope(x)
        found = -np.logaddexp(-value, -(bound + self._height))
        share = np.exp(found - value)[:, None]
        wild = ~np.isfinite(found)
        found = np.where(wild, _NOWHERE, found)
        return found, np.where(wild[:, None], 0.0, share * gradient + (1.0 - share) * away)

    def _observe(self, x: FloatArray) -> FloatArray:
        """Add points to what is known; the target there."""
        found = [self._target.function(Point(row, self._pattern)) for row in x]
        total = np.array([value.total for value in found])
        log_prior, slope = self._target.log_prior(x, self._pattern)
        gradient = np.array([value.gradient for value in found]) - slope
        best = int(np.argmax(total))
        if total[best] > self.highest[1]:
            self.highest = Point(x[best], self._pattern), float(total[best])
        kept = np.isfinite(total + log_prior) & np.isfinite(gradient).all(axis=1)
        new = x[kept], total[kept] - log_prior[kept], gradient[kept]
        self._known = Known(*map(np.concatenate, zip(self._known, new, strict=True)))
        return total


def _relative_ess(log_weights: FloatArray) -> float:
    """None where no point has any weight."""
    return weights.relative_ess(log_weights) if np.isfinite(log_weights.max()) else 0.0


# Standard deviations, by quartiles, from which on draws are too few; how much further is looked.
_REACHED, _FURTHER, _QUARTILES = 8.0, 4.0, 1.349


def mass_beyond(values: Target, points: WeightedPoints, pattern: Pattern) -> float:
    """Share of the integral in tails that draws do not reach, roughly.

    Of tails heavier than those of the proposals, Student t with `DF` degrees of freedom. Along each
    coordinate, others at their medians, the density is taken for a power of the distance there.
    """
    if not np.isfinite(points.log_weights.max()):
        return 0.0
    low, middle, high = (
        np.quantile(points.x, p, axis=0, weights=points.weights, method="inverted_cdf")
        for p in (1.0 - _QUARTILE, 0.5, _QUARTILE)
    )
    near = np.diag(_REACHED * (high - low) / _QUARTILES)
    far = _FURTHER * near
    rows = middle + np.concatenate([0.0 * near[:1], near, -near, far, -far])
    log_target = values([Point(row, pattern) for row in rows])[0]
    with np.errstate(invalid="ignore"):
        log_near, log_far = (log_target[1:] - log_target[0]).reshape(2, -1)
        df = (log_near - log_far) / np.log(_FURTHER) - 1.0
    heavy = (df < DF) & (log_near < 0.0)  # elsewhere the medians are not where the mass is
    shares = _REACHED * np.exp(log_near[heavy]) / np.maximum(df[heavy], 1.0)
    return float(min(1.0, shares.sum() / np.sqrt(2.0 * np.pi)))
