"""A Gaussian times one factor of a likelihood: what expectation propagation asks of its factors."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._gaussian.univariate_moments import truncated_moments
from pymc_skewgp._validation import FloatArray

BoolArray = NDArray[np.bool_]


class Tilted(NamedTuple):
    """Moments of N(c_i, v_i) times factor i, each of shape (n,).

    `shift` and `spread` are mean less c_i and variance, in units of the Gaussian's deviation and
    variance. `taken` is 1 - spread where it is known with more digits than that difference has.
    """

    log_mass: FloatArray
    shift: FloatArray
    spread: FloatArray
    taken: FloatArray | None = None


class Factors(Protocol):
    """Factors of a likelihood, one for each row of a Gaussian vector."""

    @property
    def active(self) -> BoolArray:
        """Which of them are not 1, shape (n,)."""
        ...

    def tilted(self, mean: FloatArray, sd: FloatArray) -> Tilted:
        """Moments of N(mean_i, sd_i^2) times factor i."""
        ...

    def residual(self, mean_gap: FloatArray, variance_gap: FloatArray) -> float:
        """How far EP is from its fixed point.

        From the distances of means in deviations, and of log variances, of each tilted density from
        the Gaussian's marginal.
        """
        ...


class Intervals:
    """Factors 1(lower < u < upper)."""

    def __init__(self, lower: FloatArray, upper: FloatArray) -> None:
        self._lower, self._upper = lower, upper
        self.active = np.isfinite(lower) | np.isfinite(upper)

    def tilted(self, mean: FloatArray, sd: FloatArray) -> Tilted:
        """See `Factors`."""
        return Tilted(*truncated_moments((self._lower - mean) / sd, (self._upper - mean) / sd))

    def residual(self, mean_gap: FloatArray, variance_gap: FloatArray) -> float:
        """The largest over the rows."""
        return float((mean_gap + variance_gap)[self.active].max(initial=0.0))


class Joined:
    """Factors of several kinds on the same vector, the rows of each kind one after another."""

    def __init__(self, parts: Sequence[Factors]) -> None:
        self._parts = parts
        self.active = np.concatenate([part.active for part in parts])
        ends = np.cumsum([part.active.size for part in parts])
        self._rows = [slice(end - p.active.size, end) for p, end in zip(parts, ends, strict=True)]

    def tilted(self, mean: FloatArray, sd: FloatArray) -> Tilted:
        """See `Factors`."""
        found = [p.tilted(mean[i], sd[i]) for p, i in zip(self._parts, self._rows, strict=True)]
        known = (moments[:3] for moments in found)
        return Tilted(*(np.concatenate(moments) for moments in zip(*known, strict=True)))

    def residual(self, mean_gap: FloatArray, variance_gap: FloatArray) -> float:
        """The largest over the kinds."""
        pairs = zip(self._parts, self._rows, strict=True)
        return max(part.residual(mean_gap[i], variance_gap[i]) for part, i in pairs)
