"""Blocks of data at a point: their sites, and derivatives in the numbers that these are made of.

A block is made of numbers that a `LatentGraph` compiles, in the order in which the constructors
below take them. The derivatives are those of EP's log evidence, which is stationary in its sites.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pymc_skewgp._gaussian.blocks.groups import (
    DenseRows,
    FunctionRows,
    GroupBlock,
    GroupLogProbs,
)
from pymc_skewgp._gaussian.blocks.rows import RowBlock, RowSites
from pymc_skewgp._gaussian.log_prob_gradient import LogProbGradient, log_prob_and_gradient
from pymc_skewgp._gaussian.truncated import log_prob_rectangle
from pymc_skewgp._gaussian.weights import Estimate, IntArray
from pymc_skewgp._learn.factor_evidence import (
    LearntFunctions,
    LearntRepeats,
    LearntRows,
    LearntSites,
    Predictors,
    slopes_of_limits,
)
from pymc_skewgp._learn.objective import Batch
from pymc_skewgp._learn.rows.program import Arrays, CompiledNumbers, LatentAt, all_finite
from pymc_skewgp._observations.constraint import pseudo_point_rows
from pymc_skewgp._observations.likelihood import Data
from pymc_skewgp._observations.observations import intervals
from pymc_skewgp._observations.sites import SiteFamily
from pymc_skewgp._posterior.evidence_gradient import coincide
from pymc_skewgp._posterior.finite_rank_fit import HardRows, limited
from pymc_skewgp._posterior.row_groups import block_of_groups, log_probs_of
from pymc_skewgp._validation import FloatArray

_NO_SLOPE = np.zeros(())


class BlockAt:
    """A block of data at a point.

    Attributes
    ----------
    block : RowBlock or GroupBlock
        Its predictors with their sites.
    log_constant : float
        Of its log evidence.
    numbers : sequence of ndarray
        What it is made of.
    """

    block: RowBlock | GroupBlock
    numbers: Sequence[FloatArray] = ()
    log_constant: float = 0.0

    def hard(self) -> HardRows | None:
        """The same as rows that are drawn first, where they have next to no noise."""
        return None

    def slopes(self, mean: FloatArray, spread: FloatArray) -> Sequence[FloatArray]:
        """Derivatives in the numbers at EP's fixed point, N(mean, spread spread')."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Chunk:
    """A block of data as a function of a point.

    Attributes
    ----------
    compiled : CompiledNumbers
    X : ndarray, shape (k, d)
        Inputs at which functions are needed.
    made : callable
        From the numbers to a `BlockAt`; None where double precision ends.
    batch : tuple of ndarray
        The data.
    """

    compiled: CompiledNumbers
    X: FloatArray
    made: Callable[..., BlockAt | None]
    batch: Batch = ()

    def at(self, latent: LatentAt) -> BlockAt | None:
        """At a point."""
        numbers = self.compiled(latent.point, self._arguments(latent))
        found = self.made(*numbers)
        if found is not None:
            found.numbers = numbers
        return found

    def pull_back(
        self, latent: LatentAt, part: BlockAt, mean: FloatArray, spread: FloatArray
    ) -> Arrays:
        """See `Latent.pull_back`; `part` is this at the point, mean and spread are EP's."""
        slopes, known = part.slopes(mean, spread), self._arguments(latent)
        found = self.compiled.pull_back(latent.point, known, slopes, part.numbers)
        assert found is not None  # features depend on what is common
        return found

    def _arguments(self, latent: LatentAt) -> Batch:
        return self.X, *latent.basis, *latent.common, *self.batch


class SitesAt(BlockAt):
    """Data of one predictor each, or about it several times."""

    def __init__(self, phi: FloatArray, sites: LearntSites, log_constant: float) -> None:
        self.block: RowBlock = RowBlock(phi, sites)
        self._sites = sites
        self.log_constant = log_constant

    def slopes(self, mean: FloatArray, spread: FloatArray) -> Sequence[FloatArray]:
        """See `BlockAt`."""
        found = self.block.gradient(mean, spread)
        own = self._sites.slopes_of_numbers(found)
        return [_NO_SLOPE, found.factor, found.offset, found.noise, *own]


