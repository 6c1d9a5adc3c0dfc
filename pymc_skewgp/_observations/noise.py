"""The noise of rows: variances of independent ones, a covariance, or a sparse one of blocks."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import block_diag
from scipy.sparse.csgraph import connected_components

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.operators.row_noise import BlockNoise
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray

# Variances, shape (m,); or a covariance, shape (m, m), dense or sparse.
Noise = Any
BoolArray = NDArray[np.bool_]


def noise_part(S: Noise, chosen: BoolArray) -> Noise:
    """Of the rows that are `chosen`: variances, where they are independent of each other."""
    if S.ndim == 1:
        return S[chosen]
    if isinstance(S, np.ndarray):
        return S[np.ix_(chosen, chosen)]
    index = np.flatnonzero(chosen)
    part = S[index][:, index]
    diagonal = part.diagonal()
    return diagonal if part.nnz <= np.count_nonzero(diagonal) else part


def shared_noise(S: Noise, a: BoolArray, b: BoolArray) -> FloatArray | None:
    """Covariance of the noise of the rows `a` with that of `b`; None where there is none."""
    if S.ndim == 1:
        return None
    if not isinstance(S, np.ndarray):
        part = S[np.flatnonzero(a)][:, np.flatnonzero(b)].toarray()
    else:
        part = S[np.ix_(a, b)]
    return part if part.any() else None


def add_noise(matrix: FloatArray, S: Noise) -> None:
    """Add the covariance of the noise to `matrix`, in place."""
    if S.ndim == 1:
        matrix[np.diag_indices_from(matrix)] += S
    elif not isinstance(S, np.ndarray):
        entries = S.tocoo()  # a sparse array has each entry once
        matrix[entries.coords] += entries.data
    else:
        matrix += S


def noise_factor(S: Noise) -> Any:
    """B with B B' the covariance of the noise; block by block where it is sparse."""
    if S.ndim == 1:
        return sparse.diags_array(np.sqrt(S), format="csr")
    if isinstance(S, np.ndarray):
        return linalg.low_rank_factor(S)
    members, whole = _blocks(S), S.tocsr()
    factors = [linalg.low_rank_factor(whole[rows][:, rows].toarray()) for rows in members]
    blocks = [sparse.csr_array(factor) for factor in factors]
    order = np.concatenate(members)
    return sparse.block_diag(blocks, format="csr")[np.argsort(order)]


def rows_of_blocks(S: Noise) -> list[IntArray]:
    """Rows that share noise with each other, shape (blocks, size), an array for each size."""
    members = _blocks(S)
    sizes = np.array([rows.size for rows in members])
    return [np.array([rows for rows in members if rows.size == size]) for size in np.unique(sizes)]


def block_noise(S: Noise, largest: int) -> BlockNoise | None:
    """The covariance S as blocks of at most `largest` rows; None where its blocks are larger.

    Or where one is so near to singular that its inverse would lose digits.
    """
    entries = np.count_nonzero(S) if isinstance(S, np.ndarray) else S.nnz
    if entries > largest * S.shape[0]:
        return None
    rows = rows_of_blocks(S)
    if rows[-1].shape[1] > largest:
        return None
    whole = sparse.csr_array(S)
    blocks = [_entries(whole, part) for part in rows]
    noise = BlockNoise(rows, blocks)
    return noise if noise.well_conditioned else None


def _blocks(S: Noise) -> list[IntArray]:
    """Rows of each block."""
    n_blocks, block = connected_components(sparse.csr_array(S), directed=False)
    order = np.argsort(block, kind="stable")
    return np.split(order, np.cumsum(np.bincount(block, minlength=n_blocks))[:-1])


def _entries(matrix: Any, rows: IntArray) -> FloatArray:
    """Entries of blocks of these rows, shape (b, k, k)."""
    b, k = rows.shape
    first, second = np.repeat(rows, k, axis=1).ravel(), np.tile(rows, k).ravel()
    return np.asarray(matrix[first, second]).reshape(b, k, k)


def stacked_noise(parts: Sequence[Noise]) -> Noise:
    """Of the rows of several parts, one part after the other, each with noise of its own."""
    if all(S.ndim == 1 for S in parts):
        return np.concatenate(parts)
    if not all(isinstance(S, np.ndarray) for S in parts):
        blocks = [sparse.diags_array(S) if S.ndim == 1 else sparse.csr_array(S) for S in parts]
        return sparse.block_diag(blocks, format="csr")
    whole: FloatArray = block_diag(*[np.diag(S) if S.ndim == 1 else S for S in parts])
    return whole
