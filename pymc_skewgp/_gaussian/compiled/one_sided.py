"""The twisted sampler's draws, and the reverse of their recursion, for rows with one limit each.

What `TwistedProposal.draw` computes, without Python's lock: chains in threads draw
side by side. A row's sign is 1 for a lower limit and -1 for an upper one; times the sign all limits
are lower ones. Arrays of draws have one row for each row of the rectangle.
"""

import math
from typing import Any

from llvmlite.binding import add_symbol
from numba import types
from numba.extending import get_cython_function_address

from pymc_skewgp._gaussian.compiled.rows import Index, jit

# Rows of `of_steps`, numbers that are the same for all draws.
SCALE, SD, SHIFT, SLOPE, LIMIT, SQUARE, LINEAR, SIGN = range(8)

_SQRT_HALF = math.sqrt(0.5)
# As in `univariate`: a limit in the tail asks for other formulas, and small draws for the lower
# tail.
_TAIL_DRAW, _LEFT_DRAW = 10.0, -3.0
_LEAST = 1e-300


# SciPy's, by a symbol: so what calls it can be kept on disk.
_SYMBOL = "pymc_skewgp_ndtri"
add_symbol(_SYMBOL, get_cython_function_address("scipy.special.cython_special", "ndtri"))
_normal_quantile: Any = types.ExternalFunction(_SYMBOL, types.float64(types.float64))


@jit()
def draw_one_sided(points, chol, of_steps, noise, centre, log_weights):  # type: ignore[no-untyped-def]
    """Fill in draws' noise and what it is added to, the latter zeros, and add to `log_weights`.

    False where a limit lies far in a tail.
    """
    n_draws = Index(points.shape[1])
    for k in range(Index(points.shape[0])):
        sign, slope, limit = of_steps[SIGN, k], of_steps[SLOPE, k], of_steps[LIMIT, k]
        scale, sd, shift = of_steps[SCALE, k], of_steps[SD, k], of_steps[SHIFT, k]
        square, linear = of_steps[SQUARE, k], of_steps[LINEAR, k]
        for i in range(k):
            factor = chol[k, i]
            for j in range(n_draws):
                centre[k, j] += factor * noise[i, j]
        for j in range(n_draws):
            c = centre[k, j]
            shifted = slope * c
            bound = sign * (limit - shifted)
            if not bound <= _TAIL_DRAW:  # or not a number
                return False
            # A draw above the bound that a share of the mass there exceeds.
            share = 1.0 - points[k, j] if sign > 0.0 else points[k, j]
            mass = 0.5 * math.erfc(bound * _SQRT_HALF)
            tail = share * mass
            draw = -_normal_quantile(tail if tail > _LEAST else _LEAST)
            if draw <= bound or draw <= _LEFT_DRAW:
                if bound < 0.0:
                    tail = 1.0 - share + share * 0.5 * math.erfc(-bound * _SQRT_HALF)
                    draw = _normal_quantile(tail if tail > _LEAST else _LEAST)
                draw = draw if draw > bound else bound
            noise[k, j] = (sd * (sign * draw + shifted) - shift - c) / scale
            log_weights[j] += math.log(mass) + (square * c - linear) * c
    return True


@jit()
def pull_back(chol, gain, follows, noise_bar, centre_bar):  # type: ignore[no-untyped-def]
    """Fill in `noise_bar`, of zeros, and add to `centre_bar`, from the last row to the first.

    What the draws follow their limits by is multiplied by the former.
    """
    n, n_draws = Index(follows.shape[0]), Index(follows.shape[1])
    for last in range(n):
        k = n - Index(1) - last
        slope, inverse = gain[k], 1.0 / chol[k, k]
        for i in range(k + Index(1), n):
            factor = chol[i, k]
            for j in range(n_draws):
                noise_bar[k, j] += factor * centre_bar[i, j]
        for j in range(n_draws):
            bar = noise_bar[k, j]
            follows[k, j] *= bar
            centre_bar[k, j] += inverse * (slope * (bar - follows[k, j]) - bar)
