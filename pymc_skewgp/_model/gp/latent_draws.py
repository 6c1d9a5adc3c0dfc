"""The latent functions for each draw of a trace, given data, as a tree."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import starmap
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from xarray import Dataset, DataTree

from pymc_skewgp._errors import LowEffectiveSampleWarning, no_warnings, warn
from pymc_skewgp._gaussian.covariance import FactoredCovariance
from pymc_skewgp._gaussian.weights import short_path
from pymc_skewgp._limits import steps
from pymc_skewgp._model.gp import process
from pymc_skewgp._model.gp.functions import hyperparameters
from pymc_skewgp._model.gp.site_functions import DistributionSites
from pymc_skewgp._model.gp.variables import DataOfModel, FunctionAt
from pymc_skewgp._model.graph.at_points import GraphsAtPoints
from pymc_skewgp._model.graph.collapsed import OwnScale, with_coefficients
from pymc_skewgp._model.ops.densities import sun_of_process
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._observations import likelihood as base
from pymc_skewgp._observations.comparisons import with_error_of_shares
from pymc_skewgp._observations.likelihood import as_inputs
from pymc_skewgp._observations.new_rows import NewRows, RowNumbers, as_new_rows
from pymc_skewgp._observations.observations import Observations, places_of, stacked
from pymc_skewgp._observations.sites import Sites
from pymc_skewgp._posterior import output
from pymc_skewgp._posterior.conditioning import Conditioning, process_given
from pymc_skewgp._posterior.draws_with_evidence import Case, draws_of_many
from pymc_skewgp._posterior.prior import DataSet, sites_of, units_of
from pymc_skewgp._sun.parameters import SunParameters, draws_beyond
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
    """

    def __init__(self, trace: Dataset, outputs: list[Any]) -> None:
        known = set(map(str, trace.data_vars))
        needed = hyperparameters(outputs, known, [], "idata.posterior")
        inputs = [node.type(node.name) for node in needed]
        graphs = clone_replace(outputs, dict(zip(needed, inputs, strict=True)))
        self._function = GraphsAtPoints(inputs, graphs)
        self._values = [values_of(trace, node.name) for node in needed]
        self.shape = (trace.sizes["chain"], trace.sizes["draw"])

    def each(
        self, stage: str | None = None, *, along_path: bool = False
    ) -> Iterator[tuple[Any, list[Any]]]:
        """Index and outputs of each draw; `along_path` in an order in which neighbours follow."""
        indices = list(np.ndindex(*self.shape))
        if along_path and self._values:
            flat = [value.reshape(len(indices), -1) for value in self._values]
            indices = [indices[i] for i in short_path(np.concatenate(flat, axis=1))]
        yield from zip(indices, steps(self._at(indices), stage, len(indices)), strict=True)

    def each_distinct(
        self, stage: str | None = None
    ) -> Iterator[tuple[tuple[NDArray[np.intp], ...], list[Any]]]:
        """Indices of all draws of which the outputs are the same, as arrays, and the outputs."""
        size = int(np.prod(self.shape))
        flat = [value.reshape(size, -1).astype(np.float64) for value in self._values]
        table = np.concatenate([np.zeros((size, 1)), *flat], axis=1)
        _, which = np.unique(table, axis=0, return_inverse=True)
        groups = [np.unravel_index(group, self.shape) for group in places_of(which.ravel())]
        first = [tuple(int(i[0]) for i in index) for index in groups]
        yield from zip(groups, steps(self._at(first), stage, len(groups)), strict=True)

    def _at(self, indices: Sequence[tuple[int, ...]]) -> Iterator[list[Any]]:
        """Outputs of one draw after the other, many in one call."""
        values = [[value[index] for value in self._values] for index in indices]
        for own, found in zip(values, self._function.each(values), strict=True):
            yield self._function(*own) if found is None else found  # which says what is wrong


# Draws of latent functions, and what follows from them draw by draw, as a DataTree.

