r"""Functions of finite rank as a program of the hyperparameters, which PyTensor pulls back.

It has two stages. The first are numbers that all rows have in common: L with k(Z, Z) = L L' of
inducing points Z, which stay where they are, or roots of the spectral density; and how several
functions are made of one, with R R' = B their covariance. The second are the numbers of a block of
data, such as :math:`\Phi = k(X, Z) L^{-\top}` and limits of its rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import compress
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import pymc as pm
import pytensor.sparse as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs
from scipy import sparse

from pymc_skewgp._errors import ApproximationError, NotPositiveDefiniteError
from pymc_skewgp._gaussian.blocks.beside import RowsBeside
from pymc_skewgp._gaussian.blocks.conditional import block_sampler
from pymc_skewgp._gaussian.blocks.ep import LocalBlocks, gaussian_of, side_by_side
from pymc_skewgp._gaussian.blocks.pairs import BlockPairs
from pymc_skewgp._gaussian.blocks.rows import SiteSums, field_blocks
from pymc_skewgp._gaussian.coordinate_gaussian import CoordinateGaussian
from pymc_skewgp._gaussian.coordinates import SiteSampler
from pymc_skewgp._gaussian.sparse import FieldPattern, FieldPrior
from pymc_skewgp._gaussian.weights import Estimate, IntArray
from pymc_skewgp._learn.coordinates import Coordinates, Point
from pymc_skewgp._learn.objective import Batch, gradient_in
from pymc_skewgp._model.gp.functions import (
    active_columns,
    derivative_covariance,
    derivative_mean,
    has_noise,
    pair_covariance,
    spectral_basis,
    spectral_density,
)
from pymc_skewgp._model.graph.data import KnownData, KnownSites
from pymc_skewgp._model.ops.plain_mode import plain_function
from pymc_skewgp._observations.likelihood import Derivative
from pymc_skewgp._posterior import data_blocks as row_blocks
from pymc_skewgp._posterior.blocks_at import (
    Arrays,
    BlockAt,
    SignsAt,
    all_finite,
    functions_at,
    groups_at,
    limits_at,
    rows_at,
    signs_at,
)
from pymc_skewgp._posterior.features import NUGGET, SpectralFeatures
from pymc_skewgp._posterior.prior import ROUND_OFF, factor_between
from pymc_skewgp._posterior.vecchia import VecchiaPlaces
from pymc_skewgp._validation import FloatArray

ValuesOf = Derivative | Literal["pseudo-points"] | None


class CompiledNumbers:
    """Some graphs of data and of the model's variables, and the gradient through them.

    Parameters
    ----------
    coordinates : Coordinates
    model : pymc.Model
    inputs : sequence of variables
        The data.
    outputs : sequence of variables
    also : sequence of variables
        Inputs in which derivatives are wanted beside those in the continuous variables.
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
        graphs = model.replace_rvs_by_values([pt.cast(x, "float64") for x in outputs])
        learnt = {*coordinates.inputs, *also}
        self._varies = [bool(learnt.intersection(graph_inputs([x]))) for x in graphs]
        known = [*coordinates.inputs, *inputs]
        self._forward = plain_function(known, graphs)
        self._pull = None
        moved = list(compress(graphs, self._varies))
        if moved:
            weights, values = ([x.type() for x in moved] for _ in range(2))
            weighted = sum((w * x).sum() for w, x in zip(weights, moved, strict=True))
            slopes = gradient_in(weighted, coordinates, also)
            # What is known of them is not computed again.
            again = {x: v for x, v in zip(moved, values, strict=True) if x.owner is not None}
            slopes = clone_replace(slopes, replace=again)
            self._pull = plain_function([*known, *weights, *values], slopes)

    def __call__(self, point: Point, batch: Batch) -> list[FloatArray]:
        """Their values."""
        found = self._forward(*self._coordinates.arguments(point), *batch)
        return [np.asarray(x, np.float64, order="C") for x in found]

    def pull_back(
        self, point: Point, batch: Batch, wrt: Sequence[FloatArray], values: Sequence[FloatArray]
    ) -> Arrays | None:
        """Gradient in the continuous variables from that in each output, with its values.

        None for 0.

        Of outputs that do not vary there is no need to know it: they may have any array.
        """
        if self._pull is None:
            return None
        own = [*compress(wrt, self._varies), *compress(values, self._varies)]
        return tuple(self._pull(*self._coordinates.arguments(point), *batch, *own))


