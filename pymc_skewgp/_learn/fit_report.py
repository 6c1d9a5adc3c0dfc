"""What a search for hyperparameters found, and how it got there."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from pymc_skewgp._gaussian.weights import Estimate
from pymc_skewgp._learn.climb import ValueAndGradient
from pymc_skewgp._learn.objective import Objective, Pattern, Value
from pymc_skewgp._validation import FloatArray

_STEP = 1e-4


@dataclass(frozen=True)
class HyperparameterFit:
    """Result of `find_hyperparameters`.

    Attributes
    ----------
    point : dict of arrays
        The optimum: random variables and Deterministics by name, on their own scale. What
        `SkewGP.posterior` and ``pm.sample(initvals=...)`` take.
    log_marginal_likelihood : Estimate
        At the optimum, in nats, with its standard error, from 1024 fresh draws; of the composite
        likelihood where `kind` says so, which does not compare with a marginal likelihood
        (`SkewGPClassifier` gives the marginal likelihood of all labels all the same). Priors are
        not in it.
    log_prior : float
        Log density of the priors (and of all else in the model), without Jacobians.
    std_error : dict of arrays
        Standard errors of what is in `point`, from the curvature of EP's evidence and the
        transforms' slope: a Gaussian approximation, infinite where the optimum is flat. Empty for
        more than 40 parameters, for a composite likelihood, whose curvature knows nothing of the
        dependence between batches, and where `SkewGPClassifier` looked at part of the data only.
    kind : {"evidence", "composite", "frechet"}
        What was maximised, besides the prior.
    settled : bool
        Whether the best climb ended at a top.
    at_bound : list of str
        Coordinates that went a thousandfold away from the start.
    flat : list of str
        Coordinates that the objective hardly depends on.
    runs : Dataset
        Dimension ``run``: ``method``, ``pattern`` of the binary variables, ``n_evaluations``,
        ``log_evidence`` and ``total`` (with the prior) of its best point.
    path : Dataset
        Dimension ``evaluation``: ``run``, ``log_evidence``, ``total`` and ``x``, the unconstrained
        parameters (``coordinate``).
    seconds : float
        Of the search, compilation included; the final evidence and the standard errors come after.
    """

    point: dict[str, NDArray[Any]]
    log_marginal_likelihood: Estimate
    log_prior: float
    std_error: dict[str, NDArray[Any]]
    kind: str
    settled: bool
    at_bound: list[str]
    flat: list[str]
    runs: xr.Dataset = field(repr=False)
    path: xr.Dataset = field(repr=False)
    seconds: float

    def __str__(self) -> str:
        what = "composite" if self.kind == "composite" else "marginal"
        lines = [f"log {what} likelihood {self.log_marginal_likelihood}"]
        if self.kind != "frechet":  # which leaves priors out
            lines[0] += f", log prior {self.log_prior:.3f}"
        for name, value in self.point.items():
            error = self.std_error.get(name)
            shown = np.array2string(value, precision=4, threshold=8)
            if error is not None:
                shown += f" +- {np.array2string(error, precision=2, threshold=8)}"
            lines.append(f"  {name}: {shown}")
        if self.at_bound:
            lines.append(f"at the edge of the search: {', '.join(self.at_bound)}")
        if self.flat:
            lines.append(f"hardly matter: {', '.join(self.flat)}")
        if not self.std_error:
            lines.append("no standard errors (see HyperparameterFit)")
        if not self.settled:
            lines.append("NOT settled: the climb ended before it was at a top")
        lines.append(
            f"{self.path.sizes['evaluation']} evaluations in {self.runs.sizes['run']} runs, "
            f"{self.seconds:.1f} s"
        )
        return "\n".join(lines)


class Journal:
    """Every evaluation, written down and shown as it comes."""

    def __init__(self, objective: Objective, progressbar: bool) -> None:
        self._objective = objective
        self._rows: list[tuple[int, float, float, FloatArray]] = []
        self._runs: list[tuple[str, Pattern]] = []
        self._best: dict[str, tuple[float, float]] = {}
        self.noise = 0.0  # of the latest evaluation
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        self._progress = Progress(*columns, disable=not progressbar)
        self._task = self._progress.add_task("Learning hyperparameters")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def run(
        self, pattern: Pattern, method: str, function: Callable[[FloatArray, Pattern], Value]
    ) -> ValueAndGradient:
        """A run of evaluations: `function` at one pattern, each of them noted."""
        run = len(self._runs)
        self._runs.append((method, pattern))

        def evaluate(x: FloatArray) -> tuple[float, FloatArray]:
            found = function(x, pattern)
            self.noise = found.noise
            self._rows.append((run, found.log_evidence, found.total, x.copy()))
            # Totals of part of the data, or by another method, do not compare.
            best = self._best.get(method, (-np.inf, -np.inf))
            self._best[method] = max(best, (found.total, found.log_evidence))
            self._progress.update(
                self._task,
                description=f"Run {run + 1}, {method}: log evidence {found.log_evidence:.2f} "
                f"(at the best point {self._best[method][1]:.2f})",
            )
            return found.total, found.gradient

        return evaluate

    def path(self) -> xr.Dataset:
        """All evaluations."""
        run, evidence, total, x = zip(*self._rows, strict=True)
        return xr.Dataset(
            {
                "run": ("evaluation", np.array(run)),
                "log_evidence": ("evaluation", np.array(evidence)),
                "total": ("evaluation", np.array(total)),
                "x": (("evaluation", "coordinate"), np.array(x)),
            },
            coords={"coordinate": self._objective.labels},
        )

    def runs(self) -> xr.Dataset:
        """One row for each run, by its best evaluation."""
        best: list[tuple[int, float, float]] = []
        for run in range(len(self._runs)):
            own = [row for row in self._rows if row[0] == run]
            top = max(own, key=lambda row: row[2])
            best.append((len(own), top[1], top[2]))
        count, evidence, total = np.transpose(best)
        return xr.Dataset(
            {
                "method": ("run", [method for method, _ in self._runs]),
                "pattern": ("run", ["".join(map(str, p)) for _, p in self._runs]),
                "n_evaluations": ("run", count.astype(int)),
                "log_evidence": ("run", evidence),
                "total": ("run", total),
            }
        )


def standard_errors(
    objective: Objective,
    x: FloatArray,
    pattern: Pattern,
    curved: FloatArray | None,
    flattest: float,
) -> dict[str, NDArray[Any]]:
    """Of everything in ``objective.point``, by the inverse of `curved` and the delta method.

    Infinite where a parameter shares in a direction that bends by less than `flattest`.
    """
    if curved is None:
        return {}
    values, vectors = np.linalg.eigh(curved)
    steep = values >= flattest
    root = vectors[:, steep] / np.sqrt(values[steep])
    flat = vectors[:, ~steep]
    slopes: dict[str, list[FloatArray]] = {}
    for i in range(x.size):
        step = np.zeros(x.size)
        step[i] = _STEP
        ahead, behind = objective.point(x + step, pattern), objective.point(x - step, pattern)
        for name, value in ahead.items():
            if value.dtype.kind != "f":
                continue
            slopes.setdefault(name, []).append((value - behind[name]) / (2.0 * _STEP))
    errors = {}
    for name, slope in slopes.items():
        jacobian = np.stack(slope, axis=-1)
        if not jacobian.any():
            continue  # a constant
        error = np.sqrt(((jacobian @ root) ** 2).sum(axis=-1))
        lost = (jacobian @ flat) ** 2
        total = (jacobian**2).sum(axis=-1)
        errors[name] = np.where(lost.sum(axis=-1) > 1e-2 * total, np.inf, error)
    return errors
