"""What a row's own limits hold against its EP site: the normaliser of a step."""

import numpy as np

from pymc_skewgp._gaussian.univariate import log_ndtr_interval
from pymc_skewgp._validation import FloatArray

_LEAST_KEPT = 1e-12  # of a row's precision without its own site, where round-off leaves none


def log_site_ratio(
    centre: FloatArray,
    variance: FloatArray,
    tau: FloatArray,
    nu: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
) -> FloatArray:
    r"""Log of the mean of limits over site under a Gaussian that has the site in it.

    .. math:: \log \int N(w; c, v)\, 1(l < w < h)\, e^{\tau w^2 / 2 - \nu w}\, \mathrm dw

    Parameters
    ----------
    centre, variance : ndarray
        c and v, with :math:`\tau v < 1`.
    tau, nu : ndarray
        The site is :math:`\exp(-\tau w^2 / 2 + \nu w)`.
    lower, upper : ndarray
        Limits of w, infinities allowed. All arguments broadcast together.

    Returns
    -------
    ndarray
    """
    kept = np.maximum(1.0 - tau * variance, _LEAST_KEPT)
    sd = np.sqrt(variance / kept)
    cavity = (centre - nu * variance) / kept
    low, high = (lower - cavity) / sd, (upper - cavity) / sd
    ratio = log_ndtr_interval(low, high, (upper - lower) / sd) - 0.5 * np.log(kept)
    ratio += 0.5 * ((tau * centre - 2.0 * nu) * centre + nu**2 * variance) / kept
    return ratio
