"""The free variables of a model as a vector of unconstrained numbers, and binary values."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.distributions.transforms import Chain, Ordered, _default_transform
from pymc.logprob.transforms import LogTransform
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.random.basic import BernoulliRV
from scipy.special import gammaln

from pymc_skewgp._errors import DiscreteHyperparameterError
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._model.gp.functions import is_random
from pymc_skewgp._model.graph.initial_point import initial_point
from pymc_skewgp._model.graph.members import labels_of
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._validation import FloatArray, refuse_masked, refuse_other_kinds

if TYPE_CHECKING:
    from pymc_skewgp._learn.objective import Objective
    from pymc_skewgp._learn.rows.rows_objective import RowsObjective

# A point of the search, and what the objective is there.

Pattern = tuple[int, ...]
# Half the width of the box of a search: a factor of a thousand for what is positive; for what lies
# between two bounds all but a thousandth of their distance.
HALF_WIDTH = float(np.log(1e3))
# Binary entries that are learnt, by trying all their values.
MOST_BINARY = 3
Bounds = list[tuple[float, float]]


@dataclass(frozen=True, eq=False)
class Point:
    """Values of everything that is learnt.

    Attributes
    ----------
    x : ndarray, shape (k,)
        Of the continuous variables, on the unconstrained scale.
    pattern : tuple of int
        Of the binary variables, 0 or 1.
    """

    x: FloatArray
    pattern: Pattern = ()

    def at(self, x: FloatArray) -> "Point":
        """The point with another continuous part."""
        return Point(x, self.pattern)


class Value(NamedTuple):
    """Of the objective at a point.

    Attributes
    ----------
    total : float
        Log evidence plus log prior; minus infinity where there is none.
    log_evidence : float
    gradient : ndarray, shape (k,)
        Of `total` in the continuous part.
    noise : float
        What `total` jumps by between neighbouring points.
    """

    total: float
    log_evidence: float
    gradient: FloatArray
    noise: float = 0.0


Function = Callable[[Point], Value]

Shape = tuple[int, ...]
_TRIED = 64  # draws of a prior whose default start is none


class FlatCoordinate(NamedTuple):
    """A coordinate of a variable whose prior is `pm.Flat` or `pm.HalfFlat`.

    Attributes
    ----------
    place : int
        In the vector.
    name, label : str
        Of the variable, and of the entry.
    is_log : bool
        Whether it is a logarithm.
    ends : tuple of str
        What the variable goes to as the coordinate goes to minus infinity, and to infinity.
    """

    place: int
    name: str
    label: str
    is_log: bool
    ends: tuple[str, str]


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Which entry of which variable each coordinate of a `Point` is.

    Attributes
    ----------
    model : pymc.Model
    continuous, binary : tuple of variables
        Values of free variables, on the unconstrained scale.
    shapes, binary_shapes : tuple of tuples
    """

    model: pm.Model
    continuous: tuple[Any, ...]
    binary: tuple[Any, ...]
    shapes: tuple[Shape, ...]
    binary_shapes: tuple[Shape, ...]

    @property
    def inputs(self) -> list[Any]:
        """All variables, in the order of `arguments`."""
        return [*self.continuous, *self.binary]

    @property
    def names(self) -> list[str]:
        """Of the continuous variables' values, as the model knows them (``ls_log__``)."""
        return [value.name for value in self.continuous]

    @property
    def binary_names(self) -> list[str]:
        """Of the binary variables."""
        return [value.name for value in self.binary]

    @property
    def labels(self) -> list[str]:
        """Of the coordinates of the vector: names of variables, with an index (``ls[0]``)."""
        return [
            label
            for rv, shape in zip(self._variables(), self.shapes, strict=True)
            for label in labels_of(rv.name, shape)
        ]

    def vector(self, values: Mapping[str, Any]) -> FloatArray:
        """The continuous part of `values`, as `initial_values` returns them."""
        return np.concatenate([np.ravel(values[name]) for name in self.names] or [np.zeros(0)])

    def split(self, x: FloatArray) -> list[FloatArray]:
        """The vector, or rows of such, as one array for each continuous variable."""
        return [x[..., own].reshape((*x.shape[:-1], *shape)) for own, shape in self._places]

    @property
    def groups(self) -> list[tuple[IntArray, bool]]:
        """Coordinates of each continuous variable, and whether they are logarithms."""
        logs = [
            isinstance(self.model.rvs_to_transforms[rv], LogTransform) for rv in self._variables()
        ]
        each = (np.arange(own.start, own.stop) for own, _ in self._places)
        return list(zip(each, logs, strict=True))

    @property
    def flat(self) -> list[FlatCoordinate]:
        """Those with a flat prior."""
        found, labels = [], self.labels
        for rv, (own, log) in zip(self._variables(), self.groups, strict=True):
            if not isinstance(rv.owner.op, FlatRV | HalfFlatRV):
                continue
            ends = ("zero" if log else "minus infinity", "infinity")
            if not log and self.model.rvs_to_transforms[rv] is not None:
                ends = ("an end of its support",) * 2
            found += [FlatCoordinate(int(i), rv.name, labels[i], log, ends) for i in own]
        return found

    @property
    def log_orders(self) -> float:
        """What PyMC's densities lack of variables alike that a transform keeps in an order: K!."""
        known = zip(self._variables(), self.shapes, strict=True)
        orders = [shape for rv, shape in known if _alike_in_order(self.model, rv)]
        return float(sum(np.prod(s[:-1]) * gammaln(s[-1] + 1.0) for s in orders))

    @property
    def cut_off(self) -> list[str]:
        """Variables that a transform of their own keeps from a part of their support.

        Their density is not normalised, by a factor that is not known.
        """
        variables = self._variables()
        return [
            rv.name
            for rv in variables
            if _is_cut_off(self.model, rv) and not _alike_in_order(self.model, rv)
        ]

    @cached_property
    def _places(self) -> list[tuple[slice, Shape]]:
        return _places_of(self.shapes)

    def arguments(self, point: Point) -> list[Any]:
        """Values of `inputs` at a point."""
        return [*self.split(point.x), *self.binary_values(point.pattern)]

    def binary_values(self, pattern: Pattern) -> list[Any]:
        """A pattern as one array for each binary variable."""
        known = zip(_places_of(self.binary_shapes), self.binary, strict=True)
        return [
            np.array(pattern[own], dtype=value.dtype).reshape(shape)
            for (own, shape), value in known
        ]

    def patterns(self, most: int = MOST_BINARY) -> list[Pattern]:
        """All values of the binary variables together; one empty pattern where there are none.

        Raises
        ------
        ValueError
            For more than `most` binary entries.
        """
        n = sum(int(np.prod(shape, dtype=int)) for shape in self.binary_shapes)
        if n > most:
            raise ValueError(
                f"{', '.join(self.binary_names)} together have {n} binary entries: at most "
                f"{most} are learnt, by trying all their values. Sum them out of the likelihood, "
                "as pm.Mixture does, or use pm.sample."
            )
        return list(product((0, 1), repeat=n))

    def each_pattern(self, x: FloatArray) -> list[Point]:
        """Points with all values of the binary variables."""
        return [Point(x, pattern) for pattern in self.patterns()]

    def bounds(
        self, x: FloatArray, half_width: float = HALF_WIDTH, fixed: Container[str] = ()
    ) -> Bounds:
        """The box around `x`: infinite for variables without a transform, a point for `fixed`."""
        box: Bounds = []
        for rv, part in zip(self._variables(), self.split(x), strict=True):
            unbounded = self.model.rvs_to_transforms[rv] is None
            width = 0.0 if rv.name in fixed else np.inf if unbounded else half_width
            box += [(value - width, value + width) for value in part.ravel().tolist()]
        return box

    def _variables(self) -> list[Any]:
        return [self.model.values_to_rvs[value] for value in self.continuous]


