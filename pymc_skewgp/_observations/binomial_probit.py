"""Successes of several trials under a probit link."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.special import log_ndtr, ndtr

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.arguments import chosen_of, frozen_copy
from pymc_skewgp._observations.bernoulli_probit import label_probability
from pymc_skewgp._observations.likelihood import Data, Likelihood
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._observations.trials import as_successes, as_trials, log_choose
from pymc_skewgp._validation import FloatArray


@dataclass(frozen=True, eq=False)
class BinomialProbit(Likelihood):
    r"""Successes of n trials: :math:`y_i \sim \mathrm{Binomial}(n_i, \Phi(f(x_i)))`.

    Each trial is a row of its own, with standard normal noise: the interval :math:`(0, \infty)`
    for each of the y successes and :math:`(-\infty, 0)` for each of the n - y failures. The log
    marginal likelihood is that of the counts, :math:`\log \binom{n_i}{y_i}` included, as that
    of ``pm.Binomial`` is; labels of single trials in their order have it without.

    Parameters
    ----------
    n : int or array_like of int, shape (n_rows,)
        Trials at each row of X, 0 or more; a number stands for all. New counts ``y`` are predicted
        only where it is one number.

    Raises
    ------
    ValueError
        When used: fewer trials than successes, negative or fractional counts, another length.

    Notes
    -----
    `SkewGPPosterior.predict` gives ``p_mean`` with its Monte Carlo error ``p_mean_se``, the
    probability that a new trial is a success, draws ``p``, and draws ``y`` of n trials.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> posterior = gp.posterior([[0.0]], [1], likelihood=sg.likelihoods.BinomialProbit(1))
    >>> print(f"{posterior.log_marginal_likelihood.value:.4f}")  # log 1/2
    -0.6931
    """

    n: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", frozen_copy(self.n))

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Successes as integers, with the trials checked."""
        return as_successes(y, self.n, n)

    def of_observations(self, index: IntArray, y: Data) -> "BinomialProbit":
        """With parameters that are one number a row chosen as the rows are."""
        return replace(self, n=chosen_of(self.n, index))

    def observations(self, y: Data, n: int) -> Observations:
        """One interval a trial."""
        trials = as_trials(self.n, n)
        index = np.repeat(np.arange(n), trials)
        first = np.repeat(np.cumsum(trials) - trials, trials)
        success = np.arange(index.size) - first < y[index]
        design = sparse.csr_array(
            (np.ones(index.size), (np.arange(index.size), index)), shape=(index.size, n)
        )
        return Observations(
            design,
            np.zeros(index.size),
            np.ones(index.size),
            np.where(success, 0.0, -np.inf),
            np.where(success, np.inf, 0.0),
            np.full(index.size, np.nan),
            log_constant=float(log_choose(trials, y).sum()),
        )

    def log_likelihood(self, y: Data, f: FloatArray) -> FloatArray:
        """Log p(y_i | f_i), the binomial coefficient included."""
        trials = as_trials(self.n, y.size)
        return y * log_ndtr(f) + (trials - y) * log_ndtr(-f) + log_choose(trials, y)

    def replicate(
        self, y: Data, f: FloatArray, log_likelihood: FloatArray, rng: np.random.Generator
    ) -> Data:
        """New counts at the rows of the data."""
        return rng.binomial(as_trials(self.n, y.size), ndtr(f))

    def predictive_draws(self, f: FloatArray, rng: np.random.Generator) -> dict[str, Data]:
        """``p``, the probability of a success, and ``y``, successes of n trials."""
        p = ndtr(f)
        if np.ndim(self.n):
            return {"p": p}
        return {"p": p, "y": rng.binomial(int(self.n), p)}

    def predictive_summary(self, mixture: Mixture) -> dict[str, FloatArray]:
        """``p_mean``, the probability of a success, with its Monte Carlo error ``p_mean_se``."""
        probability = label_probability(mixture)
        return {"p_mean": probability.value, "p_mean_se": probability.std_error}
