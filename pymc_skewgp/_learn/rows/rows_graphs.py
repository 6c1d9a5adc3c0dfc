"""Graphs of blocks of rows: of a SkewGP with inducing points, under data of one kind."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._learn.compiled import Batch
from pymc_skewgp._learn.objective import Objective
from pymc_skewgp._learn.rows.compiled_rows import CompiledRows, Limits, Moments, RowGraphs
from pymc_skewgp._learn.rows.rows_objective import RowsObjective
from pymc_skewgp._model.graph.data_rows import KnownData
from pymc_skewgp._posterior.approximations.automatic import MANY_ROWS, automatic
from pymc_skewgp._posterior.approximations.inducing import Inducing

# Rows whose kernel is evaluated at once: what they take stays in the cache.
_ROWS_IN_BLOCK = 2048


def why_not_by_rows(gp: Any, known: list[Any]) -> str | None:
    """What keeps hyperparameters from being learnt with f of finite rank; None where nothing."""
    if gp.n_pseudo_points:
        return "it has pseudo-points"
    if gp.approximation not in (None, "auto") and not isinstance(gp.approximation, Inducing):
        return f"its approximation is {gp.approximation!r}, and only Inducing is learnt with"
    if len(known) > 1:
        return "the data are of several kinds"
    only = known[0]
    if not isinstance(only, KnownData):
        return "the likelihood has sites"
    if only.n_functions > 1 or only.strata is None or only.weights is not None:
        return "an observation is not one row of X with noise of its own"
    _, rows = only.rows()
    plain = rows.A is None and rows.counts is None and rows.S.type.ndim == 1 and not rows.relative
    if not plain or rows.values.derivative is not None:
        return "an observation is not one row of X with noise of its own"
    if set(only.random) - {"sigma"}:
        return f"{', '.join(only.random)} of the likelihood is learnt, which limits depend on"
    return None


def rows_objective(
    model: pm.Model, gp: Any, known: KnownData, objective: Objective
) -> RowsObjective:
    """The objective of all data, given that of matrices of all rows, which is not evaluated.

    Its inducing points are still to come.
    """
    inputs, rows = known.rows()
    X, Z = inputs[0], pt.matrix("Z", shape=(None, known.X.shape[1]), dtype="float64")
    moments = Moments(gp.cov_func(X, Z), gp.cov_func(X, diag=True), gp.mean_func(X), rows.S)
    limits = rows.lower, rows.upper, rows.value
    graphs = [*moments, *limits, rows.log_constant, gp.cov_func(Z, Z)]
    found = iter(model.replace_rvs_by_values(graphs))
    moments = Moments(*(pt.cast(next(found), "float64") for _ in moments))
    compiled = CompiledRows(
        objective.coordinates,
        RowGraphs(
            inputs, Z, moments, Limits(*(next(found) for _ in limits)), next(found), next(found)
        ),
    )
    return RowsObjective(
        objective.coordinates,
        compiled,
        objective.prior,
        objective.values,
        data_in_blocks(known, np.arange(known.X.shape[0])),
        np.zeros((0, known.X.shape[1])),
    )


def data_in_blocks(known: KnownData, chosen: Any) -> list[Batch]:
    """The chosen rows of the data as blocks."""
    return [
        known.part(chosen[start : start + _ROWS_IN_BLOCK])
        for start in range(0, chosen.size, _ROWS_IN_BLOCK)
    ]


def approximation_of(gp: Any, known: list[Any]) -> Inducing | None:
    """How hyperparameters are learnt from the data; None for the kernel as it is.

    Raises
    ------
    ApproximationError
        Where an approximation was asked for that they cannot be learnt with.
    """
    n = sum(part.X.shape[0] for part in known)
    asked = gp.approximation
    if asked is None or (asked == "auto" and n <= MANY_ROWS):
        return None
    reason = why_not_by_rows(gp, known)
    if reason is None:
        return automatic(n) if asked == "auto" else asked
    if asked != "auto":
        raise ApproximationError(
            f"hyperparameters of this SkewGP are not learnt with approximation="
            f"{asked!r}: {reason}. Use approximation=None, or learn with batch_size."
        )
    return None
