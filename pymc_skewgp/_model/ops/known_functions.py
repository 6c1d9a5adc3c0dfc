"""Functions of graphs in `PLAIN` mode, made once for graphs that are alike.

PyTensor rewrites a graph in some 50 to 150 ms, as long as a small fit takes. Estimators build the
same graph again and again, for each class, fold and data set.
"""

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pytensor
from pytensor.graph.basic import Constant, equal_computations
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, apply_ancestors, graph_inputs

from pymc_skewgp._model.ops.double_precision import in_double
from pymc_skewgp._model.ops.plain_mode import PLAIN

# Functions kept, the last ones used; each takes some hundred kB.
_MOST = 128
# Entries of all constants in a graph beyond which it is not kept, nor they with it.
_LARGEST = 10_000
# Of each thread: functions that several use are called by one at a time.
_kept = threading.local()


class PlainFunction:
    """A function of arrays. It has memory of its own, so that other threads wait for their turn.

    It is pickled as its graph: a compiled one may hold functions that cannot be.

    Parameters
    ----------
    function : pytensor.compile.executor.Function
    inputs : list of variables
    outputs : variable or list of variables
    """

    def __init__(self, function: Any, inputs: list[Any], outputs: Any) -> None:
        self._function, self._turn = function, threading.Lock()
        self._graph = inputs, outputs

    def __call__(self, *arrays: Any) -> Any:
        """The graph at these values of its inputs."""
        with self._turn:
            return self._function(*arrays)

    def __reduce__(self) -> Any:
        inputs, outputs = self._graph
        for node in apply_ancestors(outputs if isinstance(outputs, list) else [outputs]):
            vars(node.op).pop("_ufunc", None)  # kept by reductions once made, and not picklable
        return plain_function, (inputs, outputs)


class _Known(NamedTuple):
    inputs: list[Any]
    outputs: list[Any]
    function: PlainFunction


def plain_function(
    inputs: Sequence[Any], outputs: Any, givens: Mapping[Any, Any] | None = None
) -> PlainFunction:
    """``pytensor.function`` in `PLAIN` mode, or an older one of an equal graph.

    Graphs are equal that do the same operations, on inputs of the same types and equal constants.
    Nothing in them is computed in fewer than 64 bits.

    Parameters
    ----------
    inputs : sequence of variables
        They need not all be used.
    outputs : variable or sequence of variables
    givens : mapping of variables, optional
        What to replace in the graph.

    Returns
    -------
    PlainFunction
    """
    single = not isinstance(outputs, Sequence)
    graphs = [outputs] if single else list(outputs)
    if givens:
        graphs = clone_replace(graphs, replace=dict(givens))
    graphs = in_double(graphs)
    key = (single, *_signature(inputs, graphs))
    functions = _functions()
    for old in functions.get(key, []):
        if equal_computations(graphs, old.outputs, list(inputs), old.inputs):
            functions.move_to_end(key)
            return old.function
    found = graphs[0] if single else graphs
    compiled = pytensor.function(list(inputs), found, mode=PLAIN, on_unused_input="ignore")
    function = PlainFunction(compiled, list(inputs), found)
    if _n_constants(graphs) <= _LARGEST:
        functions.setdefault(key, []).append(_Known(list(inputs), graphs, function))
        functions.move_to_end(key)
        _forget_oldest()
    return function


def is_constant(graph: Any) -> bool:
    """Whether there are no variables in a graph: it is one number, or one array."""
    return all(isinstance(x, Constant) for x in graph_inputs([graph]))


def _signature(inputs: Iterable[Any], graphs: Sequence[Any]) -> tuple[Any, ...]:
    """Equal for equal graphs, and almost never for others."""
    types = (tuple(x.type for x in inputs), tuple(x.type for x in graphs))
    return (*types, frozenset(Counter(node.op for node in apply_ancestors(graphs)).items()))


def _n_constants(graphs: Sequence[Any]) -> int:
    """Entries of all constants."""
    return sum(getattr(x.data, "size", 1) for x in ancestors(graphs) if isinstance(x, Constant))


def _functions() -> OrderedDict[Any, list[_Known]]:
    """Of this thread."""
    if not hasattr(_kept, "functions"):
        _kept.functions = OrderedDict()
    functions: OrderedDict[Any, list[_Known]] = _kept.functions
    return functions


def _forget_oldest() -> None:
    functions = _functions()
    while sum(map(len, functions.values())) > _MOST:
        oldest = functions[next(iter(functions))]
        del oldest[:1]
        if not oldest:
            functions.popitem(last=False)
