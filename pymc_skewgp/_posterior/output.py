"""A posterior's draws and forecasts as DataTrees: names, dimensions, coordinates."""

from typing import Any

import numpy as np
from xarray import DataTree

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._posterior.data_sets import DataSet, n_functions
from pymc_skewgp._posterior.datatree import as_datatree
from pymc_skewgp._posterior.latent_marginals import LatentMarginals
from pymc_skewgp._validation import FloatArray

DataSets = tuple[DataSet, ...]
# Of draws at the data, and what follows from them.
DRAWN_GROUPS = (
    "posterior",
    "posterior_predictive",
    "sample_stats",
    "log_likelihood",
    "observed_data",
    "constant_data",
)


def sample_tree(
    sets: DataSets,
    f: FloatArray,
    log_weight: FloatArray,
    rng: np.random.Generator,
    attrs: dict[str, Any],
    numbers: IntArray | None = None,
) -> DataTree:
    """Draws f at the data, shape (chain, draw, q), and what follows from them.

    `numbers` are what rows of X are called, where they are not all. With several data sets the
    names of variables and their dimensions end in that of the set.
    """
    groups: dict[str, dict[str, Any]] = {name: {} for name in DRAWN_GROUPS}
    groups["sample_stats"]["log_weight"] = log_weight
    dims: dict[str, list[str]] = {}
    one_each: dict[str, list[str]] = {}  # of log likelihoods
    coords: dict[str, Any] = {"feature": np.arange(sets[0].X.shape[1])}
    start = 0
    for data in sets:
        likelihood, y, size = data.likelihood, data.y, data.values.size
        own = by_function(f[..., start : start + size], data)
        start += size
        X_name, f_name, y_name = (data.named(x) for x in ("X", "f", "y"))
        row = data.named("obs_id")
        groups["posterior"][f_name] = own
        groups["constant_data"][X_name] = data.X
        dims[f_name] = [row] if own.ndim == 3 else [row, likelihood.function_dim]
        dims[X_name] = [row, "feature"]
        coords[row] = np.arange(data.X.shape[0]) if numbers is None else numbers
        if not likelihood.has_data:
            continue
        log_likelihood = likelihood.log_likelihood(y, own)
        replicated = likelihood.replicate(y, own, log_likelihood, rng)
        if replicated is not None:
            groups["posterior_predictive"][y_name] = replicated
        observed = data.named(likelihood.y_dim)
        if data.weights is not None:
            groups["constant_data"][data.named("weights")] = data.weights
            dims[data.named("weights")] = [observed]
            log_likelihood = data.weights * log_likelihood
        groups["log_likelihood"][y_name] = log_likelihood
        inner = [data.named(dim) for dim in likelihood.y_inner_dims]
        for name, values in likelihood.observed(y).items():
            groups["observed_data"][data.named(name)] = values
            dims[data.named(name)] = [observed, *inner]
        dims[y_name], one_each[y_name] = [observed, *inner], [observed]
        if observed not in coords:
            coords[observed] = np.arange(log_likelihood.shape[-1])
        coords |= own_coords(data)
    present = {name: group for name, group in groups.items() if group}
    apart = {"log_likelihood": one_each} if one_each else {}
    return as_datatree(present, dims=dims, coords=coords, attrs=attrs, dims_of=apart)


def coordinates_tree(
    sets: DataSets, coordinates: FloatArray, log_weight: FloatArray, attrs: dict[str, Any]
) -> DataTree:
    """Draws of coordinates, shape (chain, draw, r), in place of f at many rows, and the data."""
    groups: dict[str, dict[str, Any]] = {
        "posterior": {"coordinates": coordinates},
        "sample_stats": {"log_weight": log_weight},
        "observed_data": {},
        "constant_data": {},
    }
    dims: dict[str, list[str]] = {"coordinates": ["coordinate"]}
    coords: dict[str, Any] = {
        "coordinate": np.arange(coordinates.shape[-1]),
        "feature": np.arange(sets[0].X.shape[1]),
    }
    for data in sets:
        row, observed = data.named("obs_id"), data.named(data.likelihood.y_dim)
        groups["constant_data"][data.named("X")] = data.X
        dims[data.named("X")] = [row, "feature"]
        coords[row] = np.arange(data.X.shape[0])
        if data.weights is not None:
            groups["constant_data"][data.named("weights")] = data.weights
            dims[data.named("weights")] = [observed]
        for name, values in data.likelihood.observed(data.y).items():
            groups["observed_data"][data.named(name)] = values
            inner = [data.named(dim) for dim in data.likelihood.y_inner_dims]
            dims[data.named(name)] = [observed, *inner]
            coords.setdefault(observed, np.arange(len(values)))
        coords |= own_coords(data)
    return as_datatree(groups, dims=dims, coords=coords, attrs=attrs)


