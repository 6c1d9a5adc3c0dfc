"""`MvnLogProb` for PyTensor's numba backend."""

from typing import Any

import numba
from pytensor.graph.basic import Apply
from pytensor.link.numba.dispatch.basic import (
    get_numba_type,
    numba_njit,
    register_funcify_default_op_cache_key,
)

from pymc_skewgp._model.ops.mvn_logcdf import MvnLogProb, evaluate

# Raise it with every change of the function that numba compiles: compiled ones lie on disk.
_CACHE_VERSION = 8


@register_funcify_default_op_cache_key(MvnLogProb)
def _numba_mvn_log_prob(op: MvnLogProb, node: Apply, **kwargs: Any) -> Any:
    method, n_draws, random_seed = op.method, op.n_draws, op.random_seed
    result_type = numba.types.Tuple([get_numba_type(output.type) for output in node.outputs])

    # The work is NumPy's and LAPACK's, in object mode: numba's own fallback would warn of that,
    # and keep whole models that hold this Op out of the cache on disk.
    @numba_njit
    def mvn_log_prob(lower, upper, cov):  # type: ignore[no-untyped-def]
        with numba.objmode(result=result_type):
            result = evaluate(method, n_draws, random_seed, lower, upper, cov)
        return result

    return mvn_log_prob, _CACHE_VERSION
