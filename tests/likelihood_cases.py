"""A row for every public likelihood: numbers for its parameters, data, and what others say of them.

Tests take their cases from here by reflection: log probabilities, slopes, replicated data, evidence
and forecasts against SciPy's distribution by quadrature, PyMC's log probability, calibration,
pickling, types of numbers. A new likelihood is one row of `CASES`; `Case` says what is in it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pymc as pm
from mpmath import exp, log
from scipy import stats
from scipy.special import expit, ndtr

from pymc_skewgp import likelihoods as of
from pymc_skewgp._observations.sites import SiteLikelihood

N = 8
X = np.linspace(-2.0, 2.0, N)[:, None]


@dataclass(frozen=True)
class Case:
    """A likelihood with numbers.

    Attributes
    ----------
    kind : type
        The class.
    arguments : dict
        Its parameters, one number each where a number will do; those that may be random variables
        are not integers.
    y : array_like or callable
        Eight observations; or from the number of inputs to data that are about several of these.
    given : callable, optional
        From f and the parameters to SciPy's distribution of y given f. Without one there are tests
        of the likelihood's own, and `simulate`.
    pymc : callable, optional
        Likewise to PyMC's distribution.
    each : dict
        Parameters that may be one number for each observation: eight numbers of each.
    whole : dict
        Parameters in whole numbers, some of them so large that a byte does not hold their squares.
    whole_y : array_like, optional
        Data for them; `y` rounded up unless given.
    simulate : callable, optional
        From f, a generator and the parameters to new data; by `given` unless given.
    exact : callable, optional
        Log p(y | f) from y, f and the parameters as numbers of mpmath.
    options : dict
        Further arguments of ``gp.posterior``.
    refused : tuple
        What an error says: parameters other than `arguments`, data of three inputs, the words.
    """

    kind: Any
    arguments: dict[str, Any]
    y: Any
    given: Callable[..., Any] | None = None
    pymc: Callable[..., Any] | None = None
    each: dict[str, Any] = field(default_factory=dict)
    whole: dict[str, Any] = field(default_factory=dict)
    whole_y: Any = None
    simulate: Callable[..., Any] | None = None
    exact: Callable[..., Any] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    refused: tuple[tuple[dict[str, Any], Any, str], ...] = ()

    @property
    def likelihood(self) -> Any:
        """With one number for each parameter."""
        return self.kind(**self.arguments)

    @property
    def is_factor(self) -> bool:
        """Whether it is log p(y | f), rather than rows."""
        return issubclass(self.kind, SiteLikelihood)

    def arguments_of(self, n: int) -> dict[str, Any]:
        """Parameters of n observations, one number for each of them where that may be."""
        return self.arguments | {name: np.resize(x, n) for name, x in self.each.items()}

    def data(self, n: int = N) -> Any:
        """Data of n inputs."""
        if self.y is None or callable(self.y):
            return self.y and self.y(n)
        return np.resize(self.y, n)

    def draw(self, f: Any, rng: np.random.Generator, **arguments: Any) -> Any:
        """New data given f, not by the likelihood."""
        if self.simulate is not None:
            return self.simulate(f, rng, **arguments)
        assert self.given is not None
        return self.given(f, **arguments).rvs(size=np.shape(f), random_state=rng)


def log_prob(given: Any, y: Any) -> Any:
    """Of a distribution of SciPy's form, of numbers or of counts."""
    counts = hasattr(given, "logpmf") and not hasattr(getattr(given, "dist", None), "pdf")
    return given.logpmf(y) if counts else given.logpdf(y)


class Levels:
    """Which of the intervals between cut-points f + noise is in, in SciPy's form."""

    def __init__(self, f: Any, cutpoints: Any, noise: Any) -> None:
        self.f, self.noise = f, noise
        self.ends = np.concatenate([[-np.inf], cutpoints, [np.inf]])

    def pmf(self, y: Any) -> Any:
        low, high = self.ends[y] - self.f, self.ends[np.add(y, 1)] - self.f
        on_the_right = self.noise.sf(low) - self.noise.sf(high)
        return np.where(low > 0, on_the_right, self.noise.cdf(high) - self.noise.cdf(low))

    def logpmf(self, y: Any) -> Any:
        return np.log(self.pmf(y))

    def cdf(self, y: Any) -> Any:
        return np.where(y < 0, 0.0, self.noise.cdf(self.ends[np.maximum(y, -1) + 1] - self.f))

    def rvs(self, size: Any, random_state: Any) -> Any:
        noise = self.noise.rvs(size=size, random_state=random_state)
        return np.searchsorted(self.ends[1:-1], self.f + noise)


