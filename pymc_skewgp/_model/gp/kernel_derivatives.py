"""Covariances between a process and its derivatives, as graphs.

Sums and products of kernels are taken apart, kernels of the distance have closed forms, and the
others are differentiated by PyTensor: entry (i, j) of a kernel's matrix depends on row i of X and
row j of Xs alone, so that one tangent, a unit vector in every row, gives every entry's derivative.
"""

from collections.abc import Callable, Iterator
from itertools import product
from math import comb, factorial
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pymc.gp import cov as pm_cov
from pytensor.gradient import pushforward
from pytensor.graph.basic import Apply
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors, apply_ancestors
from pytensor.tensor.elemwise import Elemwise

from pymc_skewgp._errors import NotDifferentiableError
from pymc_skewgp._observations.likelihood import Derivative
from pymc_skewgp.cov import NeuralNetwork

# Derivatives of kernels of the scaled distance, in closed form.
#
# With :math:`k(x, t) = h(s)`, :math:`s = \sum_i z_i^2` and :math:`z_i = (x_i - t_i) / \ell_i`,
#
# .. math::
#
#     \frac{\partial^n h}{\partial z^n} = \sum_{2j \le n} \frac{n!}{j!\,(n - 2j)!}
#     (2z)^{n - 2j} h^{(n-j)}(s)
#
# (Faa di Bruno's formula for a square). PyMC's own graphs cannot be differentiated where x and t
# are equal: they clip s at 0, which leaves f' without variance there, and have roots of s.

# Under a root of a distance: what it is multiplied with vanishes faster, and its inverse fourth
# power, in gradients of fourth derivatives, is still a number.
_TINY = 1e-60


class Radial(NamedTuple):
    """A kernel of the distance.

    Attributes
    ----------
    smoothness : float
        How often its functions can be differentiated.
    of_distance : callable
        The m-th derivative of h, as a function of (kernel, m, s).
    """

    smoothness: float
    of_distance: Callable[[Any, int, Any], Any]


