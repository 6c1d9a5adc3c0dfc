"""Steps of linear elliptical slice sampling, compiled: feasible arcs of ellipses, and the walk.

A state w = A x and a direction s = A n span the ellipse w cos t + s sin t. A constraint cuts an arc
of angles t out of it; what is left is a set of arcs that holds t = 0, the state itself.
"""

import math
from functools import partial

import numpy as np
from numba import njit

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
def walk(value, block, z, white, uniforms, limits, out):  # type: ignore[no-untyped-def]
    """Run all chains through a block of directions, each overwritten by the state it led to.

    `limits` are the thresholds that arcs come from, the ones a state has to be strictly within,
    and whether the former are a cone. `z` and `white` move along with `value` and `block` (empty
    for a rectangle, which needs no more than these). `out` are the cosine, the arc length and the
    number of active constraints of each step. A step that had to stay is marked by the arc length
    0.
    """
    outer, inner, cone = limits
    cosine, arc_length, n_active = out
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
                gaps, active = general_arcs(w, s, outer[0], outer[1], start, end)
            total = 0.0
            for k in range(gaps):
                total += end[k] - start[k]
            u = uniforms[step, chain]
            c, d = 1.0, 0.0
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
                    outside |= (not x > inner[0, i]) | (not x < inner[1, i])
                if gaps > 0 and not outside:
                    break
                outside = 1
                u += _GOLDEN
                u -= math.floor(u)
            if outside:
                c, d, total = 1.0, 0.0, 0.0
            for i in range(m):
                w[i] = s[i] = w[i] if outside else trial[i]
            for i in range(z.shape[1]):
                z[chain, i] = z[chain, i] * c + white[step, chain, i] * d
                white[step, chain, i] = z[chain, i]
            cosine[step, chain] = c
            arc_length[step, chain], n_active[step, chain] = total, active
