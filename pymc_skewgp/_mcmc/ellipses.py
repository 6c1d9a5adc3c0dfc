"""Elliptical slice sampling (Murray, Adams & MacKay 2010, arXiv:1001.0175)."""

from collections.abc import Callable

import numpy as np

from pymc_skewgp._validation import FloatArray

_SHRINKAGES = 100


def elliptical_slice(
    c: FloatArray, log_density: Callable[[FloatArray], FloatArray], rng: np.random.Generator
) -> FloatArray:
    """A move that leaves N(0, I) times a density of columns c invariant."""
    level = float(log_density(c[:, None])[0]) - rng.exponential()
    other = rng.standard_normal(c.size)
    angle = rng.uniform(0.0, 2.0 * np.pi)
    low, high = angle - 2.0 * np.pi, angle
    for _ in range(_SHRINKAGES):
        new: FloatArray = np.cos(angle) * c + np.sin(angle) * other
        if float(log_density(new[:, None])[0]) > level:
            return new
        if angle < 0.0:
            low = angle
        else:
            high = angle
        angle = rng.uniform(low, high)
    return c
