"""The latent functions of a model at points of hyperparameters, by name, with log likelihoods."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy, deepcopy
from functools import cached_property, partial
from typing import Any

import numpy as np
import pymc as pm
import pytensor
from numpy.typing import NDArray
from pymc.backends import arviz as of_pymc
from pymc.model.transform.conditioning import remove_value_transforms
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, graph_inputs, io_toposort
from pytensor.tensor import TensorType
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomGeneratorType
from xarray import Dataset, DataTree

from pymc_skewgp._gaussian.truncated import log_orthant
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._learn.averaging.points import (
    N_CANDIDATES,
    EqualDraws,
    FactorTask,
    Task,
    evidence_alone,
)
from pymc_skewgp._learn.coordinates import Point, Searched
from pymc_skewgp._learn.objective import Objective
from pymc_skewgp._limits import few_blas_threads
from pymc_skewgp._model.gp.latent_draws import values_of
from pymc_skewgp._model.graph.analysis import BlockGraph
from pymc_skewgp._model.graph.at_points import GraphsAtPoints
from pymc_skewgp._model.graph.collapsed import Collapsed
from pymc_skewgp._model.graph.fields import Field
from pymc_skewgp._model.graph.gaussian_terms import SiteDesign
from pymc_skewgp._model.graph.initial_point import initial_point
from pymc_skewgp._model.graph.members import JointGaussian, labels_of
from pymc_skewgp._model.ops.plain_mode import (
    PLAIN,
    many_at_once,
    plain_function,
    simplified,
)
from pymc_skewgp._model.steps.block_move import LatentAtPoint
from pymc_skewgp._observations.observations import intervals
from pymc_skewgp._observations.sites import Sites, SitesGiven
from pymc_skewgp._posterior.draws_with_evidence import (
    SIGN_DRAWS,
    Case,
    DrawsWithEvidence,
    sun_given,
)
from pymc_skewgp._posterior.output import named_dataset
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray

# Graphs of a model's variables at their draws, many draws in one call.

# Draws in one call: enough for Python to be a small part of the time, few enough for covariances
# of the observations.
_TOGETHER = 64
_SEEN = 4  # values of a draw that tell most draws apart


def at_draws(
    graphs: Sequence[Any],
    given: Mapping[Any, NDArray[Any]],
    rng: np.random.Generator | None = None,
    known: "dict[tuple[Any, ...], _InOrder] | None" = None,
) -> list[NDArray[Any]]:
    """Values of graphs, a draw each: shapes (N, ...).

    Parameters
    ----------
    graphs : sequence of TensorVariable
    given : mapping of TensorVariable to ndarray, shape (N, ...)
        Draws of their inputs, one at least.
    rng : numpy.random.Generator, optional
        Where random variables are in the graphs: drawn anew for each draw.
    known : dict, optional
        What was compiled of the same graphs, by the inputs that many draws share.
    """
    size = len(next(iter(given.values())))
    draws = {x: values.astype(x.dtype, copy=False) for x, values in given.items()}
    function, known = None, {} if known is None else known
    shared = tuple(x for x, values in draws.items() if _many_are_equal(values))
    with suppress(NotImplementedError):  # sparse arrays, and what is drawn in a loop
        function = known.get(shared) or _InOrder(graphs, list(draws), shared)
        known[shared] = function
    if function is None:
        single = _one_by_one(graphs, given, list(draws.values()), rng)
        return [np.stack(x) for x in zip(*single, strict=True)]
    parts = (slice(i, i + _TOGETHER) for i in range(0, size, _TOGETHER))
    blocks = [function({x: every[part] for x, every in draws.items()}, rng) for part in parts]
    return [
        np.broadcast_to(parts[0], (size, *parts[0].shape)) if fixed else np.concatenate(parts)
        for fixed, parts in zip(function.fixed, zip(*blocks, strict=True), strict=True)
    ]


class _InOrder:
    """Graphs at some of the draws at once, random variables in them drawn anew, parents first.

    Raises
    ------
    NotImplementedError
        Of what is drawn in a loop.
    """

    def __init__(self, graphs: Sequence[Any], inputs: Sequence[Any], shared: Sequence[Any]) -> None:
        inputs, self._steps = list(inputs), []
        random, graphs = _drawn_next(graphs)
        while random:
            wanted = [x for n in random for x in n.inputs[1:] if isinstance(x.type, TensorType)]
            new = {x: x.type() for n in random for x in n.outputs}
            self._steps.append((random, new, _SideBySide(wanted, inputs, shared)))
            inputs += [new[n.outputs[1]] for n in random]
            random, graphs = _drawn_next(clone_replace(graphs, new))
        self._last = _SideBySide(graphs, inputs, shared)
        self.fixed = self._last.fixed

    def __call__(
        self, values: Mapping[Any, NDArray[Any]], rng: np.random.Generator | None
    ) -> list[NDArray[Any]]:
        values, generators = dict(values), dict[Any, np.random.Generator]()
        n = len(next(iter(values.values())))
        for random, new, parameters in self._steps:
            pairs = zip(parameters(values), parameters.fixed, strict=True)
            each = (np.broadcast_to(x, (n, *x.shape)) if fixed else x for x, fixed in pairs)
            for node in random:
                own = [next(each) if isinstance(x.type, TensorType) else None for x in node.inputs]
                if rng is not None and node.inputs[0] not in generators:
                    generators[node.inputs[0]] = rng.spawn(1)[0]
                # Copies of a variable in several graphs have one generator, and are equal.
                after, drawn = (new[x] for x in node.outputs)
                generators[after] = deepcopy(generators[node.inputs[0]])
                values[drawn] = _drawn(node, own, generators[after])
        return self._last(values)


def _drawn_next(graphs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Random variables that depend on no other, and the graphs, without graphs within operations.

    Raises
    ------
    NotImplementedError
    """
    kind = RandomGeneratorType
    nodes = [n for n in io_toposort([], graphs) if any(isinstance(x.type, kind) for x in n.inputs)]
    for node in nodes:
        if isinstance(node.op, OpFromGraph):
            inner = node.op.fgraph
            own = clone_replace(inner.outputs, dict(zip(inner.inputs, node.inputs, strict=True)))
            whole = dict(zip(node.outputs, own, strict=True))
            return _drawn_next(clone_replace(list(graphs), whole))
        if not isinstance(node.op, RandomVariable):
            raise NotImplementedError
    drawn = {x for n in nodes for x in n.outputs}
    return [n for n in nodes if drawn.isdisjoint(ancestors(n.inputs))], list(graphs)


