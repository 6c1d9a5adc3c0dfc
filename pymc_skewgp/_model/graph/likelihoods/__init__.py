"""Likelihoods that are recognised in a model: one file and one entry of the table for each."""

from pymc_skewgp._model.graph.likelihoods.likelihood import Likelihood
from pymc_skewgp._model.graph.likelihoods.probit import PROBIT

LIKELIHOODS: tuple[Likelihood, ...] = (PROBIT,)
