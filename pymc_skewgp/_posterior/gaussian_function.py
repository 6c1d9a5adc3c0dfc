"""A Gaussian that approximates the posterior of f."""

from typing import NamedTuple

import numpy as np

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._posterior.latent_marginals import LatentMarginals
from pymc_skewgp._validation import FloatArray


class GaussianPosterior(NamedTuple):
    """N(mean, cov) for f at n data and t new points, and an approximate log evidence.

    Attributes
    ----------
    mean : ndarray, shape (n + t,)
    cov : ndarray, shape (n + t, n + t)
    log_evidence : float
    """

    mean: FloatArray
    cov: FloatArray
    log_evidence: float

    def marginals(self) -> LatentMarginals:
        """Its marginals: mixtures of one component each."""
        variance = np.maximum(self.cov.diagonal(), 0.0)  # round-off
        return LatentMarginals(self.mean[:, None], variance, np.ones(1))

    def sample(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draws of f, shape (n_draws, n + t)."""
        factor = linalg.low_rank_factor(self.cov)
        return np.asarray(
            self.mean + rng.standard_normal((n_draws, factor.shape[1])) @ factor.T, dtype=float
        )
