"""Draws of this package's variables for PyTensor's numba backend."""

from typing import Any

import numba
import numpy as np
from pytensor.graph.basic import Apply
from pytensor.link.numba.dispatch.basic import (
    direct_cast,
    get_numba_type,
    numba_njit,
    register_funcify_and_cache_key,
)
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify

from pymc_skewgp._model.distributions.probit import (
    BernoulliProbitRV,
    ChoiceProbitRV,
    IntervalNormalRV,
    PreferenceProbitRV,
)
from pymc_skewgp._model.distributions.unified_skew_normal import ObjectModeDraws


@register_funcify_and_cache_key(ObjectModeDraws)
def _numba_object_mode_draws(op: ObjectModeDraws, node: Apply, **kwargs: Any) -> tuple[Any, None]:
    result_type = numba.types.Tuple([get_numba_type(output.type) for output in node.outputs])

    def in_python(inputs: tuple[Any, ...]) -> tuple[Any, Any]:
        storage: list[list[Any]] = [[None], [None]]
        op.perform(node, inputs, storage)
        return storage[0][0], storage[1][0]

    @numba_njit
    def draw(*inputs: Any) -> Any:
        with numba.objmode(result=result_type):
            result = in_python(inputs)
        return result

    return draw, None  # holds a Python function: not for the cache on disk


# `IntervalNormal` draws for PyTensor's numba backend.


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


# `BernoulliProbit` draws for PyTensor's numba backend.


@numba_core_rv_funcify.register(BernoulliProbitRV)
def _numba_bernoulli_probit(op: BernoulliProbitRV, node: Any) -> Any:
    dtype = node.outputs[1].type.numpy_dtype

    # The same stream as `rng_fn`: numba's generator is NumPy's, one normal for each element.
    @numba_njit
    def random(rng: Any, eta: Any) -> Any:
        return direct_cast(1 if rng.standard_normal() > -eta else 0, dtype)

    return random, 1


# `PreferenceProbit` draws for PyTensor's numba backend.


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


# `ChoiceProbit` and `MultinomialProbit` draws for PyTensor's numba backend.


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
