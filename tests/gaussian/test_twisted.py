"""The twisted sampler: unbiased weights and right draws, whatever the twist.

Stochastic tests: expectations are within 5 standard errors that come from 16 independent
replicates, a Student t with 15 degrees of freedom: false-alarm rate 1.6e-4 a statistic for
Monte Carlo on its own; seeds are fixed, so an alarm is a change of the code.
"""

from dataclasses import replace

import numpy as np
import pytest
from oracles import equicorrelated_cov, equicorrelated_log_prob

from pymc_skewgp._gaussian.covariance import DenseCovariance
from pymc_skewgp._gaussian.ep import EPResult, fit_ep
from pymc_skewgp._gaussian.escalation import DEFAULT
from pymc_skewgp._gaussian.twisted import CompiledDraws, NumpyDraws, twist, twisted_draws
from pymc_skewgp._gaussian.weights import log_mean_exp, relative_ess, uniform_points

REPLICATES = 16
SIGMAS = 5.0
TWISTS = [(1.0, None), (0.6, None), (0.2, None), (1.0, 0.64), (0.35, 0.64), (0.6, 0.4)]


def draw(cov, lower, upper, *, relax=1.0, power=None, n=256, seed=0, ep=None):
    form = DenseCovariance(cov) if isinstance(cov, np.ndarray) else cov
    ep = fit_ep(form, lower, upper) if ep is None else ep
    proposal = twist(form, ep, lower, upper, relax=relax, power=power)
    points = uniform_points(proposal.n_dims, n, REPLICATES, np.random.default_rng(seed))
    return proposal.draw(points)


def replicate_ratios(log_weights, exact):
    """Each replicate's estimate of P over P."""
    return np.array([np.exp(log_mean_exp(b) - exact) for b in log_weights.reshape(REPLICATES, -1)])


def assert_unbiased(log_weights, exact, unseen=0.0):
    ratios = replicate_ratios(log_weights, exact)
    error = ratios.std(ddof=1) / np.sqrt(REPLICATES)
    # 1e-11: quadrature and round-off, where the weights are all but constant.
    assert abs(ratios.mean() - 1.0) < SIGMAS * error + unseen + 1e-11


def limits(kind, n):
    rng = np.random.default_rng(n)
    lower, upper = np.zeros(n), np.full(n, np.inf)
    if kind == "orthant":
        return lower, upper
    if kind == "upper":
        return -upper, rng.normal(size=n)
    if kind == "two-sided":
        lower = rng.normal(-0.5, 0.7, n)
        return lower, lower + rng.uniform(0.3, 2.0, n)
    lower, upper = rng.normal(-1.0, 1.0, n), np.full(n, np.inf)  # mixed
    lower[::3], upper[::3] = -np.inf, rng.normal(0.5, 0.5, upper[::3].size)
    upper[1::3] = lower[1::3] + 0.5
    lower[2] = -np.inf
    return lower, upper


@pytest.mark.parametrize(("relax", "power"), TWISTS)
@pytest.mark.parametrize("kind", ["orthant", "upper", "two-sided", "mixed"])
@pytest.mark.parametrize(("n", "rho"), [(12, 0.5), (70, 0.8)])
def test_mean_weight_is_unbiased(n, rho, kind, relax, power):
    """70 rows cross the border between two blocks of rows. 48 cases.

    At rho = .8 with limits at random the weights are skewed (Pareto k .3 to .6): draws rarer than 1
    in 4096 hold .1% of the mean, and quasi-random replicates that all lack them agree too well.
    """
    lower, upper = limits(kind, n)
    exact = equicorrelated_log_prob(lower, upper, rho)
    cov = equicorrelated_cov(n, rho)
    _, log_weights = draw(cov, lower, upper, relax=relax, power=power)
    assert_unbiased(log_weights, exact, unseen=3e-3 if rho == 0.8 else 0.0)


def test_any_sites_are_unbiased():
    """Unbiasedness is an identity, not a property of EP's fixed point: sites at random."""
    n, rho = 8, 0.5
    lower, upper = limits("mixed", n)
    rng = np.random.default_rng(5)
    cov = DenseCovariance(equicorrelated_cov(n, rho))
    tau, nu = rng.uniform(0.0, 2.0, n), rng.normal(size=n)
    product = cov.site_product(tau, nu)
    ep = EPResult(tau, nu, product.mean, product.variance, product.weights, 0.0, 0, 0.0)
    _, log_weights = draw(cov, lower, upper, ep=ep, n=2048)
    assert_unbiased(log_weights, equicorrelated_log_prob(lower, upper, rho))


def test_a_given_order():
    """Rows drawn in a given order are permuted rows drawn as they come."""
    n = 12
    lower, upper = limits("mixed", n)
    factor = np.random.default_rng(3).normal(size=(n, n))
    cov = factor @ factor.T + np.eye(n)
    ep = fit_ep(DenseCovariance(cov), lower, upper)
    p = np.random.default_rng(4).permutation(n)
    points = uniform_points(n, 64, 1, np.random.default_rng(5))
    given = twist(DenseCovariance(cov), ep, lower, upper, order=p)
    u, log_weights = given.draw(points)
    np.testing.assert_array_equal(given.order, p)
    sites = replace(ep, tau=ep.tau[p], nu=ep.nu[p], mean=ep.mean[p], variance=ep.variance[p])
    permuted = DenseCovariance(cov[np.ix_(p, p)])
    v, others = twist(permuted, sites, lower[p], upper[p], order=np.arange(n)).draw(points)
    # Round-off, over a condition number of a few hundred.
    np.testing.assert_allclose(u[p], v, atol=1e-10)
    np.testing.assert_allclose(log_weights, others, atol=1e-10)


