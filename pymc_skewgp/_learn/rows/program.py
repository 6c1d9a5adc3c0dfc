r"""Functions of finite rank as a program of the hyperparameters, which PyTensor pulls back.

It has two stages. The first are numbers that all rows have in common: L with k(Z, Z) = L L' of
inducing points Z, which stay where they are, or roots of the spectral density; and how several
functions are made of one, with R R' = B their covariance. The second are the numbers of a block of
data, such as :math:`\Phi = k(X, Z) L^{-\top}` and limits of its rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Literal, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs

from pymc_skewgp._learn.coordinates import Coordinates, Point
from pymc_skewgp._learn.objective import Batch, gradient_in
from pymc_skewgp._model.gp.functions import (
    active_columns,
    derivative_covariance,
    derivative_mean,
    spectral_basis,
    spectral_density,
)
from pymc_skewgp._model.ops.plain_mode import plain_function
from pymc_skewgp._observations.likelihood import Derivative
from pymc_skewgp._posterior.blocks_at import Arrays, BlockAt, all_finite
from pymc_skewgp._posterior.features import NUGGET, SpectralFeatures
from pymc_skewgp._posterior.prior import factor_between
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
    ) -> None:
        self.coordinates, self.model, self.gp, self._m = coordinates, model, gp, m
        self.X = pt.matrix("X", shape=(None, n_columns), dtype="float64")
        if m is None:
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
        Inducing points, or the box of a spectral basis: the same at every point of the search.
    """

    common: CompiledNumbers
    n_functions: int
    basis: Any = None

    def at(self, point: Point) -> LatentAt | None:
        """At a point; None where double precision ends."""
        box = isinstance(self.basis, SpectralFeatures)
        basis = (self.basis.centre, self.basis.half_width) if box else (self.basis,)
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
    """

    compiled: CompiledNumbers
    X: FloatArray
    made: Callable[..., BlockAt | None]
    batch: Batch = ()

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
