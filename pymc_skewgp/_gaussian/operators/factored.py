"""The covariance of a latent function, K = F F', with as many columns in F as it has rank."""

from collections.abc import Callable
from functools import cached_property

import numpy as np

from pymc_skewgp._errors import NotPositiveDefiniteError
from pymc_skewgp._gaussian import linalg
from pymc_skewgp._validation import FloatArray

# Of the largest variance: what the factor may leave out before the matrix counts as indefinite.
_LEFT_OUT = 1e-7


class FactoredCovariance:
    """A positive semidefinite covariance by its factor; the matrix only where it is known already.

    Parameters
    ----------
    factor : ndarray, shape (q, r)
        F, with F F' the covariance.
    matrix : ndarray, shape (q, q), or function that makes it, optional
        F F', where the caller has it, or knows a better way to it.
    units : ndarray, shape (q,), optional
        What each value is to be measured in where round-off counts. Default the same for all.
    """

    def __init__(
        self,
        factor: FloatArray,
        matrix: FloatArray | Callable[[], FloatArray] | None = None,
        units: FloatArray | None = None,
    ) -> None:
        self.factor, self._given, self.units = factor, matrix, units

    @cached_property
    def _matrix(self) -> FloatArray | None:
        return self._given() if callable(self._given) else self._given

    @classmethod
    def of_kernel(cls, matrix: FloatArray, units: FloatArray | None = None) -> "FactoredCovariance":
        """From a kernel's matrix, factorised at its numerical rank.

        Raises
        ------
        NotPositiveDefiniteError
            When the matrix is not positive semidefinite.
        """
        matrix = linalg.symmetric(matrix)
        measured = matrix if units is None else matrix / units / units[:, None]
        factor = linalg.low_rank_factor(measured)
        _refuse_indefinite(measured, factor)
        return cls(factor if units is None else units[:, None] * factor, matrix, units)

    def conditioned(self, matrix: FloatArray) -> "FactoredCovariance":
        """The covariance `matrix` that is left of this one, to round-off of this one's size."""
        before, measured = self.diagonal(), matrix
        if self.units is not None:
            before, measured = before / self.units**2, matrix / self.units / self.units[:, None]
        largest = max(float(measured.diagonal().max()), 1e-300)
        factor = linalg.low_rank_factor(measured, min(1e-13 * float(before.max()) / largest, 1.0))
        whole = factor if self.units is None else self.units[:, None] * factor
        return FactoredCovariance(whole, matrix, self.units)

    @property
    def rank(self) -> int:
        """Number r of columns of the factor."""
        return self.factor.shape[1]

    def dense(self) -> FloatArray:
        """K as an array."""
        return self.factor @ self.factor.T if self._matrix is None else self._matrix

    def diagonal(self) -> FloatArray:
        """Variances."""
        return np.einsum("ij,ij->i", self.factor, self.factor)

    def leading(self, n: int, scale: FloatArray | None = None) -> FloatArray:
        """Covariance of the first n values, each times its `scale`, as a new array."""
        if self._matrix is None:
            head = self.factor[:n] if scale is None else scale[:, None] * self.factor[:n]
            return head @ head.T
        if scale is None:
            return self._matrix[:n, :n].copy()
        block = self._matrix[:n, :n] * scale
        block *= scale[:, None]
        return block


def _refuse_indefinite(matrix: FloatArray, factor: FloatArray) -> None:
    # One matrix product with a fixed vector of signs sees what the factor left out, at O(n^2).
    probe = np.where(np.random.default_rng(0).random(matrix.shape[0]) < 0.5, -1.0, 1.0)
    gap = np.abs(matrix @ probe - factor @ (factor.T @ probe)).max()
    scale = matrix.diagonal().max()
    if gap > _LEFT_OUT * scale * np.sqrt(probe.size):
        raise NotPositiveDefiniteError(
            "cov_func is not positive semidefinite at X and the pseudo-points: what is left of its "
            f"matrix beyond the positive part is of size {gap:.3g} (largest variance {scale:.3g})."
        )
