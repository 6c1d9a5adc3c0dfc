"""A SkewGP at given inputs: its joint covariance as a graph, and what it may be built from."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_skewgp.inference.arguments import as_inputs
from pymc_skewgp.symbolic.skew_normal import SunGraph, sun_of_process


def as_input_graph(name: str, value: Any, n_columns: float = np.inf) -> Any:
    """Inputs as a matrix: arrays are checked now, graphs (``pm.Data``) when they have values."""
    if isinstance(value, Variable):
        if value.type.ndim != 2:
            raise ValueError(
                f"{name} must be a matrix (n, d), got a tensor with {value.type.ndim} dimension(s)."
            )
        found = value.type.shape[1]
    else:
        value = as_inputs(name, value)
        found = value.shape[1]
    if found is not None and np.isfinite(n_columns) and found != n_columns:
        raise ValueError(
            f"{name} has {found} column(s), but cov_func was built with input_dim={n_columns:g}: "
            "give that many, and choose among them with active_dims."
        )
    return value


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
    equal inputs is independent between rows, and 0 between two matrices of inputs.
    """
    parts = blocks if pseudo_points is None else [pseudo_points, *blocks]
    points = parts[0] if len(parts) == 1 else pt.concatenate(parts, axis=0)
    cov = cov_func(points)
    return cov + jitter * pt.eye(cov.shape[0]) if jitter else cov


def process_at(gp: Any, blocks: list[Any], jitter: float) -> SunGraph:
    """The unified skew-normal marginal of a SkewGP at the blocks of inputs together."""
    cov = joint_covariance(gp.cov_func, gp.pseudo_points, blocks, jitter)
    mean = mean_at(gp.mean_func, blocks)
    return sun_of_process(mean, cov, gp.phase, gp.truncation, gp.n_pseudo_points)


def mean_at(mean_func: Any, blocks: list[Any]) -> Any:
    """Mean at the blocks of inputs, one after another."""
    # Linear with one coefficient gives a column, a constant one number.
    means = [pt.as_tensor_variable(mean_func(block)).flatten() for block in blocks]
    sized = [
        pt.broadcast_to(mean, (pt.as_tensor_variable(block).shape[0],))
        for mean, block in zip(means, blocks, strict=True)
    ]
    return sized[0] if len(sized) == 1 else pt.concatenate(sized)
