"""The log evidence at many points, from few of them where one takes long: universal kriging.

With z the points in deviations of the best mode, the log evidence is a quadratic function of z,
whose coefficients are free, plus a Gaussian process [1]_. What it says of the points at hand is
taken where that is certain, or where the posterior is so low that it does not matter; elsewhere
the evidence is computed, first where most is at stake. Importance weights of the exact evidences,
which are computed at points drawn by these values, correct what is left.

References
----------
.. [1] N. Cressie (1993), Statistics for Spatial Data, doi:10.1002/9781119115151.
"""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._learn.averaging.modes import Evaluations, Mode
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.objective import CompiledLogPrior
from pymc_skewgp._limits import few_blas_threads
from pymc_skewgp._validation import FloatArray

# Nats: of the process, and noise, with the share of what a value is below the highest one.
_SCALES, _NOISE, _OF_DEPTH = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0), 0.01, 0.02
_LENGTHS = (1.0, 2.0, 4.0, 8.0)  # deviations
# Deviations beyond which points stand closer together; evidences for each coefficient to begin
# with, and more; standard error that will do, in nats, where the posterior is highest.
_REACH, _FIRST, _MORE, _ENOUGH = 3.0, 3, 4, 0.05
_MOST = 96  # evidences of one call from which on all are computed
_LOWER = 0.5  # power of the density over the highest one by which an error matters less


class _Process(NamedTuple):
    """Given values at points: what a prediction takes."""

    z: FloatArray
    scale: float
    length: float
    root: FloatArray  # of the covariance
    basis: FloatArray  # orthonormal, of root^-1 times that of the points
    triangle: FloatArray
    residual: FloatArray
    coefficients: FloatArray
    log_likelihood: float

    @classmethod
    def given(cls, z: FloatArray, value: FloatArray, scale: float, length: float) -> "_Process":
        """Its likelihood is the restricted one, whatever the coefficients are."""
        noise = _NOISE + _OF_DEPTH * (value.max() - value)
        cov = scale**2 * _correlation(z, z, length)
        cov[np.diag_indices_from(cov)] += noise**2
        root = cholesky(cov, lower=True)
        basis, triangle = np.linalg.qr(solve_triangular(root, _basis(z), lower=True))
        white = solve_triangular(root, value, lower=True)
        residual = white - basis @ (basis.T @ white)
        coefficients = solve_triangular(triangle, basis.T @ white)
        log_dets = [np.log(np.abs(x.diagonal())).sum() for x in (root, triangle)]
        log_likelihood = -0.5 * float(residual @ residual) - float(sum(log_dets))
        known = root, basis, triangle, residual, coefficients
        return cls(z, scale, length, *known, log_likelihood)

    def at(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation at rows."""
        across = self.scale**2 * _correlation(self.z, z, self.length)
        white = solve_triangular(self.root, across, lower=True)
        left = _basis(z).T - self.triangle.T @ (self.basis.T @ white)
        left = solve_triangular(self.triangle, left, trans="T")
        variance = self.scale**2 - (white**2).sum(axis=0) + (left**2).sum(axis=0)
        mean = _basis(z) @ self.coefficients + white.T @ self.residual
        # Of values that are rougher than the process.
        misfit = float(self.residual @ self.residual) / (len(self.z) - len(self.triangle))
        return mean, np.sqrt(np.maximum(variance, 0.0) * max(misfit, 1.0))


def _correlation(z: FloatArray, other: FloatArray, length: float) -> FloatArray:
    squares = ((z[:, None] - other[None]) ** 2).sum(axis=2)
    found: FloatArray = np.exp(-0.5 * squares / length**2)
    return found


def _basis(z: FloatArray) -> FloatArray:
    """One, the coordinates and their products."""
    first, second = np.triu_indices(z.shape[1])
    return np.column_stack([np.ones(len(z)), z, z[:, first] * z[:, second]])


def first_of_kriging(n_coordinates: int) -> int:
    """Evidences to begin with."""
    return _FIRST * (n_coordinates + 1) * (n_coordinates + 2) // 2 + _MORE


class KrigedEvidence:
    """Log target and log evidence at points of one pattern of binary values.

    Parameters
    ----------
    evaluate : Evaluations
    log_prior : CompiledLogPrior
    mode : Mode
        The best one.
    """

    def __init__(self, evaluate: Evaluations, log_prior: CompiledLogPrior, mode: Mode) -> None:
        self._evaluate, self._log_prior = evaluate, log_prior
        self._centre, self._root = mode.point.x, cholesky(mode.covariance, lower=True)
        self._z, self._value = np.zeros((0, self._centre.size)), np.zeros(0)
        self._is_rough = False

    def __call__(self, points: Sequence[Point]) -> tuple[FloatArray, FloatArray]:
        """See `Target`."""
        x = np.array([point.x for point in points])
        z = solve_triangular(self._root, (x - self._centre).T, lower=True).T
        log_prior = self._log_prior.at(points)
        value, left = np.full(len(x), -np.inf), np.isfinite(log_prior)
        total = np.count_nonzero(left)
        chosen = self._spread(z, np.flatnonzero(left))
        with few_blas_threads(len(x)):
            while chosen.size:
                if self._is_rough or total - np.count_nonzero(left) >= _MOST:
                    chosen = np.flatnonzero(left)
                _, value[chosen] = self._evaluate.values([points[i] for i in chosen])
                left[chosen] = False
                # All that is left where few points do not say enough, or there is an edge.
                self._is_rough |= chosen.size >= _MOST or not np.isfinite(value[chosen]).all()
                self._z = np.concatenate([self._z, z[chosen]])
                self._value = np.concatenate([self._value, value[chosen]])
                chosen = rest = np.flatnonzero(left)
                if rest.size and not self._is_rough:
                    value[rest], at_stake = self._predicted(z[rest], log_prior[rest])
                    worst = int(np.argmax(at_stake))
                    chosen = rest[[worst]] if at_stake[worst] > _ENOUGH else rest[:0]
        return value + log_prior, value

    def _spread(self, z: FloatArray, among: IntArray) -> IntArray:
        """Those to begin with, each the farthest from those before."""
        z = z[among]
        near = z / (1.0 + np.linalg.norm(z, axis=1) / _REACH)[:, None]
        apart, chosen = np.linalg.norm(near, axis=1) + np.inf, []
        wanted = 1 if self._value.size else first_of_kriging(z.shape[1])
        for _ in range(min(wanted, len(z))):
            chosen.append(int(np.argmax(apart)))
            apart = np.minimum(apart, np.linalg.norm(near - near[chosen[-1]], axis=1))
        return among[np.array(chosen, dtype=np.intp)]

    def _predicted(self, z: FloatArray, log_prior: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Log evidence, and its error where the posterior is high."""
        given = product(_SCALES, _LENGTHS)
        every = [_Process.given(self._z, self._value, *own) for own in given]
        mean, sd = max(every, key=lambda own: own.log_likelihood).at(z)
        upper = mean + 2.0 * sd + log_prior
        highest = (mean + log_prior).max(initial=-np.inf)
        return mean, sd * np.exp(np.minimum(_LOWER * (upper - highest), 0.0))