def _places_of(shapes: Sequence[Shape]) -> list[tuple[slice, Shape]]:
    """Of variables one after the other."""
    stop, found = 0, []
    for shape in shapes:
        start, stop = stop, stop + int(np.prod(shape, dtype=int))
        found.append((slice(start, stop), shape))
    return found


def _is_cut_off(model: pm.Model, rv: Any) -> bool:
    """Whether its values are transformed otherwise than its distribution asks for."""
    given, own = model.rvs_to_transforms[rv], _default_transform(rv.owner.op, rv)
    return given is not None and type(given) is not type(own)


def _alike_in_order(model: pm.Model, rv: Any) -> bool:
    """Whether entries are independent and alike, and kept in an order: one in K! orders is left."""
    given = model.rvs_to_transforms[rv]
    chain = given.transform_list if isinstance(given, Chain) else [given]
    if rv.owner.op.ndim_supp or not any(isinstance(x, Ordered) for x in chain):
        return False
    return all(
        not x.type.ndim or x.type.broadcastable[-1] for x in rv.owner.op.dist_params(rv.owner)
    )


def free_variable(model: pm.Model, rv: Any, value: Any = None) -> Any:
    """A variable, or a value of it, on its unconstrained scale."""
    transform, value = model.rvs_to_transforms[rv], rv if value is None else value
    return value if transform is None else transform.forward(value, *rv.owner.inputs)


