"""Labels that a subject may give without looking: lapses, guesses, flips."""

from dataclasses import dataclass

import numpy as np

from pymc_skewgp._gaussian.univariate import log_ndtr_interval
from pymc_skewgp._mcmc.model import Rows
from pymc_skewgp._validation import FloatArray


@dataclass(frozen=True)
class Lapses:
    r"""Intervals that say something of f with a probability only.

    .. math:: p(y \mid f) = c + |b| \, P(v \in I \mid f)

    with I an interval with one limit; its complement, for negative b. The indicator of a row is 1
    where it says nothing, 0 where it does.

    A label that is flipped with probability eps is one: it is drawn at random with probability
    2 eps, and tells the truth otherwise. This leaves f more room than to know which labels are
    flipped, so that a chain on f and indicators mixes faster.

    Attributes
    ----------
    lapse : ndarray, shape (m,)
        c, the probability that the row says nothing and is as it was observed.
    truth : ndarray, shape (m,)
        b: its absolute value is the probability that it says something.
    """

    lapse: FloatArray
    truth: FloatArray

    def draw(self, errors: Rows, rng: np.random.Generator) -> FloatArray:
        """See `Mixture`."""
        sd = np.sqrt(errors.variance)
        lower, upper = self._limits(errors.lower / sd, errors.upper / sd)
        with np.errstate(divide="ignore", invalid="ignore"):
            log_odds = np.log(self.lapse) - np.log(np.abs(self.truth))
            log_odds -= log_ndtr_interval(lower, upper)
        # The logistic distribution's draw is the log odds of a uniform one.
        return (rng.logistic(size=log_odds.size) < log_odds).astype(float)

    def given(self, rows: Rows, z: FloatArray) -> Rows:
        """See `Mixture`."""
        lower, upper = self._limits(rows.lower, rows.upper)
        return rows._replace(
            lower=np.where(z == 1.0, -np.inf, lower), upper=np.where(z == 1.0, np.inf, upper)
        )

    def log_density(self, z: FloatArray) -> FloatArray:
        """See `Mixture`."""
        with np.errstate(divide="ignore"):
            found: FloatArray = np.log(np.where(z == 1.0, self.lapse, np.abs(self.truth)))
        return found

    def _limits(self, lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Those of the other label, on the other side of the only limit, where b is negative."""
        other = self.truth < 0
        return (
            np.where(other, np.where(np.isfinite(upper), upper, -np.inf), lower),
            np.where(other, np.where(np.isfinite(lower), lower, np.inf), upper),
        )
