"""Data of this process as rows on the workers of a dask cluster."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._posterior.approximations.several_functions import FunctionFeatures
from pymc_skewgp._posterior.data_sets import DataSet
from pymc_skewgp._posterior.distributed.dask_blocks import DaskBlocks
from pymc_skewgp._posterior.distributed.dask_groups import Group
from pymc_skewgp._posterior.distributed.kept_blocks import BuiltBlocks, built_blocks
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._posterior.row_predictors import cuts_into_rows, part_of

_client: ContextVar[Any] = ContextVar("_client", default=None)


@contextmanager
def rows_on(client: Any) -> Iterator[None]:
    """Keep the rows of data on the workers of a dask cluster.

    Posteriors under an approximated prior that are first asked for anything in this context have
    their rows there, each worker an equal part of them. So has `find_hyperparameters`, called in
    it, when it learns from more than 5000 rows. A sweep of expectation propagation sends
    :math:`8 r^2` bytes to every worker and gets :math:`8 r^2` back, with r features; N pairs send
    :math:`8 r N` bytes and get :math:`16 N` back. Results are those of one process, to round-off.
    What a lost worker had is made again on the others.

    For data that are in the memory of this process, of any kinds together. Data of one kind that
    are not may be dask arrays, with no need of this context: their rows never come here.

    Parameters
    ----------
    client : distributed.Client
        Of the cluster, which must last as long as the posterior is used.

    Raises
    ------
    ApproximationError
        When the posterior is asked for something: for likelihoods that cannot be cut into rows,
        such as comparisons, or PyMC distributions given as a function.
        From `find_hyperparameters`: for pseudo-points and constraints beside many rows.

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


def blocks_on(
    client: Any, sets: tuple[DataSet, ...], features: FunctionFeatures, prior: Prior
) -> DaskBlocks:
    """Contiguous parts of the rows, one for each worker.

    Raises
    ------
    ApproximationError
        For likelihoods that cannot be cut into rows.
    """
    for data in sets:
        if not cuts_into_rows(data.likelihood):
            raise ApproximationError(
                f"{data.likelihood!r} cannot be cut into rows, which workers of a cluster would "
                "keep: leave out rows_on, or take a likelihood of pymc_skewgp.likelihoods."
            )
    n_parts = min(max(1, len(client.nthreads())), *(data.X.shape[0] for data in sets))
    pieces = [_pieces(data, n_parts) for data in sets]
    groups = [_PartOfRows(part, features, prior) for part in zip(*pieces, strict=True)]
    return DaskBlocks(client, [Group((), group) for group in groups])


@dataclass(frozen=True)
class _PartOfRows:
    """Rows that are sent with what makes blocks of them: they are not lost with a worker."""

    sets: tuple[DataSet, ...]
    features: FunctionFeatures
    prior: Prior

    def __call__(self, chunks: Sequence[Any]) -> BuiltBlocks:
        """See `Build`."""
        return built_blocks(self.sets, self.features, self.prior)


def _pieces(data: DataSet, n_parts: int) -> Sequence[DataSet]:
    """Contiguous parts of the rows, of nearly equal size."""
    return [part_of(data, index) for index in np.array_split(np.arange(data.X.shape[0]), n_parts)]
