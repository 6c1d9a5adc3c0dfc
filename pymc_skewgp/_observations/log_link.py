r"""Data with mean :math:`E_i e^{f(x_i)}`: exposures, counts, and moments of new values.

Given u the mean is lognormal, so that moments of a new value are closed forms.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_skewgp._gaussian.weights import weighted_error
from pymc_skewgp._observations.arguments import as_integers
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._validation import FloatArray, as_vector

# Means above it NumPy does not draw counts of; they do not fit into 64 bits either.
_LARGEST_MEAN = 2.0**62


def as_counts(y: ArrayLike, n: int) -> NDArray[np.int64]:
    """Counts of 0 and more, one a row of X."""
    counts = as_integers(y, n, "count")
    if (counts < 0).any():
        i = int(np.argmax(counts < 0))
        raise ValueError(
            f"y must hold counts of 0 and more; row {i} has {counts[i]} "
            f"({int((counts < 0).sum())} such row(s))."
        )
    return counts


def as_exposure(exposure: Any, n: int) -> FloatArray:
    """Positive exposures of n rows; a number stands for all."""
    each = as_vector("exposure", exposure, n)
    if not (each > 0).all():
        i = int(np.argmax(~(each > 0)))
        raise ValueError(
            f"exposure must be positive; row {i} has {each[i]:.6g} ({int((each <= 0).sum())} such "
            "row(s)): drop rows in which nothing was observed."
        )
    return each


def exposure_of_new(exposure: Any) -> float:
    """That of a new point: the number that stands for all, and 1 where each row has its own."""
    return 1.0 if np.ndim(exposure) else float(exposure)


def mean_of(f: FloatArray, exposure: FloatArray | float) -> FloatArray:
    """Mean of a value; infinite where it is beyond double precision."""
    with np.errstate(over="ignore"):
        return np.asarray(exposure * np.exp(f))


def draw_counts(mean: FloatArray, rng: np.random.Generator) -> NDArray[np.int64]:
    """Poisson counts."""
    return rng.poisson(np.minimum(mean, _LARGEST_MEAN))


def log_link_summary(
    mixture: Mixture, exposure: float = 1.0, *, linear: float = 0.0, square: float = 0.0
) -> dict[str, FloatArray]:
    r"""Mean and standard deviation of a new y with variance :math:`a \mu + b \mu^2` given f.

    With components :math:`N(m_j, v)` of f, :math:`\mu_j = E e^{m_j + v/2}` and weights :math:`w_j`

    .. math::

        \mathrm E\, y = \sum_j w_j \mu_j, \qquad
        \mathrm{var}(y) = a\, \mathrm E\, y + b \sum_j w_j \mu_j^2 e^v
        + \sum_j w_j \{\mu_j^2 (e^v - 1) + (\mu_j - \mathrm E\, y)^2\}

    Parameters
    ----------
    mixture : Mixture
    exposure : float
        E.
    linear, square : float
        a and b.

    Returns
    -------
    dict
        ``y_mean`` and ``y_sd`` with standard errors ``_se``, by the delta method, shape (t,) each.
    """
    weights, v = mixture.weights, mixture.variance[:, None]
    with np.errstate(over="ignore", invalid="ignore"):
        mu = mean_of(mixture.means + 0.5 * v, exposure)
        mean = mu @ weights
        off = mu - mean[:, None]
        spread = mu**2 * (np.expm1(v) + square * np.exp(v)) + off**2
        variance = linear * mean + spread @ weights
        sd = np.sqrt(variance)
        scale = np.where(sd > 0, 2.0 * sd, 1.0)[:, None]
        on_sd = (linear * off + spread - (spread @ weights)[:, None]) / scale
    errors = (weighted_error(x, weights, mixture.replicate) for x in (off, on_sd))
    if mixture.exact:
        errors = (np.zeros(mean.size) for _ in range(2))
    mean_se, sd_se = errors
    return {"y_mean": mean, "y_sd": sd, "y_mean_se": mean_se, "y_sd_se": sd_se}
