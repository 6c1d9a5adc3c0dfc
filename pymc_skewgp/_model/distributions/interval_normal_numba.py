"""`IntervalNormal` draws for PyTensor's numba backend."""

from typing import Any

import numpy as np
from pytensor.link.numba.dispatch.basic import direct_cast, numba_njit
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify

from pymc_skewgp._model.distributions.interval_normal import IntervalNormalRV


@numba_core_rv_funcify.register(IntervalNormalRV)
def _numba_interval_normal(op: IntervalNormalRV, node: Any) -> Any:
    dtype = node.outputs[1].type.numpy_dtype

    # The same stream as `rng_fn`: numba's generator is NumPy's, one normal for each element.
    @numba_njit
    def random(rng: Any, mu: Any, sigma: Any, lower: Any, upper: Any) -> Any:
        v = mu + sigma * rng.standard_normal()
        if v > lower and v < upper:
            if np.isfinite(lower) and np.isfinite(upper):
                v = 0.5 * (lower + upper)
            elif np.isfinite(lower):
                v = lower
            elif np.isfinite(upper):
                v = upper
            else:
                v = 0.0
        return direct_cast(v, dtype)

    return random, 1