def coordinates_of(
    model: pm.Model,
    graphs: list[Any],
    start: Mapping[str, Any] | None = None,
    *,
    averaged: bool = False,
) -> tuple[Coordinates, FloatArray]:
    """Coordinates of the free variables that `graphs` depend on, and the vector at `start`.

    Parameters
    ----------
    model : pymc.Model
    graphs : list of variables
        With the model's random variables replaced by their values.
    start : mapping, optional
        Values by name, on their own scale. Default the model's initial point.
    averaged : bool, default False
        Whether they are integrated out: in the order of their names, for points of an integral are
        drawn coordinate by coordinate, and there may be none. Default in that of their declaration.

    Raises
    ------
    DiscreteHyperparameterError
        Where one is discrete and not binary.
    ValueError
        Where there are none, where one is unknown to the model, and for a `start` that does not
        fit.
    """
    _refuse_foreign_variables(graphs)
    used = set(graph_inputs(graphs))
    values = [value for value in model.value_vars if value in used]
    if averaged:
        values.sort(key=lambda value: str(value.name))
    continuous = tuple(v for v in values if v.dtype.startswith("float"))
    binary = tuple(v for v in values if v not in continuous)
    for value in binary:
        rv = model.values_to_rvs[value]
        if not isinstance(rv.owner.op, BernoulliRV):
            raise DiscreteHyperparameterError(
                f"{rv.name} is discrete: only pm.Bernoulli variables can be learnt, by trying "
                "every value. Give it a value with pm.do, or use pm.sample."
            )
    if not values and not averaged:
        raise ValueError(
            "there is nothing to learn: no covariance, mean, pseudo-point, phase or "
            "truncation depends on a random variable. Give what is to be learnt a prior, as "
            'in ls = pm.HalfFlat("ls").'
        )
    initial = initial_values(model, continuous, start)
    shapes, binary_shapes = (
        tuple(np.shape(initial[v.name]) for v in group) for group in (continuous, binary)
    )
    coordinates = Coordinates(model, continuous, binary, shapes, binary_shapes)
    return coordinates, coordinates.vector(initial)


def initial_values(
    model: pm.Model, continuous: tuple[Any, ...], start: Mapping[str, Any] | None
) -> dict[str, NDArray[Any]]:
    """The model's initial point, on the unconstrained scale, with `start` in place of its own.

    Raises
    ------
    ValueError
        For names and shapes in `start` that the model does not have, and where one of the
        `continuous` variables is outside of its support.
    """
    by_name = {rv.name: rv for rv in model.free_RVs}
    given = dict(start or {})
    for name in {v.name for v in model.deterministics}.intersection(given):
        del given[name]  # as in the point of another fit
    unknown = sorted(set(given) - set(by_name))
    if unknown:
        raise ValueError(
            f"start has {', '.join(unknown)}; free variables are {', '.join(by_name)}."
        )
    strategies = {by_name[name]: _of_shape(by_name[name], x) for name, x in given.items()}
    point = initial_point(model, strategies)
    outside = []
    for value in continuous:
        rv = model.values_to_rvs[value]
        if np.isfinite(point[value.name]).all():
            continue
        found = None if rv.name in given else _start_from_prior(model, rv)
        if found is None:
            outside.append(rv.name)
        else:
            point[value.name] = found
    if outside:
        raise ValueError(
            f"start lies outside of the support of {', '.join(outside)}: give a value inside, as "
            f"start={{{outside[0]!r}: ...}} or by initval, increasing where it is ordered; or "
            "check its prior, and the scale of the data."
        )
    return point


def _start_from_prior(model: pm.Model, rv: Any) -> NDArray[Any] | None:
    """A value, on the unconstrained scale, where a prior's default start has no density.

    As of ordered cut-points, which all start at one place. None where no draw has one either.
    """
    drawn = draws_of(rv, _TRIED, 0)
    if drawn is None:
        return None
    # In the order of the entries first, which is what such transforms ask for.
    increasing = np.sort(drawn, axis=-1) if drawn.ndim > 1 else drawn
    for tried in (np.median(increasing, axis=0), np.median(drawn, axis=0), *increasing):
        value = free_variable(model, rv, pt.as_tensor_variable(tried.astype(rv.dtype)))
        found = np.asarray(value.eval(mode=PLAIN))
        if np.isfinite(found).all():
            return found
    return None


def draws_of(variable: Any, count: int, seed: int) -> NDArray[Any] | None:
    """Draws of a random variable or of a function of it; None where there are none.

    Of a flat prior, or of a generator that divides by a draw, or by whose own parameter a draw is
    impossible.
    """
    try:
        return np.asarray(pm.draw(variable, count, random_seed=seed, mode=PLAIN))
    except (NotImplementedError, ArithmeticError, ValueError):
        return None


def _of_shape(rv: Any, value: Any) -> NDArray[Any]:
    """`value` broadcast to the shape of `rv`, as far as that is known."""
    name = f"start[{rv.name!r}]"
    refuse_masked(name, value)
    array, shape = np.asarray(value), rv.type.shape
    refuse_other_kinds(name, array)
    fits = array.ndim <= len(shape) and all(
        want in (None, have) or have == 1
        for want, have in zip(shape[::-1], array.shape[::-1], strict=False)
    )
    if not fits:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}.")
    return array if None in shape else np.broadcast_to(array, shape).copy()


def _refuse_foreign_variables(graphs: list[Any]) -> None:
    """What is left of random variables when the model's own are values: each a hidden draw."""
    found = [str(v.name or "<unnamed>") for v in ancestors(graphs) if is_random(v)]
    if found:
        raise ValueError(
            f"the model does not know the random variable(s) {', '.join(sorted(set(found)))}: make "
            "them, and the SkewGP, inside one ``with pm.Model():``."
        )


# What is searched: of matrices of all rows, or of blocks of them.
type Searched = Objective | RowsObjective