def test_twist_is_worth_its_while():
    """Relative effective sample sizes: near 1 with EP's sites, far below with none."""
    n = 40
    lower, upper = limits("orthant", n)
    cov = DenseCovariance(equicorrelated_cov(n, 0.2))
    ep = fit_ep(cov, lower, upper)
    assert relative_ess(draw(cov, lower, upper)[1]) > 0.75
    assert relative_ess(draw(cov, lower, upper, relax=1e-9, ep=ep)[1]) < 0.2


def test_a_prior_of_condition_number_1e9_does_not_blur_the_mean():
    """G^-1 m has to come from a solve: as nu - tau m, G would magnify its round-off by 1e8, and the
    proposal would sit beside EP's mean (relative ESS .4)."""
    rng = np.random.default_rng(3)
    x, sign = np.sort(rng.uniform(size=60)), rng.choice([-1.0, 1.0], 60)
    kernel = 1e7 * np.exp(-0.5 * (x[:, None] - x) ** 2)
    cov = sign[:, None] * kernel * sign + np.eye(60)
    _, log_weights = draw(cov, np.zeros(60), np.full(60, np.inf))
    assert relative_ess(log_weights) > 0.95


@pytest.mark.parametrize(
    ("limit", "skewed"), [(np.inf, True), (0.3, False)], ids=["one-sided", "narrow"]
)
def test_leading_direction_only_where_the_target_is_not_gaussian(limit, skewed):
    """All rows of one sign with one long lengthscale is skewed (skewness about 1 by weighted
    draws); thirty short intervals about the mean make a density that is nearly Gaussian."""
    cov = DenseCovariance(equicorrelated_cov(30, 0.9))
    upper = np.full(30, limit)
    lower = np.zeros(30) if skewed else -upper
    ep = fit_ep(cov, lower, upper)
    proposal = DEFAULT.first.twist(cov, ep, lower, upper)
    assert proposal.n_dims == 30 + skewed


@pytest.mark.parametrize("relax", [1.0, 0.6])
@pytest.mark.parametrize("kind", ["orthant", "upper", "two-sided", "mixed"])
@pytest.mark.parametrize(("n", "rho"), [(1, 0.0), (12, 0.5), (70, 0.8)])
def test_weights_of_given_points(n, rho, kind, relax):
    """Those that came with the draws. 1e-9: round-off of a solve with condition number 1e3."""
    lower, upper = limits(kind, max(n, 3))
    lower, upper = lower[:n], upper[:n]
    cov = DenseCovariance(equicorrelated_cov(n, rho))
    proposal = twist(cov, fit_ep(cov, lower, upper), lower, upper, relax=relax)
    u, log_weights = proposal.draw(np.random.default_rng(n).random((n, 50)))
    np.testing.assert_allclose(proposal.log_weights_of(u), log_weights, rtol=0, atol=1e-9)


def test_weights_of_points_outside_and_under_a_leading_direction():
    cov, upper = DenseCovariance(equicorrelated_cov(3, 0.5)), np.full(3, np.inf)
    ep = fit_ep(cov, np.zeros(3), upper)
    points = np.array([[1.0, 1.0], [1.0, -1e-9], [1.0, 1.0]])
    log_weights = twist(cov, ep, np.zeros(3), upper).log_weights_of(points)
    assert np.isfinite(log_weights[0])
    assert log_weights[1] == -np.inf
    with pytest.raises(ValueError, match="without a leading direction"):
        twist(cov, ep, np.zeros(3), upper, power=0.64).log_weights_of(points)


# Limits of the rows, given the number of each over that of all.
SIDES = {
    "lower": lambda x: (1.5 * x - 1.0, np.inf),
    "upper": lambda x: (-np.inf, 1.5 * x - 0.5),
    "either": lambda x: (np.where(x < 0.5, -0.3, -np.inf), np.where(x < 0.5, np.inf, 0.8)),
    "above": lambda x: (3.0 * x + 0.5, np.inf),  # in the tail, as far as the formulas hold
    "both": lambda x: (1.5 * x - 1.5, 2.0 * x + 0.1),
    "far": lambda x: (12.0, np.inf),
}


def on_sides(sides, n, relax=1.0):
    """A proposal, and uniform points for it."""
    factor = np.random.default_rng(n).normal(size=(n, n))
    cov = DenseCovariance(np.eye(n) if sides == "far" else factor @ factor.T / n + 0.3 * np.eye(n))
    low, high = (np.broadcast_to(x, n).astype(float) for x in SIDES[sides](np.arange(n) / n))
    proposal = twist(cov, fit_ep(cov, low, high, tol=1e-8), low, high, relax=relax)
    return proposal, uniform_points(n, 64, 1, np.random.default_rng(0))


@pytest.mark.parametrize("sides", ["lower", "upper", "either", "above"])
@pytest.mark.parametrize("relax", [1.0, 0.5])
def test_compiled_draws_are_those_of_numpy(sides, relax):
    made = on_sides(sides, 35, relax)  # more than one block, and not a multiple of four
    expected, found = NumpyDraws(*made), twisted_draws(*made, True)
    assert isinstance(found, CompiledDraws)
    # Round-off of a recursion of 35 steps, and of differences of products.
    np.testing.assert_allclose(found.log_weights, expected.log_weights, atol=1e-10)
    weights = np.random.default_rng(1).dirichlet(np.ones(64))
    pairs = zip(found.sums(weights), expected.sums(weights), strict=True)
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8 * np.abs(theirs).max())


@pytest.mark.parametrize("sides", ["both", "far"])
def test_two_limits_or_a_far_tail_are_not_drawn_by_compiled_loops(sides):
    assert isinstance(twisted_draws(*on_sides(sides, 6), True), NumpyDraws)
