"""Binary labels under a logit link."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pymc_skewgp._observations.arguments import as_labels
from pymc_skewgp._observations.bernoulli_probit import new_labels
from pymc_skewgp._observations.closed_form_sites import ClosedFormSites
from pymc_skewgp._observations.likelihood import Data
from pymc_skewgp._observations.logistic import (
    log_logistic,
    logistic,
    logistic_probability,
    logistic_with_slope,
)
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._observations.sites import FactorFunctions
from pymc_skewgp._validation import FloatArray


@dataclass(frozen=True)
class BernoulliLogit(ClosedFormSites):
    r"""Labels 0 and 1: :math:`P(y_i = 1) = 1 / (1 + e^{-f(x_i)})`.

    It is the model of ``pm.Bernoulli(logit_p=f)``. Labels may be 0 and 1, -1 and 1, or booleans.

    Notes
    -----
    `SkewGPPosterior.predict` gives ``p_mean``, the probability of a label 1, with its Monte Carlo
    error ``p_mean_se``, and draws ``p`` and ``y``. The average of the logistic function is exact
    to 1e-9: logistic noise is a mixture of normal ones [2]_.

    References
    ----------
    .. [1] C. E. Rasmussen & C. K. I. Williams (2006), Gaussian Processes for Machine Learning,
       chapter 3.
    .. [2] D. F. Andrews & C. L. Mallows (1974), Scale mixtures of normal distributions,
       doi:10.1111/j.2517-6161.1974.tb00989.x.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> x, y = [-2.0, -1.0, 1.0, 2.0], [0, 0, 1, 1]
    >>> posterior = gp.posterior(x, y, likelihood=sg.likelihoods.BernoulliLogit())
    >>> posterior.predict([-1.5, 1.5])["predictions_summary"]["p_mean"].values.round(2)
    array([0.22, 0.78])
    """

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Labels as 0 and 1."""
        return as_labels(y, n)

    def functions(self, y: Data) -> FactorFunctions:
        """Of the side of 0 that each label is on."""
        side = np.where(y == 1, 1.0, -1.0)

        def log_prob(eta: FloatArray) -> FloatArray:
            return log_logistic(side * eta)

        def slopes(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
            other, slope = logistic_with_slope(-side * eta)
            return side * other, -slope

        return FactorFunctions(log_prob, slopes)

    def replicate(
        self, y: Data, f: FloatArray, log_likelihood: FloatArray, rng: np.random.Generator
    ) -> Data:
        """New labels at the rows of the data."""
        return new_labels(y, log_likelihood, rng)

    def predictive_draws(self, f: FloatArray, rng: np.random.Generator) -> dict[str, Data]:
        """``p``, the probability of a label 1, and ``y``, labels."""
        p = logistic(f)
        return {"p": p, "y": (rng.random(p.shape) < p).astype(np.int64)}

    def predictive_summary(self, mixture: Mixture) -> dict[str, FloatArray]:
        """``p_mean``, the probability of a label 1, with its Monte Carlo error ``p_mean_se``."""
        probability = logistic_probability(mixture)
        return {"p_mean": probability.value, "p_mean_se": probability.std_error}
