"""Models of the latent vector that the tests of the Markov chains share."""

import numpy as np

from pymc_skewgp._mcmc.model import ConjugateModel
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._sun.parameters import SunParameters


def label_rows(A, a, sign):
    """Rows of labels +-1 as intervals, with noise of variance 1."""
    lower, upper = np.where(sign > 0, 0.0, -np.inf), np.where(sign > 0, np.inf, 0.0)
    return Observations(A, a, np.ones(sign.size), lower, upper, np.full(sign.size, np.nan))


def labelled(prior, A, a, sign):
    """A SUN vector, given by its five parameters, under labels."""
    return ConjugateModel(SunParameters(*prior), label_rows(A, a, np.asarray(sign)))
