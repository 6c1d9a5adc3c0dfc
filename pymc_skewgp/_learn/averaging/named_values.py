"""Hyperparameters at points by name, on their own scale, as a data set."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from xarray import Dataset

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._learn.point import Point
from pymc_skewgp._learn.searched import Searched


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
    from arviz_base import from_dict  # heavy to import

    if not values:
        return Dataset()
    known = {name: dims for name, dims in model.named_vars_to_dims.items() if name in values}
    dims = {name: [str(dim) for dim in dims] for name, dims in known.items()}
    used = {dim for names in dims.values() for dim in names}
    coords = {
        dim: list(labels)
        for dim, labels in model.coords.items()
        if labels is not None and dim in used
    }
    tree = from_dict({"posterior": dict(values)}, dims=dims, coords=coords, check_conventions=False)
    found: Dataset = tree["posterior"].to_dataset()
    return found
