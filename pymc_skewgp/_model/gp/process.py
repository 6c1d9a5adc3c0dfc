"""A SkewGP at given inputs: its joint covariance as a graph, and what it may be built from."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable

from pymc_skewgp._cost import announce_rows
from pymc_skewgp._errors import no_warnings
from pymc_skewgp._gaussian.linalg import cholesky
from pymc_skewgp._model.gp.functions import compile_at
from pymc_skewgp._model.gp.values import (
    ValuesAt,
    between_functions,
    jitter_of_values,
    kernel_of_values,
    mean_of_values,
)
from pymc_skewgp._model.ops.known_functions import is_constant
from pymc_skewgp._model.ops.skew_normal import sun_of_process
from pymc_skewgp._observations.arguments import as_inputs, as_labels, refuse_coincident
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import as_positive

# What a variable of a model takes besides its parameters. PyMC ignores any other name.
_VARIABLE_OPTIONS = frozenset(
    ("dims", "shape", "size", "initval", "rng", "total_size", "transform", "default_transform")
)


def as_input_graph(name: str, value: Any, n_columns: float = np.inf) -> Any:
    """Inputs as a matrix: arrays and the values of ``pm.Data`` are checked now, the rest later."""
    if not isinstance(value, Variable):
        value = as_inputs(name, value)
    elif value.type.ndim != 2:
        raise ValueError(
            f"{name} must be a matrix (n, d), got a tensor with {value.type.ndim} dimension(s)."
        )
    found = shape_now(value)[1]
    if not np.isfinite(n_columns):
        return value
    if found is not None and found != n_columns:
        raise ValueError(
            f"{name} has {found} column(s), but cov_func was built with input_dim={n_columns:g}: "
            "give that many, and choose among them with active_dims."
        )
    if isinstance(value, Variable):  # pm.set_data may change it
        return pt.specify_shape(value, (None, int(n_columns)))
    return value


def as_label_graph(y: Any, X: Any) -> Any:
    """Labels 0 and 1: arrays and the values of ``pm.Data`` are checked now, the rest later."""
    n = shape_now(X)[0]
    if not isinstance(y, Variable):
        return as_labels(y, np.size(y) if n is None else n)
    if y.type.ndim != 1:
        raise ValueError(f"y must be a vector, got a tensor with {y.type.ndim} dimension(s).")
    found = shape_now(y)[0]
    if None not in (found, n) and found != n:
        raise ValueError(f"y must have length {n}, one label for each row of X; got {found}.")
    if isinstance(y, SharedVariable):
        labels = np.unique(y.get_value(borrow=True))
        if not np.isin(labels, (0, 1)).all():
            raise ValueError(
                f"y must hold the labels 0 and 1, found {labels[:5]}: change the values of "
                f"{y.name!r} before they go into pm.Data."
            )
    return y


def shape_now(value: Any) -> tuple[int | None, ...]:
    """Shape of an array, of the present value of ``pm.Data``, or what is known of a graph's."""
    if isinstance(value, SharedVariable):
        return tuple(value.get_value(borrow=True).shape)
    return tuple(value.type.shape if isinstance(value, Variable) else value.shape)


def refuse_unknown_options(options: Mapping[str, Any]) -> None:
    """Raise for what PyMC would ignore: a misspelt or foreign argument."""
    if "n_outputs" in options:
        raise TypeError(
            "unexpected argument(s) n_outputs, of pm.gp.Latent: a SkewGP is one function. Call "
            "prior once for each output, under a name of its own; for correlated outputs take the "
            "kernel times pm.gp.cov.Coregion, with the number of the output in a column of X."
        )
    unknown = sorted(set(options) - _VARIABLE_OPTIONS)
    if unknown:
        raise TypeError(
            f"unexpected argument(s) {', '.join(unknown)}; what is passed on to the variable is "
            f"one of {', '.join(sorted(_VARIABLE_OPTIONS))}."
        )


