"""The search for hyperparameters with many rows: some hundred of them, some thousand, all."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import cloudpickle
import numpy as np

from pymc_skewgp._errors import ApproximationError, ClusterLostError
from pymc_skewgp._gaussian.blocks.ep import added
from pymc_skewgp._learn import optimizers
from pymc_skewgp._learn.coordinates import Bounds, Point
from pymc_skewgp._learn.rows import data_kinds, rows_objective
from pymc_skewgp._learn.rows.program import Chunk, CompiledNumbers, Latent, plus
from pymc_skewgp._learn.search import Part, SearchResult, ascents, promising
from pymc_skewgp._model.gp.functions import ArrayCovariance, ArrayMean
from pymc_skewgp._model.graph.data import KnownData, KnownSites, known_of
from pymc_skewgp._observations.likelihood import Likelihood, as_inputs
from pymc_skewgp._posterior import dask_blocks, features
from pymc_skewgp._posterior.automatic import automatic
from pymc_skewgp._posterior.blocks_at import Arrays
from pymc_skewgp._posterior.distributed_posterior import ChunkedData
from pymc_skewgp._posterior.prior import Approximation, Prior
from pymc_skewgp._validation import FloatArray

if TYPE_CHECKING:
    from distributed import Client


# Many rows at a point of their hyperparameters, kept by the workers of a dask cluster.
#
# A point, EP's Gaussian of the coordinates and sums of r x r numbers travel. Each worker carries
# its own rows' part of the gradient back to the hyperparameters, and to what all rows have in
# common.

_MOST_LOSSES = 10  # at one point
_T = TypeVar("_T")


class InOnePiece:
    """A `Build` that travels as one string of bytes.

    By itself dask lets arrays travel beside what has them. They arrive as parts of a buffer, at
    places in it that compiled functions of PyTensor do not take.
    """

    def __init__(self, build: dask_blocks.Build[rows_objective.Rows]) -> None:
        self._build = build

    def __getstate__(self) -> bytes:
        found: bytes = cloudpickle.dumps(self._build)
        return found

    def __setstate__(self, state: bytes) -> None:
        self._build = cloudpickle.loads(state)

    def __call__(self, chunks: Sequence[Any]) -> rows_objective.Rows:
        """See `Build`."""
        return self._build(chunks)


class _RowsLostError(Exception):
    """Rows were lost with a worker, and are at no point on their new one."""


class RowsOnWorkers(rows_objective.Rows):
    """Data that workers keep, groups of which are a `Rows` there each.

    Rows that are lost with a worker are built again on another one. EP begins at the same point
    anew, for these rows from nothing: it ends at the same fixed point, within its tolerance.

    Parameters
    ----------
    client : distributed.Client
    groups : sequence of Group
    latent : Latent
    """

    here = False

    def __init__(
        self, client: "Client", groups: Iterable[dask_blocks.Group], latent: Latent
    ) -> None:
        super().__init__(latent, [])
        own = [(chunks, InOnePiece(build)) for chunks, build in groups]
        self._placed = False
        self._groups = dask_blocks.DaskGroups(client, own, self._restore)

    def _restore(self, i: int) -> None:
        if self._placed:  # sites of EP are lost
            raise _RowsLostError

    def evaluate(
        self, point: Point, function: Callable[[rows_objective.Rows], _T | None]
    ) -> _T | None:
        """See `Rows`."""
        for _ in range(_MOST_LOSSES):
            try:
                return function(self) if self._place(point) else None
            except _RowsLostError:
                continue
        raise ClusterLostError(
            f"workers of the dask cluster were lost {_MOST_LOSSES} times at one value of the "
            "hyperparameters: see their logs. They may need more memory, or smaller chunks."
        )

    def _place(self, point: Point) -> bool:
        self._placed, self._at = False, self.latent.at(point)
        found = [] if self._at is None else self._groups.ask("place", point)
        self._placed = True
        if not found or any(own is None for own in found):
            return False
        n_rows, rank, log_constant = zip(*found, strict=True)
        self.n_rows, self.rank, self.log_constant = sum(n_rows), rank[0], sum(log_constant)
        return True

    def total(self, method: str, *arguments: Any) -> Any:
        """See `Blocks`."""
        return added(self._groups.ask("total", method, *arguments))

    def keep(self) -> None:
        """See `Rows`."""
        self._groups.ask("keep")

    def part_of_gradient(self, mean: FloatArray, spread: FloatArray) -> Arrays:
        """See `Rows`."""
        return reduce(plus, self._groups.ask("part_of_gradient", mean, spread))


def _kept(latent: Latent, blocks: Sequence[Chunk], _: Sequence[Any]) -> rows_objective.Rows:
    """Blocks that are sent to a worker: they are not lost with it."""
    return rows_objective.Rows(latent, blocks, n_threads=dask_blocks.n_threads_of_worker())


def sent_rows(client: "Client", latent: Latent, blocks: Sequence[Chunk]) -> RowsOnWorkers:
    """Blocks of this process on the workers, in contiguous parts of about as many rows."""
    n_parts = min(max(1, len(client.nthreads())), len(blocks))
    ends = np.cumsum([block.X.shape[0] for block in blocks])
    own = (ends - 1) * n_parts // ends[-1]
    parts = [[b for b, i in zip(blocks, own, strict=True) if i == k] for k in range(n_parts)]
    groups: list[dask_blocks.Group] = [((), partial(_kept, latent, part)) for part in parts if part]
    return RowsOnWorkers(client, groups, latent)


# Hyperparameters from data that are dask arrays: some rows come here, all are on the workers.

INSTEAD = "learn from NumPy arrays: a part of the rows, or all of them in rows_on(client)"


def approximation_of_chunks(data: ChunkedData, gp: Any, known: Any) -> Approximation:
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
    reason = rows_objective.why_not_on_workers(gp, [known])
    if reason is not None:
        refuse_chunks(reason, "learn from NumPy arrays, without rows_on")
    reason = rows_objective.why_not_by_rows(gp, [known])
    if reason is None and isinstance(known, KnownData) and data_kinds.is_grouped(known):
        reason = f"{known.likelihood!r} is about several functions, or has noise that rows share"
    if reason is None and isinstance(known, KnownSites) and not known.divisible:
        reason = f"{known.likelihood!r} cannot be cut into rows"
    limits = [name for name in ("lower", "upper") if name in known.random]
    if reason is None and limits:
        reason = f"{', '.join(limits)} of the likelihood is learnt"
    if reason is not None:
        refuse_chunks(reason)
    found: Approximation = automatic(data.n_rows) if asked == "auto" else asked
    return found


def _of_chunks(
    likelihood: Likelihood, compiled: CompiledNumbers, latent: Latent, chunks: Sequence[Any]
) -> rows_objective.Rows:
    """From chunks (first row, X, y) to rows at points, on the worker that has them."""
    blocks = []
    for start, X, y in chunks:
        own = likelihood.of_observations(start + np.arange(len(y)), y)
        known = known_of(as_inputs("X", X), y, own)
        made = (
            data_kinds.FunctionsOfKind if isinstance(known, KnownSites) else data_kinds.RowsOfKind
        )
        kind: data_kinds.DataOfKind = made(known, compiled)
        blocks += kind.blocks(np.arange(kind.n_observations))
    return _kept(latent, blocks, chunks)


def refuse_chunks(reason: str, instead: str = INSTEAD) -> NoReturn:
    """Raise ApproximationError for what is not learnt from dask arrays."""
    raise ApproximationError(
        f"hyperparameters are not learnt from these dask arrays: {reason}. Instead, {instead}."
    )


@dataclass(frozen=True, eq=False)
class ManyRows:
    """A SkewGP of finite rank with its data.

    Attributes
    ----------
    gp : SkewGP
    approximation : Approximation
    kinds : sequence of DataOfKind
    X : ndarray, shape (n, d)
        Inputs of all data.
    objective : RowsObjective
        Without data.
    chunked : ChunkedData or None
        All data, where they are on the workers of a cluster: `kinds` and `X` are some of them then.
    """

    gp: Any
    approximation: Approximation
    kinds: Sequence[data_kinds.DataOfKind]
    X: FloatArray
    objective: rows_objective.RowsObjective
    chunked: ChunkedData | None = None

    def part(
        self, point: Point, settings: optimizers.SearchSettings, rng: np.random.Generator
    ) -> Part:
        """Some of the data, to try starts on; all where they cannot be taken apart.

        The basis is that of the kernel at `point`.
        """
        size = settings.rows_coarse_size
        objective, in_parts = self.on_some(size, point, rng)
        return Part(objective, size / data_kinds.n_data(self.kinds) if in_parts else 1.0)

    def search(
        self,
        part: Part,
        starts: list[Point],
        bounds: Bounds,
        settings: optimizers.SearchSettings,
        log: optimizers.EvaluationLog,
    ) -> tuple[rows_objective.RowsObjective, SearchResult]:
        """Maximise over the box: the objective of all rows, and its optimum.

        Every start is tried on `part`; the best of them go on with some thousand rows, and the best
        of these with all. The basis is placed by the kernel at the point where a stage begins, and
        stays there.
        """
        objective, (best, *_), in_parts = self.of_some(part, starts, bounds, settings, log)
        optimizer = _with_first_step(settings)
        if in_parts:
            optimizer = replace(optimizer, tolerance=settings.rows_tolerance)
            objective = self.on_all(best.point)
            best = optimizers.maximize(
                log.run("ep", objective.by_ep), best.point, bounds, optimizer
            )
        few = 0 < best.point.x.size <= settings.rows_max_hessian
        hessian = None
        if settings.hessian and few and all(low < high for low, high in bounds):
            exact = objective.for_differences()
            hessian = optimizers.negative_hessian(exact.by_ep, best.point, bounds)
        return objective, SearchResult(best, hessian)

    def of_some(
        self,
        part: Part,
        starts: list[Point],
        bounds: Bounds,
        settings: optimizers.SearchSettings,
        log: optimizers.EvaluationLog,
    ) -> tuple[rows_objective.RowsObjective, list[optimizers.Optimum], bool]:
        """The stages of the search before that of all rows.

        The objective of some thousand rows, or of all, where there are no more or they have no
        parts; different optima of it, the best first; and whether they are not all.
        """
        settings = replace(settings, optimizer=_with_first_step(settings))
        rng = np.random.default_rng(settings.seed)
        objective, in_parts = self.on_some(settings.rows_size, starts[0], rng)
        name = "ep, some of the rows" if in_parts else "ep"
        if part.share < 1.0:
            begin = partial(log.run, name, objective.by_ep)
            starts = promising(begin, part.objective, starts, bounds, settings, log)
        optima = ascents(objective.by_ep, starts, bounds, name, settings, log)
        return objective, optima, in_parts

    def on_some(
        self, size: int, point: Point, rng: np.random.Generator
    ) -> tuple[rows_objective.RowsObjective, bool]:
        """The objective of so many observations, in this process, and whether they are not all.

        Its basis is placed by the kernel at a point.
        """
        blocks = data_kinds.some_blocks(self.kinds, size, rng)
        own = data_kinds.blocks_of(self.kinds) if blocks is None else blocks
        return self.objective.on(own, self.basis(point)), blocks is not None

    def on_all(self, point: Point) -> rows_objective.RowsObjective:
        """The objective of all rows, its basis placed by the kernel at a point."""
        basis, client = self.basis(point), dask_blocks.current_client()
        latent = replace(self.objective.latent, basis=basis)
        if self.chunked is not None:
            kind, data = self.kinds[0], self.chunked
            assert isinstance(kind, data_kinds.RowsOfKind | data_kinds.FunctionsOfKind)
            build = partial(_of_chunks, data.likelihood, kind.compiled, latent)
            groups = [(chunks, build) for chunks in data.groups()]
            return self.objective.of(RowsOnWorkers(data.client, groups, latent), latent)
        blocks = data_kinds.blocks_of(self.kinds)
        if client is not None:
            return self.objective.of(sent_rows(client, latent, blocks), latent)
        return self.objective.on(blocks, basis)

    def basis(self, point: Point) -> Any:
        """Inducing points, or the box of a spectral basis, for the kernel at a point."""
        values: Mapping[str, Any] = self.objective.named(point)
        none = np.zeros(0)
        cov_func = ArrayCovariance(self.gp.cov_func, values)
        mean_func = ArrayMean(self.gp.mean_func, values)
        prior = Prior(cov_func, mean_func, np.zeros((0, self.X.shape[1])), none, none)
        if isinstance(self.approximation, features.Inducing | features.PivotedCholesky):
            return self.approximation.places(prior, self.X)
        return self.approximation.features(prior, self.X)


def _with_first_step(settings: optimizers.SearchSettings) -> optimizers.OptimizerSettings:
    return replace(settings.optimizer, first_step=settings.rows_first_step)
