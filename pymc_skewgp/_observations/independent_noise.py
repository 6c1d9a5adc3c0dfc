"""Values with noise that is not Gaussian: its scale, and moments of new values."""

from typing import Any

import numpy as np

from pymc_skewgp._gaussian.mixture import mixture_moment_errors
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._validation import FloatArray, as_vector


def as_scale(name: str, value: Any, n: int) -> FloatArray:
    """Positive scales of n rows; a number stands for all."""
    scale = as_vector(name, value, n)
    if not (scale > 0).all():
        i = int(np.argmax(~(scale > 0)))
        raise ValueError(f"{name} must be positive; row {i} has {scale[i]:.6g}.")
    return scale


def noisy_summary(mixture: Mixture, variance: float) -> dict[str, FloatArray]:
    """``y_mean`` and ``y_sd`` of f with noise of mean 0, with Monte Carlo errors ``_se``.

    Where the variance is infinite the standard deviation is, without an error.
    """
    mean, sd, _ = mixture.moments
    errors = mixture_moment_errors(
        mixture.means, mixture.variance, mixture.weights, mixture.replicate
    )
    mean_se, sd_se = (np.zeros(mean.size) if mixture.exact else x for x in errors[:2])
    total = np.hypot(sd, np.sqrt(variance))
    return {
        "y_mean": mean,
        "y_sd": total,
        "y_mean_se": mean_se,
        "y_sd_se": sd_se * (sd / np.maximum(total, np.finfo(float).tiny)),
    }
