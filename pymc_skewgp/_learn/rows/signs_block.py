r"""Signs of f at pseudo-points, as rows of f less its mean in standard deviations.

What is learnt from is the probability of the data given the signs. So that of the signs before any
data, by the twisted sampler, is taken off the log evidence of both.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_skewgp._gaussian.blocks.block_sites import RowSites
from pymc_skewgp._gaussian.blocks.row_block import RowBlock
from pymc_skewgp._gaussian.log_prob_gradient import LogProbGradient, log_prob_and_gradient
from pymc_skewgp._gaussian.rectangle import log_prob_rectangle
from pymc_skewgp._gaussian.weights import Estimate
from pymc_skewgp._learn.coordinates import Coordinates
from pymc_skewgp._learn.point import Point
from pymc_skewgp._learn.rows.block_at import BlockGradient
from pymc_skewgp._learn.rows.compiled_numbers import CompiledNumbers
from pymc_skewgp._learn.rows.functions_at import FunctionsAt
from pymc_skewgp._learn.rows.learnt_sites import slopes_of_limits
from pymc_skewgp._learn.rows.prior_at import PriorRows, ValuesOf
from pymc_skewgp._observations.observations import intervals
from pymc_skewgp._observations.pseudo_points import pseudo_point_rows
from pymc_skewgp._posterior.evidence_gradient import coincide
from pymc_skewgp._posterior.hard_rows import HardRows
from pymc_skewgp._validation import FloatArray

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
