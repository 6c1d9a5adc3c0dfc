r"""Blocks of data from numbers: their sites, and derivatives in the numbers that they are made of.

A block is made of numbers that functions of finite rank give at its inputs, and of its data, in the
order in which the functions below take them. EP's evidence is stationary in its sites p, so that a
derivative in a number behind the site of a row is that of the log of its mass under the cavity, f =
g + e with g the row's predictor less its own site, e what features leave of f:

.. math:: \partial \log \int p(y \mid f)\, N(f; m, v + d)\, df
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import issparse

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._gaussian import coordinates, log_prob_gradient, tilted, truncated, univariate
from pymc_skewgp._gaussian.blocks import groups as grouped
from pymc_skewgp._gaussian.blocks.beside import RowsBeside
from pymc_skewgp._gaussian.blocks.functions import FunctionSites
from pymc_skewgp._gaussian.blocks.rows import FactorGradient, RowBlock, RowSites
from pymc_skewgp._gaussian.blocks.several import SeveralGradient, SeveralSites
from pymc_skewgp._gaussian.weights import Estimate, IntArray
from pymc_skewgp._observations.constraint import pseudo_point_rows
from pymc_skewgp._observations.likelihood import Data
from pymc_skewgp._observations.sites import SiteFamily, SitesGiven
from pymc_skewgp._posterior.evidence_gradient import coincide
from pymc_skewgp._posterior.row_groups import SHARED_NOISE, log_probs_of
from pymc_skewgp._validation import FloatArray

# Sites of rows that know derivatives in the numbers that they are made of.

Arrays = tuple[FloatArray, ...]
type LearntSites = LearntRows | LearntFunctions | LearntRepeats
_NO_SLOPE = np.zeros(())


class LearntRows(RowSites):
    """Points and intervals, one a predictor.

    Parameters
    ----------
    columns : sequence of ndarray, shape (n,)
        The numbers: lower, upper, value and noise.
    mean, rest : ndarray, shape (n,)
        Of the predictors, and what features leave of their variance.
    counts : ndarray, shape (n,), optional
        How many equal rows, with noise and rests of their own, each stands for.
    """

    def __init__(
        self,
        columns: Sequence[FloatArray],
        mean: FloatArray,
        rest: FloatArray,
        counts: FloatArray | None = None,
    ) -> None:
        lower, upper, value, noise = columns
        super().__init__(lower - mean, upper - mean, value - mean, noise + rest, counts)

    def slopes_of_numbers(self, found: FactorGradient) -> list[FloatArray]:
        """In each of the columns."""
        lower, upper, value, noise, counts = self._rows
        deviation = np.sqrt(found.cavity_sd**2 + noise)
        in_limits = slopes_of_limits(lower, upper, value, found.cavity_mean, deviation)
        in_limits = tuple(counts * x for x in in_limits)
        return [*in_limits, np.where(np.isnan(value), 0.0, -found.offset), found.noise]


class LearntFunctions(FunctionSites):
    """Sites of a likelihood that is no rows: the numbers are its parameters.

    `known` of the same likelihood at other parameters.
    """

    def __init__(
        self,
        sites: SitesGiven,
        mean: FloatArray,
        rest: FloatArray,
        sd: FloatArray,
        known: tilted.KnownProducts | None = None,
    ) -> None:
        super().__init__(sites.log_prob, sites.slopes, mean, rest, sd)
        self._sites = sites
        self.factors.certain = sites.log_concave
        if known is not None:
            self.factors.known = known.of_others() if sites.has_parameters else known

    def slopes_of_numbers(self, found: FactorGradient) -> list[FloatArray]:
        """In each parameter."""
        if not self._sites.has_parameters:
            return []
        return self._sites.in_parameters(*self.nodes(found))

    def some_log_prob(self, rows: IntArray, eta: FloatArray) -> FloatArray:
        """See `BlockSites`."""
        log_prob = None if self._rest.any() else self._sites.some(rows)
        if log_prob is None:
            return super().some_log_prob(rows, eta)
        return log_prob(self._mean[rows] + eta)


class LearntSeveral(SeveralSites):
    """Functions of several predictors each: the numbers are their parameters."""

    counts = 1.0

    def __init__(self, sites: SitesGiven, offset: FloatArray) -> None:
        functions = sites.log_prob, sites.slopes, sites.gradient
        super().__init__(*functions, offset, sites.width, sites.gaussian_in)
        self._sites = sites

    def slopes_of_numbers(self, found: SeveralGradient) -> list[FloatArray]:
        """In each parameter."""
        return self.in_parameters(found.nodes, found.weights)

    def in_parameters(self, eta: FloatArray, weights: FloatArray) -> list[FloatArray]:
        """Of the sum of weights (N, n) times log p, at predictors less their offset."""
        if not self._sites.has_parameters:
            return []
        return self._sites.in_parameters(self.offset + eta, weights)


class LearntRepeats(FunctionSites):
    """Several points and intervals of one predictor each, such as trials, some of them repeated.

    Parameters
    ----------
    columns : sequence of ndarray, shape (m,)
        See `LearntRows`.
    counts : ndarray, shape (m,)
        How often each was seen.
    unit : ndarray of int, shape (m,)
        Which of the n predictors it is of, ascending.
    *predictors
        See `FunctionSites`.
    """

    def __init__(
        self, columns: Any, counts: FloatArray, unit: IntArray, *predictors: FloatArray
    ) -> None:
        self._rows, self._repeats, self._unit = RowSites(*columns), counts, unit
        self._columns = columns
        together = coordinates.RowFactors(unit, self._rows, counts, predictors[0].size)
        super().__init__(together.log_prob, together.slopes, *predictors)

    def slopes_of_numbers(self, found: FactorGradient) -> list[FloatArray]:
        """In each of the columns."""
        f, weights = self.nodes(found)
        f, weights = f[:, self._unit], weights[:, self._unit] * self._repeats
        lower, upper, value, noise = self._columns
        in_limits = slopes_of_limits(lower, upper, value, f, np.sqrt(noise))
        first, second = self._rows.slopes(slice(None), np.ascontiguousarray(f))
        in_value = np.where(np.isnan(value), 0.0, -first)
        moved = [*in_limits, in_value, 0.5 * (second + first**2)]
        return [(weights * x).sum(axis=0) for x in moved]


def slopes_of_limits(
    lower: FloatArray, upper: FloatArray, value: FloatArray, mean: FloatArray, sd: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Of the log mass of N(mean, sd^2) between limits, in these; 0 at points."""
    interval = np.isnan(value)
    limits = np.where(interval, lower, -np.inf), np.where(interval, upper, np.inf)
    edges = univariate.Edges.of(*limits, mean, sd)
    return -edges.lower, edges.upper


