"""From ``pm.gp`` covariance and mean objects to functions of arrays."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable

from pymc_skewgp.kernels.validation import FloatArray

Point = Mapping[str, Any]

# Kernel matrices are evaluated a handful of times: NumPy under PyTensor's own rewrites is there at
# once, where compiling would be most of the wait.
_MODE = Mode(linker="py", optimizer="fast_run")


class ArrayCovariance:
    """A ``pm.gp.cov`` object as a function of arrays, at a point of its hyperparameters.

    Parameters
    ----------
    cov_func : pymc.gp.cov.Covariance
        Kernel; its hyperparameters are numbers or random variables.
    point : mapping, optional
        Values of those random variables by name.
    """

    def __init__(self, cov_func: Any, point: Point | None = None) -> None:
        self._cov_func = cov_func
        self._point = dict(point or {})
        self._compiled: dict[tuple[bool, bool], Any] = {}

    def __call__(
        self, X: FloatArray, Xs: FloatArray | None = None, diag: bool = False
    ) -> FloatArray:
        """Covariance matrix (n, m), or the n variances with ``diag=True``."""
        key = (Xs is not None, diag)
        if key not in self._compiled:
            left, right = pt.matrix("X"), pt.matrix("Xs")
            inputs = [left] if Xs is None else [left, right]
            output = self._cov_func(left, right if Xs is not None else None, diag=diag)
            self._compiled[key] = compile_at(inputs, output, self._point)
        return self._compiled[key](X) if Xs is None else self._compiled[key](X, Xs)


class ArrayMean:
    """A ``pm.gp.mean`` object as a function of arrays, at a point of its hyperparameters."""

    def __init__(self, mean_func: Any, point: Point | None = None) -> None:
        left = pt.matrix("X")
        self._compiled = compile_at([left], mean_func(left), dict(point or {}))

    def __call__(self, X: FloatArray) -> FloatArray:
        """Mean at the rows of `X`, shape (n,)."""
        return np.broadcast_to(self._compiled(X), (X.shape[0],)).astype(np.float64)


def compile_at(inputs: list[Any], output: Any, point: Point) -> Any:
    """Compile `output` with every random variable in it replaced by its value in `point`.

    Raises
    ------
    ValueError
        When a random variable has no value in `point`.
    """
    random = {
        node.name: node
        for node in ancestors([output])
        if node.owner is not None and isinstance(node.owner.op, RandomVariable)
    }
    missing = sorted(str(name) for name in random if name not in point)
    if missing:
        raise ValueError(
            f"the covariance or mean depends on {', '.join(missing)}: give their values in point, "
            f"as in point={{{missing[0]!r}: 1.0}}."
        )
    values = {
        node: pt.as_tensor_variable(np.asarray(point[str(name)], dtype=node.dtype))
        for name, node in random.items()
    }
    return pytensor.function(
        inputs, output, givens=list(values.items()), mode=_MODE, on_unused_input="ignore"
    )
