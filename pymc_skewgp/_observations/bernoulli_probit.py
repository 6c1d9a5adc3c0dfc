"""Binary labels under a probit link."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, ndtr

from pymc_skewgp._observations.arguments import as_labels
from pymc_skewgp._observations.likelihood import Data, Likelihood
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._observations.observations import Observations, intervals
from pymc_skewgp._observations.probability import (
    Probability,
    interval_probability,
    probability_variance,
)
from pymc_skewgp._validation import FloatArray


@dataclass(frozen=True)
class BernoulliProbit(Likelihood):
    r"""Labels 0 and 1: :math:`P(y_i = 1) = \Phi(f(x_i))`.

    A label says on which side of 0 the noisy function :math:`f(x_i) + e_i` is, with standard
    normal :math:`e_i`: the interval :math:`(0, \infty)` for 1 and :math:`(-\infty, 0)` for 0.

    Labels may be 0 and 1, -1 and 1, or booleans.

    References
    ----------
    .. [1] J. H. Albert & S. Chib (1993), Bayesian analysis of binary and polychotomous response
       data, doi:10.1080/01621459.1993.10476321.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> posterior = gp.posterior([[0.0]], [1], likelihood=sg.likelihoods.BernoulliProbit())
    >>> print(f"{posterior.log_marginal_likelihood.value:.4f}")  # log 1/2
    -0.6931
    """

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Labels as 0 and 1."""
        return as_labels(y, n)

    def observations(self, y: Data, n: int) -> Observations:
        """One interval a label."""
        positive = y == 1
        return intervals(
            np.where(positive, 0.0, -np.inf), np.where(positive, np.inf, 0.0), np.ones(y.size)
        )

    def log_likelihood(self, y: Data, f: FloatArray) -> FloatArray:
        """Log p(y_i | f_i)."""
        z = _toward(y) * f
        # In place: for thousands of draws fresh memory costs as much as the function.
        return np.asarray(log_ndtr(z, out=z))

    def replicate(
        self, y: Data, f: FloatArray, log_likelihood: FloatArray, rng: np.random.Generator
    ) -> Data:
        """New labels at the rows of the data."""
        return new_labels(y, log_likelihood, rng)

    def predictive_draws(self, f: FloatArray, rng: np.random.Generator) -> dict[str, Data]:
        """``p``, the probability of a label 1, and ``y``, labels."""
        p = ndtr(f)
        return {"p": p, "y": (rng.random(p.shape) < p).astype(np.int64)}

    def predictive_summary(self, mixture: Mixture) -> dict[str, FloatArray]:
        """``p_mean``, the probability of a label 1, with its Monte Carlo error ``p_mean_se``."""
        probability = label_probability(mixture)
        return {"p_mean": probability.value, "p_mean_se": probability.std_error}


def new_labels(y: Data, log_likelihood: FloatArray, rng: np.random.Generator) -> Data:
    """Labels given those seen and their log probabilities."""
    # An exponential variable exceeds -log p with probability p: the label is drawn again.
    again = rng.standard_exponential(log_likelihood.shape, dtype=np.float32) > -log_likelihood
    return np.where(again, y, 1 - y)


def label_probability(mixture: Mixture) -> Probability:
    r"""Probability of a label 1, :math:`\sum_j w_j \Phi\{m_{ij} / (1 + v_i)^{1/2}\}`."""
    return interval_probability(mixture, 0.0, np.inf)


def probability_sd(mixture: Mixture) -> FloatArray:
    r"""Standard deviation of :math:`p = \Phi(f)`, shape (t,): second-order uncertainty.

    .. math:: \mathrm{var}\{\Phi(f)\} = \sum_j w_j\, \mathrm E\{\Phi(f)^2 \mid u_j\} - p^2
    """
    p = ndtr(mixture.means / np.sqrt(1.0 + mixture.variance)[:, None])
    within = probability_variance(p, (mixture.variance / (1.0 + mixture.variance))[:, None])
    between = (p - (p @ mixture.weights)[:, None]) ** 2
    sd: FloatArray = np.sqrt((within + between) @ mixture.weights)
    return sd


def _toward(y: NDArray[np.int64]) -> FloatArray:
    """The direction of f that makes each label more probable, +1 or -1."""
    return np.where(y == 1, 1.0, -1.0)
