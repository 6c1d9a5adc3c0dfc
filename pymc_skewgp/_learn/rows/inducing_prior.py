r"""A process by inducing points Z that stay where they are, as a function of a point.

With k(Z, Z) = L L' its features are :math:`\Phi = k(X, Z) L^{-\top}`.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.linalg import solve_triangular
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dpotrf

from pymc_skewgp._learn.compiled import pull_back_function
from pymc_skewgp._learn.coordinates import Coordinates
from pymc_skewgp._learn.point import Point
from pymc_skewgp._learn.rows.prior_at import PriorRows, RowsGradient, ValuesOf
from pymc_skewgp._model.gp.kernel_derivatives import derivative_covariance, derivative_mean
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
