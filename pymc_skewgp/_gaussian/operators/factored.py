"""The covariance of a latent function, K = F F', with as many columns in F as it has rank."""

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
    matrix : ndarray, shape (q, q), optional
        F F', where the caller has it.
    """

    def __init__(self, factor: FloatArray, matrix: FloatArray | None = None) -> None:
        self.factor, self._matrix = factor, matrix

    @classmethod
    def of_kernel(cls, matrix: FloatArray) -> "FactoredCovariance":
        """From a kernel's matrix, factorised at its numerical rank.

        Raises
        ------
        NotPositiveDefiniteError
            When the matrix is not positive semidefinite.
        """
        matrix = linalg.symmetric(matrix)
        factor = linalg.low_rank_factor(matrix)
        _refuse_indefinite(matrix, factor)
        return cls(factor, matrix)

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
