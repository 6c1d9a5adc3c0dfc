"""Positive values with a log link."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammainc, gammaincinv, gammaln

from pymc_skewgp._observations.arguments import as_positive_parameter, as_values
from pymc_skewgp._observations.closed_form_sites import ClosedFormSites
from pymc_skewgp._observations.likelihood import Data
from pymc_skewgp._observations.log_link import log_link_summary, mean_of
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._observations.predictive_quantiles import NewValues
from pymc_skewgp._observations.sites import FactorFunctions
from pymc_skewgp._validation import FloatArray


@dataclass(frozen=True, eq=False)
class Gamma(ClosedFormSites):
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

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Positive values, with alpha checked."""
        as_positive_parameter("alpha", self.alpha)
        values = as_values(y, n)
        if not (values > 0).all():
            i = int(np.argmax(~(values > 0)))
            raise ValueError(
                f"y must be positive; row {i} has {values[i]:.6g} ({int((values <= 0).sum())} such "
                "row(s))."
            )
        return values

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

    def replicate(
        self, y: Data, f: FloatArray, log_likelihood: FloatArray, rng: np.random.Generator
    ) -> Data:
        """New values at the rows of the data."""
        return self._draw(mean_of(f, 1.0), rng)

    def predictive_draws(self, f: FloatArray, rng: np.random.Generator) -> dict[str, Data]:
        """``mu``, the mean of a new value given f, and ``y``, values."""
        mu = mean_of(f, 1.0)
        return {"mu": mu, "y": self._draw(mu, rng)}

    def predictive_summary(self, mixture: Mixture) -> dict[str, FloatArray]:
        """``y_mean`` and ``y_sd`` of a new value, with Monte Carlo errors."""
        return log_link_summary(mixture, square=1.0 / float(self.alpha))

    def predictive_quantiles(self, mixture: Mixture, probs: FloatArray) -> dict[str, FloatArray]:
        """``y_quantile`` of a new value."""
        alpha = float(self.alpha)
        new = NewValues(mixture, lambda log_y, f: gammainc(alpha, alpha * mean_of(log_y - f, 1.0)))
        logs = new.noisy_quantiles(probs, lambda p: np.log(gammaincinv(alpha, p) / alpha))
        return logs.named(lambda x: mean_of(x, 1.0))

    def _draw(self, mean: FloatArray, rng: np.random.Generator) -> Data:
        alpha = float(self.alpha)
        return mean * rng.standard_gamma(alpha, mean.shape) / alpha
