"""The escalation policy: each rung is reached, and the last one hands over what it should."""

from dataclasses import replace

import numpy as np
import pytest
from oracles import equicorrelated_cov, equicorrelated_log_prob, equicorrelated_moments

from pymc_skewgp._errors import DoublePrecisionError, no_warnings
from pymc_skewgp._gaussian import escalation as runs
from pymc_skewgp._gaussian.covariance import DenseCovariance
from pymc_skewgp._gaussian.escalation import (
    DEFAULT,
    N_REPLICATES,
    GoalSettings,
    RectangleSampler,
    Rung,
    SamplerSettings,
    first_accepted,
)
from pymc_skewgp._gaussian.tempering import TemperedDraws
from pymc_skewgp._gaussian.weights import Estimate, normalized_weights

N = 6
COV = DenseCovariance(equicorrelated_cov(N, 0.5))
LOWER, UPPER = np.zeros(N), np.full(N, np.inf)
NEVER = 2.0  # a relative ESS that no run reaches
LAST = SamplerSettings(draws=GoalSettings(NEVER, NEVER))


def sample(goal="draws", n_draws=256, seed=0, **kwargs):
    rng = np.random.default_rng(seed)
    sampler = RectangleSampler(COV, LOWER, UPPER, kwargs.pop("settings", DEFAULT))
    return sampler.sample(n_draws, rng, goal=goal, **kwargs)


def fake_temper(log_probs):
    """Tempering whose replicates are named: draws of replicate r of batch b are 100 b + r."""
    batches = iter(range(100))

    def temper(proposal, points, n_replicates, rng):
        batch = next(batches)
        per_replicate = points.shape[1] // n_replicates
        names = 100 * batch + np.repeat(np.arange(n_replicates), per_replicate)
        return TemperedDraws(np.tile(names, (N, 1)), log_probs[batch], 0.1, 2, 5, 0.4)

    return temper


def test_tempered_draws_carry_the_weight_of_their_replicate(monkeypatch):
    """The standard error is that of the mean of 16 numbers; draws are weighted by their own one."""
    log_probs = np.log(np.tile([1.0, 1.2, 0.9, 1.1, 0.8, 1.0, 1.1, 0.9], 2))
    monkeypatch.setattr(runs, "temper", fake_temper([log_probs]))
    result = sample(settings=LAST)
    probs = np.exp(log_probs)
    assert result.method == "tempered"
    assert result.log_prob.value == pytest.approx(np.log(probs.mean()))
    error = probs.std(ddof=1) / probs.mean() / np.sqrt(N_REPLICATES)
    assert result.log_prob.std_error == pytest.approx(error)
    replicate = result.u[0].astype(int)
    np.testing.assert_allclose(result.log_weights, log_probs[replicate])
    assert set(replicate) == set(range(N_REPLICATES))
    assert result.log_prob.relative_ess == pytest.approx(1 / (1 + 256 * error**2))


def test_large_problems_temper_from_the_first_proposal():
    """Without a second factorisation; a draw of an equicorrelated Gaussian has a known mean."""
    # Without rungs to go on to, trying one would raise.
    settings = replace(LAST, large=N - 1, accept_large=NEVER, wider=(), wider_large=())
    result = sample(n_draws=4096, settings=settings)
    assert result.method == "tempered"
    log_prob = result.log_prob
    assert abs(log_prob.value + np.log(N + 1)) < 4 * log_prob.std_error + 1e-3
    mean = equicorrelated_moments(LOWER, UPPER, 0.5)[0]
    # Four standard errors of 4096 independent draws (a coordinate has a deviation of .6), doubled
    # for particles that share ancestors.
    found = result.u @ normalized_weights(result.log_weights)
    assert np.abs(found - mean).max() < 8 * 0.6 / np.sqrt(4096)


