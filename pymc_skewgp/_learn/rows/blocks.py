r"""Signs at pseudo-points and limits of f as blocks: few rows with next to no noise.

What is limited is :math:`\phi^\top c` of f or of the derivative, its e included. The noise of a row
is a stated share of its variance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_skewgp._gaussian.blocks.rows import RowBlock, RowSites
from pymc_skewgp._gaussian.log_prob_gradient import LogProbGradient, log_prob_and_gradient
from pymc_skewgp._gaussian.truncated import log_prob_rectangle
from pymc_skewgp._gaussian.weights import Estimate, IntArray
from pymc_skewgp._learn.coordinates import Coordinates, Point
from pymc_skewgp._learn.factor_evidence import slopes_of_limits
from pymc_skewgp._learn.objective import Batch
from pymc_skewgp._learn.rows.prior_at import (
    BlockGradient,
    CompiledNumbers,
    FunctionsAt,
    PriorRows,
    ValuesOf,
    compiled_rows,
)
from pymc_skewgp._model.graph.data_rows import KnownData
from pymc_skewgp._observations.constraint import pseudo_point_rows
from pymc_skewgp._observations.likelihood import Derivative
from pymc_skewgp._observations.observations import intervals
from pymc_skewgp._posterior.evidence_gradient import coincide
from pymc_skewgp._posterior.finite_rank_fit import HardRows
from pymc_skewgp._validation import FloatArray


@dataclass(frozen=True, eq=False)
class LimitsBlock:
    """A constraint; see `BlockOfData`.

    Attributes
    ----------
    X : ndarray, shape (k, d)
        Virtual points.
    of : Derivative or None
    compiled : CompiledNumbers
        Lower, upper, value, share of the variance, and the log of a constant.
    batch : tuple of ndarray
    """

    X: FloatArray
    of: Derivative | None
    compiled: CompiledNumbers
    batch: Batch

    def at(self, point: Point, prior: PriorRows, functions: FunctionsAt) -> "LimitsAt | None":
        """See `BlockOfData`."""
        lower, upper, _, share, log_constant = self.compiled(point, self.batch)
        own = functions.first(prior)
        variance = np.einsum("ij,ij->i", own.phi, own.phi) + own.rest
        if not (np.isfinite(log_constant) and (variance > 0.0).all()):
            return None
        limits = lower - own.mean, upper - own.mean
        return LimitsAt(self, point, prior, functions, limits, share, float(log_constant))


class LimitsAt:
    """A constraint at a point; see `BlockAt`.

    Parameters
    ----------
    data : LimitsBlock
    point : Point
    prior : PriorRows
    functions : FunctionsAt
    limits : tuple of ndarray, shape (k,)
        Less the mean.
    share : ndarray, shape (k,)
        Of the variance, that is noise.
    log_constant : float
    """

    def __init__(
        self,
        data: LimitsBlock,
        point: Point,
        prior: PriorRows,
        functions: FunctionsAt,
        limits: tuple[FloatArray, FloatArray],
        share: FloatArray,
        log_constant: float,
    ) -> None:
        self._data, self._point, self._prior, self._functions = data, point, prior, functions
        self._limits, self._share, self.log_constant = limits, share, log_constant
        self._own = functions.first(prior)
        phi, rest = self._own.phi, self._own.rest
        self._variance = np.einsum("ij,ij->i", phi, phi) + rest
        nowhere = np.full(share.size, np.nan)
        self._noise = share * self._variance + rest
        self.block = RowBlock(phi, RowSites(*limits, nowhere, self._noise))

    def hard(self) -> HardRows:
        """The same as rows that are drawn first, in prior standard deviations."""
        lower, upper = self._limits
        sd = np.sqrt(self._variance)
        rows = intervals(lower / sd, upper / sd, self._noise / sd**2)
        factor = self._own.phi / sd[:, None]
        return HardRows(factor, np.zeros(sd.size), rows, self._share, 0)

    def gradient(self, mean: FloatArray, spread: FloatArray) -> BlockGradient:
        """See `BlockAt`."""
        found = self.block.gradient(mean, spread)
        sd = np.sqrt(found.cavity_sd**2 + self._noise)
        value = np.full(sd.size, np.nan)
        in_limits = slopes_of_limits(*self._limits, value, found.cavity_mean, sd)
        numbers = [*in_limits, np.zeros(sd.size), found.noise * self._variance, np.zeros(())]
        own = self._data.compiled.pull_back(self._point, self._data.batch, numbers)
        in_variance = self._share * found.noise
        in_phi = found.factor + (2.0 * in_variance)[:, None] * self._own.phi
        wrt = PriorRows(in_phi, found.offset, found.noise + in_variance)
        wrt, functions = self._functions.wrt_first(self._prior, wrt)
        return BlockGradient(wrt, own, functions)


@dataclass(frozen=True, eq=False)
class LimitsOfKind:
    """A constraint, which is no data; see `DataOfKind`.

    Attributes
    ----------
    known : KnownData
    compiled : CompiledNumbers
        Lower, upper, value, share of the variance, and constant.
    """

    known: KnownData
    compiled: CompiledNumbers

    is_data = False
    in_parts = False

    @classmethod
    def of(cls, known: KnownData, model: pm.Model, coordinates: Coordinates) -> "LimitsOfKind":
        """Compiled for a model."""
        return cls(known, compiled_rows(known, model, coordinates))

    @property
    def n_observations(self) -> int:
        """See `DataOfKind`."""
        return self.known.X.shape[0]

    def blocks(self, chosen: IntArray) -> Sequence[LimitsBlock]:
        """See `DataOfKind`: a constraint holds whole."""
        known, table = self.known, self.known.whole
        batch: Any = *table.columns, table.log_constant, *table.slopes
        return [LimitsBlock(known.X, known.likelihood.derivative, self.compiled, batch)]


# Signs of f at pseudo-points, as rows of f less its mean in standard deviations.
#
# What is learnt from is the probability of the data given the signs. So that of the signs before
# any data, by the twisted sampler, is taken off the log evidence of both.

_DRAWS = 1024
_LARGEST_ERROR = 1e-3  # of a phase's square


@dataclass(frozen=True, eq=False)
class SignsBlock:
    """Signs of independent functions; see `BlockOfData`.

    Attributes
    ----------
    X : ndarray, shape (s, d)
        Zeros: where the points are is a function of hyperparameters.
    compiled : CompiledNumbers
        Phase and truncation.
    """

    X: FloatArray
    compiled: CompiledNumbers

    of: ClassVar[ValuesOf] = "pseudo-points"

    @classmethod
    def of_process(
        cls, gp: Any, model: pm.Model, coordinates: Coordinates, n_columns: int
    ) -> "SignsBlock | None":
        """Of a SkewGP; None where it has no pseudo-points."""
        s = gp.n_pseudo_points
        if not s:
            return None
        graphs = [pt.broadcast_to(pt.cast(x, "float64"), (s,)) for x in (gp.phase, gp.truncation)]
        compiled = CompiledNumbers(coordinates, model, (), graphs)
        return cls(np.zeros((s, n_columns)), compiled)

    def at(self, point: Point, prior: PriorRows, functions: FunctionsAt) -> "SignsAt | None":
        """See `BlockOfData`.

        Raises
        ------
        ValueError
            For phases that are neither +1 nor -1.
        """
        phase, truncation = self.compiled(point, ())
        if np.abs(phase**2 - 1.0).max() > _LARGEST_ERROR:
            raise ValueError(
                f"a phase is neither +1 nor -1, but {phase}: write "
                '2 * pm.Bernoulli("positive", 0.5, shape=s) - 1.'
            )
        variance = np.einsum("ij,ij->i", prior.phi, prior.phi) + prior.rest
        if not ((variance > 0.0).all() and np.isfinite(truncation).all()):
            return None
        found = SignsAt(self, point, prior, functions, phase, truncation)
        return None if coincide(found.cov) or not np.isfinite(found.log_constant) else found


class SignsAt:
    """Signs at a point; see `BlockAt`.

    Parameters
    ----------
    data : SignsBlock
    point : Point
    prior : PriorRows
        Of one function.
    functions : FunctionsAt
    phase, truncation : ndarray, shape (s,)
    """

    def __init__(
        self,
        data: SignsBlock,
        point: Point,
        prior: PriorRows,
        functions: FunctionsAt,
        phase: FloatArray,
        truncation: FloatArray,
    ) -> None:
        self._data, self._point, self._prior = data, point, prior
        self._functions, self._phase = functions, phase
        self._k = n_functions = functions.between.shape[0]
        self._sd = np.sqrt(np.einsum("ij,ij->i", prior.phi, prior.phi) + prior.rest)
        self._factor = prior.phi / self._sd[:, None]
        self._noise = prior.rest / self._sd**2
        rows = pseudo_point_rows(self._sd, phase, truncation)
        self._limits = rows.lower, rows.upper
        lower, upper, noise = (
            np.tile(x, n_functions) for x in (rows.lower, rows.upper, self._noise)
        )
        self._columns = lower, upper, np.full(lower.size, np.nan), noise
        self.cov = self._factor @ self._factor.T
        self.cov[np.diag_indices_from(self.cov)] += self._noise
        wide = np.kron(np.eye(n_functions), self._factor)
        self.block = RowBlock(wide, RowSites(*self._columns))

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
    def log_constant(self) -> float:
        """See `BlockAt`: less the log probability of the signs before any data."""
        return -self._k * self._alone.value

    def with_error(self, evidence: Estimate, n_draws: int) -> Estimate:
        """A log evidence with the signs' own probability, and its error, by so many draws."""
        alone = log_prob_rectangle(self.cov, *self._limits, n_draws, None, 0)
        value = evidence.value - self.log_constant - self._k * alone.value
        std_error = float(np.hypot(evidence.std_error, self._k * alone.std_error))
        return evidence._replace(value=value, std_error=std_error)

    def gradient(self, mean: FloatArray, spread: FloatArray) -> BlockGradient:
        """See `BlockAt`."""
        found, (s, r) = self.block.gradient(mean, spread), self._factor.shape
        lower, upper, value, noise = self._columns
        sd = np.sqrt(found.cavity_sd**2 + noise)
        in_lower, in_upper = (
            x.reshape(self._k, s).sum(axis=0)
            for x in slopes_of_limits(lower, upper, value, found.cavity_mean, sd)
        )
        of_functions = found.factor.reshape(self._k, s, self._k, r)
        in_factor = np.einsum("ksku->su", of_functions)
        in_noise = found.noise.reshape(self._k, s).sum(axis=0)
        alone = self._alone
        in_lower, in_upper = in_lower - self._k * alone.lower, in_upper - self._k * alone.upper
        in_factor -= self._k * (alone.cov + alone.cov.T) @ self._factor
        in_noise -= self._k * alone.cov.diagonal()
        in_truncation = np.where(self._phase > 0, -in_lower, in_upper)
        own = self._data.compiled.pull_back(self._point, (), [np.zeros(s), in_truncation])
        # Both are in units of the deviation, which phi and the rest make up.
        in_sd = -(in_factor * self._factor).sum(axis=1) - 2.0 * in_noise * self._noise
        in_sd /= self._sd
        in_phi = in_factor / self._sd[:, None] + in_sd[:, None] * self._factor
        in_rest = in_noise / self._sd**2 + 0.5 * in_sd / self._sd
        wrt = PriorRows(in_phi, np.zeros(s), in_rest)
        return BlockGradient(wrt, own, self._functions.no_gradient())
