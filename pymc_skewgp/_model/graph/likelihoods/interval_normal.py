"""Normal values of which some are known to be in an interval, and no more."""

from typing import Any

import pytensor.tensor as pt

from pymc_skewgp._model.distributions.interval_normal import IntervalNormalRV, within
from pymc_skewgp._model.graph.likelihoods.likelihood import (
    Likelihood,
    RowGraphs,
    data_shape,
    refuse_nan,
    spread,
    variances,
)


def _rows(rv: Any, values: Any) -> RowGraphs | None:
    """An interval for each value that stands for one, a point for any other: data decide."""
    if not isinstance(rv.owner.op, IntervalNormalRV):
        return None
    mu, sigma, lower, upper = rv.owner.op.dist_params(rv.owner)
    shape = data_shape(values)
    y, low, high = (spread(x, shape) for x in (values, lower, upper))
    value = pt.switch(within(y, low, high), pt.constant(float("nan"), dtype="float64"), y)
    return RowGraphs(mu, shape, low, high, variances(rv, sigma, shape), value)


INTERVAL_NORMAL = Likelihood("interval normal", "IntervalNormal", _rows, refuse_nan)
