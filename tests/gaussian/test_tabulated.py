"""Tabulated densities against SciPy's normals, and errors that replicates cannot see."""

from itertools import pairwise

import numpy as np
import pytest
from oracles import equicorrelated_cov, equicorrelated_log_prob
from rectangle_oracles import plane_log_prob
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import norm, truncnorm

from pymc_skewgp import mvn_logcdf, truncated_mvn
from pymc_skewgp._gaussian.covariance import DenseCovariance
from pymc_skewgp._gaussian.escalation import RectangleSampler
from pymc_skewgp._gaussian.tabulated import TabulatedDensity, tabulate, unseen_share

PROBS = np.array([1e-9, 1e-4, 0.1, 0.5, 0.77, 0.999, 1.0 - 1e-9])
# Straight lines between nodes an eighth apart leave the square by .002 nat, and what a correction
# may leave its line by is .01: a hundredth in probability, relative, and as much in quantiles.
CLOSE = 0.02


def one_sided(x):
    """A limit at -1 through noise of deviation .01: a cliff."""
    return norm.logcdf((x + 1.0) / 0.01)


def heavy(x):
    """Half of the square taken back to the left of 0: twice the variance there."""
    return np.where(x < 0, 0.25 * x**2, 0.0)


@pytest.mark.parametrize("correction", [np.zeros_like, one_sided, heavy])
@pytest.mark.parametrize("power", [1.0, 0.64])
def test_density_and_distribution_function_belong_together(correction, power):
    """The integral of the density by quadrature, node to node; round-off of both."""
    table = tabulate(correction).flattened(power)
    stops = table.nodes[:: max(1, table.nodes.size // 12)]
    for start, stop in pairwise(stops):
        inside = (table.nodes > start) & (table.nodes < stop)
        edges = np.concatenate([[start], table.nodes[inside], [stop]])
        mass = sum(
            quad(lambda x: np.exp(table.log_pdf(np.array([x]))[0]), *cell)[0]
            for cell in pairwise(edges)
        )
        low, high = table.cdf(np.array([start, stop]))
        assert high - low == pytest.approx(mass, abs=1e-11)
    assert table.cdf(np.array([-1e3, 1e3])) == pytest.approx([0.0, 1.0], abs=1e-15)
    np.testing.assert_allclose(table.cdf(table.quantile(PROBS)), PROBS, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize(
    ("correction", "exact"),
    [
        (np.zeros_like, norm()),
        (one_sided, truncnorm(-1.0, np.inf)),
        (lambda x: 0.5 * x, norm(0.5)),
        (lambda x: 0.4 * x**2, norm(0.0, 0.2**-0.5)),
    ],
    ids=["normal", "cut", "shifted", "wide"],
)
def test_quantiles(correction, exact):
    inner = PROBS[2:-1]  # the cliff of "cut" has a width of its own, .003 in probability
    found = tabulate(correction).quantile(inner)
    np.testing.assert_allclose(exact.cdf(found), inner, rtol=CLOSE)


def test_a_far_mode_is_not_believed():
    """A correction that grows faster than the square falls: a marginal here is log-concave."""
    table = tabulate(lambda x: np.where(np.abs(x) > 10.0, x**2, 0.0))
    assert (np.diff(table.slope) <= 1e-9).all()
    np.testing.assert_allclose(table.quantile(PROBS[1:-1]), norm.ppf(PROBS[1:-1]), atol=CLOSE)


def test_tails_that_do_not_fall_are_made_to():
    table = TabulatedDensity.of(np.array([0.0, 1.0, 2.0]), np.array([0.0, -1.0, 3.0]))
    assert table.slope[0] > 0 > table.slope[-1]
    assert table.cumulative[-1] == 1.0


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
