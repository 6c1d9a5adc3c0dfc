r"""Sums over many rows of few coordinates in JAX: products in float32, sums in float64.

Most of the time for many rows under a prior of finite rank goes into two sums over the rows, of
expectation propagation's sites and of log weights. These are they for devices on which products in
float32 are fast. A product :math:`F c` in float32 is wrong by some :math:`10^{-7}` a row, at
random, which hardly matters; a sum of :math:`10^5` log probabilities in float32 is wrong by nats.

No other module imports this one, or JAX with it. It is an experiment: `SkewGP.posterior` does not
use it.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr
from numpy.typing import ArrayLike

from pymc_skewgp._validation import FloatArray

__all__ = ["pair_log_probs", "site_sums"]

# Rows at a time: within them products add up in float32, beyond them in float64.
_ROWS = 1024
# Without it devices take products of ten bits.
_product = partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)


def site_sums(factor: ArrayLike, tau: ArrayLike, nu: ArrayLike) -> tuple[FloatArray, FloatArray]:
    r"""Sums of expectation propagation's sites over the rows of a block.

    .. math:: F^\top \mathrm{diag}(\tau)\, F, \qquad F^\top \nu

    Parameters
    ----------
    factor : array_like, shape (n, r)
        F, of which float32 is read. An array of JAX stays on its device.
    tau, nu : array_like, shape (n,)
        Precisions, at least 0, and precisions times means.

    Returns
    -------
    gram : ndarray, shape (r, r)
    pull : ndarray, shape (r,)
        Both float64.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp.jax_rows import site_sums
    >>> gram, pull = site_sums(np.ones((3, 2)), [1.0, 2.0, 3.0], [0.0, 1.0, 1.0])
    >>> gram.tolist(), pull.tolist()
    ([[6.0, 6.0], [6.0, 6.0]], [2.0, 2.0])
    """
    with jax.enable_x64(True):
        rows = _single(factor), jnp.sqrt(jnp.asarray(tau, dtype="float64")), _double(nu)
        gram, pull = _summed(_sums_of_some, rows, ())
        return np.asarray(gram), np.asarray(pull)


def pair_log_probs(
    factor: ArrayLike, slope: ArrayLike, limit: ArrayLike, centre: ArrayLike, off: ArrayLike
) -> FloatArray:
    r"""Log likelihood of labels under a probit link, at mirrored pairs of coordinates.

    .. math:: \sum_{i=1}^n \log \Phi[s_i \{F_i (c \pm x_j) - l_i\}], \qquad j = 1, \ldots, N

    Parameters
    ----------
    factor : array_like, shape (n, r)
        F, of which float32 is read. An array of JAX stays on its device.
    slope, limit : array_like, shape (n,)
        s, +1 or -1 over the standard deviation of the row's noise, and l, 0 less the mean of f.
    centre : array_like, shape (r,)
        c.
    off : array_like, shape (r, N)
        x, as columns.

    Returns
    -------
    ndarray, shape (2, N)
        Float64: of c + x, then of c - x.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp.jax_rows import pair_log_probs
    >>> F, zero = np.ones((4, 1)), np.zeros(4)
    >>> pair_log_probs(F, np.ones(4), zero, [0.0], [[0.0, 1.0]]).round(4).tolist()
    [[-2.7726, -0.691], [-2.7726, -7.3641]]
    """
    with jax.enable_x64(True):
        rows = _single(factor), _double(slope), _double(limit)
        found = _summed(_log_probs_of_some, rows, (_double(centre), _single(off)))
        return np.asarray(jnp.stack(found))


def _single(value: ArrayLike) -> jax.Array:
    return jnp.asarray(value, dtype="float32")


def _double(value: ArrayLike) -> jax.Array:
    return jnp.asarray(value, dtype="float64")


def _sums_of_some(factor: jax.Array, root: jax.Array, nu: jax.Array) -> tuple[jax.Array, ...]:
    half = factor * root.astype("float32")[:, None]
    gram = _product(half.T, half).astype("float64")
    return gram, _product(factor.T, nu.astype("float32")).astype("float64")


def _log_probs_of_some(
    factor: jax.Array, slope: jax.Array, limit: jax.Array, centre: jax.Array, off: jax.Array
) -> tuple[jax.Array, ...]:
    # What all pairs share would be wrong for all of them: it is a small product, in float64.
    middle = (slope * (_product(factor.astype("float64"), centre) - limit)).astype("float32")
    step = slope.astype("float32")[:, None] * _product(factor, off)
    plus, minus = log_ndtr(middle[:, None] + step), log_ndtr(middle[:, None] - step)
    return plus.sum(axis=0, dtype="float64"), minus.sum(axis=0, dtype="float64")


@partial(jax.jit, static_argnums=0)
def _summed(of_some: Any, rows: tuple[jax.Array, ...], others: tuple[jax.Array, ...]) -> Any:
    """The sums that `of_some` rows have, over all rows, some at a time."""
    n = rows[0].shape[0]
    whole = n - n % _ROWS
    total = of_some(*(x[whole:] for x in rows), *others)

    def add(total: Any, block: Any) -> Any:
        found = of_some(*block, *others)
        return tuple(a + b for a, b in zip(total, found, strict=True)), None

    blocks = tuple(x[:whole].reshape(-1, _ROWS, *x.shape[1:]) for x in rows)
    return jax.lax.scan(add, total, blocks)[0]
