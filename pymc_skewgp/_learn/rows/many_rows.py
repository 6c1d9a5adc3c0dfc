"""The search for hyperparameters with many rows: some hundred of them, some thousand, all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pymc_skewgp._learn.evaluation_log import EvaluationLog
from pymc_skewgp._learn.optimizers import Optimum, maximize, negative_hessian
from pymc_skewgp._learn.point import Bounds, Point
from pymc_skewgp._learn.rows.chunked_rows import ChunkedRows
from pymc_skewgp._learn.rows.data_kinds import DataOfKind, blocks_of, n_data, some_blocks
from pymc_skewgp._learn.rows.rows_objective import RowsObjective
from pymc_skewgp._learn.rows.rows_on_workers import sent_rows
from pymc_skewgp._learn.search import Part, SearchResult, ascents, distinct, promising
from pymc_skewgp._learn.settings import OptimizerSettings, SearchSettings
from pymc_skewgp._model.gp.functions import ArrayCovariance, ArrayMean
from pymc_skewgp._posterior.approximations.features import Approximation
from pymc_skewgp._posterior.approximations.inducing import Inducing
from pymc_skewgp._posterior.approximations.pivoted_cholesky import PivotedCholesky
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._posterior.rows_on import current_client
from pymc_skewgp._validation import FloatArray


class OfSome(NamedTuple):
    """What some thousand rows say; or all, where there are no more or they have no parts.

    Attributes
    ----------
    objective : RowsObjective
        Of these rows.
    optima : list of Optimum
        Different ones, the best first.
    in_parts : bool
        Whether they are some.
    """

    objective: RowsObjective
    optima: list[Optimum]
    in_parts: bool


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
    chunked : ChunkedRows or None
        All data, where they are on the workers of a cluster: `kinds` and `X` are some of them then.
    """

    gp: Any
    approximation: Approximation
    kinds: Sequence[DataOfKind]
    X: FloatArray
    objective: RowsObjective
    chunked: ChunkedRows | None = None

    def part(self, point: Point, settings: SearchSettings, rng: np.random.Generator) -> Part:
        """Some of the data, to try starts on; all where they cannot be taken apart.

        The basis is that of the kernel at `point`.
        """
        size = settings.rows_coarse_size
        objective, in_parts = self.on_some(size, point, rng)
        return Part(objective, size / n_data(self.kinds) if in_parts else 1.0)

    def search(
        self,
        part: Part,
        starts: list[Point],
        bounds: Bounds,
        settings: SearchSettings,
        log: EvaluationLog,
    ) -> tuple[RowsObjective, SearchResult]:
        """Maximise over the box: the objective of all rows, and its optimum.

        Every start is tried on `part`; the best of them go on with some thousand rows, and the best
        of these with all. The basis is placed by the kernel at the point where a stage begins, and
        stays there.
        """
        found = self.of_some(part, starts, bounds, settings, log)
        objective, best = found.objective, found.optima[0]
        optimizer = _with_first_step(settings)
        if found.in_parts:
            optimizer = replace(optimizer, tolerance=settings.rows_tolerance)
            objective = self.on_all(best.point)
            best = maximize(log.run("ep", objective.by_ep), best.point, bounds, optimizer)
        few = 0 < best.point.x.size <= settings.rows_max_hessian
        hessian = None
        if settings.hessian and few and all(low < high for low, high in bounds):
            exact = objective.for_differences()
            hessian = negative_hessian(exact.by_ep, best.point, bounds, optimizer)
        return objective, SearchResult(best, hessian)

    def of_some(
        self,
        part: Part,
        starts: list[Point],
        bounds: Bounds,
        settings: SearchSettings,
        log: EvaluationLog,
    ) -> "OfSome":
        """The stages of the search before that of all rows."""
        settings = replace(settings, optimizer=_with_first_step(settings))
        rng = np.random.default_rng(settings.seed)
        objective, in_parts = self.on_some(settings.rows_size, starts[0], rng)
        name = "ep, some of the rows" if in_parts else "ep"
        if part.share < 1.0:
            begin = partial(log.run, name, objective.by_ep)
            starts = promising(begin, part.objective, starts, bounds, settings, log)
        optima = ascents(objective.by_ep, starts, bounds, name, settings, log)
        return OfSome(objective, distinct(optima, settings), in_parts)

    def on_some(
        self, size: int, point: Point, rng: np.random.Generator
    ) -> tuple[RowsObjective, bool]:
        """The objective of so many observations, in this process, and whether they are not all.

        Its basis is placed by the kernel at a point.
        """
        blocks = some_blocks(self.kinds, size, rng)
        own = blocks_of(self.kinds) if blocks is None else blocks
        return self.objective.on(own, self.basis(point)), blocks is not None

    def on_all(self, point: Point) -> RowsObjective:
        """The objective of all rows, its basis placed by the kernel at a point."""
        basis, client = self.basis(point), current_client()
        latent = replace(self.objective.latent, basis=basis)
        if self.chunked is not None:
            return self.objective.of(self.chunked.on_workers(latent, self.kinds[0]), latent)
        blocks = blocks_of(self.kinds)
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
        if isinstance(self.approximation, Inducing | PivotedCholesky):
            return self.approximation.places(prior, self.X)
        return self.approximation.features(prior, self.X)


def _with_first_step(settings: SearchSettings) -> OptimizerSettings:
    return replace(settings.optimizer, first_step=settings.rows_first_step)
