"""Blocks of rows on the workers of a dask cluster.

A worker keeps its rows; a sweep sends it r x r numbers and gets as many back. Every call is a task
from the state of a part of the rows to the next one, so that dask makes what a lost worker had
again, from the data on.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from operator import itemgetter
from typing import Any

import numpy as np

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._gaussian.blocks.blocks import LocalBlocks, added
from pymc_skewgp._gaussian.blocks.row_block import RowBlock
from pymc_skewgp._posterior.approximations.features import Features
from pymc_skewgp._posterior.data_sets import DataSet
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._posterior.row_predictors import is_whole, part_of, predictor_rows

_READS = frozenset({"sums", "log_prob", "pair_log_probs", "missing"})
_client: ContextVar[Any] = ContextVar("_client", default=None)


@contextmanager
def rows_on(client: Any) -> Iterator[None]:
    """Keep the rows of data on the workers of a dask cluster.

    Posteriors under an approximated prior that are first asked for anything in this context have
    their rows there, each thread of each worker an equal part of them. A sweep of expectation
    propagation sends :math:`8 r^2` bytes to every worker and gets :math:`8 r^2` back, with r
    features; N pairs send :math:`8 r N` bytes and get :math:`16 N` back. Results are those of one
    process, to round-off. What a lost worker had is made again on the others.

    Parameters
    ----------
    client : distributed.Client
        Of the cluster, which must last as long as the posterior is used.

    Raises
    ------
    ApproximationError
        When the posterior is asked for something: for likelihoods that cannot be cut into rows,
        such as comparisons, or PyMC distributions given as a function.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_skewgp as sg
    >>> from distributed import Client  # doctest: +SKIP
    >>> def rbf(X, Xs=None, diag=False):
    ...     if diag:
    ...         return np.ones(len(X))
    ...     return np.exp(-0.5 * (X - (X if Xs is None else Xs).T) ** 2)
    >>> x = np.linspace(-3.0, 3.0, 200)
    >>> points = sg.approximations.Inducing(x[::50])
    >>> posterior = sg.SkewGPPosterior(x, x > 0, cov_func=rbf, approximation=points)
    >>> with Client() as client, sg.rows_on(client):  # doctest: +SKIP
    ...     evidence = posterior.log_marginal_likelihood
    >>> print(f"{evidence.value:.1f}")  # doctest: +SKIP
    -56.5
    """
    token = _client.set(client)
    try:
        yield
    finally:
        _client.reset(token)


def current_client() -> Any:
    """That of `rows_on`, or None."""
    return _client.get()


class DaskBlocks:
    """Parts of the rows on workers; see `Blocks`.

    Parameters
    ----------
    client : distributed.Client
    sets : tuple of DataSet
    features : Features
    prior : Prior
    """

    def __init__(
        self, client: Any, sets: tuple[DataSet, ...], features: Features, prior: Prior
    ) -> None:
        for data in sets:
            if data.likelihood.y_dim != "obs_id" or is_whole(data):
                raise ApproximationError(
                    f"{data.likelihood!r} cannot be cut into rows, which workers of a cluster "
                    "would keep: leave out rows_on, or take a likelihood of "
                    "pymc_skewgp.likelihoods."
                )
        self._client = client
        n_parts = max(1, sum(client.nthreads().values()))
        pieces = [_pieces(data, n_parts) for data in sets]
        self._parts: list[Any] = []
        process = self._sent((features, prior))
        for part in zip(*pieces, strict=True):
            self._parts.append(client.submit(_blocks_of, self._sent(part), process, pure=False))
        constants = client.gather([client.submit(itemgetter(1), x) for x in self._parts])
        self._parts = [client.submit(itemgetter(0), x) for x in self._parts]
        self.log_constant = float(sum(constants))
        self.n_rows = sum(data.X.shape[0] for data in sets)
        self.rank = features.rank

    def total(self, method: str, *arguments: Any) -> Any:
        """See `Blocks`."""
        client, sent = self._client, self._sent(arguments)
        if method in _READS:
            found = [client.submit(_read, x, method, sent, pure=False) for x in self._parts]
            return added(client.gather(found))
        both = [client.submit(_changed, x, method, sent, pure=False) for x in self._parts]
        self._parts = [client.submit(itemgetter(0), x) for x in both]
        return added(client.gather([client.submit(itemgetter(1), x) for x in both]))

    def _sent(self, value: Any) -> Any:
        """On one worker, from where the others fetch it; a task, so that it can be had again."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")
            return self._client.submit(_same, value, pure=False)


def _pieces(data: DataSet, n_parts: int) -> Sequence[DataSet]:
    """Contiguous parts of the rows, of nearly equal size."""
    return [part_of(data, index) for index in np.array_split(np.arange(data.X.shape[0]), n_parts)]


def _same(value: Any) -> Any:
    return value


def _blocks_of(
    sets: Sequence[DataSet], process: tuple[Features, Prior]
) -> tuple[list[RowBlock], float]:
    """Blocks of a part, and the constant of their log probability."""
    found = [rows for data in sets if data.X.shape[0] for rows in predictor_rows(data, *process)]
    return [rows.block for rows in found], sum(rows.log_constant for rows in found)


def _read(blocks: list[RowBlock], method: str, arguments: tuple[Any, ...]) -> Any:
    return LocalBlocks(blocks).total(method, *arguments)


def _changed(
    blocks: list[RowBlock], method: str, arguments: tuple[Any, ...]
) -> tuple[list[RowBlock], Any]:
    """New states: the old ones may be needed again. The factors are the same arrays."""
    new = [copy(block) for block in blocks]
    return new, LocalBlocks(new).total(method, *arguments)
