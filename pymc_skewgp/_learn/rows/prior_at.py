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
from pymc_skewgp._posterior.features import NUGGET, SpectralFeatures
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
        In what all rows have in common, r x r numbers at most.
    """

    slopes: tuple[FloatArray, ...]
    common: FloatArray


# Numbers as functions of a point, of data and of other numbers, which PyTensor pulls back.


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
    also : sequence of variables
        Inputs in which derivatives are wanted beside those in the continuous variables.

    Attributes
    ----------
    varies : tuple of bool
        Which of the outputs depend on what is learnt, or on these inputs.
    """

    def __init__(
        self,
        coordinates: Coordinates,
        model: pm.Model,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        also: Sequence[Any] = (),
    ) -> None:
        self._coordinates = coordinates
        graphs = model.replace_rvs_by_values(list(outputs))
        learnt = {*coordinates.inputs, *also}
        self.varies = tuple(bool(learnt.intersection(graph_inputs([x]))) for x in graphs)
        known = [*coordinates.inputs, *inputs]
        self._forward = plain_function(known, graphs)
        moved = [x for x, varies in zip(graphs, self.varies, strict=True) if varies]
        self._pull = pull_back_function(known, moved, coordinates, also) if moved else None

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


class PriorProgram:
    r"""A process of finite rank as a function of a point and of a basis, compiled in two stages.

    The first are numbers that all rows have in common: L with k(Z, Z) = L L' of inducing points Z,
    which stay where they are, or roots of the spectral density. The second are the rows, such as
    :math:`\Phi = k(X, Z) L^{-\top}`.

    Parameters
    ----------
    coordinates : Coordinates
    model : pymc.Model
    gp : SkewGP
    n_columns : int
        Of the inputs.
    of : iterable of ValuesOf
        What blocks of data are of, beside f itself.
    m : tuple of int, optional
        Eigenfunctions along each column that the kernel depends on; None for inducing points.
    """

    def __init__(
        self,
        coordinates: Coordinates,
        model: pm.Model,
        gp: Any,
        n_columns: int,
        of: Iterable[ValuesOf] = (),
        m: tuple[int, ...] | None = None,
    ) -> None:
        self._continuous = coordinates.continuous
        X = pt.matrix("X", shape=(None, n_columns), dtype="float64")
        if m is None:
            basis = [pt.matrix("Z", shape=(None, n_columns), dtype="float64")]
            # Two arguments: noise of rows does not belong to the function at the points.
            graph = _factor(gp.cov_func(basis[0], basis[0]))
        else:
            basis = [pt.vector(name, dtype="float64") for name in ("centre", "half_width")]
            width = pt.specify_shape(basis[1], (len(m),))
            graph = _root(spectral_density(gp.cov_func, width, m))
        common = pt.tensor("common", dtype="float64", shape=(None,) * graph.type.ndim)
        self._common = CompiledNumbers(coordinates, model, basis, [graph])
        inputs = [X, *basis, common]

        def compiled(own: ValuesOf) -> CompiledNumbers:
            if m is None:
                rows = _by_points(gp, X, basis[0], common, own)
            else:
                rows = _by_spectrum(gp, X, basis, common, m)
            graphs = [pt.cast(x, "float64") for x in rows]
            return CompiledNumbers(coordinates, model, inputs, graphs, [common])

        # All of them now: blocks that run in threads must not compile.
        self._of = {own: compiled(own) for own in {None, *of}}

    def at(self, point: Point, basis: Any) -> "PriorAt | None":
        """With a basis that stays as it is while points move; None where double precision ends."""
        box = isinstance(basis, SpectralFeatures)
        numbers = (basis.centre, basis.half_width) if box else (basis,)
        (common,) = self._common(point, numbers)
        return PriorAt(self, point, numbers, common) if np.isfinite(common).all() else None

    def rows(self, at: "PriorAt", X: FloatArray, of: ValuesOf) -> PriorRows:
        """See `PriorAt`."""
        return PriorRows(*self._of[of](at.point, (X, *at.basis, at.common)))

    def pull_back(self, at: "PriorAt", X: FloatArray, wrt: PriorRows, of: ValuesOf) -> RowsGradient:
        """See `PriorAt`."""
        found = self._of[of].pull_back(at.point, (X, *at.basis, at.common), wrt)
        assert found is not None  # features depend on what is common
        return RowsGradient(tuple(found[:-1]), found[-1])

    def pull_back_common(self, at: "PriorAt", common: FloatArray) -> Sequence[FloatArray]:
        """See `PriorAt`."""
        found = self._common.pull_back(at.point, at.basis, [common])
        return [np.zeros(())] * len(self._continuous) if found is None else found


