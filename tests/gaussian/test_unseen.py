"""Errors that replicates cannot see: regions that no draw meets."""

import numpy as np
import pytest
from oracles import equicorrelated_cov, equicorrelated_log_prob
from rectangle_oracles import plane_log_prob
from scipy.special import ndtr

from pymc_skewgp import mvn_logcdf, truncated_mvn
from pymc_skewgp._gaussian.covariance import DenseCovariance
from pymc_skewgp._gaussian.escalation import RectangleSampler
from pymc_skewgp._gaussian.tabulated import unseen_share

SEEDS = range(60)


@pytest.mark.parametrize("goal", ["probability", "draws"])
def test_a_tail_that_later_rows_forbid(goal):
    """u_i = b_i t: t < 2.1 and t > -3.54, whose tail of 2e-4 a thousand draws hardly meet.

    Three quarters of the runs were beyond four stated errors. Now none may be: with Student's t of
    15 degrees of freedom one of 60 is with probability .07, but the seeds are fixed.
    """
    b = np.array([1.0, -1.0, -1.0, 1.0])
    cov, upper = np.outer(b, b) + 1e-9 * np.eye(4), np.array([2.1, 4.7, 3.54, 3.74])
    exact = np.log(ndtr(2.1) - ndtr(-3.54))
    for seed in SEEDS:
        if goal == "draws":
            estimate = truncated_mvn(cov, None, upper, random_seed=seed).log_prob
        else:
            estimate = mvn_logcdf(upper, cov, random_seed=seed)
        assert abs(estimate.value - exact) < 4.0 * estimate.std_error


def test_limits_that_no_draw_meets():
    """Four and five deviations out in a plane: all weights are 1, and the error is not 0."""
    loadings = np.random.default_rng(1).normal(size=(6, 2))
    cov = loadings @ loadings.T + 1e-11 * np.eye(6)
    upper = np.sqrt(cov.diagonal()) * np.linspace(4.2, 5.0, 6)
    exact = plane_log_prob(np.full(6, -np.inf), upper, loadings)
    assert -1e-4 < exact < -1e-6
    estimate = mvn_logcdf(upper, cov)
    assert abs(estimate.value - exact) < 4.0 * estimate.std_error
    assert estimate.std_error < 1e-3


def test_independent_rows_leave_nothing_unseen():
    # Their weights are constant: each step's normaliser does not depend on the others.
    cov = DenseCovariance(np.diag([1.0, 2.0, 3.0]))
    sampler = RectangleSampler(cov, np.full(3, 0.5), np.full(3, np.inf))
    assert unseen_share(sampler.first, 1000) < 1e-12


def test_more_draws_leave_less():
    lag = np.abs(np.subtract.outer(np.arange(12), np.arange(12)))
    sampler = RectangleSampler(DenseCovariance(0.8**lag), np.zeros(12), np.full(12, np.inf))
    shares = [unseen_share(sampler.first, n) for n in (100, 1000, 10_000)]
    assert shares[0] > shares[1] > shares[2] > 0.0


@pytest.mark.parametrize(("rho", "n", "limit"), [(0.5, 30, 4.9), (0.5, 30, 5.5), (0.5, 300, 6.5)])
def test_rows_that_all_but_hold_miss_mass_together(rho, n, limit):
    """Each row's missed tail has one sign: the sum, not the root of squares, is the error.

    Log probabilities of 1e-5 to 1e-8, by quadrature to some 1e-12; the seed is fixed.
    """
    exact = equicorrelated_log_prob(np.full(n, -np.inf), np.full(n, limit), rho)
    estimate = mvn_logcdf(np.full(n, limit), equicorrelated_cov(n, rho))
    assert abs(estimate.value - exact) < 2.5 * estimate.std_error + 1e-12
    assert estimate.std_error < 1e-4
