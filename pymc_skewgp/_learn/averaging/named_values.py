"""Hyperparameters at points by name, on their own scale, as a data set."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pytensor.graph.traversal import ancestors
from xarray import Dataset, DataTree

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._learn.point import Point
from pymc_skewgp._learn.searched import Searched
from pymc_skewgp._model.ops.plain_mode import PLAIN


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
        x.name
        for x in model.deterministics
        if x.name not in trace and unknown.isdisjoint(ancestors([x]))
    ]
    if not later:
        return trace
    found: Dataset = pm.compute_deterministics(
        trace.copy(),
        var_names=later,
        extend_dataset=True,
        model=model,
        progressbar=False,
        compile_kwargs={"mode": PLAIN},
    )
    return found


def with_predictions(
    model: pm.Model, trace: Dataset, predicted: Sequence[str], rng: np.random.Generator
) -> Dataset:
    """And free variables that nothing observed depends on, such as masked data: drawn forward."""
    if not predicted:
        return trace
    with without_initial_values(model):
        tree = pm.sample_posterior_predictive(
            DataTree.from_dict({"posterior": trace}),
            model=model,
            var_names=list(predicted),
            random_seed=int(rng.integers(2**31)),
            progressbar=False,
            compile_kwargs={"mode": PLAIN},
        )
    drawn = tree["posterior_predictive"].to_dataset()
    found: Dataset = trace.merge(drawn, combine_attrs="override", compat="override")
    return found


def data_of(model: pm.Model) -> dict[str, Dataset]:
    """Groups of what was observed and of constants, as ``pm.sample`` has them."""
    from pymc.backends.arviz import find_constants, find_observations  # heavy to import

    return _groups(
        model,
        {"observed_data": find_observations(model), "constant_data": find_constants(model)},
    )


def _groups(
    model: pm.Model, groups: Mapping[str, Mapping[str, NDArray[Any]]]
) -> dict[str, Dataset]:
    """With the model's dimensions and coordinates; those that are not empty."""
    from arviz_base import from_dict  # heavy to import

    named = {group: dict(values) for group, values in groups.items() if values}
    if not named:
        return {}
    every = {name for values in named.values() for name in values}
    known = {name: dims for name, dims in model.named_vars_to_dims.items() if name in every}
    dims = {name: [str(dim) for dim in dims] for name, dims in known.items()}
    used = {dim for names in dims.values() for dim in names}
    coords = {
        dim: list(labels)
        for dim, labels in model.coords.items()
        if labels is not None and dim in used
    }
    tree = from_dict(named, dims=dims, coords=coords, check_conventions=False)
    return {group: tree[group].to_dataset() for group in named}