class PriorAt(NamedTuple):
    """The process at a point, and the derivatives carried back to it."""

    program: PriorProgram
    point: Point
    basis: tuple[FloatArray, ...]
    common: FloatArray

    def rows(self, X: FloatArray, of: ValuesOf = None) -> PriorRows:
        """At a block of inputs.

        Of f; or of a derivative of phi' c, of which nothing is left; or of f less its mean at the
        pseudo-points, whatever inputs are given.
        """
        return self.program.rows(self, X, of)

    def pull_back(self, X: FloatArray, wrt: PriorRows, of: ValuesOf = None) -> RowsGradient:
        """Part of the gradient from these rows."""
        return self.program.pull_back(self, X, wrt, of)

    def pull_back_common(self, common: FloatArray) -> Sequence[FloatArray]:
        """The rest of the gradient, from the sum of `RowsGradient.common` over all rows."""
        return self.program.pull_back_common(self, common)


def _factor(covariance: Any) -> Any:
    """Lower Cholesky factor, with the nugget of `with_nugget`; NaN where there is none."""
    matrix = pt.cast(0.5 * (covariance + covariance.T), "float64")
    nugget = NUGGET * pt.diagonal(matrix).mean()
    return pt.linalg.cholesky(matrix + nugget * pt.eye(matrix.shape[0]), on_error="nan")


def _root(density: Any) -> Any:
    """Of a spectral density: one that is 0 in double precision stays so; NaN below."""
    used = density > 0.0
    root = pt.sqrt(pt.switch(used, density, 1.0))
    return pt.cast(pt.switch(used, root, pt.switch(pt.eq(density, 0.0), 0.0, np.nan)), "float64")


def _by_points(gp: Any, X: Any, Z: Any, factor: Any, of: ValuesOf) -> list[Any]:
    """Features, mean and what is left of the variance, by inducing points."""
    if of is None:
        cross, mean, variance = gp.cov_func(X, Z), gp.mean_func(X), gp.cov_func(X, diag=True)
    elif of == "pseudo-points":
        places = pt.as_tensor_variable(gp.pseudo_points)
        cross, variance = gp.cov_func(places, Z), gp.cov_func(places, diag=True)
        mean = pt.zeros(places.shape[0])
    else:  # Of what values at Z say of f: all of its variance.
        cross = derivative_covariance(gp.cov_func, X, Z, of, None)
        mean, variance = derivative_mean(gp.mean_func, X, of), None
    phi = pt.linalg.solve_triangular(factor, cross.T, lower=True, check_finite=False).T
    if variance is None:
        return [phi, mean, pt.zeros(X.shape[0])]
    return [phi, mean, pt.maximum(variance - pt.sqr(phi).sum(axis=1), 0.0)]


def _by_spectrum(gp: Any, X: Any, box: Sequence[Any], root: Any, m: tuple[int, ...]) -> list[Any]:
    """The same by eigenfunctions on a box, of f itself: nothing is left."""
    centre, half_width = box
    centred = (X - centre)[:, active_columns(gp.cov_func)]
    width = pt.specify_shape(half_width, (len(m),))
    centred = pt.specify_shape(centred, (None, len(m)))
    return [spectral_basis(centred, width, m) * root, gp.mean_func(X), pt.zeros(X.shape[0])]


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
            graphs = [graph, pt.linalg.cholesky(graph, on_error="nan")]
            self._compiled = CompiledNumbers(coordinates, model, (), graphs)
        elif coregion is not None:
            self.known = np.asarray(coregion, dtype=np.float64)

    def at(self, point: Point) -> FunctionsAt | None:
        """At a point; None where B is no covariance."""
        if self._compiled is None:
            return FunctionsAt(self.known, factor_between(self.known))
        found = FunctionsAt(*self._compiled(point, ()))
        return found if np.isfinite(found.half).all() else None

    def pull_back(self, point: Point, found: FunctionsGradient) -> Sequence[FloatArray] | None:
        """Part of the gradient from the sum of what blocks have found; None for 0."""
        return None if self._compiled is None else self._compiled.pull_back(point, (), found)


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
    process : PriorProgram
    functions : Functions
    basis : object
        Inducing points, or the box of a spectral basis: the same at every point of the search.
    """

    process: PriorProgram
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
        own = self.latent.functions.pull_back(self.point, found.functions)
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
