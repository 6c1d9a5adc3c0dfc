"""Likelihoods that are recognised in a model: one file and one entry of the table for each."""

from pymc_skewgp._model.graph.likelihoods.binomial import BINOMIAL
from pymc_skewgp._model.graph.likelihoods.censored import CENSORED
from pymc_skewgp._model.graph.likelihoods.choice import CHOICE
from pymc_skewgp._model.graph.likelihoods.interval_normal import INTERVAL_NORMAL
from pymc_skewgp._model.graph.likelihoods.laplace import LAPLACE
from pymc_skewgp._model.graph.likelihoods.likelihood import Likelihood
from pymc_skewgp._model.graph.likelihoods.lognormal import LOGNORMAL
from pymc_skewgp._model.graph.likelihoods.mvnormal import MVNORMAL
from pymc_skewgp._model.graph.likelihoods.normal import NORMAL
from pymc_skewgp._model.graph.likelihoods.ordered_probit import ORDERED_PROBIT
from pymc_skewgp._model.graph.likelihoods.preference import PREFERENCE
from pymc_skewgp._model.graph.likelihoods.probit import PROBIT
from pymc_skewgp._model.graph.likelihoods.student_t import STUDENT_T

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
