r"""Priors of finite rank: inducing points and where they go, HSGP, several functions.

With R R' = B, the covariance of the functions, and :math:`\mathrm{cov}\{e(x)\} = d(x) B`. The
coordinates are those of the first latent function, of the second, and so on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg.blas import dtrsm
from scipy.sparse import issparse

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.likelihood import Derivative, as_inputs
from pymc_skewgp._observations.observations import one_of_each
from pymc_skewgp._posterior.prior import Features, Prior, factor_between
from pymc_skewgp._validation import FloatArray, as_count, as_positive


@dataclass(frozen=True, eq=False)
class FunctionFeatures:
    """Features of K functions; as `Features` they are those of the first one.

    Attributes
    ----------
    between : ndarray, shape (K, K)
        B.
    single : Features
        Of a process with the kernel as it is.
    """

    between: FloatArray
    single: Features

    @cached_property
    def half(self) -> FloatArray:
        """R, shape (K, L)."""
        return factor_between(self.between)

    @property
    def is_single(self) -> bool:
        """Whether there is one function, with the kernel as it is."""
        return self.between.shape == (1, 1) and float(self.between[0, 0]) == 1.0

    @property
    def rank(self) -> int:
        """Number L r of coordinates."""
        return self.single.rank * self.half.shape[1]

    def at(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Of the first function."""
        phi, rest = self.single.at(X)
        if self.is_single:
            return phi, rest
        return self.values(phi, 1)[:, 0], rest * self.between[0, 0]

    def derivative_at(self, X: FloatArray, derivative: Derivative) -> FloatArray:
        """Features of a derivative of the first function; see `derivative_features`."""
        return self.values(derivative_features(self.single, X, derivative), 1)[:, 0]

    def values(self, phi: FloatArray, n_functions: int) -> FloatArray:
        """Features of the first functions, shape (n, n_functions, L r), from those of a process."""
        if self.is_single:
            return phi[:, None]
        half = self.half[:n_functions]
        wide = half[None, :, :, None] * phi[:, None, None, :]
        return np.asarray(wide.reshape(phi.shape[0], n_functions, self.rank))


def rest_between(between: FloatArray, values: IntArray, n_functions: int) -> FloatArray:
    """Covariances of e at p values each, (n, p, p), where its variance d is 1.

    Values are counted as those of the first `n_functions` functions at each input are.
    """
    inputs, function = values // n_functions, values % n_functions
    same = inputs[:, :, None] == inputs[:, None, :]
    return np.asarray(
        np.where(same, between[function[:, :, None], function[:, None, :]], 0.0), dtype=float
    )


def derivative_features(features: Features, X: FloatArray, derivative: Derivative) -> FloatArray:
    """Derivatives of phi at X, shape (n, r).

    Raises
    ------
    ApproximationError
        For features without.
    NotDifferentiableError
        For a kernel without.
    """
    method = getattr(features, "derivative_at", None)
    if method is None:
        raise ApproximationError(
            "the features of this approximated prior have no derivatives: take Inducing, or the "
            "prior as it is."
        )
    return np.asarray(method(X, derivative))


# Variance that features leave.

_RESIDUAL_ROWS = 128


def function_variances(prior: "Prior", X: FloatArray) -> FloatArray:
    """Variances of f without noise of rows: k(x, x) with two arguments."""
    parts = [X[i : i + _RESIDUAL_ROWS] for i in range(0, X.shape[0], _RESIDUAL_ROWS)]
    return np.concatenate([prior.covariance("X", x, x).diagonal() for x in parts])


def residual_variances(prior: "Prior", features: Features, X: FloatArray) -> FloatArray:
    """What phi(x)'phi(x) lacks of these; negative where it is more. Of sparse ones rests."""
    phi, rest = features.at(X)
    if issparse(phi):
        return rest
    found: FloatArray = function_variances(prior, X) - np.einsum("ij,ij->i", phi, phi)
    return found


# A prior of finite rank as a kernel: :math:`k(x, x') = \phi(x)^\top \phi(x')`, and noise of rows.
#
# What is exact for any kernel is exact for it as well: where the rows are few that is all it takes.


