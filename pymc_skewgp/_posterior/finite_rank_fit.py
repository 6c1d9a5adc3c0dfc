r"""Many rows under a prior of finite rank: :math:`f(x) = m(x) + \phi(x)^\top c + e(x)`.

The latent vector is c, of which there are few: all rows are sites of predictors that are linear in
c, and are met in blocks. f at new points given c is known but for their own e.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from pymc_skewgp._cost import announce_blocks
from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.blocks.block_sites import RowSites
from pymc_skewgp._gaussian.blocks.blocks import Blocks, JoinedBlocks, LocalBlocks
from pymc_skewgp._gaussian.blocks.ep import BlockEP, fit_blocks, gaussian_of
from pymc_skewgp._gaussian.blocks.pairs import BlockPairs
from pymc_skewgp._gaussian.blocks.row_block import RowBlock
from pymc_skewgp._gaussian.operators.dense import DenseCovariance
from pymc_skewgp._gaussian.proposals.coordinate_gaussian import CoordinateGaussian
from pymc_skewgp._gaussian.proposals.escalation import RectangleSampler
from pymc_skewgp._gaussian.proposals.pairs import GivenRows
from pymc_skewgp._gaussian.samplers.sites import SiteSampler
from pymc_skewgp._gaussian.truncated_draws import TruncatedDraws
from pymc_skewgp._gaussian.weights import Estimate, IntArray, add_estimates
from pymc_skewgp._observations.pseudo_points import pseudo_point_rows
from pymc_skewgp._observations.values import Derivative
from pymc_skewgp._posterior.approximations.features import Features
from pymc_skewgp._posterior.conditioning import Conditioning, Regression
from pymc_skewgp._posterior.data_sets import DataSet
from pymc_skewgp._posterior.function_fit import FunctionFit
from pymc_skewgp._posterior.latent import equal_singles
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._posterior.residual_draws import residual_draws
from pymc_skewgp._posterior.row_predictors import (
    part_of,
    predictor_rows,
    refuse_other_data,
    takes_rest,
)
from pymc_skewgp._posterior.rows_on import blocks_on, current_client
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray, Seed, as_generator

# New points up to which a matrix of them is made: larger ones are diagonal, and nobody asks.
_MOST_JOINT = 1000
_DRAWS = 1024  # weighted ones, as a rule: of what time is said to be
# Share of the prior variance up to which what features leave of it is as good as none.
_NO_REST = 1e-6
_NUMBERS_AT_ONCE, _LEAST_POINTS = 2**21, 16  # draws times rows, of which there are some arrays
_MOST_KEPT = 10_000  # rows whose values of f are kept for each draw


class FiniteRankFit(FunctionFit):
    """A function of finite rank given many rows: the latent vector is c.

    Parameters
    ----------
    prior : Prior
        With the kernel of finite rank.
    features : Features
        What that kernel is made of.
    sets : tuple of DataSet

    Raises
    ------
    ApproximationError
        For data whose rows are no sites of one predictor each.
    """

    def __init__(self, prior: Prior, features: Features, sets: tuple[DataSet, ...]) -> None:
        super().__init__(prior, [data.values for data in sets])
        refuse_other_data(sets, prior)
        self._features, self._sets = features, sets

    @property
    def conditioning(self) -> Conditioning:
        """Not of many rows: it has matrices of them."""
        raise ApproximationError(
            "this needs matrices with a row and a column for each row of the data, which a prior "
            "approximated for many rows does without: use sample, predict or marginals."
        )

    @cached_property
    def data_blocks(self) -> Blocks:
        """Rows of the data; after `ep` with its sites of them."""
        return self._rows[0]

    @cached_property
    def _rows(self) -> tuple[Blocks, float]:
        """Blocks of the data, and the constant of their log probability."""
        sets, features, prior = self._sets, self._features, self._prior
        client = current_client()
        if client is not None:
            remote = blocks_on(client, sets, features, prior)
            return remote, remote.log_constant
        announce_blocks(sum(part.size for part in self._parts), features.rank, _DRAWS)
        found = [part for data in sets for part in predictor_rows(data, features, prior)]
        blocks = LocalBlocks([part.block for part in found])
        return blocks, sum(part.log_constant for part in found)

    @cached_property
    def ep(self) -> BlockEP:
        """Of the data and of the signs at pseudo-points."""
        blocks = self.data_blocks
        if self.n_latent:
            blocks = JoinedBlocks([blocks, LocalBlocks([self._signs])])
        return fit_blocks(blocks)

    @property
    def ep_log_evidence(self) -> float:
        """Of the data, by expectation propagation, with the signs at pseudo-points still in it."""
        return self.ep.log_prob + self._rows[1]

    @cached_property
    def gaussian(self) -> CoordinateGaussian:
        """N(0, I) of c times EP's sites of the data, but not of the signs."""
        if not self.n_latent:
            return self.ep.gaussian
        _ = self.ep
        return gaussian_of(self.data_blocks.total("sums"))

    @cached_property
    def _signs(self) -> RowBlock:
        """Of f less its mean at the pseudo-points: rows with no noise but e."""
        prior = self._prior
        phi, rest = self._features.at(prior.pseudo_points)
        sd = np.sqrt(np.einsum("ij,ij->i", phi, phi) + rest)
        rows = pseudo_point_rows(sd, prior.phase, prior.truncation)
        sites = RowSites(rows.lower, rows.upper, rows.value, rest / sd**2)
        return RowBlock(phi / sd[:, None], sites)

    @cached_property
    def sampler(self) -> SiteSampler:
        """Proposals, which the evidence and all draws share."""
        rows = self._given_signs() if self.n_latent else None
        return SiteSampler(BlockPairs(self.gaussian, self.data_blocks, rows))

    def _given_signs(self) -> GivenRows:
        gaussian, prior, block = self.gaussian, self._prior, self._signs
        white = block.factor @ gaussian.spread
        cov = white @ white.T
        _, rest = self._features.at(prior.pseudo_points)
        sd = np.sqrt(self._prior.covariance("pseudo_points", prior.pseudo_points, diag=True))
        cov[np.diag_indices_from(cov)] += rest / sd**2
        rows = pseudo_point_rows(sd, prior.phase, prior.truncation)
        shift = block.factor @ gaussian.mean
        own = DenseCovariance(linalg.symmetric(cov), "the covariance at pseudo_points")
        sampler = RectangleSampler(own, rows.lower - shift, rows.upper - shift)
        return GivenRows.of(sampler.first, own, white, shift)

    @property
    def fitted(self) -> bool:
        """See `FunctionFit`."""
        return "sampler" in vars(self)

    def latent(self, n_draws: int, random_seed: Seed) -> TruncatedDraws:
        """Both members of `n_draws` pairs, columns c."""
        return self.sampler.members(n_draws, as_generator(random_seed))

    def equal_draws(
        self, shape: tuple[int, int], method: str, rng: np.random.Generator, thin: int = 1
    ) -> tuple[TruncatedDraws, IntArray]:
        """See `FunctionFit`; ValueError for another method than "twisted"."""
        if method != "twisted":
            raise ValueError(
                f"method={method!r} draws one number for each row of the data, which many rows "
                'under an approximated prior do without: leave method at its default, "twisted".'
            )
        return equal_singles(self.sampler, shape, rng)

    def evidence(self, joint: Estimate, signs: Estimate) -> Estimate:
        """See `FunctionFit`."""
        value, std_error, _, _ = add_estimates(self._rows[1], joint, signs)
        return joint._replace(value=value, std_error=std_error)

    def draw(
        self,
        latent: TruncatedDraws,
        chosen: IntArray,
        rng: np.random.Generator,
        rows: IntArray | None = None,
    ) -> FloatArray:
        """See `FunctionFit`: given c, what features leave of f depends on its own row alone."""
        coordinates = latent.draws[chosen.ravel()]
        if rows is None:
            found = [self._values(coordinates, data, rng) for data in self._sets]
            f = np.concatenate(found, axis=1)
        else:
            f = self.given_coordinates(coordinates, rng, rows)
        return f.reshape(*chosen.shape, -1)

    @property
    def keeps_coordinates(self) -> bool:
        """See `FunctionFit`."""
        return sum(part.size for part in self._parts) > _MOST_KEPT

    @property
    def n_coordinates(self) -> int:
        """See `FunctionFit`."""
        return self._features.rank

    def given_coordinates(
        self, coordinates: FloatArray, rng: np.random.Generator, rows: IntArray
    ) -> FloatArray:
        """See `FunctionFit`."""
        if coordinates.shape[1] != self._features.rank:
            raise ValueError(
                f"the draws have {coordinates.shape[1]} coordinates and this posterior "
                f"{self._features.rank}: they are of another one."
            )
        return self._values(coordinates, part_of(self._sets[0], rows), rng)

    def _values(
        self, coordinates: FloatArray, data: DataSet, rng: np.random.Generator
    ) -> FloatArray:
        """Draws of f at the rows of these data, shape (N, n), given rows of c and the data."""
        of_rows = data.likelihood.y_dim == "obs_id"
        f = np.empty((coordinates.shape[0], data.X.shape[0]))
        rest = np.empty(f.shape[1])
        size = max(_LEAST_POINTS, _NUMBERS_AT_ONCE // max(f.shape[0], 1))
        for start in range(0, f.shape[1], size):
            rows = slice(start, min(start + size, f.shape[1]))
            phi, rest[rows] = self._features.at(data.X[rows])
            f[:, rows] = self._prior.mean("X", data.X[rows]) + coordinates @ phi.T
            if of_rows and rest[rows].any():
                part = part_of(data, np.arange(rows.start, rows.stop))
                f[:, rows] += residual_draws(part, f[:, rows], rest[rows], rng)
        if not of_rows and takes_rest(data) and rest.any():
            f += residual_draws(data, f, rest, rng)
        return f

    def sun(self) -> SunParameters:
        """ValueError: it has a dimension for each row."""
        raise ApproximationError(
            "the posterior of f as a SUN has a latent dimension for each row of the data, which "
            "many rows under an approximated prior do without: use sample, predict or marginals."
        )

    def regression(
        self, new: FloatArray | None, *, joint: bool = False, derivative: Derivative | None = None
    ) -> Regression:
        """See `FunctionFit`."""
        if derivative is not None:
            raise ApproximationError(
                "the features of an approximated prior have no derivatives: ask for f alone, or "
                "for a posterior under the prior as it is."
            )
        if new is None:
            return self._here(joint, 1)
        phi, rest = self._features.at(new)
        return Regression(self._prior.mean("Xnew", new), rest, phi.T)

    def pair_regression(self, a: FloatArray, b: FloatArray) -> Regression:
        """See `FunctionFit`."""
        found = self.regression(np.stack([a, b], axis=1).reshape(-1, a.shape[1]))
        covariance = np.zeros((a.shape[0], 2, 2))
        covariance[:, [0, 1], [0, 1]] = found.variance.reshape(-1, 2)
        return found._replace(covariance=covariance)

    def covariance_at(self, new: FloatArray, regression: Regression) -> FloatArray | None:
        """See `FunctionFit`: given c new points are independent."""
        if regression.variance.size > _MOST_JOINT:
            return None
        return np.diag(regression.variance)

    def draw_at(
        self,
        regression: Regression,
        covariance: FloatArray | None,
        shape: tuple[int, int],
        rng: np.random.Generator,
    ) -> FloatArray:
        """See `FunctionFit`."""
        latent, chosen = self.equal_draws(shape, "twisted", rng)
        f = latent.draws[chosen.ravel()] @ regression.solved
        f += regression.centre
        if regression.variance.any():
            f += np.sqrt(regression.variance) * rng.standard_normal(f.shape)
        return f.reshape(*shape, -1)

    def _here(self, joint: bool, group: int) -> Regression:
        at: Sequence[FloatArray] = [part.X for part in self._parts]
        found = [self.regression(X) for X in at]
        variance = np.concatenate([part.variance for part in found])
        solved = np.concatenate([part.solved for part in found], axis=1)
        prior = np.einsum("ij,ij->j", solved, solved) + variance
        if (variance > _NO_REST * prior).any():
            raise ApproximationError(
                "given the coordinates f at the data is not Gaussian where features leave some of "
                "its variance: ask for the same inputs as new points (Xnew), or for draws (sample)."
            )
        centre = np.concatenate([part.centre for part in found])
        return Regression(centre, variance, solved)

    def _there(
        self, mean: FloatArray, variance: FloatArray, cross: FloatArray, joint: bool = False
    ) -> Regression:
        raise NotImplementedError  # `regression` needs no covariance with the data
