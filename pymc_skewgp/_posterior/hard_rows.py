"""Rows with next to no noise under a prior of finite rank: signs at pseudo-points, constraints.

They are few, and are drawn first, as a rectangle; the coordinates given them are Gaussian.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from pymc_skewgp._gaussian.blocks.block_sites import RowSites
from pymc_skewgp._gaussian.blocks.row_block import RowBlock
from pymc_skewgp._gaussian.operators.factored import FactoredCovariance
from pymc_skewgp._gaussian.proposals.coordinate_gaussian import CoordinateGaussian
from pymc_skewgp._gaussian.proposals.escalation import RectangleSampler
from pymc_skewgp._gaussian.proposals.mode_pairs import RowsBeside
from pymc_skewgp._gaussian.proposals.pairs import GivenRows
from pymc_skewgp._gaussian.proposals.policy import DEFAULT, SamplerSettings
from pymc_skewgp._observations.observations import Observations, intervals
from pymc_skewgp._observations.pseudo_points import pseudo_point_rows
from pymc_skewgp._posterior.approximations.several_functions import FunctionFeatures
from pymc_skewgp._posterior.conditioning import Conditioning
from pymc_skewgp._posterior.contradiction import refuse_contradictory_constraints
from pymc_skewgp._posterior.data_sets import DataSet, in_prior_units
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._validation import FloatArray


@dataclass(frozen=True, eq=False)
class HardRows:
    """Intervals of values F c + mean + e, in units of their own.

    Attributes
    ----------
    factor : ndarray, shape (s, R)
    mean : ndarray, shape (s,)
    rows : Observations
        Limits of these values, and variances of e with the nugget of constraints.
    nugget : ndarray, shape (s,)
        Variances of the nugget alone.
    n_signs : int
        How many of them are signs at pseudo-points; the others are constraints.
    """

    factor: FloatArray
    mean: FloatArray
    rows: Observations
    nugget: FloatArray
    n_signs: int

    def block(self) -> RowBlock:
        """As sites, for expectation propagation."""
        rows = self.rows
        sites = RowSites(rows.lower - self.mean, rows.upper - self.mean, rows.value, rows.S)
        return RowBlock(self.factor, sites)

    def beside(self) -> RowsBeside:
        """As they are beside several modes."""
        rows = self.rows
        limits = rows.lower - self.mean, rows.upper - self.mean
        settings = replace(DEFAULT, first=DEFAULT.move_rungs[0])
        return RowsBeside(self.factor, *limits, rows.S, partial(self.given, settings=settings))

    def given(self, gaussian: CoordinateGaussian, settings: SamplerSettings = DEFAULT) -> GivenRows:
        """Drawn under a Gaussian of the coordinates.

        Raises
        ------
        ContradictoryConstraintsError
        """
        plain = Conditioning(self.mean, FactoredCovariance(self.factor), self.rows)
        tilted = plain.with_coordinates(gaussian.mean, gaussian.chol)
        sampler = RectangleSampler(tilted.cov, tilted.lower, tilted.upper, settings)
        constrained = np.arange(self.n_signs, self.mean.size)
        if constrained.size:
            # e is f's own: limits that hold by it do hold.
            refuse_contradictory_constraints(sampler, constrained, self.nugget[constrained])
        gain, spread = tilted.coordinates_given_rows()
        return GivenRows(sampler.first, gain, spread, self.factor @ gaussian.mean)


def hard_rows(
    prior: Prior, features: FunctionFeatures, sets: tuple[DataSet, ...], n_functions: int
) -> HardRows | None:
    """Signs of all functions at the pseudo-points, and constraints; None without any.

    Raises
    ------
    ApproximationError
        For derivatives of features that have none.
    """
    parts = [_constraint(prior, features, data) for data in sets if not data.likelihood.has_data]
    if prior.n_pseudo_points:
        parts.insert(0, _signs(prior, features, n_functions))
    return joined(parts)


def joined(parts: Sequence[HardRows]) -> HardRows | None:
    """Several as one, signs first; None of none."""
    if not parts:
        return None
    rows = [part.rows for part in parts]
    lower, upper, noise = (
        np.concatenate([getattr(some, name) for some in rows]) for name in ("lower", "upper", "S")
    )
    return HardRows(
        np.vstack([part.factor for part in parts]),
        np.concatenate([part.mean for part in parts]),
        intervals(lower, upper, noise),
        np.concatenate([part.nugget for part in parts]),
        sum(part.n_signs for part in parts),
    )


def _signs(prior: Prior, features: FunctionFeatures, n_functions: int) -> HardRows:
    """Of f less its mean, in standard deviations."""
    phi, rest = features.single.at(prior.pseudo_points)
    wide = features.values(phi, n_functions).reshape(-1, features.rank)
    rest = np.outer(rest, features.between.diagonal()).ravel()
    sd = np.sqrt(np.einsum("ij,ij->i", wide, wide) + rest)
    phase, truncation = (np.repeat(x, n_functions) for x in (prior.phase, prior.truncation))
    rows = pseudo_point_rows(sd, phase, truncation)
    scaled = intervals(rows.lower, rows.upper, rest / sd**2)
    return HardRows(wide / sd[:, None], np.zeros(sd.size), scaled, np.zeros(sd.size), sd.size)


def _constraint(prior: Prior, features: FunctionFeatures, data: DataSet) -> HardRows:
    """Of the first function or a derivative of it, in prior standard deviations."""
    derivative = data.likelihood.derivative
    if derivative is None:
        factor, rest = features.at(data.X)
    else:
        factor, rest = features.derivative_at(data.X, derivative), np.zeros(data.X.shape[0])
    rows = in_prior_units(data.rows(), prior, data)
    sd = np.sqrt(np.einsum("ij,ij->i", factor, factor) + rest)
    mean = prior.mean("X", data.X, derivative)
    scaled = intervals(rows.lower / sd, rows.upper / sd, (rows.S + rest) / sd**2)
    return HardRows(factor / sd[:, None], mean / sd, scaled, rows.S / sd**2, 0)
