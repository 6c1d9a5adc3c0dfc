r"""Derivatives of kernels of the scaled distance, in closed form.

With :math:`k(x, t) = h(s)`, :math:`s = \sum_i z_i^2` and :math:`z_i = (x_i - t_i) / \ell_i`,

.. math::

    \frac{\partial^n h}{\partial z^n} = \sum_{2j \le n} \frac{n!}{j!\,(n - 2j)!}
    (2z)^{n - 2j} h^{(n-j)}(s)

(Faa di Bruno's formula for a square). PyMC's own graphs cannot be differentiated where x and t are
equal: they clip s at 0, which leaves f' without variance there, and have roots of s.
"""

from collections.abc import Callable
from itertools import product
from math import factorial
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pymc.gp import cov as pm_cov

from pymc_skewgp._observations.values import Derivative

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


def cosine_derivative(kernel: Any, X: Any, Xs: Any, left: Derivative, right: Derivative) -> Any:
    """The same for the Cosine kernel of one active feature."""
    n = left.order + right.order
    angle = 2.0 * np.pi * _differences(kernel, X, Xs)[:, :, 0]
    rate = 2.0 * np.pi / (pt.ones(1) * kernel.ls)[0]
    return (-1.0) ** right.order * rate**n * pt.cos(angle + 0.5 * np.pi * n)


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
