"""Point sets in the unit cube: quasi-Monte Carlo points, randomised, and plain random ones."""

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._validation import FloatArray

# Dimensions that get scrambled Sobol points: the samplers put the coordinates that matter most
# first, and beyond a few dozen a Sobol sequence of this length is no more even than independent
# random permutations of the strata (a Latin hypercube), which cost a tenth to make.
N_SOBOL = 64
# With fewer points a Sobol sequence is hardly more even than permuted strata, and its scrambling
# would be half of the time that a small problem takes.
_LEAST_POINTS = 16
_ROWS = 16
_BITS = 30


def uniform_points(
    n_dims: int, n_points: int, n_replicates: int, rng: np.random.Generator
) -> FloatArray:
    """Replicates of a randomised quasi-Monte Carlo point set, one after another.

    Each replicate is `n_points` scrambled Sobol points (Matousek 1998) in the first 64 dimensions,
    extended by a Latin hypercube. Every point is uniform on the cube. The replicates share the
    random matrices of their scrambling, which take nearly all of its time, and have digital shifts
    of their own: given the matrices they are independent and each of them uniform, so that their
    spread gives an unbiased standard error.

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
    .. [1] J. Matousek (1998), On the L2-discrepancy for anchored boxes (random linear scrambling
       and digital shifts), doi:10.1006/jcom.1998.0489.
    .. [2] A. B. Owen (1994), Lattice sampling revisited: Monte Carlo variance of means over
       randomized orthogonal arrays (on extending a point set by a Latin hypercube),
       doi:10.1214/aos/1176325504.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp._gaussian.points import uniform_points
    >>> uniform_points(3, 4, 2, np.random.default_rng(0)).shape
    (3, 8)
    """
    points = np.empty((n_dims, n_replicates, n_points))
    n_sobol = min(n_dims, N_SOBOL) if n_points >= _LEAST_POINTS else 0
    net = _scrambled_net(n_sobol, n_points, rng)
    shifted = np.empty((n_sobol, n_points), dtype=np.uint32)
    for replicate in range(n_replicates if n_sobol else 0):
        shift = rng.integers(1 << _BITS, size=(n_sobol, 1), dtype=np.uint32)
        # Shuffled: a later reader of part of the draws must not meet only part of the cube.
        chosen = rng.permutation(net.shape[1])[:n_points]
        np.bitwise_xor(net[:, chosen], shift, out=shifted)
        # Anywhere in its cell: a point is uniform, not a multiple of 2^-30.
        np.add(shifted, rng.random(shifted.shape), out=points[:n_sobol, replicate])
        points[:n_sobol, replicate] *= 2.0**-_BITS
    # Some rows at a time, so that what is in between stays in the cache.
    blocks = [points[k : min(k + _ROWS, n_dims)] for k in range(n_sobol, n_dims, _ROWS)]
    for rows in blocks:
        rows[:] = np.arange(n_points)
        rng.permuted(rows, axis=-1, out=rows)
    for rows in blocks:
        rows += rng.random(rows.shape)
        rows /= n_points
    np.clip(points, np.finfo(float).tiny, 1.0 - 2.0**-53, out=points)
    return points.reshape(n_dims, -1)


def _scrambled_net(n_dims: int, n_points: int, rng: np.random.Generator) -> NDArray[np.uint32]:
    """At least `n_points` Sobol points as columns of integers of 30 bits, linearly scrambled."""
    if not n_dims:
        return np.empty((0, n_points), dtype=np.uint32)
    from scipy.stats import qmc  # takes half a second, which an import alone should not

    sobol = qmc.Sobol(n_dims, scramble=True, bits=_BITS, rng=rng)
    net = sobol.random_base2(max(0, (n_points - 1).bit_length()))
    return np.ascontiguousarray((net.T * 2.0**_BITS).astype(np.uint32))


def random_points(n_dims: int, n_points: int, rng: np.random.Generator) -> FloatArray:
    """Independent points, strictly inside (0, 1), shape (n_dims, n_points)."""
    return np.maximum(rng.random((n_dims, n_points)), np.finfo(float).tiny)


def mirrored_points(
    n_dims: int, n_pairs: int, n_replicates: int, rng: np.random.Generator
) -> FloatArray:
    """Replicates of `n_pairs` points as `uniform_points` gives them, each followed by its mirrors.

    For integrands that are nearly odd about the centre, whose error cancels within a pair. Shape
    (n_dims, n_replicates * 2 * n_pairs).
    """
    points = uniform_points(n_dims, n_pairs, n_replicates, rng)
    points = points.reshape(n_dims, n_replicates, n_pairs)
    # A point may be as near to 0 as doubles go, its mirror no nearer to 1 than one step.
    others = np.minimum(1.0 - points, 1.0 - 2.0**-53)
    return np.concatenate([points, others], axis=2).reshape(n_dims, -1)
