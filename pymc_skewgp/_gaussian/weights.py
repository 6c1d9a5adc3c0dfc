"""Weighted draws: effective sample size, Pareto k, errors, resampling; quasi-random points."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, reduce
from operator import xor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from pymc_skewgp._validation import FloatArray

IntArray = NDArray[np.intp]


# Pareto shape of the tail of the weights from which their statistics are unreliable (Vehtari et al.
# 2024), and relative ESS from which a heavy tail holds too few draws to matter.
UNRELIABLE_K, NEARLY_EQUAL = 0.7, 0.5
_LEAST_SHARE = 0.2  # of plain Monte Carlo's error: what quasi-Monte Carlo is believed to save
_ENOUGH_REPLICATES = 8
_ROUND_OFF = 2e-14  # relative, of a log probability summed from well-conditioned steps
_JUDGED = 16  # coordinates of a chain, the ones that mix worst by a quick look
_LARGE_ERROR = 0.5


class Estimate(NamedTuple):
    """A Monte Carlo estimate with what is known of its error.

    Attributes
    ----------
    value : float
        The estimate (for log probabilities: in nats).
    std_error : float
        Standard error of `value`, from independent randomisations; 0 for exact values and
        infinite when there was only one randomisation.
    relative_ess : float
        Effective sample size of the weights over the number of draws, in (0, 1].
    pareto_k : float
        Shape of the generalised Pareto tail of the weights (Vehtari et al. 2024,
        arXiv:1507.02646); -inf where the weights have no tail. From 0.7 on the standard error is
        itself unreliable, unless `relative_ess` is a half or more: a tail that is heavy in shape
        then holds too few draws to matter (`heavy_tailed`).
    """

    value: float
    std_error: float
    relative_ess: float
    pareto_k: float

    @property
    def heavy_tailed(self) -> bool:
        """Whether the tail of the weights makes the standard error unreliable.

        That is, where the Pareto shape is 0.7 or more and the relative ESS below a half.
        """
        return not (self.pareto_k < UNRELIABLE_K or self.relative_ess >= NEARLY_EQUAL)

    def __str__(self) -> str:
        if self.std_error == 0.0:
            return f"{self.value:.4f} (exact)"
        return f"{self.value:.4f} +- {self.std_error:.2g} ({describe_weights(self)})"


def describe_weights(estimate: Estimate) -> str:
    """Relative ESS in words, and the Pareto shape where the error may depend on it."""
    ess = f"relative ESS {estimate.relative_ess:.2f}"
    k = estimate.pareto_k
    if estimate.relative_ess >= NEARLY_EQUAL or k == -np.inf:
        return ess
    judged = "" if k < UNRELIABLE_K else ", and from 0.7 on the error is unreliable"
    return f"{ess}, Pareto k {k:.2f}{judged}"


def add_estimates(constant: float, plus: Estimate, minus: Estimate) -> Estimate:
    """Estimate of constant + plus - minus, for independent estimates."""
    return Estimate(
        float(constant + plus.value - minus.value),
        float(np.hypot(plus.std_error, minus.std_error)),
        min(plus.relative_ess, minus.relative_ess),
        max(plus.pareto_k, minus.pareto_k),
    )


def log_mean_exp(log_weights: FloatArray) -> float:
    """Log of the mean weight."""
    largest = log_weights.max()
    if not np.isfinite(largest):
        return float(largest)
    # SciPy's `logsumexp` takes ten times as long for some hundred weights.
    return float(largest + np.log(np.exp(log_weights - largest).mean()))


def log_sum_exp(logs: FloatArray, axis: int) -> FloatArray:
    """Log of sums along an axis, in a fifth of the time that SciPy's takes."""
    largest = logs.max(axis=axis, keepdims=True)
    largest[~np.isfinite(largest)] = 0.0
    with np.errstate(divide="ignore"):
        found: FloatArray = np.log(np.exp(logs - largest).sum(axis=axis))
    found += largest.squeeze(axis)
    return found


def scaled_weights(log_weights: FloatArray) -> FloatArray:
    """Weights over the largest of them."""
    return np.exp(log_weights - log_weights.max())


