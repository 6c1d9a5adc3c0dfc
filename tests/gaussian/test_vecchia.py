"""Vecchia's approximation of Gaussians: neighbours and conditionals beside dense algebra."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.spatial.distance import cdist

from pymc_skewgp._errors import JitterWarning, NotPositiveDefiniteError
from pymc_skewgp._gaussian.vecchia import NeighbourGraph, coarse_to_fine, nearest_earlier


def matern32(a, b, ls=0.3):
    r = np.sqrt(3.0) * cdist(a, b) / ls
    return (1.0 + r) * np.exp(-r)


def of_points(points, m, kernel=matern32):
    graph = NeighbourGraph(nearest_earlier(points, m))
    i, j = graph.pairs
    return graph, graph.conditionals(kernel(points, points)[i, j])


def precision(graph, found):
    n = len(found.variance)
    Q = sparse.coo_array((graph.precision(found), graph.of_precision), shape=(n, n)).toarray()
    root = np.eye(n)
    for i, (near, weights) in enumerate(zip(graph.neighbours, found.weights, strict=True)):
        assert_array_equal(weights[near < 0], 0.0)
        root[i, near[near >= 0]] = -weights[near >= 0]
    # Sums in another order.
    assert_allclose(Q, root.T @ (root / found.variance[:, None]), rtol=1e-9, atol=1e-9 * Q.max())
    return Q


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
    cov = np.linalg.inv(precision(*of_points(points, 149)))
    # The nugget is 1e-10.
    assert_allclose(cov, matern32(points, points) + 1e-10 * np.eye(150), atol=1e-11)


def test_few_neighbours_beside_loops():
    points = np.random.default_rng(3).random((300, 2))
    (graph, found), K = of_points(points, 6), matern32(points, points)
    for i in (0, 1, 5, 100, 299):
        near = graph.neighbours[i][graph.neighbours[i] >= 0]
        own = K[np.ix_(near, near)] + 1e-10 * np.eye(near.size)
        weights = np.linalg.solve(own, K[near, i])
        assert_allclose(found.weights[i][: near.size], weights, atol=1e-9)
        assert_allclose(found.variance[i], 1.0 + 1e-10 - weights @ K[near, i], rtol=1e-8)
    # The chain rule: whatever the conditionals are, the determinant is theirs.
    log_det = np.linalg.slogdet(precision(graph, found))[1]
    assert_allclose(log_det, -np.log(found.variance).sum(), rtol=1e-10)


def test_a_markov_process_needs_one_neighbour_on_a_line():
    x = np.sort(np.random.default_rng(4).random((80, 1)), axis=0)
    found = of_points(x, 1, lambda a, b: np.exp(-cdist(a, b) / 0.2))
    cov = np.linalg.inv(precision(*found))
    # A nugget of 1e-10 makes it a little less than Markov, more where neighbours are near.
    assert_allclose(cov, np.exp(-cdist(x, x) / 0.2), atol=1e-6)


def test_next_to_equal_points():
    points = np.random.default_rng(5).random((60, 2))
    points[30:] = points[:30] + 1e-9

    def rounded(a, b):  # of pairs round-off may make a correlation above 1
        return np.exp(-cdist(a, b) / 0.3) * (1.0 + 2e-8)

    with pytest.warns(JitterWarning, match="next to equal"):
        graph, found = of_points(points, 10, rounded)
    cov = np.linalg.inv(precision(graph, found))
    assert (found.variance > 0.0).all()
    # Correlations above 1 by 2e-8 are no covariance: what stands for it may be off by their root.
    assert_allclose(np.diag(cov), 1.0, atol=0.05)


def test_no_covariance():
    points = np.random.default_rng(6).random((30, 2))
    with pytest.raises(NotPositiveDefiniteError, match="not positive definite"):
        of_points(points, 10, lambda a, b: 1.0 + cdist(a, b))


def test_slopes_beside_differences():
    rng = np.random.default_rng(6)
    points = rng.random((40, 2))
    graph = NeighbourGraph(nearest_earlier(points, 5))
    i, j = graph.pairs
    row, column = graph.of_precision
    squares = (1.5 * matern32(points, points, 0.08))[row, column]

    def expected(correlations):
        known = graph.conditionals(correlations)
        return -0.5 * np.log(known.variance).sum() - 0.5 * graph.precision(known) @ squares

    at, step = matern32(points, points, 0.1)[i, j], 1e-6
    slopes = graph.slopes(at, squares)
    for k in rng.choice(at.size, 20, replace=False):
        moved = step * (np.arange(at.size) == k)
        difference = (expected(at + moved) - expected(at - moved)) / (2.0 * step)
        # Central differences: the square of the step, and round-off over it.
        assert_allclose(slopes[k], difference, rtol=1e-5, atol=1e-5)
