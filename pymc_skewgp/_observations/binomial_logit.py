"""Successes of several trials under a logit link."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.arguments import chosen_of, frozen_copy
from pymc_skewgp._observations.closed_form_sites import ClosedFormSites
from pymc_skewgp._observations.likelihood import Data
from pymc_skewgp._observations.logistic import (
    log_odds_power,
    logistic,
    logistic_probability,
    logistic_with_slope,
)
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._observations.predictive_quantiles import NewValues
from pymc_skewgp._observations.sites import FactorFunctions
from pymc_skewgp._observations.trials import as_successes, as_trials, log_choose
from pymc_skewgp._validation import FloatArray


@dataclass(frozen=True, eq=False)
class BinomialLogit(ClosedFormSites):
    r"""Successes of n trials: :math:`y_i \sim \mathrm{Binomial}(n_i, 1 / (1 + e^{-f(x_i)}))`.

    It is the model of ``pm.Binomial(n, logit_p=f)``. A row is one observation however many its
    trials are: a thousand of them cost what one costs.

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
    probability that a new trial is a success, ``y_quantile`` of the successes in n trials, and
    draws ``p`` and ``y``.

    References
    ----------
    .. [1] P. McCullagh & J. A. Nelder (1989), Generalized Linear Models, chapter 4.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> doses, deaths = [-1.0, 0.0, 1.0], [1, 40, 95]
    >>> posterior = gp.posterior(doses, deaths, likelihood=sg.likelihoods.BinomialLogit(100))
    >>> posterior.predict([-0.5, 0.5])["predictions_summary"]["p_mean"].values.round(1)
    array([0.1, 0.8])
    """

    n: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", frozen_copy(self.n))

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Successes as integers, with the trials checked."""
        return as_successes(y, self.n, n)

    def of_observations(self, index: IntArray, y: Data) -> "BinomialLogit":
        """With `n` chosen as the rows are, where it is one number a row."""
        return replace(self, n=chosen_of(self.n, index))

    def functions(self, y: Data) -> FactorFunctions:
        """Of successes and failures."""
        trials = as_trials(self.n, y.size)
        successes, failures, constant = y * 1.0, trials - y * 1.0, log_choose(trials, y)

        def log_prob(eta: FloatArray) -> FloatArray:
            return log_odds_power(eta, successes, failures) + constant

        def slopes(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
            p, slope = logistic_with_slope(eta)
            return successes - trials * p, -trials * slope

        return FactorFunctions(log_prob, slopes)

    def replicate(
        self, y: Data, f: FloatArray, log_likelihood: FloatArray, rng: np.random.Generator
    ) -> Data:
        """New counts at the rows of the data."""
        return rng.binomial(as_trials(self.n, y.size), logistic(f))

    def predictive_draws(self, f: FloatArray, rng: np.random.Generator) -> dict[str, Data]:
        """``p``, the probability of a success, and ``y``, successes of n trials."""
        p = logistic(f)
        if np.ndim(self.n):
            return {"p": p}
        return {"p": p, "y": rng.binomial(int(self.n), p)}

    def predictive_summary(self, mixture: Mixture) -> dict[str, FloatArray]:
        """``p_mean``, the probability of a success, with its Monte Carlo error ``p_mean_se``."""
        probability = logistic_probability(mixture)
        return {"p_mean": probability.value, "p_mean_se": probability.std_error}

    def predictive_quantiles(self, mixture: Mixture, probs: FloatArray) -> dict[str, FloatArray]:
        """``y_quantile``, of the successes in n trials."""
        if np.ndim(self.n):
            return {}
        n = int(self.n)
        new = NewValues(mixture, lambda y, f: bdtr(np.minimum(y, n), n, logistic(f)))
        return new.whole_quantiles(probs).named()
