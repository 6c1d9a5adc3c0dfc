"""Draws of truncated Gaussians that are independent of each other, and exact ones of small ones.

Monte Carlo means of exact draws are within 4.5 of their standard errors: false-alarm rate 7e-6 a
statistic.
"""

from itertools import pairwise

import numpy as np
import pytest
from oracles import equicorrelated_cov, equicorrelated_log_prob, equicorrelated_moments
from rectangle_oracles import plane_log_prob
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import kstest, norm, truncnorm

from pymc_skewgp import mvn_logcdf, truncated_mvn
from pymc_skewgp._gaussian import independent
from pymc_skewgp._gaussian.covariance import DenseCovariance
from pymc_skewgp._gaussian.escalation import RectangleSampler, SamplerSettings
from pymc_skewgp._gaussian.independent import draw_by_rejection, independent_draws
from pymc_skewgp._gaussian.tabulated import TabulatedDensity, tabulate, unseen_share

INF = np.inf


def check_moments(draws, low, high, rho, z):
    """First and second moments within z standard errors of independent draws."""
    first, second = equicorrelated_moments(low, high, rho)
    error = draws.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - first) < z * error).all()
    products = draws[:, :, None] * draws[:, None, :]
    error = products.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(products.mean(axis=0) - second) < z * error).all()


@pytest.mark.parametrize(
    ("n", "rho", "low", "high"),
    [(3, 0.5, -1.0, 0.5), (10, 0.9, 1.0, INF), (40, 0.5, 0.0, INF), (4, 0.3, -INF, INF)],
)
def test_moments(n, rho, low, high):
    low, high = np.full(n, low), np.full(n, high)
    rng = np.random.default_rng(n)
    draws = independent_draws(DenseCovariance(equicorrelated_cov(n, rho)), low, high, 10_000, rng)
    assert draws.shape == (10_000, n)
    assert ((draws >= low) & (draws <= high)).all()
    # Up to 1640 dependent numbers: 5.5 standard errors are a false alarm in 6e-5 of all seeds.
    # What the chains remember of their start, 1e-3, is a tenth of a standard error.
    check_moments(draws, low, high, rho, 5.5)


def test_draws_are_independent_of_each_other():
    """The variance of a mean of k draws is a k-th of one draw's: evenly spread points have less."""
    low, high, k = np.zeros(3), np.full(3, INF), 16
    cov = DenseCovariance(equicorrelated_cov(3, 0.5))
    rng = np.random.default_rng(6)
    means = np.array([independent_draws(cov, low, high, k, rng).mean() for _ in range(300)])
    first, second = equicorrelated_moments(low, high, 0.5)
    exact = (second.sum() / 9 - first.mean() ** 2) / k
    # A sample variance of 300 has a relative standard error of .082: 4.5 of them, 7e-6.
    assert abs(means.var(ddof=1) / exact - 1.0) < 0.37
    assert means.mean() == pytest.approx(first.mean(), abs=4.5 * np.sqrt(exact / 300))


def test_where_rejection_gives_up_chains_take_over(monkeypatch):
    answers = iter([np.full(2, 0.5), None, np.full(2, 0.5)])
    monkeypatch.setattr(independent, "draw_by_rejection", lambda *_: next(answers))
    cov = DenseCovariance(equicorrelated_cov(2, 0.5))
    draws = independent_draws(cov, np.zeros(2), np.full(2, INF), 3, np.random.default_rng(9))
    assert draws.shape == (3, 2)
    assert np.unique(draws).size == 6


def test_where_chains_would_be_long_draws_are_picked_from_weighted_ones():
    settings = SamplerSettings(max_chain_steps=0)
    low, high = np.zeros(4), np.full(4, INF)
    cov = DenseCovariance(equicorrelated_cov(4, 0.5))
    draws = independent_draws(cov, low, high, 4000, np.random.default_rng(8), settings)
    assert draws.shape == (4000, 4)
    # Picked with replacement from 16 000 evenly spread draws: their error is that of picking.
    check_moments(draws, low, high, 0.5, 5)


def draws(n, mean, cov, lower, upper, seed=0):
    rng = np.random.default_rng(seed)
    x = [draw_by_rejection(mean, cov, lower, upper, rng) for _ in range(n)]
    assert all(row is not None for row in x)
    return np.array(x)


@pytest.mark.parametrize(("lower", "upper"), [(0.0, np.inf), (12.0, np.inf), (-0.3, 0.2)])
def test_one_dimension_is_the_truncated_normal(lower, upper):
    """Kolmogorov-Smirnov at p = 1e-4."""
    x = draws(2000, np.array([0.5]), np.array([[4.0]]), np.array([lower]), np.array([upper]))
    reference = truncnorm((lower - 0.5) / 2, (upper - 0.5) / 2, loc=0.5, scale=2)
    assert kstest(x[:, 0], reference.cdf).pvalue > 1e-4


@pytest.mark.parametrize(("size", "rho", "limit"), [(3, 0.9, -1.0), (12, 0.6, 2.0)])
def test_moments_of_equicorrelated_variables(size, rho, limit):
    """Plain and tilted proposals: 12 rows above 2 have probability 1e-7."""
    lower, upper = np.full(size, limit), np.full(size, np.inf)
    x = draws(800, np.zeros(size), equicorrelated_cov(size, rho), lower, upper)
    # Up to 90 dependent numbers: 5 standard errors are a false alarm in 5e-5 of all seeds.
    check_moments(x, lower, upper, rho, 5)


def test_rows_that_nearly_contradict_each_other():
    """40 of correlation .999, every other one above 0 and the rest below."""
    signs = np.where(np.arange(40) % 2, 1.0, -1.0)
    cov = equicorrelated_cov(40, 0.999) * signs * signs[:, None]
    x = draws(3, np.zeros(40), cov, np.zeros(40), np.full(40, np.inf))
    assert (x > 0).all()


@pytest.mark.parametrize("gives_up", ["_PLAIN", "_NEWTON_STEPS"])
def test_none_when_all_is_rejected(monkeypatch, gives_up):
    monkeypatch.setattr(independent, "_PLAIN", ())
    monkeypatch.setattr(independent, "_TILTED", ())
    if gives_up == "_NEWTON_STEPS":
        monkeypatch.setattr(independent, "_NEWTON_STEPS", 0)
    args = np.zeros(3), equicorrelated_cov(3, 0.5), np.full(3, 1.0), np.full(3, np.inf)
    assert draw_by_rejection(*args, np.random.default_rng(0)) is None


# Tabulated densities against SciPy's normals, and errors that replicates cannot see.


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
