"""EP's log evidence between the points of few hyperparameters where it is known."""

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from pymc_skewgp._gaussian.linalg import squared_distances
from pymc_skewgp._learn.averaging.importance import Target
from pymc_skewgp._learn.coordinates import Pattern, Point
from pymc_skewgp._limits import few_blas_threads
from pymc_skewgp._validation import FloatArray

# Lengths of the process in deviations, and shares of its scale that are noise.
_LENGTHS, _NOISES = (1.0, 1.5, 2.2, 3.3, 5.0, 8.0), (1e-8, 1e-5, 1e-3)
# Nats below the highest point from which on points say nothing of the shape where the mass is, and
# share of the target's logarithm by which points are weighted for their covariance.
_DEEPEST, _FLAT = 25.0, 0.25
# Error of an interpolated value where the target is highest, in nats, and nats below in which it
# may be e times that; never more than the last.
_ERROR, _PER, _LARGEST = 0.02, 2.5, 2.0
# Nats below the highest point at which nothing matters, and deviations of predictions that are
# there with certainty, once so many such points were evaluated and no other mode was met, or so few
# where evaluations take long.
_NEGLIGIBLE, _CERTAIN, _FAR, _FEW_FAR = 12.0, 4.0, 32, 8
# Points predicted together; in the first portion where evaluations take long, others being twice
# the last; and of them evaluated at random, so that errors are seen to be right.
_PORTION, _FIRST, _AUDITED = 512, 16, 4
# Times as many points from which on lengths are chosen anew.
_GROWTH = 1.5
_LEAST_SCALE = 1e-20  # squared, in nats: where the evidence is a square
_RIDGE = 1e-9  # of coordinates that go together
_SMALL = 100  # matrices that one thread of BLAS is enough for


