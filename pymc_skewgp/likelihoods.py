"""Likelihoods under which the posterior of a Gaussian process is known exactly.

Each is a small frozen object for ``gp.posterior(X, y, likelihood=...)``.
"""

from pymc_skewgp._observations.binary import (
    BernoulliLogit,
    BernoulliProbit,
    BinomialLogit,
    BinomialProbit,
)
from pymc_skewgp._observations.classes import MultinomialProbit, Softmax
from pymc_skewgp._observations.comparisons import Choice, Preference, Ranking
from pymc_skewgp._observations.constraint import Constraint
from pymc_skewgp._observations.log_link import Gamma, NegativeBinomial, Poisson
from pymc_skewgp._observations.ordered import OrderedLogit, OrderedProbit
from pymc_skewgp._observations.real_values import CensoredGaussian, Gaussian, Laplace, StudentT
from pymc_skewgp._observations.survival import LogLogistic, LogNormal, Weibull
from pymc_skewgp._observations.two_functions import (
    BetaBinomial,
    HeteroscedasticGaussian,
    Selection,
    ZeroInflatedPoisson,
)
from pymc_skewgp._observations.weighted import Weighted

__all__ = [
    "BernoulliLogit",
    "BernoulliProbit",
    "BetaBinomial",
    "BinomialLogit",
    "BinomialProbit",
    "CensoredGaussian",
    "Choice",
    "Constraint",
    "Gamma",
    "Gaussian",
    "HeteroscedasticGaussian",
    "Laplace",
    "LogLogistic",
    "LogNormal",
    "MultinomialProbit",
    "NegativeBinomial",
    "OrderedLogit",
    "OrderedProbit",
    "Poisson",
    "Preference",
    "Ranking",
    "Selection",
    "Softmax",
    "StudentT",
    "Weibull",
    "Weighted",
    "ZeroInflatedPoisson",
]
