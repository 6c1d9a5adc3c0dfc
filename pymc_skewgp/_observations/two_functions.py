r"""Likelihoods of two functions: the spread, the share of zeros, or the precision has its own.

Of both functions the kernel is one, times the ``coregion`` that ``gp.posterior`` takes, whose
diagonal gives each its variance, and so is the mean function. Or one selects where the other is
seen.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.special import digamma, expit, gammaln, log_expit, log_ndtr, ndtr, polygamma

from pymc_skewgp import _validation as check
from pymc_skewgp._observations import likelihood as base
from pymc_skewgp._observations.binary import as_successes, as_trials, log_choose
from pymc_skewgp._observations.forecasts import averaged_forecasts, drawn_quantiles
from pymc_skewgp._observations.likelihood import Data, Likelihood, Mixture, some_values
from pymc_skewgp._observations.log_link import as_exposure, draw_counts, mean_of
from pymc_skewgp._observations.observations import Observations, intervals, points, stacked
from pymc_skewgp._observations.probability import interval_probability
from pymc_skewgp._observations.real_values import log_density, noisy_summary
from pymc_skewgp._observations.sites import ClosedFormSites, FactorFunctions
from pymc_skewgp._validation import FloatArray

_LOG_2PI = float(np.log(2.0 * np.pi))
# From predictors of both functions: log p, its gradient, and second derivatives as (ff, fg, gg).
_Derivatives = tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray, FloatArray]]


class _TwoFunctions(ClosedFormSites):
    """Factors of f and g, the second of which has a level of its own.

    Attributes
    ----------
    names : tuple of str
        Of the functions.
    """

    names: ClassVar[tuple[str, str]]
    chance_name: ClassVar[str | None] = None
    level: Any = 0.0

    @abstractmethod
    def log_prob(self, y: Data, f: FloatArray, g: FloatArray) -> FloatArray:
        """Log p(y | f, g), g with its level."""

    @abstractmethod
    def derivatives(self, y: Data, f: FloatArray, g: FloatArray) -> _Derivatives:
        """Of it."""

    @abstractmethod
    def moments(self, f: FloatArray, g: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of a new value."""

    @abstractmethod
    def given(self, f: FloatArray, g: FloatArray, rng: np.random.Generator) -> Data:
        """New values."""

    def chance(self, f: FloatArray, g: FloatArray) -> FloatArray:
        """The probability that `chance_name` is the forecast of."""
        raise NotImplementedError

    def n_functions(self, y: Data) -> int:
        """Two."""
        return 2

    def coords(self, y: Data) -> dict[str, Sequence[Any]]:
        """Names of the functions."""
        return {"function": list(self.names)}

    def functions(self, y: Data) -> FactorFunctions:
        """Of arrays (..., n, 2)."""

        def slopes(x: FloatArray) -> tuple[FloatArray, FloatArray]:
            with np.errstate(over="ignore"):
                first, (ff, fg, gg) = self.derivatives(y, *self._split(x))
            second = np.stack([ff, fg, fg, gg], axis=-1)
            return np.stack(first, axis=-1), second.reshape(*second.shape[:-1], 2, 2)

        def log_prob(x: FloatArray) -> FloatArray:
            with np.errstate(over="ignore"):
                return self.log_prob(y, *self._split(x))

        return FactorFunctions(log_prob, slopes)

    def _split(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        return x[..., 0], x[..., 1] + float(self.level)

    def draw(self, f: FloatArray, rng: np.random.Generator) -> Data:
        """New values at the rows of the data."""
        return self.given(*self._split(f), rng)

    @property
    def of_new(self) -> "_TwoFunctions":
        """With 1 in place of numbers that each row of the data has of its own."""
        own: Any = self
        of_rows = [name for name in self.row_parameters if np.ndim(getattr(self, name))]
        return cast("_TwoFunctions", replace(own, **dict.fromkeys(of_rows, 1))) if of_rows else self

    def predictive_draws(self, f: FloatArray, rng: np.random.Generator) -> dict[str, Data]:
        """``y``, values."""
        return {"y": self.of_new.draw(f, rng)}

    def predictive_summary(self, mixture: Mixture) -> dict[str, FloatArray]:
        """``y_mean``, ``y_sd`` and a probability, with their errors."""
        new, name = self.of_new, self.chance_name
        found = averaged_forecasts(mixture, lambda x: new.moments(*new._split(x)))
        if name is not None:
            p = averaged_forecasts(
                mixture, lambda x: (new.chance(*new._split(x)), np.zeros(x.shape[:-1]))
            )
            found |= {name: p["y_mean"], f"{name}_se": p["y_mean_se"]}
        return found

    def predictive_quantiles(self, mixture: Mixture, probs: FloatArray) -> dict[str, FloatArray]:
        """``y_quantile`` with its error."""
        new = self.of_new
        return drawn_quantiles(mixture, lambda f, rng: new.draw(f, rng) * 1.0, probs)


@dataclass(frozen=True, eq=False)
class HeteroscedasticGaussian(_TwoFunctions):
    r"""Values whose noise changes: :math:`y_i \sim N\{f(x_i), e^{2 (g(x_i) + \text{level})}\}`.

    There are two functions at each input, named "mean" and "log_sd". The kernel is that of both,
    times the ``coregion`` that ``gp.posterior`` takes: its diagonal gives each its variance. The
    mean function is that of both: centre y, and use a mean of 0. Where the two are to have a
    lengthscale each, write a model: ``pm.Normal("y", f, pm.math.exp(g), observed=y)``.

    Parameters
    ----------
    level : float, default 0
        Of the log standard deviation, in logs of the units of y. It may be a random variable of a
        PyMC model, whose value ``point`` then gives.

    Raises
    ------
    ValueError
        When used: y of another length than X, or not finite.

    Notes
    -----
    Given the log standard deviations the mean is integrated out by its formula. Forecasts:
    ``y_mean``, ``y_sd``, ``y_quantile`` with their errors, draws ``y``.

    References
    ----------
    .. [1] P. W. Goldberg, C. K. I. Williams & C. M. Bishop (1998), Regression with input-dependent
       noise: a Gaussian process treatment, Advances in Neural Information Processing Systems 10.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> x = np.linspace(0.0, 3.0, 12)
    >>> y = np.sin(2 * x) + 0.3 * x * np.cos(40 * x)
    >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> spread = sg.likelihoods.HeteroscedasticGaussian(level=-1.0)
    >>> new = gp.posterior(x, y, likelihood=spread).predict([0.2, 2.8], draws=0)
    >>> sd = new["predictions_summary"]["y_sd"].values
    >>> bool(sd[0] < sd[1])
    True
    """

    level: Any = 0.0

    names = "mean", "log_sd"

    def gaussian_in(self, y: Data) -> int | None:
        """The mean."""
        return 0

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Finite values."""
        check.as_float_array("level", self.level, 0)
        return base.as_values(y, n)

    def log_prob(self, y: Data, f: FloatArray, g: FloatArray) -> FloatArray:
        """See `_TwoFunctions`."""
        return np.asarray(-0.5 * _LOG_2PI - g - 0.5 * ((y - f) * np.exp(-g)) ** 2)

    def derivatives(self, y: Data, f: FloatArray, g: FloatArray) -> _Derivatives:
        """See `_TwoFunctions`."""
        precision = np.exp(-2.0 * g)
        off, square = (y - f) * precision, (y - f) ** 2 * precision
        return (off, square - 1.0), (-precision, -2.0 * off, -2.0 * square)

    def moments(self, f: FloatArray, g: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See `_TwoFunctions`."""
        return f, np.exp(g)

    def given(self, f: FloatArray, g: FloatArray, rng: np.random.Generator) -> Data:
        """See `_TwoFunctions`."""
        with np.errstate(over="ignore"):
            return np.asarray(f + np.exp(g) * rng.standard_normal(f.shape))


@dataclass(frozen=True, eq=False)
class ZeroInflatedPoisson(_TwoFunctions):
    r"""Counts with more zeros than Poisson's: some rows can only be zero.

    .. math:: P(y_i = 0) = \pi_i + (1 - \pi_i) e^{-\mu_i}, \quad
        P(y_i = k) = (1 - \pi_i) \frac{\mu_i^k e^{-\mu_i}}{k!}, \quad
        \mu_i = E_i e^{f(x_i)}, \quad \mathrm{logit}\, \pi_i = g(x_i) + \text{level}

    There are two functions at each input, named "log_rate" and "logit_zero". The kernel is that of
    both, times the ``coregion`` that ``gp.posterior`` takes, and so is the mean function. PyMC's
    ``psi`` is :math:`1 - \pi`.

    Parameters
    ----------
    exposure : float or array_like, shape (n,), default 1
        E, positive: a time, an area, a population.
    level : float, default 0
        Of the logit of the probability of an extra zero. It may be a random variable of a PyMC
        model, whose value ``point`` then gives.

    Raises
    ------
    ValueError
        When used: counts that are negative or no whole numbers, an exposure that is not positive.

    Notes
    -----
    Forecasts, for the exposure that stands for all rows and else for 1: ``y_mean``, ``y_sd``,
    ``y_quantile``, and ``p_zero_mean``, the probability of a zero; draws ``y``.

    References
    ----------
    .. [1] D. Lambert (1992), Zero-inflated Poisson regression, with an application to defects in
       manufacturing, doi:10.2307/1269547.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> fish = sg.likelihoods.ZeroInflatedPoisson()
    >>> posterior = gp.posterior([0.0, 0.1, 0.2, 3.0], [0, 4, 0, 1], likelihood=fish)
    >>> new = posterior.predict([0.1], draws=0)["predictions_summary"]
    >>> print(f"P(0) = {new['p_zero_mean'].item():.1f}")
    P(0) = 0.5
    """

    exposure: Any = 1.0
    level: Any = 0.0

    names = "log_rate", "logit_zero"
    row_parameters = ("exposure",)
    chance_name = "p_zero_mean"

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Counts, with the parameters checked."""
        as_exposure(self.exposure, n)
        check.as_float_array("level", self.level, 0)
        return base.as_counts(y, n)

    def log_prob(self, y: Data, f: FloatArray, g: FloatArray) -> FloatArray:
        """See `_TwoFunctions`."""
        exposure = as_exposure(self.exposure, y.size)
        mu = mean_of(f, exposure)
        count = y * (f + np.log(exposure)) - mu - gammaln(y + 1.0)
        # log(1 - pi) = log_expit(-g).
        return np.asarray(log_expit(-g) + np.where(y > 0, count, np.logaddexp(g, -mu)))

    def derivatives(self, y: Data, f: FloatArray, g: FloatArray) -> _Derivatives:
        """See `_TwoFunctions`."""
        mu = mean_of(f, as_exposure(self.exposure, y.size))
        share, zero = expit(g), y == 0
        extra = np.where(zero, expit(g + mu), 0.0)  # P(the zero is an extra one)
        both = extra * expit(-g - mu)
        with np.errstate(invalid="ignore"):  # a rate beyond double precision is no zero
            rest = np.where(zero, expit(-g - mu) * mu, mu)
            bend, cross = (np.where(both > 0.0, both * x, 0.0) for x in (mu**2, mu))
        first = np.where(zero, 0.0, y) - np.nan_to_num(rest, nan=0.0), extra - share
        second = -np.nan_to_num(rest, nan=0.0) + bend, cross, both - share * expit(-g)
        return first, second

    def moments(self, f: FloatArray, g: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See `_TwoFunctions`."""
        mu = mean_of(f, float(self.exposure))
        return expit(-g) * mu, np.sqrt(expit(-g) * mu * (1.0 + expit(g) * mu))

    def given(self, f: FloatArray, g: FloatArray, rng: np.random.Generator) -> Data:
        """See `_TwoFunctions`."""
        counts = draw_counts(mean_of(f, as_exposure(self.exposure, f.shape[-1])), rng)
        return np.where(rng.random(f.shape) < expit(g), 0, counts)

    def chance(self, f: FloatArray, g: FloatArray) -> FloatArray:
        """See `_TwoFunctions`."""
        own = np.exp(-mean_of(f, float(self.exposure)))
        return np.asarray(own + expit(g) * (1.0 - own))


@dataclass(frozen=True, eq=False)
class BetaBinomial(_TwoFunctions):
    r"""Successes of n trials that vary more than binomial ones, by a precision of their own.

    .. math:: y_i \sim \mathrm{Binomial}(n_i, p_i), \quad
        p_i \sim \mathrm{Beta}\{\mu_i \phi_i, (1 - \mu_i) \phi_i\}, \quad
        \mathrm{logit}\, \mu_i = f(x_i), \quad \log \phi_i = g(x_i) + \text{level}

    There are two functions at each input, named "logit_mean" and "log_precision". The kernel is
    that of both, times the ``coregion`` that ``gp.posterior`` takes, and so is the mean function.

    Parameters
    ----------
    n : int or array_like of int, shape (n,)
        Trials.
    level : float, default 0
        Of the log precision. It may be a random variable of a PyMC model, whose value ``point``
        then gives.

    Raises
    ------
    ValueError
        When used: fewer trials than successes, negative or fractional counts.

    Notes
    -----
    Forecasts of the successes in n trials, in one where each row has its own number: ``y_mean``,
    ``y_sd``, ``y_quantile``; ``p_mean``, the probability that a trial is a success; draws ``y``.

    References
    ----------
    .. [1] D. A. Williams (1975), The analysis of binary responses from toxicological experiments
       involving reproduction and teratogenicity, doi:10.2307/2529820.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> litters = sg.likelihoods.BetaBinomial(n=10, level=2.0)
    >>> posterior = gp.posterior([0.0, 0.1, 2.0], [0, 3, 9], likelihood=litters)
    >>> new = posterior.predict([2.0], draws=0)["predictions_summary"]
    >>> bool(new["p_mean"].item() > 0.5)
    True
    """

    n: Any
    level: Any = 0.0

    names = "logit_mean", "log_precision"
    row_parameters = ("n",)
    chance_name = "p_mean"

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Successes, with the parameters checked."""
        check.as_float_array("level", self.level, 0)
        return as_successes(y, self.n, n)

    def _parts(self, y: Data, f: FloatArray, g: FloatArray) -> Any:
        trials = as_trials(self.n, y.size)
        phi = np.exp(np.clip(g, *_LOG_PRECISIONS))
        return trials, (phi * expit(f), y), (phi * expit(-f), trials - y), (phi, trials)

    def log_prob(self, y: Data, f: FloatArray, g: FloatArray) -> FloatArray:
        """See `_TwoFunctions`."""
        trials, *parts = self._parts(y, f, g)
        a, b, whole = (log_rising(*x)[0] for x in parts)
        return np.asarray(log_choose(trials, y) + a + b - whole)

    def derivatives(self, y: Data, f: FloatArray, g: FloatArray) -> _Derivatives:
        """See `_TwoFunctions`."""
        _, *parts = self._parts(y, f, g)
        # Times the argument, and its square.
        of_each = [log_rising(*x) for x in parts]
        first, second = ([x[i] for x in of_each] for i in (1, 2))
        p, q = expit(f), expit(-f)
        in_f = q * first[0] - p * first[1]
        in_g = first[0] + first[1] - first[2]
        ff = q**2 * second[0] + p**2 * second[1] + q * (q - p) * first[0] - p * (q - p) * first[1]
        fg = in_f + q * second[0] - p * second[1]
        gg = in_g + second[0] + second[1] - second[2]
        return (in_f, in_g), (ff, fg, gg)

    def moments(self, f: FloatArray, g: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See `_TwoFunctions`."""
        n, phi = int(self.n), np.exp(np.clip(g, *_LOG_PRECISIONS))
        return n * expit(f), np.sqrt(n * expit(f) * expit(-f) * ((phi + n) / (phi + 1.0)))

    def given(self, f: FloatArray, g: FloatArray, rng: np.random.Generator) -> Data:
        """See `_TwoFunctions`."""
        trials = as_trials(self.n, f.shape[-1])
        with np.errstate(over="ignore"):
            phi = np.clip(np.exp(g), *_DRAWN)
        a, b = (np.maximum(phi * expit(x), _DRAWN[0]) for x in (f, -f))
        return rng.binomial(trials, rng.beta(a, b))

    def chance(self, f: FloatArray, g: FloatArray) -> FloatArray:
        """See `_TwoFunctions`."""
        return np.asarray(expit(f))


# Beyond them nothing changes in double precision.
_LOG_PRECISIONS = -600.0, 300.0
# Precisions that NumPy draws Beta variables of.
_DRAWN = 1e-300, 1e15
# Arguments over 1 + y from which on a series has all digits that a difference of logs loses.
_FAR = 1e3


def log_rising(x: FloatArray, y: Data) -> tuple[FloatArray, FloatArray, FloatArray]:
    r"""Log of :math:`x (x + 1) \cdots (x + y - 1)`, and x and x^2 times its two derivatives.

    Far out by the first terms of the series of Tricomi & Erdelyi (1951), in
    :math:`m = x + (y - 1) / 2`, :math:`y \log m - y (y^2 - 1) / (24 m^2)`.
    """
    y = np.broadcast_to(y, x.shape) * 1.0
    far = x > _FAR * (1.0 + y)
    near = np.where(far, 1.0, np.maximum(x, 1e-300))
    with np.errstate(invalid="ignore", over="ignore"):
        middle = np.where(far, x, 1e9) + 0.5 * (y - 1.0)
        third = y * (y**2 - 1.0)
        share = np.where(np.isfinite(middle), np.where(far, x, 1e9) / middle, 1.0)
        series = (
            y * np.log(middle) - third / (24.0 * middle**2),
            share * (y + third / (12.0 * middle**2)),
            share**2 * (-y - third / (4.0 * middle**2)),
        )
        value = gammaln(near + y) - gammaln(near)
        first = digamma(near + y) - digamma(near)
        second = polygamma(1, near + y) - polygamma(1, near)
    counted = y > 0
    plain = value, near * first, near**2 * second
    found = (np.where(far, own, other) for own, other in zip(series, plain, strict=True))
    return tuple(np.where(counted, own, 0.0) for own in found)  # type: ignore[return-value]


# An outcome that is seen only where another process selects it.

OUTCOME, SELECTION = 0, 1


@dataclass(frozen=True, eq=False)
class Selection(Likelihood):
    r"""Outcomes that are seen only where they are selected (Heckman's model).

    .. math::

        y_i = f_1(x_i) + \sigma e_{1i} \;\text{ where }\; f_2(x_i) + e_{2i} > 0, \qquad
        \mathrm{corr}(e_{1i}, e_{2i}) = \rho

    with standard normal e. Of the others it is only known that they were not selected. There are
    two functions at each input, named "outcome" and "selection". The kernel is that of both, times
    the ``coregion`` that ``gp.posterior`` takes: its diagonal gives each its variance, in the units
    of y squared for the outcome. The mean function is that of both: centre y, and use a mean of 0.

    Parameters
    ----------
    sigma : float
        Standard deviation of the outcome's noise, in the units of y. It may be a random variable of
        a PyMC model, whose value ``point`` then gives.
    rho : float, default 0
        Correlation of the two noises, strictly between -1 and 1. With 0 selection is ignorable
        given the functions. It may be a random variable too.

    Raises
    ------
    ValueError
        When used: sigma not positive, rho outside of (-1, 1), y of another length than X or
        infinite. NaN in y stands for what was not selected.

    Notes
    -----
    Forecasts: ``y_mean`` and ``y_sd`` of an outcome whether selected or not; ``p_selected``;
    ``y_mean_selected``, of an outcome that is selected; each with its standard error ``_se``.

    References
    ----------
    .. [1] J. J. Heckman (1979), Sample selection bias as a specification error,
       doi:10.2307/1912352.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> X, y = np.array([[0.0], [1.0], [2.0]]), np.array([np.nan, 1.1, 1.4])
    >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> posterior = gp.posterior(
    ...     X, y, likelihood=sg.likelihoods.Selection(0.3, 0.5), coregion=[[2.0, 0.0], [0.0, 1.0]]
    ... )
    >>> new = posterior.predict([[0.0], [2.0]])["predictions_summary"]
    >>> new["p_selected"].values.round(1)
    array([0.4, 0.7])
    """

    sigma: Any
    rho: Any = 0.0

    sigma_of_points_only: ClassVar[bool] = True

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Values as floats, NaN where not selected."""
        check.as_positive("sigma", float(self.sigma) if np.ndim(self.sigma) == 0 else self.sigma)
        if np.ndim(self.rho) or not -1.0 < float(self.rho) < 1.0:
            raise ValueError(
                f"rho must be one number strictly between -1 and 1, got {self.rho!r}; noises of "
                "correlation 1 are one noise."
            )
        values = check.as_real_array("y", y)
        base.refuse_shape("y", values, n, "value, or NaN where it was not selected,")
        if np.isinf(values).any():
            raise ValueError(
                f"y holds {int(np.isinf(values).sum())} infinite value(s): give NaN where an "
                "outcome was not selected."
            )
        return values.copy()

    def n_functions(self, y: Data) -> int:
        """Two."""
        return 2

    def coords(self, y: Data) -> dict[str, Sequence[Any]]:
        """Names of the functions."""
        return {self.function_dim: ["outcome", "selection"]}

    def observations(self, y: Data, n: int) -> Observations:
        """An interval of the selection for each row, then a point for each outcome that is seen."""
        selected, sigma = ~np.isnan(y), float(self.sigma)
        every: Any = sparse.eye_array(n, format="csr")
        seen = every[selected]
        A: Any = sparse.vstack([sparse.kron(every, [[0.0, 1.0]]), sparse.kron(seen, [[1.0, 0.0]])])
        shared = float(self.rho) * sigma * seen
        own = sigma**2 * sparse.eye_array(seen.shape[0])
        noise = sparse.block_array([[every, shared.T], [shared, own]], format="csr")
        limits = np.where(selected, 0.0, -np.inf), np.where(selected, np.inf, 0.0)
        rows = stacked([intervals(*limits, np.ones(n)), points(y[selected], own.diagonal())])
        return replace(rows, A=sparse.csr_array(A), S=noise)

    def log_likelihood(self, y: Data, f: FloatArray) -> FloatArray:
        """Log density of an outcome that is seen; log probability of one that is not."""
        sigma, rho = float(self.sigma), float(self.rho)
        seen = ~np.isnan(y)
        result = np.empty(f.shape[:-1])
        result[..., ~seen] = log_ndtr(-f[..., ~seen, SELECTION])
        z = (y[seen] - f[..., seen, OUTCOME]) / sigma
        shifted = (f[..., seen, SELECTION] + rho * z) / np.sqrt(1.0 - rho**2)
        result[..., seen] = log_ndtr(shifted) + log_density(y[seen], f[..., seen, OUTCOME], sigma)
        return result

    def draw(self, f: FloatArray, rng: np.random.Generator) -> Data:
        """New data, NaN where not selected."""
        drawn, selected = self._drawn(f, rng)
        drawn[~selected] = np.nan
        return drawn

    def predictive_draws(self, f: FloatArray, rng: np.random.Generator) -> dict[str, Data]:
        """``y``, outcomes whether selected or not, and ``selected``."""
        return dict(zip(("y", "selected"), self._drawn(f, rng), strict=True))

    def predictive_summary(self, mixture: Mixture) -> dict[str, FloatArray]:
        """``y_mean``, ``y_sd``, ``p_selected`` and ``y_mean_selected``, with their errors."""
        covariance = mixture.covariance
        assert covariance is not None  # of two functions
        outcome, selection = (some_values(mixture, slice(i, None, 2)) for i in (OUTCOME, SELECTION))
        probability = interval_probability(selection, 0.0, np.inf)
        # Of y and the noisy selection v2 given u; their mean where v2 > 0, times P(v2 > 0).
        spread = np.sqrt(selection.variance + 1.0)[:, None]
        shared = covariance[:, OUTCOME, SELECTION] + float(self.rho) * float(self.sigma)
        z = selection.means / spread
        mass = ndtr(z)
        density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
        total = mass @ mixture.weights
        part = outcome.means * mass + shared[:, None] / spread * density
        among = (part @ mixture.weights) / total
        influence = (part - among[:, None] * mass) / total[:, None]
        return noisy_summary(outcome, float(self.sigma) ** 2) | {
            "p_selected": probability.value,
            "p_selected_se": probability.std_error,
            "y_mean_selected": among,
            "y_mean_selected_se": base.average_error(mixture, influence),
        }

    def _drawn(self, f: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, Data]:
        """Outcomes, and which of them are selected."""
        rho = float(self.rho)
        shared, own = rng.standard_normal((2, *f.shape[:-1]))
        noise = rho * shared + np.sqrt(1.0 - rho**2) * own
        selected = f[..., SELECTION] + shared > 0
        return f[..., OUTCOME] + float(self.sigma) * noise, selected