DataSets = tuple[DataSet, ...]
Arrays = dict[str, NDArray[Any]]


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
    new : NewRows or None
    at_data : bool, default True
        Whether f at the data was drawn.
    probs : ndarray or None
        Of quantiles in summaries of the new rows; None for no summaries.
    """

    name: str
    f: FloatArray
    relative_ess: FloatArray
    likelihoods: NDArray[Any]
    new: NewRows | None
    at_data: bool = True
    probs: FloatArray | None = None


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
    if not sets:  # nothing but f at new rows
        return _with_trace(new_rows_tree(sets, drawn, drawn.f, rng), trace)
    found = output.DataGroups.of(sets)
    found.groups["sample_stats"]["relative_ess"] = drawn.relative_ess
    rows = {data.named("obs_id") for data in sets}.intersection(trace.variables)
    found.coords.update({row: trace[row] for row in rows})

    def of_each(i: int, own: FloatArray) -> tuple[FloatArray, NDArray[Any] | None]:
        def given_f(likelihood: base.Likelihood, f: FloatArray) -> Arrays:
            own_log = likelihood.log_likelihood(sets[i].y, f)
            new = likelihood.replicate(sets[i].y, f, own_log, rng)
            return {"log": own_log} | ({} if new is None else {"new": new})

        each = _by_likelihood(drawn, i, own, given_f)
        return each["log"], each.get("new")

    start = 0
    if drawn.at_data:
        found.add_draws(sets, drawn.f, drawn.name, of_each)
        start = sum(data.values.size for data in sets)
    tree = found.tree({"method": "twisted"})
    if drawn.new is not None:
        tree.update(new_rows_tree(sets, drawn, drawn.f[..., start:], rng).children)
    return _with_trace(tree, trace)


def _with_trace(tree: DataTree, trace: Dataset) -> DataTree:
    for group, node in tree.children.items():
        if "draw" in node.dims:  # those of a thinned trace do not count from 0
            tree[group].dataset = node.dataset.assign_coords(chain=trace.chain, draw=trace.draw)
    if "posterior" in tree.children:
        trace = trace.merge(tree["posterior"].dataset, join="exact")
    tree["posterior"] = DataTree(trace)
    return tree


# What likelihoods predict at new rows, for draws of functions there.


def new_rows_tree(
    sets: DataSets, drawn: LatentDraws, f: FloatArray, rng: np.random.Generator
) -> DataTree:
    """Predictions, their summaries if these are wanted, and inputs.

    `f` has shape (chain, draw, t K); without `sets` nothing is predicted but f.
    """
    new, probs = drawn.new, drawn.probs
    assert new is not None
    groups = output.PredictedGroups(sets, new, probs)
    f = f.reshape(*f.shape[:2], *groups.shape)
    known = {} if probs is None else output.summary_of_draws(drawn.name, f, probs, skewness=True)
    groups.add({drawn.name: f}, known)
    for i, data in enumerate(sets):
        own = groups.own(f, data)
        each = _by_likelihood(drawn, i, own, lambda likelihood, x: new.draws(likelihood, x, rng))
        groups.add(each, {} if probs is None else _averages(drawn, i, own, each, probs), data)
    return groups.tree({})


def _averages(
    drawn: LatentDraws, which: int, f: FloatArray, predicted: Arrays, probs: FloatArray
) -> Arrays:
    """What one likelihood predicts averaged over all draws, and quantiles of y, with errors."""
    new = drawn.new
    assert new is not None

    def given_f(likelihood: base.Likelihood, own: FloatArray) -> Arrays:
        # One component for each point of each draw: what is predicted where f is known.
        at = base.Mixture(own.reshape(-1, 1), np.zeros(own.size), np.ones(1), exact=True)
        if own.ndim == 3:
            at = replace(at, covariance=np.zeros((own.shape[0] * own.shape[1], *own.shape[2:] * 2)))
        found = new.repeated(len(own)).summary(likelihood, at)
        plain = {name: x for name, x in found.items() if not name.endswith("_se")}
        return {name: x.reshape(*own.shape[:2], *x.shape[1:]) for name, x in plain.items()}

    likelihood, each = drawn.likelihoods.ravel()[0][which], Arrays()
    if isinstance(likelihood, DistributionSites):
        if "y" in predicted:  # its mean may be no formula
            y = predicted["y"].astype(np.float64)
            each = {"y_mean": y, "y_sd": np.zeros(y.shape)}
    elif "p" in predicted and set(given_f(likelihood, f[0, :1])) == {"p_mean"}:
        each = {"p_mean": predicted["p"]}
    else:
        each = _by_likelihood(drawn, which, f, given_f)
    found: Arrays = {}
    for name, x in each.items():
        stem = name.removesuffix("_sd")
        if name.endswith("_sd") and f"{stem}_mean" in each:
            found |= output.deviation(stem, x, each[f"{stem}_mean"])
        else:
            found |= output.averages(name, x)
    if probs.size and "y" in predicted:
        k = f.shape[3] if f.ndim == 4 else 1
        at = base.Mixture(np.zeros((k, 1)), np.ones(k), np.ones(1))
        at = at if k == 1 else replace(at, covariance=np.eye(k)[None])
        if new.first.quantiles(likelihood, at, probs[:1]):  # which labels have none of
            every = output.summary_of_draws("y", predicted["y"], probs)
            found |= {name: x for name, x in every.items() if "_quantile" in name}
    return found | _together(drawn, which, f)


def _together(drawn: LatentDraws, which: int, f: FloatArray) -> Arrays:
    """What the new rows tell only together, averaged over draws."""
    new, places = drawn.new, _places(drawn, which)
    assert new is not None
    batch = output.batch_numbers(*f.shape[:2]).ravel()
    flat = f.reshape(-1, *f.shape[2:])
    joint = np.zeros((new.size, new.size))

    def parts() -> Iterator[tuple[NDArray[np.intp], Arrays]]:
        for likelihood, index in places:
            for b in np.unique(batch[index]):
                own = index[batch[index] == b]
                n = own.size
                at = base.Mixture(flat[own].T, np.zeros(new.size), np.full(n, 1.0 / n), joint=joint)
                found = new.joint(likelihood, flat[own][None], at)
                yield own, {name: x for name, x in found.items() if not name.endswith("_se")}

    if f.ndim > 3:  # which is of one function
        return {}
    return with_error_of_shares(output.averages_by_batches(batch, parts()), len(flat))


def _places(drawn: LatentDraws, which: int) -> list[tuple[base.Likelihood, NDArray[np.intp]]]:
    """Each likelihood of one kind of data, and at which of the draws it is."""
    own = [kinds[which] for kinds in drawn.likelihoods.ravel()]
    found: dict[int, list[int]] = {}
    for i, likelihood in enumerate(own):
        found.setdefault(id(likelihood), []).append(i)
    return [(own[index[0]], np.array(index)) for index in found.values()]


def _by_likelihood(
    drawn: LatentDraws,
    which: int,
    f: FloatArray,
    given_f: Callable[[base.Likelihood, FloatArray], Arrays],
) -> Arrays:
    """Arrays by name, made for all draws, (draws, ...), that have the same likelihood together."""
    flat = f.reshape(-1, *f.shape[2:])
    found: Arrays = {}
    for likelihood, index in _places(drawn, which):
        for name, x in given_f(likelihood, flat[index]).items():
            if name not in found:
                found[name] = np.empty((len(flat), *x.shape[1:]), dtype=x.dtype)
            found[name][index] = x
    return {name: x.reshape(*f.shape[:2], *x.shape[1:]) for name, x in found.items()}


_LEAST_FRACTION = 0.1


class Wanted(NamedTuple):
    """What is wanted for each draw of a trace.

    Attributes
    ----------
    name : str or None
        Of the function.
    new : NewRows or None
    probs : ndarray or None
        See `LatentDraws`.
    at_data : bool
        Whether f at the data is, with what follows from it.
    n_candidates : int
        Weighted draws that each is picked from, where f is drawn given data.
    rng : numpy.random.Generator
    """

    name: str | None
    new: NewRows | None
    probs: FloatArray | None
    at_data: bool
    n_candidates: int
    rng: np.random.Generator


def draw_latent(gp: Any, idata: DataTree, data: DataOfModel, wanted: Wanted) -> DataTree:
    """Functions given data, for each draw of hyperparameters."""
    name, rng = wanted.name or "f", wanted.rng
    count = as_count("n_candidates", wanted.n_candidates)
    trace = posterior_draws(idata)
    latent = LatentGivenData(gp, data, None if wanted.new is None else wanted.new.X)
    if wanted.at_data:
        refuse_taken_names(trace, name, latent.sets)
    shape = (trace.sizes["chain"], trace.sizes["draw"])
    f = np.empty((*shape, latent.size))
    relative_ess = np.empty(shape)
    likelihoods = np.empty(shape, dtype=object)
    indices = []

    def cases() -> Iterator[Case]:
        each = latent.each(trace, f"Drawing {name}", along_path=True)
        for index, at in each:
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
    if not wanted.at_data:
        f = f[..., sum(data.values.size for data in latent.sets) :]
    found = relative_ess, likelihoods, wanted.new, wanted.at_data, wanted.probs
    return latent_tree(trace, latent.sets, LatentDraws(name, f, *found), rng)


class AtDraw(NamedTuple):
    """Latent functions given data, at one draw of the hyperparameters.

    Attributes
    ----------
    given : Conditioning
        Of the functions at the pseudo-points, at the data, and at new points.
    likelihoods : list of Likelihood
        One for each kind of data.
    signs : tuple of ndarray
        Truncation and `Prior.latent_cov`, of all functions.
    sites : Sites or None
        Observations that are no rows, of the values after the pseudo-points.
    """

    given: Conditioning
    likelihoods: list[base.Likelihood]
    signs: tuple[FloatArray, FloatArray]
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
    random : list of variables
        Parameters of likelihoods.
    """

    def __init__(
        self, gp: Any, data: DataOfModel, Xnew: FloatArray | None, coefficients: Sequence[Any] = ()
    ) -> None:
        self._known = known = data.known()
        names = zip(data.kinds, known, strict=True)
        self.sets = tuple(
            DataSet(name, x.X, x.y, x.likelihood, columns=data.columns) for name, x in names
        )
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
        self.random = random = [x for part in known for x in part.random.values()]
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
        self, trace: Dataset, stage: str | None = None, *, along_path: bool = False
    ) -> Iterator[tuple[Any, AtDraw]]:
        """Index of each draw of a trace, and the functions there: see `DrawFunction.each`."""
        function = DrawFunction(trace, self._outputs)
        s = self.n_signs
        at: tuple[DataSets, list[Observations], Sites | None] | None = None
        for index, arrays in function.each(stage, along_path=along_path):
            cov, mean, phase, truncation, *random = arrays
            if at is None or random:
                sets = self._sets_at(random)
                at = sets, [x.rows() for x in sets], sites_of(sets)
            sets, parts, sites = at
            variances, end = cov.diagonal(), s
            for i, x in enumerate(sets):
                start, end = end, end + x.values.size
                if x.likelihood.relative_noise:
                    rows = x.rows()
                    parts[i] = replace(rows, S=rows.S * variances[start:end])
            rows = stacked(parts, [x.values.size for x in sets])
            units = units_of(variances, self._units)
            prior = FactoredCovariance.of_kernel(cov, units)
            given = process_given(prior, mean, phase, truncation, rows)
            scale = phase / np.sqrt(variances[:s])
            signs = truncation, scale[:, None] * cov[:s, :s] * scale
            yield index, AtDraw(given, [x.likelihood for x in sets], signs, sites)

    def likelihoods(self, trace: Dataset) -> NDArray[Any]:
        """Lists of one for each kind of data, an entry a draw, shape (chain, draw)."""
        shape = trace.sizes["chain"], trace.sizes["draw"]
        found = np.empty(shape, dtype=object)
        for index, random in DrawFunction(trace, self.random).each_distinct():
            own = [x.likelihood for x in self._sets_at(random)]
            for each in zip(*index, strict=True):
                found[each] = own
        return found

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


