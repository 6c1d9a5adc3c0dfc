"""Values with Gaussian noise, censored or not, and with heavy tails."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, ndtr, stdtr

from pymc_skewgp._observations import likelihood as base
from pymc_skewgp._observations.likelihood import Data, Likelihood, Mixture
from pymc_skewgp._observations.observations import Observations, points
from pymc_skewgp._observations.probability import interval_probability
from pymc_skewgp._observations.sites import ClosedFormSites, FactorFunctions
from pymc_skewgp._validation import FloatArray, as_real_array, as_vector

# Values with noise that is not Gaussian: its scale, and moments of new values.


def as_scale(name: str, value: Any, n: int) -> FloatArray:
    """Positive scales of n rows; a number stands for all."""
    scale = as_vector(name, value, n)
    base.refuse_rows(name, scale, ~(scale > 0), "be positive")
    return scale


def noisy_summary(mixture: Mixture, variance: float) -> dict[str, FloatArray]:
    """``y_mean`` and ``y_sd`` of f with noise of mean 0, with Monte Carlo errors ``_se``.

    Where the variance is infinite the standard deviation is, without an error.
    """
    (mean, sd, _), (mean_se, sd_se, _) = mixture.moments, mixture.moment_errors
    total = np.hypot(sd, np.sqrt(variance))
    return {
        "y_mean": mean,
        "y_sd": total,
        "y_mean_se": mean_se,
        "y_sd_se": sd_se * (sd / np.maximum(total, np.finfo(float).tiny)),
    }


class _Noisy(Likelihood):
    """Values f + s e, whose scale s is the first of their parameters, with noise e of mean 0."""

    def noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        """Draws of e."""
        return rng.standard_normal(shape)

    @property
    def variance(self) -> float:
        """Of s e, at new points."""
        return float(getattr(self, self.row_parameters[0])) ** 2

    def scales(self, n: int) -> FloatArray:
        """Scales of n rows, checked."""
        name = self.row_parameters[0]
        return as_scale(name, getattr(self, name), n)

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Values as floats, with the scale checked against them."""
        self.scales(n)
        return base.as_values(y, n)

    def draw(self, f: FloatArray, rng: np.random.Generator) -> Data:
        """New values with noise."""
        return f + self.scales(f.shape[-1]) * self.noise(f.shape, rng)

    def predictive_summary(self, mixture: Mixture) -> dict[str, FloatArray]:
        """``y_mean`` and ``y_sd`` of a new value, with their errors."""
        return noisy_summary(mixture, self.variance) if self.predicts else {}


class _Normal(_Noisy):
    """Values with Gaussian noise, as they are or censored at limits."""

    def limits(self, n: int) -> Any:
        """Lower and upper limits of n rows."""
        return np.full((2, n), [[-np.inf], [np.inf]])

    def predictive_quantiles(self, mixture: Mixture, probs: FloatArray) -> dict[str, FloatArray]:
        """``y_quantile`` of a new value: f with its noise is a mixture of Gaussians too."""
        if not self.predicts:
            return {}
        (low,), (high,) = self.limits(1)
        noisy = replace(mixture, variance=mixture.variance + self.variance)
        found = noisy._quantiles_at(probs)
        error = noisy.quantile_errors(found)
        value, below, above = (np.clip(found + x, low, high) for x in (0.0, -error, error))
        return {"y_quantile": value, "y_quantile_se": np.maximum(value - below, above - value)}


_LOG_2PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True, eq=False)
class Gaussian(_Normal):
    r"""Values :math:`y_i = f(x_i) + \sigma_i e_i` with standard normal :math:`e_i`.

    Every row is a point, and the posterior under a GP prior is a GP: exact regression, without a
    draw. Under a Skew GP prior it is a unified skew-normal process.

    Parameters
    ----------
    sigma : float or array_like, shape (n,)
        Standard deviation of the noise, in the units of y; one for all, or one a row of the data.
        In a PyMC model it may be a random variable, whose value ``point`` then gives. New values
        ``y`` are predicted only where it is one number: noise at new points is not known else.

    Raises
    ------
    ValueError
        When used: noise that is not positive or of another length than y, values that are NaN or
        infinite.

    Notes
    -----
    `SkewGPPosterior.predict` gives ``y_mean``, ``y_sd`` and ``y_quantile`` of a new value, noise
    included, and draws ``y``.

    References
    ----------
    .. [1] C. E. Rasmussen & C. K. I. Williams (2006), Gaussian Processes for Machine Learning,
       chapter 2.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> x = np.linspace(0, 6, 20)[:, None]
    >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.5))
    >>> posterior = gp.posterior(x, np.sin(x[:, 0]), likelihood=sg.likelihoods.Gaussian(0.1))
    >>> new = posterior.predict([[3.0]])["predictions_summary"]
    >>> print(f"{new['f_mean'].item():.2f} +- {new['f_sd'].item():.2f}")
    0.14 +- 0.05
    """

    sigma: Any
    row_parameters = ("sigma",)

    def observations(self, y: Data, n: int) -> Observations:
        """One point a value."""
        return points(y, self.scales(y.size) ** 2)


