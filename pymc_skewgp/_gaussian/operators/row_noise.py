"""Noise of rows, independent or shared in small blocks, and what Gaussian sites leave of it.

Sites of precisions T shrink a noise covariance S to (S^-1 + T)^-1 = Q S with Q = (I + S T)^-1,
row by row or block by block. Written so, S may be singular.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy import sparse

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray

# Of a row's variance: blocks with a smaller squared pivot lose digits when they are inverted.
_LEAST_PIVOT = 1e-6


class ShrunkNoise(Protocol):
    """Noise under Gaussian sites."""

    @property
    def log_det(self) -> float:
        """Of Q."""
        ...

    def of(self, x: FloatArray) -> FloatArray:
        """Q x."""
        ...

    def back(self, x: FloatArray) -> FloatArray:
        """Q' x, with one column."""
        ...

    def covariance_of(self, x: FloatArray) -> FloatArray:
        """Q S x, with one column."""
        ...

    def variances(self) -> FloatArray:
        """Diagonal of Q S."""
        ...

    def add_covariance(self, matrix: FloatArray) -> None:
        """Add Q S to `matrix`, in place."""
        ...

    def add_precision(self, matrix: FloatArray, tau: FloatArray) -> None:
        """Add T Q = (S + T^-1)^-1 to `matrix`, in place."""
        ...


class RowNoise(Protocol):
    """A noise covariance S of n rows."""

    variances: FloatArray

    def conditional_variances(self) -> FloatArray:
        """Variance of the noise of each row given that of all others."""
        ...

    def multiply(self, x: FloatArray) -> FloatArray:
        """S x."""
        ...

    def solve(self, x: FloatArray) -> FloatArray:
        """S^-1 x; 0 in rows without noise."""
        ...

    def add_to(self, matrix: FloatArray) -> None:
        """Add S to `matrix`, in place."""
        ...

    def shrunk(self, tau: FloatArray) -> ShrunkNoise:
        """Under sites of precisions `tau`."""
        ...


class IndependentNoise:
    """Each row has noise of its own.

    Parameters
    ----------
    variances : ndarray, shape (n,)
        >= 0.
    """

    def __init__(self, variances: FloatArray) -> None:
        self.variances = variances

    def conditional_variances(self) -> FloatArray:
        """See `RowNoise`."""
        return self.variances

    def multiply(self, x: FloatArray) -> FloatArray:
        """S x."""
        return _scaled(self.variances, x)

    def solve(self, x: FloatArray) -> FloatArray:
        """S^-1 x; 0 in rows without noise."""
        noisy = self.variances > 0
        return _scaled(np.where(noisy, 1.0 / np.where(noisy, self.variances, 1.0), 0.0), x)

    def add_to(self, matrix: FloatArray) -> None:
        """Add S to `matrix`, in place."""
        matrix[np.diag_indices_from(matrix)] += self.variances

    def shrunk(self, tau: FloatArray) -> "ShrunkIndependentNoise":
        """Under sites of precisions `tau`."""
        return ShrunkIndependentNoise(self.variances, 1.0 / (1.0 + tau * self.variances))


class ShrunkIndependentNoise(NamedTuple):
    """See `ShrunkNoise`: Q is the diagonal matrix of `share`."""

    noise: FloatArray
    share: FloatArray

    @property
    def log_det(self) -> float:
        """Of Q."""
        return float(np.log(self.share).sum())

    def of(self, x: FloatArray) -> FloatArray:
        """Q x."""
        return _scaled(self.share, x)

    def back(self, x: FloatArray) -> FloatArray:
        """Q' x."""
        return self.share * x

    def covariance_of(self, x: FloatArray) -> FloatArray:
        """Q S x."""
        return self.variances() * x

    def variances(self) -> FloatArray:
        """Diagonal of Q S."""
        return self.noise * self.share

    def add_covariance(self, matrix: FloatArray) -> None:
        """Add Q S to `matrix`, in place."""
        matrix[np.diag_indices_from(matrix)] += self.variances()

    def add_precision(self, matrix: FloatArray, tau: FloatArray) -> None:
        """Add T Q to `matrix`, in place."""
        matrix[np.diag_indices_from(matrix)] += tau * self.share


class BlockNoise:
    """Rows share noise within small blocks.

    To invert the blocks takes n k^2 operations for blocks of k rows, a product with a matrix of r
    columns n k r.

    Parameters
    ----------
    rows : sequence of ndarray of int, shape (b, k)
        The rows of b blocks of k each, an array for each k; every row is in one block.
    covariances : sequence of ndarray, shape (b, k, k)
        S of these blocks: positive definite, or 0 for a block of one row without noise.
    """

    def __init__(self, rows: Sequence[IntArray], covariances: Sequence[FloatArray]) -> None:
        self._layout, self._blocks = BlockLayout.of(rows), tuple(covariances)
        self._matrix = self._layout.matrix(self._blocks)
        self.variances: FloatArray = self._matrix.diagonal()

    @property
    def well_conditioned(self) -> bool:
        """Whether the inverses of the blocks keep enough digits."""
        try:
            roots = [_where_noisy(np.linalg.cholesky, S) for S in self._blocks]
        except np.linalg.LinAlgError:
            return False
        return all(
            bool((_diagonals(L) ** 2 >= _LEAST_PIVOT * _diagonals(S)).all())
            for L, S in zip(roots, self._blocks, strict=True)
        )

    def conditional_variances(self) -> FloatArray:
        """See `RowNoise`."""
        diagonal = self._inverse().diagonal()
        noisy = diagonal > 0
        return np.where(noisy, 1.0 / np.where(noisy, diagonal, 1.0), 0.0)

    def multiply(self, x: FloatArray) -> FloatArray:
        """S x."""
        return np.asarray(self._matrix @ x)

    def solve(self, x: FloatArray) -> FloatArray:
        """S^-1 x; 0 in rows without noise."""
        return np.asarray(self._inverse() @ x)

    def add_to(self, matrix: FloatArray) -> None:
        """Add S to `matrix`, in place."""
        self._layout.add(self._blocks, matrix)

    def shrunk(self, tau: FloatArray) -> "ShrunkBlockNoise":
        """Under sites of precisions `tau`."""
        # Columns of I + S T differ in size as the sites do, which elimination does not feel.
        kept = [
            np.linalg.inv(np.eye(S.shape[1]) + S * tau[rows][:, None, :])
            for rows, S in zip(self._layout.rows, self._blocks, strict=True)
        ]
        return ShrunkBlockNoise(self._layout, self._blocks, kept, self._matrix)

    def _inverse(self) -> Any:
        return self._layout.matrix([_where_noisy(np.linalg.inv, S) for S in self._blocks])


