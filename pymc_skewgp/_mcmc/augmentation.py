r"""A SUN vector f under probit observations, with the Gaussian u that both are written on.

The rows of u are the latent variables x0 of the SUN, then one row for each observation, the signed
noisy predictor less its prior mean; u ~ N(0, G) restricted to u > lower. Both conditionals of the
pair (f, u) are known exactly:

* f given u is Gaussian, mean linear in u;
* u given f is a product: each observation's row is a truncated normal of its own, and x0 given f is
  an s-variate truncated normal, whatever the observations.

Alternating between them is the data augmentation of Albert & Chib (1993) with the latent variables
of the SUN as further data. On its own it mixes slowly; `conjugate_moves` moves u in between.
"""

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
from pymc_skewgp._validation import FloatArray

# Relative variance of x0 beyond what the latent covariance says. A pseudo-point that is also an
# input leaves x0 without variance of its own given f; 1e-5 of a standard deviation is its blur.
_BLUR = 1e-10
_N_RESAMPLED = 1024
_LOG_2PI = float(np.log(2.0 * np.pi))


class ProbitSUN(NamedTuple):
    """Parameters of f ~ SUN and of observations y_i = 1 with probability Phi((W f + Z)_i).

    Attributes
    ----------
    mu, scale, cross_cov, truncation, latent_cov : ndarray
        Of the SUN, in covariance form, shapes (p,), (p, p), (p, s), (s,), (s, s).
    design : ndarray, shape (m, p), or None
        W; None for the identity, which is then not multiplied by.
    offset : ndarray, shape (m,)
        Z.
    sign : ndarray, shape (m,)
        2 y - 1.
    """

    mu: FloatArray
    scale: FloatArray
    cross_cov: FloatArray
    truncation: FloatArray
    latent_cov: FloatArray
    design: FloatArray | None
    offset: FloatArray
    sign: FloatArray


def cross_covariance(scale: FloatArray, skewness: FloatArray) -> FloatArray:
    """C = D Delta, with the standard deviations of `scale` on the diagonal of D.

    A negative variance counts as none: what refuses it is the factorisation of `scale`.
    """
    return np.sqrt(np.maximum(scale.diagonal(), 0.0))[:, None] * skewness


class Augmentation:
    """The extended target over (f, u) at fixed parameters, and its two conditionals.

    Parameters
    ----------
    model : ProbitSUN

    Attributes
    ----------
    model : ProbitSUN
    lower : ndarray, shape (s + m,)
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
    """

    def __init__(self, model: ProbitSUN) -> None:
        if not all(np.isfinite(x).all() for x in model if x is not None):
            raise FloatingPointError("the parameters hold NaN or infinite values.")
        self.model = model
        self._n_latent = model.truncation.size
        latent_cov = symmetric(model.latent_cov)
        latent_cov[np.diag_indices_from(latent_cov)] *= 1.0 + _BLUR
        self._latent_cov = latent_cov
        # Covariance of f with the observations' rows, and with all rows.
        signed = model.scale if model.design is None else model.scale @ model.design.T
        signed = signed * model.sign
        self._row_cov = np.hstack([model.cross_cov, signed])
        self.lower = -np.concatenate(
            [model.truncation, model.sign * (self._predictor(model.mu) + model.offset)]
        )

    @property
    def n_rows(self) -> int:
        """Length s + m of u."""
        return self.lower.size

    @cached_property
    def cov(self) -> DenseCovariance:
        """G; not for models without rows."""
        s, model = self._n_latent, self.model
        matrix = np.empty((self.n_rows, self.n_rows))
        matrix[:s, :s] = self._latent_cov
        matrix[s:] = model.sign[:, None] * self._predictor(self._row_cov)
        matrix[:s, s:] = matrix[s:, :s].T
        block = matrix[s:, s:]
        block[:] = symmetric(block)
        block[np.diag_indices_from(block)] += 1.0
        return DenseCovariance(matrix, "the covariance of the observations")

    @cached_property
    def _chol(self) -> FloatArray:
        """Factor of the covariance of f."""
        return linalg.cholesky("scale", symmetric(self.model.scale))[0]

    @cached_property
    def _latent_given(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Of x0 given f: regression on the whitened f, covariance and its factor."""
        half = solve_triangular(self._chol, self.model.cross_cov, lower=True)
        cov = symmetric(self._latent_cov - half.T @ half)
        factor, jitter = linalg.cholesky("the latent covariance given f", cov)
        cov[np.diag_indices_from(cov)] *= 1.0 + jitter
        return half.T, cov, factor

    def is_regular(self) -> bool:
        """Whether the covariances of f and of x0 given f are factorised without jitter."""
        chol, failed = dpotrf(symmetric(self.model.scale), lower=1)
        if failed or not self._n_latent:
            return not failed
        half = solve_triangular(chol, self.model.cross_cov, lower=True, check_finite=False)
        inner = symmetric(self.model.latent_cov) - half.T @ half
        return bool(dpotrf(inner, lower=1)[1] == 0)

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
            Strictly above `lower`.
        exact : bool
            Whether the draw is exact. If not, x0 was picked from weighted draws, because rejection
            found none: right only as the number of those grows.
        """
        s, model = self._n_latent, self.model
        predictor = model.sign * (self._predictor(f) + model.offset)
        noise, _ = draw_truncated(rng.random(predictor.size), -predictor, np.inf)
        latent, exact = self._latent_draw(f, rng)
        u = np.concatenate([latent, self.lower[s:] + (predictor + noise)])
        return np.maximum(u, np.nextafter(self.lower, np.inf)), exact

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
        s, model = self._n_latent, self.model
        k = u.shape[0]
        white = rng.standard_normal((model.mu.size, k))
        f = self._chol @ white
        if self.n_rows:
            gap = u.T.copy()
            if s:
                regression, _, factor = self._latent_given
                gap[:s] -= regression @ white + factor @ rng.standard_normal((s, k))
            # The observations' noise is symmetric: its sign does not matter.
            gap[s:] -= model.sign[:, None] * self._predictor(f)
            gap[s:] += rng.standard_normal((self.n_rows - s, k))
            solved = cho_solve((self.cov.chol, True), gap, overwrite_b=True, check_finite=False)
            f += self._row_cov @ solved
        return model.mu + f.T

    def _predictor(self, f: FloatArray) -> FloatArray:
        """W f."""
        return f if self.model.design is None else self.model.design @ f

    def _latent_draw(self, f: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, bool]:
        if not self._n_latent:
            return np.empty(0), True
        regression, cov, _ = self._latent_given
        white = solve_triangular(
            self._chol, f - self.model.mu, lower=True, check_finite=False, overwrite_b=True
        )
        mean = regression @ white
        lower, upper = self.lower[: self._n_latent], np.full(self._n_latent, np.inf)
        draw = draw_by_rejection(mean, cov, lower, upper, rng)
        if draw is not None:
            return draw, True
        form = DenseCovariance(cov)
        proposal = twist(form, fit_ep(form, lower - mean, upper), lower - mean, upper)
        x, log_weights = proposal.draw(rng.random((proposal.n_dims, _N_RESAMPLED)))
        return mean + x[:, systematic_resample(log_weights, 1, rng)[0]], False