def radial_derivative(kernel: Any, X: Any, Xs: Any, left: Derivative, right: Derivative) -> Any:
    """Covariance of a derivative of f at `X` with another one at `Xs`, as a graph (n, m)."""
    difference = _differences(kernel, X, Xs)
    s = pt.sum(pt.square(difference), axis=2)
    orders: dict[int, int] = {}  # by active feature
    scale: Any = (-1.0) ** right.order
    scales = pt.ones(kernel.n_dims) * kernel.ls
    for feature, order in (left, right):
        if order:
            i = list(kernel.active_dims).index(feature)
            orders[i] = orders.get(i, 0) + order
            scale = scale / scales[i] ** order
    of_distance = RADIAL[type(kernel)].of_distance
    total: Any = 0.0
    for halves in product(*(range(n // 2 + 1) for n in orders.values())):
        term: Any = 1.0
        for (i, n), j in zip(orders.items(), halves, strict=True):
            term = term * factorial(n) / (factorial(j) * factorial(n - 2 * j))
            if n > 2 * j:
                term = term * (2.0 * difference[:, :, i]) ** (n - 2 * j)
        total = total + term * of_distance(kernel, sum(orders.values()) - sum(halves), s)
    return scale * total


def _differences(kernel: Any, X: Any, Xs: Any) -> Any:
    """Scaled differences of the active features, shape (n, m, d)."""
    left, right = (pt.as_tensor_variable(x)[:, kernel.active_dims] / kernel.ls for x in (X, Xs))
    return left[:, None, :] - right[None, :, :]


def _exp_quad(kernel: Any, m: int, s: Any) -> Any:
    return (-0.5) ** m * pt.exp(-0.5 * s)


def _rat_quad(kernel: Any, m: int, s: Any) -> Any:
    alpha = kernel.alpha
    rising: Any = 1.0
    for j in range(m):
        rising = rising * (alpha + j)
    return (-0.5 / alpha) ** m * rising * (1.0 + 0.5 * s / alpha) ** (-alpha - m)


def _matern52(kernel: Any, m: int, s: Any) -> Any:
    r = pt.sqrt(5.0 * pt.maximum(s, _TINY))
    decay = pt.exp(-r)
    if m == 0:
        return (1.0 + r + r**2 / 3.0) * decay
    # In units of r: each derivative in s is that in r, times 5 / (2 r).
    return (-5.0 / 6.0) * (
        (1.0 + r) * decay if m == 1 else -2.5 * _after_root(m - 2, r, 2.5) * decay
    )


def _matern32(kernel: Any, m: int, s: Any) -> Any:
    r = pt.sqrt(3.0 * pt.maximum(s, _TINY))
    decay = pt.exp(-r)
    return (1.0 + r) * decay if m == 0 else -1.5 * _after_root(m - 1, r, 1.5) * decay


def _exponential(kernel: Any, m: int, s: Any) -> Any:
    rate = 0.5 if isinstance(kernel, pm_cov.Exponential) else 1.0
    return pt.exp(-rate * pt.sqrt(pt.maximum(s, _TINY)))


def _after_root(m: int, r: Any, half: float) -> Any:
    """The m-th derivative of exp(-r) in s over exp(-r), where dr/ds = half / r."""
    if m == 0:
        return 1.0
    if m == 1:
        return -half / r
    if m == 2:
        return half**2 * (1.0 / r**2 + 1.0 / r**3)
    raise NotImplementedError(f"derivative {m} of exp(-r) is not needed by any kernel here")


RADIAL = {
    pm_cov.ExpQuad: Radial(np.inf, _exp_quad),
    pm_cov.RatQuad: Radial(np.inf, _rat_quad),
    pm_cov.Matern52: Radial(2, _matern52),
    pm_cov.Matern32: Radial(1, _matern32),
    pm_cov.Matern12: Radial(0, _exponential),
    pm_cov.Exponential: Radial(0, _exponential),
}

_SMOOTH = "use ExpQuad, RatQuad or Matern52"
# Known to be smooth as their graphs have them, apart from the kernels inside of them.
_AUTOMATIC = (
    pm_cov.Linear,
    pm_cov.Periodic,
    pm_cov.Gibbs,
    pm_cov.ScaledCov,
    pm_cov.WarpedInput,
    pm_cov.WrappedPeriodic,
    pm_cov.Exponentiated,
    pm_cov.Kron,
    NeuralNetwork,
)
_WITH_A_KINK = (ps.Abs, ps.Sqrt)


def derivative_covariance(
    cov_func: Any, X: Any, Xs: Any, left: Derivative | None, right: Derivative | None
) -> Any:
    """Covariance of one derivative of f at `X` with another one at `Xs`.

    Parameters
    ----------
    cov_func : pymc.gp.cov.BaseCovariance
    X, Xs : matrix, (n, d) and (m, d)
        Graphs whose number of columns is known.
    left, right : Derivative, or None
        What is taken of f at either; None for f itself.

    Returns
    -------
    TensorVariable, (n, m)

    Raises
    ------
    NotDifferentiableError
        It says which kernel is not smooth enough, or not known to be.
    """
    nothing = Derivative(0, 0)
    return _derivative(cov_func, X, Xs, left or nothing, right or nothing)


def derivative_mean(mean_func: Any, X: Any, derivative: Derivative) -> Any:
    """Derivative of a mean function at the rows of `X`, as a graph (n,)."""
    inputs = pt.matrix("X", shape=X.type.shape)
    value = pt.as_tensor_variable(mean_func(inputs)).flatten()
    value = pt.broadcast_to(value, (inputs.shape[0],))
    for _ in range(derivative.order):
        value = _pushed_forward(value, inputs, derivative.feature)
    return graph_replace(value, {inputs: X}, strict=False)


def _derivative(kernel: Any, X: Any, Xs: Any, left: Derivative, right: Derivative) -> Any:
    if isinstance(kernel, pm_cov.Add):
        parts = [_derivative(factor, X, Xs, left, right) for factor in kernel._factor_list]
        return sum(parts[1:], parts[0])
    if isinstance(kernel, pm_cov.Prod):
        return _of_product(kernel._factor_list, X, Xs, left, right)
    if not isinstance(kernel, pm_cov.BaseCovariance):
        return _of_constant(kernel, X, Xs, left, right)
    if not left.order and not right.order:
        return kernel(X, Xs)
    if isinstance(kernel, pm_cov.Constant):
        return pt.zeros((X.shape[0], Xs.shape[0]))
    if isinstance(kernel, pm_cov.WhiteNoise):
        _refuse(
            kernel,
            "is noise, which has no derivative: leave it out of the kernel, and give noise of the "
            "data to their likelihood, as in Gaussian(sigma)",
        )
    if type(kernel) in RADIAL or isinstance(kernel, pm_cov.Cosine | pm_cov.Coregion):
        if any(side.order and side.feature not in kernel.active_dims for side in (left, right)):
            return pt.zeros((X.shape[0], Xs.shape[0]))
        return _of_known(kernel, X, Xs, left, right)
    return _automatic(kernel, X, Xs, left, right)


def _of_product(factors: list[Any], X: Any, Xs: Any, left: Derivative, right: Derivative) -> Any:
    """Leibniz's rule, one factor split off from the rest."""
    if len(factors) == 1:
        return _derivative(factors[0], X, Xs, left, right)
    total: Any = 0.0
    constant = _is_constant(factors[0])
    for i in range(1 if constant else left.order + 1):
        for j in range(1 if constant else right.order + 1):
            first = _derivative(factors[0], X, Xs, left._replace(order=i), right._replace(order=j))
            rest = _of_product(
                factors[1:],
                X,
                Xs,
                left._replace(order=left.order - i),
                right._replace(order=right.order - j),
            )
            total = total + comb(left.order, i) * comb(right.order, j) * first * rest
    return total


def _is_constant(factor: Any) -> bool:
    return isinstance(factor, pm_cov.Constant) or not isinstance(factor, pm_cov.BaseCovariance)


def _of_constant(factor: Any, X: Any, Xs: Any, left: Derivative, right: Derivative) -> Any:
    """Of a number in a sum or a product of kernels."""
    value = pt.as_tensor_variable(factor)
    if not all(value.type.broadcastable):
        raise NotDifferentiableError(
            "a matrix in a sum or product of kernels has no derivative: only numbers and kernels "
            "are functions of the inputs."
        )
    if left.order or right.order:
        return pt.zeros((X.shape[0], Xs.shape[0]))
    return value


def _of_known(kernel: Any, X: Any, Xs: Any, left: Derivative, right: Derivative) -> Any:
    if isinstance(kernel, pm_cov.Coregion):
        _refuse(kernel, "is a function of labels: take the derivative in another feature")
    if isinstance(kernel, pm_cov.Cosine):
        if kernel.n_dims > 1:
            _refuse(kernel, f"of several features has no closed form here: {_SMOOTH}")
        n = left.order + right.order
        angle = 2.0 * np.pi * _differences(kernel, X, Xs)[:, :, 0]
        rate = 2.0 * np.pi / (pt.ones(1) * kernel.ls)[0]
        return (-1.0) ** right.order * rate**n * pt.cos(angle + 0.5 * np.pi * n)
    smoothness = RADIAL[type(kernel)].smoothness
    wanted = max(left.order, right.order)
    if wanted > smoothness:
        times = {0: "at no point", 1: "once only", 2: "twice only"}[int(smoothness)]
        _refuse(
            kernel,
            f"has functions that are differentiable {times}, and not {wanted} time(s): "
            f"{_SMOOTH if wanted <= 2 else 'use ExpQuad or RatQuad'}",
        )
    return radial_derivative(kernel, X, Xs, left, right)


def _automatic(kernel: Any, X: Any, Xs: Any, left: Derivative, right: Derivative) -> Any:
    for inner in _inside(kernel):
        if isinstance(inner, pm_cov.WhiteNoise | pm_cov.Cosine) or (
            type(inner) in RADIAL and RADIAL[type(inner)].smoothness < 3
        ):
            _refuse(inner, f"inside of {type(kernel).__name__} has no derivative here: {_SMOOTH}")
    inputs = [pt.matrix(name, shape=x.type.shape) for name, x in (("X", X), ("Xs", Xs))]
    value = kernel(*inputs)
    if not isinstance(kernel, _AUTOMATIC) and next(_elementwise(value, _WITH_A_KINK), None):
        _refuse(
            kernel,
            "has a root or an absolute value in its graph, and is not known to be differentiable: "
            f"write it as a function of squares, or {_SMOOTH}",
        )
    # What PyMC clips is a squared distance; its derivative at 0 would be lost.
    clipped = {n.outputs[0]: n.inputs[0] for n in _elementwise(value, (ps.Clip,))}
    value = graph_replace(value, clipped) if clipped else value
    for x, side in zip(inputs, (left, right), strict=True):
        for _ in range(side.order):
            value = _pushed_forward(value, x, side.feature)
    return graph_replace(value, dict(zip(inputs, (X, Xs), strict=True)), strict=False)


def _pushed_forward(value: Any, inputs: Any, feature: int) -> Any:
    if inputs not in ancestors([value]):
        return pt.zeros_like(value)
    tangent = pt.set_subtensor(pt.zeros_like(inputs)[:, feature], 1.0)
    return pushforward(value, inputs, tangent, disconnected_outputs="ignore")


def _inside(kernel: Any) -> Iterator[Any]:
    """The kernels that a kernel is made of."""
    found = [getattr(kernel, name, None) for name in ("cov_func", "kernel")]
    for inner in (*found, *getattr(kernel, "_factor_list", ())):
        if isinstance(inner, pm_cov.BaseCovariance):
            yield inner
            yield from _inside(inner)


def _elementwise(value: Any, kinds: tuple[type, ...]) -> Iterator[Apply]:
    for node in apply_ancestors([value]):
        if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, kinds):
            yield node


def _refuse(kernel: Any, why: str) -> NoReturn:
    raise NotDifferentiableError(f"{type(kernel).__name__} {why}.")