def _drawn(node: Any, values: Sequence[Any], rng: Any) -> NDArray[Any]:
    """A random variable at parameters of many draws: shape (N, ...)."""
    op, (_, size, *parameters) = node.op, values
    batch = node.outputs[1].ndim - op.ndim_supp
    own = [
        x.reshape(len(x), *[1] * (1 + batch + core - x.ndim), *x.shape[1:])
        for x, core in zip(parameters, op.ndims_params, strict=True)
    ]
    shape = np.broadcast_shapes(*(x.shape[: 1 + batch] for x in own))
    shape = shape if size is None else (len(size), *size[0])
    return np.asarray(op.rng_fn(rng, *own, shape), node.outputs[1].dtype)


class _SideBySide:
    """Graphs at some of the draws at once.

    What depends on inputs alone that many draws share, such as the Cholesky factor of a covariance
    on hyperparameters, is computed once for all of these.

    Attributes
    ----------
    fixed : list of bool
        Which of the graphs depend on no input.
    """

    def __init__(self, graphs: Sequence[Any], inputs: Sequence[Any], shared: Sequence[Any]) -> None:
        self._shared, graphs = shared, simplified(inputs, graphs)
        self._held = held = _held(graphs, inputs, shared)
        self._first = many_at_once(shared, held)[0] if held else None
        new = {x: x.type(x.name) for x in held}
        self._rest, self.fixed = many_at_once(
            [*inputs, *new.values()], clone_replace(list(graphs), new)
        )

    def __call__(self, values: Mapping[Any, NDArray[Any]]) -> list[NDArray[Any]]:
        known: list[NDArray[Any]] = []
        if self._first is not None:
            own = [values[x] for x in self._shared]
            flat = np.hstack([x.reshape(len(x), -1).astype(np.float64) for x in own])
            _, first, which = np.unique(flat, axis=0, return_index=True, return_inverse=True)
            # NumPy may have computed in double what a graph has as single, as minus infinity.
            each = zip(self._first(*(x[first] for x in own)), self._held, strict=True)
            known = [np.asarray(x[which.ravel()], v.dtype) for x, v in each]
        found: list[NDArray[Any]] = self._rest(*values.values(), *known)
        return found


