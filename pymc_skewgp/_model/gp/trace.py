"""Draws of a model's variables, as ``pm.sample`` returns them, and functions of them."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors
from rich.progress import track
from xarray import Dataset, DataTree

from pymc_skewgp._gaussian.short_path import short_path
from pymc_skewgp._model.gp.functions import hyperparameters
from pymc_skewgp._model.ops.known_functions import plain_function
from pymc_skewgp._validation import FloatArray

_OWN_NAMES = frozenset(("p", "y", "X", "obs_id", "pred_id", "feature", "chain", "draw"))


def posterior_draws(idata: Any) -> Dataset:
    """The group ``posterior``, with the dimensions chain and draw."""
    if not isinstance(idata, DataTree):
        raise TypeError(f"idata must be a DataTree, got {type(idata).__name__}.")
    if "posterior" not in idata.children:
        raise ValueError(f"idata has no group 'posterior'; found {sorted(idata.children)}.")
    trace = idata["posterior"].dataset
    if not {"chain", "draw"} <= set(trace.dims):
        raise ValueError(
            f"idata.posterior must have dimensions chain and draw, found {sorted(trace.dims)}: "
            "select single ones with lists, as in idata.isel(chain=[0])."
        )
    return trace


def has_draws(idata: Any, name: str) -> bool:
    """Whether the group ``posterior`` has the variable; also False for what is no such tree."""
    groups = idata.children if isinstance(idata, DataTree) else {}
    return "posterior" in groups and name in idata["posterior"].data_vars


@contextmanager
def data_as_sampled(idata: Any, graphs: Sequence[Any]) -> Iterator[None]:
    """Values of ``pm.Data`` that graphs depend on, as they were when `idata` was drawn.

    They are stored beside the draws; ``pm.set_data`` may have changed them since.
    """
    groups = idata.children if isinstance(idata, DataTree) else {}
    stored = groups["constant_data"].dataset if "constant_data" in groups else {}
    with ExitStack() as restored:
        for x in {v for v in ancestors(graphs) if isinstance(v, SharedVariable)}:
            if x.name in stored and stored[x.name].ndim == x.type.ndim:
                restored.callback(x.set_value, x.get_value())
                x.set_value(stored[x.name].to_numpy().astype(x.type.dtype))
        yield


def refuse_name(name: str) -> None:
    """Refuse a name for the latent function that other variables of the result have."""
    if name in _OWN_NAMES:
        raise ValueError(f"{name!r} is the name of another variable: choose another name.")


def values_of(trace: Dataset, name: str) -> FloatArray:
    """Draws of a variable with chain and draw first."""
    return np.asarray(trace[name].transpose("chain", "draw", ...).to_numpy())


class DrawFunction:
    """A function of what each draw of a trace holds.

    Parameters
    ----------
    trace : Dataset
        With chain and draw.
    outputs : list of TensorVariable
        What to compute, of random variables that `trace` has.
    further : dict, optional
        Other inputs of `outputs`, and their values for each draw, (chain, draw, ...).
    """

    def __init__(
        self, trace: Dataset, outputs: list[Any], further: dict[Any, FloatArray] | None = None
    ) -> None:
        further = further or {}
        known = set(map(str, trace.data_vars))
        needed = hyperparameters(outputs, known, list(further), "idata.posterior")
        inputs = [node.type() for node in needed]
        given = dict(zip(needed, inputs, strict=True))
        self._function = plain_function([*inputs, *further], outputs, given)
        self._values = [values_of(trace, node.name) for node in needed] + list(further.values())
        self.shape = (trace.sizes["chain"], trace.sizes["draw"])

    def each(
        self, description: str, progressbar: bool, *, along_path: bool = False
    ) -> Iterator[tuple[Any, list[Any]]]:
        """Index and outputs of each draw; `along_path` in an order in which neighbours follow."""
        indices = list(np.ndindex(*self.shape))
        if along_path and self._values:
            flat = [value.reshape(len(indices), -1) for value in self._values]
            indices = [indices[i] for i in short_path(np.concatenate(flat, axis=1))]
        for index in track(indices, description, disable=not progressbar):
            yield index, self._function(*(value[index] for value in self._values))
