r"""A SUN vector f with interval observations, and the Gaussian u that both are written on.

The rows of u are the latent variables x0 of the SUN, then one row for each observation,
:math:`v = A f + a + e` less its prior mean; u ~ N(0, G) restricted to lower < u < upper. Both
conditionals of the pair (f, u) are known exactly:

* f given u is Gaussian, mean linear in u;
* u given f is a product: each observation's row is a truncated normal of its own, and x0 given f is
  an s-variate truncated normal, whatever the observations.

Alternating between them is the data augmentation of Albert & Chib (1993) with the latent variables
of the SUN as further data. On its own it mixes slowly; `conjugate` moves u in between.
"""

from dataclasses import fields
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.linalg.lapack import dpotrf

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.linalg import symmetric
from pymc_skewgp._gaussian.operators.dense import DenseCovariance
from pymc_skewgp._gaussian.proposals.ep import fit_ep
from pymc_skewgp._gaussian.proposals.twisted import twist
from pymc_skewgp._gaussian.samplers.rejection import draw_by_rejection
from pymc_skewgp._gaussian.univariate import draw_truncated
from pymc_skewgp._gaussian.weights import systematic_resample
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray

# Relative variance of x0 beyond what the latent covariance says. A pseudo-point that is also an
# input leaves x0 without variance of its own given f; 1e-5 of a standard deviation is its blur.
_BLUR = 1e-10
_N_RESAMPLED = 1024
_LOG_2PI = float(np.log(2.0 * np.pi))


class ConjugateModel(NamedTuple):
    """A latent vector f at given hyperparameters, with its observations.

    Attributes
    ----------
    prior : SunParameters
        Of f, arrays.
    observations : Observations
        Intervals whose noise is independent from row to row.
    """

    prior: SunParameters
    observations: Observations

    def equals(self, other: "ConjugateModel") -> bool:
        """Whether all numbers are the same."""
        own, others = self.observations, other.observations
        pairs = [*zip(self.prior, other.prior, strict=True)]
        pairs += [(getattr(own, x.name), getattr(others, x.name)) for x in fields(own)]
        return all(
            np.array_equal(x, y, equal_nan=True)
            if isinstance(x, np.ndarray) and isinstance(y, np.ndarray)
            else x is y
            for x, y in pairs
        )


