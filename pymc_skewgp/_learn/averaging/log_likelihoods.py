"""Log likelihood of each observation at the draws of a model, many draws in one call."""

import warnings
from typing import Any

import pymc as pm
from pymc.backends.arviz import coords_and_dims_for_inferencedata
from pymc.model.transform.conditioning import remove_value_transforms
from xarray import Dataset

from pymc_skewgp._learn.averaging.at_draws import at_draws
from pymc_skewgp._learn.averaging.named_values import without_initial_values
from pymc_skewgp._model.gp.trace import values_of

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
    shape = (trace.sizes["chain"], trace.sizes["draw"])
    given = {
        value: values_of(trace, rv.name).reshape(-1, *trace[rv.name].shape[2:])
        for rv, value in zip(drawn, values, strict=True)
    }
    densities = at_draws(plain.logp(vars=observed, sum=False), given)
    found = {
        rv.name: density.reshape(*shape, *density.shape[1:])
        for rv, density in zip(observed, densities, strict=True)
    }
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
