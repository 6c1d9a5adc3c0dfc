"""Density of a normal vector at a point together with the probability of a latent orthant.

The numerator of the unified skew-normal density, with its gradient: one factorisation serves both.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dtrtrs

from pymc_skewgp._gaussian.linalg import symmetric
from pymc_skewgp._gaussian.log_prob_gradient import LogProbMethod, log_prob_and_gradient
from pymc_skewgp._threads import few_blas_threads
from pymc_skewgp._validation import FloatArray

_LOG_2PI = np.log(2.0 * np.pi)


class DensityAndOrthant(NamedTuple):
    """Log density with orthant, and its derivatives.

    Attributes
    ----------
    value : float
    offset : ndarray, shape (p,)
    scale : ndarray, shape (p, p)
        Symmetric: d value = sum_ij scale_ij dscale_ij; so is `latent_cov`.
    cross_cov : ndarray, shape (p, s)
    limits : ndarray, shape (s,)
    latent_cov : ndarray, shape (s, s)
    """

    value: float
    offset: FloatArray
    scale: FloatArray
    cross_cov: FloatArray
    limits: FloatArray
    latent_cov: FloatArray


def density_and_orthant(
    offset: FloatArray,
    scale: FloatArray,
    cross_cov: FloatArray,
    limits: FloatArray,
    latent_cov: FloatArray,
    *,
    method: LogProbMethod = "twisted",
    n_draws: int = 256,
    random_seed: int = 0,
) -> DensityAndOrthant:
    r"""Log density of x_1 at a point, times the probability that x_0 < limits, with gradient.

    .. math::

        \begin{pmatrix} x_0 \\ x_1 \end{pmatrix} \sim N\left(0,
        \begin{pmatrix} \Gamma & -C^\top \\ -C & \Omega \end{pmatrix}\right), \qquad
        \log N(d; 0, \Omega) + \log \Phi_s(\gamma + C^\top\alpha;\, \Gamma - C^\top A),

    with :math:`\alpha = \Omega^{-1} d`, :math:`A = \Omega^{-1} C`. With a and B the derivatives of
    :math:`\log\Phi_s` in its limits and its covariance, those of the sum are
    :math:`A a - \alpha` in d, a and B in :math:`\gamma` and :math:`\Gamma`,
    :math:`\alpha a^\top - 2 A B` in C and

    .. math:: \tfrac12(\alpha\alpha^\top - \Omega^{-1} - A a \alpha^\top - \alpha a^\top A^\top)
        + A B A^\top \quad\text{in } \Omega.

    Parameters
    ----------
    offset : ndarray, shape (p,)
        d.
    scale : ndarray, shape (p, p)
        Omega, of which the symmetric part is read, as of `latent_cov`.
    cross_cov : ndarray, shape (p, s)
        C; s may be 0.
    limits : ndarray, shape (s,)
        gamma.
    latent_cov : ndarray, shape (s, s)
        Gamma.
    method, n_draws, random_seed
        As for `log_prob_and_gradient`.

    Returns
    -------
    DensityAndOrthant
        Minus infinity, with gradient 0, where something is not a number or a covariance not
        positive definite.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp._gaussian.density_and_orthant import density_and_orthant
    >>> one = np.eye(1)
    >>> result = density_and_orthant(np.zeros(1), one, 0.5 * one, np.zeros(1), one)
    >>> print(f"{result.value:.4f}")  # log phi(0) + log 1/2
    -1.6121
    """
    p, s = cross_cov.shape
    nothing = DensityAndOrthant(
        -np.inf, np.zeros(p), np.zeros((p, p)), np.zeros((p, s)), np.zeros(s), np.zeros((s, s))
    )
    with np.errstate(over="ignore", invalid="ignore"), few_blas_threads(p):
        inputs = (offset, scale, cross_cov, limits, latent_cov)
        if not all(np.isfinite(x).all() for x in inputs):
            return nothing
        chol, info = dpotrf(symmetric(scale), lower=1, clean=1)
        if info != 0:
            return nothing
        # Products of halves, L^-1 d and L^-1 C, keep digits that those of d with alpha would lose.
        white, _ = dtrtrs(chol, offset, lower=1)
        half, _ = dtrtrs(chol, cross_cov, lower=1) if s else (cross_cov, 0)
        orthant = log_prob_and_gradient(
            -np.inf,
            limits + half.T @ white,
            latent_cov - half.T @ half,
            method=method,
            n_draws=n_draws,
            random_seed=random_seed,
        )
        if orthant.value == -np.inf:
            return nothing
        normal = -0.5 * (white @ white + p * _LOG_2PI) - np.log(chol.diagonal()).sum()
        alpha, _ = dtrtrs(chol, white, lower=1, trans=1)
        pull, _ = dtrtrs(chol, half, lower=1, trans=1) if s else (cross_cov, 0)
        inverse, _ = dpotri(chol, lower=1)
        precision = np.tril(inverse) + np.tril(inverse, -1).T
        a, b = orthant.upper, orthant.cov
        by_a, by_b = pull @ a, pull @ b
        # (alpha alpha' - A a alpha' - alpha a'A') / 2, as one product of two vectors.
        outer = symmetric(np.outer(alpha, 0.5 * alpha - by_a))
        result = DensityAndOrthant(
            float(normal + orthant.value),
            by_a - alpha,
            outer - 0.5 * precision + by_b @ pull.T,
            np.outer(alpha, a) - 2.0 * by_b,
            a,
            b,
        )
    return result if all(np.isfinite(x).all() for x in result) else nothing
