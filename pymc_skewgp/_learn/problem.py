"""What a search is given: the objective on all data and on a part of it, and where to start."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._learn.batches import random_batches
from pymc_skewgp._learn.compiled import Batch
from pymc_skewgp._learn.objective import Objective, compile_objective
from pymc_skewgp._learn.phases import Places, pseudo_point_places
from pymc_skewgp._learn.search import Part
from pymc_skewgp._learn.settings import SearchSettings
from pymc_skewgp._model.gp.process import as_input_graph
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._model.graph.collapsed import collapse_model, collapse_process
from pymc_skewgp._observations.arguments import as_inputs, as_labels
from pymc_skewgp._validation import FloatArray, as_count

Start = Mapping[str, Any] | None


class TrainingData(NamedTuple):
    """A model with its data in it; or a SkewGP, and its inputs and labels."""

    model: Any
    X: Any = None
    y: Any = None


class LearningProblem(NamedTuple):
    """What a search is given.

    Attributes
    ----------
    objective : Objective
    part : Part or None
        The objective on some of the labels, where there are many.
    origin : ndarray, shape (k,)
        Where to start.
    places : list of lists
        Of the pseudo-points in the vector.
    of_process : bool
        Whether it is about a SkewGP: then its pseudo-points are known.
    """

    objective: Objective
    part: Part | None
    origin: FloatArray
    places: Places
    of_process: bool


class ProcessObjective(NamedTuple):
    """The objective of a SkewGP, where to start, and its data: inputs and signs."""

    objective: Objective
    origin: FloatArray
    data: Batch


def learning_problem(
    data: TrainingData, settings: SearchSettings, rng: np.random.Generator, start: Start
) -> LearningProblem:
    """Compile what is to be maximised.

    Raises
    ------
    TypeError, ValueError
        For what is no model, data that are missing or do not belong, as `find_hyperparameters`.
    """
    model, X, y = data
    if isinstance(model, pm.Model):
        if X is not None or y is not None or settings.batch_size is not None:
            raise ValueError(
                "X, y and batch_size go with a SkewGP: a model has its data in it. Use "
                "find_hyperparameters(gp, X, y, ...)."
            )
        root = model.root
        objective, origin = compile_objective(root, collapse_model(root), start=start)
        return LearningProblem(objective, None, origin, [], False)
    if not isinstance(model, SkewGP):
        raise TypeError(f"model must be a pm.Model or a SkewGP, got {type(model).__name__}.")
    objective, origin, (inputs, labels) = process_objective(data, settings.batch_size, rng, start)
    part = None
    rows = _coarse_rows(labels, settings, rng)
    if rows is not None:
        part = Part(objective.on([(inputs[rows], labels[rows])]), rows.size / labels.size)
    places = pseudo_point_places(objective.coordinates, model)
    return LearningProblem(objective, part, origin, places, True)


def process_objective(
    data: TrainingData, batch_size: int | None, rng: np.random.Generator, start: Start
) -> ProcessObjective:
    """The objective of a SkewGP: the evidence of all its labels, or the sum over random batches."""
    gp, X, y = data
    if X is None or y is None:
        raise ValueError("a SkewGP needs its data: find_hyperparameters(gp, X, y).")
    if gp.model is None:
        raise ValueError(
            "there is nothing to learn: the SkewGP was made outside of a model. Make it, and the "
            "random variables that its kernel is to depend on, inside ``with pm.Model():``."
        )
    inputs = as_input_graph("X", as_inputs("X", X), gp.n_columns)
    labels = as_labels(y, inputs.shape[0]).astype(np.float64)
    batches = [(inputs, labels)]
    if batch_size is not None:
        parts = random_batches(labels, as_count("batch_size", batch_size), rng)
        batches = [(inputs[part], labels[part]) for part in parts]
    symbols = [pt.matrix("X"), pt.vector("labels")]
    model = gp.model.root  # a nested model's variables are the root's as well
    collapsed = collapse_process(model, gp, *symbols)
    objective, origin = compile_objective(model, collapsed, symbols, batches, start)
    return ProcessObjective(objective, origin, (inputs, labels))


def _coarse_rows(
    labels: FloatArray, settings: SearchSettings, rng: np.random.Generator
) -> IntArray | None:
    """Indices of some labels that stand for all at first; None where all are few enough."""
    size = settings.coarse_size
    if settings.batch_size is not None:
        size = min(size, settings.batch_size)
    if labels.size <= max(settings.coarse_above, size):
        return None
    return random_batches(labels, size, rng)[0]
