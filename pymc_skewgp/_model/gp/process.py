"""A SkewGP at given inputs: its joint covariance as a graph, and what it may be built from."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import graph_inputs

from pymc_skewgp._errors import no_warnings
from pymc_skewgp._gaussian.linalg import cholesky
from pymc_skewgp._model.gp.functions import compile_at
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
    cov_func: Any, pseudo_points: Any | None, blocks: list[Any], jitter: float
) -> Any:
    """Covariance of f at the pseudo-points and the blocks of inputs, in one evaluation.

    One evaluation, because a kernel may be more than a function of two inputs: white noise at
    equal inputs is independent between rows, and 0 between two matrices of inputs. So each block
    has what the kernel gives for it alone, and between two of them nothing is shared but k(X, Xs).
    """
    parts = blocks if pseudo_points is None else [pseudo_points, *blocks]
    points = parts[0] if len(parts) == 1 else pt.concatenate(parts, axis=0)
    cov = cov_func(points)
    return cov + jitter * pt.eye(cov.shape[0]) if jitter else cov


def process_at(gp: Any, blocks: list[Any], jitter: float, n_functions: int = 1) -> SunParameters:
    """The unified skew-normal marginal of a SkewGP at the blocks of inputs together.

    Of several functions that are independent of each other, where `n_functions` is more than 1:
    their values at a row of inputs one after the other.
    """
    jitter = as_positive("jitter", jitter, or_zero=True)
    cov = joint_covariance(gp.cov_func, gp.pseudo_points, blocks, jitter)
    mean = mean_at(gp.mean_func, blocks)
    _check_constants(gp, mean, cov, jitter)
    if n_functions == 1:
        return sun_of_process(mean, cov, gp.phase, gp.truncation, gp.n_pseudo_points)
    phase, truncation = (
        pt.repeat(pt.as_tensor_variable(x), n_functions) for x in (gp.phase, gp.truncation)
    )
    cov = pt.linalg.kron(cov, pt.eye(n_functions))
    n_latent = gp.n_pseudo_points * n_functions
    return sun_of_process(pt.repeat(mean, n_functions), cov, phase, truncation, n_latent)


def mean_at(mean_func: Any, blocks: list[Any]) -> Any:
    """Mean at the blocks of inputs, one after another."""
    # Linear with one coefficient gives a column, a constant one number.
    means = [pt.as_tensor_variable(mean_func(block)).flatten() for block in blocks]
    sized = [
        pt.broadcast_to(mean, (pt.as_tensor_variable(block).shape[0],))
        for mean, block in zip(means, blocks, strict=True)
    ]
    return sized[0] if len(sized) == 1 else pt.concatenate(sized)


def _check_constants(gp: Any, mean: Any, cov: Any, jitter: float) -> None:
    """Refuse hyperparameters that are constants and invalid: no sampler could mend them."""
    if _is_constant(mean) and not np.isfinite(compile_at([], mean, {})()).all():
        raise ValueError("mean_func gave NaN or infinite values: check its hyperparameters.")
    if not _is_constant(cov):
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


def _is_constant(graph: Any) -> bool:
    return all(isinstance(node, Constant) for node in graph_inputs([graph]))
