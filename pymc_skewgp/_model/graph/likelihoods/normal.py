"""Rows of values and comparisons: normal, censored, Student-t, Laplace; duels, choices."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.censored import CensoredRV
from pymc.distributions.continuous import AsymmetricLaplaceRV
from pymc.distributions.distribution import PartialObservedRV
from pytensor.tensor.random.basic import LaplaceRV, LogNormalRV, MvNormalRV, NormalRV, StudentTRV

from pymc_skewgp._errors import NotConjugateError
from pymc_skewgp._mcmc.model import LaplaceNoise, StudentTNoise
from pymc_skewgp._model.distributions.probit import (
    ChoiceProbitRV,
    IntervalNormalRV,
    PreferenceProbitRV,
    within,
)
from pymc_skewgp._model.graph.likelihoods.likelihood import (
    Likelihood,
    MixtureGraphs,
    RowGraphs,
    block_diagonal,
    data_shape,
    is_random,
    point_rows,
    refuse_nan,
    refuse_non_finite,
    refuse_other_than_counts,
    required,
    required_of,
    spread,
    variances,
)


def _normal_rows(rv: Any, values: Any) -> RowGraphs | None:
    """A point for each value."""
    if not isinstance(rv.owner.op, NormalRV):
        return None
    mu, sigma = rv.owner.op.dist_params(rv.owner)
    shape = data_shape(values)
    return point_rows(mu, shape, variances(rv, sigma, shape), values)


NORMAL = Likelihood("normal", "pm.Normal", _normal_rows, refuse_non_finite)


# Positive values whose logarithms have normal noise.


def _lognormal_rows(rv: Any, values: Any) -> RowGraphs | None:
    """A point for the logarithm of each value, whose density has the factor 1 / y."""
    if not isinstance(rv.owner.op, LogNormalRV):
        return None
    mu, sigma = rv.owner.op.dist_params(rv.owner)
    shape, logs = data_shape(values), pt.log(pt.cast(values, "float64"))
    rows = point_rows(mu, shape, variances(rv, sigma, shape), logs)
    return rows._replace(log_constant=-pt.sum(logs))


def _check_lognormal(name: str, data: NDArray[Any]) -> None:
    refuse_non_finite(name, data)
    if not (data > 0).all():
        raise ValueError(f"the observations of {name} must be positive, got {data.min()}.")


LOGNORMAL = Likelihood("lognormal", "pm.LogNormal", _lognormal_rows, _check_lognormal)


# Vectors of values with joint normal noise.


def _mvnormal_rows(rv: Any, values: Any) -> RowGraphs | None:
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


MVNORMAL = Likelihood("multivariate normal", "pm.MvNormal", _mvnormal_rows, refuse_non_finite)


# Values with normal or Student-t noise, seen between two limits only: tobit models.

# Double precision: PyTensor would take Python's numbers for single.
_INFINITY, _NAN = (pt.constant(x, dtype="float64") for x in (float("inf"), float("nan")))


def _censored_rows(rv: Any, values: Any) -> RowGraphs | None:
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
    "censored",
    "pm.Censored of pm.Normal.dist or pm.StudentT.dist",
    _censored_rows,
    refuse_non_finite,
)


# Normal values of which some are known to be in an interval, and no more.


def _interval_normal_rows(rv: Any, values: Any) -> RowGraphs | None:
    """An interval for each value that stands for one, a point for any other: data decide."""
    if not isinstance(rv.owner.op, IntervalNormalRV):
        return None
    mu, sigma, lower, upper = rv.owner.op.dist_params(rv.owner)
    shape = data_shape(values)
    y, low, high = (spread(x, shape) for x in (values, lower, upper))
    value = pt.switch(within(y, low, high), pt.constant(float("nan"), dtype="float64"), y)
    return RowGraphs(mu, shape, low, high, variances(rv, sigma, shape), value)


INTERVAL_NORMAL = Likelihood("interval normal", "IntervalNormal", _interval_normal_rows, refuse_nan)


# Values with Student-t noise: normal ones whose variances are unknown.


def _student_t_rows(rv: Any, values: Any) -> RowGraphs | None:
    """A point for each value."""
    if not isinstance(rv.owner.op, StudentTRV):
        return None
    nu, mu, sigma = rv.owner.op.dist_params(rv.owner)
    shape = data_shape(values)
    rows = point_rows(mu, shape, variances(rv, sigma, shape), values)
    nu = spread(nu, shape)
    nu = required_of(rv.name, nu, "the degrees of freedom of {} must be positive", pt.gt(nu, 0.0))
    return rows._replace(mixture=MixtureGraphs(StudentTNoise, (nu,)))


STUDENT_T = Likelihood("Student-t", "pm.StudentT", _student_t_rows, refuse_non_finite)


# Values with Laplace noise, also an asymmetric one: medians and quantiles of them are f.


def _laplace_rows(rv: Any, values: Any) -> RowGraphs | None:
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


LAPLACE = Likelihood(
    "Laplace", "pm.Laplace, pm.AsymmetricLaplace", _laplace_rows, refuse_non_finite
)


# Duels between items: the sign of a noisy difference.


def _preference_rows(rv: Any, values: Any) -> RowGraphs | None:
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


def _check_preference(name: str, values: NDArray[Any]) -> None:
    found = np.unique(values)
    if not np.isin(found, (-1, 0, 1)).all():
        raise ValueError(
            f"the observations of {name} must be 1 where the first item of a pair won, -1 where "
            f"the second did, 0 for ties; got {found[:5]}."
        )


PREFERENCE = Likelihood("preference", "PreferenceProbit", _preference_rows, _check_preference)


# Choices among alternatives, and classes with a function each: the greatest of noisy values.


def _choice_rows(rv: Any, values: Any) -> RowGraphs | None:
    """Rows eta_c - eta_j > 0, one for each alternative j that was not chosen.

    The noise of c is in all of a choice: its rows have the covariance sigma^2 (I + 11').
    """
    if not isinstance(rv.owner.op, ChoiceProbitRV):
        return None
    eta, sigma = rv.owner.op.dist_params(rv.owner)
    shape, k = data_shape(values), eta.shape[-1]
    chosen = pt.cast(values.ravel(), "int64")
    chosen = required(
        chosen,
        f"the observations of {rv.name} must be indices of alternatives, from 0 to their number "
        "less 1.",
        pt.ge(chosen, 0),
        pt.lt(chosen, k),
    )[:, None]
    eta = pt.broadcast_to(eta, pt.concatenate([shape, pt.stack([k])])).reshape((-1, k))
    choice, other = pt.arange(chosen.shape[0])[:, None], pt.arange(k - 1)[None, :]
    other = other + pt.ge(other, chosen)
    predictor = eta[choice, chosen] - eta[choice, other]
    variance = variances(rv, sigma, shape)
    noise = block_diagonal(variance[:, None, None] * (pt.eye(k - 1, dtype="float64") + 1.0))
    zero = pt.zeros(noise.shape[0], dtype="float64")
    rows = pt.stack([chosen.shape[0], k - 1])
    return RowGraphs(predictor, rows, zero, pt.full_like(zero, np.inf), noise)


CHOICE = Likelihood(
    "choice", "ChoiceProbit or MultinomialProbit", _choice_rows, refuse_other_than_counts
)