_JITTER = 1e-6  # as `prior` has it


def function_in(gp: Any, idata: Any, name: str | None) -> FunctionAt | None:
    """The function that ``gp.prior`` made and the trace has draws of."""
    drawn = {x: f for x, f in gp._functions.items() if has_draws(idata, x)}
    found: FunctionAt | None = named_among(drawn, name, "latent functions")
    return found


def data_in(gp: Any, idata: Any, name: str | None) -> DataOfModel:
    """The data of ``gp.marginal_likelihood``, of several those that were observed in the trace."""
    seen: Any = idata.children.get("observed_data", {})
    own = {x: data for x, data in gp._data.items() if x in seen}
    data: DataOfModel | None = named_among(own or gp._data, name, "data")
    if data is None:
        raise ValueError(nothing_known(gp._functions))
    return data


def rows_for(gp: Any, Xnew: Any, data: DataOfModel | None, own: RowNumbers) -> NewRows:
    """New rows, checked against the kernel, and against the likelihoods of the data."""
    kinds = [] if data is None else data.known()
    k = max((x.n_functions for x in kinds), default=1)
    X = as_inputs("Xnew", Xnew, None, None if data is None else data.columns)
    X = process.as_input_graph("Xnew", X, gp.n_columns)
    return as_new_rows(X, [x.likelihood for x in kinds], k, own)


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
    """Why there is nothing to begin with."""
    if not functions:
        return (
            "this SkewGP made no variable of the model that the draws are of, and they have no f "
            "with its inputs beside it: say given which data f is wanted, "
            "sg.predict(idata, Xnew, gp=gp, X=X, y=y, likelihood=...)."
        )
    names = " or ".join(map(repr, functions))
    return (
        f"idata.posterior has no variable {names}, the latent function that prior made: "
        "give the idata of that model, or X and y, with their likelihood."
    )


