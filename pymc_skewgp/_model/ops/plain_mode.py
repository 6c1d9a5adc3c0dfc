"""NumPy under PyTensor's own rewrites: functions that are there at once, without compilation.

Kernel matrices are evaluated a few times or a few hundred times. Compiling them would be most of
the wait, while NumPy's passes over whole matrices are as fast as compiled loops.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import lru_cache, partial, singledispatch
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor import config, scalar
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply, Constant, equal_computations
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.rewriting.basic import NodeRewriter, dfs_rewriter
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors, apply_ancestors, graph_inputs, io_toposort
from pytensor.link.basic import PerformLinker
from pytensor.link.utils import gc_helper, raise_with_op
from pytensor.scalar.basic import autocast_float, autocast_int
from pytensor.scalar.math import Log1mexp, Softplus, TriGamma
from pytensor.tensor.basic import Alloc, Eye
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.random.basic import HalfNormalRV, normal
from pytensor.tensor.random.op import RNGConsumerOp
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorConstant
from scipy.special import polygamma

from pymc_skewgp._validation import FloatArray

# Functions of every entry that NumPy lacks and SciPy has: PyTensor would call Python for each.


def softplus(x: FloatArray) -> FloatArray:
    """Log(1 + exp(x)), in half the time of `logaddexp`, which is not vectorised."""
    found = np.asarray(np.abs(x))  # of a number too: in place
    np.negative(found, out=found)
    np.log1p(np.exp(found, out=found), out=found)
    found += np.maximum(x, 0.0)
    return found


def _log1mexp(x: FloatArray) -> FloatArray:
    """Log(1 - exp(x)), x negative (Maechler 2012)."""
    with np.errstate(divide="ignore"):  # at 0 it is -inf
        near = np.log(-np.expm1(x))
        return np.where(x > -np.log(2.0), near, np.log1p(-np.exp(x)))


_FUNCTIONS: dict[type, Callable[[FloatArray], FloatArray]] = {
    Softplus: softplus,
    Log1mexp: _log1mexp,
    TriGamma: partial(polygamma, 1),
}


def _clip(x: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """What is below both limits becomes the lower one, also where that is the larger.

    PyMC's squared distances are clipped at 0, without an upper limit.
    """
    below = x if np.all(high == np.inf) else np.minimum(x, high)
    return np.asarray(np.maximum(below, low))


# A linker that calls NumPy for each node of a graph, with as little in between as there can be.
#
# PyTensor's own linker of this kind takes 10 to 20 microseconds a node: at every call it looks up
# and checks what is known when the function is made. NumPy itself takes one for a number, and ten
# for a matrix of 100 rows.

# What a variable is while a function runs, in a list of one.
Cell = list[Any]
Thunk = Callable[[], Any]
_Array = NDArray[Any]


class _Step(NamedTuple):
    """A node, what computes it, whether NumPy alone does, and what nobody reads after it."""

    node: Apply
    thunk: Thunk
    of_numpy: bool
    dead: tuple[Cell, ...]


class PlainLinker(PerformLinker):
    """As ``PerformLinker``, with thunks of its own for the commonest operations."""

    def make_all(
        self, input_storage: Any = None, output_storage: Any = None, storage_map: Any = None
    ) -> Any:
        """See ``PerformLinker``."""
        made = super().make_all(input_storage, output_storage, storage_map)
        function, inputs, outputs, thunks, nodes = made
        # A choice between branches asks PyTensor's own thunks what is computed already.
        if any(getattr(thunk, "lazy", False) for thunk in thunks):
            return made
        cells, results = function.storage_map, self.fgraph.outputs
        computed, last_user = gc_helper(nodes)
        steps = []
        for node, thunk in zip(nodes, thunks, strict=True):
            own = thunk_of(node.op, node, [cells[x] for x in node.inputs], cells[node.outputs[0]])
            last = {x for x in node.inputs if x in computed and last_user[x] is node}
            dead = tuple(cells[x] for x in last.difference(results))
            steps.append(_Step(node, own or thunk, own is not None, dead))
        # An output may be an input: of shared variables that change places.
        stale = [cells[x] for x in results if x in computed]
        run = _runner(self.fgraph, steps, [cells[x] for x in results], stale)
        run.allow_gc, run.storage_map = True, cells  # what PyTensor reads of it
        return run, inputs, outputs, [step.thunk for step in steps], nodes


def _runner(fgraph: Any, steps: Sequence[_Step], results: list[Cell], stale: list[Cell]) -> Any:
    """What runs the steps and returns the results; `stale` are emptied first."""
    groups = [(quiet, list(own)) for quiet, own in groupby(steps, lambda step: step.of_numpy)]

    def run() -> list[Any]:
        for cell in stale:
            cell[0] = None
        step = None
        try:
            for quiet, own in groups:
                with np.errstate(all="ignore") if quiet else nullcontext():
                    for step in own:
                        step.thunk()
                        for cell in step.dead:
                            cell[0] = None
        except Exception:
            assert step is not None
            raise_with_op(fgraph, step.node, step.thunk)
        return [cell[0] for cell in results]

    return run


@singledispatch
def thunk_of(op: Any, node: Apply, inputs: list[Cell], output: Cell) -> Thunk | None:
    """What fills the output's cell from those of the inputs; None where PyTensor's own is to."""
    return None


@thunk_of.register
def _(op: Elemwise, node: Apply, inputs: list[Cell], output: Cell) -> Thunk | None:
    function = _function_of(op, node)
    if function is None or len(node.outputs) > 1:
        return None
    dtype, asarray = np.dtype(node.outputs[0].type.dtype), np.asarray

    def thunk() -> None:
        output[0] = asarray(function(*[cell[0] for cell in inputs]), dtype)

    # NumPy would repeat a row that happens to be the only one.
    may_differ = _lengths_that_may_differ(node)
    pairs = [(d, inputs[own[0]], inputs[i]) for d, own in may_differ for i in own[1:]]

    def checked() -> None:
        for d, x, y in pairs:
            if x[0].shape[d] != y[0].shape[d]:
                op._check_runtime_broadcast(node, [cell[0] for cell in inputs])
        thunk()

    return checked if pairs else thunk


@thunk_of.register
def _(op: CAReduce, node: Apply, inputs: list[Cell], output: Cell) -> Thunk | None:
    if type(op).perform is not CAReduce.perform:
        return None
    (x,) = inputs
    dtype, axis, reduce = np.dtype(node.outputs[0].type.dtype), op.axis, op.ufunc.reduce
    within = np.dtype(op.acc_dtype or dtype)

    def thunk() -> None:
        output[0] = np.asarray(reduce(x[0], axis=axis, dtype=within), dtype)

    return thunk


@thunk_of.register
def _(op: DimShuffle, node: Apply, inputs: list[Cell], output: Cell) -> Thunk | None:
    if op.drop:
        return None
    (x,) = inputs
    order = op.shuffle
    index = tuple(None if i == "x" else slice(None) for i in op.new_order)

    def thunk() -> None:
        output[0] = x[0].transpose(order)[index]

    return thunk


def _function_of(op: Elemwise, node: Apply) -> Callable[..., Any] | None:
    """The function of arrays that PyTensor itself calls, where it is one of NumPy's or SciPy's."""
    kind, n_inputs = op.scalar_op, len(node.inputs)
    if isinstance(kind, scalar.Cast):  # a copy
        return partial(np.array, dtype=node.outputs[0].type.dtype)
    if isinstance(kind, scalar.Clip):
        return _clip
    if type(kind) in _FUNCTIONS and node.inputs[0].type.dtype == node.outputs[0].type.dtype:
        return _FUNCTIONS[type(kind)]
    if isinstance(kind, scalar.Add | scalar.Mul) and n_inputs != 2:
        return _folded(op.nfunc, node) if n_inputs > 2 else None
    if op.nfunc is None or op.nfunc_spec[1:] != (n_inputs, 1):
        return None
    signature = getattr(node.tag, "sig", None)
    function: Callable[..., Any] = op.nfunc
    return function if signature is None else partial(op.nfunc, sig=signature)


def _folded(function: Callable[..., Any], node: Apply) -> Callable[..., Any]:
    """A function of two arrays as one of several, in as little memory as can be known before."""
    types, result = [x.type for x in node.inputs], node.outputs[0].type
    first = zip(types[0].broadcastable, types[1].broadcastable, strict=True)
    whole = tuple(a and b for a, b in first) == result.broadcastable
    one_kind = all(x.dtype == result.dtype for x in types)
    in_place = whole and one_kind and bool(result.ndim)

    def folded(x: _Array, y: _Array, *others: _Array) -> Any:
        total = function(x, y)
        for y in others:
            total = function(total, y, out=total) if in_place else function(total, y)
        return total

    return folded


def _lengths_that_may_differ(node: Apply) -> list[tuple[int, list[int]]]:
    """Dimensions whose lengths only the arrays say, with the inputs that must agree in them."""
    found = []
    for d in range(node.outputs[0].type.ndim):
        long = [i for i, x in enumerate(node.inputs) if not x.type.broadcastable[d]]
        if len({node.inputs[i].type.shape[d] or (i,) for i in long}) > 1:
            found.append((d, long))
    return found


class SumOfANumber(NodeRewriter):
    """A number's sum over an axis is itself, as PyMC's CAR takes: NumPy knows no such axis."""

    def transform(self, fgraph: Any, node: Any, enforce_tracks: bool = True) -> Any:
        """The number."""
        if not isinstance(node.op, CAReduce) or node.inputs[0].type.ndim:
            return None
        return [node.inputs[0].astype(node.outputs[0].type.dtype)]


class HalfNormalDraws(NodeRewriter):
    """SciPy's half normal draws, without SciPy's distributions: half a second of import."""

    def transform(self, fgraph: Any, node: Any, enforce_tracks: bool = True) -> Any:
        """The same draws."""
        if not isinstance(node.op, HalfNormalRV):
            return None
        rng, size, loc, scale = node.inputs
        following, drawn = normal.make_node(rng, size, pt.zeros_like(loc), scale).outputs
        return [following, (loc + pt.abs(drawn)).astype(node.outputs[1].type.dtype)]


# With each of them that it removes the stack trace of a constant grows threefold: of the shapes of
# an autoregression of 30 steps to gigabytes.
_TRACED = ("local_useless_switch",)
# Of a slice of a slice of equal numbers it makes one of another length.
_WRONG = ("local_subtensor_of_alloc",)
# What makes a graph simpler, and its values more exact.
_SIMPLER = ("ShapeOpt", "merge", "canonicalize", "stabilize")


def _plain(*excluded: str) -> Mode:
    """A mode without what would run element by element in Python: fused loops and powers."""
    return (
        Mode(linker=PlainLinker(), optimizer="fast_run")
        .excluding("fusion", "local_pow_to_nested_squaring", *_TRACED, *_WRONG, *excluded)
        .register(
            (dfs_rewriter(SumOfANumber()), 0.02),  # before constants are computed
            (dfs_rewriter(HalfNormalDraws()), 0.02),
        )
    )


PLAIN = _plain("inplace")
# For loops until all draws are accepted: not in place each step would copy memory for all steps.
PLAIN_LOOPS = _plain()


# Arithmetic of users' numbers in 64 bits.
#
# PyTensor makes an int8 of the number 100 and a float32 of its logarithm: the square of an int8
# overflows at 12 without a word.

_WIDE = dict.fromkeys(("int8", "int16", "int32", "uint8", "uint16", "uint32"), "int64")
_WIDE |= dict.fromkeys(("float16", "float32"), "float64")


def as_real(value: Any) -> Any:
    """A number, array or graph in double precision, before anything is computed of it."""
    (graph,) = in_double([pt.as_tensor_variable(value)])
    if graph.type.dtype == "float64":
        return graph
    if isinstance(graph, TensorConstant):
        return pt.constant(np.asarray(graph.data, dtype=np.float64))
    return pt.cast(graph, "float64")


def in_double(graphs: Sequence[Any]) -> list[Any]:
    """Graphs in which nothing is computed in fewer than 64 bits.

    What is computed in 64 bits as it stands stays the same node, and so do random variables, with
    all that is above them.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_skewgp._model.ops.plain_mode import in_double
    >>> square = pt.sqr(pt.as_tensor_variable(100))
    >>> print(square.eval(), *(x.eval() for x in in_double([square])))
    16 10000
    """
    return _rebuilt(graphs, {v: v for v in ancestors(graphs) if is_drawn(v)})


# PyTensor compiles with settings changed, which all threads share and each puts back as it found
# them: two at once leave those of one to all functions that come after.
_SETTINGS = threading.RLock()


@contextmanager
def doubles() -> Iterator[None]:
    """Python's numbers as graphs of 64 bits: by PyTensor's custom those are of the fewest."""
    with _SETTINGS, ExitStack() as restored:
        for cast, dtype in ((autocast_int, "int64"), (autocast_float, "float64")):
            restored.callback(setattr, cast, "dtypes", cast.dtypes)
            cast.dtypes = (dtype,)
        yield


@contextmanager
def untraced() -> Iterator[None]:
    """Without a record, for each new variable, of the lines that made it: a fifth of the time."""
    with _SETTINGS, config.change_flags(traceback__limit=0):
        yield


def _rebuilt(graphs: Sequence[Any], known: Mapping[Any, Any]) -> list[Any]:
    """`in_double` of graphs with other variables in the place of those that are `known`."""
    wide = dict(known)
    for node in io_toposort(list(known), graphs):
        inputs = [wide.get(v, v) for v in node.inputs]
        computes = not isinstance(node.op, DimShuffle)
        if computes and any(_is_narrow(v) for v in node.outputs):
            inputs = [pt.cast(v, _WIDE[v.type.dtype]) if _is_narrow(v) else v for v in inputs]
        if all(new is old for new, old in zip(inputs, node.inputs, strict=True)):
            continue
        for old, new in zip(node.outputs, _outputs(node, inputs), strict=True):
            new.name = new.name or old.name
            wide[old] = new
    return [wide.get(graph, graph) for graph in graphs]


def _outputs(node: Any, inputs: list[Any]) -> list[Any]:
    """Of an operation on wider inputs; on those of its own types, where it takes no others."""
    if isinstance(node.op, Alloc | Eye):  # to infer the shape anew takes 20 ms
        dtype = inputs[0].type.dtype if isinstance(node.op, Alloc) else node.op.dtype
        return Apply(node.op, inputs, [node.outputs[0].type.clone(dtype=dtype)()]).outputs
    try:
        outputs: list[Any] = node.op.make_node(*inputs).outputs
        return outputs
    except TypeError:
        if isinstance(node.op, OpFromGraph):
            inner = node.op.fgraph.unfreeze()
            return _rebuilt(inner.outputs, dict(zip(inner.inputs, inputs, strict=True)))
    pairs = zip(inputs, node.inputs, strict=True)
    inputs = [x if x.type == own.type else pt.cast(x, own.type.dtype) for x, own in pairs]
    outputs = node.op.make_node(*inputs).outputs
    return outputs


def inlined(graph: Any) -> Any:
    """A graph without operations that are graphs of their own, and without views of variables.

    For a batch of inputs PyTensor would run these in Python, one by one; and log(1 - p) is not
    stable where p is a view, of a ``pm.Deterministic``, of a logistic function.
    """
    found: dict[Any, Any] = {}
    for node in io_toposort([], [graph]):
        inputs = [found.get(v, v) for v in node.inputs]
        if isinstance(node.op, OpFromGraph):
            inner = node.op.fgraph.unfreeze()
            outputs = clone_replace(inner.outputs, dict(zip(inner.inputs, inputs, strict=True)))
            outputs = [inlined(x) for x in outputs]
        elif type(node.op) is ViewOp:
            outputs = inputs
        elif any(v in found for v in node.inputs):
            outputs = node.clone_with_new_inputs(inputs, strict=False).outputs
        else:
            continue
        found |= dict(zip(node.outputs, outputs, strict=True))
    return found.get(graph, graph)


def _is_narrow(v: Any) -> bool:
    """Whether a graph is of fewer than 64 bits, and PyTensor was not asked for singles."""
    dtype = getattr(v.type, "dtype", None)
    return dtype in _WIDE and (dtype[0] != "f" or config.floatX == "float64")


def is_drawn(v: Any) -> bool:
    """Whether an operation that takes a generator made a graph."""
    return isinstance(getattr(v.owner, "op", None), RNGConsumerOp)


# Functions of graphs in `PLAIN` mode, made once for graphs that are alike.
#
# PyTensor rewrites a graph in some 50 to 150 ms, as long as a small fit takes. Estimators build the
# same graph again and again, for each class, fold and data set.

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
    turn : lock, optional
        Of another one with the same function.
    shared : sequence of shared variables
        Their values are its last arguments.
    """

    def __init__(
        self, function: Any, inputs: list[Any], outputs: Any, turn: Any = None, shared: Any = ()
    ) -> None:
        self._function, self._turn = function, turn or threading.Lock()
        self._graph, self._shared = (inputs, outputs), shared

    def __call__(self, *arrays: Any) -> Any:
        """The graph at these values of its inputs."""
        values = [x.get_value(borrow=True) for x in self._shared]
        with self._turn:
            return self._function(*arrays, *values)

    def of(self, shared: Sequence[Any], inputs: Sequence[Any], outputs: Any) -> "PlainFunction":
        """The same with values of shared variables as its last arguments."""
        return PlainFunction(self._function, list(inputs), outputs, self._turn, shared)

    def __reduce__(self) -> Any:
        inputs, outputs = self._graph
        for node in apply_ancestors(outputs if isinstance(outputs, list) else [outputs]):
            vars(node.op).pop("_ufunc", None)  # kept by reductions once made, and not picklable
        return plain_function, (inputs, outputs)


