"""The latent functions for each draw of a trace, given data, as a tree."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import islice, starmap
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors
from rich.progress import track
from xarray import Dataset, DataTree

from pymc_skewgp._errors import LowEffectiveSampleWarning, no_warnings, warn
from pymc_skewgp._gaussian.weights import short_path
from pymc_skewgp._model.gp import process
from pymc_skewgp._model.gp.functions import hyperparameters
from pymc_skewgp._model.gp.variables import DataOfModel, FunctionAt, data_of_model, process_beyond
from pymc_skewgp._model.graph.collapsed import OwnScale, with_coefficients
from pymc_skewgp._model.graph.data_rows import KnownData
from pymc_skewgp._model.graph.data_sites import KnownSites
from pymc_skewgp._model.ops.densities import sun_of_process
from pymc_skewgp._model.ops.plain_mode import PLAIN, plain_function
from pymc_skewgp._observations.likelihood import (
    Likelihood,
    Values,
    as_inputs,
    derivative_groups,
    function_index,
    input_index,
)
from pymc_skewgp._observations.observations import Observations, stacked
from pymc_skewgp._observations.sites import SiteLikelihood, SitesOfParts
from pymc_skewgp._posterior.conditioning import Conditioning, process_given
from pymc_skewgp._posterior.draws_with_evidence import Case, draws_of_many
from pymc_skewgp._posterior.output import (
    DRAWN_GROUPS,
    as_datatree,
    by_function,
    own_coords,
    own_dim,
)
from pymc_skewgp._posterior.prior import DataSet, n_functions, units_of
from pymc_skewgp._sun.parameters import SunParameters, independent_sun_draws
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
    groups: dict[str, dict[str, Any]] = {name: {} for name in DRAWN_GROUPS}
    groups["sample_stats"]["relative_ess"] = drawn.relative_ess
    dims: dict[str, list[str]] = {}
    one_each: dict[str, list[str]] = {}
    coords: dict[str, Any] = {"feature": np.arange(sets[0].X.shape[1])}
    start = 0
    for i, data in enumerate(sets):
        likelihood, y, size = data.likelihood, data.y, data.values.size
        f_name, X_name, y_name, row = (data.named(x) for x in (drawn.name, "X", "y", "obs_id"))
        groups["constant_data"][X_name], dims[X_name] = data.X, [row, "feature"]
        if drawn.at_data:
            own = by_function(drawn.f[..., start : start + size], data)
            start += size
            groups["posterior"][f_name] = own
            dims[f_name] = [row] if own.ndim == 3 else [row, likelihood.function_dim]
        coords[row] = trace.get(row, np.arange(data.X.shape[0]))
        coords |= own_coords(data)
        if not likelihood.has_data:
            continue
        observed = data.named(likelihood.y_dim)
        inner = [data.named(dim) for dim in likelihood.y_inner_dims]
        for name, values in likelihood.observed(y).items():
            groups["observed_data"][data.named(name)] = values
            dims[data.named(name)] = [observed, *inner]
        dims[y_name] = [observed, *inner]
        if drawn.at_data:
            found = _of_each(drawn, i, own, y, rng)
            groups["log_likelihood"][y_name], groups["posterior_predictive"][y_name] = found
            one_each[y_name] = [observed]
            if observed not in coords:
                coords[observed] = np.arange(found[0].shape[-1])
    pred_dims = dict(dims)
    if drawn.Xnew is not None:
        new = _predictions(sets, drawn, drawn.f[..., start:], rng)
        groups["predictions"], own_dims = new
        groups["predictions_constant_data"] = {"X": drawn.Xnew}
        pred_dims |= {**own_dims, "X": ["pred_id", "feature"]}
        coords["pred_id"] = np.arange(drawn.Xnew.shape[0])
    tree = as_datatree(
        {name: group for name, group in groups.items() if group},
        dims=dims,
        pred_dims=pred_dims,
        coords=coords,
        attrs={"method": "twisted"},
        dims_of={"log_likelihood": one_each} if one_each else {},
    )
    for group, node in tree.children.items():
        if "draw" in node.dims:  # those of a thinned trace do not count from 0
            tree[group].dataset = node.dataset.assign_coords(chain=trace.chain, draw=trace.draw)
    if drawn.at_data:
        trace = trace.merge(tree["posterior"].dataset, join="exact")
    tree["posterior"] = DataTree(trace)
    return tree


def _of_each(
    drawn: LatentDraws, which: int, f: FloatArray, y: Any, rng: np.random.Generator
) -> tuple[FloatArray, NDArray[Any]]:
    """Log likelihoods and replicated data, each draw with the parameters that it has."""
    log_likelihoods, replicates = [], []
    for likelihood, own in _by_likelihood(drawn, which, f):
        log_likelihoods.append(likelihood.log_likelihood(y, own))
        replicates.append(likelihood.replicate(y, own, log_likelihoods[-1], rng))
    return _stacked(log_likelihoods, drawn), _stacked(replicates, drawn)


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
            dims[data.named(name)] = ["pred_id", *(own_dim(data, dim) for dim in further)]
    return found, dims


def _by_likelihood(
    drawn: LatentDraws, which: int, f: FloatArray
) -> list[tuple[Likelihood, FloatArray]]:
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


class _Kinds(NamedTuple):
    """Data of each kind, and what of the functions they and new points are about."""

    names: list[str]
    known: list[KnownData | KnownSites]
    values: list[Values]
    n_functions: int

    def at(self, random: Sequence[FloatArray]) -> list[Likelihood]:
        """Likelihoods with these values of their random parameters, one after the other."""
        rest = iter(random)
        return [
            part.at(dict(zip(part.random, islice(rest, len(part.random)), strict=True)))
            for part in self.known
        ]

    def rows(self, likelihoods: Sequence[Likelihood], variances: FloatArray) -> Observations:
        """Rows of all the data; `variances` are the prior ones of their values."""
        parts, sizes, start = [], [values.size for values in self.values], 0
        for known, likelihood, size in zip(self.known, likelihoods, sizes, strict=False):
            rows = likelihood.observations(known.y, known.X.shape[0])
            if likelihood.relative_noise:
                rows = replace(rows, S=rows.S * variances[start : start + size])
            start += size
            parts.append(rows)
        return stacked(parts, sizes[: len(parts)])

    def sites(self, likelihoods: Sequence[Likelihood]) -> SitesOfParts | None:
        """Observations that are no rows; None where all are."""
        parts = [
            likelihood.sites(known.y, known.X.shape[0])
            if isinstance(likelihood, SiteLikelihood)
            else None
            for known, likelihood in zip(self.known, likelihoods, strict=True)
        ]
        if all(part is None for part in parts):
            return None
        return SitesOfParts(parts, [values.size for values in self.values[: len(parts)]])


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
            stacklevel=4,
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
    sites : SitesOfParts or None
        Observations that are no rows, of the values after the pseudo-points.
    """

    given: Conditioning
    likelihoods: list[Likelihood]
    signs: tuple[FloatArray, FloatArray, FloatArray]
    sites: SitesOfParts | None


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
        kinds, graphs = _kinds(data, Xnew)
        self._kinds = kinds
        self.sets = tuple(
            DataSet(own, known.X, known.y, known.likelihood)
            for own, known in zip(kinds.names, kinds.known, strict=True)
        )
        shapes = [tuple(map(int, rv.shape.eval(mode=PLAIN))) for rv in coefficients]
        self.coefficient_shapes = {rv.name: n for rv, n in zip(coefficients, shapes, strict=True)}
        n_coefficients = sum(int(np.prod(shape, dtype=int)) for shape in shapes)
        self.size = sum(values.size for values in kinds.values) + n_coefficients
        self.n_signs = gp.n_pseudo_points * kinds.n_functions
        self._outputs = _outputs(gp, data, kinds, graphs)
        self._units = _unit_groups(gp, kinds, self.n_signs)
        if coefficients:
            self._outputs = _with_coefficients(
                data.model, coefficients, self._outputs, self.n_signs
            )
            end = self.n_signs + self.size
            self._units |= {i: np.array([i]) for i in range(end - n_coefficients, end)}
        # Of a function that gives a distribution each takes a compilation.
        self._known = None if any(part.random for part in kinds.known) else kinds.at([])

    @property
    def has_sites(self) -> bool:
        """Whether observations are no rows."""
        return any(isinstance(part, KnownSites) for part in self._kinds.known)

    def each(
        self, trace: Dataset, description: str, progressbar: bool, *, along_path: bool = False
    ) -> Iterator[tuple[Any, AtDraw]]:
        """Index of each draw of a trace, and the functions there: see `DrawFunction.each`."""
        function = DrawFunction(trace, self._outputs)
        s = self.n_signs
        for index, arrays in function.each(description, progressbar, along_path=along_path):
            cov, mean, phase, truncation, *random = arrays
            likelihoods = self._known or self._kinds.at(random)
            variances = cov.diagonal()
            rows = self._kinds.rows(likelihoods, variances[s:])
            units = units_of(variances, self._units)
            given = process_given(cov, mean, phase, truncation, rows, units)
            signs = cov[:s, :s], phase, truncation
            yield index, AtDraw(given, likelihoods, signs, self._kinds.sites(likelihoods))