def continue_latent(gp: Any, idata: DataTree, known: FunctionAt, wanted: Wanted) -> DataTree:
    """One function that `prior` made, at new inputs; nothing is known of its likelihood."""
    name, new = wanted.name or known.f.name, wanted.new
    assert new is not None
    refuse_name(name)
    trace = posterior_draws(idata)
    values = values_of(trace, known.f.name)
    _refuse_other_inputs(known, values)
    joint = process.process_at(gp, [known.X, new.X], known.jitter)
    return _continued(trace, joint, values, wanted, name)


def continue_with_data(gp: Any, idata: DataTree, data: DataOfModel, wanted: Wanted) -> DataTree:
    """Functions that are drawn at the data, at new inputs, and what likelihoods predict there."""
    new = wanted.new
    assert new is not None
    trace = posterior_draws(idata)
    latent = LatentGivenData(gp, data, None)
    shape = trace.sizes["chain"], trace.sizes["draw"]
    each = [values_of(trace, x.named(wanted.name or "f")) for x in latent.sets]
    values = np.concatenate([x.reshape(*shape, -1) for x in each], axis=2)
    kinds = data.known()
    k = max(x.n_functions for x in kinds)
    parts = [*data.values(kinds), process.ValuesAt(new.X, k)]
    coregion = process.as_coregion_graph(data.coregion, k)
    joint = process.process_of_values(gp, parts, _JITTER, coregion)
    return _continued(trace, joint, values, wanted, "f", latent)


