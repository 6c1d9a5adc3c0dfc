"""Ordered categories under a logit link."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from pymc_skewgp._observations.arguments import frozen_copy
from pymc_skewgp._observations.closed_form_sites import ClosedFormSites
from pymc_skewgp._observations.likelihood import Data
from pymc_skewgp._observations.logistic import (
    log_logistic,
    logistic,
    logistic_probability,
    logistic_with_slope,
)
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._observations.ordered_categories import (
    as_categories,
    category_names,
    category_of,
    limits_of,
)
from pymc_skewgp._observations.sites import FactorFunctions
from pymc_skewgp._validation import FloatArray


@dataclass(frozen=True, eq=False)
class OrderedLogit(ClosedFormSites):
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

    predicted_dims: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "p": ("category",),
        "p_mean": ("category",),
        "p_mean_se": ("category",),
    }

    def __post_init__(self) -> None:
        object.__setattr__(self, "cutpoints", frozen_copy(self.cutpoints))
        if self.categories is not None:
            object.__setattr__(self, "categories", tuple(self.categories))

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Categories as numbers 0 to K-1, with the parameters checked."""
        return as_categories(y, n, limits_of(self.cutpoints).size - 1, self.categories)

    def functions(self, y: Data) -> FactorFunctions:
        r"""By :math:`L(h) - L(l) = L(h) L(-l) (1 - e^{l - h})`, which no subtraction spoils."""
        limits = limits_of(self.cutpoints)
        lower, upper = limits[y], limits[y + 1]
        constant = np.log(-np.expm1(lower - upper))

        def log_prob(eta: FloatArray) -> FloatArray:
            return log_logistic(upper - eta) + log_logistic(eta - lower) + constant

        def slopes(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
            above, slope_above = logistic_with_slope(eta - upper)
            below, slope_below = logistic_with_slope(lower - eta)
            return below - above, -slope_above - slope_below

        return FactorFunctions(log_prob, slopes)

    def replicate(
        self, y: Data, f: FloatArray, log_likelihood: FloatArray, rng: np.random.Generator
    ) -> Data:
        """New categories at the rows of the data."""
        return category_of(f + rng.logistic(size=f.shape), limits_of(self.cutpoints))

    def coords(self, y: Data) -> dict[str, Sequence[Any]]:
        """Names of the categories."""
        return {"category": category_names(self.categories, limits_of(self.cutpoints).size - 1)}

    def predictive_draws(self, f: FloatArray, rng: np.random.Generator) -> dict[str, Data]:
        """``p``, the probability of each category, and ``y``, categories."""
        limits = limits_of(self.cutpoints)
        below = logistic(limits - f[..., None])
        return {
            "p": np.diff(below, axis=-1),
            "y": category_of(f + rng.logistic(size=f.shape), limits),
        }

    def predictive_summary(self, mixture: Mixture) -> dict[str, FloatArray]:
        """``p_mean``, probabilities of the categories, with Monte Carlo errors ``p_mean_se``."""
        limits = pairwise(limits_of(self.cutpoints))
        found = [logistic_probability(mixture, low, high) for low, high in limits]
        value, error = (np.stack(part, axis=-1) for part in zip(*found, strict=True))
        return {"p_mean": value, "p_mean_se": error}
