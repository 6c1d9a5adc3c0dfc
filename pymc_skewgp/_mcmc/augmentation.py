r"""A SUN vector f with observations, the Gaussian u that both are written on, and its noise.

The rows of u are the latent variables x0 of the SUN, then one row for each interval,
:math:`v = A f + a + e`, both less their mean given the points among the observations;
u ~ N(0, G) restricted to lower < u < upper, G being their covariance given the points. Both
conditionals of the pair (f, u) are known exactly:

* f given u and the points is Gaussian, mean linear in u;
* u given f is a product, whatever the points: each interval's row is a truncated normal of its own,
  or each block of them that share noise a truncated normal vector, and x0 given f is an s-variate
  truncated normal.

Alternating between them is the data augmentation of Albert & Chib (1993) with the latent variables
of the SUN as further data. On its own it mixes slowly; `conjugate` moves u in between.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular
from scipy.linalg.lapack import dpotrf

from pymc_skewgp._gaussian import covariance, ep, linalg, twisted, univariate, weights
from pymc_skewgp._gaussian.independent import draw_by_rejection
from pymc_skewgp._mcmc.model import ConjugateModel
from pymc_skewgp._observations.observations import Observations, add_noise, rows_of_blocks
from pymc_skewgp._posterior.conditioning import with_own_noise
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray

# Noise of the rows behind observations: drawn freely, or within limits.

# Proposals for all blocks of one size together, before blocks are drawn one by one.
_TOGETHER = (16, 256)
_LARGEST_TOGETHER = 12
_LARGEST_REJECTION = 60  # beyond, rejection fails after seconds
_N_RESAMPLED = 1024


class RowNoise:
    """e ~ N(0, S), S being variances, or a covariance that falls into blocks.

    Parameters
    ----------
    S : ndarray, shape (m,) or (m, m)
    """

    def __init__(self, S: FloatArray) -> None:
        self._S = S
        self._sd = np.sqrt(S if S.ndim == 1 else S.diagonal())

    @cached_property
    def _factor(self) -> FloatArray:
        return linalg.low_rank_factor(self._S)

    @cached_property
    def _blocks(self) -> list[NDArray[np.intp]]:
        if self._S.ndim == 1 or not self._S.size:
            return []
        return [rows for rows in rows_of_blocks(self._S) if rows.shape[1] > 1]

    def free(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Draws as columns, shape (m, n)."""
        if self._S.ndim == 1 or not self._S.size:
            return self._sd[:, None] * rng.standard_normal((self._sd.size, n))
        return np.asarray(self._factor @ rng.standard_normal((self._factor.shape[1], n)))

    def within(
        self, lower: FloatArray, upper: FloatArray, rng: np.random.Generator
    ) -> tuple[FloatArray, bool]:
        """One draw of e between limits, shape (m,), and whether it is exact.

        Blocks of one row are truncated normals; others are drawn by rejection or, where that finds
        none, picked from weighted draws.
        """
        sd, exact = self._sd, True
        e = sd * univariate.draw_truncated(rng.random(sd.size), lower / sd, upper / sd)[0]
        for rows in self._blocks:
            e[rows], found = _draw_blocks(
                self._S[rows[:, :, None], rows[:, None, :]], lower[rows], upper[rows], rng
            )
            exact &= found
        return e, exact


def draw_one(
    mean: FloatArray,
    cov: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    rng: np.random.Generator,
) -> tuple[FloatArray, bool]:
    """A draw of N(mean, cov) within limits, and whether it is exact: by rejection, or by weight."""
    if mean.size <= _LARGEST_REJECTION:
        draw = draw_by_rejection(mean, cov, lower, upper, rng)
        if draw is not None:
            return draw, True
    form = covariance.DenseCovariance(cov)
    proposal = twisted.twist(
        form, ep.fit_ep(form, lower - mean, upper - mean), lower - mean, upper - mean
    )
    x, log_weights = proposal.draw(rng.random((proposal.n_dims, _N_RESAMPLED)))
    return mean + x[:, weights.systematic_resample(log_weights, 1, rng)[0]], False


