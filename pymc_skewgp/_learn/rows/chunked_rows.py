"""Hyperparameters from data that are dask arrays: some rows come here, all are on the workers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._learn.rows.compiled_numbers import CompiledNumbers
from pymc_skewgp._learn.rows.data_kinds import DataOfKind, FunctionsOfKind, RowsOfKind
from pymc_skewgp._learn.rows.group_kind import is_grouped
from pymc_skewgp._learn.rows.latent_at import Latent
from pymc_skewgp._learn.rows.rows_at import RowsHere
from pymc_skewgp._learn.rows.rows_graphs import why_not_by_rows, why_not_on_workers
from pymc_skewgp._learn.rows.rows_on_workers import RowsOnWorkers
from pymc_skewgp._model.graph.data_rows import KnownData
from pymc_skewgp._model.graph.data_sites import KnownSites, known_of
from pymc_skewgp._observations.arguments import as_inputs
from pymc_skewgp._observations.likelihood import Likelihood
from pymc_skewgp._posterior.approximations.automatic import automatic
from pymc_skewgp._posterior.approximations.features import Approximation
from pymc_skewgp._posterior.data_sets import as_likelihood
from pymc_skewgp._posterior.distributed.chunked_data import ChunkedData, as_chunked_data
from pymc_skewgp._posterior.distributed.kept_blocks import n_threads_of_worker

INSTEAD = "learn from NumPy arrays: a part of the rows, or all of them in rows_on(client)"


@dataclass(frozen=True, eq=False)
class ChunkedRows:
    """Data that are dask arrays, with what is random in their likelihood.

    Attributes
    ----------
    data : ChunkedData
    """

    data: ChunkedData

    @classmethod
    def of(cls, X: Any, y: Any, likelihood: Any) -> "ChunkedRows":
        """Checked as far as their shapes go.

        Raises
        ------
        ApproximationError
            For a likelihood that cannot be cut into rows.
        TypeError, ValueError
            As `as_chunked_data`.
        """
        if callable(likelihood) and not isinstance(likelihood, type | Likelihood):
            refuse_chunks("a function that gives a PyMC distribution cannot be cut into rows")
        return cls(as_chunked_data(X, y, as_likelihood(likelihood)))

    def some(self) -> tuple[Any, Any, Likelihood]:
        """X, y and likelihood of the rows that come here."""
        index = self.data.some_rows
        X, y = self.data.arrays(index)
        return X, y, self.data.likelihood.of_observations(index, y)

    def approximation(self, gp: Any, known: Any) -> Approximation:
        """How f is approximated, given the data that are here, checked.

        Raises
        ------
        ApproximationError
            Where hyperparameters are not learnt so.
        """
        asked = gp.approximation
        if asked is None:
            refuse_chunks(
                "the kernel as it is needs all rows at once",
                "give SkewGP an approximation, such as Inducing(300)",
            )
        reason = why_not_on_workers(gp, [known])
        if reason is not None:
            refuse_chunks(reason, "learn from NumPy arrays, without rows_on")
        reason = why_not_by_rows(gp, [known])
        if reason is None and isinstance(known, KnownData) and is_grouped(known):
            reason = (
                f"{known.likelihood!r} is about several functions, or has noise that rows share"
            )
        if reason is None and isinstance(known, KnownSites) and not known.divisible:
            reason = f"{known.likelihood!r} cannot be cut into rows"
        limits = [name for name in ("lower", "upper") if name in known.random]
        if reason is None and limits:
            reason = f"{', '.join(limits)} of the likelihood is learnt"
        if reason is not None:
            refuse_chunks(reason)
        found: Approximation = automatic(self.data.n_rows) if asked == "auto" else asked
        return found

    def on_workers(self, latent: Latent, kind: DataOfKind) -> RowsOnWorkers:
        """All rows; `kind` are those that are here."""
        assert isinstance(kind, RowsOfKind | FunctionsOfKind)
        build = _RowsOfChunks(self.data.likelihood, kind.compiled, latent)
        groups = [(chunks, build) for chunks in self.data.groups()]
        return RowsOnWorkers(self.data.client, groups, latent)


@dataclass(frozen=True, eq=False)
class _RowsOfChunks:
    """From chunks (first row, X, y) to rows at points, on the worker that has them."""

    likelihood: Likelihood
    compiled: CompiledNumbers
    latent: Latent

    def __call__(self, chunks: Sequence[Any]) -> RowsHere:
        """See `Build`."""
        blocks = []
        for start, X, y in chunks:
            own = self.likelihood.of_observations(start + np.arange(len(y)), y)
            known = known_of(as_inputs("X", X), y, own)
            kind: DataOfKind
            if isinstance(known, KnownSites):
                kind = FunctionsOfKind(known, self.compiled)
            else:
                kind = RowsOfKind(known, known.whole, self.compiled)
            blocks += kind.blocks(np.arange(kind.n_observations))
        return RowsHere(self.latent, blocks, n_threads=n_threads_of_worker())


def refuse_chunks(reason: str, instead: str = INSTEAD) -> NoReturn:
    """Raise ApproximationError for what is not learnt from dask arrays."""
    raise ApproximationError(
        f"hyperparameters are not learnt from these dask arrays: {reason}. Instead, {instead}."
    )
