"""Where inducing points go: the centres of clusters of the rows, in units of the kernel."""

from typing import TYPE_CHECKING

import numpy as np
from scipy.cluster.vq import kmeans2

from pymc_skewgp._observations.distinct_rows import one_of_each
from pymc_skewgp._validation import FloatArray

if TYPE_CHECKING:
    from pymc_skewgp._posterior.prior import Prior

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
    first = _spread_rows(scaled, r, rng)
    _, label = kmeans2(scaled, first, iter=_ITERATIONS, minit="matrix", missing="warn")
    counts = np.bincount(label, minlength=r)
    centres = np.stack([np.bincount(label, column, r) for column in part.T], axis=1)
    found: FloatArray = centres[counts > 0] / counts[counts > 0, None]
    return found


def _spread_rows(rows: FloatArray, r: int, rng: np.random.Generator) -> FloatArray:
    """Starts of k-means ("++"): each far from those before it; n r distances, SciPy's n r^2 / 2."""
    chosen = [int(rng.integers(rows.shape[0]))]
    square = np.full(rows.shape[0], np.inf)
    for _ in range(1, r):
        off = rows - rows[chosen[-1]]
        np.minimum(square, np.einsum("ij,ij->i", off, off), out=square)
        shares = np.cumsum(square / square.sum())
        chosen.append(min(int(np.searchsorted(shares, rng.uniform())), rows.shape[0] - 1))
    return rows[chosen]


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
