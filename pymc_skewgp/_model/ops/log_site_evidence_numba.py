"""`LogSiteEvidence` for PyTensor's numba backend."""

from typing import Any

import numba
from pytensor.graph.basic import Apply
from pytensor.link.numba.dispatch.basic import (
    get_numba_type,
    numba_njit,
    register_funcify_and_cache_key,
)

from pymc_skewgp._model.ops.log_site_evidence import LogSiteEvidence


@register_funcify_and_cache_key(LogSiteEvidence)
def _numba_log_site_evidence(op: LogSiteEvidence, node: Apply, **kwargs: Any) -> tuple[Any, None]:
    result_type = numba.types.Tuple([get_numba_type(output.type) for output in node.outputs])
    evaluate = op.evaluate

    @numba_njit
    def evidence(*inputs: Any) -> Any:
        with numba.objmode(result=result_type):
            result = evaluate(*inputs)
        return result

    return evidence, None  # holds the data and Python functions: not for the cache on disk
