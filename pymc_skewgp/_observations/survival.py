r"""Times to an event, censored or entered late: :math:`\log t = f + \sigma e`.

Accelerated failure times, written once for all noises e: by the logarithms of three functions of
z = (log t - f) / sigma, and their derivatives: density, survival function, distribution function.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, gamma, log_ndtr, ndtr, ndtri

from pymc_skewgp._observations import likelihood as base
from pymc_skewgp._observations.likelihood import Data, Mixture
from pymc_skewgp._observations.log_link import log_link_summary
from pymc_skewgp._observations.sites import ClosedFormSites, FactorFunctions
from pymc_skewgp._validation import FloatArray, as_real_array

# A function of z and its first two derivatives.
Terms = tuple[FloatArray, FloatArray, FloatArray]
_LOG_2PI = float(np.log(2.0 * np.pi))
_LARGEST = 700.0  # exp of which, and of its negative, double precision has
_SMALL = -30.0  # exp of which is nothing beside 1, even squared


def _far_out() -> Any:
    """For predictors at which infinite values are right."""
    return np.errstate(over="ignore", invalid="ignore", divide="ignore")


def _between(noise: Any, z: FloatArray, width: FloatArray) -> Terms:
    """Log P(z < e < z + width)."""
    low, high = noise.density(z), noise.density(z + width)
    right, beyond = noise.survival(z)[0], noise.survival(z + width)[0]
    left, above = noise.distribution(z)[0], noise.distribution(z + width)[0]
    # From the side where both are small.
    on_right = right < above
    start, end = np.where(on_right, right, above), np.where(on_right, beyond, left)
    value = start + np.log(-np.expm1(end - start))
    a, b = np.exp(low[0] - value), np.exp(high[0] - value)
    first = b - a
    return value, first, b * high[1] - a * low[1] - first**2


# Noise e of a logarithm of time: log density, log P(e > z) and log P(e < z), each with its first
# two derivatives; P(e < z) and its inverse; and E exp(power e).


class _SmallestExtreme:
    """Log of an exponential variable."""

    def density(self, z: FloatArray) -> Terms:
        hazard = np.exp(np.minimum(z, _LARGEST))
        return z - hazard, 1.0 - hazard, -hazard

    def survival(self, z: FloatArray) -> Terms:
        hazard = np.exp(np.minimum(z, _LARGEST))
        return -hazard, -hazard, -hazard

    def distribution(self, z: FloatArray) -> Terms:
        small = z < _SMALL
        hazard = np.exp(np.clip(z, _SMALL, _LARGEST))
        ratio = np.where(small, 1.0, hazard / np.expm1(hazard))
        value = np.where(small, z, np.log(-np.expm1(-hazard)))
        return value, ratio, np.where(small, 0.0, ratio * (1.0 - hazard - ratio))

    def cdf(self, z: FloatArray) -> FloatArray:
        return np.asarray(-np.expm1(-np.exp(z)))

    def quantile(self, p: Any) -> Any:
        return np.log(-np.log1p(-np.asarray(p)))

    def exponential_moment(self, power: float) -> float:
        return float(gamma(1.0 + power))


class _Symmetric:
    """As likely to be above z as below -z."""

    survival: Callable[..., Terms]

    def distribution(self, z: FloatArray) -> Terms:
        value, first, second = self.survival(-z)
        return value, -first, second


class _Logistic(_Symmetric):
    def density(self, z: FloatArray) -> Terms:
        p = expit(z)
        return z - 2.0 * np.logaddexp(0.0, z), 1.0 - 2.0 * p, -2.0 * p * expit(-z)

    def survival(self, z: FloatArray) -> Terms:
        p = expit(z)
        return -np.logaddexp(0.0, z), -p, -p * expit(-z)

    def cdf(self, z: FloatArray) -> FloatArray:
        return np.asarray(expit(z))

    def quantile(self, p: Any) -> Any:
        return np.log(p) - np.log1p(-np.asarray(p))

    def exponential_moment(self, power: float) -> float:
        return np.inf if power >= 1.0 else float(np.pi * power / np.sin(np.pi * power))


class _Normal(_Symmetric):
    def density(self, z: FloatArray) -> Terms:
        return -0.5 * (z**2 + _LOG_2PI), -z, np.full(z.shape, -1.0)

    def survival(self, z: FloatArray) -> Terms:
        value = log_ndtr(-z)
        # Mills' ratio inverted; far out its logarithm has no digits left.
        far = np.maximum(z, 1.0)
        ratio = np.where(z > 1e4, far + 1.0 / far, np.exp(-0.5 * (np.square(z) + _LOG_2PI) - value))
        slope = np.where(z > 1e4, 1.0, ratio * (ratio - z))
        return value, -ratio, -slope

    def quantile(self, p: Any) -> Any:
        return ndtri(p)

    def cdf(self, z: FloatArray) -> FloatArray:
        return np.asarray(ndtr(z))

    def exponential_moment(self, power: float) -> float:
        return float(np.exp(0.5 * power**2))


class _Part(NamedTuple):
    """What some of the observations have of log p.

    Attributes
    ----------
    rows : ndarray of int
    log_time : ndarray
    terms : callable
        Of z.
    sign : float
    constant : ndarray or float
    """

    rows: Any
    log_time: FloatArray
    terms: Callable[[FloatArray], Terms]
    sign: float = 1.0
    constant: Any = 0.0


class _FailureTimes(ClosedFormSites):
    """Times exp(f + sigma e)."""

    noise: ClassVar[Any]
    sigma: Any
    new_values = "positive"

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Times, shape (n,), or two limits and the time of entry of each, shape (n, 3)."""
        base.as_positive_parameter("sigma", self.sigma)
        frame: Any = y
        if "bool" in map(str, np.ravel(getattr(y, "dtypes", ()))):  # columns of pandas
            y = frame.to_records(index=False)
        names = getattr(getattr(y, "dtype", None), "names", None)
        given = as_real_array("y", y) if names is None else _of_fields(np.asarray(y), names)
        if given.ndim == 1:
            return base.as_positive_values(given, n)
        return _as_limits(given, n)

    def functions(self, y: Data) -> FactorFunctions:
        """Of densities and masses, over the probability of not having ended before the entry."""
        sigma, parts = float(self.sigma), self._parts(y)

        def each(eta: FloatArray) -> Any:
            for part in parts:
                yield part, part.terms((part.log_time - eta[..., part.rows]) / sigma)

        def log_prob(eta: FloatArray) -> FloatArray:
            found = np.zeros(eta.shape)
            with _far_out():
                for part, (value, _, _) in each(eta):
                    found[..., part.rows] += part.sign * value + part.constant
            return found

        def slopes(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
            found = np.zeros((2, *eta.shape))
            with _far_out():
                for part, (_, first, second) in each(eta):
                    found[0][..., part.rows] -= part.sign * first / sigma
                    found[1][..., part.rows] += part.sign * second / sigma**2
            return found[0], found[1]

        return FactorFunctions(log_prob, slopes)

    def _parts(self, y: Data) -> list[_Part]:
        """By kind of observation, those that there are."""
        noise, sigma = self.noise, float(self.sigma)
        with np.errstate(divide="ignore"):
            low, high, entry = np.log(limits_of(y).T)
        seen, endless = low == high, np.isposinf(high)
        between = ~seen & ~endless & ~np.isneginf(low)
        width = (high[between] - low[between]) / sigma
        found = [
            _Part(seen, low, noise.density, 1.0, -np.log(sigma) - low),
            _Part(endless & ~np.isneginf(low), low, noise.survival),
            _Part(~seen & ~endless & np.isneginf(low), high, noise.distribution),
            _Part(between, low, lambda z: _between(noise, z, width)),
            _Part(~np.isneginf(entry), entry, noise.survival, -1.0),
        ]
        return [
            part._replace(
                rows=np.flatnonzero(part.rows),
                log_time=part.log_time[part.rows],
                constant=np.broadcast_to(part.constant, part.rows.shape)[part.rows],
            )
            for part in found
            if part.rows.any()
        ]

    def draw(self, f: FloatArray, rng: np.random.Generator) -> Data:
        """New times, neither censored nor entered late."""
        noise = self.noise.quantile(rng.uniform(size=f.shape))
        logs = f + float(self.sigma) * noise
        return np.asarray(np.exp(np.clip(logs, -_LARGEST, _LARGEST)))

    def observed(self, y: Data) -> dict[str, Data]:
        """``y``; limits as ``y``, NaN where censored, ``y_lower``, ``y_upper``, ``y_entry``."""
        if y.ndim == 1:
            return {"y": y}
        low, high, entry = y.T
        seen = np.where(low == high, low, np.nan)
        return {"y": seen, "y_lower": low, "y_upper": high, "y_entry": entry}

    def joined(self, y: Data, n: int, new: ArrayLike, n_new: int) -> Data:
        """Both, with limits where one of them has any."""
        more = self.as_data(new, n_new)
        both = [y, more] if y.ndim == more.ndim else [limits_of(y), limits_of(more)]
        return np.concatenate(both)

    def predictive_summary(self, mixture: Mixture) -> dict[str, FloatArray]:
        """``y_mean`` and ``y_sd`` of a new time, which may be infinite, with Monte Carlo errors."""
        sigma, nothing = float(self.sigma), np.zeros(mixture.moments[0].size)
        mean, square = (self.noise.exponential_moment(k * sigma) for k in (1.0, 2.0))
        if np.isfinite(square):
            return log_link_summary(mixture, mean, square=square / mean**2 - 1.0)
        endless = {"y_sd": nothing + np.inf, "y_sd_se": nothing}
        if np.isfinite(mean):
            return log_link_summary(mixture, mean) | endless
        return {"y_mean": nothing + np.inf, "y_mean_se": nothing, **endless}

    def cdf(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Of logarithms of times."""
        with _far_out():
            return self.noise.cdf((y - f) / float(self.sigma))


def _of_fields(y: Any, names: tuple[str, ...]) -> FloatArray:
    """Limits and entries of a structured array of events and times."""
    events = [name for name in names if y.dtype[name].kind == "b"]
    times = [name for name in names if y.dtype[name].kind in "fiu" and name != "entry"]
    if len(events) != 1 or len(times) != 1:
        raise ValueError(
            "y with fields must have one that is boolean, whether the event was seen, one of "
            f"times, and may have a field entry; got {', '.join(names)}."
        )
    time = y[times[0]].astype(np.float64)
    entry = y["entry"] if "entry" in names else np.zeros(time.shape)
    return np.column_stack([time, np.where(y[events[0]], time, np.inf), entry])


def limits_of(y: Data) -> FloatArray:
    """Limits and entries of checked data, shape (n, 3)."""
    return np.column_stack([y, y, np.zeros(y.size)]) if y.ndim == 1 else y


def _refuse_events(given: FloatArray) -> None:
    """Events beside times are no limits, and would be read as such: (1, 5) as between 1 and 5."""
    if given.shape[1] == 2 and np.isfinite(given).all():
        for column in given.T:
            if np.array_equal(np.unique(column), [0, 1]):
                raise ValueError(
                    "y has a column of 0 and 1 beside finite numbers: these are events and times, "
                    "and two columns are limits. Give an array with fields, or "
                    "np.column_stack([time, np.where(event, time, np.inf)])."
                )


def _as_limits(given: FloatArray, n: int) -> FloatArray:
    if given.shape not in ((n, 2), (n, 3)):
        raise ValueError(
            f"y must have shape ({n},), times; or ({n}, 2), a lower and an upper limit of each; or "
            f"({n}, 3), with the time of entry; got {given.shape}."
        )
    if np.isnan(given).any():
        raise ValueError(
            f"y holds {int(np.isnan(given).sum())} NaN(s): the upper limit of a time that was "
            "censored is inf, the lower limit 0 where nothing is known, and so is no late entry."
        )
    _refuse_events(given)
    low, high, entry = np.column_stack([given, np.zeros(n)])[:, :3].T
    base.refuse_rows("lower limits in y", low, low < 0, "be 0 or more")
    base.refuse_rows("lower limits in y", low, low > high, "not exceed upper ones", ": swap them")
    seen = low == high
    endless = seen & ~((low > 0) & np.isfinite(low))
    base.refuse_rows("times in y that were seen", low, endless, "be positive and finite")
    base.refuse_rows("entries in y", entry, ~((entry >= 0) & np.isfinite(entry)), "be 0 or more")
    late = np.where(seen, entry > low, entry >= high)
    base.refuse_rows("entries in y", entry, late, "be before the event")
    # Whoever entered had had no event by then.
    return np.column_stack([np.where(seen, low, np.maximum(low, entry)), high, entry])


@dataclass(frozen=True, eq=False)
class Weibull(_FailureTimes):
    r"""Weibull times to an event: :math:`S(t) = \exp\{-(t / e^{f(x)})^{1/\sigma}\}`.

    It is the model of ``pm.Weibull(alpha=1 / sigma, beta=pm.math.exp(f))``, with times that may be
    censored. Of proportional hazards too: f multiplies the hazard by :math:`e^{-f/\sigma}`. With
    ``sigma=1`` times are exponential.

    Parameters
    ----------
    sigma : float
        Scale of the logarithm of time, positive. In a PyMC model it may be a random variable, whose
        value ``point`` then gives.

    Raises
    ------
    ValueError
        When used: times that are not positive, limits in the wrong order, entries after the event,
        sigma that is not positive.

    Notes
    -----
    y has times, shape (n,); or limits, shape (n, 2), equal where the event was seen, ``[t, inf]``
    where it was censored at t, ``[0, t]`` where it was before t; or limits and the time of a late
    entry, shape (n, 3), before which an event would not have been seen; or is a structured array
    with fields of whether the event was seen, of times, and perhaps ``entry``.

    `SkewGPPosterior.predict` gives ``y_mean`` and ``y_sd`` of a new time with their Monte Carlo
    errors, ``y_quantile``, and draws ``y``.

    References
    ----------
    .. [1] J. D. Kalbfleisch & R. L. Prentice (2002), The Statistical Analysis of Failure Time Data,
       doi:10.1002/9781118032985, chapters 2 and 3.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=2.0))
    >>> x = [0.0, 1.0, 2.0, 3.0]
    >>> limits = [[0.3, 0.3], [1.2, np.inf], [0.5, 0.9], [4.0, 4.0]]  # the second is censored
    >>> posterior = gp.posterior(x, limits, likelihood=sg.likelihoods.Weibull(sigma=0.5))
    >>> new = posterior.predict([1.5])["predictions_summary"]
    >>> bool(new["y_quantile"].values[1, 0] > 0.5)
    True
    """

    sigma: Any
    noise = _SmallestExtreme()


@dataclass(frozen=True, eq=False)
class LogNormal(_FailureTimes):
    r"""Log-normal times to an event: :math:`S(t) = \Phi\{(f(x) - \log t) / \sigma\}`.

    It is the model of ``pm.LogNormal(mu=f, sigma=sigma)``, with times that may be censored.

    Parameters
    ----------
    sigma : float
        Scale of the logarithm of time, positive. In a PyMC model it may be a random variable, whose
        value ``point`` then gives.

    Raises
    ------
    ValueError
        When used: times that are not positive, limits in the wrong order, entries after the event,
        sigma that is not positive.

    Notes
    -----
    y has times, shape (n,); or limits, shape (n, 2), equal where the event was seen, ``[t, inf]``
    where it was censored at t, ``[0, t]`` where it was before t; or limits and the time of a late
    entry, shape (n, 3), before which an event would not have been seen; or is a structured array
    with fields of whether the event was seen, of times, and perhaps ``entry``.

    `SkewGPPosterior.predict` gives ``y_mean`` and ``y_sd`` of a new time with their Monte Carlo
    errors, ``y_quantile``, and draws ``y``.

    See Also
    --------
    CensoredGaussian : of logarithms of times, without late entries the same posterior of f.

    References
    ----------
    .. [1] J. D. Kalbfleisch & R. L. Prentice (2002), The Statistical Analysis of Failure Time Data,
       doi:10.1002/9781118032985, chapters 2 and 3.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=2.0))
    >>> limits = [[0.3, 0.3], [1.2, np.inf]]
    >>> posterior = gp.posterior([0.0, 1.0], limits, likelihood=sg.likelihoods.LogNormal(0.5))
    >>> bool(posterior.log_marginal_likelihood.value < 0)
    True
    """

    sigma: Any
    noise = _Normal()


@dataclass(frozen=True, eq=False)
class LogLogistic(_FailureTimes):
    r"""Log-logistic times to an event: :math:`S(t) = 1 / \{1 + (t / e^{f(x)})^{1/\sigma}\}`.

    The odds of having had the event by t are proportional to :math:`e^{-f/\sigma}`; their hazard
    rises and falls where sigma is below 1. Times may be censored. Their mean is infinite from
    ``sigma=1`` on, their variance from ``sigma=0.5``.

    Parameters
    ----------
    sigma : float
        Scale of the logarithm of time, positive. In a PyMC model it may be a random variable, whose
        value ``point`` then gives.

    Raises
    ------
    ValueError
        When used: times that are not positive, limits in the wrong order, entries after the event,
        sigma that is not positive.

    Notes
    -----
    y has times, shape (n,); or limits, shape (n, 2), equal where the event was seen, ``[t, inf]``
    where it was censored at t, ``[0, t]`` where it was before t; or limits and the time of a late
    entry, shape (n, 3), before which an event would not have been seen; or is a structured array
    with fields of whether the event was seen, of times, and perhaps ``entry``.

    `SkewGPPosterior.predict` gives ``y_mean`` and ``y_sd`` of a new time with their Monte Carlo
    errors, ``y_quantile``, and draws ``y``.

    References
    ----------
    .. [1] J. D. Kalbfleisch & R. L. Prentice (2002), The Statistical Analysis of Failure Time Data,
       doi:10.1002/9781118032985, chapters 2 and 3.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=2.0))
    >>> limits = [[0.3, 0.3], [1.2, np.inf]]
    >>> posterior = gp.posterior([0.0, 1.0], limits, likelihood=sg.likelihoods.LogLogistic(0.5))
    >>> bool(posterior.log_marginal_likelihood.value < 0)
    True
    """

    sigma: Any
    noise = _Logistic()