def _kinds(data: DataOfModel, Xnew: FloatArray | None) -> tuple[_Kinds, list[process.ValuesAt]]:
    known = data.known()
    k = max(part.n_functions for part in known)
    graphs = data.values(known)
    values = [Values(part.X, part.n_functions, part.likelihood.derivative) for part in known]
    if Xnew is not None:
        graphs.append(process.ValuesAt(Xnew, k))
        values.append(Values(Xnew, k))
    return _Kinds(list(data.kinds), known, values, k), graphs


def _outputs(
    gp: Any, data: DataOfModel, kinds: _Kinds, graphs: list[process.ValuesAt]
) -> list[Any]:
    """Prior moments, signs at pseudo-points, and random parameters of likelihoods, as graphs."""
    coregion = process.as_coregion_graph(data.coregion, kinds.n_functions)
    phase, truncation, _ = process.signs_of_functions(gp, kinds.n_functions)
    return [
        process.joint_covariance(gp, graphs, 0.0, coregion)[1],
        process.mean_of_values(gp.mean_func, graphs),
        pt.as_tensor_variable(phase),
        pt.as_tensor_variable(truncation),
        *(pt.as_tensor_variable(x) for part in kinds.known for x in part.random.values()),
    ]


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


def _unit_groups(gp: Any, kinds: _Kinds, n_latent: int) -> dict[Any, Any]:
    """Which values are of one function, or of one derivative of it, by that."""
    parts = kinds.values
    if n_latent:
        parts = [Values(np.zeros((gp.n_pseudo_points, 1)), kinds.n_functions), *parts]
    function, at = function_index(parts), input_index(parts)
    found = {}
    for derivative, inputs in derivative_groups(parts).items():
        for k in range(kinds.n_functions):
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
    parameters = [sun.mu, sun.scale, sun.cross_cov, sun.truncation, sun.latent_cov]
    function = DrawFunction(trace, parameters, {f: values})
    new = np.empty((*function.shape, Xnew.shape[0]))
    for index, arrays in function.each(f"Drawing {name}", progressbar):
        with no_warnings():  # of the jitter that f at one of the data needs
            new[index] = independent_sun_draws(SunParameters(*arrays), 1, rng)[0]
    tree = as_datatree(
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


class Latent(NamedTuple):
    """What the model of a SkewGP has, and what the caller gives.

    Attributes
    ----------
    functions : mapping of FunctionAt
        The latent functions that `prior` made, by name.
    data : mapping of DataOfModel
        Those of `marginal_likelihood`, by the name of the variable.
    Xnew : array_like or None
    X, y, likelihood, coregion
        Data that the caller gives.
    name : str or None
    """

    functions: Mapping[str, FunctionAt]
    data: Mapping[str, DataOfModel]
    Xnew: ArrayLike | None
    X: Any
    y: Any
    likelihood: Any
    coregion: Any
    name: str | None

    @property
    def given(self) -> bool:
        """Whether the caller gives data."""
        return self.X is not None or self.y is not None

    def function_of(self, idata: DataTree) -> FunctionAt | None:
        """The latent function that `idata` has draws of; None where the caller gives data."""
        drawn = (
            {} if self.given else {x: f for x, f in self.functions.items() if has_draws(idata, x)}
        )
        return _named(self.name, drawn, "latent functions")

    def data_of(self, idata: DataTree) -> DataOfModel | None:
        """Data that `idata` was drawn given, as far as it says so."""
        seen: Any = idata.children.get("observed_data", {})
        own = {x: data for x, data in self.data.items() if x in seen}
        return _named(self.name, own or self.data, "data")


def sample_latent(
    gp: Any,
    idata: DataTree,
    wanted: Latent,
    *,
    n_candidates: int,
    rng: np.random.Generator,
    progressbar: bool,
) -> DataTree:
    """Continue draws of f that the trace has, or draw f given data."""
    name = wanted.name
    several = isinstance(wanted.X, Mapping | list) and wanted.y is None
    if (wanted.X is None) != (wanted.y is None) and not several:
        raise ValueError("give both X and y, or neither (those of marginal_likelihood).")
    new = None
    if wanted.Xnew is not None:
        new = process.as_input_graph("Xnew", as_inputs("Xnew", wanted.Xnew), gp.n_columns)
    how: dict[str, Any] = {"rng": rng, "progressbar": progressbar}
    known = wanted.function_of(idata)
    if known is None and not wanted.given and not wanted.data:
        known = _stored_function(idata)
    if known is not None:
        if new is None:
            raise ValueError(
                f"idata.posterior has {known.f.name!r} at the inputs of prior already: give Xnew, "
                "the inputs at which it is wanted."
            )
        with data_as_sampled(idata, [known.f]):
            return continue_latent(gp, idata, known, new, name=name or known.f.name, **how)
    if wanted.given:
        data = data_of_model(gp, wanted.X, wanted.y, wanted.likelihood, wanted.coregion)
    else:
        found = wanted.data_of(idata)
        if found is None:
            raise ValueError(_nothing_known(wanted.functions))
        data = found
    with data_as_sampled(idata, data.graphs):
        return draw_latent(gp, idata, data, new, name=name or "f", n_candidates=n_candidates, **how)


def _named(name: str | None, candidates: Mapping[str, Any], what: str) -> Any:
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


def _stored_function(idata: DataTree) -> FunctionAt | None:
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


def _nothing_known(functions: Mapping[str, FunctionAt]) -> str:
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
