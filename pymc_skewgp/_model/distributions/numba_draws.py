"""Draws of this package's variables for PyTensor's numba backend."""

from typing import Any

from pytensor.graph.basic import Apply
from pytensor.link.numba.dispatch import basic

from pymc_skewgp._model.distributions.unified_skew_normal import ObjectModeDraws
from pymc_skewgp._model.ops.numba_dispatch import in_python


@basic.register_funcify_and_cache_key(ObjectModeDraws)
def _numba_object_mode_draws(op: ObjectModeDraws, node: Apply, **kwargs: Any) -> tuple[Any, None]:
    def draw(*inputs: Any) -> tuple[Any, Any]:
        storage: list[list[Any]] = [[None], [None]]
        op.perform(node, inputs, storage)
        return storage[0][0], storage[1][0]

    return in_python(node, draw), None  # holds a Python function: not for the cache on disk
