"""To the top of a function with a gradient, within a box: far by L-BFGS, the last bit by Newton."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_skewgp._gaussian.linalg import symmetric
from pymc_skewgp._validation import FloatArray

ValueAndGradient = Callable[[FloatArray], tuple[float, FloatArray]]
Bounds = list[tuple[float, float]]

# Nats: what an evidence is compared to is never finer.
_ENOUGH = 2e-4
_GAIN = 5e-3
# What a twisted evidence of some hundred draws jumps by between two points; its gradient, and with
# it the gain that a step promises, is a tenth as noisy.
_NOISE = 0.02
_SHARE = 0.2
_FLATTEST = 0.05  # curvature, nats a squared unit, that a Newton step takes for granted
_LONGEST = 1.0  # Newton step, in units of the vector
_MAX_STEPS, _MAX_HALVINGS = 8, 3
_DIFFERENCE = 0.03


class Top(NamedTuple):
    """Where a climb ended.

    Attributes
    ----------
    x : ndarray, shape (k,)
    value : float
    gradient : ndarray, shape (k,)
    settled : bool
        Whether it ended because there was nothing left to gain.
    """

    x: FloatArray
    value: float
    gradient: FloatArray
    settled: bool


def climb(function: ValueAndGradient, start: FloatArray, bounds: Bounds, max_iter: int) -> Top:
    """Maximise by L-BFGS-B; minus infinity where `function` has no value is walked around.

    Parameters
    ----------
    function : callable
        Value, or minus infinity, and gradient at a vector.
    start : ndarray, shape (k,)
    bounds : list of pairs
    max_iter : int

    Returns
    -------
    Top
        The best point met.
    """
    from scipy.optimize import minimize  # a tenth of a second that few need

    value, gradient = function(start)
    best = Top(start.copy(), value, gradient, False)
    if not np.isfinite(value) or not start.size:
        return best._replace(settled=np.isfinite(value))
    floor = value

    def descend(x: FloatArray) -> tuple[float, FloatArray]:
        nonlocal best
        found, slope = function(x)
        if not np.isfinite(found):
            # A wall, from which the line search turns back.
            return 1e3 * (1.0 + abs(floor)), np.zeros_like(x)
        if found > best.value:
            best = Top(x.copy(), found, slope, False)
        return -found, -slope

    scale = max(abs(value), 1.0)
    result = minimize(
        descend,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": max_iter, "ftol": _ENOUGH / scale, "gtol": 1e-3, "maxcor": 20},
    )
    return best._replace(settled=bool(result.status == 0))


def curvature(function: ValueAndGradient, x: FloatArray, bounds: Bounds) -> FloatArray:
    """Minus the matrix of second derivatives, from central differences of the gradient.

    Near a bound the difference is taken inside the box.
    """
    low, high = np.transpose(bounds) if x.size else (x, x)
    rows = []
    for i in range(x.size):
        ahead, behind = x.copy(), x.copy()
        ahead[i] = min(x[i] + _DIFFERENCE, high[i])
        behind[i] = max(x[i] - _DIFFERENCE, low[i])
        slope = function(behind)[1] - function(ahead)[1]
        rows.append(slope / (ahead[i] - behind[i]))
    return symmetric(np.array(rows).reshape(x.size, x.size))


def finish(
    function: ValueAndGradient,
    start: FloatArray,
    bounds: Bounds,
    curved: FloatArray,
    noise: Callable[[], float] = float,
) -> Top:
    r"""The last bit, on a function whose every value is dear.

    Newton steps :math:`d = H^{-1} g` with the curvature of a neighbouring function, updated by BFGS
    on the way. They end when the quadratic model has less than .005 nats to gain, :math:`g'd/2`, or
    a fifth of the value's noise. A step may lose .02 nats, or that noise.

    Parameters
    ----------
    function : callable
    start : ndarray, shape (k,)
    bounds : list of pairs
    curved : ndarray, shape (k, k)
        Minus the second derivatives, as known.
    noise : callable
        Tells what the latest value is off by. Default 0.

    Returns
    -------
    Top
    """
    low, high = np.transpose(bounds) if start.size else (start, start)
    inverse = _bounded_inverse(curved)
    value, gradient = function(start)
    top, off = Top(start, value, gradient, False), noise()
    if not np.isfinite(value) or not start.size:
        return top._replace(settled=np.isfinite(value))
    for _ in range(_MAX_STEPS):
        # At a bound that it is pushed against a coordinate stays.
        inside = ~((top.x <= low) & (top.gradient < 0) | (top.x >= high) & (top.gradient > 0))
        slope = np.where(inside, top.gradient, 0.0)
        step = np.where(inside, inverse @ slope, 0.0)
        promise = 0.5 * slope @ step
        if promise < max(_GAIN, _SHARE * off):
            return top._replace(settled=True)
        step *= min(1.0, _LONGEST / np.abs(step).max())
        for _ in range(_MAX_HALVINGS):
            x = np.clip(top.x + step, low, high)
            value, gradient = function(x)
            if value > top.value - max(_NOISE, off):
                break
            step = 0.5 * step
        else:
            return top._replace(settled=bool(promise < max(_NOISE, off)))
        inverse = _bfgs(inverse, x - top.x, top.gradient - gradient)
        top, off = Top(x, value, gradient, False), noise()
    return top


def _bounded_inverse(curved: FloatArray) -> FloatArray:
    values, vectors = np.linalg.eigh(curved)
    # Where it is not concave a step along the slope is right, of moderate length.
    inverse: FloatArray = (vectors / np.maximum(np.abs(values), _FLATTEST)) @ vectors.T
    return inverse


def _bfgs(inverse: FloatArray, step: FloatArray, change: FloatArray) -> FloatArray:
    """Update of an inverse curvature by what a step showed of it."""
    product = float(step @ change)
    if product <= 1e-8 * float(np.linalg.norm(step) * np.linalg.norm(change)):
        return inverse
    left = np.eye(step.size) - np.outer(step, change) / product
    return left @ inverse @ left.T + np.outer(step, step) / product
