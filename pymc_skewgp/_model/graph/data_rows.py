"""Data under a likelihood of `pymc_skewgp.likelihoods` as rows, for graphs.

The rows are computed in NumPy and go into graphs as arrays; what is a random variable of the
likelihood, its noise or its cut-points, enters the graph.
"""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pytensor.graph.basic import Variable

from pymc_skewgp._observations.likelihood import Data, Likelihood
from pymc_skewgp._observations.multinomial_probit import MultinomialProbit
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
    """Checked data under a likelihood.

    Attributes
    ----------
    X : ndarray, shape (n, d)
    y : ndarray
    likelihood : Likelihood
        With numbers in place of random parameters.
    random : dict
        These parameters by name, graphs.
    """

    X: FloatArray
    y: Data
    likelihood: Likelihood
    random: dict[str, Any]

    @cached_property
    def arrays(self) -> Arrays:
        """What `inputs` of the rows are, for all the data."""
        return self.part(np.arange(self.X.shape[0]))

    @property
    def strata(self) -> NDArray[Any] | None:
        """What parts of the data should have equal shares of, shape (n,).

        None where they have no parts: an observation is not one row of X, or parameters of the
        likelihood are one a row.
        """
        values = [getattr(self.likelihood, field.name) for field in _fields(self.likelihood)]
        values += self.random.values()
        n = self.X.shape[0]
        by_row = any(x.ndim and len(x) == n for x in values if isinstance(x, np.ndarray))
        by_row |= any(getattr(x, "ndim", 0) for name, x in self.random.items() if name == "sigma")
        if self.likelihood.y_dim != "obs_id" or len(self.y) != n or by_row:
            return None
        if self.y.ndim == 1 and self.y.dtype.kind in "iub":
            return self.y
        if self.y.dtype.kind == "f" and np.isnan(self.y).any():  # outcomes that are not seen
            return ~np.isnan(self.y)
        return self.likelihood.observations(self.y, n).is_point

    def part(self, chosen: NDArray[Any]) -> Arrays:
        """The same for some of the data."""
        whole = chosen.size == self.X.shape[0]
        y = self.y if whole else self.y[chosen]
        found = self.likelihood.observations(y, chosen.size)
        n_values = chosen.size * self.likelihood.n_functions(y)
        arrays = [
            self.X[chosen],
            found.lower - found.a,
            found.upper - found.a,
            found.value - found.a,
            _dense(found.S),
            np.asarray(found.log_constant, dtype=np.float64),
        ]
        if found.A is not None:
            arrays.append(_dense_design(found, n_values))
        return (*arrays, y) if "cutpoints" in self.random else tuple(arrays)

    def rows(self) -> tuple[list[Any], RowsOfData]:
        """Graphs of the rows, and the inputs of these graphs."""
        inputs = [pt.tensor(dtype=x.dtype, shape=(None,) * x.ndim) for x in self.arrays]
        inputs[0] = pt.matrix("X", shape=(None, self.X.shape[1]), dtype="float64")
        x, lower, upper, value, S, log_constant, *others = inputs
        if "sigma" in self.random:
            sigma = pt.cast(self.random["sigma"], "float64")
            if self.likelihood.sigma_of_points_only:
                sigma = pt.switch(pt.isnan(value), np.float64(1.0), sigma)
            S = _times_variance(S, sigma)
        if "cutpoints" in self.random:
            lower, upper = _between(pt.cast(self.random["cutpoints"], "float64"), others.pop())
        A = others[0] if others else None
        k = self.likelihood.n_functions(self.y)
        return inputs, RowsOfData(x, A, S, lower, upper, value, log_constant, k)


def known_data(X: FloatArray, y: ArrayLike, likelihood: Any) -> KnownData:
    """Check data under a likelihood, some of whose parameters may be random variables.

    Raises
    ------
    TypeError, ValueError
        What is no likelihood, or none that hyperparameters are learnt under, data that do not fit,
        random parameters other than noise and cut-points.
    """
    likelihood = as_likelihood(likelihood)
    if likelihood.relative_noise or likelihood.derivative is not None:
        raise ValueError(
            f"hyperparameters are not learnt under {type(likelihood).__name__}: leave it out here, "
            "and give it to SkewGP.posterior."
        )
    random = {
        field.name: getattr(likelihood, field.name)
        for field in _fields(likelihood)
        if isinstance(getattr(likelihood, field.name), Variable)
    }
    known = _with_numbers(likelihood, random)
    data = known.as_data(y, X.shape[0])
    if isinstance(known, MultinomialProbit):  # a part of the data may lack a class
        known = replace(known, n_classes=known.n_functions(data))
    return KnownData(X, data, known, random)


def _fields(likelihood: Any) -> Any:
    return fields(likelihood)


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
