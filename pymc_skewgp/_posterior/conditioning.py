r"""A Gaussian vector given observations of it: the one builder of what the samplers need.

Points are conditioned on first, exactly. Of the intervals a rectangle is left, :math:`u \sim
N(0, G)` with :math:`l < u < h`, and given u the vector is Gaussian:

.. math:: z \mid u \sim N(m + C G^{-1} u,\; K - C G^{-1} C^\top), \qquad
    G = A K A^\top + S, \quad C = K A^\top

with m and K the moments given the points.
"""

from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, qr, solve_triangular

from pymc_skewgp._gaussian import coordinates as row_factors
from pymc_skewgp._gaussian import covariance as forms
from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.coordinate_gaussian import coordinate_gaussian
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations import observations as row
from pymc_skewgp._observations.constraint import pseudo_point_rows
from pymc_skewgp._observations.observations import Noise, Observations
from pymc_skewgp._observations.sites import Sites, factors_of
from pymc_skewgp._sun.parameters import refuse_contradictory_points
from pymc_skewgp._validation import FloatArray

# A Gaussian vector given points: exact Gaussian-process regression, before any interval.
#
# With rows :math:`v_P = A_P z + a_P + e_P = y`, :math:`G = A_P K A_P^\top + S_P` and
# :math:`r = y - A_P m - a_P`,
#
# .. math:: z \mid y \sim N(m + C G^{-1} r,\; K - C G^{-1} C^\top), \qquad C = K A_P^\top,
#     \qquad \log p(y) = \log N(r; 0, G)
#
# (Rasmussen & Williams 2006, chapter 2). Two forms of :math:`G^{-1}`: a Cholesky factorisation of
# G, and, where K has few columns and every row its own noise, one in the r coordinates of K's
# factor.

_LOG_2PI = float(np.log(2.0 * np.pi))
# Below this share of columns the coordinates of the factor need fewer operations. But they lose
# digits like the variance over the noise, so noise below this share of the variance goes without.
LOW_RANK_SHARE = 0.5
_LEAST_NOISE = 1e-6


class _Points:
    """Regression on the rows of z ~ N(mean, cov) that are points.

    Attributes
    ----------
    rows, intervals : Observations
        The points, and the other rows, their noise independent of that of the points.
    precision : _Gram or _InCoordinates
        G^-1.
    weights : ndarray, shape (n_points,)
        G^-1 r.
    mean, cov : ndarray and FactoredCovariance
        Of z given the points.
    log_density : float
    """

    def __init__(
        self, mean: FloatArray, cov: forms.FactoredCovariance, observations: Observations
    ) -> None:
        chosen = observations.is_point
        self.rows = points = observations if chosen.all() else observations.rows(chosen)
        self.intervals = with_own_noise(observations, points)
        residual = points.value - points.of(mean) - points.a
        row_factor = points.of(cov.factor)
        few = row_factor.shape[1] < LOW_RANK_SHARE * points.n_rows
        least = _LEAST_NOISE * float(cov.diagonal().max())
        self.precision: _Gram | _InCoordinates
        if few and points.S.ndim == 1 and (least < points.S).all():
            self.precision = low_rank = _InCoordinates(row_factor, points.S, residual)
            self.mean = mean + cov.factor @ low_rank.mean
            self.cov = forms.FactoredCovariance(low_rank.spread(cov.factor), units=cov.units)
        else:
            self.precision = gram = _Gram(row_matrix(cov, points, row_factor), points.S)
            half = gram.half(points.of(cov.dense()))
            self.mean = mean + half.T @ gram.half(residual)
            self.cov = cov.conditioned(linalg.symmetric(cov.dense() - half.T @ half))
        self.weights = self.precision.solve(residual)
        square = float(residual @ self.weights) + residual.size * _LOG_2PI
        self.log_density = -0.5 * square - self.precision.log_root_det


