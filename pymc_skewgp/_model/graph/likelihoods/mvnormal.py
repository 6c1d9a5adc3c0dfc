"""Vectors of values with joint normal noise."""

from typing import Any

import pytensor.tensor as pt
from pytensor.tensor.random.basic import MvNormalRV

from pymc_skewgp._model.graph.likelihoods.block_noise import block_diagonal
from pymc_skewgp._model.graph.likelihoods.likelihood import (
    Likelihood,
    RowGraphs,
    data_shape,
    point_rows,
    refuse_non_finite,
    required_of,
)


def _rows(rv: Any, values: Any) -> RowGraphs | None:
    """A point for each entry; vectors are independent of each other."""
    if not isinstance(rv.owner.op, MvNormalRV):
        return None
    mu, cov = rv.owner.op.dist_params(rv.owner)
    shape, k = data_shape(values), values.shape[-1]
    cov = pt.cast(pt.broadcast_to(cov, pt.concatenate([shape, pt.stack([k])])), "float64")
    root = pt.linalg.cholesky(cov)
    positive = pt.all(pt.isfinite(root))
    cov = required_of(rv.name, cov, "the covariance of {} must be positive definite", positive)
    noise = cov if values.type.ndim == 1 else block_diagonal(cov.reshape((-1, k, k)))
    return point_rows(mu, shape, noise, values)


MVNORMAL = Likelihood("multivariate normal", "pm.MvNormal", _rows, refuse_non_finite)
