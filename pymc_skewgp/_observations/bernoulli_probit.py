"""Binary labels under a probit link."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, ndtr

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.arguments import as_labels, frozen_copy
from pymc_skewgp._observations.likelihood import Data, Likelihood
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._observations.noise import Noise, noise_factor, stacked_noise
from pymc_skewgp._observations.observations import Observations, intervals
from pymc_skewgp._observations.probability import (
    Probability,
    interval_probability,
    probability_variance,
)
from pymc_skewgp._validation import FloatArray, as_covariance

# What a variance may be off 1 by, as after rounding.
_ROUNDED = 1e-8


@dataclass(frozen=True, eq=False)
class BernoulliProbit(Likelihood):
    r"""Labels 0 and 1: :math:`P(y_i = 1) = \Phi(f(x_i))`.

    A label says on which side of 0 the noisy function :math:`f(x_i) + e_i` is, with standard
    normal :math:`e_i`: the interval :math:`(0, \infty)` for 1 and :math:`(-\infty, 0)` for 0.

    Labels may be 0 and 1, -1 and 1, or booleans.

    Parameters
    ----------
    noise_cov : array_like, shape (n, n), optional
        Covariance of :math:`(e_1, \dots, e_n)`, for labels that share noise, such as those of one
        person. Its diagonal is 1, as the noise of a probit link has variance 1. Default the
        identity.

    Raises
    ------
    ValueError
        Labels of another kind; a `noise_cov` that is no covariance, that has not 1 on its diagonal,
        or not a row for each label.

    Notes
    -----
    With `noise_cov` each label by itself still has the probability :math:`\Phi(f(x_i))`. That is
    what ``p`` and ``p_mean`` are at new points, whose noise is independent of that of the data,
    and of each other, and has variance 1; and what ``log_likelihood`` has for each label, so that
    the sum over labels is not the log probability of all of them together. The evidence, draws of f
    and replicates ``y`` of the data have the shared noise. A block of labels that share noise with
    no others takes the algebra of low rank, where the kernel is smooth.

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

    Two labels at one place, whose noise has the correlation 1/2: both are 1 with probability 1/3 a
    priori where f is 0.

    >>> likelihood = sg.likelihoods.BernoulliProbit(noise_cov=[[1.0, 0.5], [0.5, 1.0]])
    >>> flat = sg.SkewGP(cov_func=1e-8 * pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> posterior = flat.posterior([[0.0], [0.0]], [1, 1], likelihood=likelihood)
    >>> print(f"{posterior.log_marginal_likelihood.value:.4f}")  # log 1/3
    -1.0986
    """

    noise_cov: Any = None

    def __post_init__(self) -> None:
        if self.noise_cov is None:
            return
        cov = as_covariance("noise_cov", self.noise_cov)
        off = np.abs(cov.diagonal() - 1.0)
        if off.max() > _ROUNDED:
            i = int(off.argmax())
            raise ValueError(
                f"noise_cov must have 1 on its diagonal, the variance of the noise of a probit "
                f"link; entry {i} is {cov[i, i]:.6g}. Where all variances are equal, divide "
                "noise_cov and the variance of the kernel by them."
            )
        linalg.cholesky("noise_cov", cov)  # refuses what is no covariance
        object.__setattr__(self, "noise_cov", frozen_copy(cov))

    def __repr__(self) -> str:
        shared = "" if self.noise_cov is None else f"noise_cov={self.noise_cov!r}"
        return f"{type(self).__name__}({shared})"

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Labels as 0 and 1."""
        if self.noise_cov is not None and len(self.noise_cov) != n:
            raise ValueError(
                f"noise_cov must have a row for each of the {n} labels, got {len(self.noise_cov)}."
            )
        return as_labels(y, n)

    def of_observations(self, index: IntArray, y: Data) -> "BernoulliProbit":
        """Each label of its own; labels that share noise are not made more than once."""
        if self.noise_cov is not None and not np.array_equal(index, np.arange(y.size)):
            raise ValueError(
                "weights are for labels with noise of their own: with noise_cov, repeat or drop "
                "rows of X and y, and say in noise_cov what noise the copies share."
            )
        return self

    def joined(self, y: Data, n: int, new: ArrayLike, n_new: int) -> Data:
        """Labels of both; the noise of new ones is their own."""
        return np.concatenate([y, as_labels(new, n_new)])

    def observations(self, y: Data, n: int) -> Observations:
        """One interval a label."""
        positive = y == 1
        lower, upper = np.where(positive, 0.0, -np.inf), np.where(positive, np.inf, 0.0)
        return intervals(lower, upper, self._noise(y.size))

    @property
    def independent(self) -> bool:
        """Whether each label has noise of its own."""
        return self.noise_cov is None

    def _noise(self, n: int) -> Noise:
        """Of the labels: those of the data, then labels that came later."""
        if self.noise_cov is None:
            return np.ones(n)
        known = len(self.noise_cov)
        return stacked_noise([self.noise_cov, np.ones(n - known)]) if n > known else self.noise_cov

    def log_likelihood(self, y: Data, f: FloatArray) -> FloatArray:
        """Log p(y_i | f_i)."""
        z = _toward(y) * f
        # In place: for thousands of draws fresh memory costs as much as the function.
        return np.asarray(log_ndtr(z, out=z))

    def replicate(
        self, y: Data, f: FloatArray, log_likelihood: FloatArray, rng: np.random.Generator
    ) -> Data:
        """New labels at the rows of the data."""
        if self.noise_cov is not None:
            factor = noise_factor(self._noise(y.size))
            noise = rng.standard_normal((*f.shape[:-1], factor.shape[1])) @ factor.T
            return (f + noise > 0).astype(np.int64)
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
