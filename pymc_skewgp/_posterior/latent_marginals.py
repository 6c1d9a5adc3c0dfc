"""What is known of f at each point by itself: a mixture of Gaussians over draws of u."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pymc_skewgp._gaussian.mixture import (
    mixture_cdf,
    mixture_cdf_errors,
    mixture_density,
    mixture_moment_errors,
    mixture_moments,
    mixture_quantile_errors,
    mixture_quantiles,
)
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.bernoulli_probit import label_probability, probability_sd
from pymc_skewgp._observations.logistic import logistic_probability
from pymc_skewgp._observations.probability import Probability
from pymc_skewgp._validation import FloatArray, as_real_array, as_vector


class Moments(NamedTuple):
    """Mean, standard deviation and skewness at each point, or the standard errors of these."""

    mean: FloatArray
    sd: FloatArray
    skewness: FloatArray


@dataclass(frozen=True)
class LatentMarginals:
    r"""Marginal distributions of f at t points, exact but for the draws of u that they average.

    .. math:: f(x_i) \sim \sum_j w_j N(m_{ij}, v_i)

    `SkewGPPosterior.marginals` makes it.

    Attributes
    ----------
    means : ndarray, shape (t, S)
        Mean of f given each draw of u.
    variance : ndarray, shape (t,)
        Variance of f given u, which is the same for all draws.
    weights : ndarray, shape (S,)
        Weights of the draws; their sum is 1.
    replicate : ndarray of int, shape (S,), or None
        Equal numbers for draws that depend on each other, see `TruncatedDraws`; None where all are
        independent.
    exact : bool
        Whether nothing was drawn: a Gaussian, whose Monte Carlo errors are 0.
    covariance : ndarray, shape (t / k, k, k), or None
        Of k functions at each input, given u, where there are more than one. Then the points are
        the values of all functions at the first input, at the second, and so on.
    joint : ndarray, shape (t, t), or None
        Covariance of all points given u, where it was asked for.
    link : str
        Of labels: "probit", "logit", or else the name of a likelihood that has none.
    """

    means: FloatArray
    variance: FloatArray
    weights: FloatArray
    replicate: IntArray | None = None
    exact: bool = False
    covariance: FloatArray | None = None
    joint: FloatArray | None = None
    link: str = "probit"

    @property
    def size(self) -> int:
        """Number t of points."""
        return self.variance.size

    @cached_property
    def moments(self) -> Moments:
        """Mean, standard deviation and skewness, shape (t,) each."""
        return Moments(*mixture_moments(self.means, self.variance, self.weights))

    @cached_property
    def moment_errors(self) -> Moments:
        """Monte Carlo standard errors of `moments`."""
        return Moments(
            *mixture_moment_errors(self.means, self.variance, self.weights, self.replicate)
        )

    def quantile(self, probs: ArrayLike) -> FloatArray:
        """Quantiles at probabilities between 0 and 1, shape (n_probs, t)."""
        p = as_vector("probs", np.atleast_1d(as_real_array("probs", probs)))
        if (p <= 0).any() or (p >= 1).any():
            raise ValueError(
                f"probabilities of quantiles must lie strictly between 0 and 1, got {probs!r}."
            )
        return mixture_quantiles(self.means, self.variance, self.weights, p)

    def quantile_errors(self, quantiles: FloatArray) -> FloatArray:
        """Monte Carlo standard errors of `quantile`, given what that returned."""
        if self.exact:
            return np.zeros(quantiles.shape)
        known = self.means, self.variance, self.weights, quantiles
        return mixture_quantile_errors(*known, self.replicate)

    def cdf(self, values: ArrayLike) -> Probability:
        """P(f <= value), for values of shape (..., t), one column for each point."""
        rows, shape = self._rows(values)
        mixture = (self.means, self.variance, self.weights, rows)
        errors = mixture_cdf_errors(*mixture, self.replicate)
        return Probability(mixture_cdf(*mixture).reshape(shape), errors.reshape(shape))

    def cdf_values(self, values: ArrayLike) -> FloatArray:
        """Values of `cdf` alone, in half the time."""
        rows, shape = self._rows(values)
        return mixture_cdf(self.means, self.variance, self.weights, rows).reshape(shape)

    def density(self, values: ArrayLike) -> FloatArray:
        """Density of f at values of shape (..., t), one column for each point."""
        rows, shape = self._rows(values)
        return mixture_density(self.means, self.variance, self.weights, rows).reshape(shape)

    def probability(self) -> Probability:
        r"""Probability of a label 1, with its Monte Carlo standard error.

        .. math:: p = \sum_j w_j \Phi\{m_{ij} / (1 + v_i)^{1/2}\}

        under a probit link; under a logit link the mean of :math:`1 / (1 + e^{-f})`.

        Raises
        ------
        ValueError
            Where the data are no labels, but counts, say.
        """
        if self.link == "logit":
            return logistic_probability(self)
        self._refuse_other_links("probability")
        return label_probability(self)

    def probability_sd(self) -> FloatArray:
        r"""Standard deviation of :math:`p = \Phi(f)`, shape (t,): second-order uncertainty.

        .. math:: \mathrm{var}\{\Phi(f)\} = \sum_j w_j\, \mathrm E\{\Phi(f)^2 \mid u_j\} - p^2

        Raises
        ------
        ValueError
            Under another likelihood than a probit one.
        """
        self._refuse_other_links("probability_sd")
        return probability_sd(self)

    def _refuse_other_links(self, name: str) -> None:
        if self.link != "probit":
            raise ValueError(
                f"{name}() is of labels under a probit link, and this is the posterior under "
                f"{self.link}: SkewGPPosterior.predict has what that predicts, and draws of it."
            )

    def first_functions(self, wanted: int) -> "LatentMarginals":
        """Of the first `wanted` functions alone, at each input."""
        if self.covariance is None:
            return self
        k = self.covariance.shape[-1]
        chosen = np.arange(self.size).reshape(-1, k)[:, :wanted].ravel()
        return replace(
            self,
            means=self.means[chosen],
            variance=self.variance[chosen],
            covariance=None if wanted == 1 else self.covariance[:, :wanted, :wanted],
            joint=None if self.joint is None else self.joint[np.ix_(chosen, chosen)],
        )

    def with_points(self, other: "LatentMarginals") -> "LatentMarginals":
        """These points, then those of `other`, a mixture over the same draws."""
        covariance = None
        if self.covariance is not None and other.covariance is not None:
            covariance = np.concatenate([self.covariance, other.covariance])
        return replace(
            self,
            means=np.vstack([self.means, other.means]),
            variance=np.concatenate([self.variance, other.variance]),
            covariance=covariance,
            joint=None,
        )

    def _rows(self, values: ArrayLike) -> tuple[FloatArray, tuple[int, ...]]:
        array = as_columns(values, self.size)
        return array.reshape(-1, self.size), array.shape


def as_columns(values: ArrayLike, size: int) -> FloatArray:
    """`values` as an array with a column for each of so many points."""
    array = as_real_array("values", values)
    if not array.ndim or array.shape[-1] != size:
        raise ValueError(
            f"values must have a column for each of the {size} points, got shape {array.shape}."
        )
    return array
