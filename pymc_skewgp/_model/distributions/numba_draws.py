"""Draws of this package's variables for PyTensor's numba backend."""

from typing import Any

import numba
from pytensor.graph.basic import Apply
from pytensor.link.numba.dispatch import basic

from pymc_skewgp._model.distributions.unified_skew_normal import ObjectModeDraws


@basic.register_funcify_and_cache_key(ObjectModeDraws)
def _numba_object_mode_draws(op: ObjectModeDraws, node: Apply, **kwargs: Any) -> tuple[Any, None]:
    result_type = numba.types.Tuple([basic.get_numba_type(output.type) for output in node.outputs])

    def in_python(inputs: tuple[Any, ...]) -> tuple[Any, Any]:
        storage: list[list[Any]] = [[None], [None]]
        op.perform(node, inputs, storage)
        return storage[0][0], storage[1][0]

    @basic.numba_njit
    def draw(*inputs: Any) -> Any:
        with numba.objmode(result=result_type):
            result = in_python(inputs)
        return result

    return draw, None  # holds a Python function: not for the cache on disk
