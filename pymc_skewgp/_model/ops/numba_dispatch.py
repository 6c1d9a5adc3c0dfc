"""Ops of this package for PyTensor's numba backend."""

from functools import partial
from typing import Any

import numba
import numpy as np
from pytensor.graph.basic import Apply
from pytensor.link.numba.dispatch import basic

from pymc_skewgp._gaussian.compiled.ep import rectangle_by_ep
from pymc_skewgp._model.ops import densities
from pymc_skewgp._model.ops.log_evidence import LogEvidence, log_evidence
from pymc_skewgp._validation import FloatArray

# Raise it with every change of the function that numba compiles: compiled ones lie on disk.
_CACHE_VERSION = 15


def in_python(node: Apply, evaluate: Any) -> Any:
    """A call of NumPy and LAPACK, in object mode.

    Numba's own fallback would warn of that, and keep whole models that hold the Op out of the cache
    on disk.
    """
    result_type = numba.types.Tuple([basic.get_numba_type(output.type) for output in node.outputs])

    @basic.numba_njit
    def value_with_derivatives(*inputs):  # type: ignore[no-untyped-def]
        with numba.objmode(result=result_type):
            result = evaluate(*inputs)
        return result

    return value_with_derivatives


@basic.register_funcify_default_op_cache_key(densities.MvnLogProb)
@basic.register_funcify_default_op_cache_key(densities.LogDensityAndOrthant)
def _numba_density(op: Any, node: Apply, **kwargs: Any) -> Any:
    return in_python(node, op.evaluate), _CACHE_VERSION


@basic.register_funcify_and_cache_key(densities.CARLogDet)
def _numba_log_det(op: densities.CARLogDet, node: Apply, **kwargs: Any) -> tuple[Any, str | None]:
    return in_python(node, op.evaluate), None  # W is data: not for the cache on disk


@basic.register_funcify_and_cache_key(LogEvidence)
def _numba_log_evidence(op: LogEvidence, node: Apply, **kwargs: Any) -> tuple[Any, str | None]:
    # Sites are the data and Python functions: not for the cache on disk.
    if op.kinds is not None:
        return in_python(node, op.evaluate), None
    key = basic.default_hash_key_from_props(op, cache_version=_CACHE_VERSION)
    if op.method == "ep" and not op.shared_noise and not op.repeats:
        return _by_ep(op.n_draws), key
    # Compiled: for chains, which ask for it thousands of times.
    return in_python(node, partial(log_evidence, op.method, op.n_draws, compiled=True)), key


@basic.register_funcify_and_cache_key(densities.ObjectModeDraws)
def _numba_object_mode_draws(
    op: densities.ObjectModeDraws, node: Apply, **kwargs: Any
) -> tuple[Any, None]:
    def draw(*inputs: Any) -> tuple[Any, Any]:
        storage: list[list[Any]] = [[None], [None]]
        op.perform(node, inputs, storage)
        return storage[0][0], storage[1][0]

    return in_python(node, draw), None  # holds a Python function: not for the cache on disk


def _by_ep(n_draws: int) -> Any:
    """Without Python's lock where all rows are intervals of a Gaussian: for chains in threads."""
    log_prob = rectangle_by_ep()

    @basic.numba_njit
    def evidence(*inputs):  # type: ignore[no-untyped-def]
        lower, upper, value, noise, mu, scale = inputs[:6]
        n, s = mu.size, inputs[7].size
        by_limits, limits = np.zeros((2, n)), np.empty((2, n))
        by_value, by_noise, by_mu = np.zeros(n), np.empty(n), np.empty(n)
        by_cov, by_cross = np.empty((n, n)), np.zeros((n, s))
        by_truncation, by_latent = np.zeros(s), np.zeros((s, s))
        simple = s == 0
        for i in range(n):
            simple &= np.isnan(value[i])
            limits[0, i], limits[1, i] = lower[i] - mu[i], upper[i] - mu[i]
        log_p = np.nan
        if simple:
            cov, own = np.ascontiguousarray(scale), np.ascontiguousarray(noise)
            arrays = limits.ctypes, by_cov.ctypes, by_limits.ctypes
            log_p = log_prob(n, cov.ctypes, own.ctypes, *arrays)
        by_lower, by_upper = by_limits[0], by_limits[1]
        if np.isnan(log_p):
            rows = (by_lower, by_upper, by_value, by_noise, by_mu)
            outputs = (*rows, by_cov, by_cross, by_truncation, by_latent)
            with numba.objmode(log_p="float64"):
                log_p = _derivatives_into(n_draws, inputs, outputs)
        else:
            for i in range(n):
                by_noise[i] = by_cov[i, i]
                by_mu[i] = -by_lower[i] - by_upper[i]
        found = (np.asarray(log_p), by_lower, by_upper, by_value, by_noise, by_mu)
        return (*found, by_cov, by_cross, by_truncation, by_latent)

    return evidence


def _derivatives_into(
    n_draws: int, inputs: tuple[FloatArray, ...], outputs: tuple[FloatArray, ...]
) -> float:
    """`log_evidence` by EP, the derivatives written into `outputs`."""
    log_p, *derivatives = log_evidence("ep", n_draws, *inputs)
    for output, derivative in zip(outputs, derivatives, strict=True):
        output[...] = derivative
    return float(log_p)
