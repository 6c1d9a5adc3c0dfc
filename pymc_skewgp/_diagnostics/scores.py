"""Scores of probabilities for binary labels."""

import numpy as np
from scipy.special import entr, xlogy

from pymc_skewgp._validation import FloatArray

# A label missed with certainty costs 40 bits, not infinitely many.
SMALLEST_PROBABILITY = 1e-12


def information_score(labels: FloatArray, p: FloatArray, base_rate: float) -> float:
    r"""Bits that a label gives away less than under the base rate, on average.

    .. math:: \frac1n \sum_i \{y_i \log_2 p_i + (1 - y_i) \log_2 (1 - p_i)\} + H(\pi)

    with the entropy H of the share :math:`\pi` of 1 among the labels that were learnt from: 0 for
    a forecast of that share, H (1 for even classes) for a perfect one, negative for a forecast
    that knows less than nothing (Kuss & Rasmussen 2005, Journal of Machine Learning Research 6,
    1679-1704).

    Parameters
    ----------
    labels : ndarray, shape (n,)
        0 and 1.
    p : ndarray, shape (n,)
        Forecast probabilities of 1, kept 1e-12 off 0 and 1.
    base_rate : float

    Returns
    -------
    float
        In bits.
    """
    p = np.clip(p, SMALLEST_PROBABILITY, 1.0 - SMALLEST_PROBABILITY)
    entropy = entr(base_rate) + entr(1.0 - base_rate)
    return float((np.mean(xlogy(labels, p) + xlogy(1.0 - labels, 1.0 - p)) + entropy) / np.log(2))


def brier_score(labels: FloatArray, p: FloatArray) -> float:
    """Mean squared difference of label and forecast (Brier 1950): 0 is best, .25 a coin toss."""
    return float(np.mean((labels - p) ** 2))
