r"""Many rows under a prior of finite rank: :math:`f(x) = m(x) + \phi(x)^\top c + e(x)`.

The latent vector is c, of which there are few: all rows are sites of predictors that are linear in
c, and are met in blocks. f at new points given c is known but for their own e.
"""

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from pymc_skewgp._errors import ApproximationError, no_warnings
from pymc_skewgp._gaussian import linalg, weights
from pymc_skewgp._gaussian.blocks import ep as block_ep
from pymc_skewgp._gaussian.blocks.beside import RowsBeside
from pymc_skewgp._gaussian.blocks.conditional import block_sampler
from pymc_skewgp._gaussian.blocks.pairs import BlockPairs
from pymc_skewgp._gaussian.blocks.rows import field_blocks
from pymc_skewgp._gaussian.coordinate_gaussian import CoordinateGaussian
from pymc_skewgp._gaussian.coordinates import SiteSampler
from pymc_skewgp._gaussian.sparse import FieldPrior
from pymc_skewgp._gaussian.truncated import TruncatedDraws
from pymc_skewgp._limits import announce_blocks
from pymc_skewgp._observations.likelihood import Derivative
from pymc_skewgp._observations.observations import as_matrix
from pymc_skewgp._observations.sites import SiteLikelihood
from pymc_skewgp._posterior import dask_blocks
from pymc_skewgp._posterior import data_blocks as of_data
from pymc_skewgp._posterior import features as bases
from pymc_skewgp._posterior.blocks_at import deviations
from pymc_skewgp._posterior.conditioning import Conditioning, Regression
from pymc_skewgp._posterior.fits import NOTHING_DRAWN, FunctionFit, refuse_method
from pymc_skewgp._posterior.prior import DataSet, Features, Prior, between_functions, n_functions
from pymc_skewgp._posterior.row_groups import group_residuals, residual_draws, rows_are_apart
from pymc_skewgp._posterior.vecchia import FEW_NEIGHBOURS, VecchiaFeatures
from pymc_skewgp._validation import FloatArray, Seed

# New points up to which a matrix of them is made: larger ones are diagonal, and nobody asks.
_MOST_JOINT = 1000
_DRAWS = 1024  # weighted ones, as a rule: of what time is said to be
# Share of the prior variance up to which what features leave of it is as good as none.
_NO_REST = 1e-6
_NUMBERS_AT_ONCE, _LEAST_POINTS = 2**21, 16  # draws times rows, of which there are some arrays
_SOLVED = 256  # new points at a time, where each takes a solve
_MOST_KEPT = 10_000  # rows whose values of f are kept for each draw
_NOT_GAUSSIAN = (
    "given the coordinates f at the data is not Gaussian where features leave some of its "
    "variance: ask for the same inputs as new points (Xnew), or for draws (sample)."
)


