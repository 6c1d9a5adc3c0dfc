"""Duels between items: the sign of a noisy difference."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray

from pymc_skewgp._model.distributions.preference_probit import PreferenceProbitRV
from pymc_skewgp._model.graph.likelihoods.likelihood import (
    Likelihood,
    RowGraphs,
    data_shape,
    is_random,
    required,
    required_of,
    spread,
    variances,
)


def _rows(rv: Any, values: Any) -> RowGraphs | None:
    """A row f_i - f_j for each duel: above the threshold, below minus it, or between for a tie."""
    if not isinstance(rv.owner.op, PreferenceProbitRV):
        return None
    difference, noise, threshold = rv.owner.op.dist_params(rv.owner)
    shape = data_shape(values)
    d, y = spread(threshold, shape), values.ravel()
    d = required_of(rv.name, d, "the threshold of {} must not be negative", pt.ge(d, 0.0))
    if not is_random(d):
        y = required(
            y,
            f"the observations of {rv.name} hold 0, a tie, which needs threshold > 0: -1 says that "
            "the second item of a pair won.",
            pt.or_(pt.neq(y, 0), pt.gt(d, 0.0)),
        )
    end = pt.full_like(d, np.inf)
    first, second = pt.gt(y, 0), pt.lt(y, 0)
    lower = pt.switch(first, d, pt.switch(second, -end, -d))
    upper = pt.switch(first, end, pt.switch(second, -d, d))
    return RowGraphs(difference, shape, lower, upper, variances(rv, noise, shape))


def _check(name: str, values: NDArray[Any]) -> None:
    found = np.unique(values)
    if not np.isin(found, (-1, 0, 1)).all():
        raise ValueError(
            f"the observations of {name} must be 1 where the first item of a pair won, -1 where "
            f"the second did, 0 for ties; got {found[:5]}."
        )


PREFERENCE = Likelihood("preference", "PreferenceProbit", _rows, _check)