# Blocks at some values of their numbers.


class BlockAt:
    """A block of data.

    Attributes
    ----------
    block : RowBlock or GroupBlock
        Its predictors with their sites.
    log_constant : float
        Of its log evidence.
    numbers : sequence of ndarray
        What it is made of.
    hard : RowsBeside or None
        The same as rows that are drawn first, in prior standard deviations, where they have next to
        no noise.
    """

    block: RowBlock | grouped.GroupBlock
    numbers: Sequence[FloatArray] = ()
    log_constant: float = 0.0
    hard: RowsBeside | None = None

    def slopes(self, mean: FloatArray, spread: FloatArray) -> Sequence[FloatArray]:
        """Derivatives in the numbers at EP's fixed point, N(mean, spread spread')."""
        raise NotImplementedError


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
        factor = found.factor.reshape(found.offset.size, -1)  # of a field its entries
        return [_NO_SLOPE, factor, found.offset, found.noise, *own]


def rows_at(
    counts: FloatArray | None, unit: IntArray | None, *numbers: FloatArray
) -> SitesAt | None:
    """Points and intervals: of log constant, phi, mean and rest, then lower, upper, value, noise.

    None where double precision ends. For `counts` and `unit` see `Cut`.
    """
    log_constant, phi, mean, rest, *columns = numbers
    if not all_finite(log_constant, phi, mean, rest, columns[-1]):
        return None
    sites: LearntSites
    if counts is None or unit is None:
        sites = LearntRows(columns, mean, rest, counts)
    else:
        sites = LearntRepeats(columns, counts, unit, mean, rest, deviations(phi))
    return SitesAt(phi, sites, float(log_constant))


