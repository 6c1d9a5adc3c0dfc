"""The truncated Gaussian behind a GP or SkewGP under probit observations."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from pymc_skewgp._errors import NotPositiveDefiniteError
from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.operators.dense import DenseCovariance
from pymc_skewgp._gaussian.operators.low_rank import LowRankCovariance
from pymc_skewgp._gaussian.truncated import twisted_draws
from pymc_skewgp._gaussian.weights import IntArray, systematic_resample
from pymc_skewgp._observations.arguments import refuse_coincident
from pymc_skewgp._sun.contradiction import naming_the_labels, refuse_contradictory_points
from pymc_skewgp._validation import FloatArray, as_real_array, refuse_extreme_variances

# Below this share of columns the low-rank form needs fewer operations than the dense one.
LOW_RANK_SHARE = 0.5


class CovarianceFunction(Protocol):
    """A kernel on arrays: ``k(X, Xs)`` of shape (n, m), ``k(X, diag=True)`` of shape (n,).

    ``k(X)`` is the covariance of one set of rows, with ``k(X, diag=True)`` on its diagonal. What it
    has beyond ``k(X, X)`` is noise of each row, which no other row shares: a diagonal matrix.
    """

    def __call__(
        self, X: FloatArray, Xs: FloatArray | None = None, diag: bool = False
    ) -> FloatArray:
        """Evaluate the kernel."""
        ...


MeanFunction = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class Prior:
    """A Gaussian process told the sign of itself at pseudo-points.

    Attributes
    ----------
    cov_func, mean_func : callable
        Kernel and mean on arrays; what they return is checked at every call.
    pseudo_points : ndarray, shape (s, d)
    phase, truncation : ndarray, shape (s,)
    """

    cov_func: CovarianceFunction
    mean_func: MeanFunction
    pseudo_points: FloatArray
    phase: FloatArray
    truncation: FloatArray

    @property
    def n_pseudo_points(self) -> int:
        """Number s of pseudo-points."""
        return self.phase.size

    @cached_property
    def scale(self) -> FloatArray:
        """Phase over prior standard deviation at each pseudo-point."""
        if not self.n_pseudo_points:
            return np.zeros(0)
        return self.phase / np.sqrt(self.covariance("pseudo_points", self.pseudo_points, diag=True))

    @cached_property
    def latent_cov(self) -> FloatArray:
        """Gamma: correlations of f at the pseudo-points, with the phases."""
        if not self.n_pseudo_points:
            return np.zeros((0, 0))
        cov = self.covariance("pseudo_points", self.pseudo_points)
        refuse_coincident(cov, self.phase, self.truncation)
        scale = self.phase / np.sqrt(cov.diagonal())
        latent_cov = scale[:, None] * cov * scale
        refuse_contradictory_points(latent_cov, self.truncation)
        return latent_cov

    def mean(self, name: str, points: FloatArray) -> FloatArray:
        """Mean at `points`, which the caller knows as `name`."""
        value = as_real_array(f"mean_func at {name}", self.mean_func(points))
        if value.shape != points.shape[:1]:
            raise ValueError(
                f"mean_func gave shape {value.shape} at {name}, expected {points.shape[:1]}."
            )
        if not np.isfinite(value).all():
            raise ValueError(f"mean_func gave NaN or infinite values at {name}.")
        return value

    def covariance(
        self, name: str, a: FloatArray, b: FloatArray | None = None, diag: bool = False
    ) -> FloatArray:
        """Covariance of f at `a`, which the caller knows as `name`, with f at `b`."""
        value = as_real_array(f"cov_func at {name}", self.cov_func(a, b, diag))
        wanted = (a.shape[0],) if diag else (a.shape[0], (a if b is None else b).shape[0])
        if value.shape != wanted:
            raise ValueError(f"cov_func gave shape {value.shape} at {name}, expected {wanted}.")
        if not np.isfinite(value).all():
            raise ValueError(
                f"cov_func gave NaN or infinite covariances at {name}: check its hyperparameters "
                "and the scale of the inputs."
            )
        if diag or b is None:
            refuse_extreme_variances(f"cov_func at {name}", value if diag else value.diagonal())
        return value


class ProbitProblem:
    """u ~ N(0, G) restricted to u > lower, and f given u.

    The rows of u are the standardised signs at the s pseudo-points, then w (f + e) for each of n
    labels w = +-1 with standard normal noise e.

    Parameters
    ----------
    cov : ndarray, shape (s + n + t, s + n + t)
        Prior covariance of f at the pseudo-points, at the data, and at t more points where f is
        wanted but not observed.
    mean : ndarray, shape (n + t,)
        Prior mean of f, after the pseudo-points.
    scale, truncation : ndarray, shape (s,)
        Phase over prior standard deviation at each pseudo-point; gamma.
    sign : ndarray, shape (n,)
        Labels as +-1.
    """

    def __init__(
        self,
        cov: FloatArray,
        mean: FloatArray,
        scale: FloatArray,
        truncation: FloatArray,
        sign: FloatArray,
    ) -> None:
        s, n = scale.size, sign.size
        cov = linalg.symmetric(cov)
        self.mean = mean
        self._scale = np.concatenate([scale, sign])
        # f - mean = prior_factor a and u = row_factor a + noise, with standard normal a.
        factor = linalg.low_rank_factor(cov)
        _refuse_indefinite(cov, factor)
        self.prior_factor = factor[s:]
        self.row_factor = self._scale[:, None] * factor[: s + n]
        self.noise = np.concatenate([np.zeros(s), np.ones(n)])
        self.lower = -np.concatenate([truncation, sign * mean[:n]])
        self.cov: DenseCovariance | LowRankCovariance
        if factor.shape[1] < LOW_RANK_SHARE * self.noise.size:
            self.cov = LowRankCovariance(self.noise, self.row_factor)
        else:
            matrix = cov[: s + n, : s + n] * self._scale
            matrix *= self._scale[:, None]
            matrix[np.diag_indices_from(matrix)] += self.noise
            self.cov = DenseCovariance(matrix, "the covariance of the observations")
        latent_cov = scale[:, None] * cov[:s, :s] * scale
        refuse_contradictory_points(latent_cov, truncation, self.cov.jitter)

    @cached_property
    def _chol(self) -> FloatArray:
        if isinstance(self.cov, DenseCovariance):
            return self.cov.chol
        return linalg.cholesky("the covariance of the observations", self.cov.dense())[0]

    def function_given(
        self, u: FloatArray, rng: np.random.Generator, chosen: IntArray | None = None
    ) -> FloatArray:
        """Draws of f at the data and the further points, one for each row of `u`.

        Or for each of the rows that are `chosen`, which may repeat.
        """
        if isinstance(self.cov, LowRankCovariance):
            coordinates = self._coordinates_given(u, rng, chosen)
        else:
            # A draw from the prior, corrected by what it lacks to `u` (Matheron's rule).
            gap = u.T.copy() if chosen is None else u.T[:, chosen]
            coordinates = rng.standard_normal((self.row_factor.shape[1], gap.shape[1]))
            gap -= self.row_factor @ coordinates
            gap -= np.sqrt(self.noise)[:, None] * rng.standard_normal(gap.shape)
            solved = cho_solve((self._chol, True), gap, overwrite_b=True, check_finite=False)
            coordinates += self.row_factor.T @ solved
        f = coordinates.T @ self.prior_factor.T
        f += self.mean
        return f

    def _coordinates_given(
        self, u: FloatArray, rng: np.random.Generator, chosen: IntArray | None
    ) -> FloatArray:
        """Draws of the coordinates a, columns, given rows of `u`: O(n r) each for r coordinates.

        With rows X of the factor at the data, a given u there is normal with precision I + X'X and
        mean (I + X'X)^-1 X'u. The rows at the pseudo-points have no noise: they are met by moving
        a along its covariance with them.
        """
        chol, gain = self._coordinate_solvers
        s = gain.shape[1]
        known, data = self.row_factor[:s], self.row_factor[s:]
        seen, met = u[:, s:] @ data, u[:, :s]
        if chosen is not None:  # the few coordinates of a draw, not its many rows
            seen, met = seen[chosen], met[chosen]
        white = solve_triangular(chol, seen.T, lower=True, check_finite=False)
        white += rng.standard_normal(white.shape)
        coordinates = solve_triangular(chol, white, lower=True, trans="T", check_finite=False)
        if s:
            coordinates += gain @ (met.T - known @ coordinates)
        return coordinates

    @cached_property
    def _coordinate_solvers(self) -> tuple[FloatArray, FloatArray]:
        """Cholesky factor of I + X'X, and the gain of the rows that have no noise."""
        s = int((self.noise == 0).sum())
        known, data = self.row_factor[:s], self.row_factor[s:]
        precision = data.T @ data
        precision[np.diag_indices_from(precision)] += 1.0
        chol, _ = linalg.cholesky("the precision of the coordinates", precision)
        spread = cho_solve((chol, True), known.T)
        own, _ = linalg.cholesky("the covariance at pseudo_points", known @ spread)
        return chol, cho_solve((own, True), spread.T).T

    def draw_function(
        self, n_candidates: int, rng: np.random.Generator
    ) -> tuple[FloatArray, float]:
        """One draw of f, and the relative ESS of the candidates it was picked from."""
        upper = np.full(self.lower.size, np.inf)
        with naming_the_labels(int((self.noise == 0).sum())):
            latent = twisted_draws(self.cov, self.lower, upper, n_candidates, rng)
        chosen = systematic_resample(latent.log_weights, 1, rng)
        return self.function_given(latent.draws[chosen], rng)[0], latent.relative_ess

    def regression(self, cross: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Covariance of u with f, shape (s + n, t), and G^-1 times it.

        `cross` is the prior covariance of f at the pseudo-points and the data with f at new points.
        Without it, f is that of the problem itself: the kernel evaluated between its rows once more
        would lack the noise that they have of their own.
        """
        if cross is None:
            row_cov = self.row_factor @ self.prior_factor.T
        else:
            row_cov = self._scale[:, None] * cross
        return row_cov, cho_solve((self._chol, True), row_cov)


def _refuse_indefinite(cov: FloatArray, factor: FloatArray) -> None:
    # One matrix product with a fixed vector of signs sees what the factor left out, at O(n^2).
    probe = np.where(np.random.default_rng(0).random(cov.shape[0]) < 0.5, -1.0, 1.0)
    gap = np.abs(cov @ probe - factor @ (factor.T @ probe)).max()
    scale = cov.diagonal().max()
    if gap > 1e-7 * scale * np.sqrt(probe.size):
        raise NotPositiveDefiniteError(
            "cov_func is not positive semidefinite at X and the pseudo-points: what is left of its "
            f"matrix beyond the positive part is of size {gap:.3g} (largest variance {scale:.3g})."
        )
