"""Features of approximated priors, against kernel matrices and PyMC's own basis."""

import pickle

import numpy as np
import pymc as pm
import pytest

import pymc_skewgp as sg
from pymc_skewgp._model.gp.functions import ArrayCovariance
from pymc_skewgp._posterior.features import cluster_centres
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp.approximations import HSGP, Inducing, PivotedCholesky

KERNEL = 2.0 * pm.gp.cov.Matern52(2, ls=[0.5, 1.5])


def prior_of(kernel):
    cov_func = kernel if not isinstance(kernel, pm.gp.cov.BaseCovariance) else None
    cov_func = cov_func or ArrayCovariance(kernel)
    none = np.zeros(0)
    return Prior(cov_func, lambda X: np.zeros(len(X)), np.zeros((0, 2)), none, none)


def inputs(n, d=2, seed=0):
    return np.random.default_rng(seed).uniform(-1.0, 1.0, (n, d))


@pytest.mark.parametrize("kind", [Inducing(20), PivotedCholesky(20)])
def test_few_points_leave_what_conditioning_leaves(kind):
    X, new = inputs(300), inputs(40, seed=1)
    prior = prior_of(KERNEL)
    features = kind.features(prior, X)
    phi, rest = features.at(new)
    Z = features.points
    K = prior.covariance("Z", Z) + 2e-8 * np.eye(len(Z))
    cross = prior.covariance("new", new, Z)
    np.testing.assert_allclose(phi @ phi.T, cross @ np.linalg.solve(K, cross.T), atol=1e-9)
    np.testing.assert_allclose(rest + (phi**2).sum(axis=1), 2.0)
    assert features.rank == 20
    assert 0.0 <= rest.min() < rest.max() < 2.0


