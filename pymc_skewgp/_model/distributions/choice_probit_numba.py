"""`ChoiceProbit` and `MultinomialProbit` draws for PyTensor's numba backend."""

from typing import Any

from pytensor.link.numba.dispatch.basic import direct_cast, numba_njit
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify

from pymc_skewgp._model.distributions.choice_probit import ChoiceProbitRV


@numba_core_rv_funcify.register(ChoiceProbitRV)
def _numba_choice_probit(op: ChoiceProbitRV, node: Any) -> Any:
    dtype = node.outputs[1].type.numpy_dtype

    # The same stream as `rng_fn`: numba's generator is NumPy's, one normal for each alternative.
    @numba_njit
    def random(rng: Any, eta: Any, sigma: Any) -> Any:
        best, greatest = 0, eta[0] + sigma * rng.standard_normal()
        for j in range(1, eta.shape[0]):
            v = eta[j] + sigma * rng.standard_normal()
            if v > greatest:
                best, greatest = j, v
        return direct_cast(best, dtype)

    return random, 1
