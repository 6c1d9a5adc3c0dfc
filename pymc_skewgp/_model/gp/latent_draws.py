"""The latent functions for each draw of a trace, given data, as a tree."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import starmap
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors
from rich.progress import track
from xarray import Dataset, DataTree

from pymc_skewgp._errors import LowEffectiveSampleWarning, no_warnings, warn
from pymc_skewgp._gaussian.covariance import FactoredCovariance
from pymc_skewgp._gaussian.weights import short_path
from pymc_skewgp._model.gp import process
from pymc_skewgp._model.gp.functions import hyperparameters
from pymc_skewgp._model.gp.variables import DataOfModel, FunctionAt, process_beyond
from pymc_skewgp._model.graph.collapsed import OwnScale, with_coefficients
from pymc_skewgp._model.ops.densities import sun_of_process
from pymc_skewgp._model.ops.plain_mode import PLAIN, plain_function
from pymc_skewgp._observations import likelihood as base
from pymc_skewgp._observations.observations import stacked
from pymc_skewgp._observations.sites import Sites
from pymc_skewgp._posterior import output
from pymc_skewgp._posterior.conditioning import Conditioning, process_given
from pymc_skewgp._posterior.draws_with_evidence import Case, draws_of_many
from pymc_skewgp._posterior.prior import DataSet, n_functions, sites_of, units_of
from pymc_skewgp._sun.parameters import SunParameters, sun_draws
from pymc_skewgp._validation import FloatArray, as_count

# Draws of a model's variables, as ``pm.sample`` returns them, and functions of them.

_OWN_NAMES = frozenset(("p", "y", "X", "obs_id", "pred_id", "feature", "chain", "draw"))


def posterior_draws(idata: Any) -> Dataset:
    """The group ``posterior``, with the dimensions chain and draw."""
    if not isinstance(idata, DataTree):
        raise TypeError(f"idata must be a DataTree, got {type(idata).__name__}.")
    if "posterior" not in idata.children:
        raise ValueError(f"idata has no group 'posterior'; found {sorted(idata.children)}.")
    trace = idata["posterior"].dataset
    if not {"chain", "draw"} <= set(trace.dims):
        raise ValueError(
            f"idata.posterior must have dimensions chain and draw, found {sorted(trace.dims)}: "
            "select single ones with lists, as in idata.isel(chain=[0])."
        )
    return trace


def has_draws(idata: Any, name: str) -> bool:
    """Whether the group ``posterior`` has the variable; also False for what is no such tree."""
    groups = idata.children if isinstance(idata, DataTree) else {}
    return "posterior" in groups and name in idata["posterior"].data_vars


@contextmanager
def data_as_sampled(idata: Any, graphs: Sequence[Any]) -> Iterator[None]:
    """Values of ``pm.Data`` that graphs depend on, as they were when `idata` was drawn.

    They are stored beside the draws; ``pm.set_data`` may have changed them since.
    """
    groups = idata.children if isinstance(idata, DataTree) else {}
    stored = groups["constant_data"].dataset if "constant_data" in groups else {}
    with ExitStack() as restored:
        for x in {v for v in ancestors(graphs) if isinstance(v, SharedVariable)}:
            if x.name in stored and stored[x.name].ndim == x.type.ndim:
                restored.callback(x.set_value, x.get_value())
                x.set_value(stored[x.name].to_numpy().astype(x.type.dtype))
        yield


def refuse_name(name: str) -> None:
    """Refuse a name for the latent function that other variables of the result have."""
    if name in _OWN_NAMES:
        raise ValueError(f"{name!r} is the name of another variable: choose another name.")


def values_of(trace: Dataset, name: str) -> FloatArray:
    """Draws of a variable with chain and draw first."""
    return np.asarray(trace[name].transpose("chain", "draw", ...).to_numpy())


class DrawFunction:
    """A function of what each draw of a trace holds.

    Parameters
    ----------
    trace : Dataset
        With chain and draw.
    outputs : list of TensorVariable
        What to compute, of random variables that `trace` has.
    further : dict, optional
        Other inputs of `outputs`, and their values for each draw, (chain, draw, ...).
    """

    def __init__(
        self, trace: Dataset, outputs: list[Any], further: dict[Any, FloatArray] | None = None
    ) -> None:
        further = further or {}
        known = set(map(str, trace.data_vars))
        needed = hyperparameters(outputs, known, list(further), "idata.posterior")
        inputs = [node.type() for node in needed]
        given = dict(zip(needed, inputs, strict=True))
        self._function = plain_function([*inputs, *further], outputs, given)
        self._values = [values_of(trace, node.name) for node in needed] + list(further.values())
        self.shape = (trace.sizes["chain"], trace.sizes["draw"])

    def each(
        self, description: str, progressbar: bool, *, along_path: bool = False
    ) -> Iterator[tuple[Any, list[Any]]]:
        """Index and outputs of each draw; `along_path` in an order in which neighbours follow."""
        indices = list(np.ndindex(*self.shape))
        if along_path and self._values:
            flat = [value.reshape(len(indices), -1) for value in self._values]
            indices = [indices[i] for i in short_path(np.concatenate(flat, axis=1))]
        for index in track(indices, description, disable=not progressbar):
            yield index, self._function(*(value[index] for value in self._values))


# Draws of latent functions, and what follows from them draw by draw, as a DataTree.

DataSets = tuple[DataSet, ...]


class LatentDraws(NamedTuple):
    """Draws for each hyperparameter draw.

    Attributes
    ----------
    name : str
    f : ndarray, shape (chain, draw, q)
        At the data, one kind after the other, and at new points.
    relative_ess : ndarray, shape (chain, draw)
    likelihoods : ndarray of lists, shape (chain, draw)
        One for each kind of data.
    Xnew : ndarray, shape (t, d), or None
    at_data : bool, default True
        Whether f at the data was drawn.
    """

    name: str
    f: FloatArray
    relative_ess: FloatArray
    likelihoods: NDArray[Any]
    Xnew: FloatArray | None
    at_data: bool = True


def refuse_taken_names(trace: Dataset, name: str, sets: DataSets) -> None:
    """Refuse a name, or a length of a dimension, that the trace has for something else."""
    if name in trace.variables:
        raise ValueError(
            f"idata.posterior has draws of {name!r}, and the data y ask for others: leave out X "
            f"and y to continue those of prior to Xnew, or name the new ones, name='{name}_new'."
        )
    refuse_name(name)
    for data in sets:
        row, n = data.named("obs_id"), data.X.shape[0]
        found = trace.sizes.get(row, n)
        if found != n:
            raise ValueError(
                f"idata.posterior has a dimension {row!r} of length {found}, but there are {n} "
                "rows of X: rename that dimension first."
            )


def latent_tree(
    trace: Dataset, sets: DataSets, drawn: LatentDraws, rng: np.random.Generator
) -> DataTree:
    """The variables of `trace` with the draws, replicated data, log likelihoods and predictions."""
    found = output.DataGroups.of(sets)
    found.groups["sample_stats"]["relative_ess"] = drawn.relative_ess
    rows = {data.named("obs_id") for data in sets}.intersection(trace.variables)
    found.coords.update({row: trace[row] for row in rows})

    def of_each(i: int, own: FloatArray) -> tuple[FloatArray, NDArray[Any]]:
        log_likelihoods, replicates = [], []
        for likelihood, part in _by_likelihood(drawn, i, own):
            log_likelihoods.append(likelihood.log_likelihood(sets[i].y, part))
            new = likelihood.replicate(sets[i].y, part, log_likelihoods[-1], rng)
            replicates.append(new)
        return _stacked(log_likelihoods, drawn), _stacked(replicates, drawn)

    start = 0
    if drawn.at_data:
        found.add_draws(sets, drawn.f, drawn.name, of_each)
        start = sum(data.values.size for data in sets)
    pred_dims = dict(found.dims)
    if drawn.Xnew is not None:
        new, own_dims = _predictions(sets, drawn, drawn.f[..., start:], rng)
        found.groups["predictions"] = new
        found.groups["predictions_constant_data"] = {"X": drawn.Xnew}
        pred_dims |= {**own_dims, "X": ["pred_id", "feature"]}
        found.coords["pred_id"] = np.arange(drawn.Xnew.shape[0])
    tree = found.tree({"method": "twisted"}, pred_dims)
    for group, node in tree.children.items():
        if "draw" in node.dims:  # those of a thinned trace do not count from 0
            tree[group].dataset = node.dataset.assign_coords(chain=trace.chain, draw=trace.draw)
    if drawn.at_data:
        trace = trace.merge(tree["posterior"].dataset, join="exact")
    tree["posterior"] = DataTree(trace)
    return tree


def _predictions(
    sets: DataSets, drawn: LatentDraws, f: FloatArray, rng: np.random.Generator
) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """The functions at new points, what each likelihood predicts there, and dimensions of these."""
    assert drawn.Xnew is not None
    k = n_functions(sets)
    widest = next(data for data in sets if data.values.n_functions == k)
    point = ["pred_id"] if k == 1 else ["pred_id", widest.likelihood.function_dim]
    f = f if k == 1 else f.reshape(*f.shape[:2], -1, k)
    found: dict[str, Any] = {drawn.name: f}
    dims = {drawn.name: point}
    for i, data in enumerate(sets):
        own_k = data.values.n_functions
        own = f if own_k == k else f[..., 0] if own_k == 1 else f[..., :own_k]
        several = [
            likelihood.predictive_draws(part, rng)
            for likelihood, part in _by_likelihood(drawn, i, own)
        ]
        for name in several[0]:
            further = data.likelihood.predicted_dims.get(name, ())
            found[data.named(name)] = _stacked([draws[name] for draws in several], drawn)
            dims[data.named(name)] = ["pred_id", *(output.own_dim(data, dim) for dim in further)]
    return found, dims


def _by_likelihood(
    drawn: LatentDraws, which: int, f: FloatArray
) -> list[tuple[base.Likelihood, FloatArray]]:
    """Draws of f, (draws, ...), with the likelihood of each; all together where it is the same."""
    flat = f.reshape(-1, *f.shape[2:])
    own = [kinds[which] for kinds in drawn.likelihoods.ravel()]
    if all(x is own[0] for x in own):
        return [(own[0], flat)]
    return [(likelihood, part[None]) for likelihood, part in zip(own, flat, strict=True)]


def _stacked(parts: list[Any], drawn: LatentDraws) -> NDArray[Any]:
    whole = np.concatenate(parts)
    return whole.reshape(*drawn.relative_ess.shape, *whole.shape[1:])


_LEAST_FRACTION = 0.1


def draw_latent(
    gp: Any,
    idata: DataTree,
    data: DataOfModel,
    Xnew: FloatArray | None,
    *,
    name: str,
    n_candidates: int,
    rng: np.random.Generator,
    progressbar: bool,
) -> DataTree:
    """`SkewGP.sample_latent` given data, for checked arguments."""
    count = as_count("n_candidates", n_candidates)
    trace = posterior_draws(idata)
    latent = LatentGivenData(gp, data, Xnew)
    refuse_taken_names(trace, name, latent.sets)
    shape = (trace.sizes["chain"], trace.sizes["draw"])
    f = np.empty((*shape, latent.size))
    relative_ess = np.empty(shape)
    likelihoods = np.empty(shape, dtype=object)
    indices = []

    def cases() -> Iterator[Case]:
        for index, at in latent.each(trace, f"Drawing {name}", progressbar, along_path=True):
            indices.append(index)
            likelihoods[index] = at.likelihoods
            yield Case(at.given, latent.n_signs, 0.0, at.sites)

    size = relative_ess.size
    # Thousands of runs: one warning, with their number, comes after them.
    every = draws_of_many(cases(), [1] * size, count, rng.spawn(size), starmap)
    for i, drawn in enumerate(every):
        f[indices[i]], relative_ess[indices[i]] = drawn.f[0], drawn.relative_ess
    few = int((relative_ess < _LEAST_FRACTION).sum())
    if few:
        warn(
            f"for {few} of {relative_ess.size} hyperparameter draws the {count} candidates had an "
            f"effective sample size of less than a tenth of their number (the smallest relative "
            f"ESS is {relative_ess.min():.3f}): raise n_candidates, or look at the prior of the "
            "variance.",
            LowEffectiveSampleWarning,
            stacklevel=3,
        )
    return latent_tree(
        trace, latent.sets, LatentDraws(name, f, relative_ess, likelihoods, Xnew), rng
    )


class AtDraw(NamedTuple):
    """Latent functions given data, at one draw of the hyperparameters.

    Attributes
    ----------
    given : Conditioning
        Of the functions at the pseudo-points, at the data, and at new points.
    likelihoods : list of Likelihood
        One for each kind of data.
    signs : tuple of ndarray
        Prior covariance, phase and truncation at the pseudo-points.
    sites : Sites or None
        Observations that are no rows, of the values after the pseudo-points.
    """

    given: Conditioning
    likelihoods: list[base.Likelihood]
    signs: tuple[FloatArray, FloatArray, FloatArray]
    sites: Sites | None


class LatentGivenData:
    """The latent functions of a SkewGP given data, as a function of the hyperparameters.

    Parameters
    ----------
    gp : SkewGP
    data : DataOfModel
    Xnew : ndarray, shape (t, d), or None
        New points, at which they are wanted as well.
    coefficients : sequence of variables
        Of the mean, wanted after all of these in place of being known.

    Attributes
    ----------
    sets : tuple of DataSet
    size : int
        Values at the data and at the new points, and coefficients.
    n_signs : int
        Values at the pseudo-points, which come before them.
    coefficient_shapes : dict
        Shape of each coefficient by name.
    """

    def __init__(
        self, gp: Any, data: DataOfModel, Xnew: FloatArray | None, coefficients: Sequence[Any] = ()
    ) -> None:
        self._known = known = data.known()
        names = zip(data.kinds, known, strict=True)
        self.sets = tuple(DataSet(name, x.X, x.y, x.likelihood) for name, x in names)
        k = max(x.n_functions for x in known)
        graphs, values = data.values(known), [x.values for x in self.sets]
        if Xnew is not None:
            graphs.append(process.ValuesAt(Xnew, k))
            values.append(base.Values(Xnew, k))
        shapes = [tuple(map(int, rv.shape.eval(mode=PLAIN))) for rv in coefficients]
        self.coefficient_shapes = {rv.name: n for rv, n in zip(coefficients, shapes, strict=True)}
        n_coefficients = sum(int(np.prod(shape, dtype=int)) for shape in shapes)
        self.size = sum(x.size for x in values) + n_coefficients
        self.n_signs = gp.n_pseudo_points * k
        coregion = process.as_coregion_graph(data.coregion, k)
        phase, truncation, _ = process.signs_of_functions(gp, k)
        random = [x for part in known for x in part.random.values()]
        self._outputs = [
            process.joint_covariance(gp, graphs, 0.0, coregion)[1],
            process.mean_of_values(gp.mean_func, graphs),
            *map(pt.as_tensor_variable, (phase, truncation, *random)),
        ]
        if self.n_signs:
            values = [base.Values(np.zeros((gp.n_pseudo_points, 1)), k), *values]
        self._units = _unit_groups(values, k)
        if coefficients:
            self._outputs = _with_coefficients(
                data.model, coefficients, self._outputs, self.n_signs
            )
            end = self.n_signs + self.size
            self._units |= {i: np.array([i]) for i in range(end - n_coefficients, end)}

    def each(
        self, trace: Dataset, description: str, progressbar: bool, *, along_path: bool = False
    ) -> Iterator[tuple[Any, AtDraw]]:
        """Index of each draw of a trace, and the functions there: see `DrawFunction.each`."""
        function = DrawFunction(trace, self._outputs)
        s = self.n_signs
        for index, arrays in function.each(description, progressbar, along_path=along_path):
            cov, mean, phase, truncation, *random = arrays
            sets, variances = self._sets_at(random), cov.diagonal()
            parts, end = [], s
            for x in sets:
                rows, start = x.rows(), end
                end = start + x.values.size
                if x.likelihood.relative_noise:
                    rows = replace(rows, S=rows.S * variances[start:end])
                parts.append(rows)
            rows = stacked(parts, [x.values.size for x in sets])
            units = units_of(variances, self._units)
            prior = FactoredCovariance.of_kernel(cov, units)
            given = process_given(prior, mean, phase, truncation, rows)
            signs = cov[:s, :s], phase, truncation
            yield index, AtDraw(given, [x.likelihood for x in sets], signs, sites_of(sets))

    def _sets_at(self, random: list[FloatArray]) -> DataSets:
        """Data under likelihoods with these values of their random parameters."""
        # Of a function that gives a distribution each takes a compilation.
        if not random:
            return self.sets
        rest = iter(random)
        return tuple(
            x._replace(likelihood=known.at({name: next(rest) for name in known.random}))
            for x, known in zip(self.sets, self._known, strict=True)
        )


def _with_coefficients(
    model: Any, coefficients: Sequence[Any], outputs: list[Any], s: int
) -> list[Any]:
    """The prior moments with the coefficients of the mean after the values."""
    known = OwnScale(model.free_RVs)
    cov, mean, *others = outputs
    values = sun_of_process(mean, cov[s:, s:], None, None, 0)
    joint = with_coefficients(known, coefficients, values, 0)
    cov, *others = known.replace_rvs_by_values([cov, *others])
    # The signs at the pseudo-points are those of f less its mean.
    nothing = pt.zeros((s, joint.mu.shape[0] + s - cov.shape[0]))
    cross = pt.concatenate([cov[:s, s:], nothing], axis=1)
    top = pt.concatenate([cov[:s, :s], cross], axis=1)
    bottom = pt.concatenate([cross.T, joint.scale], axis=1)
    return [pt.concatenate([top, bottom], axis=0), joint.mu, *others]


def _unit_groups(parts: Sequence[base.Values], n_functions: int) -> dict[Any, Any]:
    """Which values are of one function, or of one derivative of it, by that."""
    function, at = base.function_index(parts), base.input_index(parts)
    found = {}
    for derivative, inputs in base.derivative_groups(parts).items():
        for k in range(n_functions):
            rows = np.flatnonzero(np.isin(at, inputs) & (function == k))
            if rows.size:
                found[derivative, k] = rows
    return found


# The latent function at new inputs for each draw of it in a trace.


def continue_latent(
    gp: Any,
    idata: DataTree,
    known: FunctionAt,
    Xnew: FloatArray,
    *,
    name: str,
    rng: np.random.Generator,
    progressbar: bool,
) -> DataTree:
    """`SkewGP.sample_latent` after `prior`, for checked arguments."""
    refuse_name(name)
    trace = posterior_draws(idata)
    values = values_of(trace, known.f.name)
    f = pt.vector("f at the data", dtype=known.f.dtype)
    sun = process_beyond(gp, known, f, Xnew, known.jitter)
    _refuse_other_inputs(known, values)
    function = DrawFunction(trace, list(sun), {f: values})
    new = np.empty((*function.shape, Xnew.shape[0]))
    for index, arrays in function.each(f"Drawing {name}", progressbar):
        with no_warnings():  # of the jitter that f at one of the data needs
            new[index] = sun_draws(SunParameters(*arrays), 1, rng)[0]
    tree = output.as_datatree(
        {"predictions": {name: new}, "predictions_constant_data": {"X": Xnew}},
        dims={},
        pred_dims={name: ["pred_id"], "X": ["pred_id", "feature"]},
        coords={"pred_id": np.arange(Xnew.shape[0]), "feature": np.arange(Xnew.shape[1])},
        attrs={},
    )
    # Those of a thinned trace do not count from 0.
    predictions = tree["predictions"].dataset.assign_coords(chain=trace.chain, draw=trace.draw)
    tree["predictions"].dataset = predictions
    tree["posterior"] = DataTree(trace)
    return tree


def _refuse_other_inputs(known: FunctionAt, values: FloatArray) -> None:
    """Refuse draws of another length than the inputs have, which ``pm.set_data`` may change."""
    n = int(pt.as_tensor_variable(known.X).shape[0].eval())
    if values.shape[2:] != (n,):
        raise ValueError(
            f"idata.posterior has {known.f.name!r} of shape {values.shape[2:]} in each draw, but "
            f"the inputs X of prior have {n} row(s): set X back to what it was in pm.sample, with "
            "pm.set_data, and give the new inputs as Xnew."
        )


_JITTER = 1e-6  # as `prior` has it


def named_among(candidates: Mapping[str, Any], name: str | None, what: str) -> Any:
    """The one called `name`, or the only one; None of none."""
    if name is not None and name in candidates:
        return candidates[name]
    if len(candidates) > 1:
        found = "" if name is None else f", got {name!r}"
        raise ValueError(
            f"this SkewGP has several {what} in the model: name must be one of "
            f"{', '.join(map(repr, candidates))}{found}."
        )
    return next(iter(candidates.values()), None)


def stored_function(idata: DataTree) -> FunctionAt | None:
    """One function at the inputs that stand beside it, as `integrate(gp, X, y)` has them."""
    if not has_draws(idata, "f") or "constant_data" not in idata.children:
        return None
    f, inputs = idata["posterior"]["f"], idata["constant_data"]
    if "X" not in inputs:
        return None
    X = inputs["X"]
    if set(f.dims) != {"chain", "draw", X.dims[0]}:  # of several functions, or derivatives
        return None
    return FunctionAt(X.to_numpy(), pt.vector("f"), _JITTER)


def nothing_known(functions: Mapping[str, FunctionAt]) -> str:
    if not functions:
        return (
            "sample_latent needs a latent function or data: call prior(name, X) or "
            "marginal_likelihood(name, X, y) in the model that idata comes from, or pass X and y, "
            "with a name= for f that idata.posterior does not have."
        )
    names = " or ".join(map(repr, functions))
    return (
        f"idata.posterior has no variable {names}, the latent function that prior made: "
        "give the idata of that model, or X and y, with their likelihood."
    )
