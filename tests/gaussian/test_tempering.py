"""Tempering: right where importance weights are poor, with an honest error.

The problem: 20 equicorrelated rows above 0, and a proposal whose sites are raised to the power .02:
its relative ESS is .25 to .33 (at correlation .95 it would be .77: one coordinate then says
nearly all, and it is drawn from its exact conditional). Exact answers are by quadrature.
"""

import numpy as np
import pytest
from oracles import equicorrelated_cov, equicorrelated_log_prob
from scipy import special, stats

from pymc_skewgp._gaussian.covariance import DenseCovariance
from pymc_skewgp._gaussian.ep import fit_ep
from pymc_skewgp._gaussian.tempering import _next_rise, temper
from pymc_skewgp._gaussian.twisted import twist
from pymc_skewgp._gaussian.weights import (
    log_mean_exp,
    relative_ess,
    spread_of_replicates,
    uniform_points,
)

N, RHO, REPLICATES = 20, 0.2, 8
LOWER, UPPER = np.zeros(N), np.full(N, np.inf)


def poor_proposal(rho=RHO, relax=0.02):
    cov = DenseCovariance(equicorrelated_cov(N, rho))
    return twist(cov, fit_ep(cov, LOWER, UPPER), LOWER, UPPER, relax=relax)


def run(proposal, seed, per_replicate=100):
    rng = np.random.default_rng(seed)
    points = uniform_points(proposal.n_dims, per_replicate, REPLICATES, rng)
    return temper(proposal, points, REPLICATES, rng)


@pytest.fixture(scope="module", params=[0.2, 0.5])
def runs(request):
    """Correlation, plain relative ESS, and 20 runs of tempering."""
    rho = request.param
    proposal = poor_proposal(rho)
    points = uniform_points(N, 100, REPLICATES, np.random.default_rng(99))
    plain = relative_ess(proposal.draw(points)[1])
    return rho, plain, [run(proposal, seed) for seed in range(20)]


def test_the_problem_is_hard_enough(runs):
    _, plain, batches = runs
    assert plain < 0.5
    assert all(batch.n_stages >= 2 for batch in batches)


def test_evidence_is_unbiased_and_its_error_honest(runs):
    """160 replicates: their mean within 5 standard errors of the truth (6e-7 false alarms).

    20 runs of 8 replicates: |error|/SE is about Student t with 7 degrees of freedom, above 4.8 once
    in 500; of 20 at most 3 may lie above its 90% point: binomial(20, .1) beyond 7 is 4e-4.
    """
    rho, _, batches = runs
    exact = equicorrelated_log_prob(LOWER, UPPER, rho)
    ratios = np.exp(np.array([batch.log_probs for batch in batches]) - exact)
    error = ratios.std(ddof=1) / np.sqrt(ratios.size)
    assert abs(ratios.mean() - 1.0) < 5 * error
    scores = []
    for batch in batches:
        value = log_mean_exp(batch.log_probs)
        scores.append(abs(value - exact) / spread_of_replicates(batch.log_probs, value))
    scores = np.array(scores)
    assert (scores > stats.t(7).ppf(0.95)).sum() <= 7
    assert scores.max() < stats.t(7).ppf(1 - 1e-5)


class Narrow:
    """A proposal whose target is N(0, 1 / (1 + p)): log P is -N/2 log(1 + p)."""

    n_dims = N

    def __init__(self, precision):
        self.precision = precision

    def draw(self, points):
        z = special.ndtri(points)
        return z, -0.5 * self.precision * (z**2).sum(axis=0)


def test_it_ends_where_the_target_is_out_of_reach():
    """A target a ten thousandth as wide: 60 stages at the most, and no error that looks small."""
    batch = run(Narrow(1e8), 0, per_replicate=48)
    assert batch.n_stages == 60
    assert np.isfinite(batch.log_probs).all()
    value = log_mean_exp(batch.log_probs)
    exact = -0.5 * N * np.log1p(1e8)
    assert value < exact  # the particles never got there
    assert spread_of_replicates(batch.log_probs, value) > 1e5
    assert batch.pareto_k == np.inf


def test_patience_is_enough_for_what_can_be_done():
    """Targets ten times narrower: the stages that their weights ask for, and the right answer."""
    exact = -0.5 * N * np.log1p(100.0)
    batch = run(Narrow(1e2), 0, per_replicate=256)
    value = log_mean_exp(batch.log_probs)
    error = spread_of_replicates(batch.log_probs, value)
    assert batch.n_stages < 30
    # Student t with 7 degrees of freedom: 1e-4.
    assert abs(value - exact) < 7.9 * error


def test_next_rise():
    rng = np.random.default_rng(0)
    log_weights = 5.0 * rng.normal(size=1000)
    rise = _next_rise(log_weights, 1.0)
    assert 0 < rise < 1
    assert relative_ess(rise * log_weights) == pytest.approx(0.5, abs=1e-3)
    assert _next_rise(0.01 * log_weights, 0.7) == 0.7