def _many_are_equal(values: NDArray[Any]) -> bool:
    flat = values.reshape(len(values), -1)
    few = (flat[:, :_SEEN], flat)  # long rows take long to be sorted
    return all(2 * len(np.unique(own, axis=0)) <= len(values) for own in few)


def _held(graphs: Sequence[Any], inputs: Iterable[Any], shared: Sequence[Any]) -> list[Any]:
    """What other variables are computed from and depends on `shared` inputs alone."""
    moving, still, held = set(inputs).difference(shared), set(shared), dict[Any, None]()
    for node in io_toposort(list(inputs), list(graphs)):
        if not moving.isdisjoint(node.inputs):
            moving.update(node.outputs)
            held |= dict.fromkeys(x for x in node.inputs if x in still)
        elif not still.isdisjoint(node.inputs):
            still.update(node.outputs)
    return [x for x in held if x not in shared and isinstance(x.type, TensorType)]


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
    graphs = clone_replace(list(graphs), replaced)
    # What hyperparameters alone decide, as the factor of a covariance, is kept for equal ones.
    still = [i for i, values in enumerate(draws) if _some_are_repeated(values)]
    held = _held(graphs, [*new, *inputs], [inputs[i] for i in still])
    first = plain_function([inputs[i] for i in still], held)
    known = {x: x.type() for x in held}
    rest = plain_function([*new, *inputs, *known.values()], clone_replace(graphs, known))
    key: list[bytes] = []
    found: list[Any] = []
    for values in zip(*draws, strict=True):
        last, key = key, [values[i].tobytes() for i in still]
        found = found if key == last else first(*(values[i] for i in still))
        yield rest(*(rng.spawn(len(own)) if rng is not None else []), *values, *found)


def _some_are_repeated(values: NDArray[Any]) -> bool:
    """Whether a tenth of the draws are the draw before."""
    flat = values.reshape(len(values), -1)
    return 10 * int((flat[1:] == flat[:-1]).all(axis=1).sum()) >= len(values)


def flat_draws(trace: Dataset, variables: Iterable[Any]) -> dict[Any, NDArray[Any]]:
    """Of each variable, chains one after the other: shapes (N, ...)."""
    every = {rv: values_of(trace, rv.name) for rv in variables}
    return {rv: values.reshape(-1, *values.shape[2:]) for rv, values in every.items()}


