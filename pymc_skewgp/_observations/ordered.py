"""Ordered categories under probit and logit links."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, ndtr

from pymc_skewgp._observations import binary
from pymc_skewgp._observations import likelihood as base
from pymc_skewgp._observations.likelihood import Data
from pymc_skewgp._observations.observations import Observations, intervals
from pymc_skewgp._observations.probability import interval_probability
from pymc_skewgp._observations.sites import ClosedFormSites, FactorFunctions
from pymc_skewgp._validation import FloatArray, as_positive, as_vector

# Ordered categories between cut-points: limits, names, checked data.


def limits_of(cutpoints: Any) -> FloatArray:
    """Cut-points between minus and plus infinity, shape (K+1,)."""
    cuts = as_vector("cutpoints", np.atleast_1d(cutpoints))
    if not cuts.size:
        raise ValueError("cutpoints is empty: two categories have one cut-point.")
    falling = np.flatnonzero(~(np.diff(cuts) > 0))
    if falling.size:
        i = int(falling[0])
        raise ValueError(
            f"cutpoints must increase: cut-point {i} is {cuts[i]:.6g} and cut-point {i + 1} is "
            f"{cuts[i + 1]:.6g}."
        )
    return np.concatenate([[-np.inf], cuts, [np.inf]])


def as_categories(
    y: ArrayLike, n: int, n_categories: int, names: Sequence[Any] | None
) -> NDArray[np.int64]:
    """Categories as numbers 0 to K-1; `names` of them, given or declared by y, may be in y."""
    names = declared_order(y) if names is None else names
    if names is not None:
        if len(names) != n_categories:
            raise ValueError(
                f"categories must be {n_categories} names, one more than there are cut-points; got "
                f"{len(names)}."
            )
        if len(set(names)) < len(names):
            raise ValueError(f"categories must differ from each other, got {list(names)}.")
        return base.as_codes(y, n, names)
    codes = base.as_integers(y, n, "category")
    must = f"hold categories 0 to {n_categories - 1}, one more than there are cut-points"
    base.refuse_rows("y", codes, (codes < 0) | (codes >= n_categories), must)
    return codes


def declared_order(y: Any) -> Any:
    """Categories of an ordered pandas.Categorical, a Series, an Index or one column of such."""
    dtypes = list(getattr(y, "dtypes", ())) if getattr(y, "ndim", 1) == 2 else [y]
    dtype: Any = getattr(dtypes[0], "dtype", dtypes[0]) if len(dtypes) == 1 else None
    return dtype.categories if getattr(dtype, "ordered", False) else None


class _OrderedCategories(base.Likelihood):
    """What categories between cut-points have in common, whatever the noise."""

    cutpoints: Any
    categories: Any
    below: Callable[[FloatArray], FloatArray]  # distribution function of the noise
    noise: Callable[[tuple[int, ...], np.random.Generator], FloatArray]
    noise_parts: Any  # its variance, or the variances that it is a mixture of
    predicted_dims = dict.fromkeys(("p", "p_mean", "p_mean_se"), ("category",))

    def __post_init__(self) -> None:
        object.__setattr__(self, "cutpoints", base.frozen_copy(self.cutpoints))
        if self.categories is not None:
            object.__setattr__(self, "categories", tuple(self.categories))

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Categories as numbers 0 to K-1, with the cut-points checked."""
        return as_categories(y, n, limits_of(self.cutpoints).size - 1, self.categories)

    def draw(self, f: FloatArray, rng: np.random.Generator) -> Data:
        """New categories."""
        inner = limits_of(self.cutpoints)[1:-1]
        return np.searchsorted(inner, f + self.noise(f.shape, rng)).astype(np.int64)

    def coords(self, y: Data) -> dict[str, Sequence[Any]]:
        """Names of the categories."""
        n_categories = limits_of(self.cutpoints).size - 1
        return {"category": list(self.categories or range(n_categories))}

    def predictive_draws(self, f: FloatArray, rng: np.random.Generator) -> dict[str, Data]:
        """``p``, the probability of each category, and ``y``, categories."""
        below = self.below(limits_of(self.cutpoints) - f[..., None])
        return {"p": np.diff(below, axis=-1), "y": self.draw(f, rng)}

    def predictive_summary(self, mixture: base.Mixture) -> dict[str, FloatArray]:
        """``p_mean``, probabilities of the categories, with Monte Carlo errors ``p_mean_se``."""
        limits, noise = limits_of(self.cutpoints), self.noise_parts
        found = [interval_probability(mixture, *ends, noise) for ends in pairwise(limits)]
        value, error = (np.stack(part, axis=-1) for part in zip(*found, strict=True))
        return {"p_mean": value, "p_mean_se": error}


