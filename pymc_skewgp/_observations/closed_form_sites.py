"""Sites whose log probability is a closed form: written once, with what y alone decides kept."""

from abc import abstractmethod
from typing import NamedTuple

import numpy as np

from pymc_skewgp._observations.likelihood import Data
from pymc_skewgp._observations.sites import LogProb, SiteLikelihood, Sites, Slopes
from pymc_skewgp._validation import FloatArray


class ClosedForm(NamedTuple):
    """Log p(y_i | f_i), every constant included, and its two derivatives, for given y."""

    log_prob: LogProb
    slopes: Slopes


class ClosedFormSites(SiteLikelihood):
    """Sites by `functions`, which are called many times for the same data."""

    @abstractmethod
    def functions(self, y: Data) -> ClosedForm:
        """Functions of f, shape (..., n), for checked data."""

    def log_likelihood(self, y: Data, f: FloatArray) -> FloatArray:
        """Log p(y_i | f_i)."""
        return self.functions(y).log_prob(f)

    def slopes(self, y: Data, f: FloatArray) -> tuple[FloatArray, FloatArray]:
        """First and second derivative of log p(y_i | f_i) in f_i."""
        return self.functions(y).slopes(f)

    def sites(self, y: Data, n: int) -> Sites:
        """One site an observation."""
        return Sites(None, np.zeros(n), *self.functions(y))
