"""Observations that count more, or less, than once."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from pymc_skewgp._gaussian.blocks.rows import RowSites
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations import likelihood as base
from pymc_skewgp._observations.binary import BernoulliProbit
from pymc_skewgp._observations.observations import Observations, as_matrix
from pymc_skewgp._observations.ordered import OrderedProbit
from pymc_skewgp._observations.real_values import CensoredGaussian, Gaussian
from pymc_skewgp._observations.sites import ClosedFormSites, FactorFunctions, SiteLikelihood
from pymc_skewgp._validation import FloatArray, as_real_array, as_vector

# Each observation of these is one row of one value of f.
_OF_ONE_ROW = BernoulliProbit | OrderedProbit | Gaussian | CensoredGaussian
# What weights leave as it is.
_OF_THE_LIKELIHOOD = (
    "predicted_dims", "divisible", "coords", "observed", "predictive_draws",
    "predictive_summary", "predictive_quantiles", "n_functions", "function_dim", "gaussian_in",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Weighted(ClosedFormSites):
    r"""A likelihood whose observations have weights: :math:`\prod_i p(y_i \mid f(x_i))^{w_i}`.

    A weight 2 is an observation that was made twice, 0 one that was not made. What is predicted is
    a new observation, of weight 1. ``gp.posterior(X, y, likelihood=..., weights=...)`` makes it of
    these likelihoods by itself; where there are data of several kinds it is for one of them.

    Parameters
    ----------
    likelihood : object of ``pymc_skewgp.likelihoods``
        `BernoulliProbit` without `noise_cov`, `OrderedProbit`, `Gaussian`, `CensoredGaussian`, and
        all that have no rows, such as `BernoulliLogit`, `Poisson` and `Softmax`.
    weights : array_like, shape (n,)
        One a row of the data, 0 or more; a number stands for all.

    Raises
    ------
    TypeError
        For another likelihood, such as `Preference`.
    ValueError
        When used: weights that are negative, not finite, or of another length than y.

    Notes
    -----
    With weights that are not whole numbers the powers are no densities of y: the log marginal
    likelihood is the log of the integral of the prior times them, and not the evidence of a
    normalised density. It is to be compared only at equal weights. The log likelihood in
    `SkewGPPosterior.sample` has the weights in it.

    A power of a probit link has no truncated Gaussian behind it: f is drawn from expectation
    propagation's Gaussian with weights that make it exact, as under a logit link.

    References
    ----------
    .. [1] C. C. Holmes & S. G. Walker (2017), Assigning a value to a power likelihood in a general
       Bayesian model, doi:10.1093/biomet/asx010.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_skewgp as sg
    >>> twice = sg.likelihoods.Weighted(sg.likelihoods.Poisson(), weights=[2.0, 0.0])
    >>> twice.log_likelihood(np.array([1, 4]), np.array([0.0, 0.0]))
    array([-2.,  0.])
    """

    likelihood: Any
    weights: Any

    def __post_init__(self) -> None:
        takes = isinstance(self.likelihood, SiteLikelihood | _OF_ONE_ROW)
        if not takes or isinstance(self.likelihood, Weighted):
            raise TypeError(
                "Weighted takes a likelihood of observations that are apart given f, such as "
                f"BernoulliProbit() or Poisson(), got {self.likelihood!r}: repeat the observations."
            )
        if getattr(self.likelihood, "noise_cov", None) is not None:
            raise TypeError("Weighted takes labels with noise of their own: leave noise_cov out.")
        object.__setattr__(self, "weights", base.frozen_copy(self.weights))
        for name in _OF_THE_LIKELIHOOD:  # new observations have weight 1
            known = getattr(self.likelihood, name, None)
            if known is not None:
                object.__setattr__(self, name, known)

    @property
    def single(self) -> bool:
        """Whether neither parameters nor weights are of rows."""
        return not np.ndim(self.weights) and bool(self.likelihood.single)

    def of_observations(self, index: IntArray, y: base.Data) -> "Weighted":
        """With the weights of the rows that are chosen."""
        own = self.likelihood.of_observations(index, y)
        return replace(self, likelihood=own, weights=base.chosen_of(self.weights, index))

    def as_data(self, y: ArrayLike, n: int) -> base.Data:
        """As the likelihood takes them, with the weights checked."""
        self._weights(n)
        return self.likelihood.as_data(y, n)

    def functions(self, y: base.Data) -> FactorFunctions:
        """Those of the likelihood, to the power of the weights."""
        known = self.likelihood
        plain = known.functions(y) if isinstance(known, SiteLikelihood) else _of_rows(known, y)
        weights = self._weights(y.shape[0])
        counts = weights > 0

        several = self.likelihood.n_functions(y) > 1

        def power(values: FloatArray, axes: int = 0) -> FloatArray:
            shape = (-1, *(axes * several * (1,)))
            own, out = weights.reshape(shape), np.zeros(values.shape)
            # Without weight nothing is impossible: 0 times -inf is 0 here.
            return np.multiply(values, own, where=counts.reshape(shape), out=out)

        def log_prob(eta: FloatArray) -> FloatArray:
            return power(plain.log_prob(eta))

        def slopes(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
            first, second = plain.slopes(eta)
            return power(first, 1), power(second, 2)

        return FactorFunctions(log_prob, slopes)

    def replicate(
        self, y: base.Data, f: FloatArray, log_likelihood: FloatArray, rng: np.random.Generator
    ) -> base.Data:
        """New observations of weight 1 at the rows of the data."""
        return self.likelihood.replicate(y, f, self.likelihood.log_likelihood(y, f), rng)

    def _weights(self, n: int) -> FloatArray:
        weights = as_vector("weights", self.weights, n)
        base.refuse_rows("weights", weights, weights < 0, "be 0 or more")
        return weights


def _of_rows(likelihood: base.Likelihood, y: base.Data) -> FactorFunctions:
    """Functions of a likelihood of one row an observation."""
    rows = likelihood.observations(y, len(y))
    sites = RowSites(rows.lower, rows.upper, rows.value, rows.variances)

    def slopes(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        flat = np.ascontiguousarray(eta.reshape(-1, eta.shape[-1]))
        first, second = sites.slopes(slice(None), flat)
        return first.reshape(eta.shape), second.reshape(eta.shape)

    return FactorFunctions(lambda eta: likelihood.log_likelihood(y, eta), slopes)


# How often each observation was made: whole numbers, which stand for repeated rows.

_WHY = (
    "a likelihood of rows to a power that is no whole number has no rows: the posterior would be "
    "no truncated Gaussian any more"
)


def as_weights(name: str, value: ArrayLike, n: int) -> IntArray:
    """`value` as whole numbers >= 0, one for each of `n` observations, not all 0.

    Raises
    ------
    ValueError, TypeError
        The message says why weights are whole, and what to do.
    """
    weights = as_real_array(name, value)
    if weights.shape != (n,):
        raise ValueError(
            f"{name} must have shape ({n},), one number for each observation; got {weights.shape}."
        )
    whole = np.isfinite(weights) & (weights == np.floor(weights))
    base.refuse_rows(
        name,
        weights,
        ~whole,
        "be whole numbers, how often each observation was made",
        f": others are not taken, since {_WHY}. Take powers, likelihoods.Weighted(likelihood, "
        "weights); or multiply the weights until they are whole; or, where numbers differ in their "
        "noise, Gaussian(sigma / np.sqrt(weights))",
    )
    advice = ": 0 leaves an observation out"
    base.refuse_rows(name, weights, weights < 0, "not be negative", advice)
    if not weights.any():
        raise ValueError(f"{name} are all zero: no observation is left.")
    return weights.astype(np.intp)


def weighted_observations(
    likelihood: base.Likelihood, y: base.Data, n: int, weights: IntArray | None
) -> Observations:
    """Rows of observations that were made so often each, or once, of f at `n` rows of X."""
    if weights is None:
        return likelihood.observations(y, n)
    index = np.repeat(np.arange(len(y)), weights)
    known, repeated = likelihood.of_observations(index, y), y[index]
    if likelihood.y_dim != "obs_id":  # the rows of X are items, which stay as they are
        return known.observations(repeated, n)
    rows = known.observations(repeated, index.size)
    # Each of the repeated places is one of the n places that there are.
    k = likelihood.n_functions(y)
    place = (k * index[:, None] + np.arange(k)).ravel()
    A = sparse.csr_array(as_matrix(rows.A, rows.n_rows))
    at = place[: A.shape[1]]
    same = sparse.csr_array((np.ones(at.size), (np.arange(at.size), at)), shape=(at.size, n * k))
    return replace(rows, A=sparse.csr_array(A @ same))
