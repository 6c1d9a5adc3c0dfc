"""Values of several functions of a SkewGP, and of their derivatives, as graphs.

The functions have one kernel and mean, and are independent but for a coregionalization matrix B:
cov{f_k(x), f_l(t)} = B_kl k(x, t). Values are in the order of `Values` in the observations' layer.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_skewgp._model.gp.kernel_derivatives import derivative_covariance, derivative_mean
from pymc_skewgp._model.ops.double_precision import in_double
from pymc_skewgp._observations.values import Derivative
from pymc_skewgp._posterior.prior import as_coregion


class ValuesAt(NamedTuple):
    """Values of the first functions, or of a derivative of them, at the rows of a graph.

    Attributes
    ----------
    X : matrix, (n, d)
    n_functions : int
        K.
    derivative : Derivative, or None
    exact : bool
        Whether no jitter is to be added to them, as it would soften a constraint.
    """

    X: Any
    n_functions: int = 1
    derivative: Derivative | None = None
    exact: bool = False

    @property
    def n_rows(self) -> Any:
        """Number n of inputs."""
        return pt.as_tensor_variable(self.X).shape[0]


def as_coregion_graph(value: Any, n_functions: int) -> Any:
    """B as a graph, numbers checked; None for independent functions of the kernel's variance.

    Raises
    ------
    ValueError, NotPositiveDefiniteError
        What is no covariance of so many functions, as far as that is known.
    """
    if not isinstance(value, Variable):
        return as_coregion(value, n_functions)
    shape = (n_functions, n_functions)
    fits = value.type.ndim == 2 and all(n in (None, n_functions) for n in value.type.shape)
    if not fits:
        raise ValueError(
            f"coregion must have shape {shape}, as the data are about {n_functions} function(s); "
            f"got {value.type.shape} (None: any)."
        )
    return pt.specify_shape(pt.cast(value, "float64"), shape)


def kernel_of_values(cov_func: Any, parts: Sequence[ValuesAt]) -> Any:
    """Covariance of one function, or of its derivatives, at the inputs of all parts.

    One evaluation for all that are of the function itself, because a kernel may be more than a
    function of two inputs: white noise at equal inputs is independent between rows.
    """
    groups: dict[Derivative | None, list[int]] = {}
    for i, part in enumerate(parts):
        groups.setdefault(part.derivative, []).append(i)
    inputs = {key: _joined([parts[i].X for i in chosen]) for key, chosen in groups.items()}
    rows: list[list[Any]] = []
    for i, (left, X) in enumerate(inputs.items()):
        blocks = [row[i].T for row in rows]
        for right, Xs in list(inputs.items())[i:]:
            if left is None and right is None:
                blocks.append(cov_func(X))
            else:
                a, b = pt.as_tensor_variable(X), pt.as_tensor_variable(Xs)
                blocks.append(derivative_covariance(cov_func, a, b, left, right))
        rows.append(blocks)
    (matrix,) = in_double([_joined([_joined(blocks, axis=1) for blocks in rows])])
    order = [i for chosen in groups.values() for i in chosen]
    if order == list(range(len(parts))):
        return matrix
    place = _places([parts[i].n_rows for i in order], order)
    return matrix[place][:, place]


def jitter_of_values(parts: Sequence[ValuesAt], jitter: float) -> Any:
    """A diagonal matrix to be added to `kernel_of_values`."""
    if not any(part.exact for part in parts):
        return jitter * pt.eye(sum(part.n_rows for part in parts))
    own = [pt.full((part.n_rows,), np.float64(0.0 if part.exact else jitter)) for part in parts]
    return pt.diag(_joined(own))


def mean_of_values(mean_func: Any, parts: Sequence[ValuesAt]) -> Any:
    """Their means, those of all functions at an input one after the other."""
    means = []
    for part in parts:
        X = pt.as_tensor_variable(part.X)
        if part.derivative is None:
            # Linear with one coefficient gives a column, a constant one number.
            mean = pt.as_tensor_variable(mean_func(part.X)).flatten()
        else:
            mean = derivative_mean(mean_func, X, part.derivative)
        mean = pt.broadcast_to(mean, (X.shape[0],))
        means.append(mean if part.n_functions == 1 else pt.repeat(mean, part.n_functions))
    return _joined(means)


def between_functions(kernel: Any, parts: Sequence[ValuesAt], coregion: Any | None) -> Any:
    """Covariance of all values, from that of one function at all inputs."""
    k = max(part.n_functions for part in parts)
    if k == 1 and coregion is None:
        return kernel
    B = pt.eye(k) if coregion is None else pt.as_tensor_variable(coregion)
    matrix = pt.linalg.kron(kernel, B)
    if all(part.n_functions == k for part in parts):
        return matrix
    kept, start = [], pt.constant(0)
    for part in parts:
        first = start + k * pt.arange(part.n_rows)
        kept.append((first[:, None] + pt.arange(part.n_functions)).flatten())
        start = start + k * part.n_rows
    index = pt.concatenate(kept)
    return matrix[index][:, index]


def _places(lengths: list[Any], order: list[int]) -> Any:
    """Where the rows of each part are, in their own order, if the parts lie in `order`."""
    found: dict[int, Any] = {}
    start: Any = 0
    for i, length in zip(order, lengths, strict=True):
        found[i] = start + pt.arange(length)
        start = start + length
    return pt.concatenate([found[i] for i in range(len(order))])


def _joined(parts: list[Any], axis: int = 0) -> Any:
    return parts[0] if len(parts) == 1 else pt.concatenate(parts, axis=axis)