class FiniteRankFit(FunctionFit):
    """A function of finite rank given many rows: the latent vector is c.

    Parameters
    ----------
    prior : Prior
        With the kernel of finite rank.
    features : Features
        What that kernel is made of.
    sets : tuple of DataSet
    elsewhere : ChunkedData, optional
        All rows, where other processes keep them: `sets` have some of them then.

    Raises
    ------
    ApproximationError
        For data whose rows are no sites of one predictor each.
    """

    def __init__(
        self, prior: Prior, features: Features, sets: tuple[DataSet, ...], elsewhere: Any = None
    ) -> None:
        super().__init__(prior, [data.values for data in sets])
        of_data.refuse_other_data(sets, prior)
        between = between_functions(prior, self.n_functions)
        self.features, self._sets = bases.FunctionFeatures(between, features), sets
        self._elsewhere = elsewhere

    @property
    def conditioning(self) -> Conditioning:
        """Of many rows there is none."""
        raise ApproximationError(
            "this needs matrices with a row and a column for each row of the data, which a prior "
            "approximated for many rows does without: use sample, predict or marginals."
        )

    @cached_property
    def data_blocks(self) -> Any:
        """Rows of the data, with the constant of their log probability; after `ep` with its sites.

        `BuiltBlocks`, or `DaskBlocks`.
        """
        predictors, known = self.predictors, (self.features, self._prior)
        if predictors is not None:
            return dask_blocks.BuiltBlocks([part for _, parts in predictors for part in parts])
        if self._elsewhere is not None:
            return self._elsewhere.blocks(*known)
        return dask_blocks.blocks_on(dask_blocks.current_client(), self._with_data, *known)

    @property
    def _with_data(self) -> tuple[DataSet, ...]:
        return tuple(data for data in self._sets if data.likelihood.has_data)

    @cached_property
    def predictors(self) -> list[tuple[DataSet, list[of_data.DataBlock]]] | None:
        """Of each of the data; None where they are on the workers of a cluster."""
        if self._elsewhere is not None or dask_blocks.current_client() is not None:
            return None
        sets, features = self._with_data, self.features
        size = sum(part.size for part in self._parts) - sum(map(of_data.n_repeated, sets))
        announce_blocks(size, features.single.rank, _DRAWS)
        return [(data, list(of_data.data_blocks(data, features, self._prior))) for data in sets]

    @cached_property
    def ep(self) -> block_ep.BlockEP:
        """Of the data, of the signs at pseudo-points and of constraints."""
        blocks = self.data_blocks
        if self._hard is not None:
            blocks = block_ep.JoinedBlocks([blocks, block_ep.LocalBlocks([self._hard.block()])])
        return block_ep.fit_blocks(blocks)

    @property
    def ep_log_evidence(self) -> float:
        """Of the data, by expectation propagation, with the signs at pseudo-points still in it."""
        return self.ep.log_prob + self.data_blocks.log_constant

    @cached_property
    def gaussian(self) -> CoordinateGaussian:
        """N(0, I) of c times EP's sites of the data, but not of signs and constraints."""
        if self._hard is None:
            return self.ep.gaussian
        _ = self.ep
        return block_ep.gaussian_of(self.data_blocks.total("sums"))

    @cached_property
    def _hard(self) -> RowsBeside | None:
        return of_data.hard_rows(self._prior, self.features, self._sets, self.n_functions)

    @cached_property
    def sampler(self) -> SiteSampler:
        """See `FunctionFit`."""
        if self._hard is not None:
            return SiteSampler(BlockPairs.beside(self._hard, self.gaussian, self.data_blocks))
        return block_sampler(self.gaussian, self.data_blocks)

    def evidence(self, joint: weights.Estimate, signs: weights.Estimate) -> weights.Estimate:
        """See `FunctionFit`."""
        value, std_error, _, _ = weights.add_estimates(self.data_blocks.log_constant, joint, signs)
        return joint._replace(value=value, std_error=std_error)

    def draw(
        self,
        latent: TruncatedDraws,
        chosen: weights.IntArray,
        rng: np.random.Generator,
        rows: weights.IntArray | None = None,
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
    def n_kept(self) -> int | None:
        """See `FunctionFit`."""
        size = sum(part.size for part in self._parts)
        return self.features.rank if self._elsewhere is not None or size > _MOST_KEPT else None

    def given_coordinates(
        self, coordinates: FloatArray, rng: np.random.Generator, rows: weights.IntArray
    ) -> FloatArray:
        """See `FunctionFit`."""
        if coordinates.shape[1] != self.features.rank:
            raise ValueError(
                f"the draws have {coordinates.shape[1]} coordinates and this posterior "
                f"{self.features.rank}: they are of another one."
            )
        rows_of = self._sets[0].part if self._elsewhere is None else self._elsewhere.rows
        return self._values(coordinates, rows_of(rows), rng)

    def _values(
        self, coordinates: FloatArray, data: DataSet, rng: np.random.Generator
    ) -> FloatArray:
        """Draws of f at the rows of these data, shape (N, n K), given rows of c and the data."""
        of_rows, k = _are_rows(data), data.values.n_functions
        derivative = data.values.derivative
        n = data.X.shape[0]
        f, rest = np.empty((coordinates.shape[0], n, k)), np.empty(n)
        size = max(_LEAST_POINTS, _NUMBERS_AT_ONCE // max(f.shape[0] * k, 1))
        for start in range(0, n, size):
            rows = slice(start, min(start + size, n))
            centre, rest[rows], solved = self._features_at("X", data.X[rows], k, derivative)
            f[:, rows] = (centre + coordinates @ solved).reshape(-1, *f[:, rows].shape[1:])
            if of_rows and rest[rows].any():
                part = data.part(np.arange(rows.start, rows.stop))
                f[:, rows] += self._residuals(part, f[:, rows], rest[rows], rng)
        if not of_rows and rest.any():
            f += self._residuals(data, f, rest, rng)
        return f.reshape(f.shape[0], -1)

    def _residuals(
        self, data: DataSet, signal: FloatArray, rest: FloatArray, rng: np.random.Generator
    ) -> FloatArray:
        """Draws of what features leave of f, given f without it, shape (N, n, K), and the data."""
        apart = not isinstance(data.likelihood, SiteLikelihood)
        if not apart and signal.shape[2] > 1:
            return np.zeros(signal.shape)  # there is next to nothing: see `data_blocks`
        if apart and _are_rows(data) and not of_data.is_grouped(data):
            rows = data.rows()  # several of one value, as trials are, are not
            apart = rows_are_apart(sparse.csr_array(as_matrix(rows.A, rows.n_rows)))
        if not apart:
            rest = rest * self.features.between[0, 0]
            return residual_draws(data, signal[:, :, 0], rest, rng)[:, :, None]
        return group_residuals(data.rows(), self.features, signal, rest, rng)

    def _features_at(
        self, name: str, X: FloatArray, n_functions: int, derivative: Derivative | None = None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Of the first functions at n inputs: means, d, and features as columns (R, n K).

        Derivatives are those of what the features say, without e.
        """
        if derivative is None:
            phi, rest = self.features.single.at(X)
        else:
            phi, rest = (
                bases.derivative_features(self.features.single, X, derivative),
                np.zeros(len(X)),
            )
        wide = self.features.values(phi, n_functions).reshape(-1, self.features.rank)
        return np.repeat(self._prior.mean(name, X, derivative), n_functions), rest, wide.T

    def regression(
        self, new: FloatArray | None, *, joint: bool = False, derivative: Derivative | None = None
    ) -> Regression:
        """See `FunctionFit`."""
        if new is None:
            if self._elsewhere is not None:
                raise ApproximationError(
                    "marginals at the data would be as many as the rows, which are on the workers: "
                    "give Xnew, or draw f at some rows by at_rows."
                )
            return self._here(joint, 1)
        return self._there_of(new, self.n_functions, derivative)

    def _there_of(
        self, X: FloatArray, n_functions: int, derivative: Derivative | None = None
    ) -> Regression:
        """Of the first functions at inputs, what features leave of them included."""
        centre, rest, solved = self._features_at("Xnew", X, n_functions, derivative)
        if n_functions == 1:
            return Regression(centre, rest * self.features.between[0, 0], solved)
        between = self.features.between[:n_functions, :n_functions]
        variance = np.outer(rest, between.diagonal()).ravel()
        covariance = rest[:, None, None] * between
        return Regression(centre, variance, solved, covariance=covariance)

    def pair_regression(self, a: FloatArray, b: FloatArray) -> Regression:
        """See `FunctionFit`."""
        new, single = np.stack([a, b], axis=1).reshape(-1, a.shape[1]), self.features.single
        found = self._there_of(new, 1)
        covariance = np.zeros((a.shape[0], 2, 2))
        covariance[:, [0, 1], [0, 1]] = found.variance.reshape(-1, 2)
        if isinstance(single, bases.EveryInputFeatures):
            for pairs in (slice(i, i + _SOLVED) for i in range(0, len(a), _SOLVED)):
                left = single.residual_covariance(new[2 * pairs.start : 2 * pairs.stop])
                left = self.features.between[0, 0] * left[::2, 1::2].diagonal()
                covariance[pairs, 0, 1] = covariance[pairs, 1, 0] = left
        return found._replace(covariance=covariance)

    def covariance_at(self, new: FloatArray, regression: Regression) -> FloatArray | None:
        """See `FunctionFit`: given c new points are independent, but where c is f at all data."""
        if regression.variance.size > _MOST_JOINT:
            return None
        single = self.features.single
        if isinstance(single, bases.EveryInputFeatures):
            left = single.residual_covariance(new)
            return np.asarray(np.kron(left, self.features.between))
        if regression.covariance is None:
            return np.diag(regression.variance)
        t, k = regression.covariance.shape[:2]
        joint = np.zeros((t, k, t, k))
        joint[np.arange(t), :, np.arange(t)] = regression.covariance
        return joint.reshape(t * k, t * k)

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
        if covariance is not None and isinstance(self.features.single, bases.EveryInputFeatures):
            factor = linalg.low_rank_factor(covariance)
            f += rng.standard_normal((f.shape[0], factor.shape[1])) @ factor.T
        elif regression.variance.any():
            half, k = self.features.half, self.n_functions
            rest = regression.variance[::k] / self.features.between[0, 0]
            e = rng.standard_normal((f.shape[0], rest.size, half.shape[1])) @ half.T
            f += (np.sqrt(rest)[:, None] * e).reshape(f.shape)
        return f.reshape(*shape, -1)

    def _here(self, joint: bool, group: int) -> Regression:
        found = [self._there_of(part.X, part.n_functions, part.derivative) for part in self._parts]
        centre, variance = (np.concatenate(x) for x in zip(*(y[:2] for y in found), strict=True))
        solved: list[Any] = [part.solved for part in found]
        of_data = sparse.hstack(solved, "csc") if sparse.issparse(solved[0]) else np.hstack(solved)
        if (variance > _NO_REST * (deviations(of_data.T) ** 2 + variance)).any():
            raise ApproximationError(_NOT_GAUSSIAN)
        covariance = found[0].covariance if len(found) == 1 else None
        return Regression(centre, variance, of_data, covariance=covariance)


def _are_rows(data: DataSet) -> bool:
    """Whether they can be taken in parts: observations of one row of X each."""
    return data.likelihood.has_data and data.likelihood.y_dim == "obs_id"


# A function of finite rank given values with Gaussian noise, in closed form.
#
# The coordinates are N(mean, (L L')^-1) given the data, and nothing is drawn for moments: u has no
# dimensions. With a value v = f + noise of variance s, and e of variance d, f given c there is
# Gaussian, :math:`f \mid c, v \sim N\{\eta + \frac{d}{d + s} (v - \eta), \frac{d s}{d + s}\}`.


def are_values(sets: tuple[DataSet, ...], prior: Prior) -> bool:
    """Whether all data are values of one function, each with noise of its own, and nothing else."""
    if prior.n_pseudo_points or n_functions(sets) > 1:
        return False
    kinds = [data.likelihood for data in sets]
    if not all(x.has_data and x.y_dim == "obs_id" for x in kinds):
        return False
    if any(isinstance(x, SiteLikelihood) for x in kinds):
        return False
    rows = [data.rows() for data in sets]
    return all(bool(x.is_point.all()) and x.S.ndim == 1 for x in rows)


class FiniteRankValues(FiniteRankFit):
    """As `FiniteRankFit`, of data for which `are_values` holds."""

    @property
    def fitted(self) -> bool:
        """See `FunctionFit`."""
        return "ep" in vars(self)

    def latent(self, n_draws: int, random_seed: Seed) -> TruncatedDraws:
        """Nothing: f itself is Gaussian."""
        return TruncatedDraws(np.zeros((1, 0)), np.zeros(1), NOTHING_DRAWN, "exact")

    def equal_draws(
        self, shape: tuple[int, int], method: str, rng: np.random.Generator, thin: int = 1
    ) -> tuple[TruncatedDraws, weights.IntArray]:
        """Independent draws of c."""
        refuse_method(method)
        count = shape[0] * shape[1]
        white = rng.standard_normal((self.features.rank, count))
        draws = self.ep.gaussian.of_white(white).T
        found = TruncatedDraws(draws, np.zeros(count), NOTHING_DRAWN, "exact")
        return found, np.arange(count).reshape(shape)

    def evidence(self, joint: weights.Estimate, signs: weights.Estimate) -> weights.Estimate:
        """See `FunctionFit`: of Gaussian sites expectation propagation's is exact."""
        return joint._replace(value=self.ep_log_evidence)

    def averaged(
        self, regression: Regression, joint: FloatArray | None
    ) -> tuple[Regression, FloatArray | None]:
        """Over the coordinates."""
        solved, t, variance = regression.solved, regression.centre.size, regression.variance.copy()
        size = t if joint is not None else _SOLVED
        for own in (slice(start, start + size) for start in range(0, t, size)):
            some, moved = self._moved(solved[:, own])
            variance[own] += np.einsum("ij,ij->j", some, moved)
            if joint is not None:
                joint = joint + some.T @ moved
        centre = regression.centre + solved.T @ self.ep.gaussian.mean
        nothing = np.zeros((0, t))
        return regression._replace(centre=centre, variance=variance, solved=nothing), joint

    def _moved(self, columns: Any) -> tuple[FloatArray, FloatArray]:
        """Two arrays whose product is that of columns with the covariance of the coordinates."""
        half = self.ep.gaussian.spread.T @ columns
        return half, half

    def _here(self, joint: bool, group: int) -> Regression:
        """Of f at the inputs of the data: given c, and what rows say of e there."""
        found = []
        for data in self._sets:
            centre, rest, solved = self._features_at("X", data.X, 1, data.values.derivative)
            rest = rest * self.features.between[0, 0]
            rows = data.rows()
            design = as_matrix(rows.A, rows.n_rows)  # with one number a row
            precision = (design * design).T @ (1.0 / rows.S)
            pull = design.T @ ((rows.value - rows.a) / rows.S)
            share = rest * precision / (1.0 + rest * precision)
            known = np.divide(pull, precision, out=np.zeros(centre.size), where=precision > 0.0)
            centre = centre + share * (known - centre)
            found.append((centre, rest * (1.0 - share), solved * (1.0 - share)))
        return Regression(*(np.concatenate(x, axis=-1) for x in zip(*found, strict=True)))


# A function with a sparse precision: c is f at the different inputs, in deviations.


class VecchiaFit(FiniteRankFit):
    """As `FiniteRankFit`, of `VecchiaFeatures`.

    Raises
    ------
    ApproximationError
        For pseudo-points, constraints and several functions.
    """

    features: Any
    _here = FiniteRankFit._here  # also where data are values

    def __init__(self, prior: Prior, features: Any, sets: tuple[DataSet, ...]) -> None:
        super().__init__(prior, features, sets)
        plain = all(data.likelihood.has_data for data in sets)
        if prior.n_pseudo_points or not (plain and self.features.is_single):
            raise ApproximationError(
                "Vecchia is for one function without pseudo-points and constraints, under coregion "
                "1: take Inducing, or the kernel as it is (approximation=None)."
            )
        if any(of_data.is_grouped(data) for data in sets):
            raise ApproximationError(
                "Vecchia is for likelihoods of one predictor a row, with noise of its own: take "
                "Inducing, or the kernel as it is (approximation=None)."
            )

    @cached_property
    def predictors(self) -> list[tuple[DataSet, list[of_data.DataBlock]]]:
        """See `FiniteRankFit`; here whatever cluster there is."""
        known, size = (self.features, self._prior), sum(part.size for part in self._parts)
        found = [(data, list(of_data.data_blocks(data, *known, size))) for data in self._sets]
        blocks: list[Any] = [part.block for _, parts in found for part in parts]
        design: Any = sparse.vstack([block.factor for block in blocks], format="csr")
        pattern = self.features.single.basis.pattern(design)
        sites = [block.sites for block in blocks]
        own = iter(field_blocks(design.data, pattern, sites))
        return [(data, [part._replace(block=next(own)) for part in parts]) for data, parts in found]

    @cached_property
    def data_blocks(self) -> Any:
        """See `FiniteRankFit`, with half of Q's log determinant in the constant."""
        found = dask_blocks.BuiltBlocks([part for _, parts in self.predictors for part in parts])
        found.log_constant += 0.5 * self.features.single.log_det
        return found

    @property
    def field(self) -> FieldPrior:
        """The prior of the coordinates, but for its constant."""
        return FieldPrior.centred(
            self.data_blocks.blocks[0].pattern, self.features.single.precision
        )

    @cached_property
    def ep(self) -> block_ep.BlockEP:
        """Of the data, begun where it ends with few neighbours, which takes next to no time."""
        basis, blocks = self.features.single.basis, self.data_blocks.blocks
        if basis.m > FEW_NEIGHBOURS and basis.rank > _MOST_JOINT:
            few = VecchiaFeatures(self.features.single.prior, replace(basis, m=FEW_NEIGHBOURS))
            design: Any = sparse.vstack([block.factor for block in blocks], format="csr")
            pattern = few.basis.pattern(design)
            begun = field_blocks(design.data, pattern, [block.sites for block in blocks])
            prior = FieldPrior.centred(pattern, few.precision)
            with no_warnings():
                block_ep.fit_blocks(block_ep.LocalBlocks(begun), times=prior.times)
            for block, known in zip(blocks, begun, strict=True):
                block.tau, block.nu = known.tau, known.nu
        return block_ep.fit_blocks(self.data_blocks, times=self.field.times)

    def _features_at(
        self, name: str, X: FloatArray, n_functions: int, derivative: Derivative | None = None
    ) -> tuple[FloatArray, FloatArray, Any]:
        if derivative is not None:
            bases.derivative_features(self.features.single, X, derivative)  # refuses
        phi, rest = self.features.single.at(X)
        return self._prior.mean(name, X), rest, phi.T


class VecchiaValues(VecchiaFit, FiniteRankValues):
    """As `VecchiaFit`, of data for which `are_values` holds."""

    def _moved(self, columns: Any) -> tuple[FloatArray, FloatArray]:
        """See `FiniteRankValues`."""
        some = columns.toarray()
        return some, self.ep.gaussian.spread.solve(some)


def finite_rank_fit(prior: Prior, features: Features, sets: tuple[DataSet, ...]) -> FiniteRankFit:
    """In closed form where all data are values; by a sparse precision where that is asked for."""
    values = are_values(sets, prior)
    if isinstance(features, VecchiaFeatures):
        return (VecchiaValues if values else VecchiaFit)(prior, features, sets)
    return (FiniteRankValues if values else FiniteRankFit)(prior, features, sets)
