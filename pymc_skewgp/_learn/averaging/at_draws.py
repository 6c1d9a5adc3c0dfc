"""Graphs of a model's variables at their draws, many draws in one call."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor import TensorType
from pytensor.tensor.random.type import RandomGeneratorType

from pymc_skewgp._model.ops.known_functions import plain_function

# Draws in one call: enough for Python to be a small part of the time, few enough for covariances
# of the observations.
_TOGETHER = 64


def at_draws(
    graphs: Sequence[Any],
    given: Mapping[Any, NDArray[Any]],
    rng: np.random.Generator | None = None,
) -> list[NDArray[Any]]:
    """Values of graphs, a draw each: shapes (N, ...).

    Parameters
    ----------
    graphs : sequence of TensorVariable
    given : mapping of TensorVariable to ndarray, shape (N, ...)
        Draws of their inputs, one at least.
    rng : numpy.random.Generator, optional
        Where random variables are in the graphs: drawn anew for each draw.
    """
    size = len(next(iter(given.values())))
    many = {x: TensorType(x.dtype, (None, *x.type.shape))(x.name) for x in given}
    draws = [values.astype(x.dtype, copy=False) for x, values in given.items()]
    together = None
    if rng is None:
        with suppress(NotImplementedError):  # sparse arrays, say
            together = vectorize_graph(list(graphs), many)
    if together is None:
        single = _one_by_one(graphs, given, draws, rng)
        return [np.stack(x) for x in zip(*single, strict=True)]
    function = plain_function(list(many.values()), together)
    starts = range(0, size, _TOGETHER)
    blocks = [function(*(x[i : i + _TOGETHER] for x in draws)) for i in starts]
    found = []
    for graph, parts in zip(together, zip(*blocks, strict=True), strict=True):
        fixed = set(graph_inputs([graph])).isdisjoint(many.values())
        found.append(
            np.broadcast_to(parts[0], (size, *parts[0].shape)) if fixed else np.concatenate(parts)
        )
    return found


def _one_by_one(
    graphs: Sequence[Any],
    given: Mapping[Any, NDArray[Any]],
    draws: Sequence[NDArray[Any]],
    rng: np.random.Generator | None,
) -> Iterator[list[NDArray[Any]]]:
    own = [x for x in graph_inputs(list(graphs)) if isinstance(x.type, RandomGeneratorType)]
    new = [x.type() for x in own]
    inputs = [x.type() for x in given]
    replaced = dict(zip([*own, *given], [*new, *inputs], strict=True))
    function = plain_function([*new, *inputs], list(clone_replace(list(graphs), replaced)))
    for values in zip(*draws, strict=True):
        yield function(*(rng.spawn(len(own)) if rng is not None else []), *values)
