"""`BernoulliProbit` draws for PyTensor's numba backend."""

from typing import Any

from pytensor.link.numba.dispatch.basic import direct_cast, numba_njit
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify

from pymc_skewgp._model.distributions.bernoulli_probit import BernoulliProbitRV


@numba_core_rv_funcify.register(BernoulliProbitRV)
def _numba_bernoulli_probit(op: BernoulliProbitRV, node: Any) -> Any:
    dtype = node.outputs[1].type.numpy_dtype

    # The same stream as `rng_fn`: numba's generator is NumPy's, one normal for each element.
    @numba_njit
    def random(rng: Any, eta: Any) -> Any:
        return direct_cast(1 if rng.standard_normal() > -eta else 0, dtype)

    return random, 1
