"""Numbers of trials and of successes, checked."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from pymc_skewgp._observations.arguments import as_integers
from pymc_skewgp._validation import FloatArray

IntegerArray = NDArray[np.int64]


def as_successes(y: ArrayLike, given: Any, n: int) -> IntegerArray:
    """Successes as integers, one a row, none above the number of trials `given`."""
    successes, trials = as_integers(y, n, "number of successes"), as_trials(given, n)
    if (successes < 0).any():
        i = int(np.argmax(successes < 0))
        raise ValueError(f"y must hold counts of 0 and more; row {i} has {successes[i]}.")
    if (trials < successes).any():
        i = int(np.argmax(trials < successes))
        raise ValueError(
            f"y must not exceed the number of trials n: row {i} has {successes[i]} successes "
            f"in {trials[i]} trials ({int((trials < successes).sum())} such row(s))."
        )
    return successes


def as_trials(given: Any, n: int) -> IntegerArray:
    """Trials of n rows; a number stands for all."""
    each = given if np.ndim(given) else np.full(n, given)
    trials = as_integers(each, n, "number of trials", "n")
    if (trials < 0).any():
        raise ValueError(f"n must hold numbers of trials, 0 or more; got {trials.min()}.")
    return trials


def log_choose(n: IntegerArray, k: IntegerArray) -> FloatArray:
    """Log of the binomial coefficient."""
    return np.asarray(gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0))
