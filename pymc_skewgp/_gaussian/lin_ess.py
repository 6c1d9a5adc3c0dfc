"""Linear elliptical slice sampling: a rejection-free Markov chain on a Gaussian in a rectangle."""

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray
from scipy.linalg.blas import dtrmm

from pymc_skewgp._errors import StuckChainWarning, warn
from pymc_skewgp._validation import FloatArray, as_bounds, as_generator

# Steps of linear elliptical slice sampling, compiled: feasible arcs of ellipses, and the walk.
#
# A state w and a direction s span the ellipse w cos t + s sin t. A limit cuts an arc of angles t
# out of it; what is left is a set of arcs that holds t = 0, the state itself.

# An angle that round-off puts outside is replaced by its rotation by the golden ratio: again
# uniform, and the only draws it alters are the ones within round-off of the end of an arc.
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
_MAX_TRIES = 16

_jit = partial(njit, cache=True, nogil=True, error_model="numpy")


@_jit()
def _sort(x, n):  # type: ignore[no-untyped-def]
    """Shell sort of x[:n] in place; numba's own sort costs most of a second to compile."""
    step = 1
    while step < n // 3:
        step = 3 * step + 1
    while step > 0:
        for i in range(step, n):
            item = x[i]
            j = i
            while j >= step and x[j - step] > item:
                x[j] = x[j - step]
                j -= step
            x[j] = item
        step //= 3


@_jit()
def general_arcs(value, direction, low, high, start, end):  # type: ignore[no-untyped-def]
    """Fill `start`, `end` with the feasible arcs; return their number and the active constraints.

    In tau = tan(t/2) a constraint w cos t + s sin t >= b is the quadratic inequality
    (w - b) + 2 s tau - (w + b) tau^2 >= 0: a square root and two divisions instead of
    trigonometric functions, and the order of angles is kept. As t = 0 is feasible (w > b), it
    leaves either one window around 0 (w + b > 0: t = pi is excluded) or all but one interval.
    """
    left, right = -np.inf, np.inf
    n, n_active = 0, 0
    for side in range(2):
        sign = 1.0 - 2.0 * side
        for i in range(value.size):
            w, s = sign * value[i], sign * direction[i]
            b = low[i] if side == 0 else -high[i]
            slack, p = w - b, w + b
            discriminant = s * s + slack * p
            if not discriminant > 0.0:
                continue
            n_active += 1
            q = s + math.copysign(math.sqrt(discriminant), s)
            one, two = q / p, -slack / q
            first, last = min(one, two), max(one, two)
            if p >= 0.0:
                left, right = max(left, first), min(right, last)
            else:
                start[n], end[n] = first, last
                n += 1
    inside = 0
    for i in range(n):
        if start[i] < right and end[i] > left:
            start[inside], end[inside] = max(start[i], left), min(end[i], right)
            inside += 1
    # Most intervals overlap: a few linear passes merge what they can and leave little to sort.
    for _ in range(4):
        if inside > 16:
            a, b = start[0], end[0]
            rest = 0
            for i in range(1, inside):
                if start[i] <= b and end[i] >= a:
                    a, b = min(a, start[i]), max(b, end[i])
                else:
                    start[rest], end[rest] = start[i], end[i]
                    rest += 1
            start[rest], end[rest] = a, b
            inside = rest + 1
    # With starts and ends sorted apart, gap k lies between the k-th end and the k-th next start
    # wherever that is positive: the running maximum without carrying pairs along.
    _sort(start, inside)
    _sort(end, inside)
    gaps = 0
    a = left
    for i in range(inside + 1):
        b = start[i] if i < inside else right
        following = end[i] if i < inside else right
        if b > a:
            start[gaps], end[gaps] = 2.0 * math.atan(a), 2.0 * math.atan(b)
            gaps += 1
        a = following
    return gaps, n_active