@dataclass(frozen=True, eq=False)
class FiniteRankKernel:
    """A `CovarianceFunction`; what features leave of the variance is noise of each row."""

    features: Features

    def __call__(
        self, X: FloatArray, Xs: FloatArray | None = None, diag: bool = False
    ) -> FloatArray:
        """Evaluate it."""
        phi, rest = self.features.at(X)
        between = getattr(self.features, "covariance", _product)
        if diag:
            if between is _product:
                return np.asarray(np.einsum("ij,ij->i", phi, phi) + rest)
            return np.asarray(between(phi, phi).diagonal() + rest)
        if Xs is not None:
            return np.asarray(between(phi, self.features.at(Xs)[0]))
        matrix = between(phi, phi)
        matrix[np.diag_indices_from(matrix)] += rest
        return np.asarray(matrix)

    def derivative(
        self, X: FloatArray, Xs: FloatArray, left: Derivative | None, right: Derivative | None
    ) -> FloatArray:
        """Covariance of derivatives, of what the features say of f; None for f itself."""
        known = self.features
        a, b = (
            known.at(x)[0] if wanted is None else derivative_features(known, x, wanted)
            for x, wanted in ((X, left), (Xs, right))
        )
        return np.asarray(a @ b.T)


def _product(a: FloatArray, b: FloatArray) -> FloatArray:
    return a @ b.T


def finite_rank_prior(prior: Prior, X: FloatArray) -> tuple[Prior, Features]:
    """The prior that its approximation makes of it for inputs like X, and the features."""
    assert prior.approximation is not None
    features = prior.approximation.features(replace(prior, approximation=None), X)
    return replace(prior, cov_func=FiniteRankKernel(features), approximation=None), features


# Where inducing points go: the centres of clusters of the rows, in units of the kernel.

# Rows that are clustered: for each centre, and at least.
_ROWS_A_POINT, _LEAST_ROWS = 20, 5000
_ITERATIONS = 10
_PAIRS = 256  # of rows, behind the units of the columns
_SEED = 0


def cluster_centres(prior: "Prior", X: FloatArray, r: int) -> FloatArray:
    """At most r points that lie as the rows of X do, by k-means on a random part of them.

    Distances are measured in `column_scales`, so that a column that the kernel hardly depends on
    takes no points.
    """
    different = one_of_each(X)
    if different.size <= r:
        return X[different]
    rng = np.random.default_rng(_SEED)
    n = X.shape[0]
    size = min(n, max(_ROWS_A_POINT * r, _LEAST_ROWS))
    part = X if size == n else X[np.sort(rng.choice(n, size, replace=False))]
    scales = column_scales(prior, part, rng)
    used = scales > 0
    distinct, at = np.unique(part[:, used] * scales[used], axis=0, return_inverse=True)
    if distinct.shape[0] <= r:
        return part[np.unique(at, return_index=True)[1]]
    scaled = part[:, used] * scales[used]
    first = scaled[spread_rows(scaled, r, rng)]
    from scipy.cluster.vq import kmeans2  # a sixth of a second that few need

    _, label = kmeans2(scaled, first, iter=_ITERATIONS, minit="matrix", missing="warn")
    counts = np.bincount(label, minlength=r)
    centres = np.stack([np.bincount(label, column, r) for column in part.T], axis=1)
    found: FloatArray = centres[counts > 0] / counts[counts > 0, None]
    return found


def spread_rows(rows: FloatArray, r: int, rng: np.random.Generator) -> IntArray:
    """Numbers of rows far from each other, of which there are at least r different ones.

    Each is drawn in proportion to its squared distance to those before it: starts of k-means++
    (Arthur & Vassilvitskii 2007), by n r distances, where SciPy takes n r^2 / 2.
    """
    chosen = [int(rng.integers(rows.shape[0]))]
    square = np.full(rows.shape[0], np.inf)
    for _ in range(1, r):
        off = rows - rows[chosen[-1]]
        np.minimum(square, np.einsum("ij,ij->i", off, off), out=square)
        shares = np.cumsum(square / square.sum())
        chosen.append(min(int(np.searchsorted(shares, rng.uniform())), rows.shape[0] - 1))
    return np.array(chosen)