class LatentGraph:
    """Graphs of functions of finite rank, of which blocks of data make graphs of their numbers.

    Parameters
    ----------
    coordinates : Coordinates
    model : pymc.Model
    gp : SkewGP
    n_columns : int
        Of the inputs.
    coregion : ndarray, graph or None
        B; None where the functions are independent and have the kernel as it is.
    n_functions : int
    m : tuple of int, optional
        Eigenfunctions along each column that the kernel depends on; None for inducing points.
    as_field : bool, default False
        Whether the coordinates are f at the different inputs, in deviations: phi has one column
        then, these deviations, and in common are correlations of pairs of inputs.

    Attributes
    ----------
    X : TensorVariable, shape (n, d)
        Inputs of a block.
    between, half : (K, K) and (K, L)
        B and R.
    known : ndarray, shape (K, K)
        B; where it is learnt, some covariance without zeros.
    """

    def __init__(
        self,
        coordinates: Coordinates,
        model: pm.Model,
        gp: Any,
        n_columns: int,
        coregion: Any = None,
        n_functions: int = 1,
        m: tuple[int, ...] | None = None,
        as_field: bool = False,
    ) -> None:
        self.coordinates, self.model, self.gp, self._m = coordinates, model, gp, m
        self.X = pt.matrix("X", shape=(None, n_columns), dtype="float64")
        self.as_field = as_field
        if as_field:
            places = pt.matrix("places", shape=(None, n_columns), dtype="float64")
            i, j = pt.lvectors("i", "j")
            self._basis = [places, i, j]
            sd = pt.sqrt(pair_covariance(gp.cov_func, places, places))
            common = [pair_covariance(gp.cov_func, places[i], places[j]) / sd[i] / sd[j]]
        elif m is None:
            self._basis = [pt.matrix("Z", shape=(None, n_columns), dtype="float64")]
            # Two arguments: noise of rows does not belong to the function at the points.
            common = [_factor(gp.cov_func(self._basis[0], self._basis[0]))]
        else:
            self._basis = [pt.vector(name, dtype="float64") for name in ("centre", "half_width")]
            width = pt.specify_shape(self._basis[1], (len(m),))
            common = [_root(spectral_density(gp.cov_func, width, m))]
        self.known: FloatArray = np.eye(n_functions)
        learnt = isinstance(coregion, Variable)
        if learnt:
            self.known = np.diag(np.linspace(0.5, 1.0, n_functions)) + 0.5
            between = pt.cast(coregion, "float64")
            common += [between, pt.linalg.cholesky(between, on_error="nan")]
        elif coregion is not None:
            self.known = np.asarray(coregion, dtype=np.float64)
        self._common = [pt.tensor(dtype="float64", shape=(None,) * x.type.ndim) for x in common]
        self.between, self.half = pt.constant(self.known), pt.constant(factor_between(self.known))
        if learnt:
            self.between, self.half = self._common[1:]
        self._is_plain = not learnt and np.array_equal(self.known, [[1.0]])
        self.common = CompiledNumbers(coordinates, model, self._basis, common)

    def compiled(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> CompiledNumbers:
        """Numbers of a block as functions of X, of the basis, of what is common, of its data."""
        known = [self.X, *self._basis, *self._common, *inputs]
        return CompiledNumbers(self.coordinates, self.model, known, outputs, self._common)

    def f(self, of: ValuesOf = None) -> tuple[Any, Any, Any]:
        """Phi, mean, and variance that phi leaves, of one function with the kernel as it is.

        Of f; or of a derivative of phi' c, of which nothing is left; or of f less its mean at the
        pseudo-points, whatever X is.
        """
        gp, X, (common, *_) = self.gp, self.X, self._common
        if self.as_field:
            variance, every = pair_covariance(gp.cov_func, X, X), gp.cov_func(X, diag=True)
            noise = every - variance
            noise = pt.switch(noise < ROUND_OFF * variance, 0.0, noise)
            return pt.sqrt(variance)[:, None], gp.mean_func(X), noise
        if self._m is not None:
            centre, half_width = self._basis
            centred = (X - centre)[:, active_columns(gp.cov_func)]
            width = pt.specify_shape(half_width, (len(self._m),))
            centred = pt.specify_shape(centred, (None, len(self._m)))
            phi = spectral_basis(centred, width, self._m) * common
            return phi, gp.mean_func(X), pt.zeros(X.shape[0])
        (Z,) = self._basis
        variance = None
        if of is None:
            cross, mean, variance = gp.cov_func(X, Z), gp.mean_func(X), gp.cov_func(X, diag=True)
        elif of == "pseudo-points":
            places = pt.as_tensor_variable(gp.pseudo_points)
            cross, variance = gp.cov_func(places, Z), gp.cov_func(places, diag=True)
            mean = pt.zeros(places.shape[0])
        else:
            cross = derivative_covariance(gp.cov_func, X, Z, of, None)
            mean = derivative_mean(gp.mean_func, X, of)
        phi = pt.linalg.solve_triangular(common, cross.T, lower=True, check_finite=False).T
        if variance is None:
            return phi, mean, pt.zeros(X.shape[0])
        return phi, mean, pt.maximum(variance - pt.sqr(phi).sum(axis=1), 0.0)

    def first(self, of: ValuesOf = None) -> tuple[Any, Any, Any]:
        """The same of the first of several functions."""
        phi, mean, rest = self.f(of)
        if self._is_plain:
            return phi, mean, rest
        phi = (self.half[0][:, None] * phi[:, None]).reshape((phi.shape[0], -1))
        return phi, mean, self.between[0, 0] * rest


def _factor(covariance: Any) -> Any:
    """Lower Cholesky factor, with the nugget of `features_of_points`; NaN where there is none."""
    matrix = pt.cast(0.5 * (covariance + covariance.T), "float64")
    nugget = NUGGET * pt.diagonal(matrix).mean()
    return pt.linalg.cholesky(matrix + nugget * pt.eye(matrix.shape[0]), on_error="nan")


def _root(density: Any) -> Any:
    """Of a spectral density: one that is 0 in double precision stays so; NaN below."""
    used = density > 0.0
    root = pt.sqrt(pt.switch(used, density, 1.0))
    return pt.switch(used, root, pt.switch(pt.eq(density, 0.0), 0.0, np.nan))


class LatentAt(NamedTuple):
    """Functions of finite rank at a point.

    Attributes
    ----------
    point : Point
    basis, common : tuple of ndarray
        What the numbers of all blocks are functions of.
    """

    point: Point
    basis: Arrays
    common: Arrays


@dataclass(frozen=True, eq=False)
class Latent:
    """Functions of finite rank, whose numbers are compiled.

    Attributes
    ----------
    common : CompiledNumbers
    n_functions : int
    basis : object
        Inducing points, the box of a spectral basis, or places with neighbours: the same at every
        point of the search.
    """

    common: CompiledNumbers
    n_functions: int
    basis: Any = None

    def at(self, point: Point) -> LatentAt | None:
        """At a point; None where double precision ends."""
        basis: Arrays = (self.basis,)
        if isinstance(self.basis, SpectralFeatures):
            basis = self.basis.centre, self.basis.half_width
        elif isinstance(self.basis, VecchiaPlaces):
            basis = self.basis.places, *self.basis.graph.pairs
        common = tuple(self.common(point, basis))
        return LatentAt(point, basis, common) if all_finite(*common) else None

    def pull_back(self, at: LatentAt, found: Arrays) -> Arrays:
        """The gradient in the continuous variables from the sum of that of all blocks.

        Which is in these variables, and then in what is common.
        """
        n = len(found) - len(at.common)
        own = self.common.pull_back(at.point, at.basis, found[n:], at.common)
        return found[:n] if own is None else plus(found[:n], own)


def plus(one: Sequence[FloatArray], other: Sequence[FloatArray]) -> Arrays:
    """Sums of arrays."""
    return tuple(x + y for x, y in zip(one, other, strict=True))


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
    design : csr_matrix, shape (n, k), or None
        Of rows that are about several values of f.
    """

    compiled: CompiledNumbers
    X: FloatArray
    made: Callable[..., BlockAt | None]
    batch: Batch = ()
    design: Any = None

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


# Data of one kind, all or some of which are cut into blocks.


def signs_of(latent: LatentGraph, n_columns: int) -> Chunk | None:
    """Signs of all functions at the pseudo-points; None without any."""
    gp, s = latent.gp, latent.gp.n_pseudo_points
    if not s:
        return None
    phi, _, rest = latent.f("pseudo-points")
    variance = pt.sqr(phi).sum(axis=1) + rest
    columns = [pt.broadcast_to(pt.cast(x, "float64"), (s,)) for x in (gp.phase, gp.truncation)]
    compiled = latent.compiled([], [*columns, phi / pt.sqrt(variance)[:, None], rest / variance])
    return Chunk(compiled, np.zeros((s, n_columns)), partial(signs_at, len(latent.known)))


@dataclass(frozen=True, eq=False)
class DataOfKind:
    """Data of one kind.

    Attributes
    ----------
    known : KnownData or KnownSites
    compiled : CompiledNumbers, or a dict of them
    blocks : callable
        Of some observations, in increasing order.
    n_observations : int
        Rows of X; or comparisons, where these are rows about several of them.
    n_computed : int
        Observations whose features are computed: of equal rows one.
    is_data : bool
        Whether they are data, and no constraint, which goes whole with any of the data.
    in_parts : bool
        Whether some of them are data too.
    """

    known: Any
    compiled: Any
    blocks: Callable[[IntArray], list[Chunk]]
    n_observations: int
    n_computed: int
    is_data: bool = True
    in_parts: bool = True


def limits_of(known: KnownData, latent: LatentGraph) -> DataOfKind:
    """A constraint."""
    symbols, rows = _row_graphs(known, latent)
    phi, mean, rest = latent.first(known.likelihood.derivative)
    variance = pt.sqr(phi).sum(axis=1) + rest
    numbers = [phi, mean, rest, rows.lower, rows.upper, variance, rows.S * variance]
    compiled, table = latent.compiled(symbols, [rows.log_constant, *numbers]), known.whole
    batch = *table.columns, table.log_constant, *table.slopes
    whole, n = [Chunk(compiled, known.X, limits_at, batch)], known.X.shape[0]
    return DataOfKind(known, compiled, lambda _: whole, n, n, is_data=False, in_parts=False)


def row_numbers(known: KnownData, latent: LatentGraph) -> CompiledNumbers:
    """Of points and intervals with noise of their own."""
    own = row_blocks.PlainRows(known.X, known.whole)
    if own.picked is None and not own.apart and has_noise(latent.gp.cov_func):
        raise ApproximationError(row_blocks.NOISE_OF_ITEMS)
    symbols, rows = _row_graphs(known, latent)
    phi, mean, rest = latent.first()
    if own.picked is None:
        design, squares = (ps.csr_matrix(dtype="float64") for _ in range(2))
        symbols += [design, squares]
        mean = _times(design, mean)
        if latent.as_field:  # each entry, as many in every row
            values, columns, *_ = ps.csm_properties(design)
            phi = (values * phi[columns, 0]).reshape((mean.size, -1))
        else:
            phi = ps.structured_dot(design, phi)
        # What is left of items that comparisons share is not noise of the rows.
        rest = _times(squares, rest) if own.apart else 0.0 * mean
    numbers = [phi, mean, rest, rows.lower, rows.upper, rows.value, rows.S]
    return latent.compiled(symbols, [rows.log_constant, *numbers])


def rows_of(
    known: KnownData, compiled: CompiledNumbers, size: int = row_blocks.ROWS_IN_BLOCK
) -> DataOfKind:
    """Points and intervals with noise of their own, so many in a block."""
    rows, table = row_blocks.PlainRows(known.X, known.whole), known.whole

    def blocks(chosen: IntArray) -> list[Chunk]:
        found = list[Chunk]()
        for own in rows.cuts(chosen, size):
            constant = np.zeros(()) if found else table.log_constant
            columns, slopes = ([x[own.rows] for x in y] for y in (table.columns, table.slopes))
            designs = [] if own.design is None else [own.design, own.design.power(2)]
            made = partial(rows_at, own.counts, own.unit)
            batch = *columns, constant, *slopes, *designs
            found.append(Chunk(compiled, known.X[own.inputs], made, batch, own.design))
        return found

    return DataOfKind(known, compiled, blocks, rows.n_observations, rows.n_computed)


def _times(design: Any, x: Any) -> Any:
    return ps.structured_dot(design, x[:, None])[:, 0]


def functions_of(
    known: KnownSites, compiled: CompiledNumbers, size: int = row_blocks.ROWS_IN_BLOCK
) -> DataOfKind:
    """Sites that are functions of one predictor each, so many in a block.

    A function of all values has no parts, nor have parameters of rows.
    """
    n = known.X.shape[0]

    def blocks(chosen: IntArray) -> list[Chunk]:
        if not known.divisible:
            return [Chunk(compiled, known.X, partial(functions_at, known.family_of(), known.y))]
        parts = [chosen[i : i + size] for i in range(0, chosen.size, size)]
        return [
            Chunk(compiled, known.X[x], partial(functions_at, known.family_of(x), known.y[x]))
            for x in parts
        ]

    return DataOfKind(known, compiled, blocks, n, n, in_parts=known.divisible)


def groups_of(known: KnownData, latent: LatentGraph) -> DataOfKind:
    """Rows that share noise, or are about several functions: observations are groups of them.

    Groups are counted by size.
    """
    table = known.whole
    rows = row_blocks.GroupedRows(table, known.n_functions, latent.known)
    compiled = {id(kind): _group_numbers(known, rows, latent, kind) for kind in rows.kinds}

    def blocks(chosen: IntArray) -> list[Chunk]:
        found = list[Chunk]()
        for inputs, groups, kind, design in rows.cuts(chosen):
            constant = np.zeros(()) if found else table.log_constant
            columns = *(x[groups.rows] for x in table.columns[:3]), groups.noise
            batch: Any = *columns, constant, *rows.slopes(groups.rows), *design
            made = partial(groups_at, kind.is_apart)
            found.append(Chunk(compiled[id(kind)], known.X[inputs], made, batch))
        return found

    n = rows.n_observations
    return DataOfKind(known, compiled, blocks, n, n)


def _group_numbers(
    known: KnownData, own: row_blocks.GroupedRows, latent: LatentGraph, kind: row_blocks.GroupKind
) -> CompiledNumbers:
    """Of groups of m rows of p values each, at one input or at several."""
    noise = [3 if own.is_noise(x) else x.ndim + 1 for x in known.whole.slopes]
    symbols = [_symbol(ndim) for ndim in (2, 2, 2, 3, 0, *noise)]
    counts = [_symbol(1)] if known.repeats else []
    rows = known.rows_of([latent.X, *symbols[:5], *counts, *symbols[5:]], known.random).noisy
    design = [_symbol(3), pt.matrix(dtype="int64"), _symbol(3)]
    if not kind.of_one_input:
        design.append(ps.csr_matrix(dtype="float64"))
    f = *latent.f(), latent.half, latent.between
    numbers = kind.numbers(pt, ps.structured_dot, f, rows.S, rows.value, *design)
    limits = rows.lower, rows.upper, rows.value
    return latent.compiled([*symbols, *design], [rows.log_constant, *numbers, *limits])


def is_grouped(known: KnownData) -> bool:
    """Whether observations are of several predictors each: functions, or rows that share noise."""
    return known.n_functions > 1 or known.shares_noise


def _row_graphs(known: KnownData, latent: LatentGraph) -> tuple[list[Any], Any]:
    """Symbols of the table of rows with noise of their own, and graphs of the rows."""
    table = known.whole
    data = [*table.columns, table.log_constant, *table.slopes]
    symbols = [pt.tensor(dtype=x.dtype, shape=(None,) * x.ndim) for x in data]
    counts = [pt.vector("counts", dtype="float64")] if known.repeats else []
    k = len(table.columns) + 1
    rows = known.rows_of([latent.X, *symbols[:k], *counts, *symbols[k:]], known.random)
    return symbols, rows.noisy


def _symbol(ndim: int) -> Any:
    return pt.tensor(dtype="float64", shape=(None,) * ndim)


def kind_of(known: Any, latent: LatentGraph) -> DataOfKind:
    """Data that are checked, compiled for a model; those of a field are one block."""
    size = max(len(known.X), len(known.y)) if latent.as_field else row_blocks.ROWS_IN_BLOCK
    if isinstance(known, KnownSites):
        numbers = [pt.zeros(()), *latent.first(), *known.random.values()]
        return functions_of(known, latent.compiled([], numbers), size)
    if not known.likelihood.has_data:
        return limits_of(known, latent)
    if is_grouped(known):
        return groups_of(known, latent)
    return rows_of(known, row_numbers(known, latent), size)


def blocks_of(kinds: Sequence[DataOfKind]) -> list[Chunk]:
    """Of all data."""
    return [block for kind in kinds for block in kind.blocks(np.arange(kind.n_observations))]


def n_data(kinds: Sequence[DataOfKind]) -> int:
    """Observations of all kinds."""
    return sum(kind.n_observations for kind in kinds if kind.is_data)


def some_blocks(
    kinds: Sequence[DataOfKind], size: int, rng: np.random.Generator
) -> list[Chunk] | None:
    """Of so many observations, drawn at random with equal shares of each kind.

    None where there are no more than these, or where some data cannot be taken apart.
    """
    n = n_data(kinds)
    if n <= size or not all(kind.in_parts for kind in kinds if kind.is_data):
        return None
    blocks: list[Chunk] = []
    for kind in kinds:
        if not kind.is_data:
            blocks += blocks_of([kind])
            continue
        own = max(1, round(size * kind.n_observations / n))
        chosen = np.sort(rng.choice(kind.n_observations, own, replace=False))
        blocks += kind.blocks(chosen)
    return blocks


# All data at a point of the hyperparameters: blocks for EP, and its gradient through them.

_T = TypeVar("_T")


class Rows:
    """All data at one point after another, in blocks in this process: blocks for EP.

    Parameters
    ----------
    latent : Latent
    blocks : sequence of Chunk
    signs : Chunk, optional
        Of the functions at pseudo-points, beside the data.
    n_threads : int, optional
        See `LocalBlocks`.

    Attributes
    ----------
    n_rows, rank, here
        See `Blocks`.
    log_constant : float
        Of the log evidence, beside that of the blocks.
    """

    n_rows: int
    rank: int
    log_constant: float
    here = True
    _at: LatentAt | None = None

    def __init__(
        self,
        latent: Latent,
        blocks: Sequence[Chunk],
        signs: Chunk | None = None,
        n_threads: int | None = None,
    ) -> None:
        self.latent, self.blocks, self._n_threads = latent, blocks, n_threads
        self._all = [*blocks, *([] if signs is None else [signs])]
        self._parts: list[BlockAt] = []
        # Of each block, tau and nu: EP begins where it has ended last.
        self._sites: list[Arrays] = []

    def evaluate(self, point: Point, function: Callable[["Rows"], _T | None]) -> _T | None:
        """A function of all rows at a point; None where double precision ends."""
        try:
            return None if self.place(point) is None else function(self)
        finally:
            self._parts = []  # for their memory

    def place(self, point: Point) -> tuple[int, int, float] | None:
        """Go to a point: rows, coordinates and constant there; None where double precision ends."""
        self._parts = []
        # Aligned, see `InOnePiece`.
        self._at = at = self.latent.at(point.at(point.x.copy()))
        if at is None:
            return None
        for part in side_by_side(lambda x: x.at(at), self._all, self._n_threads):
            if part is None:
                return None
            self._parts.append(part)
        for part, (tau, nu) in zip(self._parts, self._sites, strict=False):
            part.block.tau, part.block.nu = tau, nu
        self._blocks = LocalBlocks([part.block for part in self._parts], self._n_threads)
        constant = sum(part.log_constant for part in self._parts)
        self.n_rows, self.rank, self.log_constant = self._blocks.n_rows, self._blocks.rank, constant
        return self.n_rows, self.rank, constant

    def total(self, method: str, *arguments: Any) -> Any:
        """See `Blocks`."""
        return self._blocks.total(method, *arguments)

    def times(self, sums: SiteSums) -> CoordinateGaussian:
        """The prior times sites with these sums."""
        return gaussian_of(sums)

    def keep(self) -> None:
        """EP at the next point is to begin with the sites as they are."""
        self._sites = [(x.block.tau.copy(), x.block.nu.copy()) for x in self._parts]

    def begin_at(self, other: "Rows") -> None:
        """EP is to begin where it has ended for these rows under another prior."""
        self._sites = other._sites

    def gradient(self, gaussian: CoordinateGaussian) -> Arrays:
        """Of EP's log evidence at its fixed point, in the continuous variables."""
        assert self._at is not None
        found = self.part_of_gradient(gaussian.mean, gaussian.spread)
        return self.latent.pull_back(self._at, found)

    def part_of_gradient(self, mean: FloatArray, spread: FloatArray) -> Arrays:
        """What `Latent` pulls back, EP's Gaussian being N(mean, spread spread')."""
        at = self._at
        assert at is not None

        def of_block(pair: tuple[Chunk, BlockAt]) -> Arrays:
            chunk, part = pair
            return chunk.pull_back(at, part, mean, spread)

        pairs = list(zip(self._all, self._parts, strict=True))
        return reduce(plus, side_by_side(of_block, pairs, self._n_threads))

    def sampler(self, gaussian: CoordinateGaussian) -> SiteSampler:
        """Of coordinates after EP, rows with next to no noise first."""
        # Signs come first.
        rows = RowsBeside.joined([part.hard for part in reversed(self._parts)])
        if rows is None:
            return block_sampler(gaussian, self._blocks if self.here else self)
        noisy = [part.block for part in self._parts if part.hard is None]
        blocks = LocalBlocks(noisy, self._n_threads)
        return SiteSampler(BlockPairs.beside(rows, gaussian_of(blocks.total("sums")), blocks))

    def of_data(self, evidence: Estimate, n_draws: int) -> Estimate:
        """Log evidence of the data, from that of the blocks by so many draws."""
        found = evidence._replace(value=evidence.value + self.log_constant)
        signs = [part for part in self._parts if isinstance(part, SignsAt)]
        return signs[0].with_error(found, n_draws) if signs else found


class RowsOfField(Rows):
    """The same of coordinates with a sparse precision: the basis is `VecchiaPlaces`."""

    _pattern: FieldPattern | None = None

    def place(self, point: Point) -> tuple[int, int, float] | None:
        """See `Rows`."""
        graph = self.latent.basis.graph
        if super().place(point) is None or self._at is None:
            return None
        try:
            known = graph.conditionals(self._at.common[0])
        except NotPositiveDefiniteError:
            return None
        pattern, blocks = self._pattern_of_rows(), list[Any](x.block for x in self._parts)
        self._prior = FieldPrior.centred(pattern, graph.precision(known))
        values = np.concatenate([block.factor.ravel() for block in blocks])
        fields = field_blocks(values, pattern, [block.sites for block in blocks])
        for part, field in zip(self._parts, fields, strict=True):
            field.tau, field.nu = part.block.tau, part.block.nu
            part.block = field
        self._blocks, self.rank = LocalBlocks(fields, self._n_threads), pattern.shape[1]
        self.log_constant -= 0.5 * float(np.log(known.variance).sum())
        return self.n_rows, self.rank, self.log_constant

    def _pattern_of_rows(self) -> FieldPattern:
        if self._pattern is None:
            basis, blocks = self.latent.basis, self.blocks
            place = basis.nearest(np.concatenate([x.X for x in blocks]), 1)[0].ravel()
            every = [sparse.eye_array(len(x.X)) if x.design is None else x.design for x in blocks]
            known = sparse.block_diag(every, format="csr")
            ends = known.data, place[known.indices], known.indptr
            design = sparse.csr_array(ends, (known.shape[0], basis.rank))
            self._pattern = basis.pattern(design)
        return self._pattern

    def times(self, sums: SiteSums) -> CoordinateGaussian:
        """See `Rows`."""
        return self._prior.times(sums)

    def part_of_gradient(self, mean: FloatArray, spread: Any) -> Arrays:
        """See `Rows`."""
        *found, _ = super().part_of_gradient(mean, spread)
        graph, at = self.latent.basis.graph, self._at
        assert at is not None
        i, j = graph.of_precision[:, : self.rank + graph.pairs.shape[1]]
        squares = spread.entries(i, j) + mean[i] * mean[j]
        return *found, graph.slopes(at.common[0], squares)
