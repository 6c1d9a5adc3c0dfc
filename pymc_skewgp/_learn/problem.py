"""What a search is given: the objective on all data and on a part of it, and where to start."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._learn.batches import random_batches
from pymc_skewgp._learn.objective import Objective, compile_objective
from pymc_skewgp._learn.phases import Places, pseudo_point_places
from pymc_skewgp._learn.point import Point
from pymc_skewgp._learn.rows.chunked_rows import INSTEAD, ChunkedRows, refuse_chunks
from pymc_skewgp._learn.rows.data_kinds import kind_of
from pymc_skewgp._learn.rows.functions_at import Functions
from pymc_skewgp._learn.rows.many_rows import ManyRows
from pymc_skewgp._learn.rows.rows_graphs import approximation_of, rows_objective
from pymc_skewgp._learn.search import Part
from pymc_skewgp._learn.settings import SearchSettings
from pymc_skewgp._model.gp.exact_posterior import inputs_of
from pymc_skewgp._model.gp.integrated_mean import can_be_integrated
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._model.gp.values import as_coregion_graph
from pymc_skewgp._model.graph.collapsed import collapse_model, collapse_process
from pymc_skewgp._model.graph.data_rows import Arrays, KnownData
from pymc_skewgp._model.graph.data_sites import KnownSites, known_of
from pymc_skewgp._posterior.data_sets import kinds_of
from pymc_skewgp._posterior.distributed.chunked_data import is_dask
from pymc_skewgp._validation import FloatArray, as_count

Start = Mapping[str, Any] | None


class TrainingData(NamedTuple):
    """A model with its data in it; or a SkewGP, its inputs and data, and their likelihood.

    And the covariance of the functions, where that has several, and how often each observation was
    made, where that is not once.
    """

    model: Any
    X: Any = None
    y: Any = None
    likelihood: Any = None
    coregion: Any = None
    weights: Any = None


class LearningProblem(NamedTuple):
    """What a search is given.

    Attributes
    ----------
    objective : Objective
    part : Part or None
        The objective on some of the data, where there are many.
    origin : ndarray, shape (k,)
        Where to start.
    places : list of lists
        Of the pseudo-points in the vector.
    of_process : bool
        Whether it is about a SkewGP: then its pseudo-points are known.
    rows : ManyRows or None
        What is searched in place of `objective`, whose matrices would be too large.
    """

    objective: Objective
    part: Part | None
    origin: FloatArray
    places: Places
    of_process: bool
    rows: ManyRows | None = None


class ProcessObjective(NamedTuple):
    """The objective of a SkewGP, where to start, and its data.

    Attributes
    ----------
    objective : Objective
    origin : ndarray, shape (k,)
    arrays : tuple of ndarray
        All the data, as the objective takes them; none where `rows` are searched.
    parts : KnownData, KnownSites or None
        They can be taken apart where it is not None.
    rows : ManyRows or None
        The same with f of finite rank, where the SkewGP is approximated.
    coefficients : sequence of variables
        Of the mean, which are no coordinates: they are integrated out.
    """

    objective: Objective
    origin: FloatArray
    arrays: Arrays
    parts: KnownData | KnownSites | None
    rows: ManyRows | None = None
    coefficients: Sequence[Any] = ()


def learning_problem(
    data: TrainingData, settings: SearchSettings, rng: np.random.Generator, start: Start
) -> LearningProblem:
    """Compile what is to be maximised.

    Raises
    ------
    TypeError, ValueError
        For what is no model, data that are missing or do not belong, as `find_hyperparameters`.
    """
    model = data.model
    if isinstance(model, pm.Model):
        if any(x is not None for x in data[1:]) or settings.batch_size is not None:
            raise ValueError(
                "X, y, likelihood and batch_size go with a SkewGP, as coregion and weights do: a "
                "model has its data in it. Use find_hyperparameters(gp, X, y, ...)."
            )
        root = model.root
        objective, origin = compile_objective(root, collapse_model(root), start=start)
        return LearningProblem(objective, None, origin, [], False)
    if not isinstance(model, SkewGP):
        raise TypeError(f"model must be a pm.Model or a SkewGP, got {type(model).__name__}.")
    found = process_objective(data, settings.batch_size, rng, start)
    part = coarse_part(found, settings, rng)
    places = pseudo_point_places(found.objective.coordinates, model)
    return LearningProblem(found.objective, part, found.origin, places, True, found.rows)


def coarse_part(
    found: ProcessObjective, settings: SearchSettings, rng: np.random.Generator
) -> Part | None:
    """Some of the data, to try starts on; None where all are few enough."""
    objective = found.objective
    strata = None if found.parts is None else found.parts.strata
    if found.parts is not None and strata is not None:
        rows = _coarse_rows(strata, settings, rng)
        if rows is not None:
            return Part(objective.on([found.parts.part(rows)]), rows.size / strata.size)
    if found.rows is None:
        return None
    pattern = objective.coordinates.patterns(settings.start.max_binary)[0]
    return found.rows.part(Point(found.origin, pattern), settings, rng)


def process_objective(
    data: TrainingData,
    batch_size: int | None,
    rng: np.random.Generator,
    start: Start,
    *,
    averaged: bool = False,
    drawn: bool = False,
) -> ProcessObjective:
    """The objective of a SkewGP: the evidence of all its data, or the sum over random batches.

    `averaged` as for `compile_objective`. Coefficients of the mean are integrated out where a
    posterior at a point has them in its kernel, or where they are `drawn` with f. They stay with f
    of finite rank, whose mean is a function, and in batches, which share them.
    """
    chunked = _chunked_rows(data, batch_size, averaged)
    if chunked is not None:
        X, y, likelihood = chunked.some()
        data = data._replace(X=X, y=y, likelihood=likelihood)
    gp, coregion = data.model, data.coregion
    if gp.model is None and not averaged:
        raise ValueError(
            "there is nothing to learn: the SkewGP was made outside of a model. Make it, and the "
            "random variables that its kernel is to depend on, inside ``with pm.Model():``."
        )
    # A nested model's variables are the root's as well.
    model = pm.Model() if gp.model is None else gp.model.root
    kinds = _known_kinds(data, model, "integrate" if averaged else "find_hyperparameters")
    approximation = None
    if chunked is not None:
        approximation = chunked.approximation(gp, kinds[0])
    elif batch_size is None:
        approximation = approximation_of(gp, kinds, coregion)
    k = max(kind.n_functions for kind in kinds)
    coregion = as_coregion_graph(coregion, k)
    arrays: Arrays = ()
    if approximation is None:
        arrays = tuple(array for kind in kinds for array in kind.arrays)
    only = kinds[0] if len(kinds) == 1 else None
    batches = [arrays]
    if batch_size is not None:
        strata = None if only is None else only.strata
        if only is None or strata is None:
            raise ValueError(
                "batch_size is for data of one kind with one observation for each row of X and "
                "noise of its own: leave it out."
            )
        parts = random_batches(strata, as_count("batch_size", batch_size), rng)
        batches = [only.part(chosen) for chosen in parts]
    inputs, rows = zip(*(kind.rows() for kind in kinds), strict=True)
    without = approximation is None and batch_size is None
    without = without and (drawn or can_be_integrated(gp, k, coregion))
    collapsed = collapse_process(model, gp, list(rows), coregion, without_coefficients=without)
    symbols = [symbol for own in inputs for symbol in own]
    objective, origin = compile_objective(
        model, collapsed, symbols, batches, start, averaged=averaged
    )
    if approximation is None:
        return ProcessObjective(objective, origin, arrays, only, None, collapsed.coefficients)
    X = np.concatenate([kind.X for kind in kinds])
    coordinates = objective.coordinates
    functions = Functions(coregion, k, coordinates, model)
    by_rows = rows_objective(model, gp, approximation, objective, functions, kinds)
    of_rows = [kind_of(kind, model, coordinates, functions.known) for kind in kinds]
    return ProcessObjective(
        objective, origin, arrays, only, ManyRows(gp, approximation, of_rows, X, by_rows, chunked)
    )


def _known_kinds(data: TrainingData, model: pm.Model, caller: str) -> list[Any]:
    """Data of each kind, checked."""
    gp, X, y, likelihood, _, weights = data
    without_y = isinstance(X, Mapping | list) or not getattr(likelihood, "has_data", True)
    if X is None or (y is None and not without_y):
        raise ValueError(f"a SkewGP needs its data: {caller}(gp, X, y).")
    given = kinds_of(X, y, likelihood)
    if weights is not None and list(given) != [""]:
        raise ValueError(
            "weights are for data of one kind: repeat the rows of X and y in those of several."
        )
    return [known_of(inputs_of(gp, X), y, known, model, weights) for X, y, known in given.values()]


def _chunked_rows(data: TrainingData, batch_size: int | None, averaged: bool) -> ChunkedRows | None:
    """Data that are dask arrays; None where they are none."""
    if not (is_dask(data.X) or is_dask(data.y)):
        return None
    options = {"weights": data.weights, "coregion": data.coregion, "batch_size": batch_size}
    for name, value in options.items():
        if value is not None:
            refuse_chunks(f"{name} is given", f"leave it out, or {INSTEAD}")
    if averaged:
        refuse_chunks("integrate does not take them", "call find_hyperparameters")
    return ChunkedRows.of(data.X, data.y, data.likelihood)


def _coarse_rows(
    strata: NDArray[Any], settings: SearchSettings, rng: np.random.Generator
) -> IntArray | None:
    """Indices of some data that stand for all at first; None where all are few enough."""
    size = settings.coarse_size
    if settings.batch_size is not None:
        size = min(size, settings.batch_size)
    if strata.size <= max(settings.coarse_above, size):
        return None
    return random_batches(strata, size, rng)[0]
