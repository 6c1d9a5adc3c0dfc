"""Values with Student-t noise: normal ones whose variances are unknown."""

from typing import Any

import pytensor.tensor as pt
from pytensor.tensor.random.basic import StudentTRV

from pymc_skewgp._mcmc.scale_mixtures import StudentTNoise
from pymc_skewgp._model.graph.likelihoods.likelihood import (
    Likelihood,
    MixtureGraphs,
    RowGraphs,
    data_shape,
    point_rows,
    refuse_non_finite,
    required_of,
    spread,
    variances,
)


def _rows(rv: Any, values: Any) -> RowGraphs | None:
    """A point for each value."""
    if not isinstance(rv.owner.op, StudentTRV):
        return None
    nu, mu, sigma = rv.owner.op.dist_params(rv.owner)
    shape = data_shape(values)
    rows = point_rows(mu, shape, variances(rv, sigma, shape), values)
    nu = spread(nu, shape)
    nu = required_of(rv.name, nu, "the degrees of freedom of {} must be positive", pt.gt(nu, 0.0))
    return rows._replace(mixture=MixtureGraphs(StudentTNoise, (nu,)))


STUDENT_T = Likelihood("Student-t", "pm.StudentT", _rows, refuse_non_finite)