class _Process(NamedTuple):
    """Universal kriging: a square, and a Gaussian process.

    Attributes
    ----------
    centre, whitener : ndarray, shapes (D,) and (D, D)
        Of coordinates.
    points : ndarray, shape (N, D)
        White.
    length, noise, scale : float
    chol : ndarray, shape (N, N)
        Of the covariance over the scale squared.
    basis, triangle : ndarray, shapes (N, q) and (q, q)
        QR of the solved polynomials.
    slopes, residual : ndarray, shapes (q,) and (N,)
    """

    centre: FloatArray
    whitener: FloatArray
    points: FloatArray
    length: float
    noise: float
    scale: float
    chol: FloatArray
    basis: FloatArray
    triangle: FloatArray
    slopes: FloatArray
    residual: FloatArray

    @classmethod
    def of(
        cls,
        x: FloatArray,
        value: FloatArray,
        weights: FloatArray,
        shapes: Iterable[tuple[float, float]] | None,
    ) -> "_Process | None":
        """The most likely of some lengths and noises, `shapes`; default all."""
        centre = weights @ x
        cov = ((x - centre).T * weights) @ (x - centre)
        cov += _RIDGE * np.diag(cov.diagonal() + _RIDGE)
        whitener = np.linalg.inv(np.linalg.cholesky(cov)).T
        z = (x - centre) @ whitener
        polynomials, distances = _polynomials(z), squared_distances(z, z)
        best, found = -np.inf, None
        for length, noise in shapes or product(_LENGTHS, _NOISES):
            try:
                among = np.exp(-0.5 * distances / length**2)
                chol = np.linalg.cholesky(among + noise * np.eye(len(z)))
            except np.linalg.LinAlgError:  # of round-off
                continue
            basis, triangle = np.linalg.qr(solve_triangular(chol, polynomials, lower=True))
            solved = solve_triangular(chol, value, lower=True)
            slopes = basis.T @ solved
            residual = solved - basis @ slopes
            free = len(z) - len(slopes)
            scale = float(np.sqrt(max(float(residual @ residual) / free, _LEAST_SCALE)))
            log_det = np.log(np.abs([*chol.diagonal(), *triangle.diagonal()])).sum()
            log_prob = -free * np.log(scale) - log_det
            if log_prob > best:
                known = length, noise, scale, chol, basis, triangle, slopes, residual
                best, found = log_prob, cls(centre, whitener, z, *known)
        return found

    def __call__(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and deviation at rows."""
        z = (x - self.centre) @ self.whitener
        across = np.exp(-0.5 * squared_distances(self.points, z) / self.length**2)
        solved = solve_triangular(self.chol, across, lower=True, check_finite=False)
        b = solve_triangular(self.triangle.T, _polynomials(z).T, lower=True, check_finite=False)
        mean = self.slopes @ b + self.residual @ solved
        unknown = np.square(b - self.basis.T @ solved).sum(axis=0)
        variance = np.maximum(1.0 + self.noise - np.square(solved).sum(axis=0), 0.0) + unknown
        return mean, self.scale * np.sqrt(variance)


def _polynomials(z: FloatArray) -> FloatArray:
    rows, columns = np.tril_indices(z.shape[1])
    return np.column_stack([np.ones(len(z)), z, z[:, rows] * z[:, columns]])


class InterpolatedTarget:
    """A target that is interpolated where it is known well enough, and else evaluated.

    Values may be the further off the lower they are. What is interpolated is seen to be right at
    some points in every portion, and where it is not errors are multiplied.

    Parameters
    ----------
    target : callable
        Log target and EP's log evidence.
    log_prior : callable
        The difference, at rows.
    pattern : tuple
        Of the points.
    rng : numpy.random.Generator
    by_few : bool
        Whether to begin with few points: evaluations together take as long as one by one.

    Attributes
    ----------
    share : float
        Of the last call's points, evaluated.
    """

    def __init__(
        self,
        target: Target,
        log_prior: Callable[[FloatArray, Pattern], FloatArray],
        pattern: Pattern,
        rng: np.random.Generator,
        *,
        by_few: bool,
    ) -> None:
        self._size, self._far = (_FIRST, _FEW_FAR) if by_few else (_PORTION, _FAR)
        self._target, self._log_prior, self._pattern = target, log_prior, pattern
        self._rng, self.share = rng, 1.0
        self._known: list[tuple[FloatArray, ...]] = []  # points, target, evidence
        self._process: _Process | None = None
        self._n_chosen = 0
        self._off: list[FloatArray] = []  # squared errors over their variances, where audited

    def __call__(self, points: Sequence[Point]) -> tuple[FloatArray, FloatArray]:
        """See `Target`."""
        x = np.array([point.x for point in points])
        order, found = self._rng.permutation(len(x)), np.empty((2, len(x)))
        evaluated = done = 0
        with few_blas_threads(_SMALL):
            while done < len(x):
                part = order[done : done + self._size]
                found[:, part], count = self._portion(x[part])
                evaluated, done = evaluated + count, done + part.size
                self._size = min(2 * self._size, _PORTION)
        self.share = max(evaluated, 1) / len(x)
        return found[0], found[1]

    def _portion(self, x: FloatArray) -> tuple[FloatArray, int]:
        if self._process is None:
            found = self._evaluated(x)
            self._learn()
            return found, len(x)
        mean, sd = self._process(x)
        log_prior = self._log_prior(x, self._pattern)
        total = mean + log_prior
        sd *= self._factor()
        depth = np.maximum(self._highest - total, 0.0)
        allowed = _ERROR * np.exp(np.minimum(depth, _DEEPEST) / _PER)
        bad = ~(sd < np.minimum(allowed, _LARGEST))
        if self._n_far >= self._far:
            bad &= ~(depth - _CERTAIN * sd > _NEGLIGIBLE)
        good = np.flatnonzero(~bad & (depth < _DEEPEST))
        audited = self._rng.permutation(good)[:_AUDITED]
        new = np.concatenate([np.flatnonzero(bad), audited])
        found = np.array([total, mean])
        if new.size:
            found[:, new] = self._evaluated(x[new])
            true = found[1, audited]
            self._off.append(((true - mean[audited]) / sd[audited] * self._factor()) ** 2)
            self._learn()
        return found, new.size

    def _factor(self) -> float:
        """Of deviations."""
        off = np.concatenate([np.ones(1), *self._off])
        return float(np.sqrt(max(off.mean(), 1.0)))

    @property
    def _highest(self) -> float:
        return float(max(total.max() for _, total, _ in self._known))

    @property
    def _n_far(self) -> int:
        far = (total < self._highest - _NEGLIGIBLE for _, total, _ in self._known)
        return sum(int(own.sum()) for own in far)

    def _evaluated(self, x: FloatArray) -> FloatArray:
        found = np.array(self._target([Point(row, self._pattern) for row in x]))
        self._known.append((x, *found))
        return found

    def _learn(self) -> None:
        """From points that are not too far below the highest one; nothing where these are few."""
        every, total, evidence = map(np.concatenate, zip(*self._known, strict=True))
        if not np.isfinite(total.max()):
            return
        near = total >= total.max() - _DEEPEST
        x, total, evidence, nowhere = every[near], total[near], evidence[near], ~np.isfinite(total)
        weights = np.exp(_FLAT * (total - total.max()))
        last, shapes, self._process = self._process, None, None
        if last is not None and len(x) < _GROWTH * self._n_chosen:
            shapes = [(last.length, last.noise)]
        else:
            self._n_chosen = len(x)
        if len(x) > 2 * _polynomials(x[:1]).shape[1]:
            self._process = _Process.of(x, evidence, weights / weights.sum(), shapes)
        if self._process is not None and nowhere.any():
            # It ends, as at a bound of a parameter: it is not smooth there.
            beyond = self._process(every[nowhere])[0]
            beyond += self._log_prior(every[nowhere], self._pattern)
            if (beyond > self._highest - _DEEPEST).any():
                self._process = None
