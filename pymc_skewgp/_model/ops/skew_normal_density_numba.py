"""`LogDensityAndOrthant` for PyTensor's numba backend."""

from typing import Any

import numba
from pytensor.graph.basic import Apply
from pytensor.link.numba.dispatch.basic import (
    get_numba_type,
    numba_njit,
    register_funcify_default_op_cache_key,
)

from pymc_skewgp._model.ops.skew_normal_density import LogDensityAndOrthant, evaluate

# Raise it with every change of the function that numba compiles: compiled ones lie on disk.
_CACHE_VERSION = 8


@register_funcify_default_op_cache_key(LogDensityAndOrthant)
def _numba_log_density_and_orthant(op: LogDensityAndOrthant, node: Apply, **kwargs: Any) -> Any:
    result_type = numba.types.Tuple([get_numba_type(output.type) for output in node.outputs])

    @numba_njit
    def log_density(offset, scale, cross_cov, limits, latent_cov):  # type: ignore[no-untyped-def]
        with numba.objmode(result=result_type):
            result = evaluate(offset, scale, cross_cov, limits, latent_cov)
        return result

    return log_density, _CACHE_VERSION
