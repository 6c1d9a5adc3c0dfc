"""Values with double exponential noise."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.arguments import as_values, chosen_of, frozen_copy
from pymc_skewgp._observations.closed_form_sites import ClosedFormSites
from pymc_skewgp._observations.independent_noise import as_scale, noisy_summary
from pymc_skewgp._observations.likelihood import Data
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._observations.predictive_quantiles import NewValues
from pymc_skewgp._observations.sites import FactorFunctions
from pymc_skewgp._validation import FloatArray


@dataclass(frozen=True, eq=False)
class Laplace(ClosedFormSites):
    r"""Values with double exponential noise: :math:`p(y_i \mid f) = e^{-|y_i - f(x_i)|/b}/(2 b)`.

    It is the model of ``pm.Laplace(mu=f, b=b)``: regression to the median.

    Parameters
    ----------
    b : float or array_like, shape (n,)
        Scale of the noise, in the units of y; its standard deviation is :math:`\sqrt 2\, b`. One
        for all, or one a row of the data. In a PyMC model it may be a random variable, whose value
        ``point`` then gives. New values ``y`` are predicted only where it is one number.

    Raises
    ------
    ValueError
        When used: b that is not positive or of another length than y, values that are NaN or
        infinite.

    Notes
    -----
    `SkewGPPosterior.predict` gives draws ``y`` and, of a new value, ``y_quantile``, and ``y_mean``
    and ``y_sd`` with Monte Carlo errors ``_se``.

    References
    ----------
    .. [1] S. Kotz, T. J. Kozubowski & K. Podgórski (2001), The Laplace Distribution and
       Generalizations.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=2.0))
    >>> x, y = [0.0, 0.5, 1.0, 1.5, 2.0], [0.1, 0.0, 8.0, 0.2, 0.1]
    >>> posterior = gp.posterior(x, y, likelihood=sg.likelihoods.Laplace(b=0.2))
    >>> new = posterior.predict([1.0])["predictions_summary"]
    >>> print(f"{new['f_mean'].item():.1f} +- {new['f_sd'].item():.1f}")
    0.2 +- 0.2
    """

    b: Any
    has_kinks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "b", frozen_copy(self.b))

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Values as floats, with b checked."""
        as_scale("b", self.b, n)
        return as_values(y, n)

    def of_observations(self, index: IntArray, y: Data) -> "Laplace":
        """With `b` chosen as the rows are, where it is one number a row."""
        return replace(self, b=chosen_of(self.b, index))

    def functions(self, y: Data) -> FactorFunctions:
        """The first derivative is 0 at the kink, the second one everywhere."""
        rate = 1.0 / as_scale("b", self.b, y.size)
        constant = np.log(0.5 * rate)

        def log_prob(eta: FloatArray) -> FloatArray:
            return constant - rate * np.abs(y - eta)

        def slopes(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
            return rate * np.sign(y - eta), np.zeros(np.shape(eta))

        return FactorFunctions(log_prob, slopes)

    def replicate(
        self, y: Data, f: FloatArray, log_likelihood: FloatArray, rng: np.random.Generator
    ) -> Data:
        """New values at the rows of the data."""
        return f + as_scale("b", self.b, y.size) * rng.laplace(size=f.shape)

    def predictive_draws(self, f: FloatArray, rng: np.random.Generator) -> dict[str, Data]:
        """``y``, new values with noise."""
        if np.ndim(self.b):
            return {}
        return {"y": f + float(self.b) * rng.laplace(size=f.shape)}

    def predictive_summary(self, mixture: Mixture) -> dict[str, FloatArray]:
        """``y_mean`` and ``y_sd`` of a new value, with Monte Carlo errors."""
        return {} if np.ndim(self.b) else noisy_summary(mixture, 2.0 * float(self.b) ** 2)

    def predictive_quantiles(self, mixture: Mixture, probs: FloatArray) -> dict[str, FloatArray]:
        """``y_quantile`` of a new value."""
        if np.ndim(self.b):
            return {}
        b = float(self.b)

        def cdf(y: FloatArray, f: FloatArray) -> FloatArray:
            off = (y - f) / b
            tail = 0.5 * np.exp(-np.abs(off))
            return np.where(off > 0, 1.0 - tail, tail)

        def inverse(p: float) -> float:
            return float(b * (np.log(2.0 * p) if p < 0.5 else -np.log(2.0 - 2.0 * p)))

        return NewValues(mixture, cdf).noisy_quantiles(probs, inverse).named()
