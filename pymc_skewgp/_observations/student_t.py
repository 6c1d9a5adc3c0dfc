"""Values with noise of heavy tails."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, stdtr, stdtrit

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.arguments import (
    as_positive_parameter,
    as_values,
    chosen_of,
    frozen_copy,
)
from pymc_skewgp._observations.closed_form_sites import ClosedFormSites
from pymc_skewgp._observations.independent_noise import as_scale, noisy_summary
from pymc_skewgp._observations.likelihood import Data
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._observations.predictive_quantiles import NewValues
from pymc_skewgp._observations.sites import FactorFunctions
from pymc_skewgp._validation import FloatArray


@dataclass(frozen=True, eq=False)
class StudentT(ClosedFormSites):
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", frozen_copy(self.sigma))

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Values as floats, with the parameters checked."""
        as_positive_parameter("nu", self.nu)
        as_scale("sigma", self.sigma, n)
        return as_values(y, n)

    def of_observations(self, index: IntArray, y: Data) -> "StudentT":
        """With `sigma` chosen as the rows are, where it is one number a row."""
        return replace(self, sigma=chosen_of(self.sigma, index))

    def functions(self, y: Data) -> FactorFunctions:
        """Of scaled residuals."""
        return student_t(y, float(self.nu), as_scale("sigma", self.sigma, y.size))

    def replicate(
        self, y: Data, f: FloatArray, log_likelihood: FloatArray, rng: np.random.Generator
    ) -> Data:
        """New values at the rows of the data."""
        noise = rng.standard_t(float(self.nu), f.shape)
        return f + as_scale("sigma", self.sigma, y.size) * noise

    def predictive_draws(self, f: FloatArray, rng: np.random.Generator) -> dict[str, Data]:
        """``y``, new values with noise."""
        if np.ndim(self.sigma):
            return {}
        return {"y": f + float(self.sigma) * rng.standard_t(float(self.nu), f.shape)}

    def predictive_summary(self, mixture: Mixture) -> dict[str, FloatArray]:
        """``y_mean`` and ``y_sd`` of a new value, with Monte Carlo errors."""
        nu = float(self.nu)
        if np.ndim(self.sigma) or nu <= 1.0:
            return {}
        factor = nu / (nu - 2.0) if nu > 2.0 else np.inf
        return noisy_summary(mixture, factor * float(self.sigma) ** 2)

    def predictive_quantiles(self, mixture: Mixture, probs: FloatArray) -> dict[str, FloatArray]:
        """``y_quantile`` of a new value."""
        if np.ndim(self.sigma):
            return {}
        nu, sigma = float(self.nu), float(self.sigma)
        new = NewValues(mixture, lambda y, f: stdtr(nu, (y - f) / sigma))
        return new.noisy_quantiles(probs, lambda p: float(sigma * stdtrit(nu, p))).named()


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
