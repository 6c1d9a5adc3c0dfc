"""`SkewGP.sample_latent`: which draws are asked for, and of what."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from xarray import DataTree

from pymc_skewgp._errors import no_warnings
from pymc_skewgp._model.gp.latent_draws import (
    DrawFunction,
    data_as_sampled,
    draw_latent,
    has_draws,
    posterior_draws,
    refuse_name,
    values_of,
)
from pymc_skewgp._model.gp.process import as_input_graph
from pymc_skewgp._model.gp.variables import DataOfModel, FunctionAt, data_of_model, process_given
from pymc_skewgp._observations.likelihood import as_inputs
from pymc_skewgp._posterior.output import as_datatree
from pymc_skewgp._sun.parameters import SunParameters, independent_sun_draws
from pymc_skewgp._validation import FloatArray

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
    sun = process_given(gp, known, f, Xnew, known.jitter)
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
        new = as_input_graph("Xnew", as_inputs("Xnew", wanted.Xnew), gp.n_columns)
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