def row_matrix(
    cov: forms.FactoredCovariance, rows: Observations, row_factor: FloatArray
) -> FloatArray:
    """A K A', from the kernel's own matrix where the rows only choose and scale its values."""
    if rows.A is None or (isinstance(rows.A, np.ndarray) and rows.A.ndim == 1):
        return cov.leading(rows.n_rows, rows.A)
    if isinstance(rows.A, np.ndarray):
        return row_factor @ row_factor.T
    return rows.of(np.ascontiguousarray(rows.of(cov.dense()).T))


def with_own_noise(observations: Observations, points: Observations) -> Observations:
    r"""The intervals, with noise that is independent of the points'.

    With :math:`R = S_{IP} S_{PP}^{-1}`, :math:`e_I = R e_P + e'` and :math:`e_P = y - A_P f - a_P`:
    rows :math:`(A_I - R A_P) f + a_I + R (y - a_P) + e'`.
    """
    others = ~observations.is_point
    intervals = observations.rows(others)
    shared = row.shared_noise(observations.S, others, observations.is_point)
    if shared is None:
        return intervals
    chol, _ = linalg.cholesky("the covariance of the noise at points", as_dense(points.S))
    gain = cho_solve((chol, True), shared.T).T
    A = row.as_matrix(intervals.A, intervals.n_rows) - gain @ row.as_matrix(points.A, points.n_rows)
    a = intervals.a + gain @ (points.value - points.a)
    S = linalg.symmetric(as_dense(intervals.S) - gain @ shared.T)
    return replace(intervals, A=np.asarray(A), a=a, S=S)


def as_dense(noise: Noise) -> FloatArray:
    matrix = np.zeros((noise.shape[0],) * 2)
    row.add_noise(matrix, noise)
    return matrix


class _Gram:
    """G factorised: n^3 / 3 operations for n points."""

    def __init__(self, matrix: FloatArray, noise: Noise) -> None:
        row.add_noise(matrix, noise)
        self._chol, _ = linalg.cholesky("the covariance of the observed values", matrix)
        self.log_root_det = float(np.log(self._chol.diagonal()).sum())

    def half(self, x: FloatArray) -> FloatArray:
        """L^-1 x, with G = L L'."""
        return solve_triangular(self._chol, x, lower=True, check_finite=False)

    def solve(self, x: FloatArray) -> FloatArray:
        """G^-1 x."""
        return cho_solve((self._chol, True), x, check_finite=False)