def _draw_blocks(
    cov: FloatArray, lower: FloatArray, upper: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, bool]:
    """Draws of b vectors of d rows each, N(0, cov) within limits, shape (b, d)."""
    b, d = lower.shape
    e, exact = np.empty((b, d)), True
    left = np.arange(b)
    if d <= _LARGEST_TOGETHER:
        for count in _TOGETHER:
            done, draws = _rejection(cov[left], lower[left], upper[left], count, rng)
            e[left[done]] = draws
            left = left[~done]
            if not left.size:
                return e, True
    for i in left:
        e[i], found = draw_one(np.zeros(d), cov[i], lower[i], upper[i], rng)
        exact &= found
    return e, exact


def _rejection(
    cov: FloatArray, lower: FloatArray, upper: FloatArray, count: int, rng: np.random.Generator
) -> tuple[NDArray[np.bool_], FloatArray]:
    """Which blocks had a draw accepted among `count`, and these: see `draw_by_rejection`."""
    b, d = lower.shape
    sd = np.sqrt(np.einsum("bii->bi", cov))
    log_mass = univariate.log_ndtr_interval((lower / sd).ravel(), (upper / sd).ravel()).reshape(
        b, d
    )
    order = np.argsort(log_mass, axis=1, kind="stable")  # the least likely first
    each = np.arange(b)[:, None]
    chol = np.linalg.cholesky(cov[each[:, :, None], order[:, :, None], order[:, None, :]])
    scale = np.einsum("bii->bi", chol)
    low, high = lower[each, order] / scale, upper[each, order] / scale
    mixing = chol / scale[:, :, None]
    z, log_weight = np.empty((b, d, count)), np.zeros((b, count))
    for k in range(d):
        shift = np.einsum("bj,bjc->bc", mixing[:, k, :k], z[:, :k])
        limits = (low[:, k, None] - shift).ravel(), (high[:, k, None] - shift).ravel()
        draw, log_step = univariate.draw_truncated(rng.random(b * count), *limits)
        z[:, k] = draw.reshape(b, count)
        if k:  # the first mass is the same for all
            log_weight += log_step.reshape(b, count)
    accepted = np.log(rng.random((b, count))) < log_weight
    done = accepted.any(axis=1)
    chosen = z[done, :, accepted[done].argmax(axis=1)]
    x = np.empty((int(done.sum()), d))
    x[np.arange(len(x))[:, None], order[done]] = np.einsum("bij,bj->bi", chol[done], chosen)
    return done, np.clip(x, lower[done], upper[done])


# Relative variance of x0 beyond what the latent covariance says. A pseudo-point that is also an
# input leaves x0 without variance of its own given f; 1e-5 of a standard deviation is its blur.
_BLUR = 1e-10
_LOG_2PI = float(np.log(2.0 * np.pi))


