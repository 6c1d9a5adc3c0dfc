"""Random batches of labelled data."""

import numpy as np

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray


def random_batches(sign: FloatArray, size: int, rng: np.random.Generator) -> list[IntArray]:
    """A random partition into batches of `size` labels or a few less, as equal as can be.

    Each has its share of both classes, as far as there are enough of them: a batch of one class
    alone says nothing of the boundary between them.

    Parameters
    ----------
    sign : ndarray, shape (n,)
        Labels as +-1.
    size : int
    rng : numpy.random.Generator

    Returns
    -------
    list of ndarray of int
        Indices of the rows of each batch.
    """
    n_batches = -(-sign.size // size)
    order = np.argsort(sign + rng.uniform(-0.5, 0.5, sign.size), kind="stable")
    # Dealt out in turn, the negative labels first.
    return [np.sort(order[start::n_batches]) for start in range(n_batches)]