class Clipped:
    """A normal value with limits, in SciPy's form."""

    def __init__(self, f: Any, sigma: Any, lower: Any, upper: Any) -> None:
        self.f, self.sigma = f, sigma
        self.normal, self.lower, self.upper = stats.norm(f, sigma), lower, upper

    def logpdf(self, y: Any) -> Any:
        beyond = np.where(y >= self.upper, self.normal.logsf(self.upper), self.normal.logpdf(y))
        return np.where(y <= self.lower, self.normal.logcdf(self.lower), beyond)

    def cdf(self, y: Any) -> Any:
        within = np.where(y < self.lower, 0.0, self.normal.cdf(y))
        return np.where(y >= self.upper, 1.0, within)

    def mean(self) -> Any:
        return self._moment(1)

    def var(self) -> Any:
        return self._moment(2) - self._moment(1) ** 2

    def _moment(self, power: int) -> Any:
        a, b = (self.lower - self.f) / self.sigma, (self.upper - self.f) / self.sigma
        low, high = self.normal.cdf(self.lower), self.normal.sf(self.upper)
        at_limits = self.lower**power * low + self.upper**power * high
        slope = self.sigma * (stats.norm.pdf(a) - stats.norm.pdf(b))
        if power == 1:
            return at_limits + self.f * (1.0 - low - high) + slope
        turn = self.sigma**2 * (a * stats.norm.pdf(a) - b * stats.norm.pdf(b))
        within = (self.f**2 + self.sigma**2) * (1.0 - low - high)
        return at_limits + within + 2.0 * self.f * slope + turn

    def rvs(self, size: Any, random_state: Any) -> Any:
        values = self.normal.rvs(size=size, random_state=random_state)
        return np.clip(values, self.lower, self.upper)


class Power:
    """A distribution whose log probability counts more, or less, than once."""

    def __init__(self, given: Any, weights: Any) -> None:
        self.given, self.weights = given, weights
        self.cdf, self.mean, self.var, self.rvs = given.cdf, given.mean, given.var, given.rvs

    def logpmf(self, y: Any) -> Any:
        return self.weights * self.given.logpmf(y)


# Comparisons of some of n items, classes and selections: data, and how new ones come about.


def sets(n: int, k: int = 4) -> Any:
    """Different items of each row; in every third one item less."""
    rng = np.random.default_rng(18)
    found = np.array([rng.choice(n, k, replace=False) for _ in range(14 if k > 2 else 30)])
    found[::3, 3:] = -1
    return found


def duels(n: int) -> Any:
    """Winner, loser, and whether neither was ahead."""
    return np.pad(sets(n, 2), ((0, 0), (0, 1)))


def utilities(f: Any, items: Any, rng: np.random.Generator, sigma: float) -> Any:
    """With noise, in each observation anew; of nobody the smallest there is."""
    found = f[items] + sigma * rng.standard_normal(items.shape)
    return np.where(items < 0, -np.inf, found)


def new_duels(f: Any, rng: np.random.Generator, sigma: float, threshold: float) -> Any:
    items = sets(f.size, 2)
    first, second = utilities(f, items, rng, sigma).T
    ordered = np.where((first > second)[:, None], items, items[:, ::-1])
    return np.column_stack([ordered, np.abs(first - second) < threshold])


def new_rankings(f: Any, rng: np.random.Generator, sigma: float) -> Any:
    items = sets(f.size)
    return np.take_along_axis(items, np.argsort(-utilities(f, items, rng, sigma), axis=1), axis=1)


def new_choices(f: Any, rng: np.random.Generator, sigma: float) -> Any:
    """The chosen one first, the others in their old order."""
    items = sets(f.size)
    best = utilities(f, items, rng, sigma).argmax(axis=1)
    pairs = zip(items, best, strict=True)
    return np.array([[row[first], *np.delete(row, first)] for row, first in pairs])


