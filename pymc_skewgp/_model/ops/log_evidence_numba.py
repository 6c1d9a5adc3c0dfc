"""`LogEvidence` for PyTensor's numba backend."""

from typing import Any

import numba
from pytensor.graph.basic import Apply
from pytensor.link.numba.dispatch.basic import (
    get_numba_type,
    numba_njit,
    register_funcify_default_op_cache_key,
)

from pymc_skewgp._model.ops.log_evidence import LogEvidence, log_evidence

# Raise it with every change of the function that numba compiles: compiled ones lie on disk.
_CACHE_VERSION = 4


@register_funcify_default_op_cache_key(LogEvidence)
def _numba_log_evidence(op: LogEvidence, node: Apply, **kwargs: Any) -> Any:
    method, n_draws = op.method, op.n_draws
    result_type = numba.types.Tuple([get_numba_type(output.type) for output in node.outputs])

    @numba_njit
    def evidence(*inputs):  # type: ignore[no-untyped-def]
        with numba.objmode(result=result_type):
            result = log_evidence(method, n_draws, *inputs)
        return result

    return evidence, _CACHE_VERSION