class _Asked:
    """Graphs to be compiled; equal to others that do the same on inputs of the same types."""

    def __init__(self, inputs: Sequence[Any], graphs: list[Any], single: bool) -> None:
        self.inputs, self.graphs, self.single = list(inputs), graphs, single
        operations = Counter(node.op for node in apply_ancestors(graphs))
        types = (tuple(x.type for x in inputs), tuple(x.type for x in graphs))
        self.key = single, *types, frozenset(operations.items())

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Asked):
            return False
        # A graph is equal to itself, whatever the order of its inputs: PyTensor does not look.
        place = {x: i for i, x in enumerate(self.inputs)}
        in_order = all(place.get(x, i) == i for i, x in enumerate(other.inputs))
        return (
            in_order
            and self.key == other.key
            and bool(equal_computations(self.graphs, other.graphs, self.inputs, other.inputs))
        )

    def compiled(self) -> PlainFunction:
        """In `PLAIN` mode, and without a C compiler for graphs within operations."""
        found = self.graphs[0] if self.single else self.graphs
        with config.change_flags(cxx=""):
            function = pytensor.function(self.inputs, found, mode=PLAIN, on_unused_input="ignore")
        return PlainFunction(function, self.inputs, found)

    def simplified(self) -> "_Asked":
        """As PyTensor rewrites it before it thinks of speed: gradients can be taken of it."""
        # Of a clone: these graphs are what others are compared with.
        options = {"include": _SIMPLER, "exclude": (*_TRACED, *_WRONG)}
        found = rewrite_graph(self.graphs, clone=True, **options)
        return _Asked(self.inputs, list(found), self.single)


