"""Likelihoods under which the posterior of a Gaussian process is known exactly.

Each is a small frozen object for ``gp.posterior(X, y, likelihood=...)``.
"""

from pymc_skewgp._observations.bernoulli_probit import BernoulliProbit
from pymc_skewgp._observations.constraint import Constraint
from pymc_skewgp._observations.gaussian import Gaussian

__all__ = ["BernoulliProbit", "Constraint", "Gaussian"]
