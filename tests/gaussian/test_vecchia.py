"""Vecchia's approximation of Gaussians: neighbours and conditionals beside dense algebra."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist

from pymc_skewgp._errors import JitterWarning, NotPositiveDefiniteError
from pymc_skewgp._gaussian.vecchia import coarse_to_fine, conditionals, nearest_earlier


def matern32(a, b, ls=0.3):
    r = np.sqrt(3.0) * cdist(a, b) / ls
    return (1.0 + r) * np.exp(-r)


def between(a, b, kernel, i, j):
    return kernel(a[i], b[j])


def of_points(points, m, kernel=matern32):
    known = partial(between, points, points, kernel)
    return conditionals(points, nearest_earlier(points, m), known, known)


def precision(found):
    root = np.eye(len(found.variance)) - found.matrix(len(found.variance)).toarray()
    return root.T @ (root / found.variance[:, None])


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("spread", [1.0, 1e-9])
def test_coarse_to_fine(d, spread):
    rng = np.random.default_rng(0)
    points = rng.random((500, d))
    points[250:] = 0.5 + spread * points[250:]
    order = coarse_to_fine(points)
    assert_array_equal(np.sort(order), np.arange(500))
    if d == 1:
        assert (np.diff(points[order, 0]) >= 0.0).all()
    elif spread == 1.0:  # the first of them lie wider apart than all do
        gaps = [
            cdist(x, x)[~np.eye(len(x), dtype=bool)].min() for x in (points[order[:100]], points)
        ]
        assert gaps[0] > 1.5 * gaps[1]


@pytest.mark.parametrize(("n", "m"), [(1, 5), (2, 1), (7, 20), (700, 10)])
def test_nearest_earlier(n, m):
    points = np.random.default_rng(1).random((n, 2))
    found, distance = nearest_earlier(points, m), cdist(points, points)
    for i in range(n):
        near = np.argsort(distance[i, :i])[:m]
        assert set(found[i]) - {-1} == set(near)
        assert (found[i] >= 0).sum() == near.size


def test_all_neighbours_give_the_covariance():
    points = np.random.default_rng(2).random((150, 2))
    cov = np.linalg.inv(precision(of_points(points, 149)))
    # The nugget is 1e-10.
    assert_allclose(cov, matern32(points, points) + 1e-10 * np.eye(150), atol=1e-11)


def test_few_neighbours_beside_loops():
    points = np.random.default_rng(3).random((300, 2))
    found, K = of_points(points, 6), matern32(points, points)
    for i in (0, 1, 5, 100, 299):
        near = found.neighbours[i][found.neighbours[i] >= 0]
        own = K[np.ix_(near, near)] + 1e-10 * np.eye(near.size)
        weights = np.linalg.solve(own, K[near, i])
        assert_allclose(found.weights[i][: near.size], weights, atol=1e-9)
        assert_allclose(found.variance[i], 1.0 + 1e-10 - weights @ K[near, i], rtol=1e-8)
    # The chain rule: whatever the conditionals are, the determinant is theirs.
    log_det = np.linalg.slogdet(precision(found))[1]
    assert_allclose(log_det, -np.log(found.variance).sum(), rtol=1e-10)


def test_a_markov_process_needs_one_neighbour_on_a_line():
    x = np.sort(np.random.default_rng(4).random((80, 1)), axis=0)
    found = of_points(x, 1, lambda a, b: np.exp(-cdist(a, b) / 0.2))
    cov = np.linalg.inv(precision(found))
    # A nugget of 1e-10 makes it a little less than Markov, more where neighbours are near.
    assert_allclose(cov, np.exp(-cdist(x, x) / 0.2), atol=1e-6)


def test_next_to_equal_points():
    points = np.random.default_rng(5).random((60, 2))
    points[30:] = points[:30] + 1e-9

    def rounded(a, b):  # of pairs round-off may make a correlation above 1
        return np.exp(-cdist(a, b) / 0.3) * (1.0 + 2e-8)

    with pytest.warns(JitterWarning, match="next to equal"):
        found = of_points(points, 10, rounded)
    cov = np.linalg.inv(precision(found))
    assert (found.variance > 0.0).all()
    # Correlations above 1 by 2e-8 are no covariance: what stands for it may be off by their root.
    assert_allclose(np.diag(cov), 1.0, atol=0.05)


def test_no_covariance():
    points = np.random.default_rng(6).random((30, 2))
    with pytest.raises(NotPositiveDefiniteError, match="not positive definite"):
        of_points(points, 10, lambda a, b: 1.0 + cdist(a, b))
