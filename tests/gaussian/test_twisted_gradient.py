"""The gradient along the draws is that of the value, at fixed points, sites constant or not."""

import numpy as np
import pytest
from oracles import finite_difference

from pymc_skewgp._gaussian.covariance import DenseCovariance
from pymc_skewgp._gaussian.ep import fit_ep
from pymc_skewgp._gaussian.twisted import (
    CompiledDraws,
    NumpyDraws,
    twist,
    twisted_draws,
    weight_gradient,
)
from pymc_skewgp._gaussian.weights import log_mean_exp, uniform_points

INF = np.inf
SIDES = {
    "lower": (lambda n: np.linspace(-1.0, 0.5, n), lambda n: np.full(n, INF)),
    "upper": (lambda n: np.full(n, -INF), lambda n: np.linspace(-0.5, 1.0, n)),
    "both": (lambda n: np.linspace(-1.5, 0.0, n), lambda n: np.linspace(0.1, 2.0, n)),
    "mixed": (
        lambda n: np.where(np.arange(n) % 3 == 0, -INF, np.linspace(-1.5, 0.0, n)),
        lambda n: np.where(np.arange(n) % 3 == 1, INF, np.linspace(0.1, 2.0, n)),
    ),
    "tails": (lambda n: np.linspace(4.0, 9.0, n), lambda n: np.full(n, INF)),
}


def problem(n, sides):
    rng = np.random.default_rng(n)
    factor = rng.normal(size=(n, n))
    low, high = SIDES[sides]
    return low(n), high(n), factor @ factor.T / n + 0.3 * np.eye(n)


def shifted(limits, step):
    """Finite limits moved by `step`."""
    return np.where(np.isfinite(limits), limits + step, limits)


@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("relax", [1.0, 0.5])
@pytest.mark.parametrize("moving", [False, True], ids=["fixed sites", "sites of their own"])
# 70 rows: more than one block of the recursion.
@pytest.mark.parametrize("n", [3, 70])
def test_gradient_is_that_of_the_value(n, sides, relax, moving):
    low, high, cov = problem(n, sides)
    ep = fit_ep(DenseCovariance(cov), low, high, tol=1e-11)
    order = np.random.default_rng(2).permutation(n)
    points = uniform_points(n, 32, 1, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    step_low, step_high = rng.normal(size=(2, n))
    step_cov = rng.normal(size=(n, n)) / n
    step_cov = step_cov + step_cov.T

    def draw(t):
        lower, upper = shifted(low, t[0] * step_low), shifted(high, t[1] * step_high)
        there = DenseCovariance(cov + t[2] * step_cov)
        sites = fit_ep(there, lower, upper, tol=1e-11, start=ep) if moving else ep
        proposal = twist(there, sites, lower, upper, relax=relax, order=order)
        return proposal, proposal.draw(points)[1]

    proposal, log_weights = draw(np.zeros(3))
    gradient = weight_gradient(
        DenseCovariance(cov),
        proposal,
        NumpyDraws(proposal, points),
        ep=ep if moving else None,
        relax=relax,
    )
    assert gradient.value == pytest.approx(log_mean_exp(log_weights), abs=1e-9)
    along = [gradient.lower @ step_low, gradient.upper @ step_high, (gradient.cov * step_cov).sum()]
    # The difference quotient: h^4 times a fifth derivative, and 1e-12 of round-off over h.
    expected = finite_difference(lambda t: log_mean_exp(draw(t)[1]), np.zeros(3), 1e-4)
    np.testing.assert_allclose(along, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())
    np.testing.assert_array_equal(gradient.lower[np.isinf(low)], 0.0)
    np.testing.assert_array_equal(gradient.upper[np.isinf(high)], 0.0)
    np.testing.assert_array_equal(gradient.cov, gradient.cov.T)


@pytest.mark.parametrize("sides", ["lower", "upper", "either", "above"])
@pytest.mark.parametrize("relax", [1.0, 0.5])
def test_compiled_draws_are_those_of_numpy(sides, relax):
    n = 35  # more than one block, and not a multiple of four
    low, high, cov = problem(n, sides if sides in SIDES else "lower")
    if sides == "either":
        below = np.arange(n) % 2 == 0
        low, high = np.where(below, -0.3, -INF), np.where(below, INF, 0.8)
    elif sides == "above":  # in the tail, as far as the formulas hold
        low = np.linspace(0.5, 3.5, n)
    covariance = DenseCovariance(cov)
    ep = fit_ep(covariance, low, high, tol=1e-8)
    proposal = twist(covariance, ep, low, high, relax=relax)
    points = uniform_points(n, 64, 1, np.random.default_rng(0))
    expected, found = NumpyDraws(proposal, points), twisted_draws(proposal, points, True)
    assert isinstance(found, CompiledDraws)
    # Round-off of a recursion of 35 steps, and of differences of products.
    np.testing.assert_allclose(found.log_weights, expected.log_weights, atol=1e-10)
    weights = np.random.default_rng(1).dirichlet(np.ones(64))
    pairs = zip(found.sums(weights), expected.sums(weights), strict=True)
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8 * np.abs(theirs).max())


@pytest.mark.parametrize("sides", ["both", "mixed", "far"])
def test_two_limits_or_a_far_tail_are_not_drawn_by_compiled_loops(sides):
    low, high, cov = problem(6, "lower" if sides == "far" else sides)
    if sides == "far":
        low, cov = np.full(6, 12.0), np.eye(6)
    covariance = DenseCovariance(cov)
    proposal = twist(covariance, fit_ep(covariance, low, high), low, high)
    points = uniform_points(6, 16, 1, np.random.default_rng(0))
    assert isinstance(twisted_draws(proposal, points, True), NumpyDraws)
