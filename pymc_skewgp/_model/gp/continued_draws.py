"""The latent function at new inputs for each draw of it in a trace."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from xarray import DataTree

from pymc_skewgp._errors import no_warnings
from pymc_skewgp._model.gp.trace import DrawFunction, posterior_draws, refuse_name, values_of
from pymc_skewgp._model.gp.variables import FunctionAt, process_given
from pymc_skewgp._posterior.datatree import as_datatree
from pymc_skewgp._sun.draws import independent_sun_draws
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray


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
