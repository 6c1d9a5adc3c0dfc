"""Log probability that one of several normal variables is the greatest."""

from math import ceil, sqrt
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.tensor.variable import TensorVariable

from pymc_skewgp._model.ops.log_ndtr import pt_log_ndtr

_ROOT_HALF, _MILLS = np.float64(np.sqrt(0.5)), np.float64(np.sqrt(2.0 / np.pi))
_LOG_2PI = np.float64(np.log(2.0 * np.pi))
# The integrand falls off its mode at least like a standard normal: 3e-11 is left at this distance.
_REACH = 7.0
# Nodes per unit of the least width that it can have, for a relative error below 1e-10.
_DENSITY = 1.15
_N_NEWTON = 6
_N_UNKNOWN = 32  # number of variables that nodes are for where it is not known


def pt_log_greatest(mean: Any, index: Any) -> TensorVariable:
    r"""Log probability that variable c is the greatest of k independent unit normals.

    .. math:: \log \int \phi(z) \prod_{j \ne c} \Phi(\mu_c - \mu_j + z)\, dz

    The integrand is log-concave, and at its mode narrower than a standard normal, by no more than
    a factor of the root of k. The trapezoid rule around the mode converges there like a Gaussian:
    seven units to each side, and 1.15 times the root of k nodes a unit, leave a relative error
    below 1e-10, however improbable the variable. Second derivatives exist.

    Parameters
    ----------
    mean : tensor_variable, shape (..., k)
        mu.
    index : tensor_variable of int, shape (...)
        c, from 0 to k - 1.

    Returns
    -------
    tensor_variable, shape (...)

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_skewgp._model.ops.log_greatest import pt_log_greatest
    >>> log_p = pt_log_greatest(pt.constant([1.0, 0.0]), pt.constant(0))
    >>> print(f"{log_p.exp().eval():.4f}")  # Phi(1 / sqrt(2))
    0.7602
    """
    k = mean.type.shape[-1] or _N_UNKNOWN
    n_nodes = 2 * ceil(_REACH * _DENSITY * sqrt(k)) + 1
    offsets = np.linspace(-_REACH, _REACH, n_nodes)
    step = offsets[1] - offsets[0]
    chosen = pt.eq(pt.arange(mean.shape[-1]), pt.shape_padright(index))
    own = pt.sum(pt.switch(chosen, mean, 0.0), axis=-1, keepdims=True)
    lead = own - mean
    # The sum hardly depends on where its nodes are: they are no part of the derivative.
    nodes = pt.expand_dims(disconnected_grad(_mode(lead, chosen)), -1) + offsets
    z = pt.shape_padright(nodes)
    each = pt_log_ndtr(pt.expand_dims(lead, -2) + z)
    # The variable itself has no factor: log Phi of 0 takes its place, then nothing.
    others = pt.sum(pt.switch(pt.expand_dims(chosen, -2), 0.0, each), axis=-1)
    log_terms = others - 0.5 * (pt.sqr(nodes) + _LOG_2PI)
    return pt.logsumexp(log_terms, axis=-1) + np.log(step)


def _mode(lead: Any, chosen: Any) -> Any:
    """Mode of the integrand, by Newton's method, which rises from 0 without passing it."""
    z = pt.zeros_like(lead[..., 0])
    for _ in range(_N_NEWTON):
        x = lead + pt.shape_padright(z)
        # phi / Phi; right of 30 it is 0, and erfcx overflows.
        ratio = _MILLS / pt.erfcx(-_ROOT_HALF * pt.minimum(x, 30.0))
        curvature = ratio * (ratio + x)
        slope = pt.sum(pt.switch(chosen, 0.0, ratio), axis=-1) - z
        z = z + slope / (1.0 + pt.sum(pt.switch(chosen, 0.0, curvature), axis=-1))
    return z
