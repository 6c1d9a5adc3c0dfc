r"""Priors of full rank by Vecchia's approximation: the coordinates are f at the different inputs.

In units of their standard deviations, with a sparse precision; f at new inputs given them is known
from the nearest.
"""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu
from scipy.spatial import cKDTree

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._gaussian import vecchia
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._posterior.features import column_scales, function_variances
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._validation import FloatArray, as_count

_MOST_COLUMNS = 3
# Rows by which the units of columns are known, and those whose values are solved for at a time.
_LOOKED, _SOLVED = 5000, 256
_LEAST_NEAR = 10  # places that new inputs are known from: on a line on both sides of them
_SEED, _ROUND_OFF = 0, 1e-9


@dataclass(frozen=True, eq=False)
class VecchiaFeatures:
    """Values of a process at different places, each known from m others, and at inputs from m.

    Attributes
    ----------
    prior : Prior
    m : int
    scales : ndarray, shape (d,)
        Of the columns, in which neighbours are nearest.
    places : ndarray, shape (r, d)
        From coarse to fine.
    """

    prior: Prior
    m: int
    scales: FloatArray
    places: FloatArray

    @property
    def rank(self) -> int:
        """Number r of places."""
        return len(self.places)

    def at(self, X: FloatArray) -> tuple[Any, FloatArray]:
        """Sparse phi, shape (n, r), and d, with the kernel's own noise of each row."""
        scaled, deviation = X * self.scales, np.sqrt(function_variances(self.prior, X))
        k = min(max(self.m, _LEAST_NEAR), self.rank)
        near = self._tree.query(scaled, k=k)[1].reshape(len(X), -1)
        new = (scaled != self._points[near[:, 0]]).any(axis=1)
        weights, left = np.zeros(near.shape), np.zeros(len(X))
        weights[:, 0] = 1.0
        if new.any():
            across = partial(self._correlation, X[new], deviation[new])
            found = vecchia.conditionals(scaled[new], near[new], self._between, across)
            weights[new], left[new] = found.weights, found.variance
        neighbours = np.where(new[:, None] | (np.arange(near.shape[1]) == 0), near, -1)
        phi = vecchia.Conditionals(neighbours, weights * deviation[:, None], left)
        noise = self.prior.covariance("X", X, diag=True) - deviation**2
        noise[noise < _ROUND_OFF * deviation**2] = 0.0
        return phi.matrix(self.rank), left * deviation**2 + noise

    @cached_property
    def conditionals(self) -> vecchia.Conditionals:
        """Of each place given those before it."""
        near = vecchia.nearest_earlier(self._points, self.m)
        return vecchia.conditionals(self._points, near, self._between, self._between)

    @cached_property
    def _root(self) -> sparse.csr_array:
        """B."""
        return sparse.eye_array(self.rank, format="csr") - self.conditionals.matrix(self.rank)

    @cached_property
    def precision(self) -> sparse.coo_array:
        """Q, in places by row."""
        scaled = sparse.diags_array(1.0 / self.conditionals.variance) @ self._root
        return sparse.coo_array(self._root.T @ scaled)

    @property
    def log_det(self) -> float:
        """Of Q."""
        return -float(np.log(self.conditionals.variance).sum())

    def covariance(self, a: Any, b: Any) -> FloatArray:
        """Of phi'c for two sparse sets of rows."""
        root = splu(sparse.csc_array(self._root), permc_spec="NATURAL", diag_pivot_thresh=0.0)
        parts = []
        for start in range(0, b.shape[0], _SOLVED):
            right = b[start : start + _SOLVED].T.toarray()
            right = self.conditionals.variance[:, None] * root.solve(right, trans="T")
            parts.append(a @ root.solve(right))
        return np.hstack(parts)

    @cached_property
    def _points(self) -> FloatArray:
        return self.places * self.scales

    @cached_property
    def _tree(self) -> cKDTree:
        return cKDTree(self._points)

    @cached_property
    def _deviations(self) -> FloatArray:
        return np.sqrt(function_variances(self.prior, self.places))

    @property
    def _between(self) -> vecchia.Correlation:
        return partial(self._correlation, self.places, self._deviations)

    def _correlation(
        self, X: FloatArray, deviations: FloatArray, rows: IntArray, columns: IntArray
    ) -> FloatArray:
        known = self.prior.covariance("X", X[rows], self.places[columns])
        return known / deviations[rows, None] / self._deviations[columns]


@dataclass(frozen=True)
class Vecchia:
    r"""A prior of full rank by Vecchia's approximation: for rough kernels on maps and in time.

    .. math:: p\{f(x_1), \ldots, f(x_n)\} \approx \prod_i p\{f(x_i) \mid f(x_j), j \in N(i)\}

    with N(i) the m inputs nearest to the i-th among those before it, in units of the kernel; equal
    inputs are one. In one column they are in order, else they come from coarse to fine. The
    precision of f is sparse, so that 100,000 inputs take minutes where the kernel itself would be
    a matrix of 80 GB, and no rank is cut off, as `Inducing` and `HSGP` do. For kernels that depend
    on at most three columns. f at a new input is known from f at the m inputs of the data, 10 at
    least, that are nearest; given these f at two new inputs is independent.

    Parameters
    ----------
    m : int, default 20
        Neighbours. With one less than there are inputs it is the kernel as it is; of
        ``pm.gp.cov.Matern12`` in one column 1 is enough.

    Raises
    ------
    ValueError
        For m below 1.
    ApproximationError
        When the data come: for kernels that depend on more than three columns; for pseudo-points,
        constraints, likelihoods of several functions, and rows on the workers of a cluster.

    Notes
    -----
    Hyperparameters are not learnt with it yet: learn them from some thousand rows, or with
    `Inducing`, and give their values to ``posterior(point=...)``.

    References
    ----------
    .. [1] A. V. Vecchia (1988), Estimation and model identification for continuous spatial
       processes, Journal of the Royal Statistical Society B 50.
    .. [2] J. Guinness (2018), Permutation and grouping methods for sharpening Gaussian process
       approximations, Technometrics 60.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> x = np.arange(0.0, 30.0, 0.1)
    >>> gp = sg.SkewGP(
    ...     cov_func=pm.gp.cov.Matern12(1, ls=3.0), approximation=sg.approximations.Vecchia(1)
    ... )
    >>> posterior = gp.posterior(x, np.sin(x) > 0)
    >>> print(f"{posterior.log_marginal_likelihood.value:.0f}")
    -109
    """

    m: int = 20

    def __post_init__(self) -> None:
        as_count("m", self.m)

    def doubled(self) -> "Vecchia":
        """With twice as many neighbours."""
        return Vecchia(2 * self.m)

    def features(self, prior: Prior, X: FloatArray) -> VecchiaFeatures:
        """Of the process at inputs like X."""
        rng = np.random.default_rng(_SEED)
        some = X if len(X) <= _LOOKED else X[rng.choice(len(X), _LOOKED, replace=False)]
        scales = column_scales(prior, some, rng)
        active = np.flatnonzero(scales)
        if active.size > _MOST_COLUMNS:
            raise ApproximationError(
                f"Vecchia is for kernels of at most {_MOST_COLUMNS} columns, as neighbours are few "
                f"in more; this one depends on {active.size}: use Inducing."
            )
        places = X[np.unique(X[:, active], axis=0, return_index=True)[1]]
        points = (places * scales)[:, active] if active.size else np.zeros((len(places), 1))
        return VecchiaFeatures(prior, self.m, scales, places[vecchia.coarse_to_fine(points)])
