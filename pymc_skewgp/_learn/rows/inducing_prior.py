r"""A process by inducing points Z that stay where they are, as a function of a point.

With k(Z, Z) = L L' its features are :math:`\Phi = k(X, Z) L^{-\top}`.
"""

from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.linalg import solve_triangular
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dpotrf

from pymc_skewgp._learn.compiled import gradient_in
from pymc_skewgp._learn.coordinates import Coordinates
from pymc_skewgp._learn.point import Point
from pymc_skewgp._learn.rows.prior_at import PriorRows, ValuesOf
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
    """

    def __init__(self, coordinates: Coordinates, model: pm.Model, gp: Any, n_columns: int) -> None:
        self._coordinates, self._model, self._gp = coordinates, model, gp
        self._n_columns = n_columns
        self._of: dict[ValuesOf, _Moments] = {}
        Z = self._symbol("Z")
        # Two arguments: noise of rows does not belong to the function at the points.
        (between,) = self._graphs([gp.cov_func(Z, Z)])
        at_points = [*coordinates.inputs, Z]
        self._between = plain_function(at_points, between)
        weight = pt.matrix()
        slopes = gradient_in((weight * between).sum(), coordinates)
        self._pull_between = plain_function([*at_points, weight], slopes)

    def at(self, point: Point, basis: FloatArray) -> "InducingPriorAt | None":
        """See `PriorFamily`: the basis are the points Z."""
        matrix = np.asarray(self._between(*self._coordinates.arguments(point), basis), np.float64)
        if not np.isfinite(matrix).all():
            return None
        factor, info = dpotrf(with_nugget(matrix), lower=1, clean=1)
        return None if info else InducingPriorAt(self, point, basis, np.asarray(factor))

    def moments(self, point: Point, X: FloatArray, Z: FloatArray, of: ValuesOf) -> list[FloatArray]:
        """Covariance of these values with f at Z, shape (n, r), their mean and variance."""
        moments = self._compiled(of).moments
        found = moments(*self._coordinates.arguments(point), X, Z)
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
        pull = self._compiled(of).pull
        found: list[FloatArray] = pull(*self._coordinates.arguments(point), X, Z, *wrt)
        return found

    def pull_back_between(self, point: Point, Z: FloatArray, wrt: FloatArray) -> list[FloatArray]:
        """Gradient from that in the covariance of f at Z."""
        found: list[FloatArray] = self._pull_between(*self._coordinates.arguments(point), Z, wrt)
        return found

    def _compiled(self, of: ValuesOf) -> "_Moments":
        if of not in self._of:
            X, Z = self._symbol("X"), self._symbol("Z")
            cov_func, mean_func = self._gp.cov_func, self._gp.mean_func
            if of is None:
                graphs = [cov_func(X, Z), mean_func(X), cov_func(X, diag=True)]
            elif of == "pseudo-points":
                places = pt.as_tensor_variable(self._gp.pseudo_points)
                nothing = pt.zeros(places.shape[0])
                graphs = [cov_func(places, Z), nothing, cov_func(places, diag=True)]
            else:  # of what values at Z say of f: all of its variance
                cross = derivative_covariance(cov_func, X, Z, of, None)
                graphs = [cross, derivative_mean(mean_func, X, of), pt.zeros(X.shape[0])]
            moments = self._graphs(graphs)
            inputs = [*self._coordinates.inputs, X, Z]
            weights = [x.type() for x in moments]
            weighted = sum((w * x).sum() for w, x in zip(weights, moments, strict=True))
            slopes = gradient_in(weighted, self._coordinates)
            pull = plain_function([*inputs, *weights], slopes)
            self._of[of] = _Moments(plain_function(inputs, moments), pull)
        return self._of[of]

    def _graphs(self, graphs: list[Any]) -> list[Any]:
        return [pt.cast(x, "float64") for x in self._model.replace_rvs_by_values(graphs)]

    def _symbol(self, name: str) -> Any:
        return pt.matrix(name, shape=(None, self._n_columns), dtype="float64")


class _Moments(NamedTuple):
    """Moments of f, or of a derivative, and the gradient through them, compiled."""

    moments: Any
    pull: Any


class InducingPriorAt:
    """`PriorAt` of an `InducingPrior`; `factor` is L."""

    def __init__(
        self, family: InducingPrior, point: Point, points: FloatArray, factor: FloatArray
    ) -> None:
        self._family, self._point, self._points, self._factor = family, point, points, factor
        self._in_factor = np.zeros_like(factor)

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
    ) -> list[FloatArray]:
        """See `PriorAt`; where nothing is left of a variance, round-off has cut it at 0."""
        in_phi, in_rest = wrt.phi, np.where(known.rest > 0.0, wrt.rest, 0.0)
        in_phi -= (2.0 * in_rest)[:, None] * known.phi
        self._in_factor -= in_phi.T @ known.phi
        cross = dtrsm(1.0, self._factor, in_phi.T, lower=1, trans_a=1, overwrite_b=1).T
        moments = PriorRows(cross, wrt.mean, in_rest)
        return self._family.pull_back(self._point, X, self._points, moments, of)

    def pull_back_common(self) -> list[FloatArray]:
        """See `PriorAt`."""
        factor, r = self._factor, self._factor.shape[0]
        in_factor = np.tril(solve_triangular(factor, self._in_factor, lower=True, trans=1))
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
