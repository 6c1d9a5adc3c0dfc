"""Models of the latent vector that the tests of the Markov chains share."""

import numpy as np
from scipy.stats import multivariate_normal, norm

from pymc_skewgp._mcmc.augmentation import ConjugateModel
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._sun.parameters import SunParameters

# A process at six inputs, f > 0 or f < 0 known up to a truncation at up to two knots.
X = np.array([-1.6, -0.7, -0.1, 0.4, 1.1, 1.9])
KNOTS, PHASE, TRUNCATION = np.array([-0.5, 0.6]), np.array([1.0, -1.0]), np.array([0.2, 0.6])
NO_ROWS = Observations(None, *(np.zeros(0) for _ in range(5)))


def label_rows(A, a, sign):
    """Rows of labels +-1 as intervals, with noise of variance 1."""
    lower, upper = np.where(sign > 0, 0.0, -np.inf), np.where(sign > 0, np.inf, 0.0)
    return Observations(A, a, np.ones(sign.size), lower, upper, np.full(sign.size, np.nan))


def labelled(prior, A, a, sign):
    """A SUN vector, given by its five parameters, under labels."""
    return ConjugateModel(SunParameters(*prior), label_rows(A, a, np.asarray(sign)))


def normal_prior(mu, scale):
    """No latent variables."""
    mu = np.asarray(mu, dtype=float)
    return SunParameters(mu, scale, np.zeros((mu.size, 0)), np.zeros(0), np.zeros((0, 0)))


def rbf(a, b, theta):
    """Hyperparameters are the logarithms of lengthscale and variance, and those of the mean."""
    return np.exp(theta[1] - 0.5 * ((a[:, None] - b) * np.exp(-theta[0])) ** 2)


def prior_at(mu, theta, s, x=X):
    """The process at x with mean `mu` and `s` pseudo-points."""
    to_unit = PHASE[:s] * np.exp(-0.5 * theta[1])
    return SunParameters(
        mu,
        rbf(x, x, theta) + 1e-4 * np.eye(x.size),
        rbf(x, KNOTS[:s], theta) * to_unit,
        TRUNCATION[:s],
        to_unit[:, None] * rbf(KNOTS[:s], KNOTS[:s], theta) * to_unit,
    )


def draw_prior(prior, n, rng):
    """Exact draws of f: Gaussian pairs (x0, f), kept where x0 > -truncation."""
    joint = np.block([[prior.latent_cov, prior.cross_cov.T], [prior.cross_cov, prior.scale]])
    root = np.linalg.cholesky(joint + 1e-12 * np.eye(len(joint)))
    pairs = rng.standard_normal((30 * n + 100, len(joint))) @ root.T
    s = prior.truncation.size
    return prior.mu + pairs[(pairs[:, :s] > -prior.truncation).all(axis=1), s:][:n]


class Density:
    """Of normal hyperparameters: the model at them, log p and the normaliser of f's own density."""

    def __init__(self, model_at, centre, spread):
        self.model_at, self.centre, self.spread = model_at, centre, spread

    def __call__(self, theta):
        model = self.model_at(theta)
        log_p = float(norm.logpdf(theta, self.centre, self.spread).sum())
        prior = model.prior
        if prior.truncation.size:
            log_p -= float(multivariate_normal.logcdf(prior.truncation, cov=prior.latent_cov))
        return model, log_p
