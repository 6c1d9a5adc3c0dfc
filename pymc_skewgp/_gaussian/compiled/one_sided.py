"""The twisted sampler's draws, and the reverse of their recursion, for rows with one limit each.

What `TwistedProposal.draw` computes, without Python's lock: chains in threads draw
side by side. A row's sign is 1 for a lower limit and -1 for an upper one; times the sign all limits
are lower ones. Arrays of draws have one row for each row of the rectangle.
"""

import math

import numpy as np
from llvmlite.binding import add_symbol
from numba import types
from numba.extending import get_cython_function_address

from pymc_skewgp._gaussian.compiled.rows import Index, jit, jit_inner, jit_sums

# Rows of `of_steps`, numbers that are the same for all draws.
SCALE, SD, SHIFT, SLOPE, LIMIT, SQUARE, LINEAR, SIGN = range(8)
N_STEPS = 8
# Arrays of draws: their noise, what it is added to, the limit and the draw itself in units of the
# cavity, the density at the limit and how far the draw follows it.
NOISE, CENTRE, BOUND, DRAW, DENSITY, FOLLOWS = range(6)
N_KEPT = 6
# Sums over the draws, for each row; `_BAR` is the derivative in what stands before it.
FIRST, SECOND, CAVITY_BAR, CAVITY_PRODUCT, SD_BAR, LIMIT_BAR, NOISE_PRODUCT = range(7)
N_SUMS = 7

_SQRT_HALF = math.sqrt(0.5)
_HAZARD_SCALE = math.sqrt(2.0 / math.pi)
# As in `univariate`: a limit in the tail asks for other formulas, and small draws for the lower
# tail.
_TAIL_DRAW, _LEFT_DRAW = 10.0, -3.0
_LEAST = 1e-300


# SciPy's, by a symbol: so what calls it can be kept on disk.
_SYMBOL = "pymc_skewgp_ndtri"
add_symbol(_SYMBOL, get_cython_function_address("scipy.special.cython_special", "ndtri"))
_normal_quantile = types.ExternalFunction(_SYMBOL, types.float64(types.float64))


@jit_inner()
def _draw_above(v, bound):  # type: ignore[no-untyped-def]
    """A draw above `bound` that a share v of the mass there exceeds, and this mass."""
    mass = 0.5 * math.erfc(bound * _SQRT_HALF)
    draw = -_normal_quantile(max(v * mass, _LEAST))
    if draw <= max(bound, _LEFT_DRAW):
        if bound < 0.0:
            rest = 0.5 * math.erfc(-bound * _SQRT_HALF)
            draw = _normal_quantile(max(1.0 - v + v * rest, _LEAST))
        draw = max(draw, bound)
    return draw, mass


@jit_sums()
def _add_multiples(factors, rows, start, stop, total):  # type: ignore[no-untyped-def]
    """Add factors[i] rows[i] to `total`, i from start to stop, four rows at once."""
    n, i = Index(total.size), start
    while i + Index(4) <= stop:
        a, b, c, d = factors[i], factors[i + 1], factors[i + 2], factors[i + 3]
        for j in range(n):
            first = a * rows[i, j] + b * rows[i + 1, j]
            total[j] += first + c * rows[i + 2, j] + d * rows[i + 3, j]
        i += Index(4)
    while i < stop:
        a = factors[i]
        for j in range(n):
            total[j] += a * rows[i, j]
        i += Index(1)


@jit()
def draw_one_sided(points, chol, of_steps, kept, log_weights):  # type: ignore[no-untyped-def]
    """Fill in `kept`, and add to `log_weights`; False where a limit lies far in a tail."""
    noise, centre = kept[NOISE], kept[CENTRE]
    for k in range(points.shape[0]):
        sign, slope, limit = of_steps[SIGN, k], of_steps[SLOPE, k], of_steps[LIMIT, k]
        scale, sd, shift = of_steps[SCALE, k], of_steps[SD, k], of_steps[SHIFT, k]
        square, linear = of_steps[SQUARE, k], of_steps[LINEAR, k]
        for j in range(points.shape[1]):
            centre[k, j] = 0.0
        _add_multiples(chol[k], noise, Index(0), Index(k), centre[k])
        for j in range(points.shape[1]):
            c = centre[k, j]
            shifted = slope * c
            bound = sign * (limit - shifted)
            if not bound <= _TAIL_DRAW:  # or not a number
                return False
            v = max(1.0 - points[k, j] if sign > 0.0 else points[k, j], _LEAST)
            draw, mass = _draw_above(v, bound)
            noise[k, j] = (sd * (sign * draw + shifted) - shift - c) / scale
            log_weights[j] += math.log(mass) + (square * c - linear) * c
            kept[BOUND, k, j], kept[DRAW, k, j] = sign * bound, sign * draw
            kept[DENSITY, k, j] = (
                -sign * 0.5 * _HAZARD_SCALE * math.exp(-0.5 * bound * bound) / mass
            )
            kept[FOLLOWS, k, j] = v * math.exp(0.5 * (draw - bound) * (draw + bound))
    return True


@jit_sums(no_cpython_wrapper=False)
def sum_one_sided(columns, of_steps, tau, nu, weights, kept, centre_bar, sums):  # type: ignore[no-untyped-def]
    """Fill in `sums` over the draws, and `centre_bar`, from the last row to the first.

    `columns` is the transposed Cholesky factor.
    """
    n = tau.size
    noise_bar = np.empty(weights.size)
    for k in range(n - 1, -1, -1):
        scale, sd, shift = of_steps[SCALE, k], of_steps[SD, k], of_steps[SHIFT, k]
        gain = of_steps[SLOPE, k] * sd
        noise_bar[:] = 0.0
        _add_multiples(columns[k], centre_bar, Index(k + 1), Index(n), noise_bar)
        first, second, total, product, own = 0.0, 0.0, 0.0, 0.0, 0.0
        followed, pushed, followed_limit, pushed_limit, with_draw = 0.0, 0.0, 0.0, 0.0, 0.0
        for j in range(weights.size):
            w, c, bar = weights[j], kept[CENTRE, k, j], noise_bar[j]
            follows, bound = kept[FOLLOWS, k, j], kept[BOUND, k, j]
            push = kept[DENSITY, k, j] * w
            centre_bar[k, j] = (gain * (1.0 - follows) - 1.0) / scale * bar + gain * (
                (tau[k] * c - nu[k]) * w - push / sd
            )
            cavity_bar = bar * (1.0 - follows) / scale - push / sd
            first += c * w
            second += c * c * w
            total += cavity_bar
            product += cavity_bar * (gain * c - shift)
            own += bar * kept[NOISE, k, j]
            followed += bar * follows
            followed_limit += bar * follows * bound
            pushed += push
            pushed_limit += push * bound
            with_draw += bar * kept[DRAW, k, j]
        sums[FIRST, k], sums[SECOND, k] = first, second
        sums[CAVITY_BAR, k], sums[CAVITY_PRODUCT, k] = total, product
        sums[SD_BAR, k] = (with_draw - followed_limit) / scale - pushed_limit / sd
        sums[LIMIT_BAR, k] = followed / scale + pushed / sd
        sums[NOISE_PRODUCT, k] = own
