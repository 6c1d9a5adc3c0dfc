"""Log likelihood of each observation at the draws of a model, many draws in one call."""

import warnings
from typing import Any

import numpy as np
import pymc as pm
from pymc.backends.arviz import coords_and_dims_for_inferencedata
from pymc.model.transform.conditioning import remove_value_transforms
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor import TensorType
from xarray import Dataset, DataTree

from pymc_skewgp._learn.averaging.named_values import without_initial_values
from pymc_skewgp._model.gp.trace import values_of
from pymc_skewgp._model.ops.known_functions import plain_function
from pymc_skewgp._model.ops.plain_mode import PLAIN

# Draws in one call: enough for Python to be a small part of the time, few enough for covariances
# of the observations.
_TOGETHER = 64


def log_likelihoods(model: pm.Model, trace: Dataset) -> Dataset:
    """As `pm.compute_log_likelihood`, which calls a function for every draw."""
    from arviz_base import dict_to_dataset  # heavy to import

    with without_initial_values(model), warnings.catch_warnings():
        # PyMC warns of copies whose GP objects would make variables of the old model: of this one
        # they make none.
        warnings.filterwarnings("ignore", "Detected variables likely created by GP", UserWarning)
        plain = remove_value_transforms(model)
    observed = plain.observed_RVs
    drawn = [rv for rv in plain.free_RVs if rv.name in trace]  # others are predictions
    values = [plain.rvs_to_values[rv] for rv in drawn]
    many = {value: _with_draws(value) for value in values}
    try:
        densities = vectorize_graph(plain.logp(vars=observed, sum=False), many)
    except NotImplementedError:  # sparse arrays, say
        return _draw_by_draw(model, trace)
    function = plain_function(list(many.values()), densities)
    shape = (trace.sizes["chain"], trace.sizes["draw"])
    arrays = []
    for rv, value in zip(drawn, values, strict=True):
        draws = values_of(trace, rv.name).astype(value.dtype, copy=False)
        arrays.append(draws.reshape(-1, *draws.shape[2:]))
    size = int(np.prod(shape))
    blocks = [function(*(x[i : i + _TOGETHER] for x in arrays)) for i in range(0, size, _TOGETHER)]
    found = {}
    for rv, density, parts in zip(observed, densities, zip(*blocks, strict=True), strict=True):
        if set(graph_inputs([density])).isdisjoint(many.values()):
            found[rv.name] = np.broadcast_to(parts[0], (*shape, *parts[0].shape))
            continue
        whole = np.concatenate(parts)
        found[rv.name] = whole.reshape(*shape, *whole.shape[1:])
    coords, dims = coords_and_dims_for_inferencedata(plain)
    where: dict[str, Any] = {"chain": trace.chain, "draw": trace.draw}
    return dict_to_dataset(
        found,
        inference_library=pm,
        dims=dims,
        coords={**coords, **where},
        sample_dims=["chain", "draw"],
        skip_event_dims=True,
    )


def _draw_by_draw(model: pm.Model, trace: Dataset) -> Dataset:
    with without_initial_values(model):
        found: Dataset = pm.compute_log_likelihood(
            DataTree.from_dict({"posterior": trace}),
            extend_inferencedata=False,
            model=model,
            progressbar=False,
            compile_kwargs={"mode": PLAIN},
        )
    return found


def _with_draws(value: Any) -> Any:
    return TensorType(value.dtype, (None, *value.type.shape))(value.name)
