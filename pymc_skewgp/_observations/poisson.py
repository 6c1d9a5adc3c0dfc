"""Counts with a log link."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, pdtr

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.arguments import chosen_of, frozen_copy
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
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._observations.predictive_quantiles import NewValues
from pymc_skewgp._observations.sites import FactorFunctions
from pymc_skewgp._validation import FloatArray


@dataclass(frozen=True, eq=False)
class Poisson(ClosedFormSites):
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "exposure", frozen_copy(self.exposure))

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Counts as integers, with the exposures checked."""
        as_exposure(self.exposure, n)
        return as_counts(y, n)

    def of_observations(self, index: IntArray, y: Data) -> "Poisson":
        """With `exposure` chosen as the rows are, where it is one number a row."""
        return replace(self, exposure=chosen_of(self.exposure, index))

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

    def replicate(
        self, y: Data, f: FloatArray, log_likelihood: FloatArray, rng: np.random.Generator
    ) -> Data:
        """New counts at the rows of the data."""
        return draw_counts(mean_of(f, as_exposure(self.exposure, y.size)), rng)

    def predictive_draws(self, f: FloatArray, rng: np.random.Generator) -> dict[str, Data]:
        """``mu``, the mean of a new count given f, and ``y``, counts."""
        mu = mean_of(f, exposure_of_new(self.exposure))
        return {"mu": mu, "y": draw_counts(mu, rng)}

    def predictive_summary(self, mixture: Mixture) -> dict[str, FloatArray]:
        """``y_mean`` and ``y_sd`` of a new count, with Monte Carlo errors."""
        return log_link_summary(mixture, exposure_of_new(self.exposure), linear=1.0)

    def predictive_quantiles(self, mixture: Mixture, probs: FloatArray) -> dict[str, FloatArray]:
        """``y_quantile`` of a new count, with its error ``y_quantile_se``."""
        exposure = exposure_of_new(self.exposure)
        new = NewValues(mixture, lambda y, f: pdtr(y, mean_of(f, exposure)))
        return new.whole_quantiles(probs).named()