class Augmentation:
    """The extended target over (f, u) at fixed parameters, and its two conditionals.

    Parameters
    ----------
    model : ConjugateModel
        Without mixtures.

    Attributes
    ----------
    model : ConjugateModel
    mean : ndarray, shape (s + m,)
        What u lacks of (x0 + truncation, v): its mean given the points.
    limits : tuple of ndarray, shape (s + m,)
        Lower and upper ones of (x0 + truncation, v).
    lower, upper : ndarray, shape (s + m,)
        Limits of u.
    cov : DenseCovariance
        G, the covariance of u before it is restricted.

    Raises
    ------
    FloatingPointError
        For parameters that are NaN or infinite.
    NotPositiveDefiniteError
        At the first use of it, when `scale`, or the covariance that it makes with the latent one,
        is no covariance.
    ValueError
        For intervals without noise.
    """

    def __init__(self, model: ConjugateModel) -> None:
        prior, observed = model.prior, model.observations
        _refuse_nan(prior, observed)
        self.model = model
        self._n_latent = s = prior.truncation.size
        latent_cov = linalg.symmetric(prior.latent_cov)
        latent_cov[np.diag_indices_from(latent_cov)] *= 1.0 + _BLUR
        self._latent_cov = latent_cov
        self._points = points = _points_of(prior, observed)
        self._intervals = rows = (
            observed if points is None else with_own_noise(observed, points.rows)
        )
        # Covariance of f with the rows of u, before points.
        self._row_cov = np.hstack([prior.cross_cov, rows.of(prior.scale).T])
        if not (rows.variances > 0).all():
            raise ValueError("the variances S of the observations' noise must be positive.")
        self._noise = RowNoise(rows.S)
        self._centre = np.concatenate([prior.truncation, rows.of(prior.mu) + rows.a])
        self.limits = (
            np.concatenate([np.zeros(s), rows.lower]),
            np.concatenate([np.full(s, np.inf), rows.upper]),
        )
        self.mean = self._centre if points is None else self._centre + self._half.T @ points.white
        self.lower, self.upper = (x - self.mean for x in self.limits)

    @property
    def n_rows(self) -> int:
        """Length s + m of u."""
        return self.lower.size

    @cached_property
    def _half(self) -> FloatArray:
        """Covariance of the points with u, the points being whitened."""
        points = self._points
        assert points is not None
        cross = points.rows.of(self._row_cov)
        return solve_triangular(points.chol, cross, lower=True, check_finite=False)

    @cached_property
    def cov(self) -> covariance.DenseCovariance:
        """G; not for models without rows."""
        s, rows = self._n_latent, self._intervals
        matrix = np.empty((self.n_rows, self.n_rows))
        matrix[:s, :s] = self._latent_cov
        matrix[s:] = rows.of(self._row_cov)
        matrix[:s, s:] = matrix[s:, :s].T
        block = matrix[s:, s:]
        block[:] = linalg.symmetric(block)
        add_noise(block, rows.S)
        if self._points is not None:
            matrix -= self._half.T @ self._half
        return covariance.DenseCovariance(matrix, "the covariance of the observations")

    @cached_property
    def _chol(self) -> FloatArray:
        """Factor of the covariance of f."""
        return linalg.cholesky("scale", linalg.symmetric(self.model.prior.scale))[0]

    @cached_property
    def _latent_given(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Of x0 given f: regression on the whitened f, covariance and its factor."""
        half = solve_triangular(self._chol, self.model.prior.cross_cov, lower=True)
        cov = linalg.symmetric(self._latent_cov - half.T @ half)
        factor, jitter = linalg.cholesky("the latent covariance given f", cov)
        cov[np.diag_indices_from(cov)] *= 1.0 + jitter
        return half.T, cov, factor

    def is_regular(self) -> bool:
        """Whether the covariances of f and of x0 given f are factorised without jitter."""
        prior = self.model.prior
        chol, failed = dpotrf(linalg.symmetric(prior.scale), lower=1)
        if failed or not self._n_latent:
            return not failed
        half = solve_triangular(chol, prior.cross_cov, lower=True, check_finite=False)
        inner = linalg.symmetric(prior.latent_cov) - half.T @ half
        return bool(dpotrf(inner, lower=1)[1] == 0)

    def holds(self, u: FloatArray) -> bool:
        """Whether u lies within its limits."""
        return bool(((u > self.lower) & (u < self.upper)).all())

    @property
    def log_points(self) -> float:
        """Log density of the points."""
        return 0.0 if self._points is None else self._points.log_density

    def log_density(self, u: FloatArray) -> float:
        """Log density of the points and of u, N(u; 0, G) before it is restricted."""
        if not self.n_rows:
            return self.log_points
        return self.log_points + _log_normal(self.cov.chol, u)[0]

    def rows_given(self, f: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, bool]:
        """Draw u given f.

        Parameters
        ----------
        f : ndarray, shape (p,)
        rng : numpy.random.Generator

        Returns
        -------
        u : ndarray, shape (s + m,)
            Strictly within its limits.
        exact : bool
            Whether the draw is exact. If not, x0 or rows that share noise were picked from weighted
            draws, because rejection found none: right only as the number of those grows.
        """
        s = self._n_latent
        predictor = self._intervals.of(f) + self._intervals.a
        lower, upper = (x[s:] - predictor for x in self.limits)
        noise, exact_noise = self._noise.within(lower, upper, rng)
        latent, exact = np.empty(0), True
        if s:
            prior, (regression, cov, _) = self.model.prior, self._latent_given
            white = solve_triangular(self._chol, f - prior.mu, lower=True, check_finite=False)
            mean = regression @ white + prior.truncation
            latent, exact = draw_one(mean, cov, self.limits[0][:s], self.limits[1][:s], rng)
        u = np.concatenate([latent, predictor + noise]) - self.mean
        # Round-off may leave a row at its limit.
        u = np.maximum(u, np.nextafter(self.lower, np.inf))
        return np.minimum(u, np.nextafter(self.upper, -np.inf)), exact and exact_noise

    def function_given(self, u: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draw f given u and the points: a prior draw of all, corrected by what they say otherwise.

        This is Matheron's rule. Points and u together have the Cholesky factor
        ``[[L, 0], [H', M]]``, with the points' own L, `_half` H and G = M M'.

        Parameters
        ----------
        u : ndarray, shape (k, s + m)
        rng : numpy.random.Generator

        Returns
        -------
        ndarray, shape (k, p)
        """
        s, mu, points = self._n_latent, self.model.prior.mu, self._points
        k = u.shape[0]
        white = rng.standard_normal((mu.size, k))
        f = self._chol @ white
        gap = u.T + (self.mean - self._centre)[:, None]
        if s:
            regression, _, factor = self._latent_given
            gap[:s] -= regression @ white + factor @ rng.standard_normal((s, k))
        # The observations' noise is symmetric: its sign does not matter.
        gap[s:] -= self._intervals.of(f)
        gap[s:] += self._noise.free(k, rng)
        at_points = None if points is None else points.gap(f, rng)
        if self.n_rows:
            if at_points is not None:
                gap -= self._half.T @ at_points
            solved = cho_solve((self.cov.chol, True), gap, overwrite_b=True, check_finite=False)
            if at_points is not None:
                at_points -= self._half @ solved
            f += self._row_cov @ solved
        if points is not None and at_points is not None:
            f += points.f_cov @ solve_triangular(
                points.chol, at_points, lower=True, trans="T", check_finite=False
            )
        return mu + f.T


class _Points(NamedTuple):
    """Points given the prior of f: y less its mean, whitened, and what goes with it.

    Attributes
    ----------
    rows : Observations
    chol : ndarray
        Factor L of their covariance.
    white : ndarray
        The residuals r, L^-1 r.
    log_density : float
        Log of N(r; 0, L L').
    f_cov : ndarray, shape (p, n)
        Covariance of f with them.
    noise : RowNoise
    """

    rows: Observations
    chol: FloatArray
    white: FloatArray
    log_density: float
    f_cov: FloatArray
    noise: RowNoise

    def gap(self, f: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Residuals less those of prior draws f, columns without their mean, whitened."""
        simulated = self.rows.of(f) - self.noise.free(f.shape[1], rng)
        half = solve_triangular(self.chol, simulated, lower=True, check_finite=False)
        return self.white[:, None] - half


def _points_of(prior: SunParameters, observed: Observations) -> _Points | None:
    chosen = observed.is_point
    if not chosen.any():
        return None
    rows = observed if chosen.all() else observed.rows(chosen)
    f_cov = rows.of(prior.scale).T
    matrix = linalg.symmetric(rows.of(f_cov))
    add_noise(matrix, rows.S)
    chol, _ = linalg.cholesky("the covariance of the observed values", matrix)
    log_density, white = _log_normal(chol, rows.value - rows.of(prior.mu) - rows.a)
    return _Points(rows, chol, white, log_density, f_cov, RowNoise(rows.S))


def _log_normal(chol: FloatArray, x: FloatArray) -> tuple[float, FloatArray]:
    """Log of N(x; 0, L L'), and L^-1 x."""
    white = solve_triangular(chol, x, lower=True, check_finite=False)
    log_root_det = float(np.log(chol.diagonal()).sum())
    return -0.5 * float(white @ white) - log_root_det - 0.5 * x.size * _LOG_2PI, white


def _refuse_nan(prior: SunParameters, observed: Observations) -> None:
    numbers = [*prior, observed.a, observed.S]
    if observed.A is not None:
        numbers.append(observed.A if isinstance(observed.A, np.ndarray) else observed.A.data)
    intervals = ~observed.is_point
    limits = observed.lower[intervals], observed.upper[intervals]
    if not all(np.isfinite(x).all() for x in numbers) or np.isnan(limits).any():
        raise FloatingPointError("the parameters hold NaN or infinite values.")
    if (limits[0] >= limits[1]).any():
        raise FloatingPointError("limits are in the wrong order.")
