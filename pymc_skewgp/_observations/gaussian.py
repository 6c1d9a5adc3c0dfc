"""Values observed with Gaussian noise: exact Gaussian-process regression."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pymc_skewgp._gaussian.mixture import mixture_quantile_errors, mixture_quantiles
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.arguments import as_values, chosen_of, frozen_copy
from pymc_skewgp._observations.independent_noise import noisy_summary
from pymc_skewgp._observations.likelihood import Data, Likelihood
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._observations.observations import Observations, points
from pymc_skewgp._validation import FloatArray, as_vector

_LOG_2PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True, eq=False)
class Gaussian(Likelihood):
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", frozen_copy(self.sigma))

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Values as floats, with `sigma` checked against them."""
        values = as_values(y, n)
        if not (as_vector("sigma", self.sigma, n) > 0).all():
            raise ValueError(f"sigma must be positive, got {self.sigma!r}.")
        return values

    def of_observations(self, index: IntArray, y: Data) -> "Gaussian":
        """With parameters that are one number a row chosen as the rows are."""
        return replace(self, sigma=chosen_of(self.sigma, index))

    def observations(self, y: Data, n: int) -> Observations:
        """One point a value."""
        return points(y, as_vector("sigma", self.sigma, y.size) ** 2)

    def log_likelihood(self, y: Data, f: FloatArray) -> FloatArray:
        """Log N(y_i; f_i, sigma_i^2)."""
        return log_density(y, f, as_vector("sigma", self.sigma, y.size))

    def replicate(
        self, y: Data, f: FloatArray, log_likelihood: FloatArray, rng: np.random.Generator
    ) -> Data:
        """New values at the rows of the data."""
        return f + as_vector("sigma", self.sigma, y.size) * rng.standard_normal(f.shape)

    def predictive_draws(self, f: FloatArray, rng: np.random.Generator) -> dict[str, Data]:
        """``y``, new values with noise."""
        if np.ndim(self.sigma):
            return {}
        return {"y": f + float(self.sigma) * rng.standard_normal(f.shape)}

    def predictive_summary(self, mixture: Mixture) -> dict[str, FloatArray]:
        """``y_mean`` and ``y_sd``, with their errors."""
        return {} if np.ndim(self.sigma) else noisy_summary(mixture, float(self.sigma) ** 2)

    def predictive_quantiles(self, mixture: Mixture, probs: FloatArray) -> dict[str, FloatArray]:
        """``y_quantile`` of a new value, with its error."""
        if np.ndim(self.sigma):
            return {}
        value, error = noisy_quantiles(mixture, float(self.sigma), probs)
        return {"y_quantile": value, "y_quantile_se": error}


def noisy_quantiles(
    mixture: Mixture, sd: float, probs: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Quantiles of f with Gaussian noise, which is a mixture of Gaussians too; their errors."""
    known = mixture.means, mixture.variance + sd**2, mixture.weights
    found = mixture_quantiles(*known, probs)
    if mixture.exact:
        return found, np.zeros(found.shape)
    return found, mixture_quantile_errors(*known, found, mixture.replicate)


def log_density(y: FloatArray, mean: FloatArray, sd: FloatArray) -> FloatArray:
    """Log N(y; mean, sd^2)."""
    return -0.5 * ((y - mean) / sd) ** 2 - np.log(sd) - 0.5 * _LOG_2PI
