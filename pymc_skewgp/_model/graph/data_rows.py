"""Data under a likelihood of `pymc_skewgp.likelihoods` as rows, for graphs.

The rows are computed in NumPy and go into graphs as arrays; what is a random variable of the
likelihood, its noise or its cut-points, enters the graph.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pytensor.graph.basic import Variable

from pymc_skewgp._observations.likelihood import Data, Likelihood
from pymc_skewgp._observations.observations import Observations, as_matrix
from pymc_skewgp._posterior.data_sets import as_likelihood
from pymc_skewgp._validation import FloatArray

# Parameters of likelihoods that may be random.
_LEARNT = ("sigma", "cutpoints")
Arrays = tuple[NDArray[Any], ...]


class RowsOfData(NamedTuple):
    """Rows v = A f + e, e ~ N(0, S), as graphs, f being K functions at the rows of X.

    Attributes
    ----------
    X : TensorVariable, shape (n, d)
    A : TensorVariable, shape (m, n K), or None
        None for the identity.
    S : TensorVariable, shape (m,) or (m, m)
    lower, upper, value : TensorVariable, shape (m,)
        See `Observations`.
    log_constant : TensorVariable, shape ()
    n_functions : int
        K.
    """

    X: Any
    A: Any
    S: Any
    lower: Any
    upper: Any
    value: Any
    log_constant: Any
    n_functions: int


@dataclass(frozen=True, eq=False)
class KnownData:
    """Checked data, their rows as arrays, and the graphs that these arrays go into.

    Attributes
    ----------
    arrays : tuple of ndarray
        Values of `inputs`.
    inputs : list of TensorVariable
    rows : RowsOfData
        Graphs of `inputs` and of random parameters.
    strata : ndarray, shape (n,), or None
        What parts of the data should have equal shares of; None where they cannot be parted,
        because a row of the data is not a row of X.
    """

    arrays: Arrays
    inputs: list[Any]
    rows: RowsOfData
    strata: NDArray[Any] | None

    def part(self, chosen: NDArray[Any]) -> Arrays:
        """`arrays` of some of the data."""
        return tuple(x[chosen] if x.ndim else x for x in self.arrays)


def known_data(X: FloatArray, y: ArrayLike, likelihood: Any) -> KnownData:
    """Check data under a likelihood, some of whose parameters may be random variables.

    Raises
    ------
    TypeError, ValueError
        What is no likelihood, data that do not fit, random parameters other than noise and
        cut-points.
    """
    likelihood = as_likelihood(likelihood)
    random = {
        field.name: getattr(likelihood, field.name)
        for field in fields(likelihood)
        if isinstance(getattr(likelihood, field.name), Variable)
    }
    known = _with_numbers(likelihood, random)
    data = known.as_data(y, X.shape[0])
    found = known.observations(data, X.shape[0])
    k = known.n_functions(data)
    noise = _dense(found.S)
    matrices = [] if found.A is None else [_dense_design(found, X.shape[0] * k)]
    arrays = [
        X,
        found.lower - found.a,
        found.upper - found.a,
        found.value - found.a,
        noise,
        np.asarray(found.log_constant, dtype=np.float64),
        *matrices,
    ]
    inputs = [pt.tensor(dtype=x.dtype, shape=(None,) * x.ndim) for x in arrays]
    inputs[0] = pt.matrix("X", shape=(None, X.shape[1]), dtype="float64")
    x, lower, upper, value, S, log_constant, *designs = inputs
    if "sigma" in random:
        S = _times_variance(S, pt.cast(random["sigma"], "float64"))
    if "cutpoints" in random:
        codes = pt.lvector("category")
        lower, upper = _between(pt.cast(random["cutpoints"], "float64"), codes)
        inputs.append(codes)
        arrays.append(data)
    A = designs[0] if designs else None
    rows = RowsOfData(x, A, S, lower, upper, value, log_constant, k)
    apart = A is None and noise.ndim == 1 and k == 1 and np.ndim(getattr(known, "sigma", 0)) == 0
    strata = _strata(data, found) if apart else None
    return KnownData(tuple(arrays), inputs, rows, strata)


def _with_numbers(likelihood: Likelihood, random: dict[str, Any]) -> Likelihood:
    """`likelihood` with noise 1 and any cut-points in place of random ones."""
    stand_in: dict[str, Any] = {}
    for name, variable in random.items():
        if name not in _LEARNT:
            raise ValueError(
                f"{name} of {type(likelihood).__name__} is a random variable, which is not learnt "
                "from data here: give a number."
            )
        stand_in[name] = 1.0
        if name == "cutpoints":
            count = variable.type.shape[0] if variable.type.ndim == 1 else None
            if count is None:
                raise ValueError(
                    "cutpoints must be a vector whose length is known, as in pm.Normal(..., "
                    f"shape=2); got a variable of shape {variable.type.shape}."
                )
            stand_in[name] = np.arange(float(count))
    changed: Any = likelihood
    return replace(changed, **stand_in) if stand_in else likelihood


def _dense(matrix: Any) -> FloatArray:
    found: FloatArray = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
    return found


def _dense_design(found: Observations, n_values: int) -> FloatArray:
    dense = _dense(as_matrix(found.A, found.n_rows))
    missing = n_values - dense.shape[1]
    return np.pad(dense, ((0, 0), (0, missing))) if missing else dense


def _times_variance(noise: Any, sigma: Any) -> Any:
    """Noise of rows made with sigma = 1, with another one."""
    if noise.type.ndim == 1 or sigma.type.ndim == 0:
        return noise * pt.sqr(sigma)
    return noise * sigma[:, None] * sigma


def _between(cutpoints: Any, codes: Any) -> tuple[Any, Any]:
    """Cut-points below and above each category."""
    end = pt.constant(np.array([np.inf]))
    edges = pt.concatenate([-end, cutpoints, end])
    return edges[codes], edges[codes + 1]


def _strata(data: Data, found: Observations) -> NDArray[Any]:
    if data.ndim == 1 and data.dtype.kind in "iub":
        return data
    return found.is_point
