r"""Several functions of one kernel at a point: how they are made of independent ones.

With B = R R' their covariance, :math:`f_k = m + \sum_l R_{kl} \phi^\top c_l + e_k`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from scipy.linalg.lapack import dpotrf

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._learn.coordinates import Coordinates
from pymc_skewgp._learn.point import Point
from pymc_skewgp._learn.rows.compiled_numbers import CompiledNumbers
from pymc_skewgp._learn.rows.inducing_prior import cholesky_adjoint
from pymc_skewgp._learn.rows.prior_at import PriorRows
from pymc_skewgp._posterior.prior_factor import factor_between
from pymc_skewgp._validation import FloatArray


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