def predictions_tree(
    sets: DataSets,
    X: FloatArray,
    marginals: LatentMarginals,
    f: FloatArray | None,
    probs: FloatArray,
    rng: np.random.Generator,
    attrs: dict[str, Any],
) -> DataTree:
    """Summaries at t new points and, where given, draws f of shape (chain, draw, t K)."""
    k, t = n_functions(sets), X.shape[0]
    widest = next(data for data in sets if data.values.n_functions == k)
    point = ["pred_id"] if k == 1 else ["pred_id", widest.likelihood.function_dim]
    shape = (t,) if k == 1 else (t, k)
    names = ("f_mean", "f_sd", "f_skewness")
    summary = dict(zip(names, (x.reshape(shape) for x in marginals.moments), strict=True))
    errors = (x.reshape(shape) for x in marginals.moment_errors)
    summary |= {f"{name}_se": x for name, x in zip(names, errors, strict=True)}
    dims = {"f": point, "X": ["pred_id", "feature"], **dict.fromkeys(summary, point)}
    if probs.size:
        quantiles = marginals.quantile(probs)
        for name, x in (("", quantiles), ("_se", marginals.quantile_errors(quantiles))):
            summary[f"f_quantile{name}"] = x.reshape(probs.size, *shape)
            dims[f"f_quantile{name}"] = ["quantile", *point]
    coords: dict[str, Any] = {
        "pred_id": np.arange(t),
        "pred_id_other": np.arange(t),
        "quantile": probs,
        "feature": np.arange(X.shape[1]),
    }
    groups: dict[str, dict[str, Any]] = {}
    if f is not None:
        f = f.reshape(*f.shape[:2], *shape)
        groups["predictions"] = {"f": f}
    for data in sets:
        likelihood, own_k = data.likelihood, data.values.n_functions
        mixture = marginals.first_functions(own_k)
        found = dict(likelihood.predictive_summary(mixture))
        if f is not None:
            drawn = f if own_k == k else f[..., 0] if own_k == 1 else f[..., :own_k]
            found |= likelihood.joint_summary(drawn, mixture)
            draws = likelihood.predictive_draws(drawn, rng)
            groups["predictions"] |= {data.named(name): x for name, x in draws.items()}
        else:
            draws = {}
        summary |= {data.named(name): x for name, x in found.items()}
        if probs.size:
            for name, x in likelihood.predictive_quantiles(mixture, probs).items():
                summary[data.named(name)] = x
                dims[data.named(name)] = ["quantile", "pred_id"]
        for name in (*found, *draws):
            further = likelihood.predicted_dims.get(name.removesuffix("_se"), ())
            dims[data.named(name)] = ["pred_id", *(own_dim(data, dim) for dim in further)]
        coords |= own_coords(data)
    return as_datatree(
        {**groups, "predictions_summary": summary, "predictions_constant_data": {"X": X}},
        dims=dims,
        coords=coords,
        attrs=attrs,
    )


def by_function(f: FloatArray, data: DataSet) -> FloatArray:
    """Values of a data set with the functions in a dimension of their own, where it has several."""
    k = data.values.n_functions
    return f if k == 1 else f.reshape(*f.shape[:-1], data.X.shape[0], k)


def own_dim(data: DataSet, dim: str) -> str:
    """What a dimension is called: functions are the same for all the data, categories are not."""
    shared = (data.likelihood.function_dim, "pred_id_other")
    return dim if dim in shared else data.named(dim)


def own_coords(data: DataSet) -> dict[str, Any]:
    """Coordinates of the dimensions that only its likelihood has."""
    coords = data.likelihood.coords(data.y)
    return {own_dim(data, dim): values for dim, values in coords.items()}
