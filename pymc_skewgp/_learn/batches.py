"""Random batches of labelled data."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._gaussian.weights import IntArray


def random_batches(labels: NDArray[Any], size: int, rng: np.random.Generator) -> list[IntArray]:
    """A random partition into batches of `size` labels or a few less, as equal as can be.

    Each has its share of both classes, as far as there are enough of them: a batch of one class
    alone says nothing of the boundary between them.

    Parameters
    ----------
    labels : ndarray, shape (n,)
        0 and 1, or booleans.
    size : int
    rng : numpy.random.Generator

    Returns
    -------
    list of ndarray of int
        Indices of the rows of each batch.
    """
    n_batches = -(-labels.size // size)
    order = np.argsort(labels + rng.uniform(-0.5, 0.5, labels.size), kind="stable")
    # Dealt out in turn, the negative labels first.
    return [np.sort(order[start::n_batches]) for start in range(n_batches)]