class _InCoordinates:
    r"""The r coordinates c of z = m + F c given the points: :math:`L L^\top = I + B^\top S^{-1} B`.

    n r^2 operations for n points, with B = A_P F.
    """

    def __init__(self, row_factor: FloatArray, noise: FloatArray, residual: FloatArray) -> None:
        self._noise, self._row_factor = noise, row_factor
        self._scaled = row_factor / np.sqrt(noise)[:, None]
        gaussian = coordinate_gaussian(row_factor, 1.0 / noise, residual / noise)
        self.mean, self._chol = gaussian.mean, gaussian.chol
        self.log_root_det = float(np.log(self._chol.diagonal()).sum() + 0.5 * np.log(noise).sum())

    def spread(self, factor: FloatArray) -> FloatArray:
        """F L^-T: the factor of z given the points."""
        return solve_triangular(self._chol, factor.T, lower=True, check_finite=False).T

    def solve(self, x: FloatArray) -> FloatArray:
        """G^-1 x, by the identity of Woodbury and one step of refinement."""
        solved = self._woodbury(x)
        noisy = self._noise * solved if x.ndim == 1 else self._noise[:, None] * solved
        left = x - noisy - self._row_factor @ (self._row_factor.T @ solved)
        return solved + self._woodbury(left)

    def _woodbury(self, x: FloatArray) -> FloatArray:
        root = np.sqrt(self._noise) if x.ndim == 1 else np.sqrt(self._noise)[:, None]
        white = x / root
        inner = cho_solve((self._chol, True), self._scaled.T @ white, check_finite=False)
        result: FloatArray = (white - self._scaled @ inner) / root
        return result


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
    intervals : Observations
        The rows that are none.
    centre : ndarray, shape (m,)
        Mean of the intervals' rows, which u is measured from.
    lower, upper : ndarray, shape (m,)
        Limits of u, one for each interval.
    cov : Covariance
        G.
    """

    def __init__(
        self, mean: FloatArray, cov: forms.FactoredCovariance, observations: Observations
    ) -> None:
        self._prior_cov = cov
        self._points: _Points | None = None
        rows = observations
        self.log_density = observations.log_constant
        if observations.is_point.any():
            self._points = points = _Points(mean, cov, observations)
            mean, cov, rows = points.mean, points.cov, points.intervals
            self.log_density += points.log_density
        self.mean, self.factor, self.intervals = mean, cov.factor, rows
        self.centre = centre = rows.of(mean) + rows.a
        self.lower, self.upper = rows.lower - centre, rows.upper - centre
        self.row_factor = rows.of(self.factor)
        # G in the form that needs fewer operations.
        n, shared = rows.n_rows, None
        if self.row_factor.shape[1] < LOW_RANK_SHARE * n or not n:
            own = rows.S.ndim == 1
            shared = rows.S if own else row.block_noise(rows.S, int(LARGEST_BLOCK * n))
        self.cov: forms.Covariance
        if shared is not None:
            self.cov = forms.LowRankCovariance(shared, self.row_factor)
        else:
            matrix = row_matrix(cov, rows, self.row_factor)
            row.add_noise(matrix, rows.S)
            self.cov = forms.DenseCovariance(matrix, "the covariance of the observations")

    @property
    def n_rows(self) -> int:
        """Length m of u."""
        return self.lower.size

    @cached_property
    def _chol(self) -> FloatArray:
        if isinstance(self.cov, forms.DenseCovariance):
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
        elif isinstance(self.cov, forms.LowRankCovariance):
            coordinates = self._coordinates_given(u, rng, chosen)
        else:
            # A draw from the prior, corrected by what it lacks to `u` (Matheron's rule).
            gap = u.T.copy() if chosen is None else u.T[:, chosen]
            coordinates = rng.standard_normal((self.row_factor.shape[1], gap.shape[1]))
            gap -= self.row_factor @ coordinates
            white = rng.standard_normal(gap.shape)
            if self.intervals.S.ndim == 1:
                gap -= np.sqrt(self.intervals.S)[:, None] * white
            else:
                gap -= np.asarray(self._noise_factor @ white[: self._noise_factor.shape[1]])
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
        solved = self._solved(row_cov)
        return _regression_from(self.mean[skip:], prior, row_cov, solved, None, joint)

    def regression_at(
        self,
        mean: FloatArray,
        variance: FloatArray,
        cross: FloatArray,
        *,
        joint: bool = False,
        on_coordinates: bool = False,
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
        on_coordinates : bool
            Whether on the coordinates c of z = mean + factor c in place of u.
        """
        points, taken = self._points, None
        if points is not None:
            row_cov = points.rows.of(cross)
            solved = points.precision.solve(row_cov)
            taken = row_cov.T @ solved if joint else None
            mean = mean + row_cov.T @ points.weights
            variance = variance - linalg.grouped_products(row_cov, solved, _group(variance))
            if self.n_rows or on_coordinates:  # covariance of z with f given the points
                prior_factor = self._prior_cov.factor
                cross = cross - prior_factor @ (points.rows.of(prior_factor).T @ solved)
        if on_coordinates:
            orthogonal, triangle = self._factor_qr
            own = solve_triangular(triangle, orthogonal.T @ cross, check_finite=False)
            return _regression_from(mean, variance, own, own, taken, joint)
        own = self.intervals.of(cross)
        return _regression_from(mean, variance, own, self._solved(own), taken, joint)

    def _solved(self, row_cov: FloatArray) -> FloatArray:
        return cho_solve((self._chol, True), row_cov) if self.n_rows else row_cov[:0]

    def with_factors(
        self, counts: FloatArray, kept: BoolArray, skip: int
    ) -> "tuple[Conditioning, Sites] | None":
        """Intervals that repeat as factors of values of z after the first `skip`.

        None where none do: see `row_factors`. Those that are `kept` stay rows; `counts` are
        the rows that each stands for. Those whose predictors are known have their probability.
        """
        rows = self.intervals
        if rows.S.ndim == 2 or kept.all():
            return None
        variance = np.einsum("ij,ij->i", self.row_factor, self.row_factor)
        still = ~kept & row_factors.are_still(variance, rows.S)
        moved = ~kept & ~still
        if not moved.any():
            return None
        some = slice(None) if moved.all() else moved  # without copies: most answers are None
        factor, few, noise = self.row_factor[some], counts[some], rows.S[some]
        gaps = row_factors.squared_gaps(factor)
        if isinstance(self.cov, forms.DenseCovariance):
            gaps = row_factors.squared_gaps_of(self.cov.matrix[some][:, some], noise)
        limits = row_factors.OpenRows(self.lower[some], self.upper[some], variance[some])
        if not row_factors.are_alike(few, noise, gaps, limits=limits):
            return None
        own = rows.rows(moved)
        own = replace(own, A=own.A[:, skip:])
        sites = factors_of(own, few, *row_factors.equal_predictors(factor, self.centre[moved]))
        prior = forms.FactoredCovariance(self.factor, units=self._prior_cov.units)
        other = Conditioning(self.mean, prior, rows.rows(kept))
        other._prior_cov, other._points = self._prior_cov, self._points
        known = (x[still] for x in (self.lower, self.upper, rows.S, counts))
        other.log_density = self.log_density + row_factors.log_prob_of_still(*known)
        return other, sites

    def coordinates(self, z: FloatArray) -> FloatArray:
        """The c of values z = mean + factor c."""
        orthogonal, triangle = self._factor_qr
        return solve_triangular(triangle, orthogonal.T @ (z - self.mean), check_finite=False)

    @cached_property
    def _factor_qr(self) -> tuple[FloatArray, FloatArray]:
        orthogonal, triangle = qr(self.factor, mode="economic", check_finite=False)
        return orthogonal, triangle

    @cached_property
    def _noise_factor(self) -> Any:
        return row.noise_factor(self.intervals.S)

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
        assert isinstance(self.cov, forms.LowRankCovariance)
        noise, factor = self.cov.noise, self.row_factor
        noisy, scaled = noise.variances > 0, noise.inverse().multiply(factor)
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