def refuse_other_than_gp_objects(cov_func: Any, mean_func: Any) -> None:
    """Raise unless both are ``pm.gp`` objects."""
    if not isinstance(cov_func, pm.gp.cov.BaseCovariance):
        raise TypeError(
            f"cov_func must be a pm.gp.cov object, got {type(cov_func).__name__}; a function "
            "of arrays goes to SkewGPPosterior."
        )
    if not isinstance(mean_func, pm.gp.mean.Mean):
        raise TypeError(
            f"mean_func must be a pm.gp.mean object, got {type(mean_func).__name__}; for a "
            "number use pm.gp.mean.Constant."
        )


def joint_covariance(
    gp: Any, parts: Sequence[ValuesAt], jitter: float, coregion: Any | None = None
) -> tuple[Any, Any]:
    """Covariance of one function at the pseudo-points and all inputs, and of all values there."""
    if gp.pseudo_points is not None:
        k = max(part.n_functions for part in parts)
        parts = [ValuesAt(gp.pseudo_points, k), *parts]
    kernel = kernel_of_values(gp.cov_func, parts)
    if jitter:
        kernel = kernel + jitter_of_values(parts, jitter)
    return kernel, between_functions(kernel, parts, coregion)


def process_at(gp: Any, blocks: list[Any], jitter: float) -> SunParameters:
    """The unified skew-normal marginal of a SkewGP at the blocks of inputs together."""
    return process_of_values(gp, [ValuesAt(block) for block in blocks], jitter)


def process_of_values(
    gp: Any, parts: Sequence[ValuesAt], jitter: float, coregion: Any | None = None
) -> SunParameters:
    """The same of values of several functions, or of their derivatives.

    Without `coregion` the functions are independent of each other. Each of them has the signs at
    the pseudo-points.
    """
    jitter = as_positive("jitter", jitter, or_zero=True)
    rows = [shape_now(part.X)[0] for part in parts]
    announce_rows(sum(n for n in rows if n is not None))
    kernel, cov = joint_covariance(gp, parts, jitter, coregion)
    mean = mean_of_values(gp.mean_func, parts)
    _check_constants(gp, mean, kernel, jitter)
    phase, truncation, n_latent = signs_of_functions(gp, max(part.n_functions for part in parts))
    return sun_of_process(mean, cov, phase, truncation, n_latent)


def signs_of_functions(gp: Any, n_functions: int) -> tuple[Any, Any, int]:
    """Phase and truncation of each function at each pseudo-point, and how many these are."""
    if n_functions == 1:
        return gp.phase, gp.truncation, gp.n_pseudo_points
    phase, truncation = (
        pt.repeat(pt.as_tensor_variable(x), n_functions) for x in (gp.phase, gp.truncation)
    )
    return phase, truncation, gp.n_pseudo_points * n_functions


def _check_constants(gp: Any, mean: Any, cov: Any, jitter: float) -> None:
    """Refuse hyperparameters that are constants and invalid: no sampler could mend them."""
    if is_constant(mean) and not np.isfinite(compile_at([], mean, {})()).all():
        raise ValueError("mean_func gave NaN or infinite values: check its hyperparameters.")
    if not is_constant(cov):
        return
    matrix = compile_at([], cov, {})()
    if not np.isfinite(matrix).all():
        raise ValueError(
            "cov_func gave NaN or infinite covariances: check its hyperparameters and the scale of "
            "the inputs."
        )
    s = gp.n_pseudo_points
    if s:
        bare = matrix[:s, :s] - jitter * np.eye(s)
        truncation = gp.truncation
        if isinstance(truncation, Variable):  # may turn out to be anything
            truncation = np.full(s, np.inf)
        phase = np.ones(s) if isinstance(gp.phase, Variable) else gp.phase
        refuse_coincident(bare, phase, truncation)
    with no_warnings():
        cholesky("cov_func at the inputs and pseudo_points", matrix)