@dataclass(frozen=True, eq=False)
class OrderedProbit(_OrderedCategories):
    r"""Categories 0 to K-1 in an order: :math:`y_i = c` where :math:`b_{c-1} < f(x_i) + e_i < b_c`.

    The cut-points :math:`b_0 < \dots < b_{K-2}` part the line, :math:`b_{-1} = -\infty` and
    :math:`b_{K-1} = \infty`, and :math:`e_i \sim N(0, \sigma^2)`:

    .. math:: P(y_i = c) = \Phi\{(b_c - f(x_i)) / \sigma\} - \Phi\{(b_{c-1} - f(x_i)) / \sigma\}

    Every row is an interval. It is the model of ``pm.OrderedProbit``. Shifting all cut-points and
    the mean of f together changes nothing, nor does a common factor of cut-points, noise and f: fix
    sigma at 1 and the mean of f at 0 where cut-points are free.

    Parameters
    ----------
    cutpoints : array_like, shape (K-1,)
        Cut-points, increasing, in the units of f. In a PyMC model they may be a random variable,
        whose value ``point`` then gives.
    sigma : float, default 1
        Standard deviation of the noise. It may be a random variable too.
    categories : sequence, optional
        Names of the K categories in their order: coordinates of what is predicted, and what y may
        hold instead of 0 to K-1. Default 0 to K-1.

    Raises
    ------
    ValueError
        When used: cut-points that do not increase or are not finite, noise that is not positive,
        names that repeat or are not K, levels of y out of range.

    Notes
    -----
    A category that never occurs in y is no error: with cut-points known its probability is too.
    Only where cut-points are learnt without a prior does it leave its width without an estimate.

    `SkewGPPosterior.predict` gives ``p_mean`` with its Monte Carlo error ``p_mean_se``, dimensions
    (pred_id, category), and draws ``p`` and ``y``, a category as a number from 0 to K-1.

    References
    ----------
    .. [1] J. H. Albert & S. Chib (1993), Bayesian analysis of binary and polychotomous response
       data, doi:10.1080/01621459.1993.10476321.
    .. [2] W. Chu & Z. Ghahramani (2005), Gaussian processes for ordinal regression, JMLR 6.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> ratings = sg.likelihoods.OrderedProbit([-1.0, 1.0], categories=["bad", "fair", "good"])
    >>> x = np.arange(6.0)[:, None]
    >>> posterior = gp.posterior(x, [0, 0, 1, 1, 2, 2], likelihood=ratings)
    >>> new = posterior.predict([[0.5], [4.5]])["predictions_summary"]["p_mean"]
    >>> new.sel(category="good").values.round(2)
    array([0.01, 0.83])
    """

    cutpoints: Any
    sigma: Any = 1.0
    categories: Any = None

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Categories as numbers 0 to K-1, with the parameters checked."""
        as_positive("sigma", float(self.sigma))
        return super().as_data(y, n)

    def below(self, x: FloatArray) -> FloatArray:
        """Of a normal distribution."""
        return np.asarray(ndtr(x / float(self.sigma)))

    def noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        """Normal."""
        return float(self.sigma) * rng.standard_normal(shape)

    @property
    def noise_parts(self) -> float:
        """Variance of the noise."""
        return float(self.sigma) ** 2

    def observations(self, y: Data, n: int) -> Observations:
        """One interval a category."""
        limits = limits_of(self.cutpoints)
        return intervals(limits[y], limits[y + 1], np.full(y.size, float(self.sigma) ** 2))


# Ordered categories under a logit link.


@dataclass(frozen=True, eq=False)
class OrderedLogit(_OrderedCategories, ClosedFormSites):
    r"""Categories 0 to K-1 in an order: :math:`y_i = c` where :math:`b_{c-1} < f(x_i) + e_i < b_c`.

    The cut-points :math:`b_0 < \dots < b_{K-2}` part the line, :math:`b_{-1} = -\infty` and
    :math:`b_{K-1} = \infty`, and :math:`e_i` is logistic. With the logistic function L

    .. math:: P(y_i = c) = L(b_c - f(x_i)) - L(b_{c-1} - f(x_i))

    It is the model of ``pm.OrderedLogistic(eta=f, cutpoints=cutpoints)``, and with two categories
    and the cut-point 0 `BernoulliLogit`. Shifting all cut-points and the mean of f together changes
    nothing: fix the mean of f at 0 where cut-points are free.

    Parameters
    ----------
    cutpoints : array_like, shape (K-1,)
        Cut-points, increasing, in the units of f. In a PyMC model they may be a random variable,
        whose value ``point`` then gives.
    categories : sequence, optional
        Names of the K categories in their order: coordinates of what is predicted, and what y may
        hold instead of 0 to K-1. Default 0 to K-1.

    Raises
    ------
    ValueError
        When used: cut-points that do not increase or are not finite, names that repeat or are not
        K, levels of y out of range.

    Notes
    -----
    `SkewGPPosterior.predict` gives ``p_mean`` with its Monte Carlo error ``p_mean_se``, dimensions
    (pred_id, category), and draws ``p`` and ``y``, a category as a number from 0 to K-1.

    References
    ----------
    .. [1] P. McCullagh (1980), Regression models for ordinal data,
       doi:10.1111/j.2517-6161.1980.tb01109.x.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> ratings = sg.likelihoods.OrderedLogit([-1.0, 1.0], categories=["bad", "fair", "good"])
    >>> x = np.arange(6.0)[:, None]
    >>> posterior = gp.posterior(x, [0, 0, 1, 1, 2, 2], likelihood=ratings)
    >>> new = posterior.predict([[0.5], [4.5]])["predictions_summary"]["p_mean"]
    >>> new.sel(category="good").values.round(1)
    array([0.1, 0.7])
    """

    cutpoints: Any
    categories: Any = None
    noise_parts = binary.LOGISTIC_NOISE

    def below(self, x: FloatArray) -> FloatArray:
        """Of the logistic distribution."""
        return np.asarray(expit(x))

    def noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        """Logistic."""
        return rng.logistic(size=shape)

    def in_pymc(self, f: Any, exp: Any) -> tuple[str, dict[str, Any]]:
        """By its predictor."""
        return "OrderedLogistic", {"eta": f, "cutpoints": self.cutpoints, "compute_p": False}

    def functions(self, y: Data) -> FactorFunctions:
        r"""By :math:`L(h) - L(l) = L(h) L(-l) (1 - e^{l - h})`, which no subtraction spoils."""
        limits = limits_of(self.cutpoints)
        lower, upper = limits[y], limits[y + 1]
        constant = np.log(-np.expm1(lower - upper))

        def log_prob(eta: FloatArray) -> FloatArray:
            return binary.log_logistic(upper - eta) + binary.log_logistic(eta - lower) + constant

        def slopes(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
            above, slope_above = binary.logistic_with_slope(eta - upper)
            below, slope_below = binary.logistic_with_slope(lower - eta)
            return below - above, -slope_above - slope_below

        return FactorFunctions(log_prob, slopes)
