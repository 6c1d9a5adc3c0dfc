r"""A process by inducing points Z that stay where they are, as a function of a point.

With k(Z, Z) = L L' its features are :math:`\Phi = k(X, Z) L^{-\top}`.
"""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.linalg import solve_triangular
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dpotrf

from pymc_skewgp._learn.compiled import pull_back_function
from pymc_skewgp._learn.coordinates import Coordinates
from pymc_skewgp._learn.point import Point
from pymc_skewgp._learn.rows.prior_at import PriorRows, RowsGradient
from pymc_skewgp._model.ops.known_functions import plain_function
from pymc_skewgp._posterior.approximations.inducing import NUGGET, whitened, with_nugget
from pymc_skewgp._validation import FloatArray


class InducingPrior:
    """Kernel and mean of a SkewGP, compiled.

    Parameters
    ----------
    coordinates : Coordinates
    model : pymc.Model
    gp : SkewGP
    n_columns : int
        Of the inputs.
    """

    def __init__(self, coordinates: Coordinates, model: pm.Model, gp: Any, n_columns: int) -> None:
        self._coordinates = coordinates
        X, Z = (pt.matrix(name, shape=(None, n_columns), dtype="float64") for name in "XZ")
        # Two arguments at Z: noise of rows does not belong to the function there.
        graphs = [gp.cov_func(X, Z), gp.mean_func(X), gp.cov_func(X, diag=True), gp.cov_func(Z, Z)]
        graphs = [pt.cast(x, "float64") for x in model.replace_rvs_by_values(graphs)]
        *moments, between = graphs
        inputs = [*coordinates.inputs, X, Z]
        self._moments = plain_function(inputs, moments)
        self._pull = pull_back_function(inputs, moments, coordinates)
        at_points = [*coordinates.inputs, Z]
        self._between = plain_function(at_points, between)
        self._pull_between = pull_back_function(at_points, [between], coordinates)

    def at(self, point: Point, basis: FloatArray) -> "InducingPriorAt | None":
        """See `PriorFamily`: the basis are the points Z."""
        matrix = np.asarray(self._between(*self._coordinates.arguments(point), basis), np.float64)
        if not np.isfinite(matrix).all():
            return None
        factor, info = dpotrf(with_nugget(matrix), lower=1, clean=1)
        return None if info else InducingPriorAt(self, point, basis, np.asarray(factor))

    def moments(self, point: Point, X: FloatArray, Z: FloatArray) -> list[FloatArray]:
        """Covariance of f at X with f at Z, shape (n, r), mean and variance at X."""
        found = self._moments(*self._coordinates.arguments(point), X, Z)
        return [np.asarray(x, np.float64) for x in found]

    def pull_back(
        self, point: Point, X: FloatArray, Z: FloatArray, wrt: PriorRows
    ) -> list[FloatArray]:
        """Gradient from that in these moments."""
        found: list[FloatArray] = self._pull(*self._coordinates.arguments(point), X, Z, *wrt)
        return found

    def pull_back_between(self, point: Point, Z: FloatArray, wrt: FloatArray) -> list[FloatArray]:
        """Gradient from that in the covariance of f at Z."""
        found: list[FloatArray] = self._pull_between(*self._coordinates.arguments(point), Z, wrt)
        return found


class InducingPriorAt:
    """`PriorAt` of an `InducingPrior`; `factor` is L."""

    def __init__(
        self, family: InducingPrior, point: Point, points: FloatArray, factor: FloatArray
    ) -> None:
        self._family, self._point, self._points, self._factor = family, point, points, factor

    def rows(self, X: FloatArray) -> PriorRows:
        """See `PriorAt`."""
        cross, mean, variance = self._family.moments(self._point, X, self._points)
        phi = whitened(np.ascontiguousarray(cross), self._factor)
        rest = variance - np.einsum("ij,ij->i", phi, phi)
        return PriorRows(phi, mean, np.maximum(rest, 0.0))

    def pull_back(self, X: FloatArray, known: PriorRows, wrt: PriorRows) -> RowsGradient:
        """See `PriorAt`; where nothing is left of a variance, round-off has cut it at 0."""
        in_phi, in_rest = wrt.phi, np.where(known.rest > 0.0, wrt.rest, 0.0)
        in_phi -= (2.0 * in_rest)[:, None] * known.phi
        common = in_phi.T @ known.phi
        cross = dtrsm(1.0, self._factor, in_phi.T, lower=1, trans_a=1, overwrite_b=1).T
        moments = PriorRows(cross, wrt.mean, in_rest)
        slopes = self._family.pull_back(self._point, X, self._points, moments)
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
