"""Numbers that sites are made of, such as limits, as functions of a point and of the data."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.traversal import graph_inputs

from pymc_skewgp._learn.compiled import Batch, pull_back_function
from pymc_skewgp._learn.coordinates import Coordinates
from pymc_skewgp._learn.point import Point
from pymc_skewgp._model.graph.data_rows import KnownData
from pymc_skewgp._model.ops.known_functions import plain_function
from pymc_skewgp._validation import FloatArray


class CompiledNumbers:
    """Some graphs, and the gradient through them.

    Parameters
    ----------
    coordinates : Coordinates
    model : pymc.Model
    inputs : sequence of variables
        The data.
    outputs : sequence of variables
        Graphs of the data and of the model's variables.

    Attributes
    ----------
    varies : tuple of bool
        Which of the outputs depend on what is learnt.
    """

    def __init__(
        self,
        coordinates: Coordinates,
        model: pm.Model,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
    ) -> None:
        self._coordinates = coordinates
        graphs = model.replace_rvs_by_values(list(outputs))
        learnt = set(coordinates.inputs)
        self.varies = tuple(bool(learnt.intersection(graph_inputs([x]))) for x in graphs)
        known = [*coordinates.inputs, *inputs]
        self._forward = plain_function(known, graphs)
        moved = [x for x, varies in zip(graphs, self.varies, strict=True) if varies]
        self._pull = pull_back_function(known, moved, coordinates) if moved else None

    def __call__(self, point: Point, batch: Batch) -> list[FloatArray]:
        """Their values."""
        found = self._forward(*self._coordinates.arguments(point), *batch)
        return [np.asarray(x, np.float64) for x in found]

    def pull_back(
        self, point: Point, batch: Batch, wrt: Sequence[FloatArray]
    ) -> list[FloatArray] | None:
        """Gradient in the continuous variables from that in each output; None for 0.

        Of outputs that do not vary there is no need to know it: they may have any array.
        """
        if self._pull is None:
            return None
        own = [x for x, varies in zip(wrt, self.varies, strict=True) if varies]
        found: list[FloatArray] = self._pull(*self._coordinates.arguments(point), *batch, *own)
        return found


def compiled_rows(known: KnownData, model: pm.Model, coordinates: Coordinates) -> CompiledNumbers:
    """Lower, upper, value, noise and constant of rows with noise of their own, from their table."""
    table = known.whole
    data = [*table.columns, table.log_constant, *table.slopes]
    symbols = [pt.tensor(dtype=x.dtype, shape=(None,) * x.ndim) for x in data]
    X = pt.matrix("X", shape=(None, known.X.shape[1]), dtype="float64")
    counts = [pt.vector("counts", dtype="float64")] if known.repeats else []
    k = len(table.columns) + 1
    rows = known.rows_of([X, *symbols[:k], *counts, *symbols[k:]], known.random)
    graphs = [rows.lower, rows.upper, rows.value, rows.S, rows.log_constant]
    return CompiledNumbers(coordinates, model, symbols, graphs)
