r"""Noisy values of items, and which of them were larger: what comparisons are made of.

The noisy value ("utility") of an item is :math:`v = f(x) + e`. A comparison says that one is above
another; comparisons of one observation share the noise of the values that they compare:

.. math:: S = \sigma^2 W W^\top,

with a row of W for each comparison, 1 at the value above and -1 at the one below.

References
----------
.. [1] L. L. Thurstone (1927), A law of comparative judgment, doi:10.1037/h0070288.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.likelihood import Data
from pymc_skewgp._observations.observations import Observations, intervals
from pymc_skewgp._validation import FloatArray, as_positive, refuse_masked, refuse_other_kinds

NOBODY = -1  # in place of an item, where an observation has fewer than others


def as_integers(name: str, value: ArrayLike) -> IntArray:
    """`value` as a new array of integers, shape (n, k)."""
    refuse_masked(name, value)
    try:
        array = np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise ValueError(
            f"{name} must have rows of one length, filled up with {NOBODY}: {error}."
        ) from error
    refuse_other_kinds(name, array)
    if array.ndim != 2 or array.shape[0] == 0:
        raise ValueError(
            f"{name} must have shape (n, k), a row of item numbers for each observation; got "
            f"{array.shape}."
        )
    with np.errstate(invalid="ignore"):
        whole = array.astype(np.intp)
    if array.dtype.kind not in "iub" and not (array == whole).all():
        raise ValueError(f"{name} must hold whole numbers, the rows of X that are compared.")
    return whole


def as_items(name: str, value: ArrayLike, n: int, *, least: int, kind: str) -> IntArray:
    """Rows of different items among `n`, at least so many, the rest `NOBODY` at the end of a row.

    `kind` is what a row is called in messages.
    """
    items = as_integers(name, value)
    there = items != NOBODY
    unknown = there & ((items < 0) | (items >= n))
    if unknown.any():
        i, j = np.argwhere(unknown)[0]
        raise ValueError(
            f"{name} names item {items[i, j]} in row {i}, and X has the {n} items 0 to {n - 1}."
        )
    gap = there[:, 1:] & ~there[:, :-1]
    if gap.any():
        raise ValueError(
            f"{NOBODY} must fill up the end of a row of {name}; row {np.argmax(gap.any(axis=1))} "
            "goes on after it."
        )
    few = there.sum(axis=1) < least
    if few.any():
        i = int(np.argmax(few))
        raise ValueError(
            f"{kind} needs at least {least} items; row {i} of {name} has {there[i].sum()}: drop it."
        )
    ordered = np.sort(np.where(there, items, n + np.arange(items.shape[1])), axis=1)
    same = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    if same.any():
        i = int(np.argmax(same))
        raise ValueError(
            f"{kind} compares different items; row {i} of {name} repeats one: {items[i].tolist()}."
        )
    return items


def as_number(name: str, value: Any, *, or_zero: bool = False) -> float:
    """A parameter as one number, positive or perhaps 0."""
    single = value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
    return as_positive(name, single, or_zero=or_zero)


def differences(above: IntArray, below: IntArray, size: int) -> Any:
    """Sparse rows with 1 at one of `size` values and -1 at another."""
    n_rows = above.size
    row = np.tile(np.arange(n_rows), 2)
    entries = np.repeat([1.0, -1.0], n_rows)
    return sparse.csr_array((entries, (row, np.concatenate([above, below]))), shape=(n_rows, size))


def larger(
    above: IntArray, below: IntArray, items: NDArray[np.intp], n: int, sigma: float
) -> Observations:
    """Rows that say that noisy values are above others, each with noise of its own.

    Parameters
    ----------
    above, below : ndarray of int, shape (m,)
        Among the noisy values.
    items : ndarray of int, shape (q,)
        Which of `n` items each noisy value is of.
    sigma : float
        Standard deviation of the noise of a value.
    """
    W = differences(above, below, items.size)
    zeros = np.zeros(above.size)
    return intervals(
        zeros, zeros + np.inf, (sigma**2 * W) @ W.T, A=differences(items[above], items[below], n)
    )


def value_at(f: FloatArray, items: IntArray) -> FloatArray:
    """F of items, shape (..., n, k); minus infinity for `NOBODY`."""
    found: FloatArray = f[..., items]
    found[..., items == NOBODY] = -np.inf
    return found


def joined_items(old: Data, new: Data) -> Data:
    """Rows of both, filled up to one length with `NOBODY`."""
    width = max(old.shape[1], new.shape[1])
    both = [
        np.pad(y, ((0, 0), (0, width - y.shape[1])), constant_values=NOBODY) for y in (old, new)
    ]
    return np.concatenate(both)