def mean_probability(p: FloatArray, weights: FloatArray) -> FloatArray:
    """Weighted means of probabilities, (..., S): no round-off of the weights' sum is above one."""
    return np.asarray(np.minimum(p @ weights, 1.0))


def normalized_weights(log_weights: FloatArray) -> FloatArray:
    """Weights that sum to one."""
    weights = scaled_weights(log_weights)
    weights /= weights.sum()
    return weights


def relative_ess(log_weights: FloatArray) -> float:
    """Kish's effective sample size over the number of draws."""
    weights = scaled_weights(log_weights)
    return float(weights.sum() ** 2 / (weights @ weights) / weights.size)


def pareto_k(log_weights: FloatArray) -> float:
    """Pareto shape of the right tail of the weights; -inf where there is no tail.

    That is, where the largest weight is within a tenth of the mean one, or where fewer than 25
    weights differ. Copies of a draw, which resampling makes, count once.
    """
    if log_weights.max() - log_mean_exp(log_weights) < np.log(1.1):
        return -np.inf
    distinct = np.unique(log_weights)
    if distinct.size < 25:
        return -np.inf
    # As many as Vehtari et al. (2024) take, in units of the largest.
    n_tail = int(3.0 * np.sqrt(distinct.size) if distinct.size > 225 else distinct.size / 5)
    below, *tail = np.exp(distinct[-n_tail - 1 :] - distinct[-1])
    return _generalised_pareto_k(np.array(tail) - below)


def _generalised_pareto_k(x: FloatArray) -> float:
    """Shape of sorted excesses, by the posterior mean (Zhang & Stephens 2009, Vehtari et al. 2024).

    Written out: what ArviZ has for this takes a second to import. Infinite where the lower quarter
    of the excesses is one number.
    """
    n, quartile = x.size, x[int(x.size / 4 - 0.5)]
    if not quartile > x[0]:
        return np.inf
    n_candidates = 30 + int(np.sqrt(n))
    candidates = 1.0 - np.sqrt(n_candidates / (np.arange(n_candidates) + 0.5))
    with np.errstate(all="ignore"):  # weights many orders apart overflow
        candidates = candidates / (3.0 * quartile) + 1.0 / x[-1]
        shape = np.log1p(-candidates[:, None] * x).mean(axis=1)
        likelihood = n * (np.log(-candidates / shape) - shape - 1.0)
        chosen = np.exp(likelihood - log_sum_exp(likelihood, 0)) @ candidates
        k = np.log1p(-chosen * x).mean()
    k = (n * k + 5.0) / (n + 10.0)  # a prior of ten excesses with the shape 1/2
    return np.inf if np.isnan(k) else float(k)


def replicate_estimate(
    log_weights: FloatArray, n_replicates: int, *, even: bool = True
) -> Estimate:
    """Log of the mean weight, its standard error from `n_replicates` equal, independent blocks.

    The standard error is never less than a fifth of plain Monte Carlo's, because a part of the
    space that no point set reaches is seen by no replicate, nor less than round-off. Where evenly
    spaced points are not `even` in what matters, it is no less than plain Monte Carlo's.
    """
    value = log_mean_exp(log_weights)
    blocks = log_weights.reshape(n_replicates, -1)
    means = log_sum_exp(blocks, 1) - np.log(blocks.shape[1])
    fraction = relative_ess(log_weights)
    plain = np.sqrt(max(1.0 / fraction - 1.0, 0.0) / log_weights.size)
    error = np.hypot(spread_of_replicates(means, value), (_LEAST_SHARE if even else 1.0) * plain)
    error = np.hypot(error, _ROUND_OFF * abs(value))
    return Estimate(value, float(error), fraction, pareto_k(log_weights))


def spread_of_replicates(log_means: FloatArray, value: float) -> float:
    """Standard error of the log of an average of independent positive estimates."""
    if log_means.size < 2:
        return np.inf
    ratio = np.exp(log_means - value)
    error = float(ratio.std(ddof=1) / np.sqrt(ratio.size))
    # The error of a logarithm is that of the ratio only while it is small: where one replicate is
    # all of the mean, the ratio's never exceeds 1.
    return error if error < _LARGE_ERROR else max(error, float(log_means.std(ddof=1)))


