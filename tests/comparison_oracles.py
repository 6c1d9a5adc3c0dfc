"""Comparisons of values of a Gaussian vector, by trapezoid rules over the vector and over noise."""

from collections.abc import Callable

import numpy as np
from likelihood_oracles import FunctionGrid, function_grid
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

FloatArray = NDArray[np.float64]


def latent_posterior(
    cov: ArrayLike,
    probability: Callable[[FloatArray], FloatArray],
    sign: Callable[[FloatArray], FloatArray] | None = None,
    step: float = 0.5,
) -> FunctionGrid:
    """f ~ N(0, cov), perhaps with `one_sign`, and `probability` of the data, (n, q) to (n,).

    Whitened f runs from -6.5 to 6.5. For noise that is not small the rule converges exponentially.
    """
    cov = np.asarray(cov, dtype=float)

    def log_likelihood(f: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            log_p = np.log(probability(f))
        return log_p if sign is None else log_p + sign(f)

    return function_grid(np.zeros(len(cov)), cov, log_likelihood, round(13 / step) + 1, 6.5)


# Steps of half a deviation leave exp(-79) of integrands as wide as the density.
NOISE = np.arange(-8.0, 8.01, 0.5)
DENSITY = np.exp(-0.5 * NOISE**2) * 0.5 / np.sqrt(2 * np.pi)


def chosen(ahead: FloatArray) -> FloatArray:
    """P(f_c + e_c > f_j + e_j for all j), from f_c - f_j over the noise's sd, (n, k - 1)."""
    return sum(w * ndtr(ahead + z).prod(axis=1) for z, w in zip(NOISE, DENSITY, strict=True))  # type: ignore[return-value]


def ranked(first: FloatArray, second: FloatArray) -> FloatArray:
    """P(v_1 > v_2 > v_3) from the two gaps of f over the noise's sd, by v_2's noise."""
    return sum(w * ndtr(first - z) * ndtr(second + z) for z, w in zip(NOISE, DENSITY, strict=True))  # type: ignore[return-value]


def log_ranked(values: FloatArray) -> float:
    """Log P(v_1 > ... > v_k) for one f over the noise's sd: nested integrals of logarithms.

    In each panel of a fine grid the integrand is taken as the exponential of a line; what that
    leaves, of second order in the step, is taken out by two steps.
    """
    fine, coarse = (_nested(np.asarray(values, dtype=float), h) for h in (0.005, 0.01))
    return fine + (fine - coarse) / 3.0


def _nested(values: FloatArray, step: float) -> float:
    x = np.arange(values.min() - 12.0, values.max() + 9.0, step)
    log_below = np.zeros(x.size)
    for value in values[::-1]:
        log_density = log_below - 0.5 * (x - value) ** 2 - 0.5 * np.log(2 * np.pi)
        rise = np.diff(log_density)
        steep = np.abs(rise) > 1e-6
        mean = np.where(steep, np.expm1(rise) / np.where(steep, rise, 1.0), 1.0 + rise / 2)
        integral = np.logaddexp.accumulate(log_density[:-1] + np.log(mean * step))
        log_below = np.concatenate([[integral[0] - 50.0], integral])
    return float(log_below[-1])
