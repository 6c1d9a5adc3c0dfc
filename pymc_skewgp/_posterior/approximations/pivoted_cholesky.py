"""Features by pivoted Cholesky: inducing points chosen among the rows, one after the other."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pymc_skewgp._posterior.approximations.inducing import InducingFeatures, features_of_points
from pymc_skewgp._posterior.approximations.residual import function_variances
from pymc_skewgp._validation import FloatArray, as_count

if TYPE_CHECKING:
    from pymc_skewgp._posterior.prior import Prior

# Share of the largest variance at which what is left is round-off.
_NOTHING_LEFT = 1e-10


@dataclass(frozen=True)
class PivotedCholesky:
    r"""A prior of finite rank by the pivoted Cholesky factor of the kernel.

    Each of r steps takes the row of which least is known, :math:`\max_i d(x_i)`, and its column of
    the kernel, so that no n x n matrix is ever made. The rows taken are inducing points, and what
    is left of each variance is noise of its row, as in `Inducing`.

    It leaves the smallest *largest* residual, which is good for smooth kernels in one to three
    columns. In many columns it goes to the corners of the data, and k-means (`Inducing`) leaves
    less on average.

    Parameters
    ----------
    r : int, default 300
        Rows taken, at most: less where nothing is left.

    Raises
    ------
    ValueError
        For r below 1.

    References
    ----------
    .. [1] H. Harbrecht, M. Peters & R. Schneider (2012), On the low-rank approximation by the
       pivoted Cholesky decomposition, Applied Numerical Mathematics 62.

    Examples
    --------
    >>> from pymc_skewgp.approximations import PivotedCholesky
    >>> PivotedCholesky(100)
    PivotedCholesky(r=100)
    """

    r: int = 300

    def __post_init__(self) -> None:
        as_count("r", self.r)

    def doubled(self) -> "PivotedCholesky":
        """Of twice the rank."""
        return PivotedCholesky(2 * self.r)

    def features(self, prior: "Prior", X: FloatArray) -> InducingFeatures:
        """Features of the process at inputs like X."""
        return features_of_points(prior, self.places(prior, X))

    def places(self, prior: "Prior", X: FloatArray) -> FloatArray:
        """Inducing points for inputs like X."""
        return X[_pivots(prior, X, self.r)]


def _pivots(prior: "Prior", X: FloatArray, r: int) -> list[int]:
    """Rows of which least is known, one after the other."""
    # k(x, x) by itself: noise of rows is no part of the function.
    left = function_variances(prior, X)
    least = _NOTHING_LEFT * float(left.max())
    factor = np.empty((min(r, X.shape[0]), X.shape[0]))
    pivots: list[int] = []
    for step in range(factor.shape[0]):
        row = int(np.argmax(left))
        if left[row] <= least:
            break
        column = prior.covariance("X", X, X[row : row + 1])[:, 0]
        column -= factor[:step, row] @ factor[:step]
        factor[step] = column / np.sqrt(left[row])
        left -= factor[step] ** 2
        left[row] = 0.0
        pivots.append(row)
    return pivots