def column_scales(prior: "Prior", X: FloatArray, rng: np.random.Generator) -> FloatArray:
    r"""One over the unit of each column in which the kernel falls off, 0 where it does not.

    Of random pairs of rows x, t, with column j of x replaced by that of t: the mean of
    1 - correlation, over the mean squared difference. For lengthscales that are long this is
    :math:`1 / (2 l_j^2)`. Where the kernel is as good as constant, standard deviations.
    """
    n, d = X.shape
    first, second = rng.integers(n, size=(2, min(n, _PAIRS)))
    before = X[first]
    variances = prior.covariance("X", before, before).diagonal()
    scales = np.zeros(d)
    for j in range(d):
        after = before.copy()
        after[:, j] = X[second, j]
        square = float(np.mean((after[:, j] - before[:, j]) ** 2))
        if square > 0:
            own = prior.covariance("X", after, after).diagonal()
            bound = np.sqrt(np.maximum(variances * own, np.finfo(float).tiny))
            correlation = prior.covariance("X", before, after).diagonal() / bound
            scales[j] = np.sqrt(np.mean(1.0 - np.clip(correlation, 0.0, 1.0)) / square)
    if scales.max(initial=0.0) < 1e-6 / max(float(X.std()), np.finfo(float).tiny):
        sd = X.std(axis=0)
        scales = np.divide(1.0, sd, out=np.zeros(d), where=sd > 0)
    return scales


# Features by inducing points Z: :math:`\phi(x) = L^{-1} k(Z, x)`, with L L' = k(Z, Z).

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
    matrix = linalg.symmetric(prior.covariance("inducing points", points, points))
    matrix[np.diag_indices_from(matrix)] += NUGGET * matrix.diagonal().mean()
    factor, _ = linalg.cholesky("the covariance of the inducing points", matrix)
    return InducingFeatures(prior, points, factor)


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
        in units of the kernel: a column of which it hardly depends on takes no points. Those that
        tell nothing of f beside the others, in double precision, are left out.

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
        checked = as_inputs if np.ndim(self.points) else as_count
        object.__setattr__(self, "points", checked("points", self.points))

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
            found = cluster_centres(prior, X, self.points)
            matrix = linalg.symmetric(prior.covariance("inducing points", found, found))
            return found[np.sort(linalg.pivoted_factor(matrix).pivots)]
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


# Features by pivoted Cholesky: inducing points chosen among the rows, one after the other.

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
        """Rows of which least is known, one after the other."""
        # k(x, x) by itself: noise of rows is no part of the function.
        left = function_variances(prior, X)
        least = _NOTHING_LEFT * float(left.max())
        factor = np.empty((min(self.r, X.shape[0]), X.shape[0]))
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
        return X[pivots]


# Features by the Laplacian's eigenfunctions on a box: PyMC's HSGP.

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


# The kernel itself, by the values of f at every input that is in the data: where these repeat.


class EveryInputFeatures(InducingFeatures):
    """Features that leave nothing of f at the data, but for round-off."""

    def residual_covariance(self, X: FloatArray) -> FloatArray:
        """What they leave at new points, which depends on each other as the kernel says."""
        cross = self.prior.covariance("Xnew", X, self.points)
        phi = whitened(np.ascontiguousarray(cross), self.factor)
        return linalg.symmetric(self.prior.covariance("Xnew", X) - phi @ phi.T)


@dataclass(frozen=True)
class EveryInput:
    """Inducing points at the different rows of X, but for those that the others determine.

    Given f there, f at new points does not depend on the data: the posterior is that of the kernel
    itself, in as many coordinates as there are different inputs.
    """

    def doubled(self) -> "EveryInput":
        """The same: there are no more points."""
        return self

    def features(self, prior: "Prior", X: FloatArray) -> EveryInputFeatures:
        """Of the process at inputs like X."""
        points = self.places(prior, X)
        # What is left of each by those before is more than round-off: it needs no nugget.
        matrix = linalg.symmetric(prior.covariance("X", points, points))
        factor, _ = linalg.cholesky("the covariance of the different inputs", matrix)
        return EveryInputFeatures(prior, points, factor)

    def places(self, prior: "Prior", X: FloatArray) -> FloatArray:
        """Different rows of X, the first of which least is known given those before."""
        distinct = X[one_of_each(X)]
        return PivotedCholesky(distinct.shape[0]).places(prior, distinct)
