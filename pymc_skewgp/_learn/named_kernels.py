"""The kernels that estimators know by name."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm

from pymc_skewgp import cov
from pymc_skewgp._validation import FloatArray

KernelFunction = Callable[[int], Any]

_STATIONARY = {
    "rbf": pm.gp.cov.ExpQuad,
    "matern32": pm.gp.cov.Matern32,
    "matern52": pm.gp.cov.Matern52,
}
KERNELS = (*_STATIONARY, "nn")
_FAR = 100.0  # standard deviations from 0
_WIDE = 5.0  # of a weak prior's standard deviation, in units of what it is about
# For an average: labels with hardly any noise ask for eta far above 5, and an input without any
# effect for a lengthscale far above the start. Normal tails of log(ls) keep weights good.
_WIDEST = 25.0
_LOG_LS, _LOG_LS_SD = 1.0, 1.5


def named_kernel(
    X: FloatArray, name: str, ard: bool, scale: float | None = None, average: bool = False
) -> tuple[Any, dict[str, Any]]:
    """eta^2 times the kernel, and starts at the scale of the inputs.

    To be called inside a ``pm.Model``. Priors are weak, in units of the starts of lengthscales and
    of the `scale` of f; flat without one; weaker still where hyperparameters are averaged over.
    """
    d = X.shape[1]
    if name == "nn":
        first = lengthscale(np.sqrt(np.mean(X**2, axis=0)), ard) / 2.0
    else:
        spread = np.std(X, axis=0)
        # Round-off leaves a constant column a deviation that is tiny, not zero.
        spread[np.ptp(X, axis=0) == 0] = 0.0
        first = lengthscale(spread, ard)
    start = {"eta": 2.0 if scale is None else 2.0 * scale, "ls": first}
    shape = {"shape": d} if ard else {}
    if scale is None:
        eta = pm.HalfFlat("eta")
        ls = pm.HalfFlat("ls", **shape)
    elif average:
        eta = pm.HalfNormal("eta", _WIDEST * scale)
        ls = pm.LogNormal("ls", np.log(first) + _LOG_LS, _LOG_LS_SD, **shape)
    else:
        eta = pm.HalfNormal("eta", _WIDE * scale)
        ls = pm.InverseGamma("ls", 2.0, 3.0 * first, **shape)
    if name == "nn":
        bias = pm.HalfFlat("bias") if scale is None else pm.HalfNormal("bias", _WIDE)
        kernel = cov.NeuralNetwork(d, ls=ls, bias=bias)
        start["bias"] = 1.0
    else:
        kernel = _STATIONARY[name](d, ls=ls)
        centre = X.mean(axis=0)
        if (np.abs(centre) > _FAR * spread).any():
            # Squared distances are differences of squares, which far from 0 have no digits left.
            kernel = pm.gp.cov.WarpedInput(d, kernel, _minus, (centre,))
    return eta**2 * kernel, start


def lengthscale(size: FloatArray, ard: bool) -> Any:
    """Of each input, or of all: distances between rows come out as 1 or so."""
    varies = size > 0
    if not varies.any():
        return np.ones(size.size) if ard else 1.0
    if not ard:
        return float(np.sqrt((size**2).sum()))
    # The lengthscale of a constant column has no effect.
    return np.where(varies, size, 1.0) * np.sqrt(varies.sum())


def _minus(X: Any, centre: FloatArray) -> Any:
    return X - centre
