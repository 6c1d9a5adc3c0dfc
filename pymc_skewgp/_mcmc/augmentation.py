"""A latent vector with its observations at given hyperparameters: rows, or mixtures of rows.

Some observations are no rows but mixtures of them: given an *indicator* z for each they are. What
the rows of a sampler need is drawn as in any data augmentation: z given f, then rows given z.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpotrf
from scipy.special import gammaln, stdtr, stdtrit

from pymc_skewgp._errors import NotPositiveDefiniteError, no_warnings
from pymc_skewgp._gaussian import covariance, ep, linalg, twisted, univariate, weights
from pymc_skewgp._gaussian.independent import draw_by_rejection
from pymc_skewgp._observations.observations import Observations, add_noise, rows_of_blocks
from pymc_skewgp._observations.sites import Sites
from pymc_skewgp._posterior.conditioning import Conditioning, with_own_noise
from pymc_skewgp._posterior.draws_with_evidence import sun_given
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray


class Rows(NamedTuple):
    """Rows v = eta + offset + e with noise of their own, but for eta; arrays of shape (m,).

    Attributes
    ----------
    offset : ndarray
    variance : ndarray
        Of e.
    lower, upper : ndarray
        Limits of v. Infinite ones are of a row that says nothing.
    value : ndarray
        v at points; NaN elsewhere.
    """

    offset: FloatArray
    variance: FloatArray
    lower: FloatArray
    upper: FloatArray
    value: FloatArray


# Observations that are rows given their indicators, one for each: `draw`, indicators given f,
# nothing else of the rows being known but the data, whose `errors` are the rows without indicators,
# less what f says of them, eta and the offset; `given`, the rows that the indicators make;
# `log_density` of each indicator before any data, and for limits of the data that they allow. With
# the density of the rows given z it makes that of z and the data, given f.
type Mixture = StudentTNoise | LaplaceNoise | Lapses


class Placed(NamedTuple):
    """A mixture, and which of the observations it is of."""

    mixture: Mixture
    where: slice


class ConjugateModel(NamedTuple):
    """A latent vector f at given hyperparameters, with its observations.

    Attributes
    ----------
    prior : SunParameters
        Of f, arrays.
    observations : Observations
    mixtures : tuple of Placed
        Which of the observations are mixtures of rows.
    sites : Sites or None
        Observations beside the rows that are functions of one predictor each.
    """

    prior: SunParameters
    observations: Observations
    mixtures: tuple[Placed, ...] = ()
    sites: Sites | None = None

    def equals(self, other: "ConjugateModel") -> bool:
        """Whether all numbers are the same; of models of rows without mixtures."""
        own, others = self.observations, other.observations
        pairs = [*zip(self.prior, other.prior, strict=True)]
        pairs += [(getattr(own, x.name), getattr(others, x.name)) for x in fields(own)]
        return all(
            np.array_equal(x, y, equal_nan=True)
            if isinstance(x, np.ndarray) and isinstance(y, np.ndarray)
            else x is y
            for x, y in pairs
        )

    def indicators(self, f: FloatArray, rng: np.random.Generator) -> list[FloatArray]:
        """Draw those of each mixture given f."""
        observed = self.observations
        eta = observed.of(f) + observed.a
        found = []
        for mixture, where in self.mixtures:
            centre = eta[where]
            errors = Rows(
                np.zeros(centre.size),
                observed.variances[where],
                observed.lower[where] - centre,
                observed.upper[where] - centre,
                observed.value[where] - centre,
            )
            found.append(mixture.draw(errors, rng))
        return found

    def given(self, indicators: Sequence[FloatArray]) -> "ConjugateModel":
        """The model whose observations are rows; those that say nothing are left out."""
        observed = self.observations
        limits = observed.lower, observed.upper
        columns = observed.a, observed.variances, *limits, observed.value
        every = Rows(*(np.array(x) for x in columns))
        for (mixture, where), z in zip(self.mixtures, indicators, strict=True):
            rows = mixture.given(Rows(*(x[where] for x in every)), z)
            for all_rows, own in zip(every, rows, strict=True):
                all_rows[where] = own
        S = every.variance
        if observed.S.ndim == 2:
            S = np.array(observed.S)
            S[np.diag_indices_from(S)] = every.variance
        found = Observations(observed.A, every.offset, S, *every[2:])
        says = found.is_point | np.isfinite(found.lower) | np.isfinite(found.upper)
        return ConjugateModel(self.prior, found if says.all() else found.rows(says))

    def log_indicators(self, indicators: Sequence[FloatArray]) -> float:
        """See `Mixture.log_density`."""
        pairs = zip(self.mixtures, indicators, strict=True)
        return float(sum(placed.mixture.log_density(z).sum() for placed, z in pairs))


# Noise that is normal given its variance: Student-t and asymmetric Laplace.
#
# An indicator z scales the variance S of a row, and shifts it where the noise is skewed. Given its
# error an indicator has a distribution in closed form. The error of an interval is not known given
# f: it is drawn first, from the noise within the limits.


@dataclass(frozen=True)
class StudentTNoise:
    r"""Errors of a Student-t distribution whose scale is the root of S.

    .. math:: e \mid z \sim N(0, S z), \qquad 1 / z \sim \mathrm{Gamma}(\nu / 2, \nu / 2)

    Attributes
    ----------
    nu : ndarray, shape (m,)
        Degrees of freedom.
    """

    nu: FloatArray

    def draw(self, errors: Rows, rng: np.random.Generator) -> FloatArray:
        """See `Mixture`: inverse gamma given the error."""
        sd = np.sqrt(errors.variance)
        e = errors.value / sd
        within = np.isnan(e)
        if within.any():
            lower, upper = (x[within] / sd[within] for x in (errors.lower, errors.upper))
            e[within] = _truncated_t(self.nu[within], lower, upper, rng)
        return 0.5 * (self.nu + e**2) / rng.standard_gamma(0.5 * (self.nu + 1.0))

    def given(self, rows: Rows, z: FloatArray) -> Rows:
        """See `Mixture`."""
        return rows._replace(variance=rows.variance * z)

    def log_density(self, z: FloatArray) -> FloatArray:
        """See `Mixture`."""
        a = 0.5 * self.nu
        density: FloatArray = a * np.log(a) - gammaln(a) - (a + 1.0) * np.log(z) - a / z
        return density


@dataclass(frozen=True)
class LaplaceNoise:
    r"""Errors of an asymmetric Laplace distribution, exponential on each side of 0.

    .. math:: e \mid z \sim N(\theta z, S z), \qquad z \sim \mathrm{Exponential}(1)

    The sides have the means :math:`\sqrt{\theta^2/4 + S/2} \pm \theta/2` (Kozumi & Kobayashi 2011,
    doi:10.1080/00949655.2010.496117). Points only.

    Attributes
    ----------
    shift : ndarray, shape (m,)
        Theta, 0 for the Laplace distribution.
    """

    shift: FloatArray

    def draw(self, errors: Rows, rng: np.random.Generator) -> FloatArray:
        """See `Mixture`: 1/z is inverse Gaussian given the error.

        By Michael, Schucany & Haas (1976), both roots written so that errors near 0 cost no digits.
        """
        shape = 2.0 + self.shift**2 / errors.variance
        inverse_mean = np.abs(errors.value) / np.sqrt(errors.variance * shape)
        chi2 = rng.standard_normal(errors.value.size) ** 2 / shape
        large = inverse_mean + 0.5 * chi2 + np.sqrt(chi2 * (inverse_mean + 0.25 * chi2))
        takes_large = rng.random(large.size) * (large + inverse_mean) <= large
        z: FloatArray = np.where(takes_large, large, inverse_mean**2 / large)
        return np.maximum(z, np.finfo(float).tiny)

    def given(self, rows: Rows, z: FloatArray) -> Rows:
        """See `Mixture`."""
        return rows._replace(offset=rows.offset + self.shift * z, variance=rows.variance * z)

    def log_density(self, z: FloatArray) -> FloatArray:
        """See `Mixture`."""
        return -z


def _truncated_t(
    nu: FloatArray, lower: FloatArray, upper: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Standard Student-t draws within limits, by the distribution function of the nearer tail."""
    right = lower > 0
    low, high = np.where(right, -upper, lower), np.where(right, -lower, upper)
    p, q = stdtr(nu, low), stdtr(nu, high)
    x = stdtrit(nu, p + rng.random(nu.size) * (q - p))
    x = np.where(np.isfinite(x), x, high)  # where the tail underflows, all of it is at its end
    x = np.clip(x, low, high)
    found: FloatArray = np.where(right, -x, x)
    return found


