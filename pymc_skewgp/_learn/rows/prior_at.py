"""A process of finite rank at a point of its hyperparameters: what the blocks of data ask of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import graph_inputs
from scipy.linalg import solve_triangular
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dpotrf

from pymc_skewgp._gaussian.blocks.groups import GroupBlock
from pymc_skewgp._gaussian.blocks.rows import RowBlock
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._learn.coordinates import Coordinates, Point
from pymc_skewgp._learn.objective import Batch, pull_back_function
from pymc_skewgp._model.gp.functions import active_columns, spectral_basis, spectral_density
from pymc_skewgp._model.gp.kernel_derivatives import derivative_covariance, derivative_mean
from pymc_skewgp._model.graph.data_rows import KnownData
from pymc_skewgp._model.ops.plain_mode import plain_function
from pymc_skewgp._observations.likelihood import Derivative
from pymc_skewgp._posterior.features import NUGGET, SpectralFeatures, whitened, with_nugget
from pymc_skewgp._posterior.finite_rank_fit import HardRows
from pymc_skewgp._posterior.prior import factor_between
from pymc_skewgp._validation import FloatArray

ValuesOf = Derivative | Literal["pseudo-points"] | None


class PriorRows(NamedTuple):
    """Of f = mean + phi c + e at n inputs; or derivatives in these numbers.

    Attributes
    ----------
    phi : ndarray, shape (n, r)
    mean : ndarray, shape (n,)
    rest : ndarray, shape (n,)
        Variance of e.
    """

    phi: FloatArray
    mean: FloatArray
    rest: FloatArray

    @property
    def finite(self) -> bool:
        """Whether all of them are."""
        return all(bool(np.isfinite(x).all()) for x in self)


class RowsGradient(NamedTuple):
    """Part of a gradient, from some rows.

    Attributes
    ----------
    slopes : tuple of ndarray
        In the continuous variables.
    common : ndarray
        In what all rows have in common, r x r numbers at most; see `PriorAt.pull_back_common`.
    """

    slopes: tuple[FloatArray, ...]
    common: FloatArray


class PriorAt(Protocol):
    """The process at a point, and the derivatives carried back to it."""

    def rows(self, X: FloatArray, of: ValuesOf = None) -> PriorRows:
        """At a block of inputs.

        Of f; or of a derivative of phi' c, of which nothing is left; or of f less its mean at the
        pseudo-points, whatever inputs are given.
        """
        ...

    def pull_back(
        self,
        X: FloatArray,
        known: PriorRows,
        wrt: PriorRows,
        of: ValuesOf = None,
    ) -> RowsGradient:
        """Part of the gradient from these rows; `wrt` is overwritten."""
        ...

    def pull_back_common(self, common: FloatArray) -> list[FloatArray]:
        """The rest of the gradient, from the sum of `RowsGradient.common` over all rows."""
        ...


class PriorFamily(Protocol):
    """A process of finite rank whose kernel and mean are functions of a point."""

    def at(self, point: Point, basis: Any) -> PriorAt | None:
        """With a basis that stays as it is while points move; None where double precision ends."""
        ...


# A process by inducing points Z that stay where they are, as a function of a point.
#
# With k(Z, Z) = L L' its features are :math:`\Phi = k(X, Z) L^{-\top}`.


class InducingPrior:
    """Kernel and mean of a SkewGP, compiled.

    Parameters
    ----------
    coordinates : Coordinates
    model : pymc.Model
    gp : SkewGP
    n_columns : int
        Of the inputs.
    of : iterable of ValuesOf
        What blocks of data are of, beside f itself.
    """

    def __init__(
        self,
        coordinates: Coordinates,
        model: pm.Model,
        gp: Any,
        n_columns: int,
        of: Iterable[ValuesOf] = (),
    ) -> None:
        self._coordinates = coordinates
        X, Z = (pt.matrix(name, shape=(None, n_columns), dtype="float64") for name in "XZ")
        at_points, inputs = [*coordinates.inputs, Z], [*coordinates.inputs, X, Z]

        def compiled(graphs: list[Any], inputs: list[Any]) -> _Moments:
            moments = [pt.cast(x, "float64") for x in model.replace_rvs_by_values(graphs)]
            pull = pull_back_function(inputs, moments, coordinates)
            return _Moments(plain_function(inputs, moments), pull)

        # Two arguments: noise of rows does not belong to the function at the points.
        self._between = compiled([gp.cov_func(Z, Z)], at_points)
        # All of them now: blocks that run in threads must not compile.
        self._of = {own: compiled(_moments(gp, X, Z, own), inputs) for own in {None, *of}}

    def at(self, point: Point, basis: FloatArray) -> "InducingPriorAt | None":
        """See `PriorFamily`: the basis are the points Z."""
        (matrix,) = self._between.moments(*self._coordinates.arguments(point), basis)
        matrix = np.asarray(matrix, np.float64)
        if not np.isfinite(matrix).all():
            return None
        factor, info = dpotrf(with_nugget(matrix), lower=1, clean=1)
        return None if info else InducingPriorAt(self, point, basis, np.asarray(factor))

    def moments(self, point: Point, X: FloatArray, Z: FloatArray, of: ValuesOf) -> list[FloatArray]:
        """Covariance of these values with f at Z, shape (n, r), their mean and variance."""
        found = self._of[of].moments(*self._coordinates.arguments(point), X, Z)
        return [np.asarray(x, np.float64) for x in found]

    def pull_back(
        self,
        point: Point,
        X: FloatArray,
        Z: FloatArray,
        wrt: PriorRows,
        of: ValuesOf,
    ) -> list[FloatArray]:
        """Gradient from that in these moments."""
        pull = self._of[of].pull
        found: list[FloatArray] = pull(*self._coordinates.arguments(point), X, Z, *wrt)
        return found

    def pull_back_between(self, point: Point, Z: FloatArray, wrt: FloatArray) -> list[FloatArray]:
        """Gradient from that in the covariance of f at Z."""
        arguments = self._coordinates.arguments(point)
        found: list[FloatArray] = self._between.pull(*arguments, Z, wrt)
        return found


class _Moments(NamedTuple):
    """Moments of f, or of a derivative, and the gradient through them, compiled."""

    moments: Any
    pull: Any


def _moments(gp: Any, X: Any, Z: Any, of: ValuesOf) -> list[Any]:
    """Covariance of these values with f at Z, their mean and their variance."""
    if of is None:
        return [gp.cov_func(X, Z), gp.mean_func(X), gp.cov_func(X, diag=True)]
    if of == "pseudo-points":
        places = pt.as_tensor_variable(gp.pseudo_points)
        nothing = pt.zeros(places.shape[0])
        return [gp.cov_func(places, Z), nothing, gp.cov_func(places, diag=True)]
    # Of what values at Z say of f: all of its variance.
    cross = derivative_covariance(gp.cov_func, X, Z, of, None)
    return [cross, derivative_mean(gp.mean_func, X, of), pt.zeros(X.shape[0])]


class InducingPriorAt:
    """`PriorAt` of an `InducingPrior`; `factor` is L."""

    def __init__(
        self, family: InducingPrior, point: Point, points: FloatArray, factor: FloatArray
    ) -> None:
        self._family, self._point, self._points, self._factor = family, point, points, factor

    def rows(self, X: FloatArray, of: ValuesOf = None) -> PriorRows:
        """See `PriorAt`."""
        cross, mean, variance = self._family.moments(self._point, X, self._points, of)
        phi = whitened(np.ascontiguousarray(cross), self._factor)
        rest = variance - np.einsum("ij,ij->i", phi, phi)
        return PriorRows(phi, mean, np.maximum(rest, 0.0))

    def pull_back(
        self,
        X: FloatArray,
        known: PriorRows,
        wrt: PriorRows,
        of: ValuesOf = None,
    ) -> RowsGradient:
        """See `PriorAt`; where nothing is left of a variance, round-off has cut it at 0."""
        in_phi, in_rest = wrt.phi, np.where(known.rest > 0.0, wrt.rest, 0.0)
        in_phi -= (2.0 * in_rest)[:, None] * known.phi
        common = in_phi.T @ known.phi
        cross = dtrsm(1.0, self._factor, in_phi.T, lower=1, trans_a=1, overwrite_b=1).T
        moments = PriorRows(cross, wrt.mean, in_rest)
        slopes = self._family.pull_back(self._point, X, self._points, moments, of)
        return RowsGradient(tuple(slopes), common)

    def pull_back_common(self, common: FloatArray) -> list[FloatArray]:
        """See `PriorAt`."""
        factor, r = self._factor, self._factor.shape[0]
        in_factor = np.tril(solve_triangular(factor, -common, lower=True, trans=1))
        wrt = cholesky_adjoint(factor, in_factor)
        wrt[np.diag_indices(r)] += NUGGET / r * np.trace(wrt)
        return self._family.pull_back_between(self._point, self._points, wrt)


def cholesky_adjoint(factor: FloatArray, wrt: FloatArray) -> FloatArray:
    """Gradient in a symmetric matrix from that in its lower Cholesky factor."""
    inner = np.tril(factor.T @ wrt)
    inner[np.diag_indices_from(inner)] *= 0.5
    half = solve_triangular(factor, inner, lower=True, trans=1)
    found = solve_triangular(factor, half.T, lower=True, trans=1)
    return np.asarray(0.5 * (found + found.T))


# A process by PyMC's basis of a Hilbert space approximation, as a function of a point.


class SpectralPrior:
    """Eigenfunctions, spectral density of the kernel, and mean of a SkewGP, compiled.

    Parameters
    ----------
    coordinates : Coordinates
    model : pymc.Model
    gp : SkewGP
    n_columns : int
        Of the inputs.
    m : tuple of int
        Eigenfunctions along each column that the kernel depends on.
    """

    def __init__(
        self,
        coordinates: Coordinates,
        model: pm.Model,
        gp: Any,
        n_columns: int,
        m: tuple[int, ...],
    ) -> None:
        self._coordinates = coordinates
        self._columns = active_columns(gp.cov_func)
        X = pt.matrix("X", shape=(None, n_columns), dtype="float64")
        centred = pt.matrix("centred", shape=(None, len(self._columns)), dtype="float64")
        width = pt.vector("half_width", shape=(len(self._columns),), dtype="float64")
        graphs = [spectral_density(gp.cov_func, width, m), gp.mean_func(X)]
        density, mean = (pt.cast(x, "float64") for x in model.replace_rvs_by_values(graphs))
        inputs = coordinates.inputs
        self._basis = plain_function([centred, width], spectral_basis(centred, width, m))
        of_density, of_mean = [*inputs, width], [*inputs, X]
        self._density = plain_function(of_density, density)
        self._mean = plain_function(of_mean, mean)
        self._pull_density = pull_back_function(of_density, [density], coordinates)
        self._pull_mean = pull_back_function(of_mean, [mean], coordinates)

    def at(self, point: Point, basis: SpectralFeatures) -> "SpectralPriorAt | None":
        """See `PriorFamily`: of the basis the box alone counts."""
        arguments = self._coordinates.arguments(point)
        density = np.asarray(self._density(*arguments, basis.half_width), np.float64)
        usable = np.isfinite(density).all() and (density >= 0.0).all()
        return SpectralPriorAt(self, point, basis, np.sqrt(density)) if usable else None

    def basis(self, X: FloatArray, box: SpectralFeatures) -> FloatArray:
        """Eigenfunctions at X, shape (n, r)."""
        centred = (X - box.centre)[:, self._columns]
        return np.asarray(self._basis(centred, box.half_width), np.float64)

    def mean(self, point: Point, X: FloatArray) -> FloatArray:
        """Of f at X."""
        return np.asarray(self._mean(*self._coordinates.arguments(point), X), np.float64)

    def pull_back_mean(self, point: Point, X: FloatArray, wrt: FloatArray) -> list[FloatArray]:
        """Gradient from that in the mean."""
        found: list[FloatArray] = self._pull_mean(*self._coordinates.arguments(point), X, wrt)
        return found

    def pull_back_density(
        self, point: Point, box: SpectralFeatures, wrt: FloatArray
    ) -> list[FloatArray]:
        """Gradient from that in the spectral density at the eigenvalues."""
        arguments = self._coordinates.arguments(point)
        found: list[FloatArray] = self._pull_density(*arguments, box.half_width, wrt)
        return found


class SpectralPriorAt:
    """`PriorAt` of a `SpectralPrior`; `root` is that of the density. Nothing is left of f."""

    def __init__(
        self, family: SpectralPrior, point: Point, box: SpectralFeatures, root: FloatArray
    ) -> None:
        self._family, self._point, self._box, self._root = family, point, box, root

    def rows(self, X: FloatArray, of: ValuesOf = None) -> PriorRows:
        """See `PriorAt`; others than f are refused before."""
        phi = self._family.basis(X, self._box) * self._root
        return PriorRows(phi, self._family.mean(self._point, X), np.zeros(X.shape[0]))

    def pull_back(
        self,
        X: FloatArray,
        known: PriorRows,
        wrt: PriorRows,
        of: ValuesOf = None,
    ) -> RowsGradient:
        """See `PriorAt`."""
        basis = self._family.basis(X, self._box)
        slopes = self._family.pull_back_mean(self._point, X, wrt.mean)
        return RowsGradient(tuple(slopes), np.einsum("ij,ij->j", basis, wrt.phi))

    def pull_back_common(self, common: FloatArray) -> list[FloatArray]:
        """See `PriorAt`; a density that is 0 in double precision stays so."""
        used = self._root > 0.0
        wrt = np.where(used, 0.5 * common / np.where(used, self._root, 1.0), 0.0)
        return self._family.pull_back_density(self._point, self._box, wrt)


# Numbers that sites are made of, such as limits, as functions of a point and of the data.


class CompiledNumbers:
    """Some graphs, and the gradient through them.

    Parameters
    ----------
    coordinates : Coordinates
    model : pymc.Model
    inputs : sequence of variables
        The data.
    outputs : sequence of variables
        Graphs of the data and of the model's variables.

    Attributes
    ----------
    varies : tuple of bool
        Which of the outputs depend on what is learnt.
    """

    def __init__(
        self,
        coordinates: Coordinates,
        model: pm.Model,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
    ) -> None:
        self._coordinates = coordinates
        graphs = model.replace_rvs_by_values(list(outputs))
        learnt = set(coordinates.inputs)
        self.varies = tuple(bool(learnt.intersection(graph_inputs([x]))) for x in graphs)
        known = [*coordinates.inputs, *inputs]
        self._forward = plain_function(known, graphs)
        moved = [x for x, varies in zip(graphs, self.varies, strict=True) if varies]
        self._pull = pull_back_function(known, moved, coordinates) if moved else None

    def __call__(self, point: Point, batch: Batch) -> list[FloatArray]:
        """Their values."""
        found = self._forward(*self._coordinates.arguments(point), *batch)
        return [np.asarray(x, np.float64) for x in found]

    def pull_back(
        self, point: Point, batch: Batch, wrt: Sequence[FloatArray]
    ) -> list[FloatArray] | None:
        """Gradient in the continuous variables from that in each output; None for 0.

        Of outputs that do not vary there is no need to know it: they may have any array.
        """
        if self._pull is None:
            return None
        own = [x for x, varies in zip(wrt, self.varies, strict=True) if varies]
        found: list[FloatArray] = self._pull(*self._coordinates.arguments(point), *batch, *own)
        return found


def compiled_rows(known: KnownData, model: pm.Model, coordinates: Coordinates) -> CompiledNumbers:
    """Lower, upper, value, noise and constant of rows with noise of their own, from their table."""
    table = known.whole
    data = [*table.columns, table.log_constant, *table.slopes]
    symbols = [pt.tensor(dtype=x.dtype, shape=(None,) * x.ndim) for x in data]
    X = pt.matrix("X", shape=(None, known.X.shape[1]), dtype="float64")
    counts = [pt.vector("counts", dtype="float64")] if known.repeats else []
    k = len(table.columns) + 1
    rows = known.rows_of([X, *symbols[:k], *counts, *symbols[k:]], known.random)
    graphs = [rows.lower, rows.upper, rows.value, rows.S, rows.log_constant]
    return CompiledNumbers(coordinates, model, symbols, graphs)


# Several functions of one kernel at a point: how they are made of independent ones.
#
# With B = R R' their covariance, :math:`f_k = m + \sum_l R_{kl} \phi^\top c_l + e_k`.


class FunctionsGradient(NamedTuple):
    """Derivatives in how functions are made, which blocks add up.

    Attributes
    ----------
    between : ndarray, shape (K, K)
        In entries of B.
    half : ndarray, shape (K, L)
        In R.
    """

    between: FloatArray
    half: FloatArray


class FunctionsAt(NamedTuple):
    """Functions at a point.

    Attributes
    ----------
    between : ndarray, shape (K, K)
        B.
    half : ndarray, shape (K, L)
        R.
    """

    between: FloatArray
    half: FloatArray

    @property
    def is_plain(self) -> bool:
        """Whether there is one function, with the kernel as it is."""
        return self.between.shape == (1, 1) and float(self.between[0, 0]) == 1.0

    def first(self, prior: PriorRows) -> PriorRows:
        """The first function, from one with the kernel as it is."""
        if self.is_plain:
            return prior
        phi = (self.half[0][:, None] * prior.phi[:, None]).reshape(prior.phi.shape[0], -1)
        return PriorRows(phi, prior.mean, self.between[0, 0] * prior.rest)

    def wrt_first(self, prior: PriorRows, wrt: PriorRows) -> tuple[PriorRows, FunctionsGradient]:
        """Derivatives in the one with the kernel as it is from those in the first function.

        And those in how it is made of independent ones.
        """
        found = self.no_gradient()
        if self.is_plain:
            return wrt, found
        n, r = prior.phi.shape
        in_phi = wrt.phi.reshape(n, -1, r)
        found.half[0] = np.einsum("ilr,ir->l", in_phi, prior.phi)
        found.between[0, 0] = wrt.rest @ prior.rest
        phi = np.einsum("ilr,l->ir", in_phi, self.half[0])
        return PriorRows(phi, wrt.mean, self.between[0, 0] * wrt.rest), found

    def no_gradient(self) -> FunctionsGradient:
        """Zeros."""
        return FunctionsGradient(np.zeros_like(self.between), np.zeros_like(self.half))

    def gradient(
        self, function: IntArray, in_between: FloatArray, in_half: FloatArray
    ) -> FunctionsGradient:
        """From derivatives of groups of values, which are of these functions, shape (n, p).

        In covariances of the values of a group, (n, p, p), and in their rows of R, (n, p, L).
        """
        found = self.no_gradient()
        one, other = np.broadcast_arrays(function[:, :, None], function[:, None, :])
        np.add.at(found.between, (one, other), in_between)
        np.add.at(found.half, function, in_half)
        return found

    def wrt_between(self, found: FunctionsGradient) -> FloatArray:
        """Derivatives in B, of which R is the Cholesky factor."""
        whole = found.between
        return cholesky_adjoint(self.half, found.half) + 0.5 * (whole + whole.T)


class Functions:
    """Several functions as a function of a point.

    Parameters
    ----------
    coregion : ndarray, graph or None
        B; None where the functions are independent and have the kernel as it is.
    n_functions : int
    coordinates : Coordinates
    model : pymc.Model

    Attributes
    ----------
    known : ndarray, shape (K, K)
        B; where it is learnt, some covariance without zeros.
    """

    def __init__(
        self, coregion: Any, n_functions: int, coordinates: Coordinates, model: pm.Model
    ) -> None:
        self._compiled: CompiledNumbers | None = None
        self.known: FloatArray = np.eye(n_functions)
        if isinstance(coregion, Variable):
            graph = pt.cast(coregion, "float64")
            self.known = np.diag(np.linspace(0.5, 1.0, n_functions)) + 0.5
            self._compiled = CompiledNumbers(coordinates, model, (), [graph])
        elif coregion is not None:
            self.known = np.asarray(coregion, dtype=np.float64)

    def at(self, point: Point) -> FunctionsAt | None:
        """At a point; None where B is no covariance."""
        if self._compiled is None:
            return FunctionsAt(self.known, factor_between(self.known))
        (between,) = self._compiled(point, ())
        if not np.isfinite(between).all():
            return None
        half, info = dpotrf(between, lower=1, clean=1)
        return None if info else FunctionsAt(between, np.asarray(half))

    def pull_back(
        self, point: Point, functions: FunctionsAt, found: FunctionsGradient
    ) -> Sequence[FloatArray] | None:
        """Part of the gradient from the sum of what blocks have found; None for 0."""
        if self._compiled is None:
            return None
        return self._compiled.pull_back(point, (), [functions.wrt_between(found)])


# What data are of: functions of finite rank, at a point of their hyperparameters.


class LatentGradient(NamedTuple):
    """Part of a gradient, from some blocks of data.

    Attributes
    ----------
    rows : RowsGradient
        Through one function with the kernel as it is.
    functions : FunctionsGradient
        Through how several are made of such ones.
    """

    rows: RowsGradient
    functions: FunctionsGradient


@dataclass(frozen=True, eq=False)
class Latent:
    """Functions of finite rank as functions of a point.

    Attributes
    ----------
    process : PriorFamily
    functions : Functions
    basis : object
        Inducing points, or the box of a spectral basis: the same at every point of the search.
    """

    process: PriorFamily
    functions: Functions
    basis: Any

    def at(self, point: Point) -> "LatentAt | None":
        """At a point; None where double precision ends."""
        prior, functions = self.process.at(point, self.basis), self.functions.at(point)
        if prior is None or functions is None:
            return None
        return LatentAt(self, point, prior, functions)


class LatentAt(NamedTuple):
    """A `Latent` at a point."""

    latent: Latent
    point: Point
    prior: PriorAt
    functions: FunctionsAt

    def pull_back(self, found: LatentGradient) -> tuple[FloatArray, ...]:
        """The whole gradient in the continuous variables from the sum over all blocks."""
        slopes = plus(found.rows.slopes, self.prior.pull_back_common(found.rows.common))
        functions = self.latent.functions
        own = functions.pull_back(self.point, self.functions, found.functions)
        return slopes if own is None else plus(slopes, own)


def added_gradients(parts: Iterable[LatentGradient]) -> LatentGradient:
    """Their sum, of at least one."""
    return reduce(_both, parts)


def _both(one: LatentGradient, other: LatentGradient) -> LatentGradient:
    functions = FunctionsGradient(*plus(one.functions, other.functions))
    return LatentGradient(added_rows([one.rows, other.rows]), functions)


def added_rows(parts: Iterable[RowsGradient]) -> RowsGradient:
    """The same of rows of one function."""
    return reduce(lambda a, b: RowsGradient(plus(a.slopes, b.slopes), a.common + b.common), parts)


def plus(one: Sequence[FloatArray], other: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
    """Sums of arrays."""
    return tuple(x + y for x, y in zip(one, other, strict=True))


# What the objective of many rows asks of a block of data, and of the same at a point.


class BlockGradient(NamedTuple):
    """Derivatives of EP's log evidence.

    Attributes
    ----------
    prior : PriorRows
        In the numbers of one function with the kernel as it is, at the inputs of the block.
    numbers : sequence of ndarray, or None
        In the continuous variables, through what the sites are made of; None for 0.
    functions : FunctionsGradient
        In how several functions are made of such ones.
    """

    prior: PriorRows
    numbers: Sequence[FloatArray] | None
    functions: FunctionsGradient


class BlockAt(Protocol):
    """A block of data at a point."""

    @property
    def block(self) -> RowBlock | GroupBlock:
        """Its predictors with their sites."""
        ...

    @property
    def log_constant(self) -> float:
        """Of its log evidence."""
        ...

    def hard(self) -> HardRows | None:
        """The same as rows that are drawn first, where they have next to no noise."""
        ...

    def gradient(self, mean: FloatArray, spread: FloatArray) -> BlockGradient:
        """At EP's fixed point."""
        ...


class BlockOfData(Protocol):
    """A block of data."""

    @property
    def X(self) -> FloatArray:
        """Inputs at which functions are needed, shape (k, d)."""
        ...

    @property
    def of(self) -> ValuesOf:
        """What is needed there of functions; None for themselves."""
        ...

    def at(self, point: Point, prior: PriorRows, functions: FunctionsAt) -> BlockAt | None:
        """At a point, where `prior` is of its inputs; None where double precision ends."""
        ...
