"""A model's variables at new rows of its data, for each draw of a trace.

New rows go below those that were observed. A latent variable that gets longer by them keeps what
was drawn of it, and its new entries are drawn from its prior given these: a Gaussian process at new
inputs, effects of new groups, further steps of a random walk. All else follows from the graph.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.shape_utils import change_dist_size
from pymc.distributions.timeseries import RandomWalkRV
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, apply_ancestors
from pytensor.tensor.random.basic import MvNormalRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.subtensor import AdvancedSubtensor
from xarray import Dataset, DataTree

from pymc_skewgp._learn.averaging.model_functions import at_draws, by_chain, flat_draws
from pymc_skewgp._limits import stage
from pymc_skewgp._model.distributions.marginal import MarginalRV
from pymc_skewgp._model.distributions.unified_skew_normal import (
    UnifiedSkewNormal,
    UnifiedSkewNormalRV,
)
from pymc_skewgp._model.gp.latent_draws import data_as_sampled, posterior_draws, values_of
from pymc_skewgp._model.ops.densities import sun_given, sun_of_process
from pymc_skewgp._model.ops.plain_mode import PLAIN, plain_function
from pymc_skewgp._posterior.output import as_datatree, summary_of_draws
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray, refuse_masked

# What values at the old rows may change by, against the largest, when new rows come below them.
_ROUND_OFF = 1e-4

# Noise that a process of PyMC is a function of.
_OF_A_PROCESS = "_rotated_"

Arrays = Mapping[Any, NDArray[Any]]


class NewData(NamedTuple):
    """New rows of ``pm.Data`` by name, and labels of new entries by dimension."""

    values: dict[str, NDArray[Any]]
    labels: dict[str, list[Any]]


class Longer(NamedTuple):
    """A variable that new rows make longer.

    Attributes
    ----------
    name : str
    graph : TensorVariable
        The new entries.
    axis : int
    n_new : int
        How many these are.
    """

    name: str
    graph: Any
    axis: int
    n_new: int


def predictions_of_model(
    model: pm.Model,
    idata: DataTree,
    new: Mapping[str, Any],
    probs: FloatArray,
    rng: np.random.Generator,
) -> DataTree:
    """Variables that new rows make longer, at these rows: draws and their summaries.

    Parameters
    ----------
    model : pymc.Model
    idata : DataTree
        With draws of its variables.
    new : mapping
        New rows by name of a ``pm.Data``; labels of new entries by name of a dimension.
    probs : ndarray
        Of quantiles.
    rng : numpy.random.Generator

    Raises
    ------
    ValueError
        For names that the model does not have, and where nothing is to be predicted.
    """
    trace = posterior_draws(idata)
    missing = [rv.name for rv in model.free_RVs if rv.name not in trace]
    if missing:
        raise ValueError(
            f"the result has no draws of {', '.join(missing)}, which the model has: give the model "
            "that the result is of."
        )
    first = {rv: values_of(trace, rv.name)[0, 0] for rv in model.free_RVs}
    with data_as_sampled(idata, model.basic_RVs):
        rows = _as_rows(model, new)
        before = _rows_of_first(model, first)
        with _stacked(model, rows), _said_what_lacks(model, rows):
            known = _LongerModel(model, first, rows)
            found = known.longer(before)
            flat = flat_draws(trace, known.inputs)
            given = {x: flat[rv] for rv, x in known.inputs.items()}
            # Of no free variable at all: as many draws all the same.
            n = trace.sizes["chain"] * trace.sizes["draw"]
            given = given or {pt.scalar("none"): np.zeros(n)}
            stage("Draws at new rows")
            values = at_draws([x.graph for x in found], given, rng)
    drawn = by_chain(trace, found, values)
    return _tree(model, trace, rows, found, drawn, probs)


def _as_rows(model: pm.Model, new: Mapping[str, Any]) -> NewData:
    data = {x.name: x for x in model.data_vars if isinstance(x, SharedVariable)}
    lengths = {d: x for d, x in model.dim_lengths.items() if isinstance(x, SharedVariable)}
    unknown = [name for name in new if name not in data and name not in model.dim_lengths]
    if unknown or not new:
        raise ValueError(
            f"Xnew names {', '.join(unknown) or 'nothing'}; the pm.Data of the model are "
            f"{', '.join(data) or 'none'}, and its dimensions "
            f"{', '.join(model.dim_lengths) or 'none'}."
            + ("" if data else " Write its data as pm.Data, and give that model as model=.")
        )
    values, labels = {}, {}
    for name, x in new.items():
        if name not in data:
            if name not in lengths:
                raise ValueError(
                    f"the length of the dimension {name!r} follows from data: give new rows of "
                    "these, and no labels."
                )
            labels[name] = _as_labels(model, name, list(x))
            continue
        refuse_masked(name, x)
        old = data[name].get_value(borrow=True)
        rows = np.asarray(x)
        if rows.ndim == 0 and old.ndim == 1:  # one exposure of all new rows
            others = [k for k in data if k in new and np.ndim(new[k]) > 0]
            beside = [k for k in others if data[k].get_value(borrow=True).shape[:1] == old.shape]
            rows = np.full(len(new[beside[0]]), rows) if beside else rows
        if rows.ndim == 1 and old.ndim == 2 and old.shape[1] == 1:
            rows = rows[:, None]
        if old.ndim == 0 or rows.ndim != old.ndim or rows.shape[1:] != old.shape[1:]:
            wanted = ", ".join(["t", *map(str, old.shape[1:])])
            raise ValueError(
                f"new rows of {name!r} must be an array of shape ({wanted}), its old ones are of "
                f"{old.shape}; got {rows.shape}."
            )
        if rows.dtype.kind in "US":
            raise ValueError(
                f"new rows of {name!r} must be numbers as its old ones, got {str(rows.flat[0])!r}. "
                "Where these are labels, give their places in the coords."
            )
        values[name] = rows.astype(old.dtype)
        if rows.dtype.kind in "fiu" and not np.array_equal(
            values[name], rows, equal_nan=rows.dtype.kind == "f"
        ):
            raise ValueError(
                f"the pm.Data {name!r} has {old.dtype.name} numbers, and the new rows have others, "
                "with decimals or beyond its range: make it wider in the model, as "
                "pm.Data(name, x.astype(float))."
            )
        if (rows < 0).any() and (old >= 0).all() and _is_index(model, data[name]):
            raise ValueError(
                f"the pm.Data {name!r} has places, and the new rows have {rows.min()}, which would "
                "count from the end, as codes of pandas for a group that is not known: give new "
                "groups places of their own, and their labels."
            )
    return NewData(values, labels)


def _as_labels(model: pm.Model, name: str, new: list[Any]) -> list[Any]:
    known = list(model.coords.get(name) or ())
    again = [x for i, x in enumerate(new) if x in known or x in new[:i]]
    if again and any(name in model.named_vars_to_dims.get(x.name, ()) for x in model.free_RVs):
        raise ValueError(
            f"labels of new entries of {name!r} must be new, and each stand once, got "
            f"{', '.join(map(repr, again))}. Rows of an entry that is known have its place alone."
        )
    return new


def _is_index(model: pm.Model, data: Any) -> bool:
    """Whether data say which entries of something else are taken."""
    graphs = [rv.owner.inputs for rv in model.basic_RVs]
    nodes = apply_ancestors([x for inputs in graphs for x in inputs])
    taken = (n for n in nodes if isinstance(n.op, AdvancedSubtensor))
    return any(data in ancestors(n.inputs[1:]) for n in taken)


@contextmanager
def _stacked(model: pm.Model, rows: NewData) -> Iterator[None]:
    """The model with new rows below the old ones, and with longer dimensions."""
    lengths = {name: len(labels) for name, labels in rows.labels.items()}
    for name, x in rows.values.items():
        dims = model.named_vars_to_dims.get(name, ())
        if dims and dims[0] is not None and dims[0] not in lengths:
            lengths[dims[0]] = len(x)
    longer = {
        model[name]: np.concatenate([model[name].get_value(), x]) for name, x in rows.values.items()
    }
    for name, count in lengths.items():
        length = model.dim_lengths[name]
        if isinstance(length, SharedVariable):
            old = length.get_value()
            longer[length] = np.asarray(old + count, dtype=old.dtype)
    with ExitStack() as restored:
        for variable, x in longer.items():
            restored.callback(variable.set_value, variable.get_value())
            variable.set_value(x)
        yield


@contextmanager
def _said_what_lacks(model: pm.Model, rows: NewData) -> Iterator[None]:
    """Where the graphs do not go together with the new rows, name data that may be lacking."""
    try:
        yield
    except _Unclear as error:
        raise ValueError(*error.args) from None
    except (ValueError, AssertionError, IndexError) as error:
        observed = set(model.rvs_to_values.values())
        n = {len(model[x].get_value(borrow=True)) - len(v) for x, v in rows.values.items()}
        same = [
            x.name
            for x in model.data_vars
            if x.name not in rows.values
            and x not in observed
            and x.ndim
            and int(x.shape[0].eval(mode=PLAIN)) in n
        ]
        numbers = {name: len(x) for name, x in rows.values.items()}
        given = ", ".join(f"{count} of {name}" for name, count in numbers.items())
        differ = len(set(numbers.values())) > 1
        raise ValueError(
            "the model does not go together with the new rows. "
            + (f"As many rows before had {', '.join(same)}: name them too. " if same else "")
            + (f"New rows are {given}: give as many of each. " if differ else "")
            + f"New groups need their labels, by the name of their dimension{_example(model)}, "
            "which the model must have as coords; what is a number in the model, as shape=3, stays "
            "as it is."
        ) from error


def _example(model: pm.Model) -> str:
    """How labels of a dimension that may get longer are given."""
    names = [d for d, x in model.dim_lengths.items() if isinstance(x, SharedVariable)]
    return f', as "{names[0]}": [...]' if names else ""


class _Unclear(ValueError):
    """What has a message of its own."""


# What new rows make longer, and how it goes on.


class _LongerModel:
    """Graphs of a model whose data have new rows, in terms of draws of its free variables.

    Parameters
    ----------
    model : pymc.Model
    first : mapping of variable to ndarray
        One draw.
    rows : NewData

    Attributes
    ----------
    inputs : dict
        What stands for the draws, by free variable.
    """

    def __init__(self, model: pm.Model, first: Arrays, rows: NewData) -> None:
        self._model, self._first, self._rows = model, first, rows
        self.inputs = {rv: rv.type(rv.name) for rv in model.free_RVs}
        self._replaced: dict[Any, Any] = {}

    def longer(self, before: Arrays) -> list[Longer]:
        """Variables that are, with what they are at the new rows.

        Raises
        ------
        ValueError
            Of none, where it is not known how one goes on, and where new rows change old ones.
        """
        model, found = self._model, []
        for rv, own in self.inputs.items():  # parents first
            new, was = self._again([rv])[0], self._first[rv].shape
            self._replaced[rv] = own
            axis = _grown(rv.name, was, self._shape(new))
            if axis is not None:
                tail = _continued(rv.name, new, own, axis, was[axis])
                self._replaced[rv] = pt.concatenate([own, tail], axis=axis)
                if rv.name.endswith(_OF_A_PROCESS):
                    continue
                found.append(Longer(rv.name, tail, axis, self._shape(tail)[axis]))
        for rv in model.observed_RVs:
            old = np.asarray(model.rvs_to_values[rv].eval(mode=PLAIN))
            new = self._resized(rv, old.shape)
            axis = _grown(rv.name, old.shape, self._shape(new))
            if axis is not None:
                known = pt.as_tensor_variable(old)
                tail = _continued(rv.name, new, known, axis, old.shape[axis])
                found.append(Longer(rv.name, tail, axis, self._shape(tail)[axis]))
        names, graphs = _names(model), self._again(_row_graphs(model))
        values = dict(zip(names, self._at_first(graphs), strict=True))
        for x, graph in zip(model.deterministics, graphs, strict=False):
            old_shape, new_shape = before[x.name].shape, values[x.name].shape
            axis = _grown(x.name, old_shape, new_shape)
            if axis is not None:
                tail = _after(graph, axis, old_shape[axis])
                found.append(Longer(x.name, tail, axis, new_shape[axis] - old_shape[axis]))
        _refuse_changes(before, values)
        if not found:
            raise _Unclear(
                f"nothing in the model gets longer by new rows of {', '.join(self._rows.values)}: "
                "its observed variables do not depend on them."
            )
        return found

    def _again(self, graphs: Sequence[Any]) -> list[Any]:
        found: list[Any] = clone_replace(list(graphs), self._replaced, rebuild_strict=False)
        return found

    def _at_first(self, graphs: Sequence[Any]) -> list[NDArray[Any]]:
        """Values at the first draw."""
        if not graphs:
            return []
        function = plain_function(list(self.inputs.values()), list(graphs))
        return [np.asarray(x) for x in function(*(self._first[rv] for rv in self.inputs))]

    def _shape(self, graph: Any) -> tuple[int, ...]:
        node = graph.owner
        shape = graph.shape
        if node is not None and isinstance(node.op, RandomVariable):
            # Without a draw, which some priors do not have.
            size, parameters = node.op.size_param(node), node.op.dist_params(node)
            shape = pt.stack(
                [pt.as_tensor(n) for n in node.op._infer_shape(size, parameters)] or [0]
            )
            if not graph.ndim:
                return ()
        return tuple(int(n) for n in self._at_first([shape])[0])

    def _resized(self, rv: Any, old: tuple[int, ...]) -> Any:
        """An observed variable, whose shape may be that of its data, as long as the new rows."""
        new = self._again([rv])[0]
        if not old or rv.owner.op.ndim_supp or self._shape_is_free(new, old):
            return new
        names = {x.name for x in ancestors([rv])}
        for name, x in self._rows.values.items():
            whole = self._model[name].get_value(borrow=True).shape[0]
            if name in names and whole - len(x) == old[0]:
                return change_dist_size(new, (whole, *old[1:]))
        return new

    def _shape_is_free(self, new: Any, old: tuple[int, ...]) -> bool:
        try:
            return self._shape(new) != old
        except (ValueError, AssertionError):  # the old size beside longer parameters
            return False


def _names(model: pm.Model) -> list[str]:
    """Of what `_row_graphs` gives."""
    parameters = [f"{rv.name} {i}" for rv in model.observed_RVs for i in range(len(_inputs(rv)))]
    return [x.name for x in model.deterministics] + parameters


def _row_graphs(model: pm.Model) -> list[Any]:
    """Deterministics, and parameters of what is observed."""
    return [*model.deterministics, *(x for rv in model.observed_RVs for x in _inputs(rv))]


def _inputs(rv: Any) -> list[Any]:
    """Parameters of a variable that nothing random is drawn for."""
    op, node = rv.owner.op, rv.owner
    if not isinstance(op, RandomVariable):
        return []
    return [x for x in op.dist_params(node) if hasattr(x.type, "ndim")]


def _rows_of_first(model: pm.Model, first: Arrays) -> dict[str, NDArray[Any]]:
    """Values of these with the old rows."""
    graphs = _row_graphs(model)
    inputs = {rv: rv.type(rv.name) for rv in first}
    if not graphs:
        return {}
    function = plain_function(list(inputs.values()), clone_replace(graphs, inputs))
    values = [np.asarray(x) for x in function(*first.values())]
    return dict(zip(_names(model), values, strict=True))


def _refuse_changes(before: Arrays, after: Arrays) -> None:
    """Refuse a model in which values at old rows depend on new ones, as by a mean of all rows."""
    for name, old in before.items():
        new = after[name]
        if new.ndim != old.ndim or not old.size or old.dtype.kind not in "fiub":
            continue
        part = new[tuple(slice(n) for n in old.shape)]
        scale = np.abs(old[np.isfinite(old)]).max(initial=1e-300)
        if part.shape != old.shape or not np.allclose(
            part, old, rtol=_ROUND_OFF, atol=_ROUND_OFF * scale, equal_nan=True
        ):
            what = name if " " not in name else f"a parameter of {name.split()[0]}"
            raise _Unclear(
                f"new rows change {what} at the old ones: the model uses all rows together, as in "
                "x - x.mean(). Compute such numbers once, outside of the model."
            )


def _grown(name: str, old: tuple[int, ...], new: tuple[int, ...]) -> int | None:
    """The axis that is longer; None where nothing is."""
    if old == new:
        return None
    differ = [i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b]
    if len(old) != len(new) or len(differ) != 1 or new[differ[0]] < old[differ[0]]:
        raise _Unclear(
            f"{name} has shape {old}, and {new} with the new rows: only one of its dimensions may "
            "get longer."
        )
    return differ[0]


def _after(graph: Any, axis: int, old: int) -> Any:
    return graph[(slice(None),) * axis + (slice(old, None),)]


def _continued(name: str, new: Any, own: Any, axis: int, old: int) -> Any:
    """Entries of a longer variable after those that are known, drawn given these."""
    node = new.owner
    op = node.op
    if axis < new.ndim - op.ndim_supp:  # independent ones
        return _after(new, axis, old)
    parameters = op.dist_params(node) if isinstance(op, RandomVariable) else node.inputs
    if isinstance(op, MarginalRV):
        raise _Unclear(
            f"{name} has its latent function integrated out: predict by that process, "
            "sg.predict(result, Xnew, gp=gp)."
        )
    if isinstance(op, RandomWalkRV) and new.ndim == 1:
        return own[-1] + _after(new, axis, old) - new[old - 1]
    if isinstance(op, MvNormalRV) and new.ndim == 1:
        mu, cov = parameters[:2]
        size = cov.shape[0]
        sun = sun_of_process(pt.broadcast_to(mu, (size,)), cov, None, None, 0)
    elif isinstance(op, UnifiedSkewNormalRV) and new.ndim == 1:
        sun = SunParameters(*parameters)
    else:
        raise _Unclear(
            f"{name} gets longer by the new rows, and how a {type(op).__name__.removesuffix('RV')} "
            "goes on is not known: that is so of normal effects and other independent entries, "
            "Gaussian processes, MvNormal and random walks."
        )
    given = sun_given(sun, pt.specify_shape(own, (old,)))
    return UnifiedSkewNormal.dist(**given._asdict())


def _tree(
    model: pm.Model,
    trace: Dataset,
    rows: NewData,
    found: Sequence[Longer],
    drawn: Mapping[str, NDArray[Any]],
    probs: FloatArray,
) -> DataTree:
    """Draws of all of them, and summaries."""
    t = len(next(iter(rows.values.values()), ()))
    dims: dict[str, list[str]] = {}
    coords: dict[str, Any] = {name: labels for name, labels in rows.labels.items()}
    summary: dict[str, Any] = {}
    for x in found:
        own = list(model.named_vars_to_dims.get(x.name, ()))
        ndim = drawn[x.name].ndim - 2
        own = [d or f"{x.name}_dim_{i}" for i, d in enumerate(own)] or [
            f"{x.name}_dim_{i}" for i in range(ndim)
        ]
        if own[x.axis] not in rows.labels:
            own[x.axis] = "pred_id" if x.n_new == t else f"{x.name}_new"
        dims[x.name] = own
        coords |= {
            d: list(v) for d, v in model.coords.items() if d in own and v and d not in coords
        }
        every = summary_of_draws(x.name, drawn[x.name], probs)
        for name in every:
            by_probability = "_quantile" in name.removeprefix(x.name)
            dims[name] = ["quantile", *own] if by_probability else own
        summary |= every
    coords |= {"pred_id": np.arange(t), "quantile": probs}
    constants = {name: x for name, x in rows.values.items()}
    for name, new in constants.items():
        dims[name] = ["pred_id"] if len(new) == t else [f"{name}_new"]
    groups = {"predictions": dict(drawn), "predictions_summary": summary}
    tree = as_datatree(
        {**groups, "predictions_constant_data": constants}, dims=dims, coords=coords, attrs={}
    )
    own_coords = tree["predictions"].dataset.assign_coords(chain=trace.chain, draw=trace.draw)
    tree["predictions"].dataset = own_coords
    return tree