def weighted_error(
    influence: FloatArray,
    weights: FloatArray,
    replicate: IntArray | None,
    least: float = _LEAST_SHARE,
    varying: float = 1.0,
) -> FloatArray:
    """Standard error of sum_j w_j influence_j, one for each row of `influence` (n, n_draws).

    Draws are independent of each other, or, with `replicate` given, only from one replicate to
    another: then it comes from the spread of the replicates' sums. As in `replicate_estimate` it is
    then no less than a share of independent draws' error: `least`, or, where weights vary,
    `varying` times the root of 1 minus their relative ESS, since evenly spaced points do not meet
    few large weights evenly. Of fewer than eight replicates, whose spread says little and is small
    where all of them lack a tail, it is that spread and that error together.
    """
    independent = np.sqrt(influence**2 @ weights**2)
    if replicate is None:
        return independent
    names, own = np.unique(replicate, return_inverse=True)
    of_replicate = np.zeros((weights.size, names.size))
    of_replicate[np.arange(weights.size), own] = weights
    sums = influence @ of_replicate
    spread = np.sqrt((sums**2).sum(axis=-1) * (names.size / max(names.size - 1, 1)))
    lost = max(1.0 - 1.0 / (weights.size * float(weights @ weights)), 0.0)
    if names.size < _ENOUGH_REPLICATES:
        return np.hypot(spread, independent)
    share = max(least, varying * np.sqrt(lost))
    return np.asarray(np.maximum(spread, share * independent))


def systematic_resample(log_weights: FloatArray, n: int, rng: np.random.Generator) -> IntArray:
    """Indices of `n` equally weighted draws, in random order (Kitagawa 1996).

    Draw i appears floor or ceiling of n w_i times, w_i its normalised weight. Means under the
    resampled draws are unbiased for the weighted ones. Copies are few where the relative ESS is
    near 1.
    """
    return rng.permutation(systematic_rows(log_weights[None], n, rng)[0])


def systematic_rows(log_weights: FloatArray, n: int, rng: np.random.Generator) -> IntArray:
    """The same of each row, shape (rows, n), numbers of the draws of all rows, in their order.

    Copies stay side by side, where the effective sample size of a chain sees them.
    """
    rows, size = log_weights.shape
    row = np.arange(rows)[:, None]
    cumulative = np.cumsum(np.exp(log_weights - log_weights.max(axis=1, keepdims=True)), axis=1)
    cumulative /= cumulative[:, -1:]
    ticks = row + (np.arange(n) + rng.random((rows, 1))) / n
    chosen = np.searchsorted((row + cumulative).ravel(), ticks.ravel(), side="right")
    return np.minimum(chosen.reshape(rows, n), (row + 1) * size - 1)


def resample_together(log_weights: FloatArray, n: int, rng: np.random.Generator) -> IntArray:
    """The same with copies side by side, where the effective sample size of a chain sees them."""
    return together(systematic_resample(log_weights, n, rng), log_weights.size, rng)


def together(chosen: IntArray, size: int, rng: np.random.Generator) -> IntArray:
    """Rows of indices of `size` draws in random order, but that copies stay side by side."""
    order = np.argsort(rng.random(size)[chosen], axis=-1, kind="stable")
    return np.take_along_axis(chosen, order, axis=-1)


def metropolis_resample(log_weights: FloatArray, rng: np.random.Generator) -> IntArray:
    """Indices of a chain of independence Metropolis over the draws, started at a weighted pick.

    The proposal's draws in their order are the proposals; each is taken with probability
    min(1, w_new / w_old): a chain that leaves the target invariant. Its start is picked from the
    same draws, so it is exact only as their number grows, like resampling.
    """
    n = log_weights.size
    state = int(systematic_resample(log_weights, 1, rng)[0])
    chain = np.empty(n, dtype=np.intp)
    log_uniform = np.log(rng.random(n))
    for proposal in range(n):
        if log_uniform[proposal] < log_weights[proposal] - log_weights[state]:
            state = proposal
        chain[proposal] = state
    return chain


