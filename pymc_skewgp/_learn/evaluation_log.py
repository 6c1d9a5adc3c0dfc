"""Every evaluation of a search, kept and shown as it comes."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import xarray as xr
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from pymc_skewgp._learn.point import Function, Point, Value


class _Evaluation(NamedTuple):
    run: int
    point: Point
    value: Value


class EvaluationLog:
    """Runs of evaluations of an objective: one for each ascent.

    Parameters
    ----------
    labels : sequence of str
        Of the coordinates.
    progressbar : bool
    """

    def __init__(self, labels: Sequence[str], progressbar: bool) -> None:
        self._labels = list(labels)
        self._evaluations: list[_Evaluation] = []
        self._methods: list[str] = []
        self._best: dict[str, tuple[float, float]] = {}
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        self._progress = Progress(*columns, disable=not progressbar)
        self._task = self._progress.add_task("Learning hyperparameters")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def run(self, method: str, function: Function) -> Function:
        """Begin a run: `function`, with each of its evaluations kept."""
        run = len(self._methods)
        self._methods.append(method)

        def logged(point: Point) -> Value:
            value = function(point)
            self._evaluations.append(_Evaluation(run, point, value))
            self._show(run, method, value)
            return value

        return logged

    def _show(self, run: int, method: str, value: Value) -> None:
        # Totals of part of the data, or by another method, do not compare.
        best = self._best.get(method, (-np.inf, -np.inf))
        self._best[method] = max(best, (value.total, value.log_evidence))
        self._progress.update(
            self._task,
            description=f"Run {run + 1}, {method}: log evidence {value.log_evidence:.2f} "
            f"(at the best point {self._best[method][1]:.2f})",
        )

    def path(self) -> xr.Dataset:
        """All evaluations."""
        runs, points, values = zip(*self._evaluations, strict=True)
        return xr.Dataset(
            {
                "run": ("evaluation", np.array(runs)),
                "log_evidence": ("evaluation", np.array([v.log_evidence for v in values])),
                "total": ("evaluation", np.array([v.total for v in values])),
                "x": (("evaluation", "coordinate"), np.array([p.x for p in points])),
            },
            coords={"coordinate": self._labels},
        )

    def runs(self) -> xr.Dataset:
        """One row for each run, by its best evaluation."""
        counts, best = [], []
        for run in range(len(self._methods)):
            own = [evaluation for evaluation in self._evaluations if evaluation.run == run]
            counts.append(len(own))
            best.append(max(own, key=lambda evaluation: evaluation.value.total))
        return xr.Dataset(
            {
                "method": ("run", self._methods),
                "pattern": ("run", ["".join(map(str, e.point.pattern)) for e in best]),
                "n_evaluations": ("run", np.array(counts)),
                "log_evidence": ("run", np.array([e.value.log_evidence for e in best])),
                "total": ("run", np.array([e.value.total for e in best])),
            }
        )
