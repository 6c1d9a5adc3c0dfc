"""EP in few factorisations: the fixed point of `fit_ep`, its evidence and its gradient."""

import numpy as np
import pytest
from oracles import brute_log_prob, equicorrelated_cov, finite_difference

from pymc_skewgp._gaussian.covariance import DenseCovariance, LowRankCovariance
from pymc_skewgp._gaussian.ep import ep_gradient, fit_ep, fit_factors
from pymc_skewgp._gaussian.ep_dense import fit_dense_ep
from pymc_skewgp._gaussian.tilted import Intervals


def smooth_problem(n, variance, kind, seed=0):
    """Rows under an RBF kernel: labels with noise, separable ones, or ordered categories."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    f = x[:, 0] + np.sin(2.0 * x[:, 1])
    cov = variance * np.exp(-0.5 * ((x[:, None] - x) ** 2).sum(-1)) + np.eye(n)
    if kind == "ordered":
        edges = np.array([-np.inf, -1.0, 0.0, 1.0, np.inf]) * 0.5 * np.sqrt(variance)
        category = np.digitize(f + 0.5 * rng.normal(size=n), [-1.0, 0.0, 1.0])
        return cov, np.array([edges[category], edges[category + 1]])
    positive = f + (0.0 if kind == "separable" else 0.5) * rng.normal(size=n) > 0
    return cov, np.array([np.where(positive, 0.0, -np.inf), np.where(positive, np.inf, 0.0)])


def mixed_problem(seed, n=5):
    """A row of each kind: one limit, two, none, and one so far away that its site is weak."""
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(n, n))
    cov = factor @ factor.T / n + 0.3 * np.eye(n)
    lower, upper = rng.normal(-0.5, 1.0, n), np.full(n, np.inf)
    upper[1] = lower[1] + 0.7
    lower[2], upper[2] = -np.inf, 0.3
    lower[3] = -7.0
    lower[4] = -np.inf
    return cov, np.array([lower, upper])


def assert_same(found, cov, limits, tol):
    expected = fit_ep(DenseCovariance(cov), *limits, tol=tol, max_sweeps=1000)
    assert found.residual < tol
    assert found.log_prob == pytest.approx(expected.log_prob, rel=1e-9, abs=1e-8)
    # Both are off by their residual over 1 less the rate of the iteration, at most .95 here.
    sd = np.sqrt(expected.variance)
    np.testing.assert_allclose(found.mean / sd, expected.mean / sd, atol=20.0 * tol)
    np.testing.assert_allclose(found.variance / sd**2, 1.0, atol=20.0 * tol)
    share = np.sqrt(cov.diagonal())
    np.testing.assert_allclose(found.weights * share, expected.weights * share, atol=1e-5)


@pytest.mark.parametrize("variance", [4.0, 1000.0])
@pytest.mark.parametrize("kind", ["noisy", "separable", "ordered"])
def test_the_fixed_point_in_fewer_sweeps(kind, variance):
    cov, limits = smooth_problem(90, variance, kind)
    found = fit_dense_ep(cov, limits, tol=1e-8).ep
    assert_same(found, cov, limits, 1e-8)
    plain = fit_factors(DenseCovariance(cov), Intervals(*limits), tol=1e-8)
    assert found.n_sweeps <= 0.6 * plain.n_sweeps


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_every_kind(seed):
    cov, limits = mixed_problem(seed)
    found = fit_dense_ep(cov, limits, tol=1e-10).ep
    assert_same(found, cov, limits, 1e-10)
    assert found.tau[4] == found.nu[4] == 0.0
    part = slice(1, 4)
    found = fit_dense_ep(cov[part, part], limits[:, part], tol=1e-10).ep
    # EP is off by hundredths of a nat, here by less than .01.
    truth = brute_log_prob(*limits[:, part], cov[part, part])
    assert found.log_prob == pytest.approx(truth, abs=0.02)


def dense_gradient(cov, limits):
    return fit_dense_ep(cov, limits, tol=1e-11).gradient


def plain_gradient(cov, limits):
    made = DenseCovariance(cov)
    return ep_gradient(made, fit_ep(made, *limits, tol=1e-11), *limits)


def low_rank_gradient(cov, limits):
    values, vectors = np.linalg.eigh(cov)
    least = 0.5 * values[0]
    made = LowRankCovariance(np.full(len(cov), least), vectors * np.sqrt(values - least))
    return ep_gradient(made, fit_ep(made, *limits, tol=1e-11), *limits)


@pytest.mark.parametrize("gradient_of", [dense_gradient, plain_gradient, low_rank_gradient])
@pytest.mark.parametrize("seed", range(2))
def test_gradient_is_that_of_the_value(seed, gradient_of):
    cov, limits = mixed_problem(seed)
    gradient = gradient_of(cov, limits)

    def value(direction, step):
        return fit_dense_ep(cov + direction, limits + step, tol=1e-11).ep.log_prob

    # Fourth-order differences with h = 1e-3: 1e-12, and EP's own round-off, 1e-12, over h.
    rng = np.random.default_rng(seed + 100)
    for _ in range(3):
        direction = 0.1 * rng.normal(size=cov.shape)
        direction += direction.T
        slope = finite_difference(lambda t, d=direction: value(t * d, 0.0), 0.0)
        assert np.sum(gradient.cov * direction) == pytest.approx(float(slope), abs=1e-8)
        step = rng.normal(size=limits.shape)
        slope = finite_difference(lambda t, s=step: value(0.0, t * s), 0.0)
        by_limits = np.sum(gradient.lower * step[0] + gradient.upper * step[1])
        assert by_limits == pytest.approx(float(slope), abs=1e-8)
    np.testing.assert_array_equal(gradient.cov, gradient.cov.T)
    assert gradient.lower[4] == gradient.upper[4] == 0.0


def test_results_do_not_share_memory():
    cov, limits = smooth_problem(30, 4.0, "noisy")
    first = fit_dense_ep(cov, limits, tol=1e-6)
    kept = [x.copy() for x in (*first.gradient, first.ep.mean, first.ep.tau)]
    fit_dense_ep(2.0 * cov, limits, tol=1e-6)
    for x, y in zip(kept, (*first.gradient, first.ep.mean, first.ep.tau), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_rows_that_make_the_plain_iteration_oscillate(sign):
    cov, limits = equicorrelated_cov(70, 0.8), np.array([np.full(70, sign), np.full(70, np.inf)])
    assert_same(fit_dense_ep(cov, limits, tol=1e-6).ep, cov, limits, 1e-6)


def test_nothing_where_it_makes_no_progress():
    cov, limits = smooth_problem(30, 4.0, "noisy")
    assert fit_dense_ep(cov, limits, tol=1e-8, max_sweeps=2) is None
    assert fit_dense_ep(cov, limits, tol=-1.0) is None
    assert fit_dense_ep(np.where(np.eye(30) > 0, cov, np.nan), limits, tol=1e-6) is None
    indefinite = cov - 40.0 * np.outer(np.ones(30), np.ones(30))
    np.fill_diagonal(indefinite, 1.0)
    assert fit_dense_ep(indefinite, limits, tol=1e-6) is None