def chain_relative_ess(draws: FloatArray) -> float:
    """Smallest bulk effective sample size over the coordinates, over the number of draws.

    `draws` has shape (n_chains, n_draws, N); runs too short for an estimate give 1/n_draws. That of
    many coordinates is found for those whose averages of batches scatter most.
    """
    n_chains, n_draws, _ = draws.shape
    if n_draws < 4:
        return 1.0 / n_draws
    from arviz_stats.base import array_stats  # a second of import that only sampling needs

    length = int(np.sqrt(n_draws))
    off = draws - np.median(draws, axis=(0, 1))
    # Of a heavy tail it counts that a draw is far out, not how far.
    most = 4.0 * np.median(np.abs(off), axis=(0, 1))
    most = np.where(most > 0, most, off.std(axis=(0, 1)))  # of a chain that stands still mostly
    scale = np.maximum(most, np.finfo(float).tiny)
    off = np.clip(off, -most, most)[:, : n_draws // length * length]
    batches = (off / scale).reshape(n_chains, -1, length, draws.shape[2]).mean(axis=2)
    worst = np.argsort(-batches.var(axis=(0, 1)))[:_JUDGED]
    ess = array_stats.ess(draws[..., worst], chain_axis=0, draw_axis=1)
    # Chains that alternate can beat independent draws; as a fraction that is 1.
    return float(min(np.min(ess) / (n_chains * n_draws), 1.0))


# Point sets in the unit cube: quasi-Monte Carlo points, randomised, and plain random ones.

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
    n_dims: int,
    n_points: int,
    n_replicates: int,
    rng: np.random.Generator,
    *,
    together: bool = False,
) -> FloatArray:
    """Replicates of a randomised quasi-Monte Carlo point set, one after another.

    Each replicate is `n_points` scrambled Sobol points (Matousek 1998) in the first 64 dimensions,
    extended by a Latin hypercube. Every point is uniform on the cube. The replicates share the
    random matrices of their scrambling, which take nearly all of its time, and have digital shifts
    of their own: given the matrices they are independent and each of them uniform, so that their
    spread gives an unbiased standard error. Or they are the parts of one larger point set: then
    means over all points have a smaller error, and the spread tells more than it.

    Parameters
    ----------
    n_dims, n_points, n_replicates : int
        Dimensions; points a replicate; replicates.
    rng : numpy.random.Generator
        Source of the randomisation.
    together : bool, default False
        Whether the replicates are parts of one point set. Of powers of two, both numbers.

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
    >>> from pymc_skewgp._gaussian.weights import uniform_points
    >>> uniform_points(3, 4, 2, np.random.default_rng(0)).shape
    (3, 8)
    """
    points = np.empty((n_dims, n_replicates, n_points))
    n_sobol = min(n_dims, N_SOBOL) if n_points >= _LEAST_POINTS else 0
    net = _scrambled_net(n_sobol, n_points * (n_replicates if together else 1), rng)
    size = net.shape[1] // (n_replicates if together else 1)
    shifted = np.empty((n_sobol, n_points), dtype=np.uint32)
    for replicate in range(n_replicates if n_sobol else 0):
        if not (together and replicate):
            shift = rng.integers(1 << _BITS, size=(n_sobol, 1), dtype=np.uint32)
        # Shuffled: a later reader of part of the draws must not meet only part of the cube.
        chosen = rng.permutation(size)[:n_points] + (replicate * size if together else 0)
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
    """At least `n_points` Sobol points as columns of integers of 30 bits, linearly scrambled.

    Those of ``scipy.stats.qmc.Sobol``, whose import takes half a second.
    """
    if not n_dims:
        return np.empty((0, n_points), dtype=np.uint32)
    (rng,) = rng.spawn(1)
    powers = 1 << np.arange(_BITS, dtype=np.uint32)
    shift = rng.integers(2, size=(n_dims, _BITS), dtype=np.uint32) @ powers
    lower = np.tril(rng.integers(2, size=(n_dims, _BITS, _BITS), dtype=np.uint32), -1)
    scrambling = lower.astype(np.float32) + np.eye(_BITS, dtype=np.float32)
    n_doublings = max(0, (n_points - 1).bit_length())
    bits = np.mod(scrambling @ _direction_bits()[:n_dims, :, :n_doublings], 2.0)
    numbers = (powers[::-1] @ bits.astype(float)).astype(np.uint32)
    net = shift[:, None]
    for number in numbers.T:  # the order of Gray's code
        net = np.concatenate([net, net[:, ::-1] ^ number[:, None]], axis=1)
    return net


