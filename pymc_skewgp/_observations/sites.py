"""Observations that are no rows: sites p(y_i | eta_i), functions of one predictor each."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pymc_skewgp._observations.likelihood import Data, Likelihood
from pymc_skewgp._observations.observations import Design, Observations, intervals
from pymc_skewgp._validation import FloatArray


class LogProb(Protocol):
    """Log p(y_i | eta_i) of m sites, as a function of their predictors."""

    def __call__(self, eta: FloatArray) -> FloatArray:
        """Of predictors, shape (..., m): as many values; -inf where y_i is impossible."""
        ...


class Slopes(Protocol):
    """First and second derivatives of log p(y_i | eta_i) in eta_i."""

    def __call__(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Of predictors, shape (..., m): both of that shape."""
        ...


@dataclass(frozen=True)
class Sites:
    r"""Observations :math:`p(y_i \mid \eta_i)` with :math:`\eta = A f + a`, given f independent.

    Attributes
    ----------
    A : ndarray or sparse array, shape (m, p); ndarray, shape (m,); or None
        Design, as that of `Observations`.
    a : ndarray, shape (m,)
        Offset.
    log_prob : LogProb
        Every constant included.
    slopes : Slopes
        Its derivatives.
    """

    A: Design
    a: FloatArray
    log_prob: LogProb
    slopes: Slopes

    @property
    def size(self) -> int:
        """Number m of sites."""
        return self.a.size


class SiteLikelihood(Likelihood):
    """A likelihood of one predictor an observation that has no rows, such as that of counts.

    To add one: a class in a file of its own beside this one, its name in
    `pymc_skewgp.likelihoods`, and a test against quadrature.
    """

    @abstractmethod
    def log_likelihood(self, y: Data, f: FloatArray) -> FloatArray:
        """Log p(y_i | f_i), every constant included, f of shape (..., n)."""

    @abstractmethod
    def slopes(self, y: Data, f: FloatArray) -> tuple[FloatArray, FloatArray]:
        """First and second derivative of log p(y_i | f_i) in f_i."""

    def observations(self, y: Data, n: int) -> Observations:
        """No rows."""
        nothing = np.zeros(0)
        return intervals(nothing, nothing, nothing)

    def sites(self, y: Data, n: int) -> Sites:
        """One site an observation."""
        return Sites(
            None,
            np.zeros(n),
            lambda eta: self.log_likelihood(y, eta),
            lambda eta: self.slopes(y, eta),
        )