def _kept_of(way: Callable[[_Asked], Any], asked: _Asked) -> Any:
    """What is made of graphs, or was of equal ones; without keeping large constants."""
    constants = (x.data for x in ancestors(asked.graphs) if isinstance(x, Constant))
    if sum(getattr(x, "size", 1) for x in constants) > _LARGEST:
        return way(asked)
    return vars(_kept).setdefault(way.__name__, lru_cache(_MOST)(way))(asked)


@untraced()
def simplified(inputs: Sequence[Any], graphs: Sequence[Any]) -> list[Any]:
    """Graphs that compute the same with fewer nodes: for several functions of what is made of them.

    What a gradient or a batch of a raw graph of 2,000 nodes takes is seconds, and a minute; of that
    in 200 a second.
    """
    found = graph_inputs(graphs)
    known = [*inputs, *(x for x in found if not isinstance(x, Constant) and x not in inputs)]
    # Values of shared variables are not read: they may change.
    own = {x: x.type(x.name) for x in known}
    asked = _Asked(list(own.values()), in_double(clone_replace(list(graphs), replace=own)), False)
    simpler = _kept_of(_Asked.simplified, asked)
    return clone_replace(simpler.graphs, replace=dict(zip(simpler.inputs, known, strict=True)))


@untraced()
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
    # Values of shared variables are arguments: graphs of others are equal.
    found = (x for x in graph_inputs(graphs) if isinstance(x, TensorSharedVariable))
    shared = {x: x.type(x.name) for x in found if x not in inputs}
    if shared:
        known = graphs[0] if single else graphs
        own = plain_function([*inputs, *shared.values()], clone_replace(known, replace=shared))
        return own.of(list(shared), inputs, known)
    asked = _Asked(inputs, in_double(graphs), single)
    function: PlainFunction = _kept_of(_Asked.compiled, asked)
    return function


def many_at_once(inputs: Sequence[Any], graphs: Sequence[Any]) -> tuple[PlainFunction, list[bool]]:
    """A function of arrays with one more axis, and which graphs depend on no input."""
    many = {x: TensorType(x.dtype, (None, *x.type.shape))(x.name) for x in inputs}
    together = vectorize_graph(list(graphs), many)
    own = set(many.values())
    function = plain_function(list(many.values()), together)
    return function, [own.isdisjoint(graph_inputs([graph])) for graph in together]


def is_constant(graph: Any) -> bool:
    """Whether there are no variables in a graph: it is one number, or one array."""
    return all(isinstance(x, Constant) for x in graph_inputs([graph]))