# Of each dimension after the first: a primitive polynomial, and the numbers that its recursion
# begins with (Joe & Kuo 2008, doi:10.1137/070709359).
_DIRECTIONS = """
3:1 7:1,3 11:1,3,1 13:1,1,1 19:1,1,3,3 25:1,3,5,13 37:1,1,5,5,17 41:1,1,5,5,5 47:1,1,7,11,19
55:1,1,5,1,1 59:1,1,1,3,11 61:1,3,5,5,31 67:1,3,3,9,7,49 91:1,1,1,15,21,21 97:1,3,1,13,27,49
103:1,1,1,15,7,5 109:1,3,1,15,13,25 115:1,1,5,5,19,61 131:1,3,7,11,23,15,103
137:1,3,7,13,13,15,69 143:1,1,3,13,7,35,63 145:1,3,5,9,1,25,53 157:1,3,1,13,9,35,107
167:1,3,1,5,27,61,31 171:1,1,5,11,19,41,61 185:1,3,5,3,3,13,69 191:1,1,7,13,1,19,1
193:1,3,7,5,13,19,59 203:1,1,3,9,25,29,41 211:1,3,5,13,23,1,55 213:1,3,7,3,13,59,17
229:1,3,1,3,5,53,69 239:1,1,5,5,23,33,13 241:1,1,7,7,1,61,123 247:1,1,7,9,13,61,49
253:1,3,3,5,3,55,33 285:1,3,1,15,31,13,49,245 299:1,3,5,15,31,59,63,97 301:1,3,1,11,11,11,77,249
333:1,3,1,11,27,43,71,9 351:1,1,7,15,21,11,81,45 355:1,3,7,3,25,31,65,79 357:1,3,1,1,19,11,3,205
361:1,1,5,9,19,21,29,157 369:1,3,7,11,1,33,89,185 391:1,3,3,3,15,9,79,71
397:1,3,7,11,15,39,119,27 425:1,1,3,1,11,31,97,225 451:1,1,1,3,23,43,57,177
463:1,3,7,7,17,17,37,71 487:1,3,1,5,27,63,123,213 501:1,1,3,5,11,43,53,133
529:1,3,5,5,29,17,47,173,479 539:1,3,3,11,3,1,109,9,69 545:1,1,1,5,17,39,23,5,343
557:1,3,1,5,25,15,31,103,499 563:1,1,1,11,11,17,63,105,183 601:1,1,5,11,9,29,97,231,363
607:1,1,5,15,19,45,41,7,383 617:1,3,7,7,31,19,83,137,221 623:1,1,1,3,23,15,111,223,83
631:1,1,5,13,31,15,55,25,161 637:1,1,3,13,25,47,39,87,257
"""


@cache
def _direction_bits() -> NDArray[np.float32]:
    """Sobol's direction numbers, shape (dimension, bit, number), the highest bit first."""
    found = [[1] * _BITS]
    for word in _DIRECTIONS.split():
        polynomial, *own = map(int, word.replace(":", ",").split(","))
        degree = len(own)
        for j in range(degree, _BITS):
            terms = (own[j - k] << k for k in range(1, degree + 1) if polynomial >> degree - k & 1)
            own.append(reduce(xor, terms, own[j - degree]))
        found.append(own)
    place = np.arange(_BITS)[::-1]
    return ((np.array(found) << place)[:, None] >> place[:, None] & 1).astype(np.float32)


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


# An order of points in which each is near to the last: where an iteration begins from the last.

# Points in one path: the time goes with their square.
_TOGETHER = 2048


def in_cells(x: FloatArray) -> IntArray:
    """Order of rows by halves along each column in turn, and halves of these.

    What of the weights resampling moves from a row goes to a neighbour of it.
    """
    order = np.arange(len(x))
    for level in range(len(x).bit_length() if x.shape[1] else 0):
        cell = (np.arange(order.size) << level) // order.size
        order = order[np.lexsort((x[order, level % x.shape[1]], cell))]
    return order


