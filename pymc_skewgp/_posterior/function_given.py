"""A Gaussian process at new points given draws of it at the data."""

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._posterior.latent_marginals import LatentMarginals
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._validation import FloatArray

_JITTER = 1e-6  # as pm.gp adds, so that the draws and their continuation agree


class Continuation(NamedTuple):
    r"""f at t new points given S draws at the data: :math:`N(m_{ij}, v_i)`, jointly of `cov`.

    Attributes
    ----------
    means : ndarray, shape (t, S)
    cov : ndarray, shape (t, t)
    """

    means: FloatArray
    cov: FloatArray

    def marginals(self, replicate: IntArray | None) -> LatentMarginals:
        """Mixtures over the draws; those of one replicate may depend on each other."""
        n = self.means.shape[1]
        variance = np.maximum(self.cov.diagonal(), 0.0)
        return LatentMarginals(self.means, variance, np.full(n, 1.0 / n), replicate)

    def sample(self, rng: np.random.Generator) -> FloatArray:
        """One draw at the new points for each at the data, shape (S, t)."""
        factor = linalg.low_rank_factor(self.cov)
        noise = factor @ rng.standard_normal((factor.shape[1], self.means.shape[1]))
        return np.asarray((self.means + noise).T)


def continue_draws(prior: Prior, X: FloatArray, f: FloatArray, new: FloatArray) -> Continuation:
    r"""GP regression without noise on each draw.

    .. math:: f_* \mid f \sim N\{m_* + K_* K^{-1} (f - m),\; K_{**} - K_* K^{-1} K_*^\top\}

    Parameters
    ----------
    prior : Prior
        Without pseudo-points, whose signs the draws do not tell.
    X, new : ndarray, shape (n, d) and (t, d)
        The data, and new points, whose noise of the kernel is their own.
    f : ndarray, shape (S, n)

    Returns
    -------
    Continuation
    """
    matrix = prior.covariance("X", X)
    matrix[np.diag_indices_from(matrix)] += _JITTER
    chol, _ = linalg.cholesky("the covariance at X", matrix)
    cross = prior.covariance("Xnew", X, new)
    gain = cho_solve((chol, True), cross)
    away = (f - prior.mean("X", X)).T
    cov = prior.covariance("Xnew", new) - cross.T @ gain
    return Continuation(prior.mean("Xnew", new)[:, None] + gain.T @ away, 0.5 * (cov + cov.T))