def new_classes(f: Any, rng: np.random.Generator, n_classes: int) -> Any:
    return (f + rng.standard_normal(f.shape)).argmax(axis=1)


def new_outcomes(f: Any, rng: np.random.Generator, sigma: float, rho: float) -> Any:
    """Seen where the second function with its noise is positive; the noises are correlated."""
    e = rng.standard_normal((2, len(f)))
    selection = f[:, 1] + rho * e[0] + np.sqrt(1.0 - rho**2) * e[1]
    return np.where(selection > 0, f[:, 0] + sigma * e[0], np.nan)


def new_spread(f: Any, rng: np.random.Generator, level: float) -> Any:
    return rng.normal(f[:, 0], np.exp(f[:, 1] + level))


def new_zero_inflated(f: Any, rng: np.random.Generator, exposure: Any, level: float) -> Any:
    there = rng.random(len(f)) >= expit(f[:, 1] + level)
    return there * rng.poisson(exposure * np.exp(f[:, 0]))


def new_beta_binomial(f: Any, rng: np.random.Generator, n: Any, level: float) -> Any:
    mean, precision = expit(f[:, 0]), np.exp(f[:, 1] + level)
    return stats.betabinom(n, precision * mean, precision * (1 - mean)).rvs(random_state=rng)


def new_logit_classes(f: Any, rng: np.random.Generator, n_classes: int) -> Any:
    p = np.exp(f) / np.exp(f).sum(axis=1, keepdims=True)
    return (rng.random((len(f), 1)) > p.cumsum(axis=1)).sum(axis=1)


# Log probabilities by mpmath; constants in f are computed once.

log_gamma = cache(mpmath.loggamma)


def log_odds(y: Any, n: Any, f: Any) -> Any:
    constant = log_gamma(n + 1) - log_gamma(y + 1) - log_gamma(n - y + 1)
    return constant - y * log(1 + exp(-f)) - (n - y) * log(1 + exp(f))


def log_poisson(y: Any, f: Any, exposure: Any) -> Any:
    return y * (f + log(exposure)) - exposure * exp(f) - log_gamma(y + 1)


def log_negative_binomial(y: Any, f: Any, alpha: Any, exposure: Any) -> Any:
    odds = exposure * exp(f) / alpha
    constant = log_gamma(y + alpha) - log_gamma(y + 1) - log_gamma(alpha)
    return constant - (alpha + y) * log(1 + odds) + y * log(odds)


def log_of_gamma(y: Any, f: Any, alpha: Any) -> Any:
    rate = alpha / exp(f)
    return alpha * log(rate) - log_gamma(alpha) + (alpha - 1) * log(y) - rate * y


LABELS = np.array([0, 1, 0, 0, 1, 1, 0, 1])
VALUES = np.array([-0.4, 0.2, -1.1, 0.3, 0.9, 1.6, 0.1, 0.8])
POSITIVE = np.array([0.3, 1.2, 0.1, 0.8, 2.5, 4.0, 0.6, 1.1])
LEVELS = np.array([0, 1, 0, 2, 1, 2, 2, 1])
COUNTS = np.array([0, 3, 1, 7, 1, 4, 0, 2])
SUCCESSES = np.array([1, 2, 0, 1, 3, 4, 0, 2])
TRIALS = np.array([3, 2, 5, 0, 4, 6, 2, 3])
SD = np.array([0.3, 0.5, 0.2, 0.8, 1.0, 0.4, 0.3, 0.6])
EXPOSURES = np.array([1.0, 4.0, 2.0, 1.0, 0.3, 1.5, 1.0, 2.0])
WEIGHTS = np.array([2.0, 0.5, 0.0, 1.0, 1.5, 1.0, 0.3, 1.0])
CUTS = np.array([-0.5, 0.9])
WIDE_CUTS = np.array([-100, 100])
LARGE, FEW = np.full(N, 100), np.array([3, 2, 5, 3, 1, 4, 7, 6])

