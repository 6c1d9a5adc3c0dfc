r"""Draws of a unified skew-normal vector: spread evenly for means, or independent of each other.

.. math:: z = \mu + C \Gamma^{-1} u + (\Omega - C \Gamma^{-1} C^\top)^{1/2} e, \qquad
    u \sim N(0, \Gamma) \text{ given } u > -\gamma, \quad e \sim N(0, I)
"""

import numpy as np
from scipy.linalg import cho_solve

from pymc_skewgp._gaussian.linalg import cholesky, low_rank_factor
from pymc_skewgp._gaussian.operators.dense import DenseCovariance
from pymc_skewgp._gaussian.rectangle import twisted_draws
from pymc_skewgp._gaussian.samplers.independent import independent_draws
from pymc_skewgp._gaussian.weights import systematic_resample
from pymc_skewgp._sun.contradiction import refuse_contradictory_latent
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray

# Weighted draws to resample from, at least: a few would still be the proposal's.
_LEAST_WEIGHTED = 512


def even_sun_draws(sun: SunParameters, n_draws: int, rng: np.random.Generator) -> FloatArray:
    """Draws whose latent u are spread evenly, shape (n_draws, p): for means over the draws.

    At least four proposals by the twisted sampler for each draw, resampled by weight.
    """
    if not sun.truncation.size:
        return _normal_draws(sun, n_draws, rng)
    refuse_contradictory_latent(sun.latent_cov, sun.truncation)
    latent_cov = DenseCovariance(sun.latent_cov, "latent_cov")
    n_weighted = max(4 * n_draws, _LEAST_WEIGHTED)
    latent = twisted_draws(latent_cov, -sun.truncation, np.inf, n_weighted, rng)
    u = latent.draws[systematic_resample(latent.log_weights, n_draws, rng)]
    return _given_latent(sun, latent_cov, u, rng)


def independent_sun_draws(sun: SunParameters, n_draws: int, rng: np.random.Generator) -> FloatArray:
    """Draws independent of each other, shape (n_draws, p): rows of a data set.

    See `independent_draws` for u.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp import SUN
    >>> from pymc_skewgp._sun.draws import independent_sun_draws
    >>> sun = SUN([0.0, 0.0], np.eye(2), [[0.9], [0.0]], [0.0], [[1.0]])
    >>> independent_sun_draws(sun.parameters, 3, np.random.default_rng(0)).shape
    (3, 2)
    """
    if not sun.truncation.size:
        return _normal_draws(sun, n_draws, rng)
    refuse_contradictory_latent(sun.latent_cov, sun.truncation)
    latent_cov = DenseCovariance(sun.latent_cov, "latent_cov")
    u = independent_draws(latent_cov, -sun.truncation, np.inf, n_draws, rng)
    return _given_latent(sun, latent_cov, u, rng)


def _normal_draws(sun: SunParameters, n_draws: int, rng: np.random.Generator) -> FloatArray:
    noise = rng.standard_normal((n_draws, sun.mu.size))
    return sun.mu + noise @ cholesky("scale", sun.scale)[0].T


def _given_latent(
    sun: SunParameters, latent_cov: DenseCovariance, u: FloatArray, rng: np.random.Generator
) -> FloatArray:
    regression = cho_solve((latent_cov.chol, True), sun.cross_cov.T)
    residual = low_rank_factor(sun.scale - sun.cross_cov @ regression)
    noise = rng.standard_normal((u.shape[0], residual.shape[1]))
    return sun.mu + u @ regression + noise @ residual.T
