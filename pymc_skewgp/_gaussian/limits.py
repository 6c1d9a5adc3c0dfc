"""Limits of a rectangle, one lower and one upper a row."""

import numpy as np
from numpy.typing import ArrayLike

from pymc_skewgp._validation import FloatArray


def row_limits(lower: ArrayLike, upper: ArrayLike, n_rows: int) -> tuple[FloatArray, FloatArray]:
    """Lower and upper limits as arrays of length `n_rows`; a number stands for all rows."""
    low, high = (np.asarray(x, dtype=np.float64) for x in (lower, upper))
    return (
        low if low.ndim else np.full(n_rows, low),
        high if high.ndim else np.full(n_rows, high),
    )