def test_blocks_of_rows_do_not_matter():
    prior, X = prior_of(KERNEL), inputs(9000)
    features = Inducing(10).features(prior, X)
    phi, rest = features.at(X)
    for rows in (slice(0, 5), slice(4090, 4100), slice(8990, 9000)):
        np.testing.assert_allclose(features.at(X[rows])[0], phi[rows], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(features.at(X[rows])[1], rest[rows], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", [Inducing(15), PivotedCholesky(15)])
def test_noise_of_the_kernel_is_left_over(kind):
    X = inputs(200)
    smooth = kind.features(prior_of(KERNEL), X)
    noisy = kind.features(prior_of(KERNEL + pm.gp.cov.WhiteNoise(0.5)), X)
    np.testing.assert_allclose(noisy.points, smooth.points)
    np.testing.assert_allclose(noisy.at(X)[0], smooth.at(X)[0])
    np.testing.assert_allclose(noisy.at(X)[1], smooth.at(X)[1] + 0.25)


def test_pivoted_cholesky_ends_where_nothing_is_left():
    # A linear kernel in two columns has rank 2.
    X = inputs(100)
    features = PivotedCholesky(30).features(prior_of(pm.gp.cov.Linear(2, c=0.0)), X)
    assert features.rank == 2
    np.testing.assert_allclose(features.at(X)[0] @ features.at(X)[0].T, X @ X.T, atol=1e-7)


def test_pivoted_cholesky_takes_the_rows_of_which_least_is_known():
    X, prior = inputs(50), prior_of(KERNEL)
    K = prior.covariance("X", X)
    chosen = PivotedCholesky(5).features(prior, X).points
    left = K.copy()
    for point in chosen:  # exact arithmetic on the whole matrix
        row = int(np.argmax(left.diagonal()))
        np.testing.assert_array_equal(X[row], point)
        left -= np.outer(left[row], left[row]) / left[row, row]


def test_a_column_that_the_kernel_ignores_takes_no_points():
    X = inputs(2000) * [1.0, 50.0]
    prior = prior_of(pm.gp.cov.ExpQuad(2, ls=0.2, active_dims=[0]))
    centres = np.sort(cluster_centres(prior, X, 20)[:, 0])
    # Twenty points spread over (-1, 1) in the column that counts: no gap of four distances.
    assert np.diff(centres).max() < 0.4
    assert Inducing(20).features(prior, X).at(X)[1].max() < 0.01


def test_fewer_distinct_rows_than_points():
    X = np.repeat(inputs(5), 30, axis=0)
    features = Inducing(20).features(prior_of(KERNEL), X)
    assert features.rank == 5
    assert features.at(X)[1].max() < 1e-6


def test_features_are_the_same_each_time_and_can_be_pickled():
    X, prior = inputs(400), prior_of(KERNEL)
    for kind in (Inducing(10), PivotedCholesky(10), HSGP(5)):
        features = kind.features(prior_of(KERNEL), X)
        again = kind.features(prior_of(KERNEL), X)
        np.testing.assert_array_equal(features.at(X)[0], again.at(X)[0])
    features = Inducing(10).features(Prior(**{**vars(prior), "mean_func": np.zeros_like}), X)
    copy = pickle.loads(pickle.dumps(features))
    np.testing.assert_array_equal(copy.at(X)[0], features.at(X)[0])


@pytest.mark.parametrize("active", [[0, 1], [1]])
def test_hsgp_is_the_one_of_pymc(active):
    kernel = 3.0 * pm.gp.cov.ExpQuad(2, ls=0.7, active_dims=active)
    X = inputs(30) + np.array([2.0, -1.0])
    m = [6, 4][: len(active)]
    phi, rest = HSGP(m, c=1.4).features(prior_of(kernel), X).at(X)
    with pm.Model():
        basis, root = pm.gp.HSGP(m=m, c=1.4, cov_func=kernel).prior_linearized(X)
    np.testing.assert_allclose(
        phi, (basis * root).eval(mode="FAST_COMPILE"), rtol=1e-10, atol=1e-14
    )
    np.testing.assert_array_equal(rest, 0.0)


@pytest.mark.filterwarnings("ignore:Only")  # PyMC on columns that a kernel leaves out
def test_hsgp_refuses_by_name():
    X = inputs(20)

    def refused(kernel, match, m=4):
        with pytest.raises(sg.ApproximationError, match=match):
            HSGP(m).features(prior_of(kernel), X).at(X)

    refused(pm.gp.cov.Linear(2, c=0.0), "PyMC has none of Linear")
    refused(KERNEL + pm.gp.cov.WhiteNoise(0.1), "none of Add of .*WhiteNoise")
    refused(lambda X, Xs=None, diag=False: np.eye(len(X)), "function of arrays")
    refused(KERNEL, "m has 3 entries", m=[4, 4, 4])
    one, other = (pm.gp.cov.ExpQuad(2, ls=1.0, active_dims=[j]) for j in (0, 1))
    refused(one + other, "same columns")
    with pytest.raises(sg.ApproximationError, match="at most 3 columns"):
        HSGP(4).features(prior_of(pm.gp.cov.ExpQuad(4, ls=1.0)), inputs(20, 4))
    with pytest.raises(sg.ApproximationError, match="beyond the box"):
        HSGP(4).features(prior_of(KERNEL), X).at(3.0 * X)
    with pytest.raises(sg.ApproximationError, match="constant"):
        HSGP(4).features(prior_of(KERNEL), X * [1.0, 0.0])


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Inducing(0), "points must be"),
        (lambda: Inducing([[np.nan]]), "NaN"),
        (lambda: PivotedCholesky(0), "r must be"),
        (lambda: HSGP(0), "m must be"),
        (lambda: HSGP(3, c=0.9), "c must be at least 1"),
        (lambda: Inducing([[0.0]]).features(prior_of(KERNEL), inputs(5)), "1 column"),
    ],
)
def test_impossible_settings(make, match):
    with pytest.raises(ValueError, match=match):
        make()
