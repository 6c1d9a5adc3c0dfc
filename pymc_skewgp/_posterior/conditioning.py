r"""A Gaussian vector given observations of it: the one builder of what the samplers need.

Points are conditioned on first, exactly. Of the intervals a rectangle is left, :math:`u \sim
N(0, G)` with :math:`l < u < h`, and given u the vector is Gaussian:

.. math:: z \mid u \sim N(m + C G^{-1} u,\; K - C G^{-1} C^\top), \qquad
    G = A K A^\top + S, \quad C = K A^\top

with m and K the moments given the points.
"""

from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, qr, solve_triangular

from pymc_skewgp._gaussian import linalg, row_factors
from pymc_skewgp._gaussian.operators.covariance import Covariance
from pymc_skewgp._gaussian.operators.dense import DenseCovariance
from pymc_skewgp._gaussian.operators.factored import FactoredCovariance
from pymc_skewgp._gaussian.operators.low_rank import LowRankCovariance
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.interval_factors import factors_of
from pymc_skewgp._observations.noise import add_noise, block_noise, noise_factor
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._observations.sites import SitesOfParts
from pymc_skewgp._posterior.points import given_points, row_matrix
from pymc_skewgp._validation import FloatArray

# Below this share of columns the low-rank form needs fewer operations than the dense one.
LOW_RANK_SHARE = 0.5
# So do rows that share their noise in blocks of up to this share of all rows.
LARGEST_BLOCK = 0.1


BoolArray = NDArray[np.bool_]


class Regression(NamedTuple):
    r"""f at t places given the observations, but for the draws of u: centre + solved' u + residual.

    Attributes
    ----------
    centre : ndarray, shape (t,)
        Mean of f given the points.
    variance : ndarray, shape (t,)
        Its variance given the points and u.
    solved : ndarray, shape (m, t)
        :math:`G^{-1}` times the covariance of u with f, given the points.
    taken : ndarray, shape (t, t), or None
        What the points and u take of the prior covariance of f; made only where it is asked for.
    covariance : ndarray, shape (t / k, k, k), or None
        Of each k values in a row, given the points and u, where k is more than 1.
    """

    centre: FloatArray
    variance: FloatArray
    solved: FloatArray
    taken: FloatArray | None = None
    covariance: FloatArray | None = None


