"""What was observed of a Gaussian vector: rows that are points or intervals."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pymc_skewgp._observations.noise import Noise, noise_part, stacked_noise
from pymc_skewgp._validation import FloatArray

# A design: a matrix, dense or sparse, a vector for a diagonal one, None for the identity.
Design = Any


@dataclass(frozen=True)
class Observations:
    r"""Rows :math:`v = A f + a + e`, :math:`e \sim N(0, S)`, of a vector f of p values.

    A row is a *point*, where v itself is known, or an *interval* that v lies in. A label 1 under a
    probit likelihood is the interval :math:`(0, \infty)`, a label 0 is :math:`(-\infty, 0)`, both
    with noise of variance 1.

    Attributes
    ----------
    A : ndarray or sparse array, shape (m, p); ndarray, shape (m,); or None
        Design. A vector is the diagonal of a square one. None is the identity. These two have
        m <= p rows, for the first m values of f.
    a : ndarray, shape (m,)
        Offset.
    S : ndarray, shape (m,) or (m, m), or sparse array, shape (m, m)
        Variances of the noise, or its covariance: sparse where it is one of many small blocks.
    lower, upper : ndarray, shape (m,)
        Limits of the intervals, infinities allowed; what they are at points has no meaning.
    value : ndarray, shape (m,)
        v at points; NaN at intervals.
    log_constant : float, default 0
        What the log probability of the data has beyond that of the rows, such as log of the orders
        in which trials may have come.
    """

    A: Design
    a: FloatArray
    S: Noise
    lower: FloatArray
    upper: FloatArray
    value: FloatArray
    log_constant: float = field(default=0.0, kw_only=True)

    @property
    def n_rows(self) -> int:
        """Number m of rows."""
        return self.value.size

    @cached_property
    def is_point(self) -> NDArray[np.bool_]:
        """Which rows are points, shape (m,)."""
        return ~np.isnan(self.value)

    @property
    def variances(self) -> FloatArray:
        """Of the noise, shape (m,)."""
        found: FloatArray = self.S if self.S.ndim == 1 else self.S.diagonal()
        return found

    def of(self, matrix: FloatArray) -> FloatArray:
        """A times an array with a row for each value of f."""
        return design_of(self.A, self.n_rows, matrix)

    def rows(self, chosen: NDArray[np.bool_]) -> "Observations":
        """Only the rows that are `chosen`, for the same f, and no constant."""
        return Observations(
            as_matrix(self.A, self.n_rows)[chosen],
            self.a[chosen],
            noise_part(self.S, chosen),
            self.lower[chosen],
            self.upper[chosen],
            self.value[chosen],
        )


def design_of(A: Design, n_rows: int, matrix: FloatArray) -> FloatArray:
    """A of so many rows times an array with a row for each value of f."""
    if A is None:
        return matrix[:n_rows]
    if isinstance(A, np.ndarray) and A.ndim == 1:
        leading = matrix[:n_rows]
        return A * leading if leading.ndim == 1 else A[:, None] * leading
    return np.asarray(A @ matrix[: A.shape[1]])


def points(value: FloatArray, noise: FloatArray, A: Design = None) -> Observations:
    """Rows that are points, with noise of these variances and no offset."""
    nowhere = np.full(value.size, np.nan)
    return Observations(A, np.zeros(value.size), noise, nowhere, nowhere, value)


def intervals(lower: FloatArray, upper: FloatArray, noise: Noise, A: Design = None) -> Observations:
    """Rows that are intervals, with noise of these variances or covariance, and no offset."""
    unknown = np.full(lower.size, np.nan)
    return Observations(A, np.zeros(lower.size), noise, lower, upper, unknown)


def stacked(parts: Sequence[Observations], sizes: Sequence[int] | None = None) -> Observations:
    """Rows of several parts, each of values of f of its own, one part after the other.

    The parts' f are stacked likewise, and `sizes` are their lengths. Without it only the last may
    leave out values at its end.
    """
    if len(parts) == 1:
        return parts[0]
    return Observations(
        _stacked_design(parts, sizes),
        np.concatenate([part.a for part in parts]),
        stacked_noise([part.S for part in parts]),
        np.concatenate([part.lower for part in parts]),
        np.concatenate([part.upper for part in parts]),
        np.concatenate([part.value for part in parts]),
        log_constant=sum(part.log_constant for part in parts),
    )


def as_matrix(A: Design, n_rows: int) -> Any:
    """A design as a sparse array, or as the dense one that it is."""
    if A is None:
        return sparse.eye_array(n_rows, format="csr")
    if isinstance(A, np.ndarray):
        return A if A.ndim == 2 else sparse.diags_array(A, format="csr")
    return A.tocsr()


def _stacked_design(parts: Sequence[Observations], sizes: Sequence[int] | None) -> Design:
    complete = sizes is None or all(
        part.n_rows == size for part, size in zip(parts[:-1], sizes, strict=False)
    )
    if complete and all(part.A is None for part in parts):
        return None
    if complete and all(part.A is None or part.A.ndim == 1 for part in parts):
        return np.concatenate([np.ones(p.n_rows) if p.A is None else p.A for p in parts])
    designs = [as_matrix(p.A, p.n_rows) for p in parts]
    if sizes is not None:
        designs = [_widened(A, size) for A, size in zip(designs, sizes, strict=True)]
    return sparse.block_diag(designs, format="csr")


def _widened(A: Any, n_columns: int) -> Any:
    """`A` with columns of zeros at its end."""
    missing = n_columns - A.shape[1]
    if not missing:
        return A
    return sparse.hstack([A, sparse.csr_array((A.shape[0], missing))], format="csr")