# A Gaussian or Skew Gaussian process at its rows, given observations there.


def process_given(
    cov: forms.FactoredCovariance,
    mean: FloatArray,
    phase: FloatArray,
    truncation: FloatArray,
    observations: Observations,
) -> Conditioning:
    """Condition on the signs at the pseudo-points and on observations.

    Parameters
    ----------
    cov : FactoredCovariance
        Prior covariance of f at the s pseudo-points, at the n data, and at t more points where f is
        wanted but not observed.
    mean : ndarray, shape (n + t,)
        Prior mean of f, after the pseudo-points.
    phase, truncation : ndarray, shape (s,)
    observations : Observations
        Rows of f at the data.

    Returns
    -------
    Conditioning
        Of s + n + t values, the first s of them less their mean. The rows of u: the pseudo-points,
        then the intervals of the data.

    Raises
    ------
    ContradictoryPseudoPointsError
        See `refuse_contradictory_points`.
    """
    s = phase.size
    if not s:
        return Conditioning(mean, cov, observations)
    own = cov.leading(s)
    sd = np.sqrt(own.diagonal())
    rows = row.stacked([pseudo_point_rows(sd, phase, truncation), observations])
    # The signs at pseudo-points are those of f less its mean.
    given = Conditioning(np.concatenate([np.zeros(s), mean]), cov, rows)
    scale = phase / sd
    refuse_contradictory_points(scale[:, None] * own * scale, truncation, given.cov.jitter)
    return given
