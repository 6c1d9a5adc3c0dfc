"""Rows with next to no noise, drawn first as a rectangle, beside coordinates given them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from pymc_skewgp._errors import ContradictoryConstraintsError, no_warnings
from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.blocks.rows import RowBlock, RowSites
from pymc_skewgp._gaussian.coordinate_gaussian import CoordinateGaussian
from pymc_skewgp._gaussian.covariance import Covariance, DenseCovariance, LowRankCovariance
from pymc_skewgp._gaussian.ep import ep_gradient, fit_ep
from pymc_skewgp._gaussian.escalation import (
    DEFAULT,
    LARGEST_EFFECT,
    RectangleSampler,
    SamplerSettings,
)
from pymc_skewgp._gaussian.modes import Target
from pymc_skewgp._gaussian.pairs import GivenRows
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray

# Of the prior's deviation: noise of rows beside the sites, while modes are looked for.
_SOFTENED = 0.1
# Below this share of columns the coordinates need fewer operations than all rows.
_LOW_RANK_SHARE = 0.5


@dataclass(frozen=True)
class RowsBeside:
    """Intervals of values F c + e beside the sites.

    Attributes
    ----------
    factor : ndarray, shape (m, r)
        F.
    lower, upper : ndarray, shape (m,)
        Limits less the mean.
    noise : ndarray, shape (m,) or (m, m)
        Variances of e, or its covariance.
    nugget : ndarray, shape (m,), or None
        Variances of that part of e without which constraints, that may contradict each other or the
        data, cannot be drawn; 0 for other rows.
    """

    factor: FloatArray
    lower: FloatArray
    upper: FloatArray
    noise: FloatArray
    nugget: FloatArray | None = None

    @classmethod
    def joined(cls, parts: "Sequence[RowsBeside | None]") -> "RowsBeside | None":
        """Several with noise of their own as one; None of none."""
        columns = [[getattr(x, name) for x in parts if x] for name in cls.__dataclass_fields__]
        return cls(*map(np.concatenate, columns)) if columns[0] else None

    @property
    def variance(self) -> FloatArray:
        """Of e, shape (m,)."""
        return self.noise if self.noise.ndim == 1 else np.maximum(self.noise.diagonal(), 0.0)

    def block(self) -> RowBlock:
        """As sites, for expectation propagation."""
        return self._block(self.variance)

    def target(self) -> Target:
        """As factors of values with some noise: walls cannot be climbed along."""
        own = np.einsum("ij,ij->i", self.factor, self.factor)
        return self._block(np.maximum(self.variance, _SOFTENED**2 * own)).target()

    def _block(self, variance: FloatArray) -> RowBlock:
        nowhere = np.full(variance.size, np.nan)
        return RowBlock(self.factor, RowSites(self.lower, self.upper, nowhere, variance))

    def given(self, gaussian: CoordinateGaussian, settings: SamplerSettings = DEFAULT) -> GivenRows:
        """Drawn under a Gaussian of the coordinates c, and white c given them.

        Raises
        ------
        ContradictoryConstraintsError
        """
        noise, shift = self.noise, self.factor @ gaussian.mean
        white = solve_triangular(gaussian.chol, self.factor.T, lower=True, check_finite=False).T
        matrix = white @ white.T
        matrix += np.diag(noise) if noise.ndim == 1 else noise
        known = DenseCovariance(linalg.symmetric(matrix), "the covariance of the rows")
        cov: Covariance = known
        if noise.ndim == 1 and gaussian.mean.size < _LOW_RANK_SHARE * noise.size:
            cov = LowRankCovariance(noise, white)
        sampler = RectangleSampler(cov, self.lower - shift, self.upper - shift, settings)
        if self.nugget is not None and self.nugget.any():
            constrained = np.flatnonzero(self.nugget)
            refuse_contradictory_constraints(sampler, constrained, self.nugget[constrained])
        return GivenRows.of(sampler.first, known, white, shift)


# Constraints that hold only by their nugget: the log probability then is one of the nugget.

# Shares of the variances, added until a log probability can be computed, which is then too large.
_COARSE = (1e-10, 1e-8, 1e-6, 1e-4)
_CONVERGED = 1e-3


def refuse_contradictory_constraints(
    sampler: RectangleSampler, rows: IntArray, nugget: FloatArray
) -> None:
    r"""Refuse a rectangle whose log probability depends on the nugget of its constraints.

    The derivative of EP's log probability in the log of the nugget's variances is next to 0 where
    the constraints can hold without it, and at least a half for each row that they cannot.

    Parameters
    ----------
    sampler : RectangleSampler
    rows : ndarray of int, shape (c,)
        Which of its rows are constraints.
    nugget : ndarray, shape (c,)
        Variances of their noise.

    Raises
    ------
    ContradictoryConstraintsError
        It says how improbable the constraints are.
    """
    with no_warnings(), np.errstate(all="ignore"):
        try:
            slope = ep_gradient(sampler.cov, sampler.ep, sampler.lower, sampler.upper).cov
            effect = float(slope.diagonal()[rows] @ nugget)
        except (np.linalg.LinAlgError, ArithmeticError, ValueError):
            effect = np.inf
        # Below 0 where noise fills a narrow interval; far below only where EP has not converged.
        if -sampler.size < effect <= LARGEST_EFFECT:
            return
        known = _log_prob_below(sampler)
    raise ContradictoryConstraintsError(
        "the constraints contradict each other, the data or the pseudo-points: they hold only by "
        f"their nugget. The log probability of that {known}. Drop constraints that cannot hold "
        "together, check the signs and units of their limits, or choose a kernel with a larger "
        "variance or a shorter lengthscale."
    )


def _log_prob_below(sampler: RectangleSampler) -> str:
    """Of the rows with more noise than they have, which is more probable."""
    variances = sampler.cov.diagonal()
    for share in _COARSE:
        matrix = sampler.cov.dense().copy()
        matrix[np.diag_indices_from(matrix)] += share * variances
        try:
            ep = fit_ep(DenseCovariance(matrix), sampler.lower, sampler.upper, tol=_CONVERGED)
        except (np.linalg.LinAlgError, ArithmeticError, ValueError):
            continue
        if ep.residual < _CONVERGED and np.isfinite(ep.log_prob):
            return f"is below about {ep.log_prob:.3g}"
    return "is beyond double precision"
