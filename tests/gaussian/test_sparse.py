"""Sparse precisions: factors, draws and entries of the inverse beside dense algebra."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from pymc_skewgp._errors import NotPositiveDefiniteError
from pymc_skewgp._gaussian.sparse import FieldPattern, SparseCholesky, TiedCholesky


def lattice(k, more=0.3):
    edges = sparse.diags_array([np.ones(k - 1)] * 2, offsets=[-1, 1])
    W = sparse.kron(edges, sparse.eye_array(k)) + sparse.kron(sparse.eye_array(k), edges)
    return sparse.csc_array(sparse.diags_array(W.sum(axis=0) + more) - 0.9 * W)


@pytest.fixture(scope="module")
def known():
    P = lattice(7)
    # With a full row, as that of an intercept.
    P = sparse.csc_array(
        sparse.block_array([[P, np.full((49, 1), 0.1)], [np.full((1, 49), 0.1), [[9.0]]]])
    )
    return P, SparseCholesky(P), np.linalg.inv(P.toarray())


# Both ways are exact: what differs is round-off of 50 x 50 matrices with condition numbers of 100.
EXACT = {"rtol": 1e-10, "atol": 1e-12}


def test_factor(known):
    P, chol, inverse = known
    assert_allclose(chol.log_det, np.linalg.slogdet(P.toarray())[1], **EXACT)
    assert_allclose(chol.solve(np.arange(50.0)), inverse @ np.arange(50.0), **EXACT)
    root = chol @ np.eye(50)
    assert_allclose(root @ root.T, inverse, **EXACT)


def test_entries_of_the_inverse(known):
    P, chol, inverse = known
    i, j = P.nonzero()
    assert_allclose(chol.entries(i, j), inverse[i, j], **EXACT)


def test_covariances_with_predictors():
    rng = np.random.default_rng(0)
    rows = np.repeat(np.arange(30), 2)
    columns = np.stack([rng.permutation(49)[:2] for _ in range(30)]).ravel()
    Q = lattice(7)
    pattern = FieldPattern(np.stack([rows, columns]), np.stack(Q.nonzero()), (30, 49))
    values, tau = rng.normal(size=60), rng.gamma(2.0, size=30)
    A, T = pattern.design(values).toarray(), np.diag(tau)
    prior = pattern.precision(Q[Q.nonzero()])
    P = pattern.added(prior, pattern.gram(values, tau))
    assert_allclose(P.toarray(), Q.toarray() + A.T @ T @ A, **EXACT)
    found = SparseCholesky(P).covariances(columns, pattern.starts, values)
    assert_allclose(found, (np.linalg.inv(P.toarray()) @ A.T)[columns, rows], **EXACT)


def test_entries_that_are_zero_by_chance():
    """SuperLU leaves them out, but others of the inverse are found by theirs."""
    rng = np.random.default_rng(2)
    for _ in range(20):
        rows, columns = np.arange(24) // 2, rng.permutation(48)[:24] // 2
        own = columns[::2] == columns[1::2]
        columns[1::2][own] = (columns[1::2][own] + 1) % 24
        i, j = np.arange(24), np.append(np.arange(1, 24), 0)
        places = np.stack([np.r_[i, i, j], np.r_[i, j, i]])
        pattern = FieldPattern(np.stack([rows, columns]), places, (12, 24))
        off = -0.3 * rng.integers(0, 2, 24)
        values, tau = rng.normal(size=24), rng.integers(0, 2, 12).astype(float)
        P = pattern.added(
            pattern.precision(np.r_[np.ones(24), off, off]), pattern.gram(values, tau)
        )
        chol, inverse = pattern.factorised(P), np.linalg.inv(P.toarray())
        assert_allclose(chol.entries(*places), inverse[tuple(places)], **EXACT)
        A = pattern.design(values).toarray()
        found = chol.covariances(columns, pattern.starts, values)
        assert_allclose(found, (inverse @ A.T)[columns, rows], **EXACT)


@pytest.mark.parametrize("more", [-0.5, -3.0])  # one negative eigenvalue, and many
def test_not_positive_definite(more):
    with pytest.raises(NotPositiveDefiniteError, match="leave some direction unbounded"):
        SparseCholesky(lattice(7, more))


def test_sums_held_at_zero(known):
    P, chol, _ = known
    rng = np.random.default_rng(1)
    U, signs = rng.normal(size=(3, 50)), np.array([1.0, -1.0, 1.0])
    U[1] *= 0.03
    whole = P.toarray() + U.T @ np.diag(signs) @ U
    tied, inverse = TiedCholesky(chol, U, signs), np.linalg.inv(whole)
    assert_allclose(tied.log_det, np.linalg.slogdet(whole)[1], **EXACT)
    assert_allclose(tied.solve(np.arange(50.0)), inverse @ np.arange(50.0), **EXACT)
    root = tied @ np.eye(50)
    assert_allclose(root @ root.T, inverse, **EXACT)
    parts = np.concatenate([np.eye(50), np.zeros((3, 50))])
    for first, stop in ((31, 50), (30, 31), (0, 30)):
        tied.draw_part(parts, first, stop)
    assert_allclose((parts @ parts.T)[np.ix_(tied.place, tied.place)], inverse, **EXACT)
    i, j = P.nonzero()
    assert_allclose(tied.entries(i, j), inverse[i, j], **EXACT)
    columns, starts = np.array([3, 4, 49, 0, 49]), np.array([0, 2, 3, 5])
    A = np.zeros((3, 50))
    rows, values = np.array([0, 0, 1, 2, 2]), rng.normal(size=5)
    A[rows, columns] = values
    found = tied.covariances(columns, starts, values)
    assert_allclose(found, (inverse @ A.T)[columns, rows], **EXACT)