@_jit(fastmath={"nnan", "nsz"})
def cone_arc(value, direction):  # type: ignore[no-untyped-def]
    """Return the one feasible arc of zero thresholds: cos t + (s/w) sin t >= 0 in each row."""
    least, greatest = np.inf, -np.inf
    for i in range(value.size):
        ratio = direction[i] / value[i]
        least = min(least, ratio)
        greatest = max(greatest, ratio)
    return -math.atan2(1.0, greatest), math.atan2(1.0, -least)


@_jit()
def walk(value, block, uniforms, limits, out):  # type: ignore[no-untyped-def]
    """Run all chains through a block of directions, each overwritten by the state it led to.

    `limits` are the thresholds, and whether these are a cone. `out` are the arc length and the
    number of active constraints of each step. A step that had to stay is marked by the arc length
    0.
    """
    low, high, cone = limits
    arc_length, n_active = out
    n_steps, n_chains, m = block.shape
    start, end = np.empty(2 * m + 1), np.empty(2 * m + 1)
    trial = np.empty(m)
    for chain in range(n_chains):
        w = value[chain]
        for step in range(n_steps):
            s = block[step, chain]
            if cone:
                start[0], end[0] = cone_arc(w, s)
                gaps, active = 1, m
            else:
                gaps, active = general_arcs(w, s, low, high, start, end)
            total = 0.0
            for k in range(gaps):
                total += end[k] - start[k]
            u = uniforms[step, chain]
            outside = 1
            for _ in range(_MAX_TRIES):
                rest = u * total
                k = 0
                while k < gaps - 1 and rest >= end[k] - start[k]:
                    rest -= end[k] - start[k]
                    k += 1
                angle = start[k] + rest
                c, d = math.cos(angle), math.sin(angle)
                outside = 0
                for i in range(m):
                    x = w[i] * c + s[i] * d
                    trial[i] = x
                    outside |= (not x > low[i]) | (not x < high[i])
                if gaps > 0 and not outside:
                    break
                outside = 1
                u += _GOLDEN
                u -= math.floor(u)
            for i in range(m):
                w[i] = s[i] = w[i] if outside else trial[i]
            arc_length[step, chain], n_active[step, chain] = 0.0 if outside else total, active


IntArray = NDArray[np.int64]

# Proposals per matrix product: at 1024 rows the product runs at full speed and still fits a cache
# of a few MB; the byte limit takes over in very high dimension.
BLOCK_ROWS = 1024
BLOCK_BYTES = 64 * 2**20


class LinESSResult(NamedTuple):
    """Draws of :func:`lin_ess` with the diagnostics of each kept step.

    Attributes
    ----------
    draws : array, shape (chains, draws, N)
        States of the chains; successive ones are correlated.
    arc_length : array, shape (chains, draws)
        Total feasible angle of the ellipse in radians, at most 2 pi; 0 where the chain stayed
        because round-off left nothing feasible.
    n_active : array of int, shape (chains, draws)
        Number of one-sided constraints that cut the ellipse.
    """

    draws: FloatArray
    arc_length: FloatArray
    n_active: IntArray


