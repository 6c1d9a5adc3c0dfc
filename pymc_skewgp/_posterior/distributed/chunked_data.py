"""Data as dask arrays whose chunks are rows: what of them comes to this process, and what not."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.arguments import as_inputs
from pymc_skewgp._observations.likelihood import Likelihood
from pymc_skewgp._posterior.data_sets import DataSet
from pymc_skewgp._posterior.row_predictors import cuts_into_rows

# Rows that come here: features are chosen from them, and they are checked at once.
_SOME_ROWS = 20_000
_SEED = 0


def is_dask(value: Any) -> bool:
    """Whether it is a collection of dask."""
    return hasattr(value, "__dask_graph__")


@dataclass(frozen=True)
class ChunkedData:
    """Rows of X and y, in chunks of the same rows, and the client of the cluster that has them.

    Attributes
    ----------
    X, y : dask.array.Array, shape (n, d) and (n,)
    likelihood : Likelihood
    client : distributed.Client
    """

    X: Any
    y: Any
    likelihood: Likelihood
    client: Any

    @property
    def n_rows(self) -> int:
        """Number n of rows."""
        return int(self.X.shape[0])

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Rows of each chunk."""
        return tuple(self.X.chunks[0])

    @cached_property
    def some_rows(self) -> IntArray:
        """A random part of the rows, with those at which a column is least or largest."""
        X, n = self.X, self.n_rows
        rng = np.random.default_rng(_SEED)
        chosen = rng.choice(n, min(n, _SOME_ROWS), replace=False)
        extremes = self._computed(X.argmin(axis=0), X.argmax(axis=0))
        return np.unique(np.concatenate([chosen, *extremes]))

    @cached_property
    def some(self) -> DataSet:
        """Data of `some_rows`."""
        return self.rows(self.some_rows)

    def rows(self, index: IntArray) -> DataSet:
        """These rows, in this process."""
        X, y = self.arrays(index)
        return as_data_set(self.likelihood, X, y, index)

    def arrays(self, index: IntArray) -> tuple[Any, Any]:
        """X and y of these rows, not checked."""
        X, y = self._computed(self.X[index], self.y[index])
        return X, y

    def _computed(self, *values: Any) -> list[Any]:
        # As `groups` has the chunks: optimised graphs would have other tasks of the same names.
        return list(self.client.gather(self.client.compute(values, optimize_graph=False)))

    def groups(self) -> list[list[Any]]:
        """Chunks as Delayed (first row, X, y), in contiguous groups of about as many rows.

        One for each worker.
        """
        import dask

        n_groups = max(1, len(self.client.scheduler_info(n_workers=-1)["workers"]))
        X, y = (x.to_delayed(optimize_graph=False).ravel() for x in (self.X, self.y))
        sizes = np.array(self.X.chunks[0])
        starts = np.cumsum(sizes) - sizes
        # By the middle of each chunk.
        place = (starts + 0.5 * sizes) * n_groups / sizes.sum()
        groups: list[list[Any]] = [[] for _ in range(n_groups)]
        for i in range(sizes.size):
            groups[int(place[i])].append(dask.delayed((int(starts[i]), X[i], y[i])))
        return [group for group in groups if group]


def as_chunked_data(X: Any, y: Any, likelihood: Likelihood) -> ChunkedData:
    """Dask arrays with chunks of the same rows, checked as far as their shapes go.

    Raises
    ------
    TypeError, ValueError
        For what are no dask arrays of known shape, or where there is no client.
    ApproximationError
        For a likelihood that cannot be cut into rows.
    """
    for name, value in (("X", X), ("y", y)):
        if not (is_dask(value) and hasattr(value, "chunks")):
            found = type(value).__name__
            raise TypeError(
                f"X and y must both be dask arrays, or neither; {name} is a {found}. "
                "dask.array.from_array and DataFrame.to_dask_array(lengths=True) make them."
            )
        if np.isnan(value.shape).any():
            raise ValueError(
                f"the chunks of {name} have unknown sizes: call {name}.compute_chunk_sizes()."
            )
    X = X[:, None] if X.ndim == 1 else X
    if X.ndim != 2 or y.ndim != 1 or X.shape[0] != y.shape[0] or not X.shape[0]:
        raise ValueError(
            "X must have shape (n, d) and y shape (n,), with at least one row; got "
            f"{X.shape} and {y.shape}."
        )
    if not cuts_into_rows(likelihood):
        raise ApproximationError(
            f"{likelihood!r} cannot be cut into rows, which workers of a cluster would keep: take "
            "a likelihood of pymc_skewgp.likelihoods whose observations are of one row each."
        )
    # Without chunks that have no rows, as filters leave them.
    X = X.rechunk({0: tuple(size for size in X.chunks[0] if size), 1: -1})
    return ChunkedData(X, y.rechunk((X.chunks[0],)), likelihood, _client())


def as_data_set(likelihood: Likelihood, X: Any, y: Any, index: IntArray) -> DataSet:
    """Rows of the data with these numbers, checked."""
    own = likelihood.of_observations(index, y)
    inputs = as_inputs("X", X)
    return DataSet("", inputs, own.as_data(y, inputs.shape[0]), own)


def _client() -> Any:
    """The current one of dask."""
    try:
        from distributed import default_client
    except ImportError as error:
        raise ImportError(
            "data as dask arrays need dask's scheduler: pip install pymc_skewgp[dask]."
        ) from error
    try:
        return default_client()
    except ValueError as error:
        raise ValueError(
            "data as dask arrays need a cluster: make a client first, as in "
            "client = dask.distributed.Client(), or pass NumPy arrays."
        ) from error
