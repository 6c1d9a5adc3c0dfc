"""Values with Laplace noise, also an asymmetric one: medians and quantiles of them are f."""

from typing import Any

import pytensor.tensor as pt
from pymc.distributions.continuous import AsymmetricLaplaceRV
from pytensor.tensor.random.basic import LaplaceRV

from pymc_skewgp._mcmc.scale_mixtures import LaplaceNoise
from pymc_skewgp._model.graph.likelihoods.likelihood import (
    Likelihood,
    MixtureGraphs,
    RowGraphs,
    data_shape,
    point_rows,
    refuse_non_finite,
    required_of,
    spread,
)


def _rows(rv: Any, values: Any) -> RowGraphs | None:
    """A point for each value: errors are of two exponential variables the difference."""
    shape = data_shape(values)
    if isinstance(rv.owner.op, LaplaceRV):
        mu, mean = rv.owner.op.dist_params(rv.owner)
        above = below = _positive(rv, mean, shape)
    elif isinstance(rv.owner.op, AsymmetricLaplaceRV):
        b, kappa, mu = rv.owner.op.dist_params(rv.owner)
        b, kappa = _positive(rv, b, shape), _positive(rv, kappa, shape)
        above, below = 1.0 / (b * kappa), kappa / b
    else:
        return None
    rows = point_rows(mu, shape, 2.0 * above * below, values)
    return rows._replace(mixture=MixtureGraphs(LaplaceNoise, (above - below,)))


def _positive(rv: Any, x: Any, shape: Any) -> Any:
    x = spread(x, shape)
    return required_of(rv.name, x, "the noise of {} must be positive", pt.gt(x, 0.0))


LAPLACE = Likelihood("Laplace", "pm.Laplace, pm.AsymmetricLaplace", _rows, refuse_non_finite)
