"""The search for hyperparameters with many rows: some hundred of them, some thousand, all."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from pymc_skewgp._learn.evaluation_log import EvaluationLog
from pymc_skewgp._learn.optimizers import maximize
from pymc_skewgp._learn.point import Bounds, Point
from pymc_skewgp._learn.rows.rows_graphs import data_in_blocks
from pymc_skewgp._learn.rows.rows_objective import RowsObjective
from pymc_skewgp._learn.search import Part, SearchResult, ascents, distinct, promising
from pymc_skewgp._learn.settings import SearchSettings
from pymc_skewgp._model.gp.functions import ArrayCovariance, ArrayMean
from pymc_skewgp._model.graph.data_rows import KnownData
from pymc_skewgp._posterior.approximations.inducing import Inducing
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._validation import FloatArray


@dataclass(frozen=True, eq=False)
class ManyRows:
    """A SkewGP of finite rank with its data.

    Attributes
    ----------
    gp : SkewGP
    known : KnownData
    approximation : Inducing
    objective : RowsObjective
        Of all data.
    """

    gp: Any
    known: KnownData
    approximation: Inducing
    objective: RowsObjective

    def search(
        self,
        part: Part | None,
        starts: list[Point],
        bounds: Bounds,
        settings: SearchSettings,
        log: EvaluationLog,
    ) -> tuple[RowsObjective, SearchResult]:
        """Maximise over the box: the objective of all rows, and its optimum.

        Every start is tried on `part`, with matrices; the best of them go on with some thousand
        rows, and the best of these with all. Inducing points are placed by the kernel at the point
        where a stage begins, and stay there.
        """
        optimizer = replace(settings.optimizer, first_step=settings.rows_first_step)
        settings = replace(settings, optimizer=optimizer)
        n, rng = self.known.X.shape[0], np.random.default_rng(settings.seed)
        objective = self._placed(self.objective, starts[0])
        if n > settings.rows_size:
            chosen = np.sort(rng.choice(n, settings.rows_size, replace=False))
            some = objective.on(data_in_blocks(self.known, chosen), objective.points)
        else:
            some = objective
        name = "ep" if some is objective else "ep, some of the rows"
        if part is not None:
            begin = partial(log.run, name, some.by_ep)
            starts = promising(begin, part.objective, starts, bounds, settings, log)
        best = distinct(ascents(some.by_ep, starts, bounds, name, settings, log), settings)[0]
        if some is not objective:
            optimizer = replace(optimizer, tolerance=settings.rows_tolerance)
            objective = self._placed(self.objective, best.point)
            best = maximize(log.run("ep", objective.by_ep), best.point, bounds, optimizer)
        return objective, SearchResult(best, None)

    def _placed(self, objective: RowsObjective, point: Point) -> RowsObjective:
        """With inducing points for the kernel at a point."""
        return objective.on(objective.blocks, self.points(objective.named(point)))

    def points(self, values: Mapping[str, Any]) -> FloatArray:
        """Inducing points for the kernel at values of its hyperparameters."""
        none = np.zeros(0)
        cov_func = ArrayCovariance(self.gp.cov_func, values)
        mean_func = ArrayMean(self.gp.mean_func, values)
        no_points = np.zeros((0, self.known.X.shape[1]))
        prior = Prior(cov_func, mean_func, no_points, none, none)
        return self.approximation.places(prior, self.known.X)
