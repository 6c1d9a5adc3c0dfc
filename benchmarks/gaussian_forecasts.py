"""Forecasts by expectation propagation and Laplace's method at the hyperparameters of a posterior.

What differs from the exact forecast is then the approximation alone.
"""

import time

import numpy as np

from pymc_skewgp._diagnostics.approximations import ep_posterior, laplace_posterior
from pymc_skewgp._gaussian.linalg import low_rank_factor
from pymc_skewgp._observations.probability import win_probabilities
from pymc_skewgp._posterior.output import LatentMarginals

METHODS = {"EP": ep_posterior, "Laplace": laplace_posterior}
SEED = 8927


def at_new_points(posterior, data, new, method):
    """Mean and covariance of f, all functions, at new points."""
    X, y = data
    found = METHODS[method](posterior.prior, X, y, new, posterior.likelihood)
    start = len(found.mean) - len(new) * posterior.likelihood.n_functions(y)
    return found.mean[start:], found.cov[start:, start:]


def summaries(posterior, data, new, methods=("EP", "Laplace")):
    """What a likelihood of one function predicts: by method, the summary and CPU seconds."""
    result = {}
    for method in methods:
        started = time.process_time()
        mean, cov = at_new_points(posterior, data, new, method)
        one = LatentMarginals(mean[:, None], np.maximum(cov.diagonal(), 0), np.ones(1), exact=True)
        summary = posterior.likelihood.predictive_summary(one)
        result[method] = summary, time.process_time() - started
    return result


def largest_by_ep(posterior, data, new, k, draws=1000):
    """P(value c of each k is the largest), noise 1: choices and classes, by EP; CPU seconds."""
    started = time.process_time()
    mean, cov = at_new_points(posterior, data, new, "EP")
    factor = low_rank_factor(cov)
    rng = np.random.default_rng(SEED)
    f = mean + rng.standard_normal((draws, factor.shape[1])) @ factor.T
    p = win_probabilities(f.reshape(draws, -1, k)).mean(axis=0)
    return p, time.process_time() - started
