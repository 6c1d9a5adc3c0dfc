"""The posterior given data that are dask arrays: their rows stay on the workers of a cluster."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike
from xarray import DataTree

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.likelihood import Likelihood, as_inputs
from pymc_skewgp._observations.real_values import Gaussian
from pymc_skewgp._posterior.automatic import automatic
from pymc_skewgp._posterior.dask_blocks import BuiltBlocks, DaskBlocks, built_blocks
from pymc_skewgp._posterior.data_blocks import cuts_into_rows
from pymc_skewgp._posterior.features import FunctionFeatures, finite_rank_prior
from pymc_skewgp._posterior.finite_rank_fit import FiniteRankFit, FiniteRankValues, are_values
from pymc_skewgp._posterior.posterior import SkewGPPosterior, as_row_numbers
from pymc_skewgp._posterior.prior import Approximation, DataSet, Prior, as_likelihood
from pymc_skewgp._posterior.vecchia import Vecchia
from pymc_skewgp._sun.sun import SUN
from pymc_skewgp._validation import FloatArray, Seed

# Data as dask arrays whose chunks are rows: what of them comes to this process, and what not.

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

    def blocks(self, features: FunctionFeatures, prior: Prior) -> DaskBlocks:
        """Of all rows, on the workers."""
        build = partial(_built_of_chunks, self.likelihood, features, prior)
        return DaskBlocks(self.client, [(chunks, build) for chunks in self.groups()])


def _built_of_chunks(
    likelihood: Likelihood, features: FunctionFeatures, prior: Prior, chunks: Sequence[Any]
) -> BuiltBlocks:
    """From chunks (first row, X, y) to blocks, on the worker that has them."""
    sets = [as_data_set(likelihood, X, y, start + np.arange(len(y))) for start, X, y in chunks]
    return built_blocks(sets, features, prior)


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


_log = logging.getLogger("pymc.pymc_skewgp")


class DistributedPosterior(SkewGPPosterior):
    r"""Posterior under an approximated prior, given rows that the workers of a cluster keep.

    `SkewGP.posterior` makes one where X and y are dask arrays and there is a
    ``dask.distributed.Client``:

    .. code-block:: python

        client = dask.distributed.Client()
        posterior = gp.posterior(X, y)  # dask arrays

    Each worker has a contiguous part of the chunks, computes the features of its rows, and keeps
    them and their sites of expectation propagation (EP). A sweep sends a worker :math:`8 r (r + 1)`
    bytes and gets :math:`8 r (r + 2)` back, r being the number of features; N pairs of draws
    send :math:`8 r N` bytes and get :math:`16 N` back. Random 20,000 rows come to the client, which
    checks them and chooses features from them; all others stay where they are. Results are those
    of one process, to round-off.

    When a worker is lost, its features are computed again on another one and its part of EP's
    sweeps is repeated there: all goes on as if nothing had happened, and gives the same numbers to
    the bit. The chunks must be such that dask can compute them again.

    What there is: `log_marginal_likelihood`, `latent`, `sample`, which without ``rows=`` keeps
    coordinates and has no groups of the data, `at_rows` for f, new data and log likelihoods at
    chosen rows, `predict`, `probability`, `marginals` at new points. `sun`, `update`,
    `prior_report`, marginals at the data and weights are refused.

    Parameters
    ----------
    X, y : dask.array.Array, shape (n, d) and (n,)
        Data, in chunks of rows.
    likelihood : Likelihood, optional
        Of observations of one row each. Default ``BernoulliProbit()``.
    approximation : Approximation or "auto", default "auto"
        Of ``pymc_skewgp.approximations``; "auto" is `Inducing`, as for NumPy arrays.
    **options
        As those of `SkewGPPosterior`.

    Raises
    ------
    ApproximationError
        Without an approximation; for likelihoods that cannot be cut into rows; for options and
        methods that rows on workers do not have.
    TypeError, ValueError
        When only one of X and y is a dask array, for chunks of unknown sizes, and where there is no
        client. For other faults of the data as `SkewGPPosterior`, those beyond the 20,000 rows
        when the posterior is first asked for something.
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        *,
        likelihood: Likelihood | None = None,
        approximation: Approximation | str | None = "auto",
        **options: Any,
    ) -> None:
        for name in ("weights", "coregion"):
            if options.pop(name, None) is not None:
                _refuse(f"{name}=", "leave it out, or pass NumPy arrays")
        if approximation is None:
            _refuse("the kernel as it is", "give SkewGP an approximation, such as Inducing(300)")
        if isinstance(approximation, Vecchia):
            _refuse("Vecchia", "take Inducing, or pass NumPy arrays")
        self._data = as_chunked_data(X, y, as_likelihood(likelihood))
        if isinstance(approximation, str):
            approximation = automatic(self._data.n_rows)
            _log.info(f"{self._data.n_rows} rows: the prior is approximated by {approximation}.")
        some = self._data.some
        super().__init__(
            some.X, some.y, likelihood=some.likelihood, approximation=approximation, **options
        )
        _ = self._fit  # refuses likelihoods that are no sites

    @cached_property
    def _fit_of_rows(self) -> FiniteRankFit:
        data, sets = self._data, (self._data.some,)
        prior, features = finite_rank_prior(self._prior, data.some.X)
        # Of other likelihoods not all rows need be points where those are that came here.
        closed = isinstance(data.likelihood, Gaussian) and are_values(sets, prior)
        fit = (FiniteRankValues if closed else FiniteRankFit)(prior, features, sets, data)
        if fit.n_functions > 1:
            raise ApproximationError(
                f"{data.likelihood!r} is about several functions, which rows as dask arrays do "
                "not take: give them as NumPy arrays, in rows_on to keep them on the workers."
            )
        return fit

    def __repr__(self) -> str:
        data = self._data
        return (
            f"DistributedPosterior(n={data.n_rows}, n_features={data.X.shape[1]}, "
            f"likelihood={data.likelihood!r}, n_pseudo_points={self._prior.n_pseudo_points}, "
            f"approximation={self._prior.approximation!r}, fitted={self._fit.fitted})"
        )

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood of all rows."""
        return self._data.likelihood

    @property
    def sun(self) -> SUN:
        """Refused: it has a dimension for each row."""
        return _refuse("sun", "it has a latent dimension for each row; use sample or predict")

    def _kept(
        self, coordinates: FloatArray, log_weight: FloatArray, attributes: dict[str, Any]
    ) -> DataTree:
        tree = super()._kept(coordinates, log_weight, attributes)
        kept = ("posterior", "sample_stats")  # the data are on the workers
        return DataTree.from_dict({name: tree[name].to_dataset() for name in kept})

    def _chosen(self, rows: ArrayLike) -> tuple[IntArray, tuple[DataSet, ...]]:
        index = as_row_numbers(rows, self._data.n_rows)
        return index, (self._data.rows(index),)

    def update(
        self, Xnew: ArrayLike | None, ynew: ArrayLike, *, name: str | None = None
    ) -> SkewGPPosterior:
        """Refused: make a posterior of all chunks."""
        return _refuse("update", "concatenate the dask arrays, and ask for their posterior")

    def prior_report(self, n_rows: int = 1000, *, random_seed: Seed = 0) -> NoReturn:
        """Refused: ask for the report of a part of the rows."""
        _refuse("prior_report", "ask it of the posterior of a part of the rows, as NumPy arrays")


def _refuse(what: str, instead: str) -> NoReturn:
    raise ApproximationError(
        f"{what} is not available for dask arrays, whose rows stay on the workers: {instead}."
    )
