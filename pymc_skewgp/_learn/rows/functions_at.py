r"""Several functions of one kernel at a point: how they are made of independent ones.

With B = R R' their covariance, :math:`f_k = m + \sum_l R_{kl} \phi^\top c_l + e_k`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from scipy.linalg.lapack import dpotrf

from pymc_skewgp._learn.coordinates import Coordinates
from pymc_skewgp._learn.point import Point
from pymc_skewgp._learn.rows.compiled_numbers import CompiledNumbers
from pymc_skewgp._learn.rows.inducing_prior import cholesky_adjoint
from pymc_skewgp._learn.rows.prior_at import PriorRows
from pymc_skewgp._posterior.prior_factor import factor_between
from pymc_skewgp._validation import FloatArray


class FunctionsAt:
    """Functions at a point, and the derivatives in their covariance, which blocks add up.

    Parameters
    ----------
    between : ndarray, shape (K, K)
        B.
    half : ndarray, shape (K, L)
        R.
    """

    def __init__(self, between: FloatArray, half: FloatArray) -> None:
        self.between, self.half = between, half
        self._in_between, self._in_half = np.zeros_like(between), np.zeros_like(half)

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

    def wrt_first(self, prior: PriorRows, wrt: PriorRows) -> PriorRows:
        """Derivatives in the one with the kernel as it is from those in the first function."""
        if self.is_plain:
            return wrt
        n, r = prior.phi.shape
        in_phi = wrt.phi.reshape(n, -1, r)
        self._in_half[0] += np.einsum("ilr,ir->l", in_phi, prior.phi)
        self._in_between[0, 0] += wrt.rest @ prior.rest
        phi = np.einsum("ilr,l->ir", in_phi, self.half[0])
        return PriorRows(phi, wrt.mean, self.between[0, 0] * wrt.rest)

    def add(self, function: Any, in_half: FloatArray) -> None:
        """Derivatives in rows of R, shape (..., L), of these functions."""
        np.add.at(self._in_half, function, in_half)

    def add_between(self, pairs: tuple[Any, Any], in_between: FloatArray) -> None:
        """Derivatives in entries of B."""
        np.add.at(self._in_between, pairs, in_between)

    def in_between(self) -> FloatArray:
        """Derivatives in B, of which R is the Cholesky factor."""
        whole = self._in_between
        return cholesky_adjoint(self.half, self._in_half) + 0.5 * (whole + whole.T)


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

    def pull_back(self, point: Point, functions: FunctionsAt) -> Sequence[FloatArray] | None:
        """Part of the gradient from what blocks have added up; None for 0."""
        if self._compiled is None:
            return None
        return self._compiled.pull_back(point, (), [functions.in_between()])
