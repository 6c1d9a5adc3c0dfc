"""How EP's sites move, against finite differences of the fixed points themselves."""

import numpy as np
import pytest
from oracles import finite_difference

from pymc_skewgp._gaussian.covariance import DenseCovariance
from pymc_skewgp._gaussian.ep import fit_ep
from pymc_skewgp._gaussian.ep_dense import site_motion

INF = np.inf
N = 7
LIMITS = {
    "lower": (np.linspace(-1.0, 0.5, N), np.full(N, INF)),
    "upper": (np.full(N, -INF), np.linspace(-0.5, 1.0, N)),
    "both": (np.linspace(-1.5, 0.0, N), np.linspace(0.1, 2.0, N)),
    "mixed": (np.array([-INF, 0, -1, -INF, 0, -1, -9]), np.array([0.3, 2, INF, 1, INF, -0.9, INF])),
    "tails": (np.linspace(4.0, 9.0, N), np.full(N, INF)),
}


def problem(limits, scale):
    rng = np.random.default_rng(3)
    factor = rng.normal(size=(N, N))
    step_cov = rng.normal(size=(N, N)) / N
    lower, upper = LIMITS[limits]
    # Variances of 100 give sites of which each depends on all the others.
    cov = scale * factor @ factor.T / N + 0.3 * np.eye(N)
    return lower, upper, cov, step_cov + step_cov.T, *rng.normal(size=(4, N))


def moved(limits, step):
    return np.where(np.isfinite(limits), limits + step, limits)


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_motion_is_that_of_the_fixed_point(limits, scale):
    lower, upper, cov, step_cov, step_low, step_high, a, b = problem(limits, scale)

    def fit(t):
        low, high = moved(lower, t[0] * step_low), moved(upper, t[1] * step_high)
        return fit_ep(DenseCovariance(cov + t[2] * step_cov), low, high, tol=1e-11)

    def number(t):
        ep = fit(t)
        return a @ ep.nu + b @ ep.tau

    ep = fit(np.zeros(3))

    def marginals(t):
        product = DenseCovariance(cov + t * step_cov).site_product(ep.tau, ep.nu)
        return np.stack([product.mean, product.variance])

    # About the mean: at fixed nu - tau m, tau moves nu as well.
    posterior = DenseCovariance(cov).site_covariance(ep.tau)
    motion = site_motion(ep, posterior, lower, upper, a, b + ep.mean * a)
    by_cov = np.sum(np.stack([motion.mean, motion.variance]) * finite_difference(marginals, 0.0))
    found = [motion.lower @ step_low, motion.upper @ step_high, by_cov]
    expected = finite_difference(number, np.zeros(3), 1e-3)
    # h^4 times a fifth derivative, and EP's residual of 1e-11 over h.
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7 * np.abs(expected).max())
    np.testing.assert_array_equal(motion.lower[np.isinf(lower)], 0.0)
    np.testing.assert_array_equal(motion.upper[np.isinf(upper)], 0.0)
    # At the fixed point there is nothing left, up to the residual times the derivatives.
    assert abs(motion.value) < 1e-8 * (1.0 + abs(number(np.zeros(3))))


@pytest.mark.parametrize("limits", LIMITS)
def test_what_the_residual_leaves_is_of_second_order(limits):
    lower, upper, cov, *_, a, b = problem(limits, 10.0)
    cov = DenseCovariance(cov)
    exact = fit_ep(cov, lower, upper, tol=1e-11)
    for tol in (0.03, 1e-3):
        ep = fit_ep(cov, lower, upper, tol=tol)
        posterior = cov.site_covariance(ep.tau)
        motion = site_motion(ep, posterior, lower, upper, a, b + ep.mean * a)
        step = np.concatenate([a * (exact.nu - ep.nu), b * (exact.tau - ep.tau)])
        # Curvatures of a few units, in terms that may cancel in their sum.
        assert abs(motion.value - step.sum()) <= 10.0 * ep.residual * np.abs(step).sum() + 1e-9


def test_sites_of_gaussian_marginals_do_not_move():
    # Far limits: the tilted marginals are Gaussian, and nothing in the sites depends on anything.
    cov = DenseCovariance(np.eye(3) + 0.5)
    lower, upper = np.full(3, -60.0), np.full(3, INF)
    ep = fit_ep(cov, lower, upper)
    motion = site_motion(ep, cov.matrix, lower, upper, np.ones(3), np.ones(3))
    for values in motion:
        np.testing.assert_allclose(values, 0.0, atol=1e-12)
