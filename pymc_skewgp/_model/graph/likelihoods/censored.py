"""Values with normal or Student-t noise, seen between two limits only: tobit models."""

from typing import Any

import pytensor.tensor as pt
from pymc.distributions.censored import CensoredRV
from pymc.distributions.distribution import PartialObservedRV
from pytensor.tensor.random.basic import NormalRV, StudentTRV

from pymc_skewgp._errors import NotConjugateError
from pymc_skewgp._mcmc.scale_mixtures import StudentTNoise
from pymc_skewgp._model.graph.likelihoods.likelihood import (
    Likelihood,
    MixtureGraphs,
    RowGraphs,
    data_shape,
    is_random,
    refuse_non_finite,
    required,
    spread,
    variances,
)

# Double precision: PyTensor would take Python's numbers for single.
_INFINITY, _NAN = (pt.constant(x, dtype="float64") for x in (float("inf"), float("nan")))


def _rows(rv: Any, values: Any) -> RowGraphs | None:
    """A point for each value between the limits, an interval for each at one: data decide."""
    whole, seen = _without_masked(rv)
    if not isinstance(whole.owner.op, CensoredRV):
        return None
    base, lower, upper = whole.owner.inputs
    if not isinstance(base.owner.op, NormalRV | StudentTRV):
        return None
    if is_random(lower, upper):
        raise NotConjugateError(
            f"the limits of {rv.name} are random: which values are censored is not known.",
            "Give pm.Censored numbers, or data, as limits.",
        )
    parameters = base.owner.op.dist_params(base.owner)
    if seen is not None:
        parameters, (lower, upper) = (
            [pt.broadcast_to(x, list(seen.shape))[seen] for x in given]
            for given in (parameters, (lower, upper))
        )
    *nu, mu, sigma = parameters
    shape = data_shape(values)
    mixture = MixtureGraphs(StudentTNoise, (spread(nu[0], shape),)) if nu else None
    y, low, high = (spread(x, shape) for x in (values, lower, upper))
    low = required(low, f"lower of {rv.name} must be below upper.", pt.lt(low, high))
    y = required(
        y,
        f"the observations of {rv.name} must lie between lower and upper of pm.Censored, which "
        "censored ones equal.",
        pt.ge(y, low),
        pt.le(y, high),
    )
    below, above = pt.le(y, low), pt.ge(y, high)
    return RowGraphs(
        mu,
        shape,
        pt.switch(above, high, -_INFINITY),
        pt.switch(below, low, _INFINITY),
        variances(rv, sigma, shape),
        pt.switch(pt.or_(below, above), _NAN, y),
        mixture=mixture,
    )


def _without_masked(rv: Any) -> tuple[Any, Any]:
    """The variable of all data, seen and masked, and a mask of those seen; None for all of them."""
    if not isinstance(rv.owner.op, PartialObservedRV):
        return rv, None
    whole, mask = rv.owner.inputs
    return whole, ~mask


CENSORED = Likelihood(
    "censored", "pm.Censored of pm.Normal.dist or pm.StudentT.dist", _rows, refuse_non_finite
)
