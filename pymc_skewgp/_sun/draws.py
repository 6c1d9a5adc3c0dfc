"""Independent draws of a unified skew-normal vector."""

import numpy as np
from scipy.linalg import cho_solve

from pymc_skewgp._gaussian.linalg import low_rank_factor
from pymc_skewgp._gaussian.operators.dense import DenseCovariance
from pymc_skewgp._gaussian.samplers.independent import independent_draws
from pymc_skewgp._sun.sun import SUN
from pymc_skewgp._validation import FloatArray


def independent_sun_draws(sun: SUN, n_draws: int, rng: np.random.Generator) -> FloatArray:
    r"""Draws of a unified skew-normal vector, independent of each other.

    .. math:: z = \mu + C \Gamma^{-1} u + (\Omega - C \Gamma^{-1} C^\top)^{1/2} e, \qquad
        u \sim N(0, \Gamma) \text{ given } u > -\gamma, \quad e \sim N(0, I)

    `SUN.sample` spreads the latent draws u evenly, which serves means over the draws; rows of a
    data set have to be independent. See `independent_draws` for u.

    Parameters
    ----------
    sun : SUN
        The distribution.
    n_draws : int
        Draws wanted.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    ndarray, shape (n_draws, p)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp import SUN
    >>> from pymc_skewgp._sun.draws import independent_sun_draws
    >>> sun = SUN([0.0, 0.0], np.eye(2), [[0.9], [0.0]], [0.0], [[1.0]])
    >>> independent_sun_draws(sun, 3, np.random.default_rng(0)).shape
    (3, 2)
    """
    if sun.n_latent == 0:
        return sun.sample(n_draws, rng)
    sun.refuse_contradiction()
    latent = DenseCovariance(sun.latent_cov, "latent_cov")
    u = independent_draws(latent, -sun.truncation, np.inf, n_draws, rng)
    regression = cho_solve((latent.chol, True), sun.cross_cov.T)
    residual = low_rank_factor(sun.scale - sun.cross_cov @ regression)
    noise = rng.standard_normal((n_draws, residual.shape[1]))
    return sun.mu + u @ regression + noise @ residual.T