@dataclass(frozen=True, eq=False)
class OfRows:
    """Makes sites of points and intervals.

    Attributes
    ----------
    counts : ndarray, shape (m,), or None
        How often each row was seen; None for once.
    unit : ndarray of int, shape (m,), or None
        The predictor of each row, whose value of f all that it counts share; None where each is of
        a predictor of its own, and what features leave of f is not shared.
    """

    counts: FloatArray | None = None
    unit: IntArray | None = None

    def __call__(self, log_constant: FloatArray, *numbers: FloatArray) -> SitesAt | None:
        """Of phi, mean and rest, then of lower, upper, value and noise."""
        phi, mean, rest, lower, upper, value, noise = numbers
        if not all_finite(log_constant, phi, mean, rest, noise):
            return None
        own = _predictors(phi, mean, rest)
        sites: LearntSites
        if self.counts is not None and self.unit is not None:
            sites = LearntRepeats((lower, upper, value, noise), self.counts, self.unit, own)
        else:
            sites = LearntRows(lower, upper, value, noise, own, self.counts)
        return SitesAt(phi, sites, float(log_constant))


@dataclass(frozen=True, eq=False)
class OfFunctions:
    """Makes sites that are functions p(y | f) of data y."""

    family: SiteFamily
    y: Data

    def __call__(self, log_constant: FloatArray, *numbers: FloatArray) -> SitesAt | None:
        """Of phi, mean and rest, then of the parameters."""
        phi, mean, rest, *parameters = numbers
        if not all_finite(phi, mean, rest):
            return None
        try:
            sites = self.family.at(self.y, parameters)
        except ValueError:  # parameters that are impossible
            return None
        return SitesAt(phi, LearntFunctions(sites, _predictors(phi, mean, rest)), 0.0)


def _predictors(phi: FloatArray, mean: FloatArray, rest: FloatArray) -> Predictors:
    return Predictors(mean, rest, np.sqrt(np.einsum("ij,ij->i", phi, phi)))


class GroupsAt(BlockAt):
    """Groups of m rows, which share noise or are about several functions.

    Parameters
    ----------
    factor : tuple of ndarray
        Rows, shape (n, m, R); or features of one input and how rows mix functions of it, shape
        (n, r) and (n, m, L).
    offset, lower, upper, value : ndarray, shape (n, m)
    noise : ndarray, shape (n, m, m)
    apart : bool
        Whether the noise of each row is its own.
    """

    def __init__(
        self,
        factor: Arrays,
        offset: FloatArray,
        noise: FloatArray,
        columns: Arrays,
        log_constant: float,
        apart: bool,
    ) -> None:
        self._lower, self._upper, self._value = (x - offset for x in columns)
        self._shape, self.log_constant = offset.shape, log_constant
        self._variance = np.einsum("ijj->ij", noise)
        if len(factor) == 1:
            rows = factor[0].reshape(offset.size, -1)
            self._predictors: DenseRows | FunctionRows = DenseRows(rows, offset.shape[1])
        else:
            self._predictors = FunctionRows(*factor)
        limits = self._lower, self._upper, self._value
        probs = None if apart else _MadeLater(lambda: log_probs_of(*limits[:2], noise))
        self.block: RowBlock | GroupBlock = block_of_groups(self._predictors, limits, noise, probs)

    def slopes(self, mean: FloatArray, spread: FloatArray) -> Sequence[FloatArray]:
        """See `BlockAt`."""
        shape, variance = self._shape, self._variance
        factor: Sequence[FloatArray]
        if isinstance(self.block, RowBlock):
            of_rows = self.block.gradient(mean, spread)
            noise = np.zeros((*shape, shape[1]))
            np.einsum("ijj->ij", noise)[:] = of_rows.noise.reshape(shape)
            factor, offset = [of_rows.factor.reshape(*shape, -1)], of_rows.offset.reshape(shape)
            cavity = of_rows.cavity_mean.reshape(shape), of_rows.cavity_sd.reshape(shape)
        else:
            found = self.block.gradient(mean, spread)
            offset, noise, variance = found.offset, found.noise, np.zeros(shape)
            cavity = found.cavity_mean, found.cavity_sd
            own = self._predictors.gradient(offset, found.precision, mean, spread)
            factor = own if isinstance(own, tuple) else [own]
        deviation = np.sqrt(cavity[1] ** 2 + variance)
        limits = self._lower, self._upper, self._value
        in_limits = slopes_of_limits(*limits, cavity[0], deviation)
        # No value is learnt.
        return [_NO_SLOPE, *factor, offset, noise, *in_limits, np.zeros(shape)]


