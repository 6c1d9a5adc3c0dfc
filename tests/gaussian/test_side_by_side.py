"""Several small rectangles at once: the draws of each one alone, and orthants in closed form."""

import numpy as np
import pytest
from oracles import brute_log_prob

from pymc_skewgp._gaussian.escalation import draw_side_by_side, twist_dense


def problem(seed, n=6):
    """Rows with one limit, two, or none."""
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(n, n))
    lower, upper = np.full(n, 0.0), np.full(n, np.inf)
    lower[1], upper[1] = -np.inf, 0.3 + 0.1 * seed
    lower[2], upper[2] = -0.4, 1.0
    lower[3:4] = -np.inf
    return factor @ factor.T / n + 0.5 * np.eye(n), lower, upper


def fitted(seeds, n=6):
    order, found = None, []
    for seed in seeds:
        found.append(twist_dense(*problem(seed, n), tol=1e-6, order=order).proposal)
        order = found[0].order
    return found


def test_each_as_if_it_were_alone():
    proposals = fitted(range(5))
    points = np.random.default_rng(0).random((6, 5, 40))
    u, log_weights = draw_side_by_side(proposals, points)
    for b, proposal in enumerate(proposals):
        alone, weights = proposal.draw(points[:, b].copy())
        np.testing.assert_allclose(u[b], alone, atol=1e-12)
        np.testing.assert_allclose(log_weights[b], weights, atol=1e-12)


def test_mean_weights_are_probabilities():
    """Three rows, by nested quadrature."""
    proposals = fitted([0, 1], 3)
    _, log_weights = draw_side_by_side(proposals, np.random.default_rng(1).random((3, 2, 20_000)))
    for seed, weights in enumerate(np.exp(log_weights)):
        cov, lower, upper = problem(seed, 3)
        error = weights.std() / weights.mean() / np.sqrt(weights.size)
        exact = brute_log_prob(lower, upper, cov)
        # A false alarm in 16000.
        assert np.log(weights.mean()) == pytest.approx(exact, abs=4.0 * error)


def test_where_ep_is_stuck_there_is_no_proposal():
    cov, lower, upper = problem(0)
    assert twist_dense(np.full_like(cov, np.nan), lower, upper, tol=1e-3) is None
