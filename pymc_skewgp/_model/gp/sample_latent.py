"""`SkewGP.sample_latent`: which draws are asked for, and of what."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from xarray import DataTree

from pymc_skewgp._model.gp.continued_draws import continue_latent
from pymc_skewgp._model.gp.latent_draws import draw_latent
from pymc_skewgp._model.gp.marginal_variable import DataOfModel, data_of_model
from pymc_skewgp._model.gp.process import as_input_graph
from pymc_skewgp._model.gp.trace import has_draws
from pymc_skewgp._model.gp.variables import FunctionAt
from pymc_skewgp._observations.arguments import as_inputs

_JITTER = 1e-6  # as `prior` has it


class Latent(NamedTuple):
    """What the model of a SkewGP has, and what the caller gives.

    Attributes
    ----------
    known : FunctionAt or None
        The latent function that `prior` made.
    data : DataOfModel or None
        Those of `marginal_likelihood`.
    Xnew : array_like or None
    X, y, likelihood, coregion
        Data that the caller gives.
    name : str or None
    """

    known: FunctionAt | None
    data: DataOfModel | None
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
    known, name = wanted.known, wanted.name
    several = isinstance(wanted.X, Mapping | list) and wanted.y is None
    if (wanted.X is None) != (wanted.y is None) and not several:
        raise ValueError("give both X and y, or neither (those of marginal_likelihood).")
    new = None
    if wanted.Xnew is not None:
        new = as_input_graph("Xnew", as_inputs("Xnew", wanted.Xnew), gp.n_columns)
    if known is None and wanted.data is None:
        known = _stored_function(idata)
    how: dict[str, Any] = {"rng": rng, "progressbar": progressbar}
    if not wanted.given and known is not None and has_draws(idata, known.f.name):
        if new is None:
            raise ValueError(
                f"idata.posterior has {known.f.name!r} at the inputs of prior already: give Xnew, "
                "the inputs at which it is wanted."
            )
        return continue_latent(gp, idata, known, new, name=name or known.f.name, **how)
    data = wanted.data
    if wanted.given:
        data = data_of_model(gp, wanted.X, wanted.y, wanted.likelihood, wanted.coregion)
    if data is None:
        raise ValueError(_nothing_known(known))
    return draw_latent(gp, idata, data, new, name=name or "f", n_candidates=n_candidates, **how)


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


def _nothing_known(known: FunctionAt | None) -> str:
    if known is None:
        return (
            "sample_latent needs a latent function or data: call prior(name, X) or "
            "marginal_likelihood(name, X, y) in the model that idata comes from, or pass X and y, "
            "with a name= for f that idata.posterior does not have."
        )
    return (
        f"idata.posterior has no variable {known.f.name!r}, the latent function that prior made: "
        "give the idata of that model, or X and y, with their likelihood."
    )
