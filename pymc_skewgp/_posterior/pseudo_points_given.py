"""A SkewGP at its pseudo-points given draws of it at the data."""

import numpy as np

from pymc_skewgp._gaussian.operators.dense import DenseCovariance
from pymc_skewgp._gaussian.samplers.independent import independent_draws
from pymc_skewgp._posterior.function_given import continue_draws
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._validation import FloatArray


def with_pseudo_points(
    prior: Prior, X: FloatArray, f: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    r"""Inputs and draws at the pseudo-points, then at the data.

    Given f there, the data and the signs say nothing more of f elsewhere: it goes on from them as a
    Gaussian process. At the pseudo-points it is the Gaussian process given f at the data,
    restricted to their signs, which is drawn once for each draw.

    Parameters
    ----------
    prior : Prior
    X : ndarray, shape (n, d)
    f : ndarray, shape (S, n)
        Draws at `X`.
    rng : numpy.random.Generator

    Returns
    -------
    points : ndarray, shape (s + n, d)
    values : ndarray, shape (S, s + n)
    """
    s = prior.n_pseudo_points
    if not s:
        return X, f
    points, scale = prior.pseudo_points, prior.scale
    given = continue_draws(prior, X, f, points)
    mean = prior.mean("pseudo_points", points)
    centre = scale * (given.means.T - mean)
    cov = DenseCovariance(scale[:, None] * given.cov * scale, "the covariance at pseudo_points")
    away = [independent_draws(cov, -prior.truncation - c, np.inf, 1, rng)[0] for c in centre]
    signed = centre + np.array(away)
    return np.vstack([points, X]), np.hstack([mean + signed / scale, f])