def log_density(y: FloatArray, mean: FloatArray, sd: Any) -> FloatArray:
    """Log N(y; mean, sd^2)."""
    return np.asarray(-0.5 * ((y - mean) / sd) ** 2 - np.log(sd) - 0.5 * _LOG_2PI)


# Values with Gaussian noise of which some are known only to be beyond, or between, limits.

_INV_SQRT_2PI = float(1.0 / np.sqrt(2.0 * np.pi))


@dataclass(frozen=True, eq=False)
class CensoredGaussian(_Normal):
    r"""Values :math:`v_i = f(x_i) + \sigma_i e_i` that are seen only within limits (tobit).

    With limits L and U what is seen is :math:`y_i = \min\{\max(v_i, L), U\}`. A y at a limit is
    censored there: the row is the interval :math:`(-\infty, L)` or :math:`(U, \infty)`; every other
    row is a point. Without limits it is `Gaussian`.

    A y of minus or plus infinity is censored at L or U as well: so where the limit is not known,
    but a random variable, and its value could not be in the data.

    Interval censoring: y of shape (n, 2) holds a lower and an upper bound of each value, infinities
    allowed, equal where the value was seen. `lower` and `upper` then are left out.

    Parameters
    ----------
    sigma : float or array_like, shape (n,)
        Standard deviation of the noise, in the units of y. It may be a random variable of a PyMC
        model, and so may the limits; ``point`` then gives the value.
    lower, upper : float or array_like, shape (n,), optional
        L and U. Default none.

    Raises
    ------
    ValueError
        When used: noise that is not positive, L not below U, values beyond their limits, lower
        bounds above upper ones, NaN, other lengths.

    Notes
    -----
    ``scipy.stats.CensoredData`` may be given as y. It does not keep the order of its values: rows
    of X must be in its own order, which is uncensored, left-censored, right-censored,
    interval-censored ones. Where X and y are in an order of your own, pass y of shape (n, 2).

    `SkewGPPosterior.predict` gives ``y_mean`` and ``y_sd`` of a new y, censored at the limits, with
    ``y_mean_se``, and ``y_quantile``; ``p_lower`` and ``p_upper``, the probabilities that it is at
    a limit, where there is one, with ``_se``; and draws ``y``. All of these need noise and limits
    that are single numbers: those of new points are not known else. For y of shape (n, 2) new
    values are not censored. In the DataTree of `SkewGPPosterior.sample` the observed data then are
    ``y``, NaN where censored, ``y_lower`` and ``y_upper``.

    References
    ----------
    .. [1] J. Tobin (1958), Estimation of relationships for limited dependent variables,
       doi:10.2307/1907382.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> x = np.linspace(0, 6, 20)[:, None]
    >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.5))
    >>> hours = np.maximum(np.sin(x[:, 0]), 0.0)
    >>> tobit = sg.likelihoods.CensoredGaussian(0.1, lower=0.0)
    >>> posterior = gp.posterior(x, hours, likelihood=tobit)
    >>> new = posterior.predict([[1.5], [4.7]])["predictions_summary"]
    >>> new["p_lower"].values.round(2)
    array([0., 1.])
    """

    sigma: Any
    lower: Any = None
    upper: Any = None
    row_parameters = ("sigma", "lower", "upper")

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Values, shape (n,), or bounds, shape (n, 2), with the parameters checked."""
        self.scales(n)
        low, high = self.limits(n)
        base.refuse_rows("lower", low, ~(low < high), "be below upper")
        # Known by what it has: to import scipy.stats takes half a second.
        bounds: Any = y
        if hasattr(y, "_uncensored"):  # a scipy.stats.CensoredData, in the order that it keeps
            seen, left, right = bounds._uncensored, bounds._left, bounds._right
            below, above = np.full(left.size, -np.inf), np.full(right.size, np.inf)
            parts = [np.column_stack(x) for x in ((seen, seen), (below, left), (right, above))]
            bounds = np.concatenate([*parts, np.reshape(bounds._interval, (-1, 2))])
        if np.ndim(bounds) == 2:
            if self.lower is not None or self.upper is not None:
                raise ValueError(
                    "with bounds of each value in y, lower and upper are not used: leave them out."
                )
            return _as_bounds(bounds, n)
        values = as_real_array("y", bounds).copy()
        at_limit = np.zeros(values.shape, dtype=bool)
        if values.shape == (n,):
            at_limit = np.isneginf(values) & (low > -np.inf)
            at_limit |= np.isposinf(values) & (high < np.inf)
        base.as_values(np.where(at_limit, 0.0, values), n)
        beyond = ~at_limit & ((values < low) | (values > high))
        must = "be within the limits, and at them where it is censored"
        advice = ": for limits that differ pass them as arrays, or y of shape (n, 2)"
        base.refuse_rows("y", values, beyond, must, advice)
        return values

    def observations(self, y: Data, n: int) -> Observations:
        """A point or an interval each."""
        value, lower, upper = self._rows(y)
        return Observations(None, np.zeros(n), self.scales(n) ** 2, lower, upper, value)

    def draw(self, f: FloatArray, rng: np.random.Generator) -> Data:
        """New values, censored at the limits."""
        return np.clip(super().draw(f, rng), *self.limits(f.shape[-1]))

    def observed(self, y: Data) -> dict[str, Data]:
        """``y``; bounds as ``y``, NaN where censored, ``y_lower`` and ``y_upper``."""
        if y.ndim == 1:
            return {"y": y}
        return {"y": self._rows(y)[0], "y_lower": y[:, 0], "y_upper": y[:, 1]}

    def predictive_summary(self, mixture: Mixture) -> dict[str, FloatArray]:
        """``y_mean`` and ``y_sd``, and probabilities ``p_lower`` and ``p_upper`` of the limits."""
        if not self.predicts:
            return {}
        (low,), (high,), noise = *self.limits(1), self.variance
        # First and second moment of min(max(v, L), U) less the mean of f, for each component: with
        # v ~ N(m, s^2), a = (L - m) / s and b = (U - m) / s
        #     E y = m + (L - m) Phi(a) + s phi(a) + (U - m) Phi(-b) - s phi(b)
        # from the moments without limits, what each limit takes, and what it gives.
        centre = mixture.moments[0]
        means, s = mixture.means - centre[:, None], np.sqrt(mixture.variance + noise)[:, None]
        first, second = means.copy(), means**2 + s**2
        for end, side in ((low, 1.0), (high, -1.0)):
            if np.isinf(end):
                continue
            limit = end - centre[:, None]
            away = limit - means
            z = side * away / s
            mass, density = ndtr(z), side * s * _INV_SQRT_2PI * np.exp(-0.5 * z**2)
            first += mass * away + density
            second += mass * (limit**2 - means**2 - s**2) + density * (means + limit)
        off = first @ mixture.weights
        variance = second @ mixture.weights - off**2
        summary = {"y_mean": centre + off, "y_sd": np.sqrt(np.maximum(variance, 0.0))}
        first -= off[:, None]
        about = second - (second @ mixture.weights)[:, None] - 2.0 * off[:, None] * first
        about /= 2.0 * np.maximum(summary["y_sd"], np.finfo(float).tiny)[:, None]
        for name, influence in (("y_mean_se", first), ("y_sd_se", about)):
            summary[name] = base.average_error(mixture, influence)
        for name, limits in (("p_lower", (-np.inf, low)), ("p_upper", (high, np.inf))):
            if np.isfinite(limits).any():
                found = interval_probability(mixture, limits[0], limits[1], noise)
                summary |= {name: found.value, f"{name}_se": found.std_error}
        return summary

    def limits(self, n: int) -> tuple[FloatArray, FloatArray]:
        """L and U of each row."""
        lower = -np.inf if self.lower is None else self.lower
        upper = np.inf if self.upper is None else self.upper
        return (
            as_vector("lower", lower, n, allow_inf=True),
            as_vector("upper", upper, n, allow_inf=True),
        )

    def _rows(self, y: Data) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Value, NaN where it is censored, and limits of it there."""
        if y.ndim == 2:
            seen = y[:, 0] == y[:, 1]
            return np.where(seen, y[:, 0], np.nan), y[:, 0], y[:, 1]
        low, high = self.limits(y.size)
        below, above = (y == low) | np.isneginf(y), (y == high) | np.isposinf(y)
        lower = np.where(above, high, np.where(below, -np.inf, low))
        upper = np.where(below, low, np.where(above, np.inf, high))
        return np.where(below | above, np.nan, y), lower, upper


