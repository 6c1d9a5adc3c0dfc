"""Over-dispersed counts with a log link."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, betaln

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.arguments import as_positive_parameter, chosen_of, frozen_copy
from pymc_skewgp._observations.closed_form_sites import ClosedFormSites
from pymc_skewgp._observations.likelihood import Data
from pymc_skewgp._observations.log_link import (
    as_counts,
    as_exposure,
    draw_counts,
    exposure_of_new,
    log_link_summary,
    mean_of,
)
from pymc_skewgp._observations.logistic import log_odds_power, logistic, logistic_with_slope
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._observations.predictive_quantiles import NewValues
from pymc_skewgp._observations.sites import FactorFunctions
from pymc_skewgp._validation import FloatArray


@dataclass(frozen=True, eq=False)
class NegativeBinomial(ClosedFormSites):
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "exposure", frozen_copy(self.exposure))

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Counts as integers, with alpha and the exposures checked."""
        as_positive_parameter("alpha", self.alpha)
        as_exposure(self.exposure, n)
        return as_counts(y, n)

    def of_observations(self, index: IntArray, y: Data) -> "NegativeBinomial":
        """With `exposure` chosen as the rows are, where it is one number a row."""
        return replace(self, exposure=chosen_of(self.exposure, index))

    def functions(self, y: Data) -> FactorFunctions:
        """In the odds of the mean against alpha."""
        exposure, alpha, counts = as_exposure(self.exposure, y.size), float(self.alpha), y * 1.0
        offset = np.log(exposure / alpha)
        constant = -betaln(alpha, counts + 1.0) - np.log(alpha + counts)

        def log_prob(eta: FloatArray) -> FloatArray:
            return log_odds_power(eta + offset, counts, np.asarray(alpha)) + constant

        def slopes(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
            p, slope = logistic_with_slope(eta + offset)
            total = counts + alpha
            return counts - total * p, -total * slope

        return FactorFunctions(log_prob, slopes)

    def replicate(
        self, y: Data, f: FloatArray, log_likelihood: FloatArray, rng: np.random.Generator
    ) -> Data:
        """New counts at the rows of the data."""
        return self._draw(mean_of(f, as_exposure(self.exposure, y.size)), rng)

    def predictive_draws(self, f: FloatArray, rng: np.random.Generator) -> dict[str, Data]:
        """``mu``, the mean of a new count given f, and ``y``, counts."""
        mu = mean_of(f, exposure_of_new(self.exposure))
        return {"mu": mu, "y": self._draw(mu, rng)}

    def predictive_summary(self, mixture: Mixture) -> dict[str, FloatArray]:
        """``y_mean`` and ``y_sd`` of a new count, with Monte Carlo errors."""
        new = exposure_of_new(self.exposure)
        return log_link_summary(mixture, new, linear=1.0, square=1.0 / float(self.alpha))

    def predictive_quantiles(self, mixture: Mixture, probs: FloatArray) -> dict[str, FloatArray]:
        """``y_quantile`` of a new count, with its error ``y_quantile_se``."""
        alpha, exposure = float(self.alpha), exposure_of_new(self.exposure)

        def cdf(y: FloatArray, f: FloatArray) -> FloatArray:
            return np.asarray(betainc(alpha, y + 1.0, logistic(np.log(alpha / exposure) - f)))

        return NewValues(mixture, cdf).whole_quantiles(probs).named()

    def _draw(self, mean: FloatArray, rng: np.random.Generator) -> Data:
        alpha = float(self.alpha)
        return draw_counts(mean * rng.standard_gamma(alpha, mean.shape) / alpha, rng)
