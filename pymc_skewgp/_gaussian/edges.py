"""A normal distribution at the limits that truncate it: what derivatives in them are made of."""

from typing import NamedTuple, Self

import numpy as np

from pymc_skewgp._gaussian.univariate import edge_densities
from pymc_skewgp._validation import FloatArray


class Edges(NamedTuple):
    """N(mean, sd^2) at the limits: densities over the mass between them, 0 at infinite ones."""

    lower: FloatArray
    upper: FloatArray
    spread: FloatArray  # a phi(a) - b phi(b) over the mass, a and b the standardised limits

    @classmethod
    def of(
        cls, lower: FloatArray, upper: FloatArray, mean: FloatArray | float, sd: FloatArray
    ) -> Self:
        """Of each row; `lower` and `upper` broadcast against `mean` and `sd`."""
        a, b = (lower - mean) / sd, (upper - mean) / sd
        at_a, at_b = edge_densities(a, b)
        at_low, at_high = (np.where(np.isfinite(x), x, 0.0) for x in (a, b))
        spread = at_low * at_a - at_high * at_b
        return cls(at_a / sd, at_b / sd, spread)
