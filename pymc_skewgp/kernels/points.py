"""Point sets in the unit cube: independent randomisations of quasi-Monte Carlo points."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp.kernels.validation import FloatArray

# Dimensions that get scrambled Sobol points: the samplers put the coordinates that matter most
# first, and beyond a few dozen a Sobol sequence of this length is no more even than independent
# random permutations of the strata (a Latin hypercube), which cost a tenth to make.
N_SOBOL = 64
# With fewer points a Sobol sequence is hardly more even than permuted strata, and its scrambling
# would be half of the time that a small problem takes.
_LEAST_POINTS = 16
_BITS = 30
_ROWS = 16


def uniform_points(
    n_dims: int, n_points: int, n_replicates: int, rng: np.random.Generator
) -> FloatArray:
    """Replicates of a randomised quasi-Monte Carlo point set, one after another.

    Each replicate is `n_points` Sobol points with a random digital shift (Matousek
    1998) in the first 64 dimensions, extended by a Latin hypercube. Every point is uniform
    on the cube, and the replicates are independent of one another, so their spread is an honest
    standard error.

    Parameters
    ----------
    n_dims, n_points, n_replicates : int
        Dimensions; points a replicate; replicates.
    rng : numpy.random.Generator
        Source of the randomisation.

    Returns
    -------
    ndarray, shape (n_dims, n_replicates * n_points)
        Points as columns, strictly inside (0, 1), in random order within each replicate.

    References
    ----------
    .. [1] J. Matousek (1998), On the L2-discrepancy for anchored boxes,
       doi:10.1006/jcom.1998.0489.
    .. [2] A. B. Owen (1994), Lattice sampling revisited: Monte Carlo variance of means over
       randomized orthogonal arrays (on extending a point set by a Latin hypercube),
       doi:10.1214/aos/1176325504.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp.kernels.points import uniform_points
    >>> uniform_points(3, 4, 2, np.random.default_rng(0)).shape
    (3, 8)
    """
    points = np.empty((n_dims, n_replicates, n_points))
    n_sobol = min(n_dims, N_SOBOL) if n_points >= _LEAST_POINTS else 0
    if n_sobol:
        net = _net(n_sobol, (n_points - 1).bit_length())
        for replicate in range(n_replicates):
            # In random order: a later reader of part of the draws must not meet only part of the
            # cube.
            chosen = rng.permutation(net.shape[1])[:n_points]
            shift = rng.integers(2**_BITS, size=(n_sobol, 1), dtype=np.uint32)
            points[:n_sobol, replicate] = ((net[:, chosen] ^ shift) + 0.5) * 2.0**-_BITS
    # Some rows at a time, so that what is in between stays in the cache.
    for start in range(n_sobol, n_dims, _ROWS):
        rows = points[start : min(start + _ROWS, n_dims)]
        rng.random(out=rows)
        rows += rng.permuted(np.broadcast_to(np.arange(n_points, dtype=float), rows.shape), axis=-1)
        rows /= n_points
        np.clip(rows, np.finfo(float).tiny, 1.0 - 2.0**-53, out=rows)
    return points.reshape(n_dims, -1)


@lru_cache(maxsize=16)
def _net(n_dims: int, log2_points: int) -> NDArray[np.uint32]:
    """Digits of Sobol points, scrambled once and for all, shape (n_dims, 2^log2_points)."""
    from scipy.stats import qmc  # takes half a second, which an import alone should not

    sobol = qmc.Sobol(n_dims, bits=_BITS, rng=np.random.default_rng(0))
    return np.ascontiguousarray((sobol.random_base2(log2_points).T * 2**_BITS).astype(np.uint32))