def functions_at(family: SiteFamily, y: Data, *numbers: FloatArray) -> SitesAt | None:
    """Functions p(y | f): of log constant, phi, mean and rest, then of the parameters."""
    _, phi, mean, rest, *parameters = numbers
    if not all_finite(phi, mean, rest):
        return None
    try:
        sites = family(y, parameters)
    except ValueError:  # parameters that are impossible
        return None
    return SitesAt(phi, LearntFunctions(sites, mean, rest, deviations(phi)), 0.0)


def deviations(phi: Any) -> FloatArray:
    """Of predictors in the prior, where coordinates have variances of 1."""
    if issparse(phi):
        squares: Any = phi
        return np.sqrt(squares.power(2).sum(axis=1))
    return np.sqrt(np.einsum("ij,ij->i", phi, phi))


def all_finite(*arrays: Any) -> bool:
    """Whether all their numbers are."""
    numbers = (np.asarray(vars(x)["data"]) if issparse(x) else x for x in arrays)
    return all(bool(np.isfinite(x).all()) for x in numbers)


class GroupsAt(BlockAt):
    """Groups of m rows, which share noise or are about several functions.

    Parameters
    ----------
    is_apart : bool
        Whether the noise of each row is its own.
    log_constant : float
    factor : sequence of ndarray
        Rows, shape (n, m, R); or features of one input and how rows mix functions of it, shape
        (n, r) and (n, m, L).
    noise : ndarray, shape (n, m, m)
    limits : sequence of ndarray, shape (n, m)
        Lower, upper and value, less the offset.
    """

    def __init__(
        self,
        is_apart: bool,
        log_constant: float,
        factor: Sequence[FloatArray],
        noise: FloatArray,
        limits: Sequence[FloatArray],
    ) -> None:
        self._limits, self.log_constant = limits, log_constant
        self._variance = np.einsum("ijj->ij", noise)
        n, m = self._shape = self._variance.shape
        if len(factor) == 1:
            self._predictors: grouped.DenseRows | grouped.FunctionRows = grouped.DenseRows(
                factor[0].reshape(n * m, -1), m
            )
        else:
            self._predictors = grouped.FunctionRows(*factor)
        self.block: RowBlock | grouped.GroupBlock
        if is_apart:
            sites = RowSites(*(x.ravel() for x in (*limits, self._variance)))
            self.block = RowBlock(self._predictors.rows(), sites)
        else:
            probs = _MadeLater(limits[0], limits[1], noise)
            self.block = grouped.GroupBlock(
                self._predictors, grouped.GroupSites(limits[0], limits[1], noise, probs)
            )

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
        lower, upper, value = self._limits
        in_limits = slopes_of_limits(lower, upper, value, cavity[0], deviation)
        # No value is learnt.
        return [_NO_SLOPE, *factor, offset, noise, *in_limits, np.zeros(shape)]


def groups_at(is_apart: bool, log_constant: FloatArray, *numbers: FloatArray) -> GroupsAt | None:
    """Of the factor, then of offset, noise, lower, upper and value; see `GroupsAt`."""
    *factor, offset, noise, lower, upper, value = numbers
    positive = (np.einsum("ijj->ij", noise) > 0.0).all()
    if not (positive and all_finite(log_constant, *factor, offset, noise)):
        return None
    limits = [x - offset for x in (lower, upper, value)]
    return GroupsAt(is_apart, float(log_constant), factor, noise, limits)


class _MadeLater:
    """Log probabilities of groups that are made when weights are asked for."""

    def __init__(self, lower: FloatArray, upper: FloatArray, noise: FloatArray) -> None:
        self._groups = lower, upper, noise

    @cached_property
    def _found(self) -> grouped.GroupLogProbs:
        found = log_probs_of(*self._groups)
        if found is None:  # of a few groups that is known before
            raise ApproximationError(f"the likelihood {SHARED_NOISE}: take fewer rows.")
        return found

    def __call__(self, groups: slice, eta: FloatArray) -> FloatArray:
        """See `GroupLogProbs`."""
        return self._found(groups, eta)


