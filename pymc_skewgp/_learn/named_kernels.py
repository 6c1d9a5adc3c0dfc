"""The kernels that `SkewGPClassifier` knows by name, with flat priors."""

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


def named_kernel(X: FloatArray, name: str, ard: bool) -> tuple[Any, dict[str, Any]]:
    """eta^2 times the kernel, with flat priors, and starts at the scale of the inputs.

    To be called inside a ``pm.Model``.
    """
    d = X.shape[1]
    eta = pm.HalfFlat("eta")
    ls = pm.HalfFlat("ls", shape=d) if ard else pm.HalfFlat("ls")
    if name == "nn":
        bias = pm.HalfFlat("bias")
        size = np.sqrt(np.mean(X**2, axis=0))
        kernel = cov.NeuralNetwork(d, ls=ls, bias=bias)
        start = {"eta": 2.0, "ls": lengthscale(size, ard) / 2.0, "bias": 1.0}
    else:
        kernel = _STATIONARY[name](d, ls=ls)
        spread = np.std(X, axis=0)
        # Round-off leaves a constant column a deviation that is tiny, not zero.
        spread[np.ptp(X, axis=0) == 0] = 0.0
        start = {"eta": 2.0, "ls": lengthscale(spread, ard)}
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