def lin_ess(
    chol: ArrayLike,
    start: ArrayLike,
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    *,
    n_draws: int = 1000,
    thin: int = 1,
    random_seed: int | np.random.Generator | None = None,
) -> LinESSResult:
    r"""Draw from a Gaussian restricted to a rectangle by linear elliptical slice sampling.

    The target is :math:`u \sim N(0, L L')` given :math:`l \le u \le h`. A step draws
    :math:`\nu \sim N(0, L L')` and moves to :math:`u \cos t + \nu \sin t` with t uniform over all
    the angles at which that ellipse meets the constraints. No step is rejected,
    but the draws are those of a Markov chain: the feasible angle shrinks like 1/N, so judge them
    by their effective sample size. The ellipse costs O(N log N) a step, the proposal one row
    of a matrix product.

    Parameters
    ----------
    chol : array_like, shape (N, N)
        Lower triangular :math:`L`.
    start : array_like, shape (chains, N)
        Strictly feasible state of each chain.
    lower, upper : array_like, shape (N,), or scalar, optional
        Thresholds, which may be infinite.
    n_draws, thin : int
        Draws kept per chain, steps per kept draw.
    random_seed : int or numpy.random.Generator, optional
        Seed. One seed gives one result for given shapes; chains are independent.

    Returns
    -------
    LinESSResult
        Draws (chains, n_draws, N), each strictly feasible, with the total feasible angle and
        the number of active constraints at each.

    Raises
    ------
    ValueError
        For `lower` not below `upper`, and a `start` that is not strictly feasible (the message
        names the worst row).

    Warns
    -----
    StuckChainWarning
        When a chain had to stay at a step because round-off left nothing feasible.

    References
    ----------
    Gessner, Kanjilal & Hennig (2019), arXiv:1910.09328; Wu & Gardner (2024), arXiv:2407.10449.

    Examples
    --------
    The mean of a half-normal variable is sqrt(2 / pi) = 0.798:

    >>> import numpy as np
    >>> from pymc_skewgp._gaussian.lin_ess import lin_ess
    >>> result = lin_ess(np.eye(1), [[1.0]] * 4, lower=0.0, n_draws=20_000, random_seed=1)
    >>> result.draws.shape
    (4, 20000, 1)
    >>> print(round(float(result.draws.mean()), 1))
    0.8
    """
    factor, value = np.asfortranarray(chol), np.array(start, dtype=np.float64)
    (n_chains, size), rng = value.shape, as_generator(random_seed)
    low, high = as_bounds(lower, upper, size)
    _check_inside(value, low, high)
    # A zero threshold on one side of every row: its sign cancels in the ratios of `cone_arc`.
    outer = np.stack([low, high])
    one_sided = ((outer == 0.0) == np.isinf(outer[::-1])).all()
    limits = low, high, bool(one_sided and (outer == 0.0).any(0).all())

    draws = np.empty((n_chains, n_draws, size))
    arc_length = np.empty((n_chains, n_draws))
    n_active = np.empty((n_chains, n_draws), dtype=np.int64)
    n_steps = n_draws * thin
    rows_at_once = min(BLOCK_ROWS, BLOCK_BYTES // (8 * size))
    block_steps = min(max(rows_at_once // n_chains, 1), n_steps)
    buffer = np.empty((block_steps * n_chains, size))
    n_stayed, done, kept = 0, 0, 0
    while done < n_steps:
        count = min(block_steps, n_steps - done)
        white = rng.standard_normal(out=buffer[: count * n_chains])
        # L times each, at half the operations of a general product.
        steps = dtrmm(1.0, factor, white.T, lower=1, overwrite_b=1).T
        block = steps.reshape(count, n_chains, size)
        arc, active = np.empty(block.shape[:2]), np.empty(block.shape[:2], dtype=np.int64)
        walk(value, block, rng.random(arc.shape), limits, (arc, active))
        n_stayed += int((arc == 0.0).sum())
        # Step number k (from 1) is kept when it is a multiple of thin.
        chosen = slice((-done - 1) % thin, None, thin)
        new = block[chosen]
        to = slice(kept, kept + new.shape[0])
        draws[:, to] = new.swapaxes(0, 1)
        arc_length[:, to], n_active[:, to] = arc[chosen].T, active[chosen].T
        done, kept = done + count, to.stop
    if n_stayed:
        warn(
            f"{n_stayed} of {n_steps * n_chains} lin-ess steps stayed where they were, because "
            "round-off left no feasible angle: the rectangle is very thin on the scale of the "
            "Gaussian. Rescale the problem or start further inside.",
            StuckChainWarning,
            stacklevel=2,
        )
    return LinESSResult(draws, arc_length, n_active)


def _check_inside(value: FloatArray, low: FloatArray, high: FloatArray) -> None:
    slack = np.minimum(value - low, high - value)
    if slack.size and slack.min() <= 0.0:
        chain, row = np.unravel_index(int(slack.argmin()), slack.shape)
        raise ValueError(
            f"start must be strictly feasible: constraint row {row} is violated by "
            f"{-slack[chain, row]:.6g} in chain {chain} (value {value[chain, row]:.6g}, "
            f"limits {low[row]:.6g} and {high[row]:.6g})."
        )
