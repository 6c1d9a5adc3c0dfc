r"""Sites of many rows with derivatives in what they are made of: noise, limits, parameters.

EP's evidence is stationary in its sites, so that a derivative in a number behind the site p of a
row is that of the log of its mass under the cavity, f = g + e with g the row's predictor less its
own site, e what features leave of f:

.. math:: \partial \log \int p(y \mid f)\, N(f; m, v + d)\, df
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from pymc_skewgp._gaussian.blocks.block_sites import BlockSites, RowSites, SitesOfFunctions
from pymc_skewgp._gaussian.blocks.row_block import FactorGradient
from pymc_skewgp._gaussian.edges import Edges
from pymc_skewgp._gaussian.site_factors import (
    KnownProducts,
    SiteFactors,
    SiteFunction,
    SlopeFunction,
)
from pymc_skewgp._gaussian.tilted import Tilted
from pymc_skewgp._observations.learnt_sites import SitesGiven
from pymc_skewgp._posterior.averaged_sites import NoiseRule
from pymc_skewgp._validation import FloatArray


class LearntSites(BlockSites, Protocol):
    """Sites, and derivatives of EP's log evidence in the numbers that they are made of."""

    def slopes_of_numbers(self, found: FactorGradient) -> list[FloatArray]:
        """In each of the numbers, at EP's fixed point."""
        ...


@dataclass(frozen=True)
class Predictors:
    """Of some sites.

    Attributes
    ----------
    mean : ndarray, shape (n,)
        Offset of the predictors.
    rest : ndarray, shape (n,)
        Variance of what features leave of f there.
    sd : ndarray, shape (n,)
        Prior deviation of the predictors.
    """

    mean: FloatArray
    rest: FloatArray
    sd: FloatArray


class LearntRows(RowSites):
    """Points and intervals, one a predictor: the numbers are limits, values and variances.

    Parameters
    ----------
    lower, upper, value, noise : ndarray, shape (n,)
    predictors : Predictors
    counts : ndarray, shape (n,), optional
        How many equal rows, with noise and rests of their own, each stands for.
    """

    def __init__(
        self,
        lower: FloatArray,
        upper: FloatArray,
        value: FloatArray,
        noise: FloatArray,
        predictors: Predictors,
        counts: FloatArray | None = None,
    ) -> None:
        mean, variance = predictors.mean, noise + predictors.rest
        super().__init__(lower - mean, upper - mean, value - mean, variance, counts)

    def slopes_of_numbers(self, found: FactorGradient) -> list[FloatArray]:
        """In lower, upper, value and noise."""
        lower, upper, value, noise, counts = self._rows
        deviation = np.sqrt(found.cavity_sd**2 + noise)
        in_limits = slopes_of_limits(lower, upper, value, found.cavity_mean, deviation)
        in_limits = tuple(counts * x for x in in_limits)
        return [*in_limits, np.where(np.isnan(value), 0.0, -found.offset), found.noise]