def limits_at(log_constant: FloatArray, *numbers: FloatArray) -> SitesAt | None:
    """A constraint: limits of f, or of a derivative of phi' c, with next to no noise.

    Parameters
    ----------
    log_constant : ndarray, shape ()
    phi, mean, rest : ndarray
    lower, upper : ndarray, shape (k,)
    variance, nugget : ndarray, shape (k,)
        Of f in the prior, which only scales what is drawn, and of the rows' own noise.
    """
    phi, mean, rest, lower, upper, variance, nugget = numbers
    if not (all_finite(log_constant, phi, mean, rest, nugget) and (variance > 0.0).all()):
        return None
    columns = lower, upper, np.full(mean.size, np.nan), nugget  # no value: nor a slope in variance
    found = SitesAt(phi, LearntRows(columns, mean, rest), float(log_constant))
    sd, shares = np.sqrt(variance), ((nugget + rest) / variance, nugget / variance)
    limits = (lower - mean) / sd, (upper - mean) / sd
    found.hard = RowsBeside(phi / sd[:, None], *limits, *shares)
    return found


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
    n_functions : int
    phase, truncation : ndarray, shape (s,)
    factor : ndarray, shape (s, r)
        Of one function in standard deviations.
    noise : ndarray, shape (s,)
        Its variance that features leave.
    """

    def __init__(
        self,
        n_functions: int,
        phase: FloatArray,
        truncation: FloatArray,
        factor: FloatArray,
        noise: FloatArray,
    ) -> None:
        self._k, self._positive, self._factor = n_functions, phase > 0, factor
        rows = pseudo_point_rows(np.ones(phase.size), phase, truncation)
        self._limits = rows.lower, rows.upper
        lower, upper, noises = (np.tile(x, n_functions) for x in (*self._limits, noise))
        columns, zeros = (lower, upper, np.full(lower.size, np.nan), noises), np.zeros(lower.size)
        self._sites = LearntRows(columns, zeros, zeros)
        self.cov = factor @ factor.T
        self.cov[np.diag_indices_from(self.cov)] += noise
        wide = np.asarray(np.kron(np.eye(n_functions), factor), dtype=np.float64)
        self.block: RowBlock = RowBlock(wide, self._sites)
        self.hard = RowsBeside(self.block.factor, lower, upper, noises, zeros)

    @cached_property
    def _alone(self) -> log_prob_gradient.LogProbGradient:
        """Of the signs of one function before any data."""
        return log_prob_gradient.log_prob_and_gradient(*self._limits, self.cov, n_draws=_DRAWS)

    @property
    def log_constant(self) -> float:  # type: ignore[override]
        """See `BlockAt`: less the log probability of the signs before any data."""
        return -self._k * self._alone.value

    def with_error(self, evidence: Estimate, n_draws: int) -> Estimate:
        """A log evidence with the signs' own probability, and its error, by so many draws."""
        alone = truncated.log_prob_rectangle(self.cov, *self._limits, n_draws, None, 0)
        value = evidence.value - self.log_constant - self._k * alone.value
        std_error = float(np.hypot(evidence.std_error, self._k * alone.std_error))
        return evidence._replace(value=value, std_error=std_error)

    def slopes(self, mean: FloatArray, spread: FloatArray) -> Sequence[FloatArray]:
        """See `BlockAt`."""
        found, (k, s, r) = self.block.gradient(mean, spread), (self._k, *self._factor.shape)
        numbers = self._sites.slopes_of_numbers(found)
        in_lower, in_upper, _, in_noise = (x.reshape(k, s).sum(axis=0) for x in numbers)
        in_factor = np.einsum("ksku->su", found.factor.reshape(k, s, k, r))
        alone = self._alone
        in_lower, in_upper = in_lower - k * alone.lower, in_upper - k * alone.upper
        in_factor -= k * (alone.cov + alone.cov.T) @ self._factor
        in_noise -= k * alone.cov.diagonal()
        in_truncation = np.where(self._positive, -in_lower, in_upper)
        return [np.zeros(s), in_truncation, in_factor, in_noise]


def signs_at(n_functions: int, *numbers: FloatArray) -> SignsAt | None:
    """Of phase and truncation, factor and noise; see `SignsAt`.

    Raises
    ------
    ValueError
        For phases that are neither +1 nor -1.
    """
    phase = numbers[0]
    if np.abs(phase**2 - 1.0).max() > _LARGEST_ERROR:
        raise ValueError(
            f"a phase is neither +1 nor -1, but {phase}: write "
            '2 * pm.Bernoulli("positive", 0.5, shape=s) - 1.'
        )
    if not all_finite(*numbers):
        return None
    found = SignsAt(n_functions, *numbers)
    return None if coincide(found.cov) or not np.isfinite(found.log_constant) else found