@dataclass(frozen=True, eq=False)
class OfGroups:
    """Makes `GroupsAt`; `apart` as there."""

    apart: bool

    def __call__(self, log_constant: FloatArray, *numbers: FloatArray) -> GroupsAt | None:
        """Of the factor, then of offset, noise, lower, upper and value."""
        *factor, offset, noise, lower, upper, value = numbers
        positive = (np.einsum("ijj->ij", noise) > 0.0).all()
        if not (positive and all_finite(log_constant, *factor, offset, noise)):
            return None
        columns, constant = (lower, upper, value), float(log_constant)
        return GroupsAt(tuple(factor), offset, noise, columns, constant, self.apart)


class _MadeLater:
    """Log probabilities of groups that are made when weights are asked for."""

    def __init__(self, make: Callable[[], GroupLogProbs | None]) -> None:
        self._make = make

    @cached_property
    def _found(self) -> GroupLogProbs:
        found = self._make()
        assert found is not None  # else these data were refused
        return found

    def __call__(self, groups: slice, eta: FloatArray) -> FloatArray:
        """See `GroupLogProbs`."""
        return self._found(groups, eta)


class LimitsAt(BlockAt):
    """A constraint: limits of f, or of a derivative of phi' c, with next to no noise.

    Parameters
    ----------
    phi, mean, noise : ndarray
        `noise` is what features leave, and the share of the variance that is a nugget.
    lower, upper : ndarray, shape (k,)
    variance, nugget : ndarray, shape (k,)
        Of f in the prior, and the nugget's alone.
    log_constant : float
    """

    def __init__(self, log_constant: float, numbers: Sequence[FloatArray]) -> None:
        self._phi, mean, self._noise, lower, upper, self._variance, self._nugget = numbers
        self._limits, self.log_constant = (lower - mean, upper - mean), log_constant
        self._nowhere = np.full(mean.size, np.nan)
        self.block: RowBlock = RowBlock(
            self._phi, RowSites(*self._limits, self._nowhere, self._noise)
        )

    def hard(self) -> HardRows:
        """See `BlockAt`: in prior standard deviations."""
        none = np.zeros(self._noise.size)
        return limited(
            self._phi, none, self._limits, self._noise, self._nugget, np.sqrt(self._variance)
        )

    def slopes(self, mean: FloatArray, spread: FloatArray) -> Sequence[FloatArray]:
        """See `BlockAt`."""
        found = self.block.gradient(mean, spread)
        deviation = np.sqrt(found.cavity_sd**2 + self._noise)
        in_limits = slopes_of_limits(*self._limits, self._nowhere, found.cavity_mean, deviation)
        none = np.zeros(deviation.size)
        return [_NO_SLOPE, found.factor, found.offset, found.noise, *in_limits, none, none]


def limits_at(log_constant: FloatArray, *numbers: FloatArray) -> LimitsAt | None:
    """Makes `LimitsAt`."""
    phi, mean, noise, *_, variance, _ = numbers
    if not (all_finite(log_constant, phi, mean, noise) and (variance > 0.0).all()):
        return None
    return LimitsAt(float(log_constant), numbers)


# Signs of f at pseudo-points, as rows of f less its mean in standard deviations.
#
# What is learnt from is the probability of the data given the signs. So that of the signs before
# any data, by the twisted sampler, is taken off the log evidence of both.

_DRAWS = 1024
_LARGEST_ERROR = 1e-3  # of a phase's square


