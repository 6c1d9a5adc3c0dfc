"""`SkewGP.sample_latent`: which draws are asked for, and of what."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from pytensor.graph.basic import Variable
from xarray import DataTree

from pymc_skewgp._model.gp.continued_draws import continue_latent
from pymc_skewgp._model.gp.latent_draws import Labelled, draw_latent
from pymc_skewgp._model.gp.process import as_input_graph
from pymc_skewgp._model.gp.trace import has_draws
from pymc_skewgp._model.gp.variables import FunctionAt
from pymc_skewgp._observations.arguments import as_inputs, as_labels


class Latent(NamedTuple):
    """What the model of a SkewGP has, and what the caller gives.

    Attributes
    ----------
    known : FunctionAt or None
        The latent function that `prior` made.
    labelled : tuple or None
        Inputs and labels of `marginal_likelihood`.
    Xnew, X, y : array_like or None
    name : str or None
    """

    known: FunctionAt | None
    labelled: tuple[Any, Any] | None
    Xnew: ArrayLike | None
    X: ArrayLike | None
    y: ArrayLike | None
    name: str | None


def sample_latent(
    gp: Any,
    idata: DataTree,
    wanted: Latent,
    *,
    n_candidates: int,
    rng: np.random.Generator,
    progressbar: bool,
) -> DataTree:
    """Continue draws of f that the trace has, or draw f given labels."""
    known, labelled, Xnew, X, y, name = wanted
    if (X is None) != (y is None):
        raise ValueError("give both X and y, or neither (those of marginal_likelihood).")
    new = None
    if Xnew is not None:
        new = as_input_graph("Xnew", as_inputs("Xnew", Xnew), gp.n_columns)
    how: dict[str, Any] = {"rng": rng, "progressbar": progressbar}
    if y is None and known is not None and has_draws(idata, known.f.name):
        if new is None:
            raise ValueError(
                f"idata.posterior has {known.f.name!r} at the inputs of prior already: give Xnew, "
                "the inputs at which it is wanted."
            )
        return continue_latent(gp, idata, known, new, name=name or known.f.name, **how)
    if X is None or y is None:
        if labelled is None:
            raise ValueError(_nothing_known(known))
        X, y = (v.eval() if isinstance(v, Variable) else v for v in labelled)
    inputs = as_input_graph("X", as_inputs("X", X), gp.n_columns)
    data = Labelled(inputs, as_labels(y, inputs.shape[0]), new)
    return draw_latent(gp, idata, data, name=name or "f", n_candidates=n_candidates, **how)


def _nothing_known(known: FunctionAt | None) -> str:
    if known is None:
        return (
            "sample_latent needs a latent function or labels: call prior(name, X) or "
            "marginal_likelihood(name, X, y) in the model that idata comes from, or pass X and y."
        )
    return (
        f"idata.posterior has no variable {known.f.name!r}, the latent function that prior made: "
        "give the idata of that model, or X and y for labels under a probit likelihood."
    )