def has_functions(idata: Any, data: DataOfModel, name: str | None) -> bool:
    """Whether the trace has draws of the functions at all of the data."""
    for kind, known in zip(data.kinds, data.known(), strict=True):
        own = f"{name or 'f'}_{kind}" if kind else name or "f"
        if not has_draws(idata, own):
            return False
        n = known.X.shape[0] * known.n_functions
        trace = idata["posterior"].dataset
        if trace[own].size != n * trace.sizes["chain"] * trace.sizes["draw"]:
            return False
    return True


def _continued(
    trace: Dataset,
    joint: Any,
    values: FloatArray,
    wanted: Wanted,
    name: str,
    latent: LatentGivenData | None = None,
) -> DataTree:
    """The last values of a process given the first, (chain, draw, n), for each draw."""
    parts = []
    for index, arrays in DrawFunction(trace, list(joint)).each_distinct("Drawing f at new inputs"):
        with no_warnings():  # of the jitter that f at one of the data needs
            sun = SunParameters(*arrays)
            parts.append((index, draws_beyond(sun, values[index], wanted.rng)))
    f = np.empty((*values.shape[:2], parts[0][1].shape[1]))
    for index, x in parts:
        f[index] = x
    nothing = np.zeros(f.shape[:2])
    sets, kinds = ((), nothing) if latent is None else (latent.sets, latent.likelihoods(trace))
    drawn = LatentDraws(name, f, nothing, kinds, wanted.new, False, wanted.probs)
    return latent_tree(trace, sets, drawn, wanted.rng)


def _refuse_other_inputs(known: FunctionAt, values: FloatArray) -> None:
    """Refuse draws of another length than the inputs have, which ``pm.set_data`` may change."""
    n = int(pt.as_tensor_variable(known.X).shape[0].eval())
    if values.shape[2:] != (n,):
        raise ValueError(
            f"idata.posterior has {known.f.name!r} of shape {values.shape[2:]} in each draw, but "
            f"the inputs X of prior have {n} row(s): set X back to what it was in pm.sample, with "
            "pm.set_data, and give the new inputs as Xnew."
        )


def latent_of(
    gp: Any, idata: Any, Xnew: Any, data: DataOfModel | None, wanted: Wanted, own: RowNumbers
) -> DataTree:
    """Latent functions for each draw of a trace, by the way that this trace allows.

    Parameters
    ----------
    gp : SkewGP
    idata : DataTree
    Xnew : array_like, shape (t, d), or None
    data : DataOfModel or None
        That were given, or that a result of `integrate` is of.
    wanted : Wanted
        But for the new rows.
    own : mapping
        What new rows have of their own.
    """
    known = None if data is not None else function_in(gp, idata, wanted.name)
    if known is None and data is None and not gp._data:
        known = stored_function(idata)
    if known is not None:
        if Xnew is None:
            raise ValueError(
                f"idata.posterior has {known.f.name!r} at the inputs of prior already: give "
                "Xnew, the inputs at which it is wanted."
            )
        with data_as_sampled(idata, [known.f]):
            new = rows_for(gp, Xnew, None, own)
            return continue_latent(gp, idata, known, wanted._replace(new=new))
    data = data_in(gp, idata, wanted.name) if data is None else data
    with data_as_sampled(idata, data.graphs):
        if Xnew is not None:
            wanted = wanted._replace(new=rows_for(gp, Xnew, data, own))
        if not wanted.at_data and has_functions(idata, data, wanted.name):
            return continue_with_data(gp, idata, data, wanted)
        return draw_latent(gp, idata, data, wanted)
