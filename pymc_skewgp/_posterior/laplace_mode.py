"""The mode of a Gaussian vector's coordinates given its rows, and the curvature."""

from typing import NamedTuple, Protocol

import numpy as np
from scipy.linalg import cho_solve

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._observations.shared_rows import RowSlopes
from pymc_skewgp._validation import FloatArray

_TOLERANCE = 1e-10  # of the log posterior density
_MOST_STEPS = 100
_LEAST_STEP = 1e-6


class RowsWithSlopes(Protocol):
    """Rows whose log likelihood has derivatives."""

    def slopes(self, eta: FloatArray) -> RowSlopes:
        """At the predictors."""
        ...


class Mode(NamedTuple):
    """Laplace's Gaussian for coordinates c ~ N(0, I) of eta = X c.

    Attributes
    ----------
    c : ndarray, shape (r,)
    chol : ndarray, shape (r, r)
        Cholesky factor of the precision there.
    log_prob : float
        Laplace's approximation of the log probability of the rows.
    """

    c: FloatArray
    chol: FloatArray
    log_prob: float


def mode_of(rows: RowsWithSlopes, X: FloatArray) -> Mode:
    r"""Newton's method, with steps halved where they overshoot.

    With g and -W the first two derivatives of the rows' log likelihood, the step is
    :math:`(I + X^\top W X)^{-1} (X^\top g - c)`. The log posterior density is concave.
    """

    def log_density(c: FloatArray) -> tuple[float, RowSlopes]:
        found = rows.slopes(X @ c)
        return found.value - 0.5 * float(c @ c), found

    c = np.zeros(X.shape[1])
    value, found = log_density(c)
    for _ in range(_MOST_STEPS):
        step = cho_solve((_precision(found, X), True), X.T @ found.gradient - c)
        size = 1.0
        while size > _LEAST_STEP:
            trial, there = log_density(c + size * step)
            if trial >= value:
                break
            size *= 0.5
        else:
            break  # at the mode to round-off
        gained, c, value, found = trial - value, c + size * step, trial, there
        if gained < _TOLERANCE * (1.0 + abs(value)):
            break
    chol = _precision(found, X)
    return Mode(c, chol, value - float(np.log(chol.diagonal()).sum()))


def _precision(found: RowSlopes, X: FloatArray) -> FloatArray:
    """Cholesky factor of I + X' W X."""
    matrix = np.asarray(X.T @ (found.curvature @ X))
    matrix[np.diag_indices_from(matrix)] += 1.0
    return linalg.cholesky("the precision at the mode", linalg.symmetric(matrix))[0]