class FunctionsOfF(SitesOfFunctions):
    """Sites that are functions of f = predictor + e, with e ~ N(0, rest) of each row's own.

    Moments are those of f under the cavity that e widens; log p, which the weights of draws need
    and a search does not, is averaged over e.

    Parameters
    ----------
    log_prob : SiteFunction
    slopes : SlopeFunction
    predictors : Predictors
    """

    divisible = False

    def __init__(
        self, log_prob: SiteFunction, slopes: SlopeFunction, predictors: Predictors
    ) -> None:
        self._log_prob, self._slopes, self._predictors = log_prob, slopes, predictors
        self.factors = SiteFactors(log_prob, slopes, predictors.mean)

    @property
    def size(self) -> int:
        """See `BlockSites`."""
        return self._predictors.mean.size

    def tilted(self, mean: FloatArray, sd: FloatArray) -> Tilted:
        """See `BlockSites`."""
        deviation = np.sqrt(sd**2 + self._predictors.rest)
        log_mass, shift, spread, _ = self.factors.tilted(mean, deviation)
        share = sd / deviation
        taken = share**2 * (1.0 - spread)
        return Tilted(log_mass, share * shift, 1.0 - taken, taken)

    def nodes(self, found: FactorGradient) -> tuple[FloatArray, FloatArray]:
        """Values of f, shape (k, n), and their weights under the cavities times the sites."""
        deviation = np.sqrt(found.cavity_sd**2 + self._predictors.rest)
        return self.factors.nodes(found.cavity_mean, deviation)

    def log_prob(self, rows: slice, eta: FloatArray) -> FloatArray:
        """See `BlockSites`; of all rows."""
        return self._averaged[0](self._predictors.mean + eta)

    def slopes(self, rows: slice, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See `BlockSites`; of all rows."""
        return self._averaged[1](self._predictors.mean + eta)

    def add_log_probs(self, rows: slice, eta: FloatArray, total: FloatArray) -> None:
        """See `BlockSites`."""
        with np.errstate(over="ignore"):
            total += self._averaged[0](eta.T + self._predictors.mean).sum(axis=1)

    @cached_property
    def _averaged(self) -> tuple[SiteFunction, SlopeFunction]:
        own = self._predictors
        rule = NoiseRule.of(self._log_prob, own.rest, own.mean, own.sd)
        if rule is None:
            return self._log_prob, self._slopes
        return rule.averaged(self._log_prob, self._slopes)


class LearntFunctions(FunctionsOfF):
    """Sites of a likelihood that is no rows: the numbers are its parameters.

    `known` of the same likelihood at other parameters.
    """

    def __init__(
        self, sites: SitesGiven, predictors: Predictors, known: KnownProducts | None = None
    ) -> None:
        super().__init__(sites.log_prob, sites.slopes, predictors)
        self._sites = sites
        self.factors.looked = sites.log_concave
        if known is not None:
            self.factors.known = known.of_others() if sites.has_parameters else known

    def slopes_of_numbers(self, found: FactorGradient) -> list[FloatArray]:
        """In each parameter."""
        if not self._sites.has_parameters:
            return []
        return self._sites.in_parameters(*self.nodes(found))


class LearntRepeats(FunctionsOfF):
    """Several points and intervals of one predictor each, such as trials, some of them repeated.

    Parameters
    ----------
    columns : tuple of ndarray, shape (m,)
        Lower, upper, value and noise of each row.
    counts : ndarray, shape (m,)
        How often it was seen.
    unit : ndarray of int, shape (m,)
        Which of the n predictors it is of.
    predictors : Predictors
    """

    def __init__(self, columns: Any, counts: FloatArray, unit: Any, predictors: Predictors) -> None:
        self._rows, self._counts, self._unit = RowSites(*columns), counts, unit
        self._columns = columns
        shape = predictors.mean.size, counts.size
        self._sums = sparse.csr_array((counts, (unit, np.arange(counts.size))), shape=shape)
        super().__init__(self._of_all, self._slopes_of_all, predictors)

    def slopes_of_numbers(self, found: FactorGradient) -> list[FloatArray]:
        """In lower, upper, value and noise."""
        f, weights = self.nodes(found)
        f, weights = f[:, self._unit], weights[:, self._unit] * self._counts
        lower, upper, value, noise = self._columns
        in_limits = slopes_of_limits(lower, upper, value, f, np.sqrt(noise))
        first, second = self._rows.slopes(slice(None), np.ascontiguousarray(f))
        in_value = np.where(np.isnan(value), 0.0, -first)
        moved = [*in_limits, in_value, 0.5 * (second + first**2)]
        return [(weights * x).sum(axis=0) for x in moved]

    def _of_all(self, eta: FloatArray) -> FloatArray:
        return self._summed(self._rows.log_prob(slice(None), self._spread(eta)), eta)

    def _slopes_of_all(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        first, second = self._rows.slopes(slice(None), self._spread(eta))
        return self._summed(first, eta), self._summed(second, eta)

    def _spread(self, f: FloatArray) -> FloatArray:
        """Values of f as rows have them, shape (k, m)."""
        return np.ascontiguousarray(f[..., self._unit].reshape(-1, self._unit.size))

    def _summed(self, values: FloatArray, f: FloatArray) -> FloatArray:
        return np.asarray((self._sums @ values.T).T).reshape(f.shape)


def slopes_of_limits(
    lower: FloatArray, upper: FloatArray, value: FloatArray, mean: FloatArray, sd: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Of the log mass of N(mean, sd^2) between limits, in these; 0 at points."""
    interval = np.isnan(value)
    limits = np.where(interval, lower, -np.inf), np.where(interval, upper, np.inf)
    edges = Edges.of(*limits, mean, sd)
    return -edges.lower, edges.upper
