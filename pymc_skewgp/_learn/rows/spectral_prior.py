"""A process by PyMC's basis of a Hilbert space approximation, as a function of a point."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_skewgp._learn.compiled import pull_back_function
from pymc_skewgp._learn.coordinates import Coordinates
from pymc_skewgp._learn.point import Point
from pymc_skewgp._learn.rows.prior_at import PriorRows, RowsGradient, ValuesOf
from pymc_skewgp._model.gp.spectral_features import active_columns, spectral_basis, spectral_density
from pymc_skewgp._model.ops.known_functions import plain_function
from pymc_skewgp._posterior.approximations.hsgp import SpectralFeatures
from pymc_skewgp._validation import FloatArray


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