def by_chain(
    trace: Dataset, variables: Iterable[Any], values: Iterable[NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """Values at flat draws by name, shapes (chain, draw, ...)."""
    shape, pairs = (trace.sizes["chain"], trace.sizes["draw"]), zip(variables, values, strict=True)
    return {x.name: value.reshape(*shape, *value.shape[1:]) for x, value in pairs}


# Hyperparameters at points by name, on their own scale, as a data set.


def dataset_of(objective: Searched, points: Sequence[Point], index: IntArray) -> Dataset:
    """Values at the points `index`, (chain, draw), Deterministics of hyperparameters among them."""
    each = [objective.named(point) for point in points]
    names = list(each[0]) if each else []
    values = {name: np.stack([named[name] for named in each])[index] for name in names}
    found = as_dataset(objective.coordinates.model, values)
    if not names:
        chains, draws = (np.arange(n) for n in index.shape)
        found = found.assign_coords(chain=chains, draw=draws)
    return found


def as_dataset(model: pm.Model, values: Mapping[str, NDArray[Any]]) -> Dataset:
    """Arrays (chain, draw, ...) of variables of a model, with its dimensions and coordinates."""
    return _groups(model, {"posterior": values}).get("posterior", Dataset())


@contextmanager
def without_initial_values(model: pm.Model) -> Iterator[None]:
    """For what PyMC does with a copy of a model: it copies none that has an ``initval``."""
    known = dict(model.rvs_to_initial_values)
    model.rvs_to_initial_values.update(dict.fromkeys(known))
    try:
        yield
    finally:
        model.rvs_to_initial_values.update(known)


def with_deterministics(model: pm.Model, trace: Dataset) -> Dataset:
    """And those Deterministics that it lacks and that follow from the variables in it."""
    unknown = {rv for rv in model.free_RVs if rv.name not in trace}
    later = [
        x
        for x in model.deterministics
        if x.name not in trace and unknown.isdisjoint(ancestors([x]))
    ]
    return _with(model, trace, later)


def with_predictions(
    model: pm.Model, trace: Dataset, predicted: Sequence[Any], rng: np.random.Generator
) -> Dataset:
    """And free variables that nothing observed depends on, drawn forward; masked data are such."""
    later = [rv for rv in predicted if rv.name not in trace]
    return _with(model, trace, later, rng)


def _with(
    model: pm.Model, trace: Dataset, later: Sequence[Any], rng: np.random.Generator | None = None
) -> Dataset:
    """And other variables, what is observed being the data."""
    if not later:
        return trace
    drawn = [rv for rv in model.free_RVs if rv.name in trace]
    # At once: a copy of a graph would have copies of what is drawn.
    known = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    inputs = {rv: rv.type(rv.name) for rv in drawn}
    graphs = clone_replace(list(later), known | inputs)
    given = {inputs[rv]: values for rv, values in flat_draws(trace, drawn).items()}
    values = by_chain(trace, later, at_draws(graphs, given, rng))
    return trace.merge(as_dataset(model, values))


def data_of(model: pm.Model) -> dict[str, Dataset]:
    """Groups of what was observed and of constants, as ``pm.sample`` has them."""
    observed, constant = of_pymc.find_observations(model), of_pymc.find_constants(model)
    return _groups(model, {"observed_data": observed, "constant_data": constant})


def _groups(
    model: pm.Model, groups: Mapping[str, Mapping[str, NDArray[Any]]]
) -> dict[str, Dataset]:
    """With the model's dimensions and coordinates; those that are not empty."""
    named = {group: dict(values) for group, values in groups.items() if values}
    if not named:
        return {}
    every = {name: x for values in named.values() for name, x in values.items()}
    known = {name: dims for name, dims in model.named_vars_to_dims.items() if name in every}
    dims: dict[str, list[str]] = {}
    for name, own in known.items():
        # One entry may stand for all of a dimension, as a mean of Bambi that is an intercept.
        sizes = enumerate(zip(own, np.shape(every[name])[-len(own) :], strict=False))
        fits = {i: size == len(model.coords.get(dim) or range(size)) for i, (dim, size) in sizes}
        dims[name] = [str(d) if fits[i] else f"{name}_dim_{i}" for i, d in enumerate(own)]
    used = {dim for names in dims.values() for dim in names}
    coords = {
        dim: list(labels)
        for dim, labels in model.coords.items()
        if labels is not None and dim in used
    }
    return {group: named_dataset(group, x, dims, coords) for group, x in named.items()}


# Log likelihood of each observation at the draws of a model, many draws in one call.


class LogLikelihoods:
    """As `pm.compute_log_likelihood`, which calls a function for every draw."""

    def __init__(self, model: pm.Model) -> None:
        with without_initial_values(model), warnings.catch_warnings():
            # PyMC warns of copies whose GP objects would make variables of the old model: of this
            # one they make none.
            warnings.filterwarnings(
                "ignore", "Detected variables likely created by GP", UserWarning
            )
            self._plain = remove_value_transforms(model)
        self._graphs = self._plain.logp(vars=self._plain.observed_RVs, sum=False)
        self._known: dict[tuple[Any, ...], _InOrder] = {}

    def __call__(self, trace: Dataset) -> Dataset:
        """At the draws of a trace."""
        plain = self._plain
        drawn = [rv for rv in plain.free_RVs if rv.name in trace]  # others are predictions
        given = {plain.rvs_to_values[rv]: x for rv, x in flat_draws(trace, drawn).items()}
        values = at_draws(self._graphs, given, known=self._known)
        found = by_chain(trace, plain.observed_RVs, values)
        coords, dims = of_pymc.coords_and_dims_for_inferencedata(plain)
        where: dict[str, Any] = {"chain": trace.chain, "draw": trace.draw}
        return named_dataset("log_likelihood", found, dims, {**coords, **where})


# Draws at which the likelihood is compared, and what round-off may do to it: log of one less a
# probability near one has few digits. What was misread is off by more.
_CHECKED, _ROUND_OFF = 16, 1e-4
# Values of a block with which an integral takes long, and logs of a scale far below the start.
_LARGE, _AWAY = 200, 10.0


class ModelFunctions:
    """See `LatentFunctions`.

    Parameters
    ----------
    model : pymc.Model
    collapsed : Collapsed
        With the blocks that were integrated out of the model.
    objective : Objective
    """

    def __init__(self, model: pm.Model, collapsed: Collapsed, objective: Objective) -> None:
        self._model, self._objective = model, objective
        self._made: list[LogLikelihoods] = []  # one of all copies
        known = [x for block in collapsed.blocks if block is not None for x in block.predicted]
        self._predicted = list(dict.fromkeys(known))
        self._parts = [
            None if block is None else _BlockFunctions(model, block, design)
            for block, design in zip(collapsed.blocks, collapsed.designs, strict=True)
        ]

    @property
    def _log_likelihoods(self) -> LogLikelihoods:
        if not self._made:
            self._made.append(LogLikelihoods(self._model))
        return self._made[0]

    @property
    def size(self) -> int:
        """Values of the functions in one draw, as far as they are known."""
        return sum(part.size for part in self._parts if part is not None)

    def tasks(self, points: Sequence[Point]) -> Iterator[list[Task]]:
        """See `LatentFunctions`."""
        each = [self._tasks(points, i) for i in range(len(self._parts))]
        yield from map(list, zip(*each, strict=True))

    def refuse_unbounded(self, point: Point) -> None:
        """Where that takes long: before an integral of what is improper at a mode already."""
        for (task,) in self._with_flat_priors([point]):
            task(1, N_CANDIDATES, np.random.default_rng(0))

    def refuse_scaled(self, point: Point) -> None:
        """Refuse what has a flat prior and is multiplied by a scale s whose density at 0 is not 0.

        Data say something of the product alone: as s goes to 0 the evidence goes with 1 / s.
        """
        objective = self._objective
        for k in [k for own, are_logs in objective.coordinates.groups if are_logs for k in own]:
            step = _AWAY * np.eye(1, point.x.size, k)[0]
            points = [point.at(point.x - step), point.at(point.x - 2.0 * step)]
            near, far = map(objective.log_prior, points)
            for tasks in self._with_flat_priors(points):
                slopes = [x.terms.factor @ (x.joint.flat @ x.joint.factor).T for x in tasks]
                first, second = np.linalg.norm(slopes, axis=1)
                tasks[0].refuse_scaled(first, second, far - near, _AWAY)

    def _with_flat_priors(self, points: Sequence[Point]) -> Iterator[list[Any]]:
        """Of large blocks of which some direction has one."""
        for i, part in enumerate(self._parts):
            if part is not None and part.is_white and part.size >= _LARGE:
                tasks = [x for x in self._tasks(points, i) if isinstance(x, FactorTask)]
                if all(len(x.joint.flat) for x in tasks):
                    yield tasks

    def at_ends_of(self, objective: Objective) -> "ModelFunctions":
        """The same, EP being begun where it has ended."""
        found = copy(self)
        found._objective = objective
        return found

    def _tasks(self, points: Sequence[Point], i: int) -> Iterator[Task]:
        part, terms = self._parts[i], self._objective.terms[i]
        if part is None or not part.is_white:
            yield from (self._task(point, i) for point in points)
            return
        starts = [self._objective.ends.of(i, point) for point in points]
        unknown = [point for point, start in zip(points, starts, strict=True) if start is None]
        with few_blas_threads(terms.n_rows):
            others = terms.each(unknown, ())
            joints = part.each(map(self._values, points))
            for point, start, joint in zip(points, starts, joints, strict=True):
                own = next(others) if start is None else start.terms
                if own is None or joint is None:  # where evidences were interpolated over an end
                    yield partial(_nowhere, part.size)
                    continue
                sites = terms.sites(point, ())
                (near,) = self._objective.ends.near(i, [point], [(own, sites)])
                yield FactorTask(own, sites, joint, part.labels, start or near)

    def tree(
        self, points: Sequence[Point], draws: EqualDraws, rng: np.random.Generator
    ) -> DataTree:
        """See `LatentFunctions`."""
        model = self._model
        trace = dataset_of(self._objective, points, draws.point)
        values: dict[str, NDArray[Any]] = {}
        start = 0
        for part in self._parts:
            if part is not None:
                values |= part.named(draws.f[..., start : start + part.size])
                start += part.size
        data = data_of(model)
        if not values:
            return DataTree.from_dict({"posterior": trace, **data})
        trace = trace.merge(as_dataset(model, values))
        trace = with_predictions(model, trace, self._predicted, rng)
        trace = with_deterministics(model, trace)
        likelihood = self._log_likelihoods(trace)
        self._check_likelihood(points, draws, likelihood)
        return DataTree.from_dict({"posterior": trace, "log_likelihood": likelihood, **data})

    def _check_likelihood(
        self, points: Sequence[Point], draws: EqualDraws, likelihood: Dataset
    ) -> None:
        """The model's own log likelihood at some draws is that which the draws come from.

        Much is read off a model's graph: what was misread ends here.

        Raises
        ------
        RuntimeError
            Where it is not.
        """
        chains, length = draws.point.shape
        start = 0
        for i, part in enumerate(self._parts):
            if part is None:
                continue
            own, start = slice(start, start + part.size), start + part.size
            names = [name for name in part.observed if name in likelihood]
            if not part.is_white or len(names) < len(part.observed):
                continue
            for k in np.linspace(0, chains * length - 1, _CHECKED).astype(int):
                at = divmod(int(k), length)
                task = self._task(points[draws.point[at]], i)
                assert isinstance(task, FactorTask)
                used = task.log_likelihood(draws.f[at][own])
                true = float(sum(likelihood[name].values[at].sum() for name in names))
                if np.isfinite(true) and not abs(used - true) < _ROUND_OFF * (1.0 + abs(true)):
                    raise RuntimeError(
                        f"the log likelihood of {' and '.join(names)} is {true:.8g} at a draw, and "
                        f"{used:.8g} by what was made of the model: the draws are not of its "
                        "posterior. Please report the model; pm.sample takes it."
                    )

    def _task(self, point: Point, i: int) -> Task:
        with few_blas_threads(self._objective.terms[i].n_rows):
            return self._task_of(point, i)

    def _task_of(self, point: Point, i: int) -> Task:
        objective, part = self._objective, self._parts[i]
        terms = objective.terms[i]
        if part is None:
            return partial(evidence_alone, terms(point, ()), terms.sites(point, ()))
        values = self._values(point)
        if part.is_white:
            known = terms(point, ()), terms.sites(point, ())
            return FactorTask(*known, part.coordinates(values), part.labels)
        return part.task(values, terms.log_constant(point, ()), terms.sites(point, ()))

    def _values(self, point: Point) -> dict[str, NDArray[Any]]:
        coordinates = self._objective.coordinates
        named = zip(coordinates.inputs, coordinates.arguments(point), strict=True)
        return {x.name: value for x, value in named}


def _nowhere(size: int, count: int, *_: Any) -> DrawsWithEvidence:
    """See `Task`: no evidence, and draws that have no weight."""
    return DrawsWithEvidence(-np.inf, 0.0, 1.0, np.zeros((count, size)), -np.inf)


class _BlockFunctions:
    """One block, and the predictors of its sites."""

    def __init__(
        self, model: pm.Model, block: BlockGraph, design: SiteDesign | JointGaussian | Field | None
    ) -> None:
        used = set(graph_inputs([*block.prior, *(design or ())]))
        self._inputs = [value for value in model.value_vars if value in used]
        self._latent = self._prior = None
        self._design = None if design is None else GraphsAtPoints(self._inputs, list(design))
        self._kind = None if design is None else type(design)
        self.is_white = isinstance(design, JointGaussian | Field)
        if not self.is_white and block.observed:
            self._latent = LatentAtPoint(model, block, {"mode": PLAIN})
        elif not self.is_white:
            self._prior = plain_function(self._inputs, list(block.prior))
        self.observed = [x.name for x in block.all_observed]
        self._values = block.values
        self._rvs = [model.values_to_rvs[value] for value in block.values]
        self._transforms = [model.rvs_to_transforms[rv] for rv in self._rvs]
        self._shapes = [value.type.shape for value in block.values]
        if any(None in shape for shape in self._shapes):
            # A tenth of a second or two, where the graph's types do not say.
            point = initial_point(model)
            self._shapes = [np.shape(point[value.name]) for value in block.values]

    @cached_property
    def labels(self) -> list[str]:
        """Of the entries of its vector."""
        each = zip(self._rvs, self._shapes, strict=True)
        return [label for rv, shape in each for label in labels_of(rv.name, shape)]

    @property
    def size(self) -> int:
        """Length of the block's vector."""
        return sum(int(np.prod(shape, dtype=int)) for shape in self._shapes)

    def coordinates(self, values: dict[str, NDArray[Any]]) -> JointGaussian | Field:
        """Arrays, of a block without a SkewGP."""
        (found,) = self.each([values])
        assert found is not None  # there is an evidence
        return found

    def each(
        self, values: Iterable[dict[str, NDArray[Any]]]
    ) -> Iterator[JointGaussian | Field | None]:
        """The same at many hyperparameters; None beyond a parameter's range."""
        assert self._design is not None
        assert self._kind is not None
        own: Any = self._kind
        for found in self._design.each([self._arguments(x) for x in values]):
            yield own(*found) if found else None

    def task(
        self, values: dict[str, NDArray[Any]], log_constant: float, sites: SitesGiven | None
    ) -> Task:
        """The block's vector at values of the hyperparameters."""
        if self._latent is not None:
            model = self._latent.model(values)
            prior, rows = model.prior, model.observations
        else:
            assert self._prior is not None
            found = (np.asarray(x, np.float64) for x in self._prior(*self._arguments(values)))
            nothing = np.zeros(0)
            prior, rows = SunParameters(*found), intervals(nothing, nothing, nothing)
        given = sun_given(prior, rows)
        n_signs = prior.truncation.size
        log_prob = log_orthant(prior.truncation, prior.latent_cov, SIGN_DRAWS, 0).value
        case = Case(given, n_signs, log_prob - log_constant)
        if sites is None or self._design is None:
            return case
        A, a = self._design(*self._arguments(values))
        known = Sites(A, a, sites.log_prob, sites.slopes)
        return case._replace(sites=known)

    def _arguments(self, values: dict[str, NDArray[Any]]) -> list[Any]:
        return [values[x.name] for x in self._inputs]

    def named(self, f: FloatArray) -> dict[str, NDArray[Any]]:
        """Draws of its vector as draws of its variables, on their own scale."""
        found, start = {}, 0
        each = zip(self._rvs, self._values, self._transforms, self._shapes, strict=True)
        for rv, value, transform, shape in each:
            stop = start + int(np.prod(shape, dtype=int))
            own = f[..., start:stop].reshape(*f.shape[:2], *shape)
            start = stop
            if transform is not None:
                back = pytensor.function(
                    [value], transform.backward(value, *rv.owner.inputs), mode=PLAIN
                )
                flat = own.reshape(-1, *shape)
                own = np.stack([back(x) for x in flat])
                own = own.reshape(*f.shape[:2], *own.shape[1:])
            found[rv.name] = own
        return found
