"""Features by the Laplacian's eigenfunctions on a box: PyMC's HSGP."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._observations.values import Derivative
from pymc_skewgp._validation import FloatArray, as_count, as_positive

if TYPE_CHECKING:
    from pymc_skewgp._posterior.prior import Prior

_ROWS_AT_ONCE = 4096
_MOST_COLUMNS = 3


@dataclass(frozen=True, eq=False)
class SpectralFeatures:
    """Eigenfunctions of the Laplacian on a box, times the root of the kernel's spectral density.

    Attributes
    ----------
    cov_func : object
        A kernel with a method ``spectral_features``.
    m : tuple of int
        Eigenfunctions along each column.
    centre, half_width : ndarray, shape (d,)
        Of the box.
    """

    cov_func: Any
    m: tuple[int, ...]
    centre: FloatArray
    half_width: FloatArray

    @property
    def rank(self) -> int:
        """Number r of features."""
        return int(np.prod(self.m))

    def at(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Phi, shape (n, r), and d = 0.

        Raises
        ------
        ApproximationError
            Beyond the box, where the eigenfunctions repeat themselves mirrored.
        """
        centred = self._centred(X)
        phi = np.empty((X.shape[0], self.rank))
        for start in range(0, X.shape[0], _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            phi[rows] = self.cov_func.spectral_features(centred[rows], self.half_width, self.m)
        return phi, np.zeros(X.shape[0])

    def derivative_at(self, X: FloatArray, derivative: Derivative) -> FloatArray:
        """A derivative of phi, shape (n, r).

        Raises
        ------
        ApproximationError
            Beyond the box.
        """
        centred, (column, order) = self._centred(X), derivative
        active = list(self.cov_func.active_columns)
        if column not in active:
            return np.zeros((X.shape[0], self.rank))
        which = (active.index(column), order)
        found = self.cov_func.spectral_features(centred, self.half_width, self.m, which)
        return np.asarray(found)

    def _centred(self, X: FloatArray) -> FloatArray:
        centred: FloatArray = (X - self.centre)[:, self.cov_func.active_columns]
        beyond = (np.abs(centred) > self.half_width).any(axis=1)
        if beyond.any():
            raise ApproximationError(
                f"{int(beyond.sum())} row(s) are beyond the box of the HSGP, the first one "
                f"{X[np.argmax(beyond)]}: raise c, or fit with rows that reach as far."
            )
        return centred


@dataclass(frozen=True)
class HSGP:
    r"""A prior of finite rank by the basis of ``pm.gp.HSGP``.

    .. math:: \phi_j(x) = S(\sqrt{\lambda_j})^{1/2} \prod_{k} L_k^{-1/2}
        \sin\{\sqrt{\lambda_{jk}}\, (x_k + L_k)\}

    with S the spectral density of the kernel, on the box whose half-width is `c` times that of the
    data. Nothing is left over: d = 0. For stationary kernels of at most three columns.

    Parameters
    ----------
    m : int or sequence of int
        Functions along each column that the kernel depends on; one number is for all of them. The
        rank is their product.
    c : float, default 1.5
        Half-width of the box over that of the data; new points must lie in the box.

    Raises
    ------
    ValueError
        For m below 1 or c below 1.
    ApproximationError
        When the data come: for kernels without a spectral density in PyMC, such as
        ``pm.gp.cov.Linear`` or ``pm.gp.cov.WhiteNoise``; for more than three columns; for functions
        of arrays, whose spectral density is not known.

    References
    ----------
    .. [1] A. Solin & S. Särkkä (2020), Hilbert space methods for reduced-rank Gaussian process
       regression, Statistics and Computing 30.
    .. [2] G. Riutort-Mayol, P.-C. Bürkner, M. R. Andersen, A. Solin & A. Vehtari (2023), Practical
       Hilbert space approximate Bayesian Gaussian processes for probabilistic programming,
       Statistics and Computing 33.

    Examples
    --------
    >>> from pymc_skewgp.approximations import HSGP
    >>> HSGP([15, 15], c=1.3)
    HSGP(m=(15, 15), c=1.3)
    """

    m: int | Sequence[int]
    c: float = 1.5

    def __post_init__(self) -> None:
        if np.ndim(self.m) == 0:
            as_count("m", self.m)
        else:
            object.__setattr__(self, "m", tuple(as_count("m", k) for k in self.m))  # type: ignore[union-attr]
        if as_positive("c", self.c) < 1.0:
            raise ValueError(f"c must be at least 1, for the box to hold the data; got {self.c}.")

    def doubled(self) -> "HSGP":
        """With twice as many functions along each column."""
        m = 2 * self.m if isinstance(self.m, int) else tuple(2 * k for k in self.m)
        return HSGP(m, self.c)

    def features(self, prior: "Prior", X: FloatArray) -> SpectralFeatures:
        """Features of the process at inputs like X."""
        cov_func: Any = prior.cov_func
        if not hasattr(cov_func, "spectral_features"):
            raise ApproximationError(
                "HSGP needs a kernel whose spectral density is known, and cov_func is a function "
                "of arrays: use SkewGP with a pm.gp.cov object, or Inducing."
            )
        active = list(cov_func.active_columns)
        m = self.sizes(active)
        low, high = X.min(axis=0), X.max(axis=0)
        half_width = self.c * (high - low)[active] / 2.0
        if not half_width.all():
            raise ApproximationError("HSGP: a column of X is constant, and the box has no width.")
        return SpectralFeatures(cov_func, m, (low + high) / 2.0, half_width)

    def sizes(self, active: Sequence[int]) -> tuple[int, ...]:
        """Functions along each of the columns that a kernel depends on.

        Raises
        ------
        ApproximationError
            For too many columns, or another number of them than `m` has entries.
        """
        if len(active) > _MOST_COLUMNS:
            raise ApproximationError(
                f"HSGP is for at most {_MOST_COLUMNS} columns, as its rank is a power of their "
                f"number; the kernel depends on {len(active)}: use Inducing."
            )
        m = (self.m,) * len(active) if isinstance(self.m, int) else tuple(self.m)
        if len(m) != len(active):
            raise ApproximationError(
                f"m has {len(m)} entries, and the kernel depends on {len(active)} column(s): give "
                "one number for each of them."
            )
        return m
