"""Sites whose log probability is a closed form: written once, with what y alone decides kept."""

from abc import abstractmethod

from pymc_skewgp._observations.likelihood import Data
from pymc_skewgp._observations.sites import FactorFunctions, SiteLikelihood
from pymc_skewgp._validation import FloatArray


class ClosedFormSites(SiteLikelihood):
    """Sites by `functions`, which are called many times for the same data."""

    @abstractmethod
    def functions(self, y: Data) -> FactorFunctions:
        """Functions of f, shape (..., n), for checked data."""

    def log_likelihood(self, y: Data, f: FloatArray) -> FloatArray:
        """Log p(y_i | f_i)."""
        return self.functions(y).log_prob(f)

    def slopes(self, y: Data, f: FloatArray) -> tuple[FloatArray, FloatArray]:
        """First and second derivative of log p(y_i | f_i) in f_i."""
        return self.functions(y).slopes(f)