def _as_bounds(y: ArrayLike, n: int) -> FloatArray:
    bounds = as_real_array("y", y)
    if bounds.shape != (n, 2):
        raise ValueError(
            f"y must have shape ({n},) or ({n}, 2), a value or its two bounds for each row of X; "
            f"got {bounds.shape}."
        )
    if np.isnan(bounds).any():
        raise ValueError(
            f"y holds {int(np.isnan(bounds).sum())} NaN bound(s): use infinities where a side is "
            "open."
        )
    low, high = bounds.T
    base.refuse_rows("lower bounds in y", low, low > high, "not exceed upper ones", ": swap them")
    endless = (low == high) & np.isinf(low)
    base.refuse_rows("values in y that were seen", low, endless, "be finite")
    return bounds.copy()


# Values with noise of heavy tails.


@dataclass(frozen=True, eq=False)
class StudentT(_Noisy, ClosedFormSites):
    r"""Values :math:`y_i = f(x_i) + \sigma_i e_i`, :math:`e_i` of Student's t with nu degrees.

    .. math:: p(y \mid f) = \frac{\Gamma\{(\nu + 1) / 2\}}{\Gamma(\nu / 2) (\pi \nu)^{1/2} \sigma}
        \Big\{1 + \frac{(y - f)^2}{\nu \sigma^2}\Big\}^{-(\nu + 1) / 2}

    It is the model of ``pm.StudentT(nu, mu=f, sigma=sigma)``, regression that outliers hardly move.
    As nu grows it becomes `Gaussian`. The density is not log-concave: a value far off may belong
    to f or be an outlier, so that the posterior can have several modes.

    Parameters
    ----------
    nu : float
        Degrees of freedom, positive; the smaller, the heavier the tails. In a PyMC model it may be
        a random variable, whose value ``point`` then gives.
    sigma : float or array_like, shape (n,)
        Scale of the noise, in the units of y; its standard deviation is
        :math:`\sigma \{\nu / (\nu - 2)\}^{1/2}`. One for all, or one a row of the data. It may be
        a random variable too. New values ``y`` are predicted only where it is one number.

    Raises
    ------
    ValueError
        When used: nu or sigma that is not positive, sigma of another length than y, values that
        are NaN or infinite.

    Notes
    -----
    `SkewGPPosterior.predict` gives draws ``y`` and, of a new value, ``y_quantile``, and where nu is
    above 1 ``y_mean`` and ``y_sd``, infinite where nu is at most 2, with Monte Carlo errors
    ``_se``.

    References
    ----------
    .. [1] P. Jylänki, J. Vanhatalo & A. Vehtari (2011), Robust Gaussian process regression with a
       Student-t likelihood, JMLR 12.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=2.0))
    >>> x, y = [0.0, 0.5, 1.0, 1.5, 2.0], [0.1, 0.0, 8.0, 0.2, 0.1]
    >>> robust = sg.likelihoods.StudentT(nu=4.0, sigma=0.2)
    >>> new = gp.posterior(x, y, likelihood=robust).predict([1.0])["predictions_summary"]
    >>> print(f"{new['f_mean'].item():.1f} +- {new['f_sd'].item():.1f}")
    0.1 +- 0.1
    """

    nu: Any
    sigma: Any
    row_parameters = ("sigma",)
    new_values = "real"

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Values as floats, with the parameters checked."""
        base.as_positive_parameter("nu", self.nu)
        return super().as_data(y, n)

    def in_pymc(self, f: Any, exp: Any) -> tuple[str, dict[str, Any]]:
        """About f."""
        return "StudentT", {"nu": self.nu, "mu": f, "sigma": self.sigma}

    def functions(self, y: Data) -> FactorFunctions:
        """Of scaled residuals."""
        return student_t(y, float(self.nu), self.scales(y.size))

    def noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        """Of Student's t."""
        return rng.standard_t(float(self.nu), shape)

    @property
    def variance(self) -> float:
        """Infinite for heavy tails."""
        nu = float(self.nu)
        return nu / (nu - 2.0) * super().variance if nu > 2.0 else np.inf

    def predictive_summary(self, mixture: Mixture) -> dict[str, FloatArray]:
        """``y_mean`` and ``y_sd`` of a new value, where there is a mean."""
        return super().predictive_summary(mixture) if float(self.nu) > 1.0 else {}

    def cdf(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Of Student's t."""
        return np.asarray(stdtr(float(self.nu), (y - f) / float(self.sigma)))


def student_t(y: Data, nu: FloatArray | float, sigma: FloatArray) -> FactorFunctions:
    """Log density of values, and its derivatives in their centres."""
    scale = 1.0 / (sigma * np.sqrt(nu))
    power = -0.5 * (nu + 1.0)
    constant = gammaln(-power) - gammaln(0.5 * nu) - 0.5 * np.log(np.pi) + np.log(scale)

    def log_prob(eta: FloatArray) -> FloatArray:
        return power * np.log1p(((y - eta) * scale) ** 2) + constant

    def slopes(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        off = (y - eta) * scale
        near = 1.0 / (1.0 + off**2)
        first = -2.0 * power * scale * off * near
        return first, 2.0 * power * (scale * near) ** 2 * (1.0 - off**2)

    return FactorFunctions(log_prob, slopes)


# Values with double exponential noise.


@dataclass(frozen=True, eq=False)
class Laplace(_Noisy, ClosedFormSites):
    r"""Values with double exponential noise: :math:`p(y_i \mid f) = e^{-|y_i - f(x_i)|/b}/(2 b)`.

    It is the model of ``pm.Laplace(mu=f, b=b)``: regression to the median.

    Parameters
    ----------
    b : float or array_like, shape (n,)
        Scale of the noise, in the units of y; its standard deviation is :math:`\sqrt 2\, b`. One
        for all, or one a row of the data. In a PyMC model it may be a random variable, whose value
        ``point`` then gives. New values ``y`` are predicted only where it is one number.

    Raises
    ------
    ValueError
        When used: b that is not positive or of another length than y, values that are NaN or
        infinite.

    Notes
    -----
    `SkewGPPosterior.predict` gives draws ``y`` and, of a new value, ``y_quantile``, and ``y_mean``
    and ``y_sd`` with Monte Carlo errors ``_se``.

    References
    ----------
    .. [1] S. Kotz, T. J. Kozubowski & K. Podgórski (2001), The Laplace Distribution and
       Generalizations.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=2.0))
    >>> x, y = [0.0, 0.5, 1.0, 1.5, 2.0], [0.1, 0.0, 8.0, 0.2, 0.1]
    >>> posterior = gp.posterior(x, y, likelihood=sg.likelihoods.Laplace(b=0.2))
    >>> new = posterior.predict([1.0])["predictions_summary"]
    >>> print(f"{new['f_mean'].item():.1f} +- {new['f_sd'].item():.1f}")
    0.2 +- 0.2
    """

    b: Any
    row_parameters = ("b",)
    new_values = "real"

    def in_pymc(self, f: Any, exp: Any) -> tuple[str, dict[str, Any]]:
        """About f."""
        return "Laplace", {"mu": f, "b": self.b}

    def functions(self, y: Data) -> FactorFunctions:
        """The first derivative is 0 at the kink, the second one everywhere."""
        rate = 1.0 / self.scales(y.size)
        constant = np.log(0.5 * rate)

        def log_prob(eta: FloatArray) -> FloatArray:
            return constant - rate * np.abs(y - eta)

        def slopes(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
            return rate * np.sign(y - eta), np.zeros(np.shape(eta))

        return FactorFunctions(log_prob, slopes)

    def noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        """Double exponential."""
        return rng.laplace(size=shape)

    @property
    def variance(self) -> float:
        """Twice the square of b."""
        return 2.0 * super().variance

    def cdf(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Of double exponential noise."""
        off = (y - f) / float(self.b)
        tail = 0.5 * np.exp(-np.abs(off))
        return np.where(off > 0, 1.0 - tail, tail)