class ShrunkBlockNoise:
    """See `ShrunkNoise`: blocks of S and of Q, and S as a sparse matrix."""

    def __init__(
        self,
        layout: "BlockLayout",
        noise: Sequence[FloatArray],
        kept: Sequence[FloatArray],
        matrix: Any,
    ) -> None:
        self._layout, self._noise, self._kept = layout, noise, kept
        self._noise_matrix, self._matrix = matrix, layout.matrix(kept)

    @property
    def log_det(self) -> float:
        """Of Q."""
        return sum(float(np.linalg.slogdet(Q)[1].sum()) for Q in self._kept)

    def of(self, x: FloatArray) -> FloatArray:
        """Q x."""
        return np.asarray(self._matrix @ x)

    def back(self, x: FloatArray) -> FloatArray:
        """Q' x."""
        return np.asarray(self._matrix.T @ x)

    def covariance_of(self, x: FloatArray) -> FloatArray:
        """Q S x."""
        # As S Q' x: with a strong site S x would be large, and cancel.
        return np.asarray(self._noise_matrix @ self.back(x))

    def variances(self) -> FloatArray:
        """Diagonal of Q S."""
        found = np.empty(self._layout.n_rows)
        for rows, Q, S in zip(self._layout.rows, self._kept, self._noise, strict=True):
            found[rows] = np.einsum("bij,bji->bi", Q, S)
        return found

    def add_covariance(self, matrix: FloatArray) -> None:
        """Add Q S to `matrix`, in place."""
        left = [Q @ S for Q, S in zip(self._kept, self._noise, strict=True)]
        self._layout.add([0.5 * (x + x.swapaxes(1, 2)) for x in left], matrix)

    def add_precision(self, matrix: FloatArray, tau: FloatArray) -> None:
        """Add T Q to `matrix`, in place."""
        own = [
            tau[rows][:, :, None] * Q for rows, Q in zip(self._layout.rows, self._kept, strict=True)
        ]
        self._layout.add([0.5 * (x + x.swapaxes(1, 2)) for x in own], matrix)


class BlockLayout(NamedTuple):
    """Where the entries of blocks stand in a sparse matrix.

    Attributes
    ----------
    rows : tuple of ndarray of int, shape (b, k)
    position : tuple of ndarray of int, shape (b, k, k)
        Of each entry among those of the sparse matrix.
    indices, indptr : ndarray of int
        Of its compressed rows.
    """

    rows: tuple[IntArray, ...]
    position: tuple[IntArray, ...]
    indices: IntArray
    indptr: IntArray

    @classmethod
    def of(cls, rows: Sequence[IntArray]) -> "BlockLayout":
        """Of blocks of these rows."""
        n_rows = sum(block.size for block in rows)
        length = np.empty(n_rows, dtype=np.intp)
        for block in rows:
            length[block] = block.shape[1]
        indptr = np.concatenate([[0], np.cumsum(length)])
        position = tuple(indptr[block][:, :, None] + np.arange(block.shape[1]) for block in rows)
        indices = np.empty(indptr[-1], dtype=np.intp)
        for block, at in zip(rows, position, strict=True):
            indices[at] = block[:, None, :]
        return cls(tuple(rows), position, indices, indptr)

    @property
    def n_rows(self) -> int:
        """Of the matrix."""
        return self.indptr.size - 1

    def matrix(self, blocks: Sequence[FloatArray]) -> Any:
        """A sparse matrix of these blocks."""
        data = np.empty(self.indices.size)
        for at, block in zip(self.position, blocks, strict=True):
            data[at] = block
        return sparse.csr_array((data, self.indices, self.indptr), shape=(self.n_rows,) * 2)

    def add(self, blocks: Sequence[FloatArray], matrix: FloatArray) -> None:
        """Add the blocks to a dense matrix, in place."""
        for rows, block in zip(self.rows, blocks, strict=True):
            matrix[rows[:, :, None], rows[:, None, :]] += block


def _diagonals(blocks: FloatArray) -> FloatArray:
    """Of each block, shape (b, k)."""
    return np.asarray(np.einsum("bii->bi", blocks))


def _where_noisy(function: Callable[[FloatArray], FloatArray], blocks: FloatArray) -> FloatArray:
    """`function` of the blocks that have noise, 0 for others."""
    noisy = _diagonals(blocks).any(axis=1)
    found = np.zeros_like(blocks)
    found[noisy] = function(blocks[noisy])
    return found


def _scaled(share: FloatArray, x: FloatArray) -> FloatArray:
    return share * x if x.ndim == 1 else share[:, None] * x