class Conditioning:
    """z ~ N(mean, cov) given rows of it.

    Parameters
    ----------
    mean : ndarray, shape (q,)
    cov : FactoredCovariance
        Of q values.
    observations : Observations
        Rows of the first values of z.

    Attributes
    ----------
    mean, factor : ndarray, shape (q,) and (q, r)
        Of z given the points: z = mean + factor c, with standard normal c.
    log_density : float
        Log density of the points, 0 without any, and the constant of the observations.
    centre : ndarray, shape (m,)
        Mean of the intervals' rows, which u is measured from.
    lower, upper : ndarray, shape (m,)
        Limits of u, one for each interval.
    cov : Covariance
        G.
    """

    def __init__(
        self, mean: FloatArray, cov: FactoredCovariance, observations: Observations
    ) -> None:
        self._prior_cov = cov
        given = given_points(mean, cov, observations)
        self.mean, self.factor = given.mean, given.cov.factor
        self.log_density = given.log_density + observations.log_constant
        self._points = given.points
        self._intervals = rows = given.intervals
        self.centre = centre = rows.of(given.mean) + rows.a
        self.lower, self.upper = rows.lower - centre, rows.upper - centre
        self.row_factor = rows.of(self.factor)
        self.cov = _row_covariance(given.cov, rows, self.row_factor)

    @property
    def n_rows(self) -> int:
        """Length m of u."""
        return self.lower.size

    @property
    def noise(self) -> FloatArray:
        """Variances of the noise of the intervals, or its covariance."""
        return self._intervals.S

    @property
    def noise_variances(self) -> FloatArray:
        """Variances of the noise of u, which is part of G, shape (m,)."""
        return self._intervals.variances

    @cached_property
    def _chol(self) -> FloatArray:
        if isinstance(self.cov, DenseCovariance):
            return self.cov.chol
        return linalg.cholesky("the covariance of the observations", self.cov.dense())[0]

    def draw(
        self,
        u: FloatArray,
        rng: np.random.Generator,
        chosen: IntArray | None = None,
        *,
        skip: int = 0,
    ) -> FloatArray:
        """Draws of z but for its first `skip` values, one for each row of `u`.

        Or for each of the rows that are `chosen`, which may repeat.
        """
        if not self.n_rows:
            n_draws = u.shape[0] if chosen is None else chosen.size
            coordinates = rng.standard_normal((self.factor.shape[1], n_draws))
        elif isinstance(self.cov, LowRankCovariance):
            coordinates = self._coordinates_given(u, rng, chosen)
        else:
            # A draw from the prior, corrected by what it lacks to `u` (Matheron's rule).
            gap = u.T.copy() if chosen is None else u.T[:, chosen]
            coordinates = rng.standard_normal((self.row_factor.shape[1], gap.shape[1]))
            gap -= self.row_factor @ coordinates
            gap -= self._noise_draws(gap.shape, rng)
            solved = cho_solve((self._chol, True), gap, overwrite_b=True, check_finite=False)
            coordinates += self.row_factor.T @ solved
        z = coordinates.T @ self.factor[skip:].T
        z += self.mean[skip:]
        return z

    def regression(self, *, skip: int = 0, joint: bool = False, group: int = 1) -> Regression:
        """Of z itself on u, but for its first `skip` values.

        It is not that of new points at the same inputs: the kernel evaluated between rows once
        more would lack the noise that they have of their own.
        """
        factor = self.factor[skip:]
        row_cov = self.row_factor @ factor.T
        prior = linalg.grouped_products(factor.T, factor.T, group)
        return self._regression(self.mean[skip:], prior, row_cov, None, joint)

    def regression_at(
        self,
        mean: FloatArray,
        variance: FloatArray,
        cross: FloatArray,
        *,
        joint: bool = False,
    ) -> Regression:
        """Of f at t new points on u.

        Parameters
        ----------
        mean : ndarray, shape (t,)
            Prior mean of f there.
        variance : ndarray, shape (t,) or (t / k, k, k)
            Prior variance of f there, or covariance of each k values in a row.
        cross : ndarray, shape (q, t)
            Prior covariance of z with f there.
        joint : bool
            Whether `Regression.taken` is wanted.
        """
        needed = self.n_rows > 0
        centre, left, cross, taken = self._given_points(mean, variance, cross, joint, needed)
        return self._regression(centre, left, self._intervals.of(cross), taken, joint)

    def regression_on_coordinates(
        self,
        mean: FloatArray,
        variance: FloatArray,
        cross: FloatArray,
        *,
        joint: bool = False,
    ) -> Regression:
        """As `regression_at`, on the coordinates c of z = mean + factor c in place of u."""
        centre, left, cross, taken = self._given_points(mean, variance, cross, joint, True)
        orthogonal, triangle = self._factor_qr
        solved = solve_triangular(triangle, orthogonal.T @ cross, check_finite=False)
        return _regression_from(centre, left, solved, solved, taken, joint)

    def with_coordinates(self, mean: FloatArray, chol: FloatArray) -> "Conditioning":
        """The same with c ~ N(mean, (L L')^-1) in place of N(0, I), `chol` being L.

        In new coordinates, which are L' (c - mean).
        """
        factor = solve_triangular(chol, self.factor.T, lower=True, check_finite=False).T
        cov = FactoredCovariance(factor, units=self._prior_cov.units)
        return Conditioning(self.mean + self.factor @ mean, cov, self._intervals)

    def with_factors(
        self, counts: FloatArray, kept: BoolArray, skip: int
    ) -> "tuple[Conditioning, SitesOfParts] | None":
        """Intervals that repeat as factors of values of z after the first `skip`.

        None where none do: see `row_factors`. Those that are `kept` stay rows; `counts` are
        the rows that each stands for.
        """
        rows, moved = self._intervals, ~kept
        if rows.S.ndim == 2 or not moved.any():
            return None
        some = slice(None) if moved.all() else moved  # without copies: most answers are None
        factor, few, noise = self.row_factor[some], counts[some], rows.S[some]
        gaps = row_factors.squared_gaps(factor)
        if isinstance(self.cov, DenseCovariance):
            gaps = row_factors.squared_gaps_of(self.cov.matrix[some][:, some], noise)
        variance = np.einsum("ij,ij->i", factor, factor)
        limits = row_factors.OpenRows(self.lower[some], self.upper[some], variance)
        if not row_factors.are_alike(few, noise, gaps, limits=limits):
            return None
        own = rows.rows(moved)
        own = replace(own, A=own.A[:, skip:])
        sites = factors_of(own, few, *row_factors.equal_predictors(factor, self.centre[moved]))
        rest, other = rows.rows(~moved), copy(self)
        for name in ("_chol", "_factor_qr", "_noise_factor", "_coordinate_solvers"):
            vars(other).pop(name, None)
        other._intervals, other.row_factor = rest, self.row_factor[~moved]
        other.centre = self.centre[~moved]
        other.lower, other.upper = self.lower[~moved], self.upper[~moved]
        prior = FactoredCovariance(self.factor, units=self._prior_cov.units)
        other.cov = _row_covariance(prior, rest, other.row_factor)
        return other, SitesOfParts([sites], [self.mean.size - skip])

    def coordinates_given_rows(self) -> tuple[FloatArray, FloatArray]:
        """Gain (r, m) and spread (r, d): c given u is gain u + spread x, x standard normal."""
        gain = cho_solve((self._chol, True), self.row_factor).T
        left = -(gain @ self.row_factor)
        left[np.diag_indices_from(left)] += 1.0
        return gain, linalg.low_rank_factor(linalg.symmetric(left))

    def coordinates(self, z: FloatArray) -> FloatArray:
        """The c of values z = mean + factor c."""
        orthogonal, triangle = self._factor_qr
        return solve_triangular(triangle, orthogonal.T @ (z - self.mean), check_finite=False)

    @cached_property
    def _factor_qr(self) -> tuple[FloatArray, FloatArray]:
        orthogonal, triangle = qr(self.factor, mode="economic", check_finite=False)
        return orthogonal, triangle

    @property
    def dense_noise(self) -> FloatArray:
        """`noise` as variances, or as an array."""
        noise = self._intervals.S
        if noise.ndim == 1:
            return noise
        matrix = np.zeros(noise.shape)
        add_noise(matrix, noise)
        return matrix

    def _given_points(
        self,
        mean: FloatArray,
        variance: FloatArray,
        cross: FloatArray,
        joint: bool,
        needed: bool,
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray | None]:
        """Moments of f at new points given the points, and what these take where `joint`.

        Its covariance with z only where that is `needed`.
        """
        points = self._points
        if points is None:
            return mean, variance, cross, None
        row_cov = points.rows.of(cross)
        solved = points.precision.solve(row_cov)
        taken = row_cov.T @ solved if joint else None
        left = variance - linalg.grouped_products(row_cov, solved, _group(variance))
        if needed:  # covariance of z with f given the points
            prior_factor = self._prior_cov.factor
            cross = cross - prior_factor @ (points.rows.of(prior_factor).T @ solved)
        return mean + row_cov.T @ points.weights, left, cross, taken

    def _regression(
        self,
        centre: FloatArray,
        variance: FloatArray,
        row_cov: FloatArray,
        taken: FloatArray | None,
        joint: bool,
    ) -> Regression:
        if self.n_rows:
            solved = cho_solve((self._chol, True), row_cov)
        else:
            solved = np.zeros((0, centre.size))
        return _regression_from(centre, variance, row_cov, solved, taken, joint)

    @cached_property
    def _noise_factor(self) -> Any:
        return noise_factor(self._intervals.S)

    def _noise_draws(self, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        noise = self._intervals.S
        white = rng.standard_normal(shape)
        if noise.ndim == 1:
            white *= np.sqrt(noise)[:, None]
            return white
        factor = self._noise_factor
        return np.asarray(factor @ white[: factor.shape[1]])

    def _coordinates_given(
        self, u: FloatArray, rng: np.random.Generator, chosen: IntArray | None
    ) -> FloatArray:
        """Draws of the coordinates c, columns, given rows of `u`: O(n r) each for r coordinates.

        With rows X of the factor and noise S, c given u there is normal with precision
        I + X' S^-1 X and mean that inverse times X' S^-1 u. Rows without noise are met afterwards
        by moving c along its covariance with them.
        """
        chol, gain, scaled, noisy = self._coordinate_solvers
        known = self.row_factor[~noisy]
        seen, met = u @ scaled, u[:, ~noisy]
        if chosen is not None:  # the few coordinates of a draw, not its many rows
            seen, met = seen[chosen], met[chosen]
        white = solve_triangular(chol, seen.T, lower=True, check_finite=False)
        white += rng.standard_normal(white.shape)
        coordinates = solve_triangular(chol, white, lower=True, trans="T", check_finite=False)
        if known.shape[0]:
            coordinates += gain @ (met.T - known @ coordinates)
        return coordinates

    @cached_property
    def _coordinate_solvers(self) -> tuple[FloatArray, FloatArray, FloatArray, BoolArray]:
        """Factor of I + X' S^-1 X, gain of rows without noise, S^-1 X, and which have noise."""
        assert isinstance(self.cov, LowRankCovariance)
        noise, factor = self.cov.noise, self.row_factor
        noisy, scaled = noise.variances > 0, noise.solve(factor)
        known = factor[~noisy]
        precision = factor.T @ scaled
        precision[np.diag_indices_from(precision)] += 1.0
        chol, _ = linalg.cholesky("the precision of the coordinates", precision)
        if not known.size:
            return chol, known.T, scaled, noisy
        spread = cho_solve((chol, True), known.T)
        own, _ = linalg.cholesky("the covariance at pseudo_points", known @ spread)
        return chol, cho_solve((own, True), spread.T).T, scaled, noisy


def _regression_from(
    centre: FloatArray,
    variance: FloatArray,
    row_cov: FloatArray,
    solved: FloatArray,
    taken: FloatArray | None,
    joint: bool,
) -> Regression:
    """From covariances with a vector, and these times its inverse covariance."""
    left = variance - linalg.grouped_products(row_cov, solved, _group(variance))
    if joint:
        own = row_cov.T @ solved
        taken = own if taken is None else taken + own
    if left.ndim == 1:
        return Regression(centre, np.maximum(left, 0.0), solved, taken)
    own_variance = np.maximum(np.einsum("tkk->tk", left).ravel(), 0.0)
    return Regression(centre, own_variance, solved, taken, left)


def _group(variance: FloatArray) -> int:
    return 1 if variance.ndim == 1 else int(variance.shape[-1])


def _row_covariance(
    cov: FactoredCovariance, rows: Observations, row_factor: FloatArray
) -> Covariance:
    """G in the form that needs fewer operations."""
    n_rows = rows.n_rows
    if row_factor.shape[1] < LOW_RANK_SHARE * n_rows or not n_rows:
        if rows.S.ndim == 1:
            return LowRankCovariance(rows.S, row_factor)
        shared = block_noise(rows.S, int(LARGEST_BLOCK * n_rows))
        if shared is not None:
            return LowRankCovariance(shared, row_factor)
    matrix = row_matrix(cov, rows, row_factor)
    add_noise(matrix, rows.S)
    return DenseCovariance(matrix, "the covariance of the observations")