@pytest.mark.parametrize(("hair", "width"), [(1e-7, 1e-8), (1e-8, 1e-12), (1e-8, 1e-7)])
def test_limits_beyond_double_precision_are_refused_by_name(hair, width):
    """Slabs about a point of a singular covariance: log probabilities of 1e13 came out."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(30, 3))
    cov = root @ root.T + hair * np.eye(30)
    centre = np.linalg.cholesky(cov) @ rng.normal(size=30)
    low, high = centre - width, centre + width
    with (
        no_warnings(),
        np.errstate(all="ignore"),
        pytest.raises(DoublePrecisionError, match="double precision"),
    ):
        RectangleSampler(DenseCovariance(cov), low, high).sample(256, rng, goal="draws")


@pytest.mark.parametrize(("variance", "n"), [(9.0, 30), (30.0, 60), (100.0, 100)])
def test_errors_of_draws_are_honest_where_the_target_is_skewed(variance, n):
    """One class only, one long lengthscale: beyond the data's reach the tail is the prior's.

    Evidence and mean over 16 seeds against quadrature. Errors over stated errors have Student's t
    with 15 degrees of freedom at most: a mean square of 15/13, which the mean of 16 exceeds 3 of
    with probability under 1e-3. EP's Gaussian alone, unwidened, gives 8 to 18.
    """
    rho = variance / (1.0 + variance)
    lower, upper = np.zeros(n), np.full(n, np.inf)
    exact = equicorrelated_log_prob(lower, upper, rho)
    mean = float(np.ravel(equicorrelated_moments(lower, upper, rho)[0])[0])
    cov = DenseCovariance(equicorrelated_cov(n, rho))
    ratios, means = [], []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        result = RectangleSampler(cov, lower, upper).sample(1024, rng, goal="draws")
        ratios.append((result.log_prob.value - exact) / result.log_prob.std_error)
        means.append(normalized_weights(result.log_weights) @ result.u.mean(axis=0))
    assert np.mean(np.square(ratios)) < 3.0
    # The mean of 16 runs, by its own spread; floor .1 % for what all runs lack.
    error = np.std(means, ddof=1) / 4.0
    assert abs(np.mean(means) - mean) < 5.0 * error + 1e-3 * mean


class TestPolicy:
    """Its rules, by estimates made up."""

    def test_the_first_rung(self):
        poor = Estimate(-1.0, 0.01, 0.4, 0.5)
        assert DEFAULT.accepts_first(poor._replace(relative_ess=0.5), "draws", 10)
        assert not DEFAULT.accepts_first(poor, "draws", 10)
        assert DEFAULT.accepts_first(poor, "draws", DEFAULT.large + 1)
        assert not DEFAULT.accepts_first(poor._replace(pareto_k=0.7), "draws", DEFAULT.large + 1)
        assert not DEFAULT.accepts_first(poor, "probability", 10)
        small = poor._replace(std_error=DEFAULT.target_se)
        assert DEFAULT.accepts_first(small, "probability", 10)
        assert not DEFAULT.accepts_first(small._replace(pareto_k=0.7), "probability", 10)
        equal = poor._replace(relative_ess=0.95, pareto_k=2.0)
        assert DEFAULT.accepts_first(equal, "probability", 10)

    def test_tempering_by_the_pilot(self):
        pilot = Estimate(-1.0, 0.1, 0.2, 0.5)
        assert DEFAULT.tempers(pilot, "draws")
        assert not DEFAULT.tempers(pilot, "probability")
        assert DEFAULT.tempers(pilot._replace(pareto_k=0.7), "probability")

    def test_the_first_rung_that_is_accepted_ends_the_search(self):
        tried = []

        def run(rung):
            tried.append(rung.relax)
            return rung.relax, {1.0: 0.2, 0.6: 0.8, 0.35: 0.9}[rung.relax]

        rungs = [Rung(relax, accept=0.7) for relax in (1.0, 0.6, 0.35)]
        assert first_accepted(rungs, run) == (0.6, 0.8, True)
        assert tried == [1.0, 0.6]
        # Without a score to reach all are tried, and the best is taken.
        assert first_accepted([Rung(relax) for relax in (1.0, 0.35, 0.6)], run) == (
            0.35,
            0.9,
            False,
        )
