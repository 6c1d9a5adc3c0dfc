"""`PreferenceProbit` draws for PyTensor's numba backend."""

from typing import Any

from pytensor.link.numba.dispatch.basic import direct_cast, numba_njit
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify

from pymc_skewgp._model.distributions.preference_probit import PreferenceProbitRV


@numba_core_rv_funcify.register(PreferenceProbitRV)
def _numba_preference_probit(op: PreferenceProbitRV, node: Any) -> Any:
    dtype = node.outputs[1].type.numpy_dtype

    # The same stream as `rng_fn`: numba's generator is NumPy's, one normal for each element.
    @numba_njit
    def random(rng: Any, difference: Any, noise: Any, threshold: Any) -> Any:
        v = difference + noise * rng.standard_normal()
        sign = 0
        if v > threshold:
            sign = 1
        elif v < -threshold:
            sign = -1
        return direct_cast(sign, dtype)

    return random, 1