class SignsAt(BlockAt):
    """Signs of K independent functions.

    Parameters
    ----------
    phase, truncation : ndarray, shape (s,)
    factor : ndarray, shape (s, r)
        Of one function in standard deviations.
    noise : ndarray, shape (s,)
        Its variance that features leave.
    n_functions : int
    """

    def __init__(
        self,
        phase: FloatArray,
        truncation: FloatArray,
        factor: FloatArray,
        noise: FloatArray,
        n_functions: int,
    ) -> None:
        self._k, self._positive, self._factor = n_functions, phase > 0, factor
        rows = pseudo_point_rows(np.ones(phase.size), phase, truncation)
        self._limits = rows.lower, rows.upper
        lower, upper, noises = (np.tile(x, n_functions) for x in (*self._limits, noise))
        self._columns = lower, upper, np.full(lower.size, np.nan), noises
        self.cov = factor @ factor.T
        self.cov[np.diag_indices_from(self.cov)] += noise
        wide = np.asarray(np.kron(np.eye(n_functions), factor), dtype=np.float64)
        self.block: RowBlock = RowBlock(wide, RowSites(*self._columns))

    def hard(self) -> HardRows:
        """See `BlockAt`."""
        lower, upper, _, noise = self._columns
        zeros = np.zeros(noise.size)
        rows = intervals(lower, upper, noise)
        return HardRows(self.block.factor, zeros, rows, zeros, noise.size)

    @cached_property
    def _alone(self) -> LogProbGradient:
        """Of the signs of one function before any data."""
        return log_prob_and_gradient(*self._limits, self.cov, n_draws=_DRAWS)

    @property
    def log_constant(self) -> float:  # type: ignore[override]
        """See `BlockAt`: less the log probability of the signs before any data."""
        return -self._k * self._alone.value

    def with_error(self, evidence: Estimate, n_draws: int) -> Estimate:
        """A log evidence with the signs' own probability, and its error, by so many draws."""
        alone = log_prob_rectangle(self.cov, *self._limits, n_draws, None, 0)
        value = evidence.value - self.log_constant - self._k * alone.value
        std_error = float(np.hypot(evidence.std_error, self._k * alone.std_error))
        return evidence._replace(value=value, std_error=std_error)

    def slopes(self, mean: FloatArray, spread: FloatArray) -> Sequence[FloatArray]:
        """See `BlockAt`."""
        found, (k, s, r) = self.block.gradient(mean, spread), (self._k, *self._factor.shape)
        lower, upper, value, noise = self._columns
        deviation = np.sqrt(found.cavity_sd**2 + noise)
        in_limits = slopes_of_limits(lower, upper, value, found.cavity_mean, deviation)
        in_lower, in_upper, in_noise = (
            x.reshape(k, s).sum(axis=0) for x in (*in_limits, found.noise)
        )
        in_factor = np.einsum("ksku->su", found.factor.reshape(k, s, k, r))
        alone = self._alone
        in_lower, in_upper = in_lower - k * alone.lower, in_upper - k * alone.upper
        in_factor -= k * (alone.cov + alone.cov.T) @ self._factor
        in_noise -= k * alone.cov.diagonal()
        in_truncation = np.where(self._positive, -in_lower, in_upper)
        return [np.zeros(s), in_truncation, in_factor, in_noise]


@dataclass(frozen=True)
class OfSigns:
    """Makes `SignsAt`."""

    n_functions: int

    def __call__(self, *numbers: FloatArray) -> SignsAt | None:
        """Of phase and truncation, factor and noise.

        Raises
        ------
        ValueError
            For phases that are neither +1 nor -1.
        """
        phase, truncation, factor, noise = numbers
        if np.abs(phase**2 - 1.0).max() > _LARGEST_ERROR:
            raise ValueError(
                f"a phase is neither +1 nor -1, but {phase}: write "
                '2 * pm.Bernoulli("positive", 0.5, shape=s) - 1.'
            )
        if not all_finite(*numbers):
            return None
        found = SignsAt(phase, truncation, factor, noise, self.n_functions)
        return None if coincide(found.cov) or not np.isfinite(found.log_constant) else found
