"""Whether the slope of a log probability jumps, as that of double exponential noise does.

There its second derivative has a delta, which values of the second derivative do not show.
"""

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._observations.sites import Slopes
from pymc_skewgp._validation import FloatArray

# Cells of a round; after seven of them the last cell is 4e-9 of the range.
_PARTS = np.linspace(0.0, 1.0, 17)[:, None]
_ROUNDS = 7
_LEAST = 1e-3  # jump that counts, as a share of how much the slope changes over the range


def slope_jumps(slopes: Slopes, eta: FloatArray) -> NDArray[np.bool_]:
    """Of m sites, which have a slope that jumps within the range of predictors, shape (S, m).

    In the cell where the second derivative explains the change of the slope least, again and
    again: of a smooth function it explains all of it in the end.
    """
    low, high = eta.min(axis=0), eta.max(axis=0)
    least: FloatArray | None = None
    for _ in range(_ROUNDS):
        places = low + (high - low) * _PARTS
        first, second = slopes(places)
        with np.errstate(invalid="ignore", over="ignore"):
            explained = 0.5 * (second[1:] + second[:-1]) * np.diff(places, axis=0)
            left = np.abs(np.diff(first, axis=0) - explained)
            left[~np.isfinite(left)] = 0.0
            if least is None:
                least = _LEAST * np.ptp(first, axis=0)
        cell = left.argmax(axis=0)[None]
        jumps: NDArray[np.bool_] = np.take_along_axis(left, cell, axis=0)[0] > least
        if not jumps.any():
            break
        low = np.take_along_axis(places, cell, axis=0)[0]
        high = np.take_along_axis(places, cell + 1, axis=0)[0]
    return jumps
