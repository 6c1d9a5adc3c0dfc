"""The logistic function: log probabilities with all their digits, and averages over f."""

import numpy as np

from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._observations.probability import NormalParts, Probability, interval_probability
from pymc_skewgp._validation import FloatArray

# Logistic noise is normal with a random standard deviation, twice a variable of Kolmogorov's
# distribution (Andrews & Mallows 1974, Scale mixtures of normal distributions). These are the nodes
# and weights of the Gauss rule for the logarithm of it: the logistic function is their sum of
# normal distribution functions to 1e-9.
_SDS = np.array(
    [
        0.5548478053499108,
        0.6777496876670535,
        0.8228364187501018,
        1.0041473214264671,
        1.236246505662781,
        1.5354389994498454,
        1.9174732126862424,
        2.3929056562185513,
        2.966914693941203,
        3.648127316433865,
        4.461650803276587,
        5.488531415255486,
    ]
)
_SHARES = np.array(
    [
        6.515685897160737e-06,
        0.0006346896509566042,
        0.01105455980537635,
        0.06680358879068217,
        0.1863462002371431,
        0.282582675525386,
        0.25666119491647055,
        0.14306435005320164,
        0.045497712993248694,
        0.006963766499944875,
        0.0003809414074949087,
        3.804434197589465e-06,
    ]
)
LOGISTIC_NOISE = NormalParts(_SDS**2, _SHARES / _SHARES.sum())


def logistic(x: FloatArray) -> FloatArray:
    """1 / (1 + exp(-x)), with all digits of small values."""
    small = np.exp(-np.abs(x))
    return np.where(x > 0, 1.0, small) / (1.0 + small)


def logistic_with_slope(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """`logistic` and its derivative."""
    small = np.exp(-np.abs(x))
    over = 1.0 / (1.0 + small)
    return np.where(x > 0, 1.0, small) * over, small * over**2


def log_logistic(x: FloatArray) -> FloatArray:
    """Log of `logistic`, infinities allowed."""
    return np.minimum(x, 0.0) - np.log1p(np.exp(-np.abs(x)))


def log_odds_power(x: FloatArray, ahead: FloatArray, behind: FloatArray) -> FloatArray:
    r"""Log of :math:`\pi^a (1 - \pi)^b` with the logistic :math:`\pi` of x, a, b >= 0."""
    least = np.log1p(np.exp(-np.abs(x)))
    least *= ahead + behind
    return ahead * np.minimum(x, 0.0) - behind * np.maximum(x, 0.0) - least


def logistic_probability(
    mixture: Mixture, lower: float = 0.0, upper: float = np.inf
) -> Probability:
    r"""Probability that f + e is between two limits, e of the standard logistic distribution.

    With the default limits it is that of a label 1, :math:`\mathrm E\{1 / (1 + e^{-f})\}`.
    """
    return interval_probability(mixture, lower, upper, LOGISTIC_NOISE)
