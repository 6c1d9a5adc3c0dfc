"""The twisted sampler's draws, and the reverse of their recursion, for rows with one limit each.

What `TwistedProposal.draw` and `NumpyDraws` compute, without Python's lock: chains in threads draw
side by side. A row's sign is 1 for a lower limit and -1 for an upper one; times the sign all limits
are lower ones. Arrays of draws have one row for each row of the rectangle.
"""

import math

import numpy as np

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


@jit_inner()
def _normal_quantile(p):  # type: ignore[no-untyped-def]
    """Wichura's algorithm AS 241 (1988, doi:10.2307/2347330), to 1e-16."""
    q = p - 0.5
    if abs(q) <= 0.425:
        r = 0.180625 - q * q
        top = 2509.0809287301226727 * r + 33430.575583588128105
        top = ((top * r + 67265.770927008700853) * r + 45921.953931549871457) * r
        top = ((top + 13731.693765509461125) * r + 1971.5909503065514427) * r
        top = (top + 133.14166789178437745) * r + 3.387132872796366608
        low = 5226.495278852854561 * r + 28729.085735721942674
        low = ((low * r + 39307.89580009271061) * r + 21213.794301586595867) * r
        low = ((low + 5394.1960214247511077) * r + 687.1870074920579083) * r
        low = (low + 42.313330701600911252) * r + 1.0
        return q * top / low
    r = math.sqrt(-math.log(min(p, 1.0 - p)))
    if r <= 5.0:
        r -= 1.6
        top = 7.7454501427834140764e-4 * r + 0.0227238449892691845833
        top = ((top * r + 0.24178072517745061177) * r + 1.27045825245236838258) * r
        top = ((top + 3.64784832476320460504) * r + 5.7694972214606914055) * r
        top = (top + 4.6303378461565452959) * r + 1.42343711074968357734
        low = 1.05075007164441684324e-9 * r + 5.475938084995344946e-4
        low = ((low * r + 0.0151986665636164571966) * r + 0.14810397642748007459) * r
        low = ((low + 0.68976733498510000455) * r + 1.6763848301838038494) * r
        low = (low + 2.05319162663775882187) * r + 1.0
    else:
        r -= 5.0
        top = 2.01033439929228813265e-7 * r + 2.71155556874348757815e-5
        top = ((top * r + 0.0012426609473880784386) * r + 0.026532189526576123093) * r
        top = ((top + 0.29656057182850489123) * r + 1.7848265399172913358) * r
        top = (top + 5.4637849111641143699) * r + 6.6579046435011037772
        low = 2.04426310338993978564e-15 * r + 1.4215117583164458887e-7
        low = ((low * r + 1.8463183175100546818e-5) * r + 7.868691311456132591e-4) * r
        low = ((low + 0.0148753612908506148525) * r + 0.13692988092273580531) * r
        low = (low + 0.59983220655588793769) * r + 1.0
    return top / low if q > 0.0 else -top / low


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
