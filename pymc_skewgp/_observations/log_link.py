r"""Counts, positive values with mean :math:`E_i e^{f(x_i)}`: Poisson, negative binomial, gamma.

Given u the mean is lognormal, so that moments of a new value are closed forms.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaln, expit, gammainc, gammaln, pdtr

from pymc_skewgp._observations import likelihood as base
from pymc_skewgp._observations.binary import log_odds_functions
from pymc_skewgp._observations.likelihood import Data, Mixture
from pymc_skewgp._observations.sites import ClosedFormSites, FactorFunctions
from pymc_skewgp._validation import FloatArray, as_vector

# Means above it NumPy does not draw counts of; they do not fit into 64 bits either.
_LARGEST_MEAN = 2.0**62


def as_exposure(exposure: Any, n: int) -> FloatArray:
    """Positive exposures of n rows; a number stands for all."""
    each = as_vector("exposure", exposure, n)
    advice = ": drop rows in which nothing was observed"
    base.refuse_rows("exposure", each, ~(each > 0), "be positive", advice)
    return each


def exposure_of_new(exposure: Any) -> float:
    """That of a new point: the number that stands for all, and 1 where each row has its own."""
    return 1.0 if np.ndim(exposure) else float(exposure)


def mean_of(f: FloatArray, exposure: FloatArray | float) -> FloatArray:
    """Mean of a value; infinite where it is beyond double precision."""
    with np.errstate(over="ignore"):
        return np.asarray(exposure * np.exp(f))


def draw_counts(mean: FloatArray, rng: np.random.Generator) -> NDArray[np.int64]:
    """Poisson counts."""
    return rng.poisson(np.minimum(mean, _LARGEST_MEAN))


def log_link_summary(
    mixture: Mixture, exposure: float = 1.0, *, linear: float = 0.0, square: float = 0.0
) -> dict[str, FloatArray]:
    r"""Mean and standard deviation of a new y with variance :math:`a \mu + b \mu^2` given f.

    With components :math:`N(m_j, v)` of f, :math:`\mu_j = E e^{m_j + v/2}` and weights :math:`w_j`

    .. math::

        \mathrm E\, y = \sum_j w_j \mu_j, \qquad
        \mathrm{var}(y) = a\, \mathrm E\, y + b \sum_j w_j \mu_j^2 e^v
        + \sum_j w_j \{\mu_j^2 (e^v - 1) + (\mu_j - \mathrm E\, y)^2\}

    Parameters
    ----------
    mixture : Mixture
    exposure : float
        E.
    linear, square : float
        a and b.

    Returns
    -------
    dict
        ``y_mean`` and ``y_sd`` with standard errors ``_se``, by the delta method, shape (t,) each.
    """
    weights, v = mixture.weights, mixture.variance[:, None]
    with np.errstate(over="ignore", invalid="ignore"):
        mu = mean_of(mixture.means + 0.5 * v, exposure)
        mean = mu @ weights
        off = mu - mean[:, None]
        spread = mu**2 * (np.expm1(v) + square * np.exp(v)) + off**2
        variance = linear * mean + spread @ weights
        sd = np.sqrt(variance)
        scale = np.where(sd > 0, 2.0 * sd, 1.0)[:, None]
        on_sd = (linear * off + spread - (spread @ weights)[:, None]) / scale
    errors = {
        "y_mean_se": base.average_error(mixture, off),
        "y_sd_se": base.average_error(mixture, on_sd),
    }
    return {"y_mean": mean, "y_sd": sd, **errors}


class _LogLink(ClosedFormSites):
    """What values with mean E e^f have in common; E is 1 where there is no exposure."""

    given_mean: Callable[[FloatArray, np.random.Generator], Data]  # new values
    # a and b of the variance a mu + b mu^2 given the mean mu.
    variance: Callable[[], tuple[float, float]]
    exposure: Any = 1.0
    predicts = True  # of an exposure of 1, where each row has its own

    def draw(self, f: FloatArray, rng: np.random.Generator) -> Data:
        """New values given f."""
        return self.given_mean(mean_of(f, as_exposure(self.exposure, f.shape[-1])), rng)

    def predictive_draws(self, f: FloatArray, rng: np.random.Generator) -> dict[str, Data]:
        """``mu``, the mean of a new value given f, and ``y``, values."""
        mu = mean_of(f, exposure_of_new(self.exposure))
        return {"mu": mu, "y": self.given_mean(mu, rng)}

    def predictive_summary(self, mixture: Mixture) -> dict[str, FloatArray]:
        """``y_mean`` and ``y_sd`` of a new value, with Monte Carlo errors."""
        linear, square = self.variance()
        exposure = exposure_of_new(self.exposure)
        return log_link_summary(mixture, exposure, linear=linear, square=square)


class _Counts(_LogLink):
    row_parameters = ("exposure",)
    new_values = "whole"

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Counts as integers, with the parameters checked."""
        as_exposure(self.exposure, n)
        return base.as_counts(y, n)


# Counts with a log link.


