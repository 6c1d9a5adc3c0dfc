"""The latent functions of a SkewGP at new inputs, for each draw of them in a trace."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytensor.tensor as pt
from xarray import Dataset, DataTree

from pymc_skewgp._errors import no_warnings
from pymc_skewgp._model.gp import latent_draws, process, variables
from pymc_skewgp._model.gp.latent_draws import (
    DrawFunction,
    LatentDraws,
    LatentGivenData,
    Wanted,
    data_as_sampled,
    has_draws,
    latent_tree,
    posterior_draws,
    refuse_name,
    values_of,
)
from pymc_skewgp._model.gp.variables import DataOfModel, FunctionAt
from pymc_skewgp._observations.likelihood import as_inputs
from pymc_skewgp._observations.new_rows import NewRows, RowNumbers, as_new_rows
from pymc_skewgp._sun.parameters import SunParameters, draws_beyond
from pymc_skewgp._validation import FloatArray

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
    columns = int(gp.n_columns) if np.isfinite(gp.n_columns) else None
    process.as_input_graph("Xnew", as_inputs("Xnew", Xnew), gp.n_columns)
    return as_new_rows(Xnew, columns, [x.likelihood for x in kinds], k, own)


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
    with data_as_sampled(idata, [known.f]):
        joint = process.process_at(gp, [known.X, new.X], known.jitter)
        drawn = _drawn(trace, joint, values, wanted)
    nothing = np.zeros(drawn.shape[:2])
    found = LatentDraws(name, drawn, nothing, nothing, new, False, wanted.probs)
    return latent_tree(trace, (), found, wanted.rng)


def continue_with_data(gp: Any, idata: DataTree, data: DataOfModel, wanted: Wanted) -> DataTree:
    """Functions that are drawn at the data, at new inputs, and what likelihoods predict there."""
    new = wanted.new
    assert new is not None
    trace = posterior_draws(idata)
    latent = LatentGivenData(gp, data, None)
    names = [x.named(wanted.name or "f") for x in latent.sets]
    shape = trace.sizes["chain"], trace.sizes["draw"]
    values = np.concatenate([values_of(trace, x).reshape(*shape, -1) for x in names], axis=2)
    kinds = data.known()
    k = max(x.n_functions for x in kinds)
    parts = [*data.values(kinds), process.ValuesAt(new.X, k)]
    coregion = process.as_coregion_graph(data.coregion, k)
    joint = process.process_of_values(gp, parts, _JITTER, coregion)
    drawn = _drawn(trace, joint, values, wanted)
    nothing = np.zeros(shape)
    likelihoods = latent.likelihoods(trace)
    found = LatentDraws("f", drawn, nothing, likelihoods, new, False, wanted.probs)
    return latent_tree(trace, latent.sets, found, wanted.rng)


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


def _drawn(trace: Dataset, joint: Any, values: FloatArray, wanted: Wanted) -> FloatArray:
    """The last values of a process given the first, (chain, draw, n), for each draw."""
    function = DrawFunction(trace, list(joint))
    parts = []
    for index, arrays in function.each_distinct("Drawing f at new inputs"):
        with no_warnings():  # of the jitter that f at one of the data needs
            sun = SunParameters(*arrays)
            parts.append((index, draws_beyond(sun, values[index], wanted.rng)))
    found = np.empty((*values.shape[:2], parts[0][1].shape[1]))
    for index, x in parts:
        found[index] = x
    return found


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
        return latent_draws.draw_latent(gp, idata, data, wanted)


def given_data(gp: Any, X: Any, y: Any, likelihood: Any, coregion: Any) -> DataOfModel | None:
    """Data that were given as arguments; None where none were.

    Raises
    ------
    ValueError
        For one of X and y without the other.
    """
    several = isinstance(X, Mapping | list) and y is None
    if (X is None) != (y is None) and not several:
        raise ValueError("give both X and y, or neither (those of marginal_likelihood).")
    return None if X is None else variables.data_of_model(gp, X, y, likelihood, coregion)
