"""Rows with noise of their own that are intervals: their log likelihood given f."""

import numpy as np
from scipy.special import log_ndtr

from pymc_skewgp._gaussian.univariate import log_ndtr_interval
from pymc_skewgp._validation import FloatArray


def log_masses(f: FloatArray, lower: FloatArray, upper: FloatArray, sd: FloatArray) -> FloatArray:
    """Log P(lower < f + e < upper), e of deviation `sd`, of f with shape (..., n).

    One row a column: `lower`, `upper` and `sd` have shape (n,).
    """
    below = np.isneginf(lower)
    two = ~below & ~np.isposinf(upper)
    # One limit, as a rule: log Phi, a third of the time that two take.
    side = np.where(below, 1.0, -1.0) / sd
    limit = np.where(below, upper, lower)
    z = side * (np.where(two, 0.0, limit) - f)
    log_mass: FloatArray = log_ndtr(z, out=z)
    if two.any():
        low, high, scale = (x[two] for x in (lower, upper, sd))
        off = f[..., two] / scale
        between = log_ndtr_interval(low / scale - off, high / scale - off, (high - low) / scale)
        log_mass[..., two] = between
    return log_mass
