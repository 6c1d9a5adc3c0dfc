"""A standard normal restricted to an interval, one at a time: log mass, moments, edges.

The formulas are those of `univariate` and `univariate_moments`, and so are the places where one
takes over from another.
"""

import math

import numpy as np

from pymc_skewgp._gaussian.compiled.jit import jit, jit_inner

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_SQRT_HALF = math.sqrt(0.5)
_HAZARD_SCALE = math.sqrt(2.0 / math.pi)
# Above this the variance comes from the continued fraction.
_TAIL = 3.0
_FRACTION_TERMS = 50
# exp(-45): a bound so far down is invisible from the other one.
_INVISIBLE = 45.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)
_NODES, _WEIGHTS = 0.5 * (_NODES + 1.0), 0.5 * _WEIGHTS


@jit()
def interval_moments(a, b):  # type: ignore[no-untyped-def]
    """Log mass, mean and variance of a standard normal in (a, b)."""
    sign = 1.0
    if a + b < 0.0:
        a, b, sign = -b, -a, -1.0
    width = b - a
    decay = 0.5 * width * (a + b)
    if b == np.inf or (decay >= _INVISIBLE and a > 0.0):
        log_mass, mean, variance = _above(a)
    elif a <= 1.0 and width >= 1.0:
        log_mass, mean, variance = _between(a, b)
    else:
        log_mass, mean, variance = _summed(a, width)
    return log_mass, sign * mean, min(variance, 1.0)


@jit_inner()
def edge_density(x, log_mass):  # type: ignore[no-untyped-def]
    """Density at the bound x of a standard normal restricted to an interval of that mass."""
    return math.exp(-0.5 * x * x - log_mass - _LOG_SQRT_2PI)


@jit_inner()
def _above(p):  # type: ignore[no-untyped-def]
    """Without an upper bound."""
    if p < -40.0:  # no bound at all, to double precision
        return 0.0, 0.0, 1.0
    if p <= _TAIL:
        twice = math.erfc(p * _SQRT_HALF)
        hazard = _HAZARD_SCALE * math.exp(-0.5 * p * p) / twice
        mass = 0.5 * twice
        log_mass = math.log(mass) if p > -1.0 else math.log1p(-0.5 * math.erfc(-p * _SQRT_HALF))
        return log_mass, hazard, 1.0 - hazard * (hazard - p)
    # Ratios of successive moments of the excess over p; begun at the recursion's fixed point.
    first = 2.0 * _FRACTION_TERMS / (p + math.sqrt(p * p + 4.0 * _FRACTION_TERMS))
    second = first
    for k in range(_FRACTION_TERMS, 0, -1):
        first, second = k / (p + first), first
    hazard = p + first
    log_mass = -0.5 * p * p - _LOG_SQRT_2PI - math.log(hazard)
    return log_mass, hazard, first * (second - first)


@jit_inner()
def _between(p, q):  # type: ignore[no-untyped-def]
    """Wide intervals near 0, in closed form."""
    p, q = max(p, -40.0), min(q, 40.0)  # the density underflows: 0 * inf avoided
    mass = 0.5 * (math.erfc(p * _SQRT_HALF) - math.erfc(q * _SQRT_HALF))
    at_p = math.exp(-0.5 * p * p - _LOG_SQRT_2PI) / mass
    at_q = math.exp(-0.5 * q * q - _LOG_SQRT_2PI) / mass
    mean = at_p - at_q
    log_mass = math.log(mass)
    if p < 0.0:
        log_mass = math.log1p(-0.5 * (math.erfc(-p * _SQRT_HALF) + math.erfc(q * _SQRT_HALF)))
    return log_mass, mean, 1.0 + p * at_p - q * at_q - mean * mean


@jit_inner()
def _summed(p, width):  # type: ignore[no-untyped-def]
    """Narrow or tail intervals by Gauss-Legendre nodes, the density relative to that at p."""
    total, first, second = 0.0, 0.0, 0.0
    for i in range(_NODES.size):
        t = _NODES[i] * width
        mass = _WEIGHTS[i] * math.exp(-t * (p + 0.5 * t))
        total += mass
        first += mass * _NODES[i]
    mean = first / total
    for i in range(_NODES.size):
        t = _NODES[i] * width
        off = _NODES[i] - mean
        second += _WEIGHTS[i] * math.exp(-t * (p + 0.5 * t)) * off * off
    log_mass = math.log(width) + math.log(total) - 0.5 * p * p - _LOG_SQRT_2PI
    return log_mass, p + width * mean, width * width * second / total