def short_path(x: FloatArray) -> IntArray:
    """From each of the rows of `x` to the nearest one left, in units of the columns' spread.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp._gaussian.weights import short_path
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


# Mixtures of Gaussians with one variance a row: what a truncated latent vector leaves of f.

_MAX_STEPS = 60
_NARROW = 0.03  # of the mixture's deviation: a thousand components would leave gaps
_SILVERMAN = 0.9
_CHUNK = 2**16  # entries of a block of rows x components: a few of them fit a core's cache
_LEAST_OF_SD = 0.6  # of independent draws' error: what of it evenly spaced ones have at least
_VARYING_OF_MEAN = 0.6  # see `weighted_error`: mirrored draws cancel even where they weigh


@dataclass(frozen=True)
class GaussianMixture:
    r"""The distribution :math:`\sum_j w_j N(m_{ij}, v_i)` of each row i, components being draws."""

    means: FloatArray  # of each component in each row, shape (n, S)
    variance: FloatArray  # of the components of each row, shape (n,)
    weights: FloatArray  # of the components, of sum 1, shape (S,)
    replicate: IntArray | None = None  # which randomisation each is from; None: independent

    @property
    def components(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Means, variances and weights."""
        return self.means, self.variance, self.weights

    def _blocks(self) -> Iterator[tuple[slice, "GaussianMixture"]]:
        n, size = self.means.shape
        step = max(1, _CHUNK // size)
        for rows in (slice(start, start + step) for start in range(0, n, step)):
            known = self.means[rows], self.variance[rows], self.weights, self.replicate
            yield rows, GaussianMixture(*known)

    @property
    def _visible_sd(self) -> FloatArray:
        """Deviations; a point mass has no density to step along: an invisible width for it."""
        return np.asarray(np.sqrt(self.variance + 1e-24 * (1.0 + self.means.var(axis=1))))

    def _moments_of_rows(self) -> FloatArray:
        """Mean, standard deviation and skewness, shape (3, n)."""
        found = np.empty((3, self.variance.size))
        for rows, own in self._blocks():
            found[0, rows] = mean = own.means @ self.weights
            centred = own.means - mean[:, None]
            squared = centred**2
            total = squared @ self.weights + own.variance
            squared *= centred  # NumPy's third power takes twenty times as long
            third = squared @ self.weights
            with np.errstate(invalid="ignore", divide="ignore"):
                found[2, rows] = np.where(total > 0, third / total**1.5, 0.0)
            found[1, rows] = np.sqrt(total)
        return found

    def _moment_errors_of_rows(self) -> FloatArray:
        r"""Monte Carlo standard errors of `_moments_of_rows`.

        The delta method: each statistic's influence function at component j, squared and summed
        with weights :math:`w_j^2`; for the skewness, with :math:`d_j = m_j - \bar m` and
        :math:`S` the total variance,

        .. math:: (d_j^3 - \mu_3 - 3 \mu_2 d_j) / S^{3/2}
            - \tfrac32 \mathrm{skew}\,(d_j^2 - \mu_2) / S.

        Draws of one replicate depend on each other (`weighted_error`). A second power hangs on few
        draws, a third one on so few that most replicates lack them: their errors are no less than
        .6 and 1 times those of independent draws.
        """
        found, weights, replicate = np.empty((3, self.variance.size)), self.weights, self.replicate
        for rows, own in self._blocks():
            mean, sd, skewness = own._moments_of_rows()
            centred = own.means - mean[:, None]
            squared = centred**2
            second = (squared @ weights)[:, None]
            third = (centred * squared @ weights)[:, None]
            scale = np.where(sd > 0, sd, 1.0)[:, None]
            on_skewness = (centred * squared - third - 3.0 * second * centred) / scale**3
            on_skewness -= 1.5 * skewness[:, None] * (squared - second) / scale**2
            on_sd = (squared - second) / (2.0 * scale)
            found[0, rows] = weighted_error(centred, weights, replicate, varying=_VARYING_OF_MEAN)
            found[1, rows] = weighted_error(on_sd, weights, replicate, _LEAST_OF_SD)
            found[2, rows] = weighted_error(on_skewness, weights, replicate, 1.0)
        return found

    def _quantiles_at(self, probs: FloatArray) -> FloatArray:
        """Quantiles, (n_probs, n), to 1e-10 of the deviation, by Newton's method in a bracket."""
        found = np.empty((probs.size, self.variance.size))
        for rows, own in self._blocks():
            sd = own._visible_sd
            mean, spread, _ = replace(own, variance=sd**2)._moments_of_rows()
            for i, prob in enumerate(probs):
                found[i, rows] = own._quantile(prob, sd, mean, spread)
        return found

    def _quantile(
        self, prob: float, sd: FloatArray, mean: FloatArray, spread: FloatArray
    ) -> FloatArray:
        # A mixture's quantile lies between its smallest and largest component's.
        means, z = self.means, float(ndtri(prob))
        low, high = means.min(axis=1) + z * sd, means.max(axis=1) + z * sd
        x = np.clip(mean + z * spread, low, high)
        left = np.arange(x.size)  # rows still moving
        for _ in range(_MAX_STEPS):
            scaled = (x[left, None] - means[left]) / sd[left, None]
            surplus = ndtr(scaled) @ self.weights - prob
            density = _density(scaled, sd[left], self.weights)
            low[left] = np.where(surplus < 0, x[left], low[left])
            high[left] = np.where(surplus < 0, high[left], x[left])
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                step = x[left] - surplus / density
            inside = (step > low[left]) & (step < high[left])
            new = np.where(inside, step, 0.5 * (low[left] + high[left]))
            moving = np.abs(new - x[left]) > 1e-10 * spread[left]
            x[left] = new
            left = left[moving]
            if left.size == 0:
                break
        return x

    def _quantile_errors_at(self, quantiles: FloatArray) -> FloatArray:
        """Monte Carlo standard errors of `_quantiles_at`, of the shape of these.

        That of the probability over the density; at most the range of the components, as where
        there is no density between two of them.
        """
        errors, density = self._cdf_errors_at(quantiles), self._density_at(quantiles)
        most = np.ptp(self.means, axis=1) + np.sqrt(self.variance)
        return np.minimum(errors / np.maximum(density, np.finfo(float).tiny), most)

    def _cdf_at(self, values: FloatArray) -> FloatArray:
        r""":math:`\sum_j w_j \Phi\{(x - m_{ij}) / v_i^{1/2}\}`, a column of values for each row."""
        return self._at(values, lambda z, _: ndtr(z) @ self.weights)

    def _cdf_errors_at(self, values: FloatArray) -> FloatArray:
        """Monte Carlo standard errors of `_cdf_at`."""

        def errors(z: FloatArray, _: FloatArray) -> FloatArray:
            below = ndtr(z)
            below -= (below @ self.weights)[:, None]
            return weighted_error(below, self.weights, self.replicate)

        return self._at(values, errors)

    def _density_at(self, values: FloatArray) -> FloatArray:
        """Density at `values`, as for `_cdf_at`.

        Where the components are points, or nearly so, they are draws of the density to be had: it
        is smoothed by a Gaussian kernel of Silverman's (1986) width.
        """
        width = _SILVERMAN * float(self.weights @ self.weights) ** 0.2
        return self._at(values, lambda z, sd: _density(z, sd, self.weights), width)

    def _at(
        self,
        values: FloatArray,
        function: Callable[[FloatArray, FloatArray], FloatArray],
        width: float = 0.0,
    ) -> FloatArray:
        """A function of values less the means in deviations, which are `width` at least."""
        found = np.empty(values.shape)
        for rows, own in self._blocks():
            sd = own._visible_sd
            if width:
                total = own._moments_of_rows()[1]
                sd = np.where(sd < _NARROW * total, width * total, sd)
            for i, at in enumerate(values[:, rows]):
                found[i, rows] = function((at[:, None] - own.means) / sd[:, None], sd)
        return found


def _density(scaled: FloatArray, sd: FloatArray, weights: FloatArray) -> FloatArray:
    return np.exp(-0.5 * scaled**2) @ weights / (np.sqrt(2 * np.pi) * sd)
