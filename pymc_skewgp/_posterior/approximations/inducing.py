r"""Features by inducing points Z: :math:`\phi(x) = L^{-1} k(Z, x)`, with L L' = k(Z, Z)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg.blas import dtrsm

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._observations.arguments import as_inputs
from pymc_skewgp._observations.values import Derivative
from pymc_skewgp._posterior.approximations.placing import cluster_centres
from pymc_skewgp._validation import FloatArray, as_count

if TYPE_CHECKING:
    from pymc_skewgp._posterior.prior import Prior

# Share of the mean variance that is added to k(Z, Z): smooth kernels are singular to round-off.
# The residual d takes back what the features lose by it.
NUGGET = 1e-8
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class InducingFeatures:
    """Features of a process by its values at inducing points.

    Attributes
    ----------
    prior : Prior
    points : ndarray, shape (r, d)
    factor : ndarray, shape (r, r)
        L, lower triangular.
    """

    prior: "Prior"
    points: FloatArray
    factor: FloatArray

    @property
    def rank(self) -> int:
        """Number r of features."""
        return self.points.shape[0]

    def at(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Phi, shape (n, r), and d, shape (n,), with the kernel's own noise of each row in d."""
        phi, rest = np.empty((X.shape[0], self.rank)), np.empty(X.shape[0])
        for start in range(0, X.shape[0], _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            cross = np.ascontiguousarray(self.prior.covariance("X", X[rows], self.points))
            phi[rows] = whitened(cross, self.factor)
            rest[rows] = self.prior.covariance("X", X[rows], diag=True)
            rest[rows] -= np.einsum("ij,ij->i", phi[rows], phi[rows])
        return phi, np.maximum(rest, 0.0, out=rest)

    def derivative_at(self, X: FloatArray, derivative: Derivative) -> FloatArray:
        """A derivative of phi, shape (n, r): of what the values at the points say of f."""
        cross = self.prior.derivative_covariance("X", X, self.points, derivative, None)
        return whitened(np.ascontiguousarray(cross), self.factor)


def features_of_points(prior: "Prior", points: FloatArray) -> InducingFeatures:
    """Features by the values of f at these points."""
    # Two arguments: noise of rows does not belong to the function at the points.
    matrix = with_nugget(prior.covariance("inducing points", points, points))
    factor, _ = linalg.cholesky("the covariance of the inducing points", matrix)
    return InducingFeatures(prior, points, factor)


def with_nugget(matrix: FloatArray) -> FloatArray:
    """Covariance of the inducing points, exactly symmetric, that has a Cholesky factor."""
    found = linalg.symmetric(matrix)
    found[np.diag_indices_from(found)] += NUGGET * found.diagonal().mean()
    return found


def whitened(cross: FloatArray, factor: FloatArray) -> FloatArray:
    """Phi = k(X, Z) L^-T, shape (n, r); `cross`, in C order, is overwritten."""
    # Its transpose is in Fortran's order, and is solved where it stands.
    found: FloatArray = dtrsm(1.0, factor, cross.T, lower=1, overwrite_b=1).T
    return found


@dataclass(frozen=True, eq=False)
class Inducing:
    r"""A prior of finite rank by inducing points.

    .. math:: f(x) = m(x) + k(x, Z)\, k(Z, Z)^{-1} \{f(Z) - m(Z)\} + e(x), \qquad
        e(x) \sim N\{0,\; k(x, x) - k(x, Z)\, k(Z, Z)^{-1} k(Z, x)\}

    with e independent from row to row: the fully independent training conditional (FITC), which
    keeps every prior variance. Noise of the kernel, such as ``pm.gp.cov.WhiteNoise``, is in e.

    Parameters
    ----------
    points : int or array_like, shape (r, d), default 300
        Inducing points Z; or how many, which are placed by k-means on a random part of the rows,
        in units of the kernel: a column of which it hardly depends on takes no points.

    Raises
    ------
    ValueError
        For less than one point, NaN or infinite points; points with another number of columns than
        the data have, when these come.

    References
    ----------
    .. [1] E. Snelson & Z. Ghahramani (2006), Sparse Gaussian processes using pseudo-inputs,
       Advances in Neural Information Processing Systems 18.

    Examples
    --------
    >>> from pymc_skewgp.approximations import Inducing
    >>> Inducing(30), Inducing([[0.0], [0.5], [1.0]])
    (Inducing(30), Inducing(3))
    """

    points: int | ArrayLike = 300

    def __post_init__(self) -> None:
        if np.ndim(self.points) == 0:
            object.__setattr__(self, "points", as_count("points", self.points))
        else:
            object.__setattr__(self, "points", as_inputs("points", self.points))

    def doubled(self) -> "Inducing":
        """With twice as many points, placed by k-means."""
        r = self.points if isinstance(self.points, int) else np.shape(self.points)[0]
        return Inducing(2 * r)

    def features(self, prior: "Prior", X: FloatArray) -> InducingFeatures:
        """Features of the process at inputs like X."""
        return features_of_points(prior, self.places(prior, X))

    def places(self, prior: "Prior", X: FloatArray) -> FloatArray:
        """Inducing points for inputs like X."""
        if isinstance(self.points, int):
            return cluster_centres(prior, X, self.points)
        points = np.asarray(self.points)
        if points.shape[1] != X.shape[1]:
            raise ValueError(
                f"the inducing points have {points.shape[1]} column(s) and the data "
                f"{X.shape[1]}: give points with as many columns as the data."
            )
        return points

    def __repr__(self) -> str:
        shown = self.points if isinstance(self.points, int) else np.shape(self.points)[0]
        return f"Inducing({shown})"
