"""Likelihoods under which the posterior of a Gaussian process is known exactly.

Each is a small frozen object for ``gp.posterior(X, y, likelihood=...)``.
"""

from pymc_skewgp._observations.bernoulli_logit import BernoulliLogit
from pymc_skewgp._observations.bernoulli_probit import BernoulliProbit
from pymc_skewgp._observations.binomial_logit import BinomialLogit
from pymc_skewgp._observations.binomial_probit import BinomialProbit
from pymc_skewgp._observations.censored_gaussian import CensoredGaussian
from pymc_skewgp._observations.choice import Choice
from pymc_skewgp._observations.constraint import Constraint
from pymc_skewgp._observations.gamma import Gamma
from pymc_skewgp._observations.gaussian import Gaussian
from pymc_skewgp._observations.laplace import Laplace
from pymc_skewgp._observations.multinomial_probit import MultinomialProbit
from pymc_skewgp._observations.negative_binomial import NegativeBinomial
from pymc_skewgp._observations.ordered_logit import OrderedLogit
from pymc_skewgp._observations.ordered_probit import OrderedProbit
from pymc_skewgp._observations.poisson import Poisson
from pymc_skewgp._observations.preference import Preference
from pymc_skewgp._observations.ranking import Ranking
from pymc_skewgp._observations.selection import Selection
from pymc_skewgp._observations.student_t import StudentT
from pymc_skewgp._observations.weighted import Weighted

__all__ = [
    "BernoulliLogit",
    "BernoulliProbit",
    "BinomialLogit",
    "BinomialProbit",
    "CensoredGaussian",
    "Choice",
    "Constraint",
    "Gamma",
    "Gaussian",
    "Laplace",
    "MultinomialProbit",
    "NegativeBinomial",
    "OrderedLogit",
    "OrderedProbit",
    "Poisson",
    "Preference",
    "Ranking",
    "Selection",
    "StudentT",
    "Weighted",
]
