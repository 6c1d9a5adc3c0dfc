r"""Priors of full rank by Vecchia's approximation: the coordinates are f at the different inputs.

In units of their standard deviations, with a sparse precision; f at new inputs given them is known
from the nearest.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial import cKDTree

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._gaussian import vecchia
from pymc_skewgp._gaussian.sparse import FieldPattern, SparseCholesky
from pymc_skewgp._gaussian.vecchia import NeighbourGraph, nearest_earlier
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._posterior.features import column_scales
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._validation import FloatArray, as_count

_MOST_COLUMNS = 3
# Rows by which the units of columns are known, and those whose values are solved for at a time.
_LOOKED, _SOLVED = 5000, 256
_AT_ONCE = 8192  # new inputs whose correlations are kept
_LEAST_NEAR = 10  # places that new inputs are known from: on a line on both sides of them
_SEED = 0
FEW_NEIGHBOURS = 3  # by which EP and searches begin


@dataclass(frozen=True, eq=False)
class VecchiaPlaces:
    """Places and their neighbours: the same approximation of any kernel.

    Attributes
    ----------
    m : int
    scales : ndarray, shape (d,)
        Of the columns, in which neighbours are nearest.
    places : ndarray, shape (r, d)
        From coarse to fine.
    """

    m: int
    scales: FloatArray
    places: FloatArray

    @property
    def rank(self) -> int:
        """Number r of places."""
        return len(self.places)

    def doubled(self) -> "Vecchia":
        """See `Vecchia`."""
        return Vecchia(self.m).doubled()

    def features(self, prior: Prior, X: FloatArray) -> "VecchiaFeatures":
        """Of the process, whatever the inputs are."""
        return VecchiaFeatures(prior, self)

    def nearest(self, X: FloatArray, k: int) -> tuple[IntArray, NDArray[np.bool_]]:
        """Places that are next to inputs, shape (n, k), and whether an input is none of them."""
        scaled = X * self.scales
        near = self._tree.query(scaled, k=k)[1].reshape(len(X), -1)
        return near, (scaled != self._points[near[:, 0]]).any(axis=1)

    @cached_property
    def graph(self) -> NeighbourGraph:
        """Of each place those before it."""
        return NeighbourGraph(nearest_earlier(self._points, self.m))

    def pattern(self, design: Any) -> FieldPattern:
        """Of fields that rows of a sparse matrix see."""
        row = np.repeat(np.arange(design.shape[0]), np.diff(design.indptr))
        of_design = np.stack([row, design.indices]).astype(np.intp)
        return FieldPattern(of_design, self.graph.of_precision, design.shape)

    @cached_property
    def _points(self) -> FloatArray:
        return self.places * self.scales

    @cached_property
    def _tree(self) -> cKDTree:
        return cKDTree(self._points)


@dataclass(frozen=True, eq=False)
class VecchiaFeatures:
    """Values of a process at different places, each known from m others, and at inputs from m.

    Attributes
    ----------
    prior : Prior
    basis : VecchiaPlaces
    """

    prior: Prior
    basis: VecchiaPlaces

    @property
    def rank(self) -> int:
        """Number r of places."""
        return self.basis.rank

    def at(self, X: FloatArray) -> tuple[Any, FloatArray]:
        """Sparse phi, shape (n, r), and d, with the kernel's own noise of each row."""
        deviation = np.sqrt(self.prior.pairs("X", X, X))
        k = min(max(self.basis.m, _LEAST_NEAR), self.rank)
        near, new = self.basis.nearest(X, k)
        size = np.where(new, k, 1)
        weights, left = np.ones((len(X), k)), np.zeros(len(X))
        moved = np.flatnonzero(new)
        for some in (moved[i : i + _AT_ONCE] for i in range(0, moved.size, _AT_ONCE)):
            weights[some], left[some] = self._given_nearest(X[some], deviation[some], near[some])
        known = np.arange(k) < size[:, None]
        values = (weights * deviation[:, None])[known]
        starts = np.concatenate([[0], np.cumsum(size)])
        phi = sparse.csr_array((values, near[known], starts), shape=(len(X), self.rank))
        return phi, left * deviation**2 + self.prior.noise("X", X, deviation**2)

    def _given_nearest(
        self, X: FloatArray, deviation: FloatArray, near: IntArray
    ) -> vecchia.Conditionals:
        n, k = near.shape
        places, sd = self.basis.places[near], self._deviations[near]
        points = np.concatenate([places, X[:, None]], axis=1)
        sd = np.column_stack([sd, deviation])
        i, j = vecchia.below_diagonal(k)
        ends = (points[:, x].reshape(-1, X.shape[1]) for x in (i, j))
        known = self.prior.pairs("X", *ends).reshape(n, -1) / sd[:, i] / sd[:, j]
        return vecchia.conditionals(known, k)

    @cached_property
    def correlations(self) -> FloatArray:
        """Of the pairs of the graph."""
        (i, j), places, sd = self.basis.graph.pairs, self.basis.places, self._deviations
        return self.prior.pairs("X", places[i], places[j]) / sd[i] / sd[j]

    @cached_property
    def conditionals(self) -> vecchia.Conditionals:
        """Of each place given those before it."""
        return self.basis.graph.conditionals(self.correlations)

    @property
    def log_det(self) -> float:
        """Of Q."""
        return -float(np.log(self.conditionals.variance).sum())

    @property
    def precision(self) -> FloatArray:
        """Q, where the graph has entries."""
        return self.basis.graph.precision(self.conditionals)

    def covariance(self, a: Any, b: Any) -> FloatArray:
        """Of phi'c for two sparse sets of rows."""
        Q = sparse.csc_array((self.precision, self.basis.graph.of_precision))
        chol, parts = SparseCholesky(Q), []
        for start in range(0, b.shape[0], _SOLVED):
            parts.append(a @ chol.solve(b[start : start + _SOLVED].T.toarray()))
        return np.hstack(parts)

    @cached_property
    def _deviations(self) -> FloatArray:
        places = self.basis.places
        return np.sqrt(self.prior.pairs("X", places, places))


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
    `find_hyperparameters` and `integrate` take likelihoods about one function whose rows are about
    as many values of f each, as labels, counts or duels, with noise of their own. Neighbours are
    those in units of the kernel where a search with all rows begins, and stay: a search for
    lengthscales of several columns that starts far off is best repeated from its end. With more
    rows than that search begins with, its second derivatives are of three neighbours: standard
    deviations from them were 7 and 10 % larger than by all ten on a map of 6000 labels.

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
        return self.places(prior, X).features(prior, X)

    def places(self, prior: Prior, X: FloatArray) -> VecchiaPlaces:
        """Different inputs, with neighbours in units of the kernel."""
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
        return VecchiaPlaces(self.m, scales, places[vecchia.coarse_to_fine(points)])
