"""Likelihoods that are recognised in a model: one file and one entry of the table for each."""

from pymc_skewgp._model.graph.likelihoods.likelihood import Likelihood
from pymc_skewgp._model.graph.likelihoods.normal import (
    CENSORED,
    CHOICE,
    INTERVAL_NORMAL,
    LAPLACE,
    LOGNORMAL,
    MVNORMAL,
    NORMAL,
    PREFERENCE,
    STUDENT_T,
)
from pymc_skewgp._model.graph.likelihoods.probit import BINOMIAL, ORDERED_PROBIT, PROBIT

LIKELIHOODS: tuple[Likelihood, ...] = (
    PROBIT,
    BINOMIAL,
    ORDERED_PROBIT,
    NORMAL,
    LOGNORMAL,
    MVNORMAL,
    CENSORED,
    STUDENT_T,
    LAPLACE,
    INTERVAL_NORMAL,
    PREFERENCE,
    CHOICE,
)
"""What the analysis of a model's graph has to know of a likelihood."""
