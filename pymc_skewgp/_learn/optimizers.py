"""The optimum of a function with a gradient, in a box: by L-BFGS, then by Newton steps."""

from typing import NamedTuple

import numpy as np

from pymc_skewgp._gaussian.linalg import symmetric
from pymc_skewgp._learn.point import Bounds, Function, Point, Value
from pymc_skewgp._learn.settings import OptimizerSettings
from pymc_skewgp._validation import FloatArray


class Optimum(NamedTuple):
    """Where an ascent ended.

    Attributes
    ----------
    point : Point
    value : Value
    converged : bool
        Whether it ended because there was nothing left to gain.
    """

    point: Point
    value: Value
    converged: bool


class NoValueError(ValueError):
    """A function to be maximised is minus infinity at every start."""


def with_value(optima: list[Optimum], what: str) -> list[Optimum]:
    """Those with a finite value.

    Raises
    ------
    NoValueError
        Where there are none: `what` has no value.
    """
    found = [optimum for optimum in optima if np.isfinite(optimum.value.total)]
    if not found:
        raise NoValueError(
            f"the {what} has no value at any start: check the priors, the scale of the inputs and "
            "start; and, where there are pseudo-points, whether their phases contradict each other "
            "(SkewGP.posterior says so)."
        )
    return found


def maximize(
    function: Function, start: Point, bounds: Bounds, settings: OptimizerSettings
) -> Optimum:
    """Maximise by L-BFGS-B; the line search turns back where `function` is minus infinity.

    Parameters
    ----------
    function : callable
    start : Point
    bounds : list of pairs
        Of the continuous part.
    settings : OptimizerSettings

    Returns
    -------
    Optimum
        The best point met.
    """
    from scipy.optimize import minimize  # a tenth of a second that few need

    first = function(start)
    best = Optimum(start, first, False)
    if not np.isfinite(first.total) or not start.x.size:
        return best._replace(converged=bool(np.isfinite(first.total)))

    def negative(x: FloatArray) -> tuple[float, FloatArray]:
        nonlocal best
        point = start.at(x.copy())
        found = function(point)
        if not np.isfinite(found.total):
            return 1e3 * (1.0 + abs(first.total)) / scale, np.zeros_like(x)
        if found.total > best.value.total:
            best = Optimum(point, found, False)
        return -found.total / scale, -found.gradient / scale

    scale = max(1.0, float(np.linalg.norm(first.gradient)) / settings.first_step)
    tolerance = settings.tolerance / max(abs(first.total), scale)
    result = minimize(
        negative,
        start.x,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={
            "maxiter": settings.max_iterations,
            "ftol": tolerance,
            "gtol": settings.gradient_tolerance / scale,
            "maxcor": 20,
        },
    )
    return best._replace(converged=bool(result.status == 0))


def negative_hessian(
    function: Function, point: Point, bounds: Bounds, settings: OptimizerSettings
) -> FloatArray:
    """Minus the matrix of second derivatives, from central differences of the gradient.

    Near a bound the difference is taken inside the box.
    """
    x = point.x
    low, high = np.transpose(bounds) if x.size else (x, x)
    rows = []
    for i in range(x.size):
        ahead, behind = x.copy(), x.copy()
        ahead[i] = min(x[i] + settings.difference, high[i])
        behind[i] = max(x[i] - settings.difference, low[i])
        fall = function(point.at(behind)).gradient - function(point.at(ahead)).gradient
        rows.append(fall / (ahead[i] - behind[i]))
    return symmetric(np.array(rows).reshape(x.size, x.size))


def newton(
    function: Function,
    start: Point,
    bounds: Bounds,
    hessian: FloatArray,
    settings: OptimizerSettings,
) -> Optimum:
    r"""Newton steps, for a function whose every value is expensive and noisy.

    The steps :math:`d = H^{-1} g` use the negative Hessian of a neighbouring function, updated by
    BFGS. They end when the quadratic model has less to gain, :math:`g'd/2`, than
    `settings.newton_gain` or its share of the value's noise.

    Parameters
    ----------
    function : callable
    start : Point
    bounds : list of pairs
    hessian : ndarray, shape (k, k)
        Negative Hessian, as known.
    settings : OptimizerSettings

    Returns
    -------
    Optimum
    """
    low, high = np.transpose(bounds) if start.x.size else (start.x, start.x)
    inverse = _bounded_inverse(hessian, settings.least_hessian)
    point, value = start, function(start)
    if not np.isfinite(value.total) or not start.x.size:
        return Optimum(point, value, bool(np.isfinite(value.total)))
    for _ in range(settings.max_steps):
        # A coordinate stays at a bound that the gradient pushes it against.
        x, gradient = point.x, value.gradient
        inside = ~((x <= low) & (gradient < 0) | (x >= high) & (gradient > 0))
        slope = np.where(inside, gradient, 0.0)
        step = np.where(inside, inverse @ slope, 0.0)
        gain = 0.5 * slope @ step
        if gain < max(settings.newton_gain, settings.noise_share * value.noise):
            return Optimum(point, value, True)
        step *= min(1.0, settings.longest_step / np.abs(step).max())
        loss = max(settings.newton_loss, value.noise)
        for _ in range(settings.max_halvings):
            next_point = point.at(np.clip(x + step, low, high))
            found = function(next_point)
            if found.total > value.total - loss:
                break
            step = 0.5 * step
        else:
            return Optimum(point, value, bool(gain < loss))
        inverse = _bfgs(inverse, next_point.x - x, gradient - found.gradient)
        point, value = next_point, found
    return Optimum(point, value, False)


def _bounded_inverse(hessian: FloatArray, least: float) -> FloatArray:
    values, vectors = np.linalg.eigh(hessian)
    # Where it is not concave a step along the slope is right, of moderate length.
    inverse: FloatArray = (vectors / np.maximum(np.abs(values), least)) @ vectors.T
    return inverse


def _bfgs(inverse: FloatArray, step: FloatArray, change: FloatArray) -> FloatArray:
    """Update of an inverse Hessian by the change of the gradient over a step."""
    product = float(step @ change)
    if product <= 1e-8 * float(np.linalg.norm(step) * np.linalg.norm(change)):
        return inverse
    left = np.eye(step.size) - np.outer(step, change) / product
    return left @ inverse @ left.T + np.outer(step, step) / product
