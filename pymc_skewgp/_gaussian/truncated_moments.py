"""Moments of a truncated Gaussian: exact in one and two dimensions, from weighted draws in more."""

from dataclasses import dataclass

import numpy as np

from pymc_skewgp._gaussian.bivariate import bivariate_truncated_moments
from pymc_skewgp._gaussian.operators.dense import DenseCovariance
from pymc_skewgp._gaussian.rectangle import twisted_draws
from pymc_skewgp._gaussian.univariate_moments import truncated_moments, truncated_third_moment
from pymc_skewgp._gaussian.weights import normalized_weights
from pymc_skewgp._validation import FloatArray, Seed, as_generator


@dataclass(frozen=True)
class LatentMoments:
    """First three moments of u ~ N(0, Gamma) given u > lower.

    Attributes
    ----------
    mean : ndarray, shape (s,)
    cov : ndarray, shape (s, s)
    tensor : ndarray, shape (s, s, s), or None
        Third central moments, where they are known exactly.
    centred, weights : ndarray, shapes (n_draws, s) and (n_draws,), or None
        Weighted draws less their mean, where they are not.
    """

    mean: FloatArray
    cov: FloatArray
    tensor: FloatArray | None = None
    centred: FloatArray | None = None
    weights: FloatArray | None = None

    def third(self, directions: FloatArray) -> FloatArray:
        """Third central moment of each column of u' directions, shape (p,)."""
        if self.tensor is not None:
            return np.einsum("ijk,ip,jp,kp->p", self.tensor, directions, directions, directions)
        assert self.centred is not None
        assert self.weights is not None
        return self.weights @ (self.centred @ directions) ** 3


def latent_moments(
    cov: FloatArray, lower: FloatArray, n_draws: int, random_seed: Seed
) -> LatentMoments:
    """Moments of N(0, cov) above `lower`."""
    s = lower.size
    if s == 0:
        return LatentMoments(np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0, 0)))
    if s == 1:
        sd = np.sqrt(cov[0, 0])
        bound, top = lower / sd, np.full(1, np.inf)
        _, mean, variance = truncated_moments(bound, top)
        third = truncated_third_moment(bound, top)
        return LatentMoments(
            sd * mean, sd**2 * variance.reshape(1, 1), sd**3 * third.reshape(1, 1, 1)
        )
    if s == 2:
        exact = bivariate_truncated_moments(lower, np.full(2, np.inf), cov)
        return LatentMoments(exact.mean, exact.cov, exact.third)
    result = twisted_draws(
        DenseCovariance(cov, "latent_cov"),
        lower,
        np.inf,
        n_draws,
        as_generator(random_seed),
    )
    weights = normalized_weights(result.log_weights)
    mean = weights @ result.draws
    centred = result.draws - mean
    return LatentMoments(mean, (centred * weights[:, None]).T @ centred, None, centred, weights)
