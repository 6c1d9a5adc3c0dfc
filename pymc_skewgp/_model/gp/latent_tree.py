"""Draws of latent functions, and what follows from them draw by draw, as a DataTree."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xarray import Dataset, DataTree

from pymc_skewgp._model.gp.trace import refuse_name
from pymc_skewgp._observations.likelihood import Likelihood
from pymc_skewgp._posterior.data_sets import DataSet, n_functions
from pymc_skewgp._posterior.datatree import as_datatree
from pymc_skewgp._posterior.output import DRAWN_GROUPS, by_function, own_coords, own_dim
from pymc_skewgp._validation import FloatArray

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
