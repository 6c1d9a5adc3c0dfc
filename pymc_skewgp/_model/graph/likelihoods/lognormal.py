"""Positive values whose logarithms have normal noise."""

from typing import Any

import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.tensor.random.basic import LogNormalRV

from pymc_skewgp._model.graph.likelihoods.likelihood import (
    Likelihood,
    RowGraphs,
    data_shape,
    point_rows,
    refuse_non_finite,
    variances,
)


def _rows(rv: Any, values: Any) -> RowGraphs | None:
    """A point for the logarithm of each value, whose density has the factor 1 / y."""
    if not isinstance(rv.owner.op, LogNormalRV):
        return None
    mu, sigma = rv.owner.op.dist_params(rv.owner)
    shape, logs = data_shape(values), pt.log(pt.cast(values, "float64"))
    rows = point_rows(mu, shape, variances(rv, sigma, shape), logs)
    return rows._replace(log_constant=-pt.sum(logs))


def _check(name: str, data: NDArray[Any]) -> None:
    refuse_non_finite(name, data)
    if not (data > 0).all():
        raise ValueError(f"the observations of {name} must be positive, got {data.min()}.")


LOGNORMAL = Likelihood("lognormal", "pm.LogNormal", _rows, _check)