@dataclass(frozen=True, eq=False)
class Poisson(_Counts):
    r"""Counts :math:`y_i \sim \mathrm{Poisson}(E_i e^{f(x_i)})` with known exposures E.

    It is the model of ``pm.Poisson(exposure * pm.math.exp(f))``.

    Parameters
    ----------
    exposure : float or array_like, shape (n,), default 1
        What the rate :math:`e^{f(x)}` is multiplied by: time, area, persons. Positive; one for
        all, or one a row of the data.

    Raises
    ------
    ValueError
        When used: counts that are negative or not whole, exposures that are not positive or of
        another length than y.

    Notes
    -----
    `SkewGPPosterior.predict` gives ``y_mean`` and ``y_sd`` of a new count with their Monte Carlo
    errors ``y_mean_se`` and ``y_sd_se``, closed forms in the moments of f; ``y_quantile``, of its
    distribution with f averaged over; and draws ``mu``, the mean of the count given f, and ``y``.
    The exposure of a new point is `exposure` where that is one number, and 1 where each row has its
    own: then ``mu`` is the rate :math:`e^f`.

    References
    ----------
    .. [1] P. McCullagh & J. A. Nelder (1989), Generalized Linear Models, chapter 6.
    .. [2] J. Møller, A. R. Syversveen & R. P. Waagepetersen (1998), Log Gaussian Cox processes,
       doi:10.1111/1467-9469.00115.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> hours, counts = [1.0, 1.0, 5.0, 10.0], [0, 2, 12, 40]
    >>> likelihood = sg.likelihoods.Poisson(exposure=hours)
    >>> posterior = gp.posterior([0.0, 1.0, 2.0, 3.0], counts, likelihood=likelihood)
    >>> new = posterior.predict([2.5])["predictions_summary"]
    >>> print(f"{new['y_mean'].item():.0f} in one hour, {new['y_quantile'].values[:, 0]}")
    3 in one hour, [1. 3. 7.]
    """

    exposure: Any = 1.0

    def given_mean(self, mean: FloatArray, rng: np.random.Generator) -> Data:
        """Poisson counts."""
        return draw_counts(mean, rng)

    def variance(self) -> tuple[float, float]:
        """The mean."""
        return 1.0, 0.0

    def in_pymc(self, f: Any, exp: Any) -> tuple[str, dict[str, Any]]:
        """By its mean."""
        return "Poisson", {"mu": self.exposure * exp(f)}

    def functions(self, y: Data) -> FactorFunctions:
        """Of counts and exposures."""
        exposure, counts = as_exposure(self.exposure, y.size), y * 1.0
        constant = counts * np.log(exposure) - gammaln(counts + 1.0)

        def log_prob(eta: FloatArray) -> FloatArray:
            return counts * eta - mean_of(eta, exposure) + constant

        def slopes(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
            mean = mean_of(eta, exposure)
            return counts - mean, -mean

        return FactorFunctions(log_prob, slopes)

    def cdf(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Of Poisson counts."""
        return np.asarray(pdtr(y, mean_of(f, exposure_of_new(self.exposure))))


# Over-dispersed counts with a log link.


@dataclass(frozen=True, eq=False)
class NegativeBinomial(_Counts):
    r"""Counts with mean :math:`\mu_i = E_i e^{f(x_i)}` and variance :math:`\mu_i + \mu_i^2/\alpha`.

    .. math:: p(y \mid \mu) = \frac{\Gamma(y + \alpha)}{y!\, \Gamma(\alpha)}
        \Big(\frac{\alpha}{\alpha + \mu}\Big)^{\alpha} \Big(\frac{\mu}{\alpha + \mu}\Big)^{y}

    It is the model of ``pm.NegativeBinomial(mu=exposure * pm.math.exp(f), alpha=alpha)``: a Poisson
    count whose rate varies by a gamma factor with mean 1 and variance :math:`1/\alpha`. As alpha
    grows it becomes `Poisson`.

    Parameters
    ----------
    alpha : float
        Positive; the smaller, the more the counts vary. In a PyMC model it may be a random
        variable, whose value ``point`` then gives.
    exposure : float or array_like, shape (n,), default 1
        What :math:`e^{f(x)}` is multiplied by: time, area, persons. Positive; one for all, or one
        a row of the data.

    Raises
    ------
    ValueError
        When used: counts that are negative or not whole, alpha or exposures that are not positive,
        exposures of another length than y.

    Notes
    -----
    `SkewGPPosterior.predict` gives ``y_mean`` and ``y_sd`` of a new count with their Monte Carlo
    errors ``y_mean_se`` and ``y_sd_se``, closed forms in the moments of f; ``y_quantile``, of its
    distribution with f averaged over; and draws ``mu``, the mean of the count given f, and ``y``.
    The exposure of a new point is `exposure` where that is one number, and 1 where each row has its
    own.

    References
    ----------
    .. [1] J. M. Hilbe (2011), Negative Binomial Regression, 2nd edition, chapter 8 (NB2).

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=2.0))
    >>> x, counts = [0.0, 1.0, 2.0, 3.0], [0, 7, 1, 9]
    >>> posterior = gp.posterior(x, counts, likelihood=sg.likelihoods.NegativeBinomial(alpha=3.0))
    >>> new = posterior.predict([1.5])["predictions_summary"]
    >>> print(f"{new['y_mean'].item():.0f} +- {new['y_sd'].item():.0f}")
    4 +- 4
    """

    alpha: Any
    exposure: Any = 1.0

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Counts as integers, with alpha and the exposures checked."""
        base.as_positive_parameter("alpha", self.alpha)
        return super().as_data(y, n)

    def given_mean(self, mean: FloatArray, rng: np.random.Generator) -> Data:
        """Poisson counts, of means times gamma factors."""
        alpha = float(self.alpha)
        return draw_counts(mean * rng.standard_gamma(alpha, mean.shape) / alpha, rng)

    def variance(self) -> tuple[float, float]:
        """The mean and, over alpha, its square."""
        return 1.0, 1.0 / float(self.alpha)

    def in_pymc(self, f: Any, exp: Any) -> tuple[str, dict[str, Any]]:
        """By its mean."""
        return "NegativeBinomial", {"mu": self.exposure * exp(f), "alpha": self.alpha}

    def functions(self, y: Data) -> FactorFunctions:
        """In the odds of the mean against alpha."""
        exposure, alpha, counts = as_exposure(self.exposure, y.size), float(self.alpha), y * 1.0
        offset = np.log(exposure / alpha)
        constant = -betaln(alpha, counts + 1.0) - np.log(alpha + counts)
        return log_odds_functions(counts, np.full(y.size, alpha), constant, offset)

    def cdf(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Of counts, by the incomplete beta function."""
        alpha, exposure = float(self.alpha), exposure_of_new(self.exposure)
        return np.asarray(betainc(alpha, y + 1.0, expit(np.log(alpha / exposure) - f)))


# Positive values with a log link.


@dataclass(frozen=True, eq=False)
class Gamma(_LogLink):
    r"""Positive values with mean :math:`\mu_i = e^{f(x_i)}` and variance :math:`\mu_i^2 / \alpha`.

    .. math:: p(y \mid \mu) = \frac{(\alpha / \mu)^\alpha}{\Gamma(\alpha)}\, y^{\alpha - 1}
        e^{-\alpha y / \mu}

    It is the model of ``pm.Gamma(alpha=alpha, beta=alpha / pm.math.exp(f))``. With ``alpha=1`` y
    is exponential.

    Parameters
    ----------
    alpha : float
        Shape, positive: :math:`1 / \sqrt\alpha` is the coefficient of variation. In a PyMC model
        it may be a random variable, whose value ``point`` then gives.

    Raises
    ------
    ValueError
        When used: values that are not positive, alpha that is not positive.

    Notes
    -----
    `SkewGPPosterior.predict` gives ``y_mean`` and ``y_sd`` of a new value with their Monte Carlo
    errors ``y_mean_se`` and ``y_sd_se``, closed forms in the moments of f; ``y_quantile``, of its
    distribution with f averaged over; and draws ``mu``, the mean of the value given f, and ``y``.

    References
    ----------
    .. [1] P. McCullagh & J. A. Nelder (1989), Generalized Linear Models, chapter 8.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=2.0))
    >>> x, waiting = [0.0, 1.0, 2.0, 3.0], [0.3, 1.2, 0.9, 4.0]
    >>> posterior = gp.posterior(x, waiting, likelihood=sg.likelihoods.Gamma(alpha=1.0))
    >>> new = posterior.predict([1.5])["predictions_summary"]
    >>> print(f"{new['y_mean'].item():.1f} +- {new['y_sd'].item():.1f}")
    1.6 +- 2.1
    """

    alpha: Any
    new_values = "positive"

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Positive values, with alpha checked."""
        base.as_positive_parameter("alpha", self.alpha)
        return base.as_positive_values(y, n)

    def given_mean(self, mean: FloatArray, rng: np.random.Generator) -> Data:
        """Gamma variables."""
        alpha = float(self.alpha)
        return mean * rng.standard_gamma(alpha, mean.shape) / alpha

    def variance(self) -> tuple[float, float]:
        """The square of the mean over alpha."""
        return 0.0, 1.0 / float(self.alpha)

    def in_pymc(self, f: Any, exp: Any) -> tuple[str, dict[str, Any]]:
        """By its rate."""
        return "Gamma", {"alpha": self.alpha, "beta": self.alpha * exp(-f)}

    def functions(self, y: Data) -> FactorFunctions:
        """In the log of the value over its mean."""
        alpha, log_y = float(self.alpha), np.log(y)
        constant = alpha * np.log(alpha) - gammaln(alpha) - log_y

        def log_prob(eta: FloatArray) -> FloatArray:
            above = log_y - eta
            return alpha * (above - mean_of(above, 1.0)) + constant

        def slopes(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
            ratio = alpha * mean_of(log_y - eta, 1.0)
            return ratio - alpha, -ratio

        return FactorFunctions(log_prob, slopes)

    def cdf(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Of logarithms of values."""
        alpha = float(self.alpha)
        return np.asarray(gammainc(alpha, alpha * mean_of(y - f, 1.0)))