# Labels that a subject may give without looking: lapses, guesses, flips.


@dataclass(frozen=True)
class Lapses:
    r"""Intervals that say something of f with a probability only.

    .. math:: p(y \mid f) = c + |b| \, P(v \in I \mid f)

    with I an interval with one limit; its complement, for negative b. The indicator of a row is 1
    where it says nothing, 0 where it does.

    A label that is flipped with probability eps is one: it is drawn at random with probability
    2 eps, and tells the truth otherwise. This leaves f more room than to know which labels are
    flipped, so that a chain on f and indicators mixes faster.

    Attributes
    ----------
    lapse : ndarray, shape (m,)
        c, the probability that the row says nothing and is as it was observed.
    truth : ndarray, shape (m,)
        b: its absolute value is the probability that it says something.
    """

    lapse: FloatArray
    truth: FloatArray

    def draw(self, errors: Rows, rng: np.random.Generator) -> FloatArray:
        """See `Mixture`."""
        sd = np.sqrt(errors.variance)
        lower, upper = self._limits(errors.lower / sd, errors.upper / sd)
        with np.errstate(divide="ignore", invalid="ignore"):
            log_odds = np.log(self.lapse) - np.log(np.abs(self.truth))
            log_odds -= univariate.log_ndtr_interval(lower, upper)
        # The logistic distribution's draw is the log odds of a uniform one.
        return (rng.logistic(size=log_odds.size) < log_odds).astype(float)

    def given(self, rows: Rows, z: FloatArray) -> Rows:
        """See `Mixture`."""
        lower, upper = self._limits(rows.lower, rows.upper)
        return rows._replace(
            lower=np.where(z == 1.0, -np.inf, lower), upper=np.where(z == 1.0, np.inf, upper)
        )

    def log_density(self, z: FloatArray) -> FloatArray:
        """See `Mixture`."""
        with np.errstate(divide="ignore"):
            found: FloatArray = np.log(np.where(z == 1.0, self.lapse, np.abs(self.truth)))
        return found

    def _limits(self, lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Those of the other label, on the other side of the only limit, where b is negative."""
        other = self.truth < 0
        return (
            np.where(other, np.where(np.isfinite(upper), upper, -np.inf), lower),
            np.where(other, np.where(np.isfinite(lower), lower, np.inf), upper),
        )


# What a Markov kernel on the rows u is, for the samplers that use one.


class Walk(NamedTuple):
    """Successive states of u, shape (n, s + m), and what is known of each, arrays of length n."""

    u: FloatArray
    stats: dict[str, FloatArray]

    def stats_at(self, i: int) -> dict[str, float]:
        """What is known of one of them."""
        return {name: float(values[i]) for name, values in self.stats.items()}


class Move(Protocol):
    """A Markov kernel that leaves N(0, G) restricted to its rectangle invariant.

    It belongs to one `Augmentation`, and what it keeps depends on that alone: neither on a state,
    nor on what a chain drew before.
    """

    def walk(self, u: FloatArray, n: int, rng: np.random.Generator, *, thin: int) -> Walk:
        """Every `thin`-th of `n` times `thin` states that follow `u`."""
        ...

    def adapt(self) -> int:
        """Prepare for a long run at these parameters, and choose steps between two draws of f."""
        ...


# A SUN vector f with observations, the Gaussian u that both are written on, and its noise.
#
# The rows of u are the latent variables x0 of the SUN, then one row for each interval,
# :math:`v = A f + a + e`, both less their mean given the points among the observations;
# u ~ N(0, G) restricted to lower < u < upper, G being their covariance given the points. Both
# conditionals of the pair (f, u) are known exactly:
#
# * f given u and the points is Gaussian, mean linear in u;
# * u given f is a product, whatever the points: each interval's row is a truncated normal of its
#   own, or each block of them that share noise a truncated normal vector, and x0 given f is an
#   s-variate truncated normal.
#
# Alternating between them is the data augmentation of Albert & Chib (1993) with the latent
# variables of the SUN as further data. On its own it mixes slowly; `conjugate` moves u in between.

# Noise of the rows behind observations, drawn within limits.

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
    def _blocks(self) -> list[NDArray[np.intp]]:
        if self._S.ndim == 1 or not self._S.size:
            return []
        return [rows for rows in rows_of_blocks(self._S) if rows.shape[1] > 1]

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
    limits = lower - mean, upper - mean
    proposal = twisted.Rung().twist(form, ep.fit_ep(form, *limits), *limits)
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
    log_points : float
        Log density of the points.

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

    log_points: float = 0.0
    # Covariance of the points with u, the points being whitened.
    _half: FloatArray | None = None

    def __init__(self, model: ConjugateModel) -> None:
        prior, observed = model.prior, model.observations
        _refuse_nan(prior, observed)
        self.model = model
        self._n_latent = s = prior.truncation.size
        latent_cov = linalg.symmetric(prior.latent_cov)
        latent_cov[np.diag_indices_from(latent_cov)] *= 1.0 + _BLUR
        self._latent_cov = latent_cov
        rows, known = observed, observed.is_point
        if known.any():
            points = observed if known.all() else observed.rows(known)
            rows = with_own_noise(observed, points)
            matrix = linalg.symmetric(points.of(points.of(prior.scale).T))
            add_noise(matrix, points.S)
            chol, _ = linalg.cholesky("the covariance of the observed values", matrix)
            residual = points.value - points.of(prior.mu) - points.a
            self.log_points, white = _log_normal(chol, residual)
        if not (rows.variances > 0).all():
            raise ValueError("the variances S of the observations' noise must be positive.")
        self._intervals, self._noise = rows, RowNoise(rows.S)
        # Covariance of f with the rows of u, before points.
        self._row_cov = np.hstack([prior.cross_cov, rows.of(prior.scale).T])
        self.limits = (
            np.concatenate([np.zeros(s), rows.lower]),
            np.concatenate([np.full(s, np.inf), rows.upper]),
        )
        self.mean = np.concatenate([prior.truncation, rows.of(prior.mu) + rows.a])
        if known.any():
            cross = points.of(self._row_cov)
            self._half = solve_triangular(chol, cross, lower=True, check_finite=False)
            self.mean = self.mean + self._half.T @ white
        self.lower, self.upper = (x - self.mean for x in self.limits)

    @property
    def n_rows(self) -> int:
        """Length s + m of u."""
        return self.lower.size

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
        if self._half is not None:
            matrix -= self._half.T @ self._half
        return covariance.DenseCovariance(matrix, "the covariance of the observations")

    @cached_property
    def _chol(self) -> FloatArray:
        """Factor of the covariance of f."""
        return linalg.cholesky("scale", linalg.symmetric(self.model.prior.scale))[0]

    @cached_property
    def _latent_given(self) -> tuple[FloatArray, FloatArray]:
        """Of x0 given f: regression on the whitened f, and covariance."""
        half = solve_triangular(self._chol, self.model.prior.cross_cov, lower=True)
        cov = linalg.symmetric(self._latent_cov - half.T @ half)
        _, jitter = linalg.cholesky("the latent covariance given f", cov)
        cov[np.diag_indices_from(cov)] *= 1.0 + jitter
        return half.T, cov

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
            prior, (regression, cov) = self.model.prior, self._latent_given
            white = solve_triangular(self._chol, f - prior.mu, lower=True, check_finite=False)
            mean = regression @ white + prior.truncation
            latent, exact = draw_one(mean, cov, self.limits[0][:s], self.limits[1][:s], rng)
        u = np.concatenate([latent, predictor + noise]) - self.mean
        # Round-off may leave a row at its limit.
        u = np.maximum(u, np.nextafter(self.lower, np.inf))
        return np.minimum(u, np.nextafter(self.upper, -np.inf)), exact and exact_noise

    def function_given(self, u: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draw f given u, shape (k, s + m), and the points; shape (k, p)."""
        given, s = self._given, self._n_latent
        rows = u + self.mean - given.centre
        rows[:, :s] -= self.model.prior.truncation
        return given.draw(rows, rng, skip=s)

    @cached_property
    def _given(self) -> Conditioning:
        """Of x0 and f, given the points."""
        try:
            with no_warnings():  # of jitter: `cov` says so
                return sun_given(self.model.prior, self.model.observations)
        except NotPositiveDefiniteError as error:
            raise NotPositiveDefiniteError(f"scale is no covariance: {error}") from error


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
