"""What was made of a model, kept with the model as long as that stays as it is."""

import pickle
import threading
from collections.abc import Callable, Hashable
from typing import Any

import pymc as pm
from pytensor import config
from pytensor.graph.traversal import graph_inputs

# Where it is in the model: it goes with the model, of which it has references.
_NAME = "_pymc_skewgp_kept"


class _Kept:
    """By key, of a model in one state; a copy of the model, or a pickled one, has none of it."""

    def __init__(self, state: "_State | None" = None) -> None:
        self.state = state
        self.found: dict[Hashable, Any] = {}

    def __reduce__(self) -> Any:
        return _Kept, ()


class _State:
    """A model's variables, coordinates and data, and the thread: compiled functions are its own.

    Variables are the same where they are the same objects, for a graph does not change; data where
    their values are.
    """

    def __init__(self, model: pm.Model) -> None:
        known = (
            dict(model.named_vars),
            model.rvs_to_values,
            model.rvs_to_transforms,
            model.rvs_to_initial_values,
            model.coords,
            model.named_vars_to_dims,
        )
        roles = model.free_RVs, model.observed_RVs, model.potentials, model.deterministics
        self._objects = [x for pairs in known for pair in pairs.items() for x in pair]
        self._objects += [x for group in roles for x in (*group, None)]
        graphs = [*model.named_vars.values(), *model.value_vars, *model.dim_lengths.values()]
        data = (_data_of(x) for x in graph_inputs(graphs))
        arrays = (hash(pickle.dumps(x)) for x in data if hasattr(x, "dtype"))
        self._values = config.floatX, threading.get_ident(), *arrays

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _State) or self._values != other._values:
            return False
        mine, others = self._objects, other._objects
        return len(mine) == len(others) and all(
            x is y or (isinstance(x, str) and x == y) for x, y in zip(mine, others, strict=True)
        )

    __hash__ = None  # type: ignore[assignment]


def _data_of(x: Any) -> Any:
    """The value of a constant or a shared variable."""
    return x.get_value(borrow=True) if hasattr(x, "get_value") else getattr(x, "data", None)


def kept_with[T](model: pm.Model, key: Hashable, make: Callable[[], T]) -> T:
    """Made once while the model stays as it is.

    Parameters
    ----------
    model : pymc.Model
    key : hashable
        What of several things.
    make : callable
    """
    state = _State(model)
    kept = vars(model).get(_NAME)
    if kept is None or kept.state != state:
        kept = _Kept(state)
        vars(model)[_NAME] = kept
    if key not in kept.found:
        kept.found[key] = make()
    found: T = kept.found[key]
    return found
