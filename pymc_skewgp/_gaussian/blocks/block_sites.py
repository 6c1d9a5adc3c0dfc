"""Sites of one block of rows: what expectation propagation and weights ask of them."""

from abc import ABC, abstractmethod
from typing import Protocol

import numpy as np

from pymc_skewgp._gaussian.compiled.log_ndtr_table import log_ndtr_table
from pymc_skewgp._gaussian.compiled.row_sites import (
    add_log_probs,
    add_pair_log_probs,
    row_log_probs,
    row_moments,
    row_slopes,
)
from pymc_skewgp._gaussian.site_factors import SiteFactors, SiteFunction, SlopeFunction
from pymc_skewgp._gaussian.tilted import Tilted
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray


class BlockSites(Protocol):
    """Functions p(y_i | eta_i) of the predictors of n rows; these are less their offset."""

    @property
    def size(self) -> int:
        """Number n of rows."""
        ...

    @property
    def counts(self) -> FloatArray | float:
        """How many equal rows each row stands for, each with noise of its own."""
        ...

    @property
    def divisible(self) -> bool:
        """Whether some of the rows may be asked for without the others."""
        ...

    def tilted(self, mean: FloatArray, sd: FloatArray) -> Tilted:
        """Moments of N(mean_i, sd_i^2) times site i; see `Factors`."""
        ...

    def log_prob(self, rows: slice, eta: FloatArray) -> FloatArray:
        """Log p of each of some rows, once, for predictors of shape (k, rows)."""
        ...

    def slopes(self, rows: slice, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """First and second derivative of `log_prob`."""
        ...

    @property
    def log_concave(self) -> bool:
        """Whether all sites are, after `tilted`."""
        ...

    def add_log_probs(self, rows: slice, eta: FloatArray, total: FloatArray) -> None:
        """Add the sum over some rows of log p, as often as they count, to `total` (N,).

        Predictors have the shape (rows, N).
        """
        ...

    def add_pair_log_probs(
        self, rows: slice, centre: FloatArray, off: FloatArray, totals: FloatArray
    ) -> None:
        """The same for predictors centre_i + off_ij and centre_i - off_ij, to `totals` (2, N)."""
        ...


class RowSites:
    """Points and intervals of eta + e, with noise e ~ N(0, variance) of each row's own.

    Parameters
    ----------
    lower, upper, value, variance : ndarray, shape (n,)
        Limits, or the value where it is known, else NaN, all less the predictor's offset; variance
        of the noise, positive unless no weights are asked for.
    counts : ndarray, shape (n,), optional
        See `BlockSites`; by default 1.
    """

    divisible = log_concave = True

    def __init__(
        self,
        lower: FloatArray,
        upper: FloatArray,
        value: FloatArray,
        variance: FloatArray,
        counts: FloatArray | None = None,
    ) -> None:
        repeats = np.ones(lower.size) if counts is None else counts
        self._rows = np.stack([lower, upper, value, variance, repeats])
        self.counts: FloatArray | float = 1.0 if counts is None else counts

    @property
    def size(self) -> int:
        """See `BlockSites`."""
        return self._rows.shape[1]

    def some(self, rows: IntArray) -> "RowSites":
        """Of some of the rows."""
        return RowSites(*self._rows[:, rows])

    def tilted(self, mean: FloatArray, sd: FloatArray) -> Tilted:
        """See `BlockSites`."""
        found = np.empty((4, mean.size))
        row_moments(self._rows, mean, sd, found)
        return Tilted(*found)

    def log_prob(self, rows: slice, eta: FloatArray) -> FloatArray:
        """See `BlockSites`."""
        found: FloatArray = row_log_probs(self._rows[:, rows], eta, log_ndtr_table())
        return found

    def slopes(self, rows: slice, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See `BlockSites`."""
        first, second = np.empty(eta.shape), np.empty(eta.shape)
        row_slopes(self._rows[:, rows], eta, first, second)
        return first, second

    def add_log_probs(self, rows: slice, eta: FloatArray, total: FloatArray) -> None:
        """See `BlockSites`."""
        add_log_probs(self._rows[:, rows], eta, log_ndtr_table(), total)

    def add_pair_log_probs(
        self, rows: slice, centre: FloatArray, off: FloatArray, totals: FloatArray
    ) -> None:
        """See `BlockSites`."""
        table = log_ndtr_table()
        add_pair_log_probs(self._rows[:, rows], centre, off, table, totals[0], totals[1])


class FunctionsOfSome(Protocol):
    """Log p and its two derivatives, of some of the rows."""

    def __call__(self, rows: slice) -> tuple[SiteFunction, SlopeFunction]:
        """Functions of predictors of shape (..., number of rows)."""
        ...


class SitesOfFunctions(ABC):
    """Sites whose log probabilities of mirrored predictors have nothing in common."""

    counts: FloatArray | float = 1.0
    factors: SiteFactors

    @property
    def log_concave(self) -> bool:
        """See `BlockSites`."""
        return self.factors.log_concave

    @abstractmethod
    def add_log_probs(self, rows: slice, eta: FloatArray, total: FloatArray) -> None:
        """See `BlockSites`."""

    def add_pair_log_probs(
        self, rows: slice, centre: FloatArray, off: FloatArray, totals: FloatArray
    ) -> None:
        """See `BlockSites`."""
        centre = centre[:, None]
        self.add_log_probs(rows, centre + off, totals[0])
        self.add_log_probs(rows, centre - off, totals[1])


class FunctionSites(SitesOfFunctions):
    """Sites that are any functions of their predictors: moments by quadrature.

    Parameters
    ----------
    functions : callable
        Log p and its derivatives for a slice of the rows.
    offset : ndarray, shape (n,)
        Of the predictors.
    divisible : bool, default True
        Whether there are functions of some of the rows without the others.
    """

    def __init__(
        self, functions: FunctionsOfSome, offset: FloatArray, divisible: bool = True
    ) -> None:
        self._functions, self._offset, self.divisible = functions, offset, divisible
        self.factors = SiteFactors(*functions(slice(None)), offset)

    @property
    def size(self) -> int:
        """See `BlockSites`."""
        return self._offset.size

    def tilted(self, mean: FloatArray, sd: FloatArray) -> Tilted:
        """See `BlockSites`."""
        return self.factors.tilted(mean, sd)

    def log_prob(self, rows: slice, eta: FloatArray) -> FloatArray:
        """See `BlockSites`."""
        return self._functions(rows)[0](self._offset[rows] + eta)

    def slopes(self, rows: slice, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See `BlockSites`."""
        return self._functions(rows)[1](self._offset[rows] + eta)

    def add_log_probs(self, rows: slice, eta: FloatArray, total: FloatArray) -> None:
        """See `BlockSites`."""
        log_prob = self._functions(rows)[0]
        with np.errstate(over="ignore"):
            total += log_prob(eta.T + self._offset[rows]).sum(axis=1)