class Augmentation:
    """The extended target over (f, u) at fixed parameters, and its two conditionals.

    Parameters
    ----------
    model : ConjugateModel

    Attributes
    ----------
    model : ConjugateModel
    mean : ndarray, shape (s + m,)
        What u lacks of (x0 + truncation, v), whose limits are 0 and those of the observations.
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
        For rows that are points, and for noise that rows share or lack.
    """

    def __init__(self, model: ConjugateModel) -> None:
        prior, observed = model
        _refuse_other_rows(observed)
        numbers = [*prior, observed.a, observed.S]
        if observed.A is not None:
            numbers.append(observed.A if isinstance(observed.A, np.ndarray) else observed.A.data)
        limits = observed.lower, observed.upper
        if not all(np.isfinite(x).all() for x in numbers) or np.isnan(limits).any():
            raise FloatingPointError("the parameters hold NaN or infinite values.")
        self.model = model
        self._n_latent = s = prior.truncation.size
        latent_cov = symmetric(prior.latent_cov)
        latent_cov[np.diag_indices_from(latent_cov)] *= 1.0 + _BLUR
        self._latent_cov = latent_cov
        # Covariance of f with the rows of u.
        self._row_cov = np.hstack([prior.cross_cov, observed.of(prior.scale).T])
        self._noise_sd = np.sqrt(observed.S)
        self.mean = np.concatenate([prior.truncation, observed.of(prior.mu) + observed.a])
        self.lower = np.concatenate([np.zeros(s), observed.lower]) - self.mean
        self.upper = np.concatenate([np.full(s, np.inf), observed.upper]) - self.mean

    @property
    def n_rows(self) -> int:
        """Length s + m of u."""
        return self.lower.size

    @cached_property
    def cov(self) -> DenseCovariance:
        """G; not for models without rows."""
        s, observed = self._n_latent, self.model.observations
        matrix = np.empty((self.n_rows, self.n_rows))
        matrix[:s, :s] = self._latent_cov
        matrix[s:] = observed.of(self._row_cov)
        matrix[:s, s:] = matrix[s:, :s].T
        block = matrix[s:, s:]
        block[:] = symmetric(block)
        block[np.diag_indices_from(block)] += observed.S
        return DenseCovariance(matrix, "the covariance of the observations")

    @cached_property
    def _chol(self) -> FloatArray:
        """Factor of the covariance of f."""
        return linalg.cholesky("scale", symmetric(self.model.prior.scale))[0]

    @cached_property
    def _latent_given(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Of x0 given f: regression on the whitened f, covariance and its factor."""
        half = solve_triangular(self._chol, self.model.prior.cross_cov, lower=True)
        cov = symmetric(self._latent_cov - half.T @ half)
        factor, jitter = linalg.cholesky("the latent covariance given f", cov)
        cov[np.diag_indices_from(cov)] *= 1.0 + jitter
        return half.T, cov, factor

    def is_regular(self) -> bool:
        """Whether the covariances of f and of x0 given f are factorised without jitter."""
        prior = self.model.prior
        chol, failed = dpotrf(symmetric(prior.scale), lower=1)
        if failed or not self._n_latent:
            return not failed
        half = solve_triangular(chol, prior.cross_cov, lower=True, check_finite=False)
        inner = symmetric(prior.latent_cov) - half.T @ half
        return bool(dpotrf(inner, lower=1)[1] == 0)

    def holds(self, u: FloatArray) -> bool:
        """Whether u lies within its limits."""
        return bool(((u > self.lower) & (u < self.upper)).all())

    def log_density(self, u: FloatArray) -> float:
        """Log of N(u; 0, G): the density of u before it is restricted."""
        if not self.n_rows:
            return 0.0
        white = solve_triangular(self.cov.chol, u, lower=True, check_finite=False)
        log_root_det = float(np.log(self.cov.chol.diagonal()).sum())
        return -0.5 * float(white @ white) - log_root_det - 0.5 * u.size * _LOG_2PI

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
            Whether the draw is exact. If not, x0 was picked from weighted draws, because rejection
            found none: right only as the number of those grows.
        """
        s, sd = self._n_latent, self._noise_sd
        centre = self.model.observations.of(f - self.model.prior.mu)
        low, high = (self.lower[s:] - centre) / sd, (self.upper[s:] - centre) / sd
        noise, _ = draw_truncated(rng.random(centre.size), low, high)
        latent, exact = self._latent_draw(f, rng)
        u = np.concatenate([latent, centre + sd * noise])
        # Round-off may leave a row at its limit.
        u = np.maximum(u, np.nextafter(self.lower, np.inf))
        return np.minimum(u, np.nextafter(self.upper, -np.inf)), exact

    def function_given(self, u: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draw f given u: a prior draw of both, corrected by what u says otherwise (Matheron).

        Parameters
        ----------
        u : ndarray, shape (k, s + m)
        rng : numpy.random.Generator

        Returns
        -------
        ndarray, shape (k, p)
        """
        s, mu = self._n_latent, self.model.prior.mu
        k = u.shape[0]
        white = rng.standard_normal((mu.size, k))
        f = self._chol @ white
        if self.n_rows:
            gap = u.T.copy()
            if s:
                regression, _, factor = self._latent_given
                gap[:s] -= regression @ white + factor @ rng.standard_normal((s, k))
            # The observations' noise is symmetric: its sign does not matter.
            gap[s:] -= self.model.observations.of(f)
            gap[s:] += self._noise_sd[:, None] * rng.standard_normal((self.n_rows - s, k))
            solved = cho_solve((self.cov.chol, True), gap, overwrite_b=True, check_finite=False)
            f += self._row_cov @ solved
        return mu + f.T

    def _latent_draw(self, f: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, bool]:
        s = self._n_latent
        if not s:
            return np.empty(0), True
        regression, cov, _ = self._latent_given
        white = solve_triangular(
            self._chol, f - self.model.prior.mu, lower=True, check_finite=False, overwrite_b=True
        )
        mean = regression @ white
        lower, upper = self.lower[:s], self.upper[:s]
        draw = draw_by_rejection(mean, cov, lower, upper, rng)
        if draw is not None:
            return draw, True
        form = DenseCovariance(cov)
        proposal = twist(form, fit_ep(form, lower - mean, upper), lower - mean, upper)
        x, log_weights = proposal.draw(rng.random((proposal.n_dims, _N_RESAMPLED)))
        return mean + x[:, systematic_resample(log_weights, 1, rng)[0]], False


def _refuse_other_rows(observed: Observations) -> None:
    """Rows given f must be truncated normals, independent of each other."""
    if observed.is_point.any():
        raise ValueError("the observations hold points: condition the prior on them first.")
    if observed.S.ndim != 1:
        raise ValueError(
            "the noise of the observations has a covariance S that is a matrix: the rows of u "
            "given f are independent only for variances, shape (m,)."
        )
    if not (observed.S > 0).all():
        raise ValueError("the variances S of the observations' noise must be positive.")
