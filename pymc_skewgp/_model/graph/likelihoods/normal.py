"""Values with normal noise."""

from typing import Any

from pytensor.tensor.random.basic import NormalRV

from pymc_skewgp._model.graph.likelihoods.likelihood import (
    Likelihood,
    RowGraphs,
    data_shape,
    point_rows,
    refuse_non_finite,
    variances,
)


def _rows(rv: Any, values: Any) -> RowGraphs | None:
    """A point for each value."""
    if not isinstance(rv.owner.op, NormalRV):
        return None
    mu, sigma = rv.owner.op.dist_params(rv.owner)
    shape = data_shape(values)
    return point_rows(mu, shape, variances(rv, sigma, shape), values)


NORMAL = Likelihood("normal", "pm.Normal", _rows, refuse_non_finite)
