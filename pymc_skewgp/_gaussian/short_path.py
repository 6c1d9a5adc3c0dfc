"""An order of points in which each is near to the last: where an iteration begins from the last."""

import numpy as np

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray

# Points in one path: the time goes with their square.
_TOGETHER = 2048


def short_path(x: FloatArray) -> IntArray:
    """From each of the rows of `x` to the nearest one left, in units of the columns' spread.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp._gaussian.short_path import short_path
    >>> short_path(np.array([[0.0], [3.0], [1.0], [2.1]])).tolist()
    [0, 2, 3, 1]
    """
    spread = x.std(axis=0)
    scaled = x / np.where(spread > 0, spread, 1.0)
    parts = range(0, len(x), _TOGETHER)
    return np.concatenate(
        [start + _path(scaled[start : start + _TOGETHER]) for start in parts]
        or [np.zeros(0, dtype=np.intp)]
    )


def _path(x: FloatArray) -> IntArray:
    order = np.zeros(len(x), dtype=np.intp)
    away = np.zeros(len(x))
    for k in range(1, len(x)):
        away[order[k - 1]] = np.inf
        order[k] = np.argmin(np.square(x - x[order[k - 1]]).sum(axis=1) + away)
    return order