ROWS = (
    Case(
        of.BernoulliProbit,
        {},
        LABELS,
        lambda f: stats.bernoulli(ndtr(f)),
        lambda f: pm.Bernoulli.dist(pm.math.invprobit(f)),
    ),
    Case(
        of.BernoulliLogit,
        {},
        LABELS,
        lambda f: stats.bernoulli(expit(f)),
        lambda f: pm.Bernoulli.dist(logit_p=f),
        exact=lambda y, f: log_odds(y, 1, f),
        refused=(({}, [0, 2, 1], "y must hold two classes"),),
    ),
    Case(
        of.BinomialProbit,
        {"n": 7},
        SUCCESSES,
        lambda f, n: stats.binom(n, ndtr(f)),
        lambda f, n: pm.Binomial.dist(n, pm.math.invprobit(f)),
        each={"n": TRIALS + SUCCESSES},
        whole={"n": LARGE + 20},
        whole_y=100 * LABELS,
    ),
    Case(
        of.BinomialLogit,
        {"n": 7},
        SUCCESSES,
        lambda f, n: stats.binom(n, expit(f)),
        lambda f, n: pm.Binomial.dist(n, logit_p=f),
        each={"n": TRIALS + SUCCESSES},
        whole={"n": 120},
        whole_y=100 * LABELS,
        exact=lambda y, f, n: log_odds(y, n, f),
        refused=(
            ({"n": 4}, [0, 5, 1], "exceed the number of trials n; row 1 has 5"),
            ({"n": [4, 4]}, [0, 1, 1], r"n must have shape \(3,\)"),
        ),
    ),
    Case(
        of.OrderedProbit,
        {"cutpoints": CUTS, "sigma": 0.7},
        LEVELS,
        lambda f, cutpoints, sigma: Levels(f, cutpoints, stats.norm(0.0, sigma)),
        lambda f, cutpoints, sigma: pm.OrderedProbit.dist(
            eta=f, cutpoints=cutpoints, sigma=sigma, compute_p=False
        ),
        whole={"cutpoints": WIDE_CUTS, "sigma": 100},
    ),
    Case(
        of.OrderedLogit,
        {"cutpoints": CUTS},
        LEVELS,
        lambda f, cutpoints: Levels(f, cutpoints, stats.logistic()),
        lambda f, cutpoints: pm.OrderedLogistic.dist(eta=f, cutpoints=cutpoints, compute_p=False),
        whole={"cutpoints": WIDE_CUTS},
        refused=(
            ({}, [0, 4, 1], r"categories 0 to 2.*row 1 has 4 \(1 such row"),
            ({"cutpoints": [1.0, 0.0]}, [0, 1, 1], "cutpoints must increase"),
            ({"categories": ["a"]}, [0, 1, 1], "categories must be 3 names"),
            ({"categories": ["a", "b", "c"]}, ["a", "e", "b"], "found 'e' in 1 row"),
        ),
    ),
    Case(
        of.Poisson,
        {"exposure": 2.0},
        COUNTS,
        lambda f, exposure: stats.poisson(exposure * np.exp(f)),
        lambda f, exposure: pm.Poisson.dist(exposure * pm.math.exp(f)),
        each={"exposure": EXPOSURES},
        whole={"exposure": LARGE},
        whole_y=100 * LABELS,
        exact=log_poisson,
        refused=(
            ({}, [0, -2, 1], r"counts of 0 and more; row 1 has -2 \(1 such row"),
            ({}, [0, 0.5, 1], "y must hold integers, one count for each row of X; row 1"),
            ({}, [0, np.nan, 1], "y must be finite"),
            ({"exposure": [1.0, 0.0, 2.0]}, [0, 1, 2], r"exposure must be positive; row 1 has 0"),
            ({"exposure": [1.0, 2.0]}, [0, 1, 2], "exposure must have length 3, got 2"),
            ({"exposure": np.inf}, [0, 1, 2], "exposure holds 3 infinite value"),
        ),
    ),
    Case(
        of.NegativeBinomial,
        {"alpha": 1.7, "exposure": 3.0},
        COUNTS,
        lambda f, alpha, exposure: stats.nbinom(alpha, alpha / (alpha + exposure * np.exp(f))),
        lambda f, alpha, exposure: pm.NegativeBinomial.dist(
            mu=exposure * pm.math.exp(f), alpha=alpha
        ),
        each={"exposure": EXPOSURES},
        whole={"alpha": 100, "exposure": 100},
        whole_y=100 * LABELS,
        exact=log_negative_binomial,
        refused=(
            ({"alpha": 0.0}, [0, 1, 2], "alpha must be positive, got 0"),
            ({"exposure": -1.0}, [0, 1, 2], "exposure must be positive; row 0 has -1"),
        ),
    ),
    Case(
        of.Gamma,
        {"alpha": 2.5},
        POSITIVE,
        lambda f, alpha: stats.gamma(alpha, scale=np.exp(f) / alpha),
        lambda f, alpha: pm.Gamma.dist(alpha=alpha, beta=alpha / pm.math.exp(f)),
        whole={"alpha": 100},
        exact=log_of_gamma,
        refused=(
            ({"alpha": -1.0}, [1.0, 1.0, 2.0], "alpha must be positive, got -1"),
            ({}, [1.0, 0.0, 2.0], "y must be positive; row 1 has 0"),
            ({"alpha": np.ones(3)}, [1.0, 1.0, 1.0], "alpha must be a number"),
        ),
    ),
    Case(
        of.Weibull,
        {"sigma": 0.6},
        POSITIVE,
        lambda f, sigma: stats.weibull_min(1.0 / sigma, scale=np.exp(f)),
        lambda f, sigma: pm.Weibull.dist(alpha=1.0 / sigma, beta=pm.math.exp(f)),
        whole={"sigma": 100},
        exact=lambda y, f, sigma: (log(y) - f) / sigma - exp((log(y) - f) / sigma) - log(sigma * y),
        refused=(
            ({"sigma": 0.0}, [1.0, 1.0, 2.0], "sigma must be positive, got 0"),
            ({}, [1.0, 0.0, 2.0], "y must be positive; row 1 has 0"),
            ({}, np.ones((3, 4)), r"y must have shape \(3,\), times; or \(3, 2\).*got \(3, 4\)"),
            ({}, [[1, 1], [2, 1], [1, 1]], "lower limits in y must not exceed upper ones; row 1"),
            ({}, [[1, 1], [1, np.nan], [1, 1]], r"y holds 1 NaN\(s\)"),
            ({}, [[1, 1], [-1, 1], [1, 1]], "lower limits in y must be 0 or more; row 1"),
            ({}, [[1, 1], [0, 0], [2, 2]], "seen must be positive and finite; row 1"),
            ({}, [[1, 1, 0], [1, 1, 2], [1, 1, 1]], "entries in y must be before the event; row 1"),
            ({}, [[1, 1, 0], [1, 1, -2], [1, 1, 1]], "entries in y must be 0 or more; row 1"),
            ({}, np.zeros(3, [("a", float), ("b", float)]), "one that is boolean.*got a, b"),
        ),
    ),
    Case(
        of.LogNormal,
        {"sigma": 0.6},
        POSITIVE,
        lambda f, sigma: stats.lognorm(sigma, scale=np.exp(f)),
        lambda f, sigma: pm.LogNormal.dist(f, sigma),
        whole={"sigma": 100},
        exact=lambda y, f, sigma: (
            -(((log(y) - f) / sigma) ** 2) / 2 - log(sigma * y) - log(2 * mpmath.pi) / 2
        ),
    ),
    Case(
        of.LogLogistic,
        {"sigma": 0.3},
        POSITIVE,
        lambda f, sigma: stats.fisk(1.0 / sigma, scale=np.exp(f)),
        whole={"sigma": 100},
        exact=lambda y, f, sigma: (
            (log(y) - f) / sigma - 2 * log(1 + exp((log(y) - f) / sigma)) - log(sigma * y)
        ),
    ),
    Case(
        of.Gaussian,
        {"sigma": 0.6},
        VALUES,
        lambda f, sigma: stats.norm(f, sigma),
        lambda f, sigma: pm.Normal.dist(f, sigma),
        each={"sigma": SD + 0.3},
        whole={"sigma": 100},
        whole_y=FEW,
    ),
    Case(
        of.CensoredGaussian,
        {"sigma": 0.6, "lower": 0.0, "upper": 1.5},
        VALUES.clip(0.0, 1.5),
        Clipped,
        lambda f, sigma, lower, upper: pm.Censored.dist(pm.Normal.dist(f, sigma), lower, upper),
        each={"sigma": SD + 0.3},
        whole={"sigma": LARGE, "lower": 2, "upper": np.full(N, 5)},
        whole_y=FEW.clip(2, 5),
    ),
    Case(
        of.StudentT,
        {"nu": 4.0, "sigma": 0.7},
        VALUES,
        lambda f, nu, sigma: stats.t(nu, f, sigma),
        lambda f, nu, sigma: pm.StudentT.dist(nu=nu, mu=f, sigma=sigma),
        each={"sigma": SD + 0.3},
        whole={"nu": 100, "sigma": 100},
        whole_y=FEW,
        refused=(
            ({"nu": 0.0}, [0.0, 1.0, 2.0], "nu must be positive, got 0"),
            ({"sigma": [1.0, -1.0, 1.0]}, [0.0, 1.0, 2.0], "sigma must be positive; row 1"),
            ({}, [0.0, np.inf, 2.0], "y must be finite"),
        ),
    ),
    Case(
        of.Laplace,
        {"b": 0.7},
        VALUES,
        lambda f, b: stats.laplace(f, b),
        lambda f, b: pm.Laplace.dist(mu=f, b=b),
        each={"b": SD},
        whole={"b": 100},
        whole_y=FEW,
        refused=(({"b": 0.0}, [0.0, 1.0, 2.0], "b must be positive; row 0 has 0"),),
    ),
    Case(
        of.Weighted,
        {"likelihood": of.Poisson(), "weights": 1.0},
        COUNTS,
        lambda f, likelihood, weights: Power(stats.poisson(np.exp(f)), weights),
        each={"weights": WEIGHTS},
        whole={"weights": 100},
        refused=(
            ({"weights": [1.0, -1.0, 0.0]}, [0, 1, 2], "weights must be 0 or more; row 1"),
            ({"weights": [1.0, 1.0]}, [0, 1, 2], "weights must have length 3"),
        ),
    ),
    Case(of.MultinomialProbit, {"n_classes": 3}, LEVELS, whole_y=LABELS + 1, simulate=new_classes),
    Case(of.Softmax, {"n_classes": 3}, LEVELS, whole_y=LABELS + 1, simulate=new_logit_classes),
    Case(
        of.HeteroscedasticGaussian, {"level": -0.5}, VALUES, whole={"level": 1}, simulate=new_spread
    ),
    Case(
        of.ZeroInflatedPoisson,
        {"exposure": 1.5, "level": -0.5},
        COUNTS,
        whole={"exposure": 100, "level": 1},
        simulate=new_zero_inflated,
        refused=(({}, [0, -1, 2], "counts of 0 and more"),),
    ),
    Case(
        of.BetaBinomial,
        {"n": 10, "level": 1.5},
        COUNTS,
        whole={"n": 100, "level": 1},
        simulate=new_beta_binomial,
        refused=(({"n": 2}, [0, 3, 2], "number of trials"),),
    ),
    Case(
        of.Preference,
        {"sigma": 0.6, "threshold": 0.5},
        duels,
        whole={"sigma": 100, "threshold": 100},
        simulate=new_duels,
    ),
    Case(of.Choice, {"sigma": 0.6}, sets, whole={"sigma": 100}, simulate=new_choices),
    Case(of.Ranking, {"sigma": 0.6}, sets, whole={"sigma": 100}, simulate=new_rankings),
    Case(
        of.Selection,
        {"sigma": 0.5, "rho": 0.6},
        np.where(LABELS == 1, VALUES, np.nan),
        whole={"sigma": 100, "rho": 0},
        whole_y=FEW,
        simulate=new_outcomes,
        options={"coregion": np.eye(2)},
    ),
    Case(of.Constraint, {"lower": -0.5, "upper": 1.0}, None, whole={"lower": -100, "upper": 100}),
)
CASES = {case.kind.__name__: case for case in ROWS}
# Those whose observations are independent given f, of one value of it each.
GIVEN = {name: case for name, case in CASES.items() if case.given is not None}
