"""Densities of mixtures of rows with the indicators summed or integrated out, by brute force."""

import numpy as np
from scipy.special import logsumexp
from scipy.stats import norm

from pymc_skewgp._gaussian.univariate import log_ndtr_interval
from pymc_skewgp._mcmc.augmentation import Lapses, Rows

# A trapezoid rule over log z: integrands here are analytic and below 1e-12 at both ends.
LOG_Z = np.linspace(-40.0, 40.0, 4001)


def rows_about(observed, eta, where=slice(None)):
    """Some of the observations as rows about the predictor `eta` of all."""
    centre = eta[where]
    rows = observed.lower[where], observed.upper[where], observed.value[where]
    variance = observed.variances[where].copy()
    return Rows(np.zeros(centre.size), variance, *(x - centre for x in rows))


def log_density(rows):
    """Of each row: a point, or an interval."""
    sd = np.sqrt(rows.variance)
    inside = log_ndtr_interval((rows.lower - rows.offset) / sd, (rows.upper - rows.offset) / sd)
    return np.where(
        np.isnan(rows.value), inside, norm.logpdf(np.nan_to_num(rows.value), rows.offset, sd)
    )


def log_marginal(mixture, rows):
    """Of each row, its indicator integrated out."""
    size = rows.offset.size
    lapses = isinstance(mixture, Lapses)
    terms = []
    for z in [0.0, 1.0] if lapses else np.exp(LOG_Z):
        same = np.full(size, z)
        jacobian = 0.0 if lapses else np.log(z * (LOG_Z[1] - LOG_Z[0]))
        terms.append(log_density(mixture.given(rows, same)) + mixture.log_density(same) + jacobian)
    return logsumexp(terms, axis=0)
